/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous: how the two ends of a TCP connection find each other on one host. */
#ifndef VD_RENDEZVOUS_RENDEZVOUS_H
#define VD_RENDEZVOUS_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/endpoint.h"
#include "base/reason.h"
#include "base/tcp.h"
#include "ring/wire.h"

/* What both ends hold after they met. All descriptors went through fds_adopt. */
struct meet_segment {
	struct wire *wire; /* mapped, WIRE_TOTAL_BYTES */
	bool at_place;	   /* where the caller said: emptied in the end, not unmapped */
	int memfd;
	int bell;      /* eventfd on which this end sleeps */
	int peer_bell; /* within one user: eventfd on which the other end sleeps; or -1 */
	int far_bell;  /* between users: netlink socket, see farbell.h; or -1 */
	/* With 0 from meet_collect: why somebody who has come was turned away, if one was. */
	enum vd_reason turned_away;
};

/*
 * All calls are nonblocking. They return 1 (done), 0 (nothing there yet: try later),
 * or -enum vd_reason (never: stay on TCP with that reason).
 */

/* Listener side: tells connectors on this host that listen_fd's port is served under
 * Viaduct. Returns a descriptor to hand to meet_unannounce, or -1. Never fails loudly. */
int meet_announce(int listen_fd);
void meet_unannounce(int announced_fd);

/* Connector: asks whether the peer's port is announced and lives in this network
 * namespace, then publishes the name of this connection. On 1, *name_fd is the listener.
 */
int meet_publish(int fd, int *name_fd);
/* After it has said 0: whether it is to be asked again, which costs more than this. */
bool meet_may_publish(int fd);
/* Closes such a name, whatever strangers have sent to it. -1 is ignored. */
void meet_unpublish(int name_fd);
/*
 * Connector: takes the acceptor's offer, checks all of it, attaches. *name_fd may change
 * (an accepted connection whose hello has not come). On 1 and on failure *name_fd is
 * closed, -1. place: mapped addresses of the caller's, whose contents the segment replaces, or
 * NULL; they stay mapped in any case.
 */
int meet_collect(int fd, int *name_fd, void *place, struct meet_segment *out);
/* Acceptor: looks for the name; when it is there, checks the peer and sends the offer. place: as
 * above. */
int meet_offer(int fd, void *place, struct meet_segment *out);
/* Acceptor: it stays on TCP. Looks for the name, and tells the connector why. 1: it is told. */
int meet_decline(int fd, enum vd_reason reason);
/* Acceptor: after an offer. 1 once the connector has attached (and its counts hold): then
 * a far bell rings, too. */
int meet_attached(int fd, struct meet_segment *seg);
/*
 * Of two network namespaces, whose ends viaductd has brought together: what it has given, and said of
 * the other end's socket. Both descriptors are adopted; the bell is the segment's once that is made, the
 * line is closed when it is not needed any more, -1.
 */
struct meet_near {
	int line, bell;
	uint64_t cookie, netns;
};
/* As meet_offer, and as meet_collect. 0 with the line closed: the other end has gone. */
int meet_near_offer(int fd, struct meet_near *near, void *place,
		    struct meet_segment *out);
int meet_near_collect(int fd, struct meet_near *near, void *place,
		      struct meet_segment *out);
/* Closes what is left. */
void meet_near_drop(struct meet_near *near);

/*
 * Where the kernel does not tell a process how it rewrites a connection's addresses, viaductd may. NULL, or whoever
 * asks it: `own` is the connection as the socket has it. `ask`: else no more is said than was asked before.
 */
enum meet_word {
	MEET_UNTOLD, /* nobody tells it */
	MEET_ASKED,  /* the answer is to come */
	MEET_TOLD
};
struct meet_told {
	struct name_tuple tuple; /* as the other end's socket has it; the client first */
	uint64_t cookie;	 /* of that socket */
};
extern enum meet_word (*meet_tell)(int fd, const struct name_tuple *own,
				   enum tcp_role role, uint64_t netns, bool ask,
				   struct meet_told *out);
/* The answer about this connection is to come. */
bool meet_is_asked(int fd, enum tcp_role role);

/* Whether the other end is on another host, or in another network namespace: 1, and the ends;
 * 0 it is here, or cannot be told yet; or -enum vd_reason. */
int meet_is_remote(int fd, enum tcp_role role, struct name_end *local,
		   struct name_end *peer);
/* Why the other end has not come to where it was looked for: VD_REASON_PLAIN_PEER, or
 * VD_REASON_NAT where we may look in the wrong place. */
enum vd_reason meet_missing_reason(int fd, enum tcp_role role);
/* Unmaps, or empties, and closes. Abandons an offer that nobody has taken: returns 0 when the
 * connector was faster (then call meet_attached instead), else 1. */
int meet_abandon(struct meet_segment *seg);
void meet_finish(struct meet_segment *seg);
/* Puts private memory full of zeros where a segment is mapped. */
void meet_empty(void *place);

/* Closes the sockets that are kept for further meetings: they are made anew when needed. */
void meet_give_back(void);

#endif
