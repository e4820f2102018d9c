/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: spin while that has lately paid, then arm, look again, and sleep in the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/mechanism.h"
#include "base/probe.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/lowat.h"
#include "conn/peer_hint.h"
#include "conn/report.h"
#include "settings/config.h"

/* After so many spins in vain, so many waits sleep at once (measured: never worse than TCP). */
#define SPIN_FAILURES	4
#define SPIN_SKIP_WAITS 64
/* Looks before the part of a spin that asks the clock, about one quick answer long; each is so
 * many looks at the cursor alone, and one at everything. Each of those has its pause, too: the
 * other end may run on the same core, and is the quicker for it. */
#define SPIN_EAGER  8
#define SPIN_NARROW 8
/* Between two looks at the time stamp. */
#define LOOKS_LEAST 16u
/* A spin that has so small a part of its time left has ended. */
#define SPIN_REST 16
/* Arrivals in a row within so many of these looks make a rush. In one there are so many pauses
 * before a look (0.6 us), or fewer (0.1 us) where so many bytes had gathered before the last. */
#define RUSH_LEAST	16
#define RUSH_ROUNDS	2
#define RUSH_PAUSES	24
#define RUSH_PAUSES_FEW 4
#define RUSH_BYTES_FEW	1024
#define VAIN_NAP_NS	1000000
#define NAP_NS		5000000

static int64_t now_ns(void)
{
	return (int64_t)clock_now_ns();
}

static bool spin_may_pay(struct sock *s, uint32_t interest)
{
	uint32_t peer;
	uint32_t skip = load_relaxed(&s->spin_skip);
	if (interest & EPOLLIN) {
		if (gate_state(&s->slot->gate_rx) != GATE_RING)
			return false;
		peer = load_relaxed(&s->in->tx_cpu);
	} else {
		peer = load_relaxed(&s->out->rx_cpu);
	}
	if (config_get()->spin_fixed)
		return true;
	if (wait_is_in_the_way(s, peer))
		return false;
	if (skip > 0) {
		store_relaxed(&s->spin_skip, (uint16_t)(skip - 1));
		return false;
	}
	return true;
}

/*
 * A stream of small messages: each look takes the cursor's line from the sender, who then
 * waits for it. Where one has come at once so many times, some are let gather: a kilobyte, not
 * more, since the two ends are to copy at the same time.
 */
static bool rush_pause(struct sock *s)
{
	uint32_t rush = load_relaxed(&s->rush);
	if (LACKS(GATHERING) || rush < RUSH_LEAST)
		return false;
	for (unsigned i = rush > RUSH_LEAST ? RUSH_PAUSES : RUSH_PAUSES_FEW; i > 0; i--)
		__builtin_ia32_pause();
	uint64_t gathered = ring_unread(s->in);
	rush = gathered >= RUSH_BYTES_FEW ? RUSH_LEAST : gathered ? RUSH_LEAST + 1 : 0;
	store_relaxed(&s->rush, rush);
	return rush != 0;
}

/* The first part of a spin. */
static bool spin_eagerly(struct sock *s, uint32_t interest)
{
	for (unsigned i = 0; i < SPIN_EAGER; i++) {
		/* What comes nearly always is looked for alone, and so is seen sooner. */
		for (unsigned j = 0; interest == EPOLLIN && j < SPIN_NARROW; j++) {
			if (!ring_unread(s->in)) {
				__builtin_ia32_pause();
				continue;
			}
			uint32_t rush = load_relaxed(&s->rush);
			store_relaxed(&s->rush, i < RUSH_ROUNDS ? rush + 1 : 0);
			return true;
		}
		if (wait_hint(s, interest))
			return true;
	}
	return false;
}

