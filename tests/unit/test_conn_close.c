/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that are closed, re-used and duplicated while other threads use them. */
#include "unit/test.h"

#include "conn/leave.h"
#include "unit/conn_pair.h"

__attribute__((constructor)) static void long_spins(void)
{
	setenv("VIADUCT_SPIN", "300", 1); /* us: threads are found inside a spin */
}

#ifdef __SANITIZE_THREAD__
/*
 * A close puts zeros under the feet of a thread that comes too late, and closes the doorbell
 * that it may just be ringing: on purpose (see sock_drop_segment).
 */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:sock_drop_segment\nrace:fds_close\nrace:st_close\n";
}
#endif

static int run_scale(void)
{
#ifdef __SANITIZE_THREAD__
	return 100;
#else
	return 400;
#endif
}

#define IDLE (-2) /* the number is about to be another connection's */

struct user {
	_Atomic int fd; /* -1: stop */
	_Atomic int round;
	_Atomic bool idle;
	pthread_t thread;
};

/* The next descriptor to use, or -1. */
static int user_next(struct user *u)
{
	int fd;
	while ((fd = atomic_load(&u->fd)) == IDLE) {
		atomic_store(&u->idle, true);
		sched_yield();
	}
	return fd;
}

/* Reads until an end or an error, whatever becomes of the descriptor. */
static void *read_on(void *arg)
{
	struct user *u = arg;
	char buf[64];
	int fd;
	while ((fd = user_next(u)) >= 0) {
		st_recv(fd, buf, sizeof(buf), 0);
		atomic_fetch_add(&u->round, 1);
	}
	return NULL;
}

static void *write_on(void *arg)
{
	struct user *u = arg;
	static char buf[3000];
	int fd;
	while ((fd = user_next(u)) >= 0) {
		st_send(fd, buf, sizeof(buf), MSG_NOSIGNAL | MSG_DONTWAIT);
		atomic_fetch_add(&u->round, 1);
	}
	return NULL;
}

static void *look_on(void *arg)
{
	struct user *u = arg;
	int fd, n;
	while ((fd = user_next(u)) >= 0) {
		struct sock *s = fd_sock(fd);
		/* As poll and epoll do. */
		if (s && sock_hold(s, fd)) {
			(void)sock_level(s, fd);
			(void)sock_inq(s, fd, &n);
			(void)sock_outq(s, fd, false, &n);
			sock_unhold(s);
		}
		atomic_fetch_add(&u->round, 1);
	}
	return NULL;
}

/* Whoever loses the race against a close gets a result, not a fault. */
static void close_under(void *(*use)(void *))
{
	struct user u = {.fd = IDLE};
	REQUIRE(pthread_create(&u.thread, NULL, use, &u) == 0);
	for (int i = 0; i < run_scale(); i++) {
		struct pair p = pair_open_up();
		int round = atomic_load(&u.round);
		st_nonblock(p.b);
		atomic_store(&u.fd, p.b);
		while (atomic_load(&u.round) < round + 2)
			sched_yield();
		if (i % 3)
			CHECK_EQ(st_send(p.a, "x", 1, MSG_DONTWAIT), 1);
		st_close(p.b);
		atomic_store(&u.idle, false);
		atomic_store(&u.fd, IDLE);
		while (!atomic_load(&u.idle))
			sched_yield();
		st_close(p.a);
	}
	atomic_store(&u.fd, -1);
	pthread_join(u.thread, NULL);
}

STREAM_TEST(close_under_a_reader)
{
	close_under(read_on);
}

STREAM_TEST(close_under_a_writer)
{
	close_under(write_on);
}

STREAM_TEST(close_under_a_look)
{
	close_under(look_on);
}

/* A blocking reader, found spinning or asleep; the peer's FIN or data ends it. */
STREAM_TEST(close_under_a_blocked_reader)
{
	for (int i = 0; i < run_scale() / 4; i++) {
		struct pair p = pair_open_up();
		char byte;
		struct call c = {.fd = p.b, .buf = &byte, .len = 1};
		REQUIRE(pthread_create(&c.thread, NULL, call_recv, &c) == 0);
		while (!atomic_load(&c.tid))
			sched_yield();
		for (int k = 0; k < i * 20; k++)
			__builtin_ia32_pause();
		st_close(p.b);
		st_close(p.a);
		ssize_t n = call_end(&c);
		CHECK(n == 0 || n == -EBADF || n == -ECONNRESET || n == -ENOTCONN);
	}
	/* What was put off for the sleeper's sake is done at the next close. */
	struct pair p = pair_open_up();
	pair_close(&p);
}

