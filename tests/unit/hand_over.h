/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of a connection that is handed over while bytes lie unread in its ring. */
#ifndef VD_TESTS_UNIT_HAND_OVER_H
#define VD_TESTS_UNIT_HAND_OVER_H

#include "unit/conn_pair.h"

#define SEED 9

PAIR_FN void put_bytes(int fd, uint64_t at, size_t len)
{
	static uint8_t buf[FLOW_MOST];
	for (size_t n; len > 0; at += n, len -= n) {
		n = len < sizeof(buf) ? len : sizeof(buf);
		flow_fill(buf, n, at, SEED);
		REQUIRE(st_send(fd, buf, n, 0) == (ssize_t)n);
	}
}

PAIR_FN void get_bytes(int fd, uint64_t at, size_t len)
{
	static uint8_t buf[FLOW_MOST];
	ssize_t n;
	for (; len > 0; at += (uint64_t)n, len -= (size_t)n) {
		n = st_recv(fd, buf, len < sizeof(buf) ? len : sizeof(buf), 0);
		REQUIRE(n > 0 && flow_is(buf, (size_t)n, at, SEED));
	}
}

PAIR_FN void ask(const struct pair *p)
{
	sock_hand_over(fd_sock(p->b), p->b, VD_REASON_EXEC);
}

PAIR_FN void answer(const struct pair *p)
{
	sock_service(fd_sock(p->a), p->a);
}

/* Reads a part of what is sent, so that positions and areas differ. */
PAIR_FN uint64_t walk(const struct pair *p, uint64_t *state, uint64_t *at, int steps)
{
	uint64_t took = *at;
	for (int i = 0; i < steps; i++) {
		size_t len = flow_random(state) % (1u << flow_random(state) % 18) + 1;
		put_bytes(p->a, *at, len);
		*at += len;
		if (*at - took > 250000 || flow_random(state) % 2) {
			size_t want = flow_random(state) % (*at - took + 1);
			get_bytes(p->b, took, want);
			took += want;
		}
	}
	return took;
}

#endif
