/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's door for the native library, and for the module for RPC. */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "conn/promise.h"
#include "conn/table.h"
#include "preload/door.h"
#include "preload/hook.h"
#include "preload/start.h"
#include "readiness/look.h"
#include "remote/peer.h"
#include "rendezvous/ident.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/stranger.h"
#include "settings/config.h"

static ssize_t or_error(ssize_t n)
{
	return n < 0 ? -errno : n;
}

static ssize_t door_recv(int fd, const struct iovec *iov, int count, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};

	if (!s)
		return or_error(REAL(recvmsg)(fd, &msg, flags));
	return or_error(HOOK_RX(s, fd, REAL(recvmsg)(fd, &msg, flags),
				rx_recv(s, fd, iov, count, flags)));
}

/* A short frame and its header go in one piece, for which the ring's way is the shorter. */
#define WHOLE_BYTES 640u

/* False: it is longer, or not all of it can be read, which the call itself is to find out. */
static bool make_whole(const struct iovec *iov, uint8_t *whole, struct iovec *one)
{
	size_t first = iov[0].iov_len, second = iov[1].iov_len;

	if (first > WHOLE_BYTES || second > WHOLE_BYTES - first ||
	    crit_copy(whole, iov[0].iov_base, first) != 0 ||
	    crit_copy(whole + first, iov[1].iov_base, second) != 0)
		return false;
	*one = (struct iovec){whole, first + second};
	return true;
}

static ssize_t send_parts(int fd, const struct iovec *iov, int count, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};

	if (!s)
		return or_error(REAL(sendmsg)(fd, &msg, flags));
	return or_error(HOOK_TX(s, fd, REAL(sendmsg)(fd, &msg, flags),
				tx_send(s, fd, iov, count, flags)));
}

static ssize_t door_send(int fd, const struct iovec *iov, int count, int flags)
{
	struct sock *s = fd_sock(fd);
	uint8_t whole[WHOLE_BYTES];
	struct iovec one;

	/* The kernel takes parts as well, and finds out by itself what cannot be read. */
	if (count == 2 && s && gate_state(&s->slot->gate_tx) == GATE_RING &&
	    make_whole(iov, whole, &one))
		return send_parts(fd, &one, 1, flags);
	return send_parts(fd, iov, count, flags);
}

static void door_adopt(int fd, uint32_t role, int *announced)
{
	bool nonblock = REAL(fcntl64)(fd, F_GETFL) & O_NONBLOCK;
	struct sock *s;

	*announced = -1;
	if (!hook_active || fd_sock(fd))
		return;
	if (role == TCP_ROLE_ACCEPTED) {
		s = fd_open_accepted(fd, nonblock);
		*announced = s ? meet_announce(fd) : -1;
	} else {
		s = fd_open_socket(fd, nonblock);
		if (s)
			fd_connecting(s, fd);
	}
	hook_took(fd);
}

/* More than any threshold that is learnt; below what the counting can carry. */
#define EARNED_AT_ONCE (1ull << 50)

static void door_hasten(int fd)
{
	struct sock *s = fd_sock(fd);

	/* Relaxed: a count of units, seen by the next operation of this thread. */
	if (s)
		store_relaxed(&s->slot->earned, EARNED_AT_ONCE);
}

static uint32_t door_path(int fd, uint32_t *reason)
{
	struct sock *s = fd_sock(fd);

	*reason = hook_active ? VD_REASON_FULL : VD_REASON_OFF;
	if (!s)
		return DOOR_TCP;
	/* Relaxed: both change at any moment. */
	*reason = load_relaxed(&s->slot->reason);
	if (gate_state(&s->slot->gate_rx) != GATE_RING ||
	    gate_state(&s->slot->gate_tx) != GATE_RING)
		return DOOR_TCP;
	return load_relaxed(&s->slot->across) ? DOOR_RDMA : DOOR_SHM;
}

static int door_is_own(int fd)
{
	struct sock *s = fd_sock(fd);

	return s && !is_foreign(s);
}

static int door_may_stop_us(int fd)
{
	return ident_may_stop_us(fd);
}

static _Atomic uint64_t *door_counts(int fd)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return NULL;
	s->is_native = true;
	/* Relaxed: for those who look on. */
	store_relaxed(&s->slot->native, 1);
	return s->slot->native_counts;
}

static bool is_on_ring(struct sock *s)
{
	return s && sock_is_direct(s) && gate_state(&s->slot->gate_rx) == GATE_RING;
}

