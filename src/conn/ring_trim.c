/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that rings have grown into goes back once they lie still, so that a connection which is
 * idle now costs what one costs that was never busy. */
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/log.h"
#include "conn/conn.h"
#include "conn/switch.h"

/* A ring that has not moved for so long lies still; and from one look at all to the next. */
#define STILL_MS 1000u

/* A ring of this process may have memory to give back. */
static _Atomic uint32_t is_due;
static _Atomic uint64_t due_ms;

void settle_later(void)
{
	if (!load_relaxed(&is_due))
		atomic_store(&is_due, 1);
}

/* Under tx_lock. The consumer has taken all that lay there, and has no reason to look again. */
static void give_back(struct sock *s, uint32_t from)
{
	struct ring_tx *r = &s->slot->tx;
	uint32_t touched = ring_area_within(
		__atomic_load_n(&r->area_touched, __ATOMIC_RELAXED), RING_ALL_AREAS);
	size_t begin = ring_area_offset(from);
	size_t end = ring_area_offset(touched) + wire_area_bytes(touched);
	if (end <= begin) /* only of a table that lies */
		return;
	/* EINVAL where the program has locked its memory: then it stays. */
	int rc = madvise(s->out_data + begin, end - begin, MADV_REMOVE);
	log_debug("%zu bytes of an idle ring %s", end - begin,
		  rc == 0 ? "given back" : "stay: %m");
	r->area_touched = from - 1;
	if (r->touched > begin)
		r->touched = (uint32_t)begin;
}

/* Under tx_lock. True when there may be something to give back later. */
static bool settle_ring(struct sock *s, uint64_t now)
{
	struct ring_tx *r = &s->slot->tx;
	if (gate_state(&s->slot->gate_tx) != GATE_RING || !tx_is_up(s) ||
	    load_relaxed(&s->out->want_down))
		return false;
	if (s->still_at != r->produced || !s->still_since_ms) {
		s->still_at = r->produced;
		s->still_since_ms = now;
	}
	bool is_still = now - s->still_since_ms >= STILL_MS;
	uint32_t from = ring_tx_spare(r, s->out, is_still);
	if (is_still) /* its ends may run elsewhere by the time that it goes on */
		s->past = (struct past){0};
	if (from < WIRE_AREAS)
		give_back(s, from);
	return r->area_touched > 0;
}

static bool settle_held(struct sock *s, uint64_t now)
{
	bool more = true; /* a sender that is inside moves it */
	if (lock_try(&s->slot->tx_lock)) {
		/* What a device writes to stays where it is. */
		more = sock_is_direct(s) && s->wire && !peer_is_far(s) &&
		       settle_ring(s, now);
		lock_drop(&s->slot->tx_lock);
	}
	return more;
}

static bool settle_all(uint64_t now)
{
	bool more = false;
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s || !sock_is_direct(s))
			continue;
		crit_enter(); /* no handler jumps away with the hold */
		if (sock_hold(s, fd)) {
			more |= settle_held(s, now);
			sock_unhold(s);
		}
		crit_leave();
	}
	return more;
}

uint64_t sock_settle(void)
{
	if (!load_relaxed(&is_due))
		return UINT64_MAX;
	uint64_t now = clock_coarse_ms();
	uint64_t due = load_relaxed(&due_ms);
	if (now < due)
		return (due - now) * 1000000;
	/* Of several threads one looks. */
	if (!atomic_compare_exchange_strong(&due_ms, &due, now + STILL_MS))
		return STILL_MS * 1000000ull;
	/* First: what grows meanwhile is due again. */
	atomic_store(&is_due, 0);
	if (settle_all(now))
		settle_later();
	return atomic_load(&is_due) ? STILL_MS * 1000000ull : UINT64_MAX;
}
