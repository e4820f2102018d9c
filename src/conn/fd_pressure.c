/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors for the program: connections that go back to TCP so that their doorbells can be
 * closed, early where few numbers are left, and at once where none is. */
#include <errno.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/limbo.h"
#include "conn/table.h"
#include "rendezvous/rendezvous.h"

/* Doorbells of one connection in one process. */
#define BELLS 2
/* Connections that are asked beyond those needed: some peers do not answer. */
#define ASK_SPARE 4
/* With no number left: so many are asked at once, and as many more after each pause. */
#define ASK_AT_ONCE  16
#define ASK_PAUSE_NS 5000000
/* How long an answer is waited for: in all, and since something has last moved. */
#define WAIT_NS	    200000000
#define PATIENCE_NS 50000000
/* A thread of this process, once rung, needs no program's call, but a processor: where many
 * want one, for longer than that. */
#define OURS_NS 1000000000
#define NAP_NS	200000
/* After a wait in vain so long without: a server may go on accepting for each event. */
#define RETRY_NS 1000000000
/* Descriptors of one message (SCM_MAX_FD). */
#define NEED_MOST 253
/* From one look at all connections to the next: so much for each so many descriptors. */
#define ATTEND_NS  4000000
#define ATTEND_FDS 512

/* When a connection was last asked. */
static _Atomic int64_t stirred_ns;
static _Atomic int64_t looked_ns;
/* When all that waiting was in vain: for peers, and for threads of this process. */
static _Atomic int64_t gave_up_ns = -RETRY_NS;
static _Atomic int64_t gave_ours_up_ns = -RETRY_NS;
/* When peers may be attended to again. */
static _Atomic int64_t attend_ns;
static _Atomic int turn;
_Atomic bool sock_had_bells NEAR_DATA;

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_read(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stir(void)
{
	store_relaxed(&stirred_ns, clock_ns(CLOCK_MONOTONIC));
}

/* ---- which connections ---- */

static bool is_leaving(struct sock *s)
{
	return phase_of(s->slot) == SLOT_LEAVING;
}

/* Asking it could free a number below `limit`. */
static bool is_worth_asking(struct sock *s, int limit)
{
	uint32_t phase = phase_of(s->slot);
	int bell = s->bell, peer_bell = s->peer_bell, far_bell = s->far_bell;
	if (phase == SLOT_MEETING)
		return atomic_load(&s->slot->role) == TCP_ROLE_CONNECTED;
	if (phase < SLOT_OFFERED || phase >= SLOT_LEAVING)
		return false;
	return (bell >= 0 && bell < limit) || (peer_bell >= 0 && peer_bell < limit) ||
	       (far_bell >= 0 && far_bell < limit);
}

static bool is_empty(struct sock *s)
{
	return phase_of(s->slot) != SLOT_ATTACHED ||
	       (!ring_unread(s->in) && !ring_unread(s->out));
}

/* The second round asks whoever it is. True when it was worth it. */
static bool ask_one(struct sock *s, int fd, bool again)
{
	bool worth = false;
	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		worth = again || is_empty(s);
		if (worth && !again)
			sock_down(s, fd, VD_REASON_FD_LIMIT);
		else if (worth)
			sock_yield(s, fd, VD_REASON_FD_LIMIT);
		sock_unhold(s);
	}
	crit_leave();
	return worth;
}

/*
 * Asks up to `most` connections. Those with nothing under way read on from the ring until the
 * peer has left it. Others are asked only with `all`: what is unread is sent again over TCP.
 * Returns how many.
 */
static int ask(int most, int limit, bool all)
{
	int end = fd_limit(), asked = 0;
	int first = load_relaxed(&turn) % end;
	for (int i = 0; i < (all ? 2 : 1) * end && asked < most; i++) {
		int fd = (first + i) % end;
		struct sock *s = fd_sock(fd);
		if (!s || !is_worth_asking(s, limit) || !ask_one(s, fd, i >= end))
			continue;
		store_relaxed(&turn, fd + 1);
		asked++;
	}
	return asked;
}

/* Threads of this process are inside, and give its numbers back when they leave. */
static bool is_ours(struct sock *s)
{
	return phase_of(s->slot) == SLOT_FINAL && bells_are_there(s) &&
	       (atomic_load(&s->sleepers) > 0 || atomic_load(&s->bell_users) > 0);
}

/* Peers in this process answer, and those that are done give back what they have. Returns
 * how many still are on the way, and *ours, that wait for threads of this process. */
