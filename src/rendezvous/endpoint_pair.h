/* SPDX-License-Identifier: Apache-2.0 */
/* What either end of a connection needs to know about itself before it meets the other.
 */
#ifndef VD_RENDEZVOUS_ENDPOINT_PAIR_H
#define VD_RENDEZVOUS_ENDPOINT_PAIR_H

#include <stdint.h>

#include "base/endpoint.h"

struct party {
	int fd;
	enum tcp_role role;
	struct name_tuple tuple;
	uint64_t netns; /* of the TCP socket; the thread may have left it */
};

/* 1, 0 while the socket is not connected, or -enum vd_reason. */
int party_init(struct party *p, int fd, enum tcp_role role);
/* Logs a negative result with the connection's addresses; returns it. */
int party_result(const struct party *p, const char *step, int result);
/* The reason, negative, that goes with -errno from kept_take and its kin. */
int party_errno(int negative_errno);

#endif