/* The kernel lets such a reader finish; bytes that were under way are its own. */
STREAM_TEST(a_sleeping_reader_outlives_the_close)
{
	struct pair p = pair_open_up();
	char byte = 0;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	st_close(p.b);
	/* Other connections come and go meanwhile, and take the numbers. */
	struct pair q = pair_open_up();
	CHECK_EQ(st_send(q.a, "q", 1, 0), 1);
	if (!atomic_load(&c.done))
		st_send(p.a, "p", 1, MSG_NOSIGNAL);
	st_close(p.a);
	ssize_t n = call_end(&c);
	CHECK(n <= 0 || byte == 'p');
	CHECK_EQ(st_recv(q.b, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'q');
	pair_close(&q);
	/* Whatever was put off is done at the next close. */
	q = pair_open_up();
	pair_close(&q);
}

struct closer {
	int fd;
	_Atomic int *go;
	pthread_t thread;
};

static void *close_it(void *arg)
{
	struct closer *c = arg;
	atomic_fetch_sub(c->go, 1);
	while (atomic_load(c->go) > 0)
		;
	fd_closing(c->fd);
	return NULL;
}

/* Two threads close one number: one of them is wrong, and hurts nobody else. */
STREAM_TEST(closed_twice_at_once)
{
	for (int i = 0; i < run_scale() / 4; i++) {
		struct pair p = pair_open_up();
		_Atomic int go = 2;
		struct closer c[2];
		for (int k = 0; k < 2; k++) {
			c[k] = (struct closer){.fd = p.b, .go = &go};
			REQUIRE(pthread_create(&c[k].thread, NULL, close_it, &c[k]) == 0);
		}
		for (int k = 0; k < 2; k++)
			pthread_join(c[k].thread, NULL);
		close(p.b);
		/* The slot was given back once. */
		struct pair q = pair_open(), r = pair_open();
		CHECK(fd_sock(q.a) != fd_sock(r.a) && fd_sock(q.a) != fd_sock(r.b) &&
		      fd_sock(q.b) != fd_sock(r.a) && fd_sock(q.b) != fd_sock(r.b));
		CHECK_EQ(atomic_load(&fd_sock(q.a)->fds), 1);
		pair_close(&q);
		pair_close(&r);
		st_close(p.a);
	}
}

STREAM_TEST(duplicates)
{
	struct pair p = pair_open_up();
	char byte;
	int dups[4];
	for (int i = 0; i < 4; i++) {
		dups[i] = dup(p.b);
		fd_duplicated(p.b, dups[i]);
		CHECK(fd_sock(dups[i]) == fd_sock(p.b));
	}
	st_close(p.b);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
		CHECK_EQ(st_recv(dups[i], &byte, 1, 0), 1);
		CHECK_EQ(st_send(dups[i], "y", 1, 0), 1);
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
		CHECK_EQ(st_recv(p.a, &byte, 1, MSG_DONTWAIT), -EAGAIN);
		st_close(dups[i]);
	}
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), 0);
	st_close(p.a);
}

/* A number that was closed past us and is something else now. */
/* Who comes too late by a number that is another's by now would count what that one has read. */
STREAM_TEST(by_a_number_of_anothers_nothing_opens)
{
	struct pair p = pair_open_up(), q = pair_open();
	struct sock *s = fd_sock(p.b);
	int other = fcntl(p.b, F_DUPFD_CLOEXEC, 0);
	REQUIRE(other >= 0);
	fd_duplicated(p.b, other);
	sock_bounce(s, p.b);
	sock_service(fd_sock(p.a), p.a);
	sock_service(s, p.b);
	CHECK_EQ(gate_state(&s->slot->gate_rx), GATE_TCP);
	st_close(p.b);
	REQUIRE(dup2(q.b, p.b) == p.b);
	fd_duplicated(q.b, p.b);
	rx_open(s, p.b);
	CHECK_EQ(gate_state(&s->slot->gate_rx), GATE_TCP);
	put(p.a, 0, 3000, 1);
	get(other, 0, 3000, 1);
	pair_ping(&(struct pair){p.a, other});
	put(q.a, 0, 3000, 2);
	get(p.b, 0, 3000, 2);
	st_close(other);
	pair_close(&p);
	pair_close(&q);
}

STREAM_TEST(forgotten)
{
	struct pair p = pair_open_up();
	char byte;
	close(p.b);
	fd_forget(p.b);
	CHECK(!fd_sock(p.b));
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), 0);
	st_close(p.a);
}