static int collect(int *ours)
{
	int leaving = 0;
	*ours = 0;
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s || !bells_are_there(s))
			continue;
		/* Held first: what is read of it must not be becoming another's. And no handler
		 * jumps away with the hold. */
		crit_enter();
		if (sock_hold(s, fd)) {
			if (sock_is_direct(s) && (is_leaving(s) || wait_attention(s)))
				sock_service(s, fd);
			sock_unhold(s);
		}
		crit_leave();
		bells_release(s);
		leaving += is_leaving(s);
		*ours += is_ours(s);
	}
	/* Some are being closed just now. */
	*ours += bells_are_held_off();
	return leaving;
}

/* ---- for the peers ---- */

void sock_attend_slow(bool asleep)
{
	int64_t now, due;
	int saved = errno, ours;
	now = clock_ns(CLOCK_MONOTONIC_COARSE);
	due = load_relaxed(&attend_ns);
	if (now < due || !atomic_compare_exchange_strong(
				 &attend_ns, &due,
				 now + ATTEND_NS * (asleep + fd_limit() / ATTEND_FDS)))
		return;
	limbo_look();
	collect(&ours);
	errno = saved;
}

void sock_serve_peers(void)
{
	int saved = errno, ours;
	collect(&ours);
	errno = saved;
}

/* ---- for the program ---- */

void sock_give_way(int fd)
{
	int64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
	int saved = errno, below, ours, excess = fds_excess(fd, &below);
	/* Once a tick: a look at all descriptors is dear where they are many. */
	if (excess > 0 && atomic_exchange(&looked_ns, now) != now) {
		int leaving = collect(&ours);
		excess = fds_excess(fd, &below) - BELLS * leaving;
		if (excess > 0 &&
		    ask(excess / BELLS + ASK_SPARE, below + ASK_SPARE, false) > 0)
			collect(&ours);
	}
	errno = saved;
}

/* Whether so many numbers, not below `from`, are not to be had: EMFILE may come of other
 * things, too. */
static bool is_short_of(int need, int from)
{
	int fds[NEED_MOST], n = 0, fd = 0;
	low_begin();
	while (n < need && n < NEED_MOST && fd >= 0) {
		fd = (int)kernel_call4(SYS_eventfd2, 0, EFD_CLOEXEC, 0, 0);
		if (fd >= 0 && fd < from) {
			int low = fd;
			fd = (int)kernel_call4(SYS_fcntl, low, F_DUPFD_CLOEXEC, from, 0);
			kernel_close(low);
		}
		if (fd >= 0)
			fds[n++] = fd;
	}
	for (int i = 0; i < n; i++)
		kernel_close(fds[i]);
	low_end();
	return fd == -EMFILE;
}

static bool is_long_since(_Atomic int64_t *when)
{
	return clock_ns(CLOCK_MONOTONIC) - load_relaxed(when) >= RETRY_NS;
}

static bool is_moving(int64_t now)
{
	return now - load_relaxed(&stirred_ns) < PATIENCE_NS ||
	       now - load_relaxed(&bells_given_ns) < PATIENCE_NS;
}

/* Peers that have not answered lately are asked no more than once, and not waited for. */
static bool make_room(int limit, int before)
{
	int64_t start = clock_ns(CLOCK_MONOTONIC), now = start, asked = 0;
	bool patient = is_long_since(&gave_up_ns), waits;
	bool waits_for_ours = is_long_since(&gave_ours_up_ns);
	const struct timespec nap = {.tv_nsec = NAP_NS};
	int ours;
	for (;;) {
		collect(&ours);
		if (fds_below(limit) < before)
			return true;
		/* What is idle goes first; what is moving is not idle for long. */
		if (patient ? now - asked >= ASK_PAUSE_NS : asked == 0) {
			bool all = !patient || now - start >= ASK_PAUSE_NS;
			if (ask(ASK_AT_ONCE, limit, all) > 0 || !all)
				stir();
			asked = now;
			continue;
		}
		waits = patient && now - start < WAIT_NS && is_moving(now);
		waits |= waits_for_ours && ours > 0 && now - start < OURS_NS;
		if (!waits)
			break;
		kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	if (patient)
		store_relaxed(&gave_up_ns, now);
	if (waits_for_ours && ours > 0)
		store_relaxed(&gave_ours_up_ns, now);
	return false;
}

bool sock_make_room(int need, int from, struct sock_room *room, bool (*last)(void))
{
	int limit = fds_limit(), before = fds_below(limit), saved = errno;
	bool made = fds_given() != room->given;
	if (!made && before > 0 && !is_short_of(need, from)) {
		made = room->once;
		room->once = false;
	} else if (!made && before > 0 && !(made = table_give_back())) {
		meet_give_back();
		made = fds_below(limit) < before || make_room(limit, before);
		while (!made && last())
			made = fds_below(limit) < before;
		if (!made)
			log_debug("no descriptor is left, and %d of Viaduct's stay",
				  fds_below(limit));
	}
	room->given = fds_given();
	errno = saved;
	return made;
}