/* True: there is something. Else so many ticks have passed, or the wait is over. */
static bool spin_ticks(struct sock *s, uint32_t interest, uint64_t ticks)
{
	uint64_t begin = __rdtsc();
	do {
		for (unsigned i = 0; i < LOOKS_LEAST && !wait_is_over(s); i++) {
			if (wait_hint(s, interest))
				return true;
			__builtin_ia32_pause();
		}
	} while (__rdtsc() - begin < ticks && !wait_is_over(s));
	return false;
}

/*
 * On some machines a look at the clock is a system call, and takes longer than many of these. The time stamp
 * counts no slower than nanoseconds do: before it has counted what is left there is no need to ask.
 */
static bool spin_until(struct sock *s, uint32_t interest, int64_t budget_ns)
{
	if (spin_eagerly(s, interest))
		return true;
	int64_t end = now_ns() + budget_ns, left = budget_ns;
	do {
		if (spin_ticks(s, interest, (uint64_t)left))
			return true;
		left = end - now_ns();
	} while (left > budget_ns / SPIN_REST && !wait_is_over(s));
	return false;
}

bool wait_spin(struct sock *s, uint32_t interest)
{
	wait_tell_cpu(s);
	if ((interest == EPOLLIN && rush_pause(s)) || wait_hint(s, interest))
		return true;
	wait_know_self(false);
	int64_t budget = config_get()->spin_ns;
	if (budget == 0 || wait_is_over(s) || !spin_may_pay(s, interest))
		return false;
	if (spin_until(s, interest, budget)) {
		store_relaxed(&s->spin_failed, 0);
		return true;
	}
	if (wait_is_over(s)) /* says nothing about other waits */
		return false;
	uint32_t failed = load_relaxed(&s->spin_failed) + 1;
	if (failed >= SPIN_FAILURES) {
		store_relaxed(&s->spin_skip, SPIN_SKIP_WAITS);
		failed = SPIN_FAILURES - 1; /* one more failure skips again */
	}
	store_relaxed(&s->spin_failed, (uint8_t)failed);
	return false;
}

static void set_deadline(struct wait *w)
{
	w->deadline_ns = INT64_MAX;
	if (w->timeout_ns > TIMEOUT_AT_ONCE &&
	    __builtin_add_overflow(now_ns(), w->timeout_ns, &w->deadline_ns))
		w->deadline_ns = INT64_MAX;
}

/* Poll events of the TCP descriptor that can end this wait. */
static short tcp_events(struct sock *s, uint32_t interest)
{
	struct slot *sl = s->slot;
	short events = 0;
	if (seen_of(sl) & SEEN_SHUT_RD)
		events = 0; /* it would say so at once and for ever */
	else if (!(seen_of(sl) & SEEN_FIN))
		events |= POLLRDHUP | (interest & EPOLLIN ? POLLIN : 0);
	else if (interest & EPOLLIN && gate_state(&sl->gate_rx) != GATE_RING)
		events |= POLLIN;
	/* It ends a receive that SO_RCVLOWAT lets wait. */
	if (interest & EPOLLIN && lowat_is_divided(s))
		events |= POLLPRI;
	if (interest & EPOLLOUT && gate_state(&sl->gate_tx) != GATE_RING)
		events |= POLLOUT;
	return events;
}

/* Among processes a sibling can die with a wake-up in its hands: then sleeps are short. */
#define SHARED_NAP_NS 100000000

/* TCP would take more than the ring has room for: after this it is seen whether the peer reads. */
#define STUCK_NAP_NS 2000000