/* The same while it waits for its peer: the published name, or the offer, goes with it. */
STREAM_TEST(forgotten_during_the_meeting)
{
	if (across_is_tested())
		return; /* it meets in another way */
	for (int offered = 0; offered < 2; offered++) {
		struct pair p = pair_open();
		CHECK_EQ(phase_of(fd_sock(p.a)->slot), SLOT_MEETING);
		for (int i = 0; offered && i < 4; i++)
			meeting_step(fd_sock(p.b), p.b, false);
		if (offered)
			CHECK_EQ(phase_of(fd_sock(p.b)->slot), SLOT_OFFERED);
		close(p.a);
		fd_forget(p.a);
		close(p.b);
		fd_forget(p.b);
		CHECK(!fd_sock(p.a) && !fd_sock(p.b));
	}
}

/* ---- closed while another thread is amid its meeting ---- */

struct ender {
	int fd;
	bool forgets;
	_Atomic bool done;
	pthread_t thread;
};

static void *end_it(void *arg)
{
	struct ender *e = arg;
	if (e->forgets)
		fd_forget(e->fd);
	else
		fd_closing(e->fd);
	atomic_store(&e->done, true);
	return NULL;
}

static bool waits_for(struct lock *l, _Atomic bool *done)
{
	while (!(atomic_load(&l->word) & LOCK_WAITERS) && !atomic_load(done))
		sched_yield();
	return !atomic_load(done);
}

/* The last phase is stored, and the gates are not yet: these would be the next connection's. */
STREAM_TEST(a_close_waits_for_who_ends_the_meeting)
{
	for (int forgets = 0; forgets < 2; forgets++) {
		struct pair p = pair_open();
		struct ender e = {.fd = p.b, .forgets = forgets};
		struct slot *sl = fd_sock(p.b)->slot;
		lock_take(&sl->ctl);
		atomic_store(&sl->phase, SLOT_FINAL);
		REQUIRE(pthread_create(&e.thread, NULL, end_it, &e) == 0);
		CHECK(waits_for(&sl->ctl, &e.done));
		rx_final(sl);
		tx_final(sl);
		lock_drop(&sl->ctl);
		pthread_join(e.thread, NULL);
		CHECK(atomic_load(&e.done) && !atomic_load(&sl->used));
		close(p.b);
		st_close(p.a);
		p = pair_open_up();
		pair_close(&p);
	}
}

/* One of two numbers is closed amid a step: what the step asks of the kernel would be another connection's. */
STREAM_TEST(a_close_waits_for_a_step_by_its_number)
{
	for (int forgets = 0; forgets < 2; forgets++) {
		struct pair p = pair_open();
		int other = fcntl(p.b, F_DUPFD_CLOEXEC, 0);
		struct ender e = {.fd = p.b, .forgets = forgets};
		struct slot *sl = fd_sock(p.b)->slot;
		REQUIRE(other >= 0);
		fd_duplicated(p.b, other);
		lock_take(&sl->ctl);
		REQUIRE(pthread_create(&e.thread, NULL, end_it, &e) == 0);
		CHECK(waits_for(&sl->ctl, &e.done));
		lock_drop(&sl->ctl);
		pthread_join(e.thread, NULL);
		close(p.b);
		p.b = other;
		pair_up(&p);
		pair_close(&p);
	}
}

/* By the time others of the family may have the slot. */
STREAM_TEST(who_comes_after_a_close_changes_nothing)
{
	const struct timeval second = {.tv_sec = 1};
	struct pair p = pair_open();
	struct sock *s = fd_sock(p.b);
	struct slot *sl = s->slot;
	uint32_t phase = phase_of(sl);
	st_close(p.b);
	REQUIRE(dup2(p.a, p.b) == p.b);
	meeting_refuse(s, VD_REASON_OPTION);
	CHECK_EQ(phase_of(sl), phase);
	meeting_leave(s);
	CHECK_EQ(phase_of(sl), phase);
	CHECK_EQ(timeout_set(s, p.b, SO_RCVTIMEO, &second, sizeof(second)), 0);
	CHECK_EQ(atomic_load(&sl->timeout_ns[0]), 0);
	atomic_store(&sl->role, TCP_ROLE_UNKNOWN);
	atomic_store(&s->is_copied, true);
	fd_connecting(s, p.b);
	CHECK_EQ(atomic_load(&sl->role), TCP_ROLE_UNKNOWN);
	CHECK_EQ(atomic_load(&sl->ctl.word), 0);
	close(p.b);
	st_close(p.a);
}

static struct sock *_Atomic watched;

/* Whoever has ctl finds no connection that has ended its meeting, and is awaited. */
static void *watch_awaited(void *arg)
{
	long *seen = arg;
	struct sock *s;
	while ((s = atomic_load(&watched))) {
		struct slot *sl = s->slot;
		lock_take(&sl->ctl);
		bool is_late = phase_of(sl) == SLOT_FINAL && atomic_load(&s->awaited);
		/* Else it has become another's in between. */
		*seen += is_late && lock_is_mine(&sl->ctl);
		lock_drop_if_mine(&sl->ctl);
	}
	return NULL;
}