static ssize_t door_recv_within(int fd, void *buf, size_t len, int timeout_ms)
{
	struct iovec iov = {buf, len};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	bool polled = timeout_ms == 0;
	ssize_t n = -EAGAIN;

	for (;;) {
		struct sock *s = fd_sock(fd);

		/* Without a byte in a ring the kernel is asked before a receive, which would nearly
		 * always be in vain. */
		bool some = is_on_ring(s) && ring_unread(s->in);

		if (!some && !polled && is_on_ring(s))
			some = wait_spin(s, EPOLLIN);
		if (some || polled)
			n = door_recv(fd, &iov, 1, MSG_DONTWAIT);
		if (n != -EAGAIN)
			return n;
		n = poll(&p, 1, timeout_ms);
		if (n <= 0)
			return n ? -errno : -ETIME;
		polled = true;
	}
}

static int unread_of(const int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		struct sock *s = fd_sock(fds[i]);

		if (is_on_ring(s) && ring_unread(s->in))
			return i;
	}
	return -1;
}

static bool spin_pays(const int *fds, int count)
{
	struct look_crowd crowd;
	bool more = true;

	look_crowd_begin(&crowd);
	look_crowd_of(&crowd, (nfds_t)count);
	for (int i = 0; i < count && more; i++) {
		struct sock *s = fd_sock(fds[i]);

		if (is_on_ring(s))
			more = look_crowd_add(&crowd, s);
	}
	return look_crowd_end(&crowd);
}

/* After so many turns given in vain, and after one that took long, the next waits sleep at once. */
#define WAY_FAILURES   4
#define WAY_SKIP       64
#define WAY_LONG_SKIP  256
#define WAY_LONG_TICKS 500000u

/*
 * The peers are on this processor, or wait for one: nothing comes while we spin. Whoever gives its turn
 * away finds the next bytes when it has it back, and neither side has to sleep or to ring. Where
 * somebody else takes the turn, and for long, a sleep is better: the kernel ends it at once.
 */
static int give_way(const int *fds, int count)
{
	static _Thread_local uint32_t failed, skip;
	uint64_t began;
	int at = 0;

	while (at < count && !is_on_ring(fd_sock(fds[at])))
		at++;
	if (at == count || !config_get()->spin_ns)
		return -1;
	if (skip) {
		skip--;
		return -1;
	}
	began = __rdtsc();
	kernel_call4(SYS_sched_yield, 0, 0, 0, 0);
	if (__rdtsc() - began > WAY_LONG_TICKS)
		skip = WAY_LONG_SKIP;
	at = unread_of(fds, count);
	failed = at >= 0 ? 0 : failed + 1;
	if (failed >= WAY_FAILURES) {
		failed = 0;
		skip = WAY_SKIP;
	}
	return at;
}

static int door_await_any(const int *fds, int count)
{
	uint32_t handlers = crit_handlers();
	int at = unread_of(fds, count);
	struct look_spin spin;
	bool ask = false;

	if (at >= 0)
		return at;
	if (!spin_pays(fds, count))
		return give_way(fds, count);
	look_spin_begin(&spin, LOOK_FOREVER);
	while (at < 0 && look_spin_turn(&spin, &ask) && !ask &&
	       crit_handlers() == handlers)
		at = unread_of(fds, count);
	/* A spin that was cut short says nothing about others. */
	if (at >= 0)
		look_spin_end(&spin, true);
	return at;
}

static bool has_value(const _Atomic uint32_t *const *words, const uint32_t *values,
		      int count)
{
	for (int i = 0; i < count; i++)
		/* Acquire: the caller reads what the word tells of. */
		if (load_acquire(words[i]) == values[i])
			return true;
	return false;
}

static int door_await_words(const int *fds, const _Atomic uint32_t *const *words,
			    const uint32_t *values, int count)
{
	uint32_t handlers = crit_handlers();
	bool ask = false, found = false;
	struct look_spin spin;
	int at = -1;

	if (has_value(words, values, count) || !spin_pays(fds, count))
		return -1;
	look_spin_begin(&spin, LOOK_FOREVER);
	while (!found && at < 0 && look_spin_turn(&spin, &ask) && !ask &&
	       crit_handlers() == handlers) {
		found = has_value(words, values, count);
		at = found ? -1 : unread_of(fds, count);
	}
	if (found || at >= 0)
		look_spin_end(&spin, true);
	return at;
}