/* How long to sleep at most, in ns: INT64_MAX without bound, -EAGAIN when time is over. */
static int64_t sleep_bound(struct wait *w)
{
	int64_t ns = INT64_MAX;
	if (w->deadline_ns != INT64_MAX) {
		ns = w->deadline_ns - now_ns();
		if (ns <= 0)
			return -EAGAIN;
	}
	if ((slot_is_shared(w->s->slot) || (seen_of(w->s->slot) & SEEN_SHUT_RD)) &&
	    ns > SHARED_NAP_NS)
		ns = SHARED_NAP_NS;
	if (w->interest == EPOLLIN && sock_is_held(w->s) && ns > SOCK_HELD_NAP_NS)
		ns = SOCK_HELD_NAP_NS;
	if (ns > SOCK_OWNER_NAP_NS && sock_watch_owner(w->s, w->fd))
		ns = SOCK_OWNER_NAP_NS;
	if (w->interest == EPOLLOUT && ns > STUCK_NAP_NS && room_needs_tcp(w->s))
		ns = STUCK_NAP_NS;
	if (w->rounds > VAIN_ROUNDS && ns > VAIN_NAP_NS)
		ns = VAIN_NAP_NS;
	uint64_t still = sock_settle();
	if (still < (uint64_t)ns)
		ns = (int64_t)still;
	return ns;
}

bool wait_finds(struct wait *w)
{
	/* As in the kernel, a call that sleeps keeps the connection open: by the duplicate of who
	 * closed its last number, or by another number that the program has. */
	int fd = w->held ? load_acquire(&w->s->kept_fd) : -1;
	if (w->held && fd < 0 && !load_acquire(&w->s->closed))
		fd = fd_number(w->s);
	if (fd >= 0)
		w->fd = fd;
	return fd >= 0;
}

/* Which doorbells are to be answered. */
struct bells {
	bool own, far;
};

/* With a nap where the kernel would say at once, again and again, what is not to be believed yet. */
static void note_kernel(struct sock *s, uint32_t events)
{
	sock_note_kernel(s, events);
	if (peer_is_far(s) && !peer_end_is_known(s))
		kernel_poll(NULL, 0, 1);
}

/* Between arming and disarming. 0 or -errno. */
static int sleep_once(struct wait *w, struct bells *bells)
{
	struct sock *s = w->s;
	struct pollfd pfd[3] = {{.fd = w->fd, .events = tcp_events(s, w->interest)},
				{.fd = s->bell, .events = POLLIN},
				{.fd = s->far_bell, .events = POLLIN}};
	int64_t bound = sleep_bound(w);
	if (bound < 0)
		return (int)bound;
	int r = wait_interruption(w);
	/* What is there may have come before the signal. */
	if (r == -EINTR && w->rounds <= VAIN_ROUNDS && wait_hint(s, w->interest))
		return 0;
	if (r < 0)
		return r;
	report_add(&report_now.sleeps, 1);
	fetch_add_relaxed(&s->slot->sleeps, 1);
	PROBE3(sleep, PROBE_CONNECTION, w->fd, slot_cookie(s->slot));
	uint64_t mark = sock_mark(s, w->fd);
	int n = wait_in_kernel(w, pfd, pfd[2].fd < 0 ? 2 : 3, bound);
	PROBE4(wake, PROBE_CONNECTION, w->fd, slot_cookie(s->slot), n);
	if (n < 0)
		return n;
	if (n == 0 && slot_is_shared(s->slot))
		slot_is_alone(
			s->slot); /* forgets who has gone: later sleeps may be long */
	*bells = (struct bells){n > 0 && pfd[1].revents, n > 0 && pfd[2].revents};
	if ((pfd[0].revents & POLLNVAL) || (pfd[0].revents && !sock_had(s, w->fd, mark)))
		return wait_finds(w) ? 0 : -EBADF;
	if (n > 0 && pfd[0].revents)
		note_kernel(s, (uint32_t)pfd[0].revents);
	if (n > 0 && (pfd[0].revents & (POLLIN | POLLRDHUP)) == POLLIN)
		sock_check_bypass(s, w->fd);
	return 0;
}

struct asleep {
	struct wait *w;
	uint32_t
		forks; /* sock_forks when it was counted: a child that goes on with the call counts anew */
};

/* A thread that is cancelled in its sleep, or leaves by longjmp, counts itself out. */
static void leave_sleep(void *arg)
{
	const struct asleep *a = arg;
	if (a->forks == sock_forks)
		sock_disarm(a->w->s, a->w->interest);
}

