/* SPDX-License-Identifier: Apache-2.0 */
/* A blocking call in a thread of its own: call.h. */
#include "call.h"

#include <errno.h>
#include <sys/socket.h>

void call_recv(void *arg)
{
	struct call *c = arg;
	c->result = recv(c->fd, bulk_room(), c->len, c->flags);
	c->error = errno;
}

void call_send(void *arg)
{
	struct call *c = arg;
	c->result = send(c->fd, bulk_room(), c->len, c->flags);
	c->error = errno;
}

void call_start(struct worker *t, void (*run)(void *), struct call *c)
{
	worker_start(t, run, c);
	wait_crowd_asleep(&t->tid, 1);
}

void call_end(struct worker *t, const struct call *c)
{
	worker_join(t);
	errno = c->error;
	say_result("call", c->result);
}

void read_bulk(int fd, size_t len)
{
	static char to[1 << 16];
	while (len > 0) {
		ssize_t n = recv(fd, to, sizeof to, 0);
		NEED(n > 0);
		len -= (size_t)n;
	}
}
