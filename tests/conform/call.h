/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking call in a thread of its own, and what it ends with. */
#ifndef CONFORM_CALL_H
#define CONFORM_CALL_H

#include <stddef.h>
#include <sys/types.h>

#include "cases.h"

/* More than the buffers of both ends take. */
enum { BULK = 12000000 };

struct call {
	int fd;
	size_t len;
	int flags;
	ssize_t result;
	int error;
};

/* What the thread runs; len is at most BULK_ROOM. */
void call_recv(void *arg);
void call_send(void *arg);
/* Returns when the call sleeps, or has ended. */
void call_start(struct worker *t, void (*run)(void *), struct call *c);
/* Waits for its end, and says its result. */
void call_end(struct worker *t, const struct call *c);
/* Receives so many bytes. */
void read_bulk(int fd, size_t len);

#endif
