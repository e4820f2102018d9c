/* SPDX-License-Identifier: Apache-2.0 */
/* What poll, select and epoll share: levels, deadlines and the spin before a sleep. */
#ifndef VD_READINESS_LOOK_H
#define VD_READINESS_LOOK_H

#include <assert.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "conn/lowat.h"
#include "conn/sock.h"

/* One set of numbers serves poll and epoll. */
static_assert(POLLIN == EPOLLIN && POLLPRI == EPOLLPRI && POLLOUT == EPOLLOUT, "poll");
static_assert(POLLERR == EPOLLERR && POLLHUP == EPOLLHUP, "poll");
static_assert(POLLRDNORM == EPOLLRDNORM && POLLRDBAND == EPOLLRDBAND, "poll");
static_assert(POLLWRNORM == EPOLLWRNORM && POLLWRBAND == EPOLLWRBAND, "poll");
static_assert(POLLRDHUP == EPOLLRDHUP, "poll");

#define LOOK_IN	    (EPOLLIN | EPOLLRDNORM)
#define LOOK_OUT    (EPOLLOUT | EPOLLWRNORM)
#define LOOK_ALWAYS (EPOLLERR | EPOLLHUP)
/* What only the kernel learns: noticed by asking it, then kept in the slot. */
#define LOOK_KERNEL (EPOLLRDHUP | EPOLLPRI | EPOLLERR | EPOLLHUP)

/* Interest as sock_arm takes it. */
static inline uint32_t look_interest(uint32_t want)
{
	return (want & LOOK_IN ? EPOLLIN : 0) | (want & LOOK_OUT ? EPOLLOUT : 0);
}

/* True when memory alone answers for `want`: no direction in it is TCP's by now. */
static inline bool look_in_memory(struct sock *s, uint32_t want)
{
	if ((want & LOOK_IN) && gate_state(&s->slot->gate_rx) != GATE_RING)
		return false;
	return !(want & LOOK_OUT) || gate_state(&s->slot->gate_tx) == GATE_RING;
}

/* The level of a direct socket whose kernel events reach sock_note_kernel by themselves,
 * cut to `want`. */
static inline uint32_t look_level(struct sock *s, int fd, uint32_t want)
{
	/* Urgent data is the kernel's alone. */
	uint32_t bits =
		want & EPOLLPRI ? SOCK_LOOK : sock_level_quick(s, look_interest(want));

	if (bits & SOCK_LOOK)
		bits = sock_level(s, fd);
	return bits & (want | LOOK_ALWAYS);
}

/* The same where nobody has asked the kernel lately. */
static inline uint32_t look_level_asking(struct sock *s, int fd, uint32_t want)
{
	if (look_in_memory(s, want))
		return look_level(s, fd, want);
	return sock_level(s, fd) & (want | LOOK_ALWAYS);
}

/*
 * The same where a thread may close the socket meanwhile: then it is as good as closed here, and
 * POLLNVAL. A look that needs memory alone is not held: the window stays mapped, whatever becomes
 * of the socket.
 */
uint32_t look_level_holding(struct sock *s, int fd, uint32_t want);
static inline uint32_t look_level_held(struct sock *s, int fd, uint32_t want)
{
	uint32_t bits = SOCK_LOOK;

	if (!(want & EPOLLPRI) && look_in_memory(s, want))
		bits = sock_level_quick(s, look_interest(want));
	if (bits & SOCK_LOOK)
		return look_level_holding(s, fd, want);
	return fd_is(fd, s) ? bits & (want | LOOK_ALWAYS) : POLLNVAL;
}

/*
 * Events to sleep for on the TCP descriptor of a direct socket. Without those that have
 * been seen, since a level that holds would end every sleep; -1 when the kernel would
 * report a hang-up or an error at once, whatever is asked for.
 */
