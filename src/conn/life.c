/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a connection: its descriptors are closed, or its process ends. And what it is counted by. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/fds_call.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/limbo.h"
#include "conn/linger.h"
#include "conn/placing.h"
#include "conn/report.h"
#include "conn/switch.h"
#include "conn/trace.h"

static uint64_t native_count(const struct sock *s, uint32_t i)
{
	/* Relaxed: a count orders nothing. */
	return load_relaxed(&s->slot->native_counts[i]);
}

/* At its end. Before, they are seen in the slot. */
static void count_native(const struct sock *s)
{
	for (uint32_t i = 0; s->is_native && i < NATIVE_COUNTS; i++)
		report_add(&report_now.native[i], native_count(s, i));
}

/* VD_REASON_NONE: a listener that was passed on, say, is no connection. */
static inline enum vd_reason reason_to_count(const struct sock *s)
{
	uint32_t reason = load_relaxed(&s->slot->reason);

	return reason < VD_REASON_COUNT &&
			       load_relaxed(&s->slot->role) != TCP_ROLE_UNKNOWN
		       ? reason
		       : VD_REASON_NONE;
}

/* It goes on where others have it, as with the child that a server has forked for it. */
static bool is_others(struct sock *s)
{
	return slot_is_shared(s->slot) && !slot_is_alone(s->slot);
}

static inline void count_reason(const struct sock *s)
{
	enum vd_reason reason = reason_to_count(s);

	if (reason != VD_REASON_NONE)
		report_add(&report_now.reasons[reason], 1);
}

/* What somebody who sleeps at the other end does not learn from the FIN that follows. */
static bool is_news_left(struct sock *s)
{
	/* Bytes that the peer has not taken, whoever was about to ring for them; or a mark. Relaxed,
	 * the epochs: both are this end's, written before or under the locks just dropped. */
	return ring_unread(s->out) ||
	       load_relaxed(&s->out->down_epoch) == load_relaxed(&s->out->up_epoch);
}

/* Threads sleep on it: the connection ends when they have left, not now. False when there is
 * no descriptor left for that. */
static bool keep_open(struct sock *s, int fd)
{
	int kept = fds_call_take_needed(fd);

	store_release(&s->kept_fd, kept < 0 ? -1 : kept);
	return kept >= 0;
}

/* This process closes a socket that others have, too: the peer hears that they go on over TCP. */
NEAR_CODE static void leave_far(struct sock *s, int fd)
{
	if (peer_is_far(s) && sock_is_direct(s) && peer_is_past_link(s) &&
	    slot_is_shared(s->slot))
		sock_down(s, fd, VD_REASON_SHARED);
}

/*
 * Who takes ctl from here on finds the last number gone: that was taken away before this look, as ctl is
 * before theirs. So with nobody there, nothing can begin. Whoever is there is waited for in any phase: the
 * last one may be stored, with the rest yet to follow, which is not for the slot's next connection.
 */
static inline bool ctl_is_held(struct sock *s)
{
	return atomic_load(&s->slot->ctl.word) != 0;
}

/* Also where another holder has ended the meeting, and the name of this process is left. */
static inline bool is_amid_meeting(struct sock *s)
{
	uint32_t phase = phase_of(s->slot);
	return phase > SLOT_EARNING ? phase < SLOT_ATTACHING || s->meet_fd >= 0
				    : peer_is_far(s);
}

