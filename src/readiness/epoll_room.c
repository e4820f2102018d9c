/* SPDX-License-Identifier: Apache-2.0 */
/* How far the array that a program gives to epoll_wait can be written to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/sigsafe.h"
#include "readiness/epoll_call.h"

/* Above it there is no address of a program. */
#define USER_END ((1ul << 47) - CRIT_PAGE_BYTES)

bool epoll_is_user(const struct epoll_event *ev, int max)
{
	uintptr_t begin = (uintptr_t)ev;

	return begin <= USER_END && (size_t)max * sizeof(*ev) <= USER_END - begin;
}

static uintptr_t page_of(uintptr_t at)
{
	return at & ~(uintptr_t)(CRIT_PAGE_BYTES - 1);
}

/* Pages after the first, of which one may be missing: those before it count. */
static __attribute__((noinline)) int room_over_pages(struct epoll_event *ev, int most)
{
	uintptr_t begin = (uintptr_t)ev, end = (uintptr_t)(ev + most);

	for (uintptr_t at = page_of(begin) + CRIT_PAGE_BYTES; at < end;
	     at += CRIT_PAGE_BYTES)
		if (crit_touch((void *)at) != 0)
			return (int)((at - begin) / sizeof(*ev));
	return most;
}

int epoll_room(struct epoll_event *ev, int max, uint32_t most)
{
	/* What is there is stored once more, where the first event goes at any rate. */
	if (crit_copy(ev, ev, sizeof(*ev)) != 0)
		return 0;
	if ((uint32_t)max > most)
		max = (int)most;
	if (page_of((uintptr_t)ev) == page_of((uintptr_t)(ev + max) - 1))
		return max;
	return room_over_pages(ev, max);
}

/* Of the kernel's own that were for once it is not known any more what they asked for: these are lost. */
static APART void untell(struct call *c, const struct epoll_event *ev, int n)
{
	struct _pthread_cleanup_buffer cleanup;
	struct listing listing;

	crit_enter(); /* no handler jumps away with the listing */
	listing = epoll_listing(c->epfd);
	_pthread_cleanup_push(&cleanup, listing_drop, &listing);
	crit_leave();
	for (int i = 0; i < n; i++)
		epoll_untell(c->in, c->epfd, listing.text, ev[i].data.u64);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
}

int call_untell(struct call *c)
{
	untell(c, c->ev, 1);
	return -EFAULT;
}

APART int call_shrink(struct call *c, struct epoll_event *raw, int n)
{
	int room = epoll_room(c->ev, c->max, (uint32_t)c->max);
	int kept = n > 0 ? instance_translate(c->in, raw, n, raw) : n;
	int told = kept < room ? kept : room;

	if (told > 0)
		memcpy(c->ev, raw, (size_t)told * sizeof(*raw));
	if (kept > told)
		untell(c, raw + told, kept - told);
	order_told(c->in, raw, told);
	c->lost = room == 0;
	c->ev = c->lost ? &c->spot : c->ev;
	c->max = c->lost ? 1 : room;
	return kept > 0 && c->lost ? -EFAULT : told;
}
