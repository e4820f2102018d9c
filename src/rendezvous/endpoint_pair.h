/* SPDX-License-Identifier: Apache-2.0 */
/* What either end of a connection needs to know about itself before it meets the other.
 */
#ifndef VD_RENDEZVOUS_ENDPOINT_PAIR_H
#define VD_RENDEZVOUS_ENDPOINT_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "rendezvous/diag.h"

/* Where the addresses of the other end's socket are from. */
enum party_view {
	PARTY_AS_SEEN, /* they are taken to be ours */
	PARTY_SHOWN, /* the kernel has told us, or viaductd, how it rewrites this connection */
	PARTY_UNKNOWN, /* connector: the kernel tracks it, and does not tell us more */
	PARTY_GUESSED /* acceptor: rewritten; the client's own address is taken to be as we see it */
};

struct party {
	int fd;
	enum tcp_role role;
	struct name_tuple tuple; /* as our socket has it */
	struct name_tuple dialled,
		accepted; /* as the connector's has it, and the acceptor's */
	enum party_view view;
	bool may_be_told; /* the kernel tracks it, and tells us not how it rewrites it */
	uint64_t
		peer_cookie; /* of the other end's socket, where viaductd has told it; else 0 */
	uint64_t netns; /* of the TCP socket; the thread may have left it */
};

/* 1, 0 while the socket is not connected, or -enum vd_reason. */
int party_init(struct party *p, int fd, enum tcp_role role);
/* This socket may be the other end's: viaductd has told of no other. */
bool party_may_be(const struct party *p, const struct diag_socket *found);
/* The other end's socket, in this network namespace: as diag_lookup. */
int party_find(const struct party *p, struct diag_socket *out);
/* Logs a negative result with the connection's addresses; returns it. */
int party_result(const struct party *p, const char *step, int result);
/* The reason, negative, that goes with -errno from kept_take and its kin. */
int party_errno(int negative_errno);

#endif