/* `is_said`: the last words. */
NEAR_CODE static void close_last(struct sock *s, int fd, bool is_said)
{
	struct slot *sl = s->slot;
	if (ctl_is_held(s) || is_amid_meeting(s))
		meeting_stop(s);
	leave_far(s, fd);
	/* Not by the phase alone: a child may hold an offer that its parent has given up. */
	if (sock_is_direct(s) && s->wire) {
		if (trace_is_wished())
			trace_event(s, fd, TRACE_CLOSED, VD_REASON_NONE);
		lock_take(&sl->rx_lock);
		lock_take(&sl->tx_lock);
		/* Else the last one out says them. */
		if (!is_said && load_relaxed(&s->kept_fd) < 0 &&
		    (!sock_is_busy(s) ||
		     (atomic_load(&s->sleepers) > 0 && !keep_open(s, fd))))
			limbo_last_words(s, fd);
		sock_flush_counts(s);
		lock_drop(&sl->tx_lock);
		lock_drop(&sl->rx_lock);
		if (is_news_left(s))
			bell_ring_bytes(s);
	} else {
		sock_flush_counts(s);
	}
	count_native(s);
	settled_count(s, fd);
	if (!is_others(s))
		count_reason(s);
	/* Against sock_unhold, which counts out and then looks here. */
	if (__libc_single_threaded)
		store_relaxed(&s->closed, true);
	else
		atomic_store(&s->closed, true);
	left_drop(s);
	meeting_over(s);
	limbo_release(s);
}

/* In a critical section, without other threads. */
static inline bool ends_short(struct sock *s)
{
	uint64_t odd = (uintptr_t)s->wire | (uintptr_t)s->regs |
		       (load_relaxed(&s->fds) - 1) | load_relaxed(&s->inside) |
		       load_relaxed(&s->sleepers) | load_relaxed(&s->is_copied) |
		       s->is_native | s->has_listened | load_relaxed(&s->elsewhere) |
		       load_relaxed(&s->slot->ops) | load_relaxed(&s->slot->ctl.word) |
		       (uint32_t)load_relaxed(&limbo_used);
	return odd == 0 && phase_is_early(phase_of(s->slot));
}

NEAR_CODE bool fd_closing_short(int fd)
{
	struct sock *s = fd_sock(fd);
	bool done = false, none = false;
	if (!s || !__libc_single_threaded)
		return false;
	crit_enter(); /* no handler forks, or uses it, in between */
	if (ends_short(s) && slot_release_ours(s->slot)) {
		store_relaxed(&fd_table[fd], NULL);
		s->is_blank = true;
		count_reason(s);
		if (load_relaxed(&s->awaited)) {
			store_relaxed(&s->awaited, 0);
			none = single_take32(&sock_awaited, 1, true) == 1;
		}
		done = true;
	}
	crit_leave();
	if (none && sock_on_none_awaited)
		sock_on_none_awaited();
	return done;
}

static struct sock *take_entry(int fd)
{
	struct sock *s = single_take_pointer((void *_Atomic *)&fd_table[fd],
					     __libc_single_threaded);
	if (s && s->wire)
		atomic_fetch_add(&fd_taken[(unsigned)fd % FD_TAKEN], FD_TAKEN_ONCE);
	return s;
}

/* The connection whose last number this was, or NULL. Of two threads that close it, one has it. */
static struct sock *take_out(int fd)
{
	struct sock *s = take_entry(fd);
	return s && single_take32(&s->fds, 1, __libc_single_threaded) == 1 ? s : NULL;
}

/*
 * It has another number, or another thread closes that. Who is amid a step of it by this one would find another
 * connection here, and meet that one's peer. Who takes ctl from here on finds the number gone.
 */
static inline void wait_for_step(struct sock *s)
{
	if (__builtin_expect(ctl_is_held(s), 0) && ctl_take(s))
		lock_drop(&s->slot->ctl);
}

/*
 * Under both locks, while the number can still be found in the table: a thread that does not find it goes to the
 * kernel by that number, where the connection still is. There it is to meet a reset where one is due.
 */
static bool say_before(struct sock *s, int fd)
{
	if (!fd_is(fd, s) || load_relaxed(&s->fds) != 1 || sock_is_busy(s) ||
	    !sock_is_direct(s) || !s->wire || peer_is_far(s))
		return false;
	limbo_last_words(s, fd);
	return true;
}

