/* SPDX-License-Identifier: Apache-2.0 */
/* The places of events: of those from memory, and of the kernel's among these. */
#include <string.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "readiness/epoll.h"

uint64_t order_place(struct epoll_reg *r, uint32_t bits)
{
	uint64_t at = 0;

	if (r->queued)
		return r->queued;
	if (bits & LOOK_IN)
		at = r->events & EPOLLET ? sock_came_since(r->s, r->edge_before)
					 : sock_came(r->s);
	if (!at && (bits & (LOOK_IN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)))
		at = sock_ended(r->s);
	if (at > r->added)
		return at;
	if (r->added > r->in->looked_at)
		return r->added;
	/* Since the last look, then, and that is all that is known. */
	return r->heard ? r->heard : r->in->looked_at;
}

/* Of two that the same has woken, which the kernel queues first: the newest, but those that are
 * EXCLUSIVE as they were made, behind all others. */
static bool is_woken_first(const struct epoll_reg *r, const struct epoll_reg *other)
{
	bool last = r->events & EPOLLEXCLUSIVE,
	     other_last = other->events & EPOLLEXCLUSIVE;

	if (last != other_last)
		return other_last;
	return last ? r->made < other->made : r->made > other->made;
}

bool order_before(const struct batch *b, int i, const struct epoll_reg *r, uint64_t at)
{
	return at < b->place[i] || (at == b->place[i] && b->reg[i]->s == r->s &&
				    is_woken_first(r, b->reg[i]));
}

void order_end_heard(struct epoll_reg *r)
{
	struct instance *in = r->in;
	uint64_t end = sock_ended(r->s);

	in->heard++;
	if (in->heard < in->looked_at)
		in->heard = in->looked_at;
	/* A peer that says a time to come says nothing. */
	if (in->heard < end && end <= __rdtsc())
		in->heard = end;
	r->heard = in->heard;
}

static void note(struct instance *in, int i, uint64_t data, uint64_t place)
{
	store_relaxed(&in->told_data[i], data);
	store_relaxed(&in->told_place[i], place);
}

uint64_t order_base(void)
{
	return __rdtsc() - EPOLL_ORDERED * EPOLL_PLACES;
}

void order_told(struct instance *in, const struct epoll_event *ev, int n)
{
	uint64_t base;

	if (!load_relaxed(&in->mixed) || (n <= 0 && !load_relaxed(&in->told)))
		return;
	n = n < 0 ? 0 : n > EPOLL_ORDERED ? EPOLL_ORDERED : n;
	/* Before those of memory that the same call reports. */
	base = order_base() - EPOLL_PLACES;
	for (int i = 0; i < n; i++)
		note(in, i, ev[i].data.u64, base + (uint64_t)i);
	store_relaxed(&in->told, (uint32_t)n);
}

/* Looks from place *at on, and moves it past the one found: what stays in the kernel's queue
 * stays in its order. 0: it was not reported last time. */
static uint64_t told_place(struct instance *in, uint64_t data, uint32_t *at)
{
	for (uint32_t told = load_relaxed(&in->told); *at < told; ++*at)
		if (load_relaxed(&in->told_data[*at]) == data)
			return load_relaxed(&in->told_place[(*at)++]);
	return 0;
}

uint64_t order_queued(struct epoll_reg *r)
{
	uint32_t at = 0;

	if (r->events & (EPOLLET | EPOLLONESHOT))
		return 0;
	return told_place(r->in, r->data.u64, &at);
}

void order_merge(struct instance *in, const struct batch *b, struct epoll_event *ev,
		 const struct epoll_event *raw, int n)
{
	uint16_t before[EPOLL_ORDERED]; /* each of memory's: so many of the kernel's */
	uint32_t at = 0;
	int i = 0, end = b->again + n;

	memmove(ev + end, ev + b->again, (size_t)(b->n - b->again) * sizeof(*ev));
	for (int k = 0; k < n; k++) {
		uint64_t place = told_place(in, raw[k].data.u64, &at);

		while (i < b->again && (!place || b->place[i] < place))
			before[i++] = (uint16_t)k;
		/* Behind `at`, which has read it, and between two places of memory's. */
		if (k < EPOLL_ORDERED)
			note(in, k, raw[k].data.u64,
			     b->base + (uint64_t)(i * EPOLL_PLACES + k - EPOLL_ORDERED));
	}
	while (i < b->again)
		before[i++] = (uint16_t)n;
	/* From the end, where there is room: the stack may be too short for a copy. */
	for (int k = n; end > 0;) {
		while (k > (i > 0 ? before[i - 1] : 0))
			ev[--end] = raw[--k];
		if (i > 0)
			ev[--end] = ev[--i];
	}
	store_relaxed(&in->told, (uint32_t)(n < EPOLL_ORDERED ? n : EPOLL_ORDERED));
}

int order_fold(struct epoll_event *ev, int n, const struct epoll_event *raw, int more)
{
	int end = n;

	for (int k = 0; k < more; k++) {
		int i = 0;

		while (i < n && ev[i].data.u64 != raw[k].data.u64)
			i++;
		if (i < n)
			ev[i].events |= raw[k].events;
		else
			ev[end++] = raw[k];
	}
	return end;
}

int order_fold_all(struct epoll_event *ev, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++)
		kept = order_fold(ev, kept, ev + i, 1);
	return kept;
}
