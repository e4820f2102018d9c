/* SPDX-License-Identifier: Apache-2.0 */
/* What the checks of `viaduct doctor HOST` know of the way to that host, and of each other. */
#ifndef VD_TOOL_DOCTOR_WAY_H
#define VD_TOOL_DOCTOR_WAY_H

#include <net/if.h>
#include <netinet/in.h>
#include <sys/types.h>

#include "daemon_client/caller.h"
#include "remote/crossover.h"
#include "tool/doctor/doctor.h"
#include "tool/observe/observe.h"

/* Where the peer's `viaduct doctor --answer` listens, beside viaductd's port. */
enum { WAY_PORT = 7431 };

struct way {
	const char *host;
	uint16_t port;
	/* Both addresses are there, and two hosts can have them. Ports are 0. */
	bool has_route;
	struct name_end local, peer;
	char local_text[INET6_ADDRSTRLEN], peer_text[INET6_ADDRSTRLEN];
	char interface[IF_NAMESIZE]; /* "" where none is known to have the address */
	bool has_device, has_relay;  /* what the checks of these names have found */
	bool measures_again;	     /* --measure */
	/* For the last two checks: bytes go by RDMA, and what is kept of the host, or to be. */
	bool is_rdma, is_kept;
	struct crossover measured;
};

extern struct way way;

/* False, and the check is left out, where there is no way to speak of. */
bool way_for(struct finding *f);
/* An address as people write it. Returns text. */
const char *way_text(const struct name_end *end, char text[INET6_ADDRSTRLEN]);
void way_address(const struct name_end *end, struct sockaddr_storage *out,
		 socklen_t *bytes);

/* ---- way.c ---- */

void check_name(struct finding *f);
void check_route(struct finding *f);
void check_device(struct finding *f);
/* NULL, and the device's name in text; or why no link from this address can be made, with the
 * error. */
const char *device_fault(const struct name_end *local, char *text, size_t size,
			 int *error);

/* ---- relay.c ---- */

/* Whether a daemon answers by that socket: it says DONE to a WITHDRAW in any case. 0 or -errno. */
int relay_greet(const char *name);

/* What the daemon of this host says of the daemon of another one. */
struct probed {
	int error; /* -errno: our daemon could not be asked; nothing below counts */
	enum local_status status;
	struct local_probed why;
	struct name_end self, daemon; /* who was asked, with the port, and from where */
	double round_trip_us;	      /* 0: not measured */
};

/* Some seconds at most. */
void relay_probe(const struct name_end *local, const struct name_end *peer,
		 struct probed *out);
/* `there`: the peer's daemon was told to ask ours. */
void relay_tell(struct finding *f, const struct probed *p, bool there);
void check_relay_daemon(struct finding *f);
void check_relay(struct finding *f);

/* ---- link.c ---- */

void check_answer(struct finding *f);
void check_connection(struct finding *f);
void check_latency(struct finding *f);
void check_sending(struct finding *f);
void check_receiving(struct finding *f);
void check_device_there(struct finding *f);
void check_relay_back(struct finding *f);
/* The tested connection has gone by RDMA both ways. */
bool link_is_rdma(void);
/* The port that answers there. */
struct name_end answer_end(void);
/* Ends what the checks have started. */
void link_finish(void);

/* ---- against.c ---- */

/* Before check_redirect, which keeps what both have found. */
void check_against_tcp(struct finding *f);

/* ---- redirect.c ---- */

void check_redirect(struct finding *f);

/* ---- answer.c ---- */

/* Serves `viaduct doctor HOST` of other hosts until it is ended. Returns an exit status. */
int doctor_answer(uint16_t port);

/* ---- far_child.c: the ends of the connection, under the library ---- */

int doctor_far_ask(void);
int doctor_far_answer(uint16_t port);

#endif
