/* SPDX-License-Identifier: Apache-2.0 */
/* Events that the kernel has told, and the program is not told: there was no memory, or nothing in them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/await.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/real.h"
#include "base/scratch.h"
#include "readiness/epoll.h"

/*
 * What the kernel has told, it does not tell again of an edge, or of a registration that was for
 * once. Setting such a registration to what it is has the kernel look at it anew. Which these are,
 * and what they ask for, is in /proc; of one that was for once that is gone when it has been told.
 */

#define LEAST 8192

/* Twice the room, with what is there. False: there is no memory. */
static bool grow(struct listing *l, size_t len)
{
	size_t room = l->room ? 2 * l->room : LEAST;
	char *text = scratch_take(room);

	if (!text)
		return false;
	if (l->text)
		memcpy(text, l->text, len);
	listing_drop(l);
	*l = (struct listing){text, room};
	return true;
}

struct listing epoll_listing(int epfd)
{
	struct listing l = {NULL, 0};
	char path[40];
	size_t len = 0;
	ssize_t n = 1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = LOW_MADE(fds_raise, kernel_open(path, O_RDONLY | O_CLOEXEC, 0));
	if (fd < 0)
		return l;
	while (n > 0 && (l.room - len > LEAST / 2 || grow(&l, len))) {
		n = kernel_read(fd, l.text + len, l.room - len - 1);
		len += n > 0 ? (size_t)n : 0;
	}
	fds_close(fd);
	if (l.text)
		l.text[len] = '\0';
	return l;
}

void listing_drop(void *listing)
{
	struct listing *l = listing;

	if (l->text)
		scratch_give(l->text, l->room);
	l->text = NULL;
}

bool listing_next(const char **at, struct listed *l)
{
	while (*at && **at) {
		const char *line = *at, *end = strchr(line, '\n');

		*at = end ? end + 1 : NULL;
		if (sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64, &l->fd,
			   &l->events, &l->data) == 3)
			return true;
	}
	return false;
}

static void renew(int epfd, int fd, struct epoll_event *ev)
{
	if (!(ev->events & (EPOLLET | EPOLLONESHOT)))
		return;
	/* This one cannot be changed. */
	if (ev->events & EPOLLEXCLUSIVE) {
		REAL(epoll_ctl)(epfd, EPOLL_CTL_DEL, fd, NULL);
		REAL(epoll_ctl)(epfd, EPOLL_CTL_ADD, fd, ev);
	} else {
		REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, fd, ev);
	}
}

static void kernel_untell(int epfd, const char *listing, uint64_t data)
{
	struct listed l;

	while (listing_next(&listing, &l))
		if (l.data == data)
			renew(epfd, l.fd,
			      &(struct epoll_event){.events = l.events,
						    .data.u64 = data});
}

static void memory_untell(struct instance *in, uint64_t data)
{
	instance_lock(in);
	for (struct epoll_reg *r = in->regs; r; r = r->next) {
		if (!r->converted || r->parked || r->data.u64 != data)
			continue;
		r->fresh = true;
		r->spent = false;
		reg_heat(r);
	}
	instance_unlock(in);
}

void epoll_untell(struct instance *in, int epfd, const char *listing, uint64_t data)
{
	memory_untell(in, data);
	kernel_untell(epfd, listing, data);
}

/* ---- what an inner instance has told with nothing in it ---- */

bool epoll_is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return await_glance(&p, 1) > 0;
}

/* It told this by its side. A registration for once is spent by that, and gets back what it has told by. */
static void tell_later(int epfd, int fd, uint32_t listed, const struct epoll_event *told)
{
	struct epoll_event ev = {.events = listed | told->events, .data = told->data};

	if ((listed & EPOLLONESHOT) && !(listed & told->events))
		REAL(epoll_ctl)(epfd, EPOLL_CTL_MOD, fd, &ev);
}

/* Each that may have told it is an instance of ours, and not readable. */
static bool is_vain(int epfd, const char *listing, const struct epoll_event *told)
{
	bool vain = false;
	struct listed l;

	while (listing_next(&listing, &l)) {
		if (l.data != told->data.u64)
			continue;
		if (!instance_at(l.fd) || epoll_is_readable(l.fd))
			return false;
		tell_later(epfd, l.fd, l.events, told);
		vain = true;
	}
	return vain;
}

/* A connection may have told it, of which the kernel has a tag by now. */
static bool is_connections(struct instance *in, uint64_t data)
{
	struct epoll_reg *r;

	instance_lock(in);
	for (r = in->regs; r && r->data.u64 != data; r = r->next)
		;
	instance_unlock(in);
	return r;
}

int epoll_drop_vain(struct instance *in, int epfd, struct epoll_event *ev, int n)
{
	struct listing l = epoll_listing(epfd);
	int kept = 0;

	for (int i = 0; i < n; i++)
		if (is_connections(in, ev[i].data.u64) || !is_vain(epfd, l.text, &ev[i]))
			ev[kept++] = ev[i];
	listing_drop(&l);
	return kept;
}
