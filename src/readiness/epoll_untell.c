/* SPDX-License-Identifier: Apache-2.0 */
/* Events that were taken out of the kernel's queue, and are put there once more. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/kernel.h"
#include "base/real.h"
#include "readiness/epoll.h"

/*
 * What the kernel has told, it does not tell again of an edge, or of a registration that was for
 * once. Setting such a registration to what it is has the kernel look at it anew. Which these are,
 * and what they ask for, is in /proc; of one that was for once that is gone when it has been told.
 */

/* Not of the heap, which a handler may have interrupted. */
#define LISTING_ROOM 16384

struct listing {
	size_t room, len;
	char text[];
};

static struct listing *listing_grow(struct listing *l)
{
	size_t room = l ? 2 * l->room : LISTING_ROOM;
	void *more = l ? mremap(l, l->room, room, MREMAP_MAYMOVE)
		       : mmap(NULL, room, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (more == MAP_FAILED) {
		epoll_listing_give(l);
		return NULL;
	}
	l = more;
	l->room = room;
	return l;
}

void epoll_listing_give(void *listing)
{
	struct listing *l = listing;

	if (l)
		munmap(l, l->room);
}

/* NULL, too, where not all of it can be read. */
static struct listing *listing_read(int fd)
{
	struct listing *l = NULL;
	ssize_t n = 1;

	while (n > 0) {
		if (!l || l->room - sizeof(*l) - l->len < LISTING_ROOM / 4)
			l = listing_grow(l);
		if (!l)
			return NULL;
		n = kernel_read(fd, l->text + l->len, l->room - sizeof(*l) - l->len - 1);
		l->len += n > 0 ? (size_t)n : 0;
	}
	l->text[l->len] = '\0';
	if (n == 0)
		return l;
	epoll_listing_give(l);
	return NULL;
}

struct listing *epoll_listing(int epfd)
{
	struct listing *l;
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	l = listing_read(fd);
	kernel_close(fd);
	return l;
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

static void kernel_untell(int epfd, const struct listing *l, uint64_t data)
{
	const char *line = l ? l->text : NULL;

	for (; line; line = strchr(line, '\n'), line += line != NULL) {
		uint64_t listed;
		uint32_t events;
		int fd;

		if (sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64, &fd,
			   &events, &listed) == 3 &&
		    listed == data)
			renew(epfd, fd,
			      &(struct epoll_event){.events = events, .data.u64 = data});
	}
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

void epoll_untell(struct instance *in, int epfd, const struct listing *listing,
		  uint64_t data)
{
	memory_untell(in, data);
	kernel_untell(epfd, listing, data);
}

/* ---- what is ours in it ---- */

static void sift_one(struct instance *in, int epfd, const struct listing *l,
		     const struct epoll_event *ev)
{
	bool bell = false;
	struct epoll_reg *r = tag_reg(ev->data.u64, &bell);

	if (r)
		tag_heard(in, ev);
	else if (ev->data.u64 == tag_of_shared())
		sock_hear_shared_bell();
	else if (!tag_collides(ev->data.u64) || in->no_upgrade)
		kernel_untell(epfd, l, ev->data.u64);
}

/* Each line of it may be an event, and so may what has been added since. */
static size_t most_events(struct instance *in, const struct listing *l)
{
	size_t n = in->nregs + 1;

	for (const char *at = l->text; (at = strchr(at, '\n')); at++)
		n++;
	return n;
}

bool epoll_sift(struct instance *in, int epfd, const struct listing *l)
{
	size_t most = most_events(in, l), bytes = most * sizeof(struct epoll_event);
	struct epoll_event *ev = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int n;

	if (ev == MAP_FAILED)
		return false;
	/* In one go: what is level-triggered goes to the end, and would come again. */
	n = kernel_epoll_look(epfd, ev, (int)most);
	for (int i = 0; i < n; i++)
		sift_one(in, epfd, l, &ev[i]);
	munmap(ev, bytes);
	return true;
}
