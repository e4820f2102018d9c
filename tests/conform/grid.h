/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases share that go through a table of calls and situations. */
#ifndef CONFORM_GRID_H
#define CONFORM_GRID_H

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conform/cases.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Only Viaduct has these: both directions of fd go down to TCP, and may come up again. */
__attribute__((weak)) void viaduct_test_bounce(int fd);
/* 16 * the gate for receiving + that for sending: 0 TCP, 1 open, 2 ring, 3 TCP for good. */
__attribute__((weak)) int viaduct_test_gates(int fd);

/*
 * Where a connection is when the situation begins. ONE_WAY and OTHER_WAY: only what p.s
 * receives, or sends, is on the ring. MIDWAY: what it receives next is part on TCP and part
 * in the ring, if it is sent with stage_send.
 */
enum stage { COLD, WARM, BOUNCED, ONE_WAY, OTHER_WAY, MIDWAY };

static inline void bounce(int fd)
{
	if (viaduct_test_bounce)
		viaduct_test_bounce(fd);
}

/* All from one listener: hundreds of connections fit into a table of descriptors. */
static inline struct pair stage_pair(int rcvbuf)
{
	static int listener = -1;
	static struct sockaddr_storage to;
	static socklen_t len = sizeof to;
	uint16_t port;
	struct pair p = {.c = socket(AF_INET, SOCK_STREAM, 0)};
	if (listener < 0) {
		listener = listen_any(AF_INET, &port);
		NEED(getsockname(listener, (struct sockaddr *)&to, &len) == 0);
	}
	if (rcvbuf)
		NEED(setsockopt(p.c, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf) == 0);
	NEED(connect(p.c, (struct sockaddr *)&to, len) == 0);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	return p;
}

static inline void need_gates(int fd, int gates)
{
	const char *after = getenv("VIADUCT_UPGRADE_AFTER");
	/* One of both.py's modes has it otherwise. */
	if (!after || strcmp(after, "0") != 0 || getenv("CONFORM_ONE_WAY"))
		return;
	NEED(!viaduct_test_gates || viaduct_test_gates(fd) == gates);
}

/* Enough for both ends to meet; a grid does it thousands of times. */
#define STAGE_TURNS 24

static inline void warm_one_way(int from, int to)
{
	char buf[8];
	send_all(from, "one way", 8);
	recv_all(to, buf, 8);
	NEED(!memcmp(buf, "one way", 8));
}

/* A statically linked program does not find the two functions. */
static inline bool is_under_viaduct(void)
{
	return viaduct_test_gates || getenv("VIADUCT_UPGRADE_AFTER");
}

static inline void stage_enter(struct pair p, enum stage stage)
{
	/* On kernel TCP it makes no difference, and takes long. */
	int turns = stage == COLD || !is_under_viaduct() ? 0 : STAGE_TURNS;
	for (int i = 0; i < turns; i++) {
		if (stage != OTHER_WAY)
			warm_one_way(p.c, p.s);
		if (stage != ONE_WAY)
			warm_one_way(p.s, p.c);
	}
	if (stage == BOUNCED || stage == MIDWAY)
		bounce(p.s);
	else if (stage != COLD)
		need_gates(p.s, stage == ONE_WAY     ? 0x20
				: stage == OTHER_WAY ? 0x02
						     : 0x22);
}

/* Sends the pattern; in MIDWAY so that the mark is in the middle, and nothing is read. */
static inline void stage_send(int from, int to, enum stage stage, size_t len)
{
	size_t first = stage == MIDWAY ? len * 2 / 5 : 0;
	char byte;
	if (first) {
		send_pattern(from, 0, first);
		wait_inq(to, (int)first);
		/* Opens the direction; the next send finds that. */
		NEED(recv(to, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
	}
	send_pattern(from, first, len - first);
	wait_inq(to, (int)len);
	if (first)
		NEED(!viaduct_test_gates || (viaduct_test_gates(to) >> 4 == 1 &&
					     (viaduct_test_gates(from) & 15) == 2));
}

static inline struct pair stage_open(enum stage stage)
{
	struct pair p = stage_pair(0);
	stage_enter(p, stage);
	return p;
}

#endif