STREAM_TEST(a_meeting_that_has_ended_is_awaited_no_more)
{
	int fd = pair_socket();
	long seen = 0;
	pthread_t watcher;
	REQUIRE(fd_open_accepted(fd, false));
	atomic_store(&watched, fd_sock(fd));
	REQUIRE(pthread_create(&watcher, NULL, watch_awaited, &seen) == 0);
	for (int i = 0; i < run_scale() * 250; i++) {
		fd_forget(fd);
		REQUIRE(fd_open_accepted(fd, false) == atomic_load(&watched));
		meeting_refuse(fd_sock(fd), VD_REASON_OPTION);
	}
	atomic_store(&watched, NULL);
	pthread_join(watcher, NULL);
	CHECK_EQ(seen, 0);
	CHECK_EQ(atomic_load(&sock_awaited), 0);
	st_close(fd);
}

static _Atomic bool attaching, may_go_on;

static bool attach_slowly(struct sock *s)
{
	if (s != atomic_load(&watched))
		return true;
	atomic_store(&attaching, true);
	while (!atomic_load(&may_go_on))
		sched_yield();
	return true;
}

static void *attach_it(void *arg)
{
	struct pair *p = arg;
	struct sock *s = fd_sock(p->b);
	for (int i = 0; i < 64 && !atomic_load(&attaching); i++) {
		meeting_step(s, p->b, false);
		meeting_step(fd_sock(p->a), p->a, true);
	}
	return NULL;
}

/* Both ends have the segment: what is left to be done is not done to the next connection. */
STREAM_TEST(a_close_amid_the_last_step_of_attaching)
{
	struct pair p = pair_open(), q;
	struct sock *s = fd_sock(p.b);
	struct slot *sl = s->slot;
	pthread_t thread;
	atomic_store(&watched, s);
	sock_may_attach = attach_slowly;
	REQUIRE(pthread_create(&thread, NULL, attach_it, &p) == 0);
	while (!atomic_load(&attaching))
		sched_yield();
	CHECK_EQ(phase_of(sl), SLOT_ATTACHING);
	st_close(p.b);
	CHECK(atomic_load(&sl->used));
	q = pair_open();
	atomic_store(&may_go_on, true);
	pthread_join(thread, NULL);
	sock_may_attach = NULL;
	CHECK_EQ(atomic_load(&fd_sock(q.b)->awaited), 1);
	CHECK(phase_of(fd_sock(q.b)->slot) < SLOT_ATTACHING);
	CHECK(fd_sock(q.b) != s && !atomic_load(&sl->used));
	pair_up(&q);
	pair_close(&q);
	st_close(p.a);
}

#ifndef __SANITIZE_THREAD__ /* which makes a fork of it */
struct borrower {
	int fd;
	_Atomic bool holds, may_end;
	pthread_t thread;
};

static void *hold_in_a_child(void *arg)
{
	struct borrower *b = arg;
	struct sock *s = fd_sock(b->fd);
	pid_t pid = vfork();
	if (pid == 0) {
		bool held = sock_hold(s, b->fd);
		atomic_store(&b->holds, true);
		while (!atomic_load(&b->may_end))
			usleep(100);
		if (held)
			sock_unhold(s);
		_exit(held ? 0 : 1);
	}
	st_reap(pid, 0);
	return NULL;
}

/* The child of vfork is the last one out, and has descriptors of its own: the parent's are closed by the
 * parent, so that the peer hears of it. */
STREAM_TEST(what_a_child_of_vfork_lets_go_ends)
{
	struct pair p = pair_open_up();
	struct borrower b = {.fd = p.b};
	ssize_t n = -EAGAIN;
	char byte;
	REQUIRE(pthread_create(&b.thread, NULL, hold_in_a_child, &b) == 0);
	while (!atomic_load(&b.holds))
		usleep(100);
	st_close(p.b);
	atomic_store(&b.may_end, true);
	pthread_join(b.thread, NULL);
	/* As the program goes on. */
	for (int i = 0; i < 1000 && n == -EAGAIN; i++) {
		usleep(1000);
		sock_attend(true);
		n = st_recv(p.a, &byte, 1, MSG_DONTWAIT);
	}
	CHECK_EQ(n, 0);
	st_close(p.a);
}
#endif

STREAM_TEST(slots_come_back)
{
	struct pair p = pair_open_up();
	struct sock *highest = fd_sock(p.a) > fd_sock(p.b) ? fd_sock(p.a) : fd_sock(p.b);
	pair_close(&p);
	for (int i = 0; i < 50; i++) {
		p = pair_open_up();
		CHECK(fd_sock(p.a) <= highest && fd_sock(p.b) <= highest);
		pair_close(&p);
	}
}
