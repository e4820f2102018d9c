/* SPDX-License-Identifier: Apache-2.0 */
/* A service's loop: looks at the connections that are busy before it asks the kernel for all. */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "rpc/engine.h"
#include "rpc/server.h"

/* Connections that have lately called; and calls served between two questions to the kernel, which
 * alone knows of other connections. */
#define BUSY_MOST  16
#define CALLS_MOST 32

struct busy {
	int fds[BUSY_MOST]; /* the last one to call is the first */
	int count;
	unsigned calls; /* since the kernel was last asked */
};

struct polled {
	struct pollfd *fds;
	int count;
};

/* As libtirpc's: svc_exit has taken the set away. */
static bool is_over(void)
{
	return *tirpc()->svc_max_pollfd == 0 && !*tirpc()->svc_pollfd;
}

static void drop(struct busy *b, int at)
{
	b->count--;
	memmove(&b->fds[at], &b->fds[at + 1], (size_t)(b->count - at) * sizeof(int));
}

static void put_first(struct busy *b, int fd)
{
	for (int i = 0; i < b->count; i++)
		if (b->fds[i] == fd) {
			drop(b, i);
			break;
		}
	if (b->count == BUSY_MOST)
		b->count--;
	memmove(&b->fds[1], &b->fds[0], (size_t)b->count * sizeof(int));
	b->fds[0] = fd;
	b->count++;
}

/* One of them has a call, or has soon: serves it. What is no connection of the module's any more is
 * dropped. */
static bool serve_busy(struct busy *b)
{
	int at = b->count ? engine->await_any(b->fds, b->count) : -1, fd;

	if (at < 0)
		return false;
	fd = b->fds[at];
	server_served = -1;
	tirpc()->svc_getreq_common(fd);
	if (server_served != fd)
		drop(b, at);
	b->calls++;
	return true;
}

static bool copy_set(struct polled *p)
{
	int count = *tirpc()->svc_max_pollfd;
	struct pollfd *fds;

	if (count != p->count) {
		fds = realloc(p->fds, sizeof(*fds) * (size_t)count);
		if (!fds && count)
			return false;
		p->fds = fds;
		p->count = count;
	}
	for (int i = 0; i < count; i++)
		p->fds[i] = (struct pollfd){.fd = (*tirpc()->svc_pollfd)[i].fd,
					    .events = (*tirpc()->svc_pollfd)[i].events};
	return true;
}

/* A connection is busy once it has had two calls in a row. */
static void serve_polled(struct busy *b, struct polled *p, int ready)
{
	server_served = -1;
	tirpc()->svc_getreq_poll(p->fds, ready);
	if (server_served >= 0)
		put_first(b, server_served);
}

/* False: the loop ends. */
static bool serve_all(struct busy *b, struct polled *p, int timeout_ms)
{
	int ready;

	if (!copy_set(p)) {
		warn("svc_run: - out of memory");
		return false;
	}
	/* A handler of a signal may have called svc_exit since the loop's own look. */
	if (is_over())
		return false;
	ready = engine->poll(p->fds, (nfds_t)p->count, timeout_ms);
	if (ready < 0 && errno != EINTR) {
		warn("svc_run: - poll failed");
		return false;
	}
	b->calls = 0;
	if (ready > 0)
		serve_polled(b, p, ready);
	return true;
}

/* True: libtirpc's own loop is to go on. */
static bool run(struct busy *b, struct polled *p)
{
	while (!is_over()) {
		if (load_relaxed(&server_leaves_some))
			return true;
		if (b->calls < CALLS_MOST && serve_busy(b))
			continue;
		if (!serve_all(b, p, b->calls < CALLS_MOST ? -1 : 0))
			return false;
	}
	return false;
}

RPC_EXPORT void svc_run(void)
{
	struct busy busy = {.count = 0};
	struct polled polled = {NULL, 0};
	bool theirs = !engine_find() || run(&busy, &polled);

	free(polled.fds);
	if (theirs)
		tirpc()->svc_run();
}
