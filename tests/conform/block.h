/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that can block, each in a thread with a connection of its own. */
#ifndef CONFORM_BLOCK_H
#define CONFORM_BLOCK_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "conform/grid.h"

struct seat;

enum role { READER, WRITER, ACCEPTOR };

struct call {
	const char *name;
	ssize_t (*run)(struct seat *s);
	enum role role;
	bool deaf;   /* no point of cancellation */
	bool polls;  /* reports readiness: no timeout of the socket's, no restart */
	bool untidy; /* libc's, cancelled, leaves a stream of its stack in the list */
	bool keeps;  /* leaves the bytes there */
};

/* A thread in a call; fd is what it waits on, p.c the end that makes things happen. */
struct seat {
	const struct call *call;
	struct pair p;
	int fd, ep, file, pipe[2];
	uint16_t port;
	char buf[16];
	struct iovec iov;
	struct mmsghdr msg;
	size_t fed;	 /* bytes that a reader may take */
	uint64_t filled; /* bytes on their way to p.c that nobody has read */
	ssize_t result;
	int error, events;
	_Atomic bool begun; /* things happen: a writer takes what it gets */
	_Atomic bool
		fills; /* looks at that, and may fill what room it has found before */
	_Atomic bool back;
	bool gone; /* the thread was cancelled */
	struct worker worker;
};

extern const struct call block_calls[];
extern const size_t block_calls_count;

/* Makes the connection; a writer's is full. */
void seat_open(struct seat *s, const struct call *call, enum stage stage);
/* Once more, after a while: the kernel may have made room. False: the connection has ended. */
bool seat_fill(struct seat *s);
/* Lets the call go on: bytes for a reader, room for a writer, somebody for an acceptor. */
void seat_feed(struct seat *s);
void seat_close(struct seat *s);

#endif