/* Under both locks. Bytes that another thread sends by the number past us would be amid those of the ring. */
static bool goes_on(struct sock *s, int fd)
{
	return fd_is(fd, s) && sock_is_direct(s) && s->wire && !peer_is_far(s) &&
	       (load_relaxed(&s->fds) > 1 ||
		(atomic_load(&s->sleepers) == 0 && !slot_is_alone(s->slot)));
}

/*
 * Under both locks: the number is the other file's, and then the table's entry is. In between who asks the kernel by
 * it believes no answer (sock_mark). No fork comes in between: low_lock.
 */
static void place(int fd, struct fd_placing *by)
{
	_Atomic uint32_t *taken = &fd_taken[(unsigned)fd % FD_TAKEN];
	atomic_fetch_add(taken, 1);
	by->result = (int)kernel_call4(SYS_dup3, by->from, fd, by->flags, 0);
	by->done = true;
	if (by->result >= 0) {
		struct sock *next = fd_sock(by->from);
		if (next)
			atomic_fetch_add(&next->fds, 1);
		atomic_exchange(&fd_table[fd], next);
	}
	atomic_fetch_add(taken, FD_TAKEN_ONCE - 1);
}

/*
 * A close in steps: first the number is a file that answers all with EBADF, as no number does. Others cannot have the
 * number meanwhile. Without a descriptor to spare nothing changes.
 */
static void place_nothing(int fd, struct fd_placing *by)
{
	by->from = kernel_open("/", O_PATH | O_CLOEXEC, 0);
	by->flags = O_CLOEXEC;
	if (by->from < 0)
		return;
	place(fd, by);
	kernel_close(by->from);
}

/* Under both locks. The number goes, and the connection stays: the last of its numbers here, or NULL. */
static struct sock *take_over(struct sock *s, int fd, struct fd_placing *by)
{
	low_begin();
	if (by->from < 0)
		place_nothing(fd, by);
	else
		place(fd, by);
	low_end();
	if (!by->done || by->result < 0)
		return NULL;
	return atomic_fetch_sub(&s->fds, 1) == 1 ? s : NULL;
}

/*
 * With both locks: who has one of them, and finds the number in the table, may use it, since it is closed
 * after this. And a call that holds the connection finds another number of it, or the duplicate: also one
 * that goes on in the kernel, when both directions are TCP's for good.
 */
NEAR_CODE static __attribute__((noinline)) struct sock *
take_out_locked(struct sock *s, int fd, struct fd_placing *by, bool *is_said)
{
	struct slot *sl = s->slot;
	struct sock *last = NULL;
	lock_take(&sl->rx_lock);
	lock_take(&sl->tx_lock);
	*is_said = say_before(s, fd);
	if ((by->from >= 0 || !__libc_single_threaded) && goes_on(s, fd))
		last = take_over(s, fd, by);
	if (!by->done)
		last = take_out(fd);
	if (last == s && !by->done && atomic_load(&s->sleepers) > 0)
		keep_open(s, fd);
	lock_drop(&sl->tx_lock);
	lock_drop(&sl->rx_lock);
	return last;
}

/* What is said behind the step is not said on the number, which is another file's by then: who has the connection, too,
 * says it. */
NEAR_CODE static void closing(struct sock *s, int fd, struct fd_placing *by)
{
	bool locked = sock_is_direct(s) || (s->wire && atomic_load(&s->sleepers) > 0);
	bool is_said = false;
	struct sock *last = locked ? take_out_locked(s, fd, by, &is_said) : take_out(fd);
	if (last)
		close_last(last, fd, by->done || (is_said && last == s));
	else
		wait_for_step(s);
}

NEAR_CODE bool fd_closing(int fd)
{
	if (fds_is_ours(fd))
		return false;
	struct sock *s = fd_sock(fd);
	struct fd_placing nothing = {.from = -1};
	if (s)
		closing(s, fd, &nothing);
	return true;
}

void fd_closing_for(int fd, struct fd_placing *by)
{
	struct sock *s = fd_sock(fd);
	if (s)
		closing(s, fd, by);
}

