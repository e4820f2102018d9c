/* SPDX-License-Identifier: Apache-2.0 */
/* All that can be seen of processes and their TCP sockets, under Viaduct or not. */
#ifndef VD_TOOL_EXPLAIN_WORLD_H
#define VD_TOOL_EXPLAIN_WORLD_H

#include "tool/explain/explain.h"
#include "tool/observe/parts.h"

struct world {
	struct observe o; /* the connections of those under Viaduct */
	/* Everybody's, in one network namespace. */
	struct observe_list processes, holders, sockets;
	const struct observe_socket **by_ends;
	uint64_t netns;
	size_t hidden;
	const struct observe_process *said; /* whom the answer is about, ... */
	const char *said_name;		    /* ... and why it is outside */
	bool elsewhere_known;		    /* by world_elsewhere */
	struct observe_list elsewhere;
};

/* A descriptor that is a TCP socket. */
struct link {
	const struct observe_process *owner; /* in o, or NULL: nobody that we may see */
	int fd;
	const struct observe_socket *socket;
	const struct observe_conn *conn; /* NULL: not under Viaduct */
};

/* In the network namespace of pid (0: our own). 0, or -errno after a message. */
int world_take(pid_t pid, struct world *w);
void world_finish(struct world *w);
const struct observe_socket *world_socket(const struct world *w, uint64_t inode);
/* The socket at the other end, in the same network namespace; or NULL. */
const struct observe_socket *world_other(const struct world *w,
					 const struct observe_socket *s);
/* Who has the socket: the holders are entries [0, *count) from what is returned. */
const struct observe_holder *world_holders(const struct world *w, uint64_t inode,
					   size_t *count);
const struct observe_process *world_process(const struct world *w,
					    const struct observe_holder *h);
/* A holder, rather one under Viaduct, as a link. */
struct link world_link(const struct world *w, const struct observe_socket *s);
const struct observe_conn *world_conn(const struct world *w, pid_t pid, int fd);
/* A process of this host, in another network namespace, that has the other end; or NULL. */
const struct observe_process *world_elsewhere(struct world *w,
					      const struct observe_socket *s);
/* True when the address is one of this network namespace's own, where we are in it. scope: the
 * interface of a link's own address. */
bool address_is_here(const struct in6_addr *addr, uint32_t scope);

/* ---- conn.c ---- */

/* Says everything about one connection. True when it is on the direct path. */
bool explain_link(struct world *w, const struct link *l, struct answer *a);
/* Fills in what explain_link would begin with: the descriptor, the addresses, the peer. */
char *link_text(const struct world *w, const struct link *l);
/* "redis-server (pid 12)" */
char *process_text(const struct observe_process *p);

/* ---- reason.c ---- */

/* The sentences for a reason that holds for the link. Both are for free(). */
void reason_explain(struct world *w, const struct link *l, uint32_t reason, char **text,
		    char **remedy);
/* Sentences that begin with a capital letter and end with a stop. */
char *sentence_of(const char *text);

/* ---- the subjects ---- */

/* pid.c: fd -1: all of its connections. */
int explain_pid(pid_t pid, int fd, struct answer *a);
/* Says whether connections to a listener can be upgraded; port.c. */
bool explain_listener(const struct world *w, const struct link *l, struct answer *a);
/* far.c: an address of another host. True: connections can go there by RDMA. */
bool explain_far(const struct observe_end *end, const char *text, struct answer *a);
int explain_port(const char *host, const char *port, struct answer *a);

#endif
