/* SPDX-License-Identifier: Apache-2.0 */
/* How far the array that a program gives to epoll_wait can be written to. */
#include "base/sigsafe.h"
#include "readiness/epoll.h"

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