static inline int look_kernel_interest(struct sock *s, uint32_t want)
{
	uint32_t seen = load_acquire(&s->slot->seen);
	int events = want & EPOLLPRI;

	if (seen & (SEEN_HUP | SEEN_ERR))
		return -1;
	if (!(seen & (SEEN_FIN | SEEN_SHUT_RD)))
		events |= EPOLLRDHUP | (sock_is_quiet(s) ? EPOLLIN : 0);
	if ((want & LOOK_IN) &&
	    (gate_state(&s->slot->gate_rx) != GATE_RING || lowat_is_divided(s)))
		events |= EPOLLIN;
	if ((want & LOOK_OUT) && gate_state(&s->slot->gate_tx) != GATE_RING)
		events |= EPOLLOUT;
	return events;
}

/*
 * How long a sleep on this socket may last at most: bytes that the peer holds back become
 * due by time alone, among processes a sibling can die with a wake-up in its hands, and a
 * peer can die without a word of the kernel's.
 */
#define LOOK_SHARED_NAP_NS 100000000u
static inline uint64_t look_nap_ns(struct sock *s, int fd)
{
	if (!sock_is_direct(s))
		return UINT64_MAX;
	if (sock_is_held(s))
		return SOCK_HELD_NAP_NS;
	bool watched = sock_watch_owner(s, fd);
	if (slot_is_shared(s->slot))
		return LOOK_SHARED_NAP_NS;
	return watched ? SOCK_OWNER_NAP_NS : UINT64_MAX;
}

/* Absolute times are nanoseconds of CLOCK_MONOTONIC. */
#define LOOK_NOW     0ull
#define LOOK_FOREVER UINT64_MAX

/* The end of a relative timeout; the clock is read only when it must be. */
uint64_t look_deadline(const struct timespec *timeout);
/* The deadline, or the end of a nap that begins now, whichever comes first. */
uint64_t look_sooner(uint64_t deadline, uint64_t nap_ns);
/* What is left of it, in *ts. Returns NULL for ever, else ts. */
const struct timespec *look_remaining(uint64_t deadline, struct timespec *ts);
/* As the kernel judges a timeout. */
static inline bool look_timeout_valid(const struct timespec *t)
{
	return !t || (t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000);
}

/* One spin before a sleep. Zeroed by look_spin_begin. */
struct look_spin {
	uint64_t end_ns, ask_ns;
	uint32_t turns;
	bool on;
};

/* Whether to spin at all: not after several failures in this thread, nor past the
 * deadline. */
void look_spin_begin(struct look_spin *w, uint64_t deadline);
/* Pauses. False when the budget is spent; *ask: the kernel's turn has come. */
bool look_spin_turn(struct look_spin *w, bool *ask);
/* Keeps the history of this thread. */
void look_spin_end(struct look_spin *w, bool found);
/* Spinning is of no use when the peer needs this processor to answer. Tells the peer
 * where this thread runs. */
bool look_spin_useful(struct sock *s);

/*
 * The connections that a thread waits for. With more threads at work behind them than there are
 * processors the spin would take one of these away, whether what it looks for comes or not; then
 * they are told not to spin, either.
 */
#define LOOK_CROWD_MOST 32
struct look_crowd {
	uint32_t thread[LOOK_CROWD_MOST + 1];
	uint32_t threads, looked;
	bool useful, counts;
};
static inline struct look_crowd *look_crowd_begin(struct look_crowd *c)
{
	c->threads = c->looked = 0;
	c->useful = c->counts = false;
	return c;
}
/* So many are to come: few enough are no crowd. */
static inline void look_crowd_of(struct look_crowd *c, uint64_t count)
{
	c->counts |= count > wait_processors && wait_processors <= LOOK_CROWD_MOST;
}
/* False: no more need be added. */
bool look_crowd_add(struct look_crowd *c, struct sock *s);
/* Whether to spin, of all that were added. */
bool look_crowd_end(const struct look_crowd *c);

#endif
