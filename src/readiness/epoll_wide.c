/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for more of the kernel's events at once than the stack has room for. */
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/borrowed.h"
#include "base/lock.h"
#include "base/sections.h"
#include "readiness/epoll_call.h"

/*
 * An instance of which the kernel had more to tell than was asked for has memory for more from then on.
 * One call has it at a time: the record then holds it marked as taken. The others do without.
 * Each is mapped by who finds none, and is always one call's or one record's. A record that becomes another
 * instance's has none: who had taken it gives it there all the same. A forked child's record has what another
 * thread's call had, and what its own call has is still marked. A child of vfork takes none, as it may be killed.
 */
#define TAKEN 1u
/* Events, at first. Pages that are not used are not there. */
#define WIDE_LEAST 4096
/* Bytes for each: as many as wide_fold needs for four. */
#define WIDE_BYTES 32
/* And for a question behind RAW_EVENTS others. */
static_assert((WIDE_LEAST + RAW_EVENTS) * sizeof(struct epoll_event) <=
		      WIDE_LEAST * WIDE_BYTES,
	      "they fit");
#define SLOTS_EACH (WIDE_BYTES / sizeof(uint32_t))

static size_t bytes_of(uint32_t room)
{
	return sizeof(struct wide) + (size_t)room * WIDE_BYTES;
}

static struct wide *make(uint32_t room)
{
	struct wide *w = mmap(NULL, bytes_of(room), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (w == MAP_FAILED)
		return NULL;
	w->room = room;
	return w;
}

static bool is_taken(const struct wide *w)
{
	return (uintptr_t)w & TAKEN;
}

static struct wide *marked(struct wide *w)
{
	return (struct wide *)((uintptr_t)w | TAKEN);
}

static void unmake(struct wide *w)
{
	if (w && !is_taken(w))
		munmap(w, bytes_of(w->room));
}

void instance_widen(struct instance *in, uint32_t had)
{
	store_relaxed(&in->many, had < WIDE_LEAST ? WIDE_LEAST : 2 * had);
}

/* A place of this thread's own, which is the same in a child that it forks. */
static const void *this_thread(void)
{
	return &lock_self_tid;
}

/* What stands there otherwise is a call's, or the record's own since it is another instance's. */
static void put(struct instance *in, struct wide *w)
{
	unmake(atomic_exchange(&in->wide, w));
}

struct wide *wide_take(struct instance *in)
{
	struct wide *w = load_relaxed(&in->wide);
	uint32_t room = load_relaxed(&in->many);

	if (is_taken(w) || is_borrowed() ||
	    !atomic_compare_exchange_strong(&in->wide, &w, marked(w)))
		return NULL;
	if (!w || w->room < room) {
		/* Before it goes: a child that is forked now finds none. */
		put(in, marked(NULL));
		unmake(w);
		w = make(room);
	}
	if (!w) {
		wide_give(in, NULL);
		return NULL;
	}
	w->by = this_thread();
	put(in, marked(w));
	return w;
}

void wide_give(struct instance *in, struct wide *w)
{
	if (w)
		w->by = NULL;
	put(in, w);
}

void wide_drop(struct instance *in)
{
	wide_give(in, NULL);
}

FORK_CODE void wide_forked(struct instance *in)
{
	uintptr_t word = (uintptr_t)load_relaxed(&in->wide);
	struct wide *w = (struct wide *)(word & ~(uintptr_t)TAKEN);

	if ((word & TAKEN) && !(w && w->by == this_thread()))
		store_relaxed(&in->wide, w);
}

int wide_fold(struct wide *w, struct epoll_event *ev, int n)
{
	uint32_t *slots = (uint32_t *)(void *)w->ev, count = 1, at;
	int kept = 0;

	if ((size_t)n > w->room * SLOTS_EACH / 2)
		return order_fold_all(ev, n);
	while (count < 2 * (uint32_t)n)
		count *= 2;
	memset(slots, 0, count * sizeof(*slots));
	for (int i = 0; i < n; i++) {
		at = (uint32_t)(ev[i].data.u64 * 0x9e3779b97f4a7c15 >> 32);
		for (at &= count - 1;
		     slots[at] && ev[slots[at] - 1].data.u64 != ev[i].data.u64;)
			at = (at + 1) & (count - 1);
		if (slots[at]) {
			ev[slots[at] - 1].events |= ev[i].events;
		} else {
			ev[kept++] = ev[i];
			slots[at] = (uint32_t)kept;
		}
	}
	return kept;
}
