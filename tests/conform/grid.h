/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases share that go through a table of calls and situations. */
#ifndef CONFORM_GRID_H
#define CONFORM_GRID_H

#include <sys/socket.h>

#include "conform/cases.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Only Viaduct has it: both directions of fd go down to TCP, and may come up again. */
__attribute__((weak)) void viaduct_test_bounce(int fd);

/* Where a connection is when the situation begins. */
enum stage { COLD, WARM, BOUNCED, STAGES };

static inline const char *stage_name(enum stage stage)
{
	static const char *const names[] = {"cold", "warm", "bounced"};
	return names[stage];
}

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

static inline void stage_enter(struct pair p, enum stage stage)
{
	if (stage != COLD)
		pair_warm(p);
	if (stage == BOUNCED)
		bounce(p.s);
}

static inline struct pair stage_open(enum stage stage)
{
	struct pair p = stage_pair(0);
	stage_enter(p, stage);
	return p;
}

#endif
