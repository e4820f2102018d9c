/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements between two hosts: `viaduct bench --host HOST`, and `--answer` at the other end. */
#ifndef VD_MEASURE_HOST_H
#define VD_MEASURE_HOST_H

#include "measure/end.h"

/* Beside the ports of viaductd and of `viaduct doctor --answer`. */
enum { HOST_PORT = 7432 };
/* After it something that was asked for does not come any more. */
enum { HOST_LIMIT_MS = 120000 };

struct host {
	const char *name; /* as the user has given it */
	unsigned port;
	char address[64];  /* where it answers: numbers */
	bool has_rsockets; /* it can preload them, and has a device; so can this one */
	bool has_verbs;	   /* a device has its address, and another one ours */
};

/* The library that puts rsockets in the place of sockets; NULL: it is not here, or there is no RDMA
 * device. */
const char *host_rsockets(void);
/* Finds the host, and asks what it has. 0, or -errno after a message. */
int host_find(struct host *h);
/* Has the server of these ends started there: what it says comes by its descriptor. 0 or -errno. */
int host_start(const struct host *h, struct ends *of);
/* Bytes to the other host, that is asked: 0 or -errno. */
int host_say(int fd, const char *text);

/* ---- answer.c ---- */

/* Answers until it is interrupted. Returns an exit status. */
int host_answer(unsigned port);

/* A line of the conversation: the server's words, but for what that host knows itself. */
#define HOST_JOB_SCAN	"job 1 %15s %31s %zu %u %u %u %u %d %ju %31s"
#define HOST_JOB_FORMAT "job 1 %s %s %zu %u %u %u %u %d %ju %s\n"
#define HOST_HELLO	"hello 1\n"
#define HOST_CLOCK	"clock\n"
#define HOST_END	"end\n"

#endif
