/* SPDX-License-Identifier: Apache-2.0 */
/* One piece received or sent, as rx.c and tx.c do it: see quick.h. */
#define GENERAL_REGS_ONLY
#include "base/general_regs.h"

#include "conn/quick.h"

#include <stddef.h>
#include <sys/rseq.h>

#include "conn/conn.h"
#include "conn/quick_move.h"

/*
 * As lock_take_mine, where that waits for nobody. The number of this thread is not known after a fork, for one: as
 * no handler comes in between, it is the same wherever it is read here.
 */
static inline bool take(const struct quick *q, struct lock *l,
			const _Atomic bool *others_have_it)
{
	uint32_t tid = *q->lock_tid, free = 0;

	if (__builtin_expect(tid == 0, 0))
		return false;
	if (__libc_single_threaded && !load_relaxed(others_have_it) &&
	    !load_relaxed(&l->word)) {
		store_relaxed(&l->word, tid);
		fence_compiler();
		return true;
	}
	return atomic_compare_exchange_strong_explicit(
		&l->word, &free, tid, memory_order_acquire, memory_order_relaxed);
}

/* As lock_drop. */
static inline void drop(struct lock *l)
{
	if (__builtin_expect(atomic_exchange(&l->word, 0) & LOCK_WAITERS, 0))
		lock_drop_slow(l);
}

static inline bool may_begin(struct sock *s, const void *buf, size_t len)
{
	return s && crit_is_near(buf, len) && !peer_of(s) && !trace_is_wished();
}

static uint8_t *tx_larger(struct sock *s, size_t len)
{
	struct ring_tx *tx = &s->slot->tx;

	if (ring_tx_strays(tx))
		ring_tx_front(tx, s->out);
	return ring_tx_glance_in(tx, s->out_data, area_of(s, ring_tx_area(tx)), len);
}

static const struct quick_way way = {
	.rx_most = CHUNK_BYTES, .copy = crit_copy_plain, .tx_larger = tx_larger};

size_t quick_recv(int fd, void *buf, size_t len, struct quick *q)
{
	struct sock *s = fd_sock(fd);
	bool roomy = false;
	struct slot *sl;
	uint32_t generation;
	size_t n = 0, unread;

	if (!may_begin(s, buf, len))
		return 0;
	sl = s->slot;
	if (gate_state(&sl->gate_rx) != GATE_RING || s->left)
		return 0;
	generation = load_relaxed(&sl->generation);
	unread = ring_unread(s->in);
	/* Not for a look under the lock in vain: what could be taken is more than is copied here. */
	if (unread == 0 || (unread > CHUNK_BYTES && len > CHUNK_BYTES) ||
	    !take(q, &sl->rx_lock, &s->is_copied))
		return 0;
	if (fd_is(fd, s) && load_relaxed(&sl->generation) == generation &&
	    quick_may_take(sl))
		n = quick_take(s, buf, len, way, &roomy);
	drop(&sl->rx_lock);
	q->due = roomy && bell_is_asked(&s->in->tx_armed, &sl->rx.rung) ? QUICK_RINGS_RX
									: 0;
	q->sock = s;
	return n;
}

size_t quick_send(int fd, const void *buf, size_t len, struct quick *q)
{
	struct sock *s = fd_sock(fd);
	struct slot *sl;
	size_t n = 0;

	if (len >= RING_BULK_BYTES || !may_begin(s, buf, len) || !q->cpu ||
	    LACKS(LATE_LOOKS))
		return 0;
	sl = s->slot;
	/* The peer has been told where this thread runs. */
	if (gate_state(&sl->gate_tx) != GATE_RING ||
	    load_relaxed(&s->cpu) != (((*q->cpu + 1) & TOLD_CPU) | *q->wait_self) ||
	    !take(q, &sl->tx_lock, &s->is_copied))
		return 0;
	if (quick_may_put(s, sl, fd))
		n = quick_put(s, buf, len, way);
	drop(&sl->tx_lock);
	if (n == 0)
		return 0;
	q->due = bell_is_asked(&s->out->rx_armed, &sl->tx.rung) ? QUICK_RINGS_TX : 0;
	if (quick_is_asked_late(s))
		q->due |= QUICK_IS_LATE;
	q->sock = s;
	q->fd = fd;
	return n;
}

void quick_begin(struct quick *q)
{
	const char *thread = __builtin_thread_pointer();

	*q = (struct quick){.depth = &crit_depth,
			    .deferred = &crit_deferred,
			    .lent = &crit_comes_back,
			    .lock_tid = &lock_self_tid,
			    .wait_self = &wait_self};
	if (__rseq_size > 0)
		q->cpu = (const uint32_t *)(const void *)(thread + __rseq_offset +
							  offsetof(struct rseq, cpu_id));
}

void quick_end(struct quick *q)
{
	struct sock *s = q->sock;
	unsigned due = q->due;
	int fd = q->fd;

	if (due & QUICK_RINGS_RX)
		bell_ring_room(s);
	if (due & QUICK_RINGS_TX)
		bell_ring_bytes(s);
	/* The next one may be a handler's, in crit_leave. */
	q->due = 0;
	crit_leave();
	if (due & QUICK_IS_LATE)
		tx_answer_late(s, fd);
}