static int sleep_guarded(struct wait *w, struct bells *bells)
{
	struct _pthread_cleanup_buffer cleanup;
	struct asleep asleep = {.w = w};
	int r = 0;
	/* No handler jumps away, or forks, between a count and the note of it. */
	crit_enter();
	asleep.forks = sock_forks;
	_pthread_cleanup_push(&cleanup, leave_sleep, &asleep);
	sock_arm(w->s, w->interest);
	crit_leave();
	if (w->rounds > VAIN_ROUNDS || !wait_hint(w->s, w->interest)) {
		r = sleep_once(w, bells);
		w->rounds = w->rounds > VAIN_ROUNDS ? w->rounds : 0;
	}
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return r;
}

static void leave_hold(void *arg)
{
	struct wait *w = arg;
	if (peer_offering)
		peer_ops->take_back();
	wait_drop_vector(w);
	w->held = false;
	if (w->forks == sock_forks)
		sock_unhold(w->s);
}

bool wait_hold(struct wait *w)
{
	crit_enter();
	w->held = sock_hold(w->s, w->fd);
	w->forks = sock_forks;
	if (w->held) {
		_pthread_cleanup_push(&w->leaving, leave_hold, w);
		wait_keep_vector(w);
	}
	crit_leave();
	return w->held;
}

int wait_begin_leaving(struct wait *w, int flags)
{
	int set = REAL(fcntl64)(w->fd, F_GETFL);
	w->timeout_ns = timeout_ask(w->s, w->fd,
				    w->interest == EPOLLIN ? TIMEOUT_RX : TIMEOUT_TX);
	return (set >= 0 && (set & O_NONBLOCK)) || w->timeout_ns == TIMEOUT_AT_ONCE
		       ? flags | MSG_DONTWAIT
		       : flags;
}

int wait_for(struct wait *w)
{
	struct sock *s = w->s;
	struct bells bells = {false, false};
	int r;
	/* A spin needs no hold: the window stays mapped, whatever becomes of the socket. */
	bool spun = w->spun;
	w->spun = false;
	if (w->interest == EPOLLIN && ++w->rounds <= VAIN_ROUNDS && !spun &&
	    wait_spin(s, EPOLLIN)) {
		sock_service(s, w->fd);
		return 0;
	}
	if (!w->held && !wait_hold(w))
		return -EBADF;
	if (w->deadline_ns == 0)
		set_deadline(w);
	sock_attend(true);
	/* What has come is looked for once it is armed. */
	sock_serve(s, w->fd);
	if (w->room.iov_len)
		peer_offer(w->s, w);
	r = sleep_guarded(w, &bells);
	if (bells.own || bells.far)
		sock_answer_bells(s, bells.own, bells.far);
	if (fd_is(w->fd, s) && bells.far) /* has been heard just now */
		sock_serve(s, w->fd);
	else if (fd_is(w->fd, s))
		sock_service(s, w->fd);
	return r == -EINTR ? wait_after_signal(w) : r;
}

bool wait_is_late(struct wait *w)
{
	if (w->deadline_ns == 0)
		set_deadline(w);
	return now_ns() >= w->deadline_ns;
}

int wait_nap(struct wait *w)
{
	if (wait_is_late(w))
		return -EAGAIN;
	int n = wait_interruption(w);
	if (n < 0)
		return n;
	struct pollfd pfd = {.fd = w->fd, .events = POLLRDHUP};
	uint64_t mark = sock_mark(w->s, w->fd);
	n = wait_in_kernel(w, &pfd, 1, NAP_NS);
	if (n > 0 && sock_had(w->s, w->fd, mark))
		sock_note_kernel(w->s, (uint32_t)pfd.revents);
	return n < 0 ? n : 0;
}

void wait_finish(struct wait *w)
{
	if (!w->held)
		return;
	crit_enter();
	_pthread_cleanup_pop(&w->leaving, 1);
	crit_leave();
}