void fd_forget(int fd)
{
	struct sock *s = fd_sock(fd), *last = s ? take_out(fd) : NULL;
	if (!s)
		return;
	if (!last) {
		wait_for_step(s);
		return;
	}
	/* The number was closed past us: nothing may be said on what it is now. */
	log_debug("fd %d: was closed past Viaduct", fd);
	/* Waits for a thread that is amid a step of it, too. */
	if (ctl_is_held(last) || is_amid_meeting(last))
		meeting_stop(last);
	meeting_over(last);
	limbo_release(last);
}

FORK_CODE void sock_report(bool ends)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s)
			continue;
		/* The process ends, and closes it. A peer that believes it too early sends over
		 * TCP, which is right as well. Only who ends for sure says so to those that close
		 * it, too: the last of them speaks, and does not find it among the living. */
		if (sock_is_direct(s) && s->wire &&
		    (ends ? slot_close_is_last(s->slot) : slot_is_alone(s->slot))) {
			/* Exchanged, as in limbo_last_words: before the look at what is unread. */
			if (ends)
				ring_note_end(s->out);
			atomic_exchange(&s->in->closed, WIRE_CLOSED);
			peer_push(s);
		}
		leave_far(s, fd);
		earn_judge(s);
	}
	if (peer_ops)
		peer_ops->drain();
}

FORK_CODE void sock_reset_unread(void)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s || !sock_is_direct(s) || !s->wire)
			continue;
		if (slot_close_is_last(s->slot)) {
			rewind_closing(s);
			linger_reset_unread(s, fd);
		} else {
			linger_leave_to_exec(s, fd);
		}
	}
}

/* With one number of it that survives, nothing is closed. */
static bool survives_exec(const struct sock *s)
{
	for (int fd = 0; fd < fd_limit(); fd++)
		if (fd_sock(fd) == s && !(REAL(fcntl64)(fd, F_GETFD) & FD_CLOEXEC))
			return true;
	return false;
}

/* As at an end. But the program may go on, and read, if there is nothing to execute. */
static void exec_begins(struct sock *s, int fd)
{
	if (sock_is_direct(s) && s->wire && !survives_exec(s))
		linger_leave_to_exec(s, fd);
}

static bool is_lent(const struct sock *s)
{
	return slot_is_lent(s->slot) && phase_of(s->slot) < SLOT_LEAVING;
}

void sock_exec(bool begins)
{
	/* Those that it closes first: another descriptor of the same may survive. */
	for (int survives = 0; survives < 2; survives++) {
		for (int fd = 0; fd < fd_limit(); fd++) {
			struct sock *s = fd_sock(fd);
			int flags = s ? REAL(fcntl64)(fd, F_GETFD) : -1;
			if (flags < 0 || survives != !(flags & FD_CLOEXEC))
				continue;
			/* What is lent is the token's from then on. */
			slot_ends_by_exec(s->slot, begins && (!survives || is_lent(s)));
			if (begins && !survives)
				exec_begins(s, fd);
			else if (!begins)
				linger_put_back(s, fd);
		}
	}
	if (!begins)
		linger_forget();
}

void sock_daemon(bool begins)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (s && sock_is_direct(s))
			slot_closing(s->slot, begins);
	}
}

static bool has_lower_name(const struct sock *s, int fd)
{
	if (load_relaxed(&s->fds) < 2)
		return false;
	while (--fd >= 0)
		if (fd_sock(fd) == s)
			return true;
	return false;
}

void sock_counts(struct report_open *open)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		enum vd_reason reason = s ? reason_to_count(s) : VD_REASON_NONE;

		if (!s || has_lower_name(s, fd))
			continue;
		sock_flush_counts(s);
		settled_count(s, fd);
		for (uint32_t i = 0; s->is_native && i < NATIVE_COUNTS; i++)
			open->native[i] += native_count(s, i);
		if (reason != VD_REASON_NONE && !is_others(s))
			open->reasons[reason]++;
	}
}
