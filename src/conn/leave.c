/* SPDX-License-Identifier: Apache-2.0 */
/* A process that changes its rights leaves the table that it shares with others, for one of its own:
 * docs/processes.md, "Processes that change their rights". */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/leave.h"
#include "conn/limbo.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "conn/table.h"

/* As for an exec: so long the peers are waited for, all together, and before bytes are given up. */
#define WAIT_MS	  500
#define UNREAD_MS 2500

/* A ring that others have, too. Its positions are in the table, so it cannot go along. */
static bool is_ring_of_others(struct sock *s, int fd)
{
	(void)fd;
	return sock_is_direct(s) && !peer_is_parents(s) && !slot_is_alone(s->slot);
}

static struct sock *ring_of_others(int fd)
{
	struct sock *s = sock_hold_at(fd);
	bool is_one;

	if (!s)
		return NULL;
	is_one = is_ring_of_others(s, fd);
	sock_let_go(s);
	return is_one ? s : NULL;
}

static ssize_t wait_until(struct sock *s, int fd, uint64_t end)
{
	int64_t left = (int64_t)(end - clock_coarse_ms());

	return sock_down_wait(s, fd, VD_REASON_SHARED, left > 0 ? (int)left : 0);
}

/* The others may be about to end: then the ring goes along as it is. */
static bool is_let_go(int fd, uint64_t end)
{
	const struct timespec nap = {.tv_nsec = 1000000};

	while (ring_of_others(fd) && clock_coarse_ms() < end)
		kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
	return !ring_of_others(fd);
}

/* What cannot be had in time is an error here; the others read on. */
static void take_down(struct sock *s, int fd, uint64_t end)
{
	uint32_t generation = sock_generation(s);

	if (wait_until(s, fd, end) > 0 && wait_until(s, fd, end + UNREAD_MS) > 0 &&
	    !is_let_go(fd, end + UNREAD_MS) && sock_number_begin(s, fd, generation)) {
		sock_sever(s, fd);
		sock_number_end(s);
	}
}

static void take_rings_down(void)
{
	uint64_t end;

	if (!sock_hand_over_each(is_ring_of_others, VD_REASON_SHARED))
		return;
	/* One bound for all of them. */
	end = clock_coarse_ms() + WAIT_MS;
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = ring_of_others(fd);

		if (s)
			take_down(s, fd, end);
	}
}

static void copy(struct sock *s, void *to)
{
	slot_leave_copy(to, s->slot, atomic_load(&s->inside) > 0,
			atomic_load(&s->sleepers) > 0);
}

/* It ends here at that phase: from now on it is TCP's alone. */
static void end_at(struct sock *s, uint32_t phase)
{
	if (phase == SLOT_ATTACHED || phase == SLOT_LEAVING)
		info_left(s);
	if (phase < SLOT_FINAL)
		meeting_leave(s);
	if (phase >= SLOT_ATTACHING && sock_on_final)
		sock_on_final(s);
}

/* In the new table. What others have, too, and has begun to be more than TCP, is TCP's for good:
 * they go on with the meeting, or the ring, or have just left it. */
static void settle(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t phase = phase_of(sl);

	/* Nobody else can write to the slot. */
	s->is_copied = false;
	if (!atomic_load(&sl->left) || phase < SLOT_OFFERED ||
	    (phase == SLOT_FINAL && !s->wire))
		return;
	end_at(s, phase);
	bells_hold_off();
	lock_take(&sl->rx_lock);
	lock_take(&sl->tx_lock);
	sock_drop_segment(s);
	lock_drop(&sl->tx_lock);
	lock_drop(&sl->rx_lock);
	bells_let_go();
}

/*
 * Of a socket that a thread is inside of, doorbells stay. The memory that others have is replaced under
 * the locks, and who has looked there finds the gates at FINAL.
 */
static void blank(struct sock *s)
{
	struct slot *sl = s->slot;

	lock_take(&sl->rx_lock);
	lock_take(&sl->tx_lock);
	if (s->wire) {
		atomic_store(&sl->phase, SLOT_FINAL);
		rx_final(sl);
		tx_final(sl);
		s->wire = NULL;
		shown_forget(s);
		meet_empty(s->window);
	}
	lock_drop(&sl->tx_lock);
	lock_drop(&sl->rx_lock);
}

/* It is closed, and the thread whose handler this is was inside. */
static void settle_closed(struct sock *s, void *arg)
{
	(void)arg;
	if (atomic_load(&s->slot->left))
		blank(s);
}

static void settle_all(void)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (s)
			settle(s);
	}
	limbo_each(settle_closed, NULL);
}

static bool exchange_tables(void)
{
	struct slot_table *made = slot_leave_begin();

	if (!made)
		return false;
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (s)
			copy(s, made);
	}
	limbo_each(copy, made);
	return slot_leave_end(made);
}

bool sock_leave_table(void)
{
	int saved = errno;
	bool left;

	if (!table_is_shared() || table_is_private())
		return true;
	take_rings_down();
	crit_enter(); /* a handler would find no table, or the old one */
	meet_give_back();
	trace_leave();
	left = exchange_tables();
	crit_leave();
	if (left)
		settle_all();
	errno = saved;
	return left;
}

/* ---- amid threads ---- */

/* Nothing holds them up: what each of them does next, it does in the private copy. */
static void settle_amid(struct sock *s)
{
	uint32_t phase = phase_of(s->slot);

	if (!slot_is_left(s->slot) || (phase == SLOT_FINAL && !s->wire))
		return;
	end_at(s, phase);
	blank(s);
	bells_release(s);
}

static void settle_closed_amid(struct sock *s, void *arg)
{
	(void)arg;
	if (slot_is_left(s->slot))
		blank(s);
}

bool sock_leave_amid_threads(bool closes)
{
	int saved = errno;
	bool left;

	if (!table_is_shared() || table_is_private())
		return true;
	take_rings_down();
	fork_hold_off();
	meet_give_back();
	trace_leave();
	left = slot_part(closes);
	fork_let_go();
	for (int fd = 0; left && fd < fd_limit(); fd++) {
		struct sock *s = sock_hold_at(fd);

		if (!s)
			continue;
		settle_amid(s);
		sock_let_go(s);
	}
	if (left)
		limbo_each(settle_closed_amid, NULL);
	errno = saved;
	return left;
}

FORK_CODE void leave_forked_child(void)
{
	for (int fd = 0; table_is_private() && fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (!s || !sock_is_direct(s) ||
		    (gate_is_kernel(gate_state(&s->slot->gate_rx)) &&
		     gate_is_kernel(gate_state(&s->slot->gate_tx))))
			continue;
		sock_sever(s, fd);
		fd_forget(fd);
	}
}