static void door_hold_signals(void)
{
	crit_enter();
}

static void door_release_signals(void)
{
	crit_leave();
}

static uint32_t door_reach_least(int fd)
{
	struct sock *s = fd_sock(fd);

	return s ? remote_redirect_least(s) : 0;
}

static int door_reach(int fd, void *start, size_t bytes, uint32_t rights,
		      struct door_key *key, uint64_t *id)
{
	struct sock *s = fd_sock(fd);
	struct across_key made;
	int r;

	/* Whoever switches redirection off wants none of it. */
	if (!s || config_get()->redirect == 0)
		return -EAGAIN;
	r = remote_reach(s, start, bytes, rights, &made, id);
	if (r == 0)
		*key = (struct door_key){made.address, made.token, made.key};
	return r;
}

static struct across_span to_span(const struct door_span *d)
{
	return (struct across_span){.at = d->at,
				    .bytes = d->bytes,
				    .is_get = d->is_get,
				    .whole = d->whole,
				    .whole_bytes = d->whole_bytes};
}

static void add_counts(struct door_span *d, const struct across_span *span)
{
	d->hits += span->hits;
	d->misses += span->misses;
	d->evictions += span->evictions;
	d->broken += span->broken;
}

static int door_move(int fd, const struct door_key *key, uint64_t offset,
		     struct door_span *d)
{
	const struct across_key to = {key->address, key->link, key->key};
	struct across_span span = to_span(d);
	struct sock *s = fd_sock(fd);
	int r = s ? remote_move(s, &to, offset, &span) : -EAGAIN;

	add_counts(d, &span);
	return r;
}

_Static_assert(DOOR_MOVES_MOST == ACROSS_MOVES_MOST, "moves of a connection");
_Static_assert(DOOR_MOVE_BYTES == ACROSS_STEP_BYTES, "bytes of a move");

static int door_may_move(int fd, const struct door_key *key)
{
	const struct across_key to = {key->address, key->link, key->key};
	struct sock *s = fd_sock(fd);

	return s ? remote_move_may(s, &to) : -EAGAIN;
}

static int door_begin_move(int fd, const struct door_key *key, uint64_t offset,
			   struct door_span *d, uint64_t *id)
{
	const struct across_key to = {key->address, key->link, key->key};
	struct across_span span = to_span(d);
	struct sock *s = fd_sock(fd);
	int r = s ? remote_move_begin(s, &to, offset, &span, id) : -EAGAIN;

	add_counts(d, &span);
	return r;
}

static int door_look_at_move(int fd, uint64_t id, bool ends)
{
	struct sock *s = fd_sock(fd);

	return s ? remote_move_look(s, id, ends) : -EIO;
}

static void door_await_moves(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct sock *s = fd_sock(fd);
	int bell = s ? remote_move_descriptor(s) : -1;

	/* What came before that was readied is not told by it. */
	if (bell >= 0 && poll(&p, 1, 0) == 0)
		across_nap(bell);
}

HOOK extern const struct door viaduct_door;
const struct door viaduct_door = {
	.version = DOOR_VERSION,
	.bytes = sizeof(struct door),
	.socket = socket,
	.connect = connect,
	.listen = listen,
	.accept4 = accept4,
	.setsockopt = setsockopt,
	.fcntl = fcntl,
	.shutdown = shutdown,
	.close = close,
	.eventfd = eventfd,
	.epoll_create1 = epoll_create1,
	.epoll_ctl = epoll_ctl,
	.epoll_wait = epoll_wait,
	.poll = poll,
	.recv = door_recv,
	.send = door_send,
	.turn_away = stranger_close,
	.may_stop_us = door_may_stop_us,
	.unlisten = meet_unpublish,
	.adopt = door_adopt,
	.forget = meet_unannounce,
	.hasten = door_hasten,
	.path = door_path,
	.is_own = door_is_own,
	.counts = door_counts,
	.recv_within = door_recv_within,
	.await_any = door_await_any,
	.await_words = door_await_words,
	.hold_signals = door_hold_signals,
	.release_signals = door_release_signals,
	.call_sheet = table_call_sheet,
	.reach_least = door_reach_least,
	.reach = door_reach,
	.unreach = across_unreach,
	.move = door_move,
	.may_move = door_may_move,
	.begin_move = door_begin_move,
	.look_at_move = door_look_at_move,
	.await_moves = door_await_moves,
	.unregister = across_forget,
	.start_join = start_join,
};
