/* SPDX-License-Identifier: Apache-2.0 */
/* All connections of a process are handed over while its other threads open, use and close some. */
#include "unit/test.h"

#include "unit/conn_pair.h"

static int run_scale(void)
{
#ifdef __SANITIZE_THREAD__
	return 30;
#else
	return 100;
#endif
}

struct work {
	_Atomic bool stop;
	_Atomic uint64_t rounds;
	pthread_t thread;
};

static void *come_and_go(void *arg)
{
	struct work *w = arg;
	while (!atomic_load(&w->stop)) {
		struct pair p = pair_open();
		for (int i = 0; i < 4; i++)
			pair_ping(&p);
		pair_close(&p);
		atomic_fetch_add(&w->rounds, 1);
	}
	return NULL;
}

static bool is_direct(struct sock *s, int fd)
{
	(void)fd;
	return sock_is_direct(s);
}

STREAM_TEST(all_are_handed_over_while_others_come_and_go)
{
	struct work w = {0};
	REQUIRE(pthread_create(&w.thread, NULL, come_and_go, &w) == 0);
	for (int i = 0; i < run_scale() || !atomic_load(&w.rounds); i++) {
		struct pair p = pair_open_up();
		put(p.a, 0, 3000, 1);
		CHECK(sock_hand_over_each(is_direct, VD_REASON_EXEC));
		get(p.b, 0, 3000, 1);
		put(p.b, 0, 500, 2);
		get(p.a, 0, 500, 2);
		CHECK_EQ(gate_state(&fd_sock(p.a)->slot->gate_tx), GATE_FINAL);
		CHECK_EQ(gate_state(&fd_sock(p.b)->slot->gate_tx), GATE_FINAL);
		pair_close(&p);
	}
	atomic_store(&w.stop, true);
	pthread_join(w.thread, NULL);
}

static bool is_none(struct sock *s, int fd)
{
	(void)s;
	(void)fd;
	return false;
}

STREAM_TEST(what_is_not_meant_stays)
{
	struct pair p = pair_open_up();
	CHECK(!sock_hand_over_each(is_none, VD_REASON_EXEC));
	CHECK(pair_is_up(&p));
	pair_close(&p);
}

/* A call that has slept goes on in the kernel, and another thread closes the number just then. */
STREAM_TEST(a_connection_that_is_held_stays_open_on_tcp)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.b);
	char byte = 0;
	REQUIRE(sock_hold(s, p.b));
	CHECK(sock_hand_over_each(is_direct, VD_REASON_EXEC));
	pair_ping(&p);
	CHECK_EQ(atomic_load(&s->slot->phase), SLOT_FINAL);
	st_close(p.b);
	REQUIRE(atomic_load(&s->kept_fd) >= 0);
	CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
	CHECK_EQ(recv(s->kept_fd, &byte, 1, 0), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(st_recv(p.a, &byte, 1, MSG_DONTWAIT), -EAGAIN);
	sock_unhold(s);
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), 0);
	st_close(p.a);
}

/* ---- a number after a wait ---- */

/* The same slot may come back at the same number. */
STREAM_TEST(a_number_is_not_taken_for_what_it_was)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.b);
	uint32_t generation = sock_generation(s);
	CHECK(sock_number_begin(s, p.b, generation));
	sock_number_end(s);
	st_close(p.b);
	CHECK(!sock_number_begin(s, p.b, generation));
	st_close(p.a);
	/* Now with another connection there. */
	struct pair q = pair_open_up();
	REQUIRE(q.a == p.a && q.b == p.b);
	CHECK(!sock_number_begin(s, p.b, generation));
	CHECK(pair_is_up(&q));
	pair_close(&q);
}

struct closing {
	int fd;
	_Atomic bool begins, done;
};

static void *close_it(void *arg)
{
	struct closing *c = arg;
	atomic_store(&c->begins, true);
	st_close(c->fd);
	atomic_store(&c->done, true);
	return NULL;
}

/* Also where the connection goes on by another number. */
static void close_waits(int fd)
{
	struct closing c = {.fd = fd};
	struct sock *s = fd_sock(fd);
	pthread_t thread;
	REQUIRE(sock_number_begin(s, fd, sock_generation(s)));
	REQUIRE(pthread_create(&thread, NULL, close_it, &c) == 0);
	while (!atomic_load(&c.begins))
		sched_yield();
	usleep(2000);
	CHECK(!atomic_load(&c.done));
	CHECK(fd_sock(fd) == s);
	CHECK(fcntl(fd, F_GETFD) >= 0);
	sock_number_end(s);
	pthread_join(thread, NULL);
	CHECK(atomic_load(&c.done));
}

STREAM_TEST(a_close_waits_for_who_has_the_number)
{
	struct pair p = pair_open_up();
	int two = fcntl(p.b, F_DUPFD_CLOEXEC, 0);
	fd_duplicated(p.b, two);
	close_waits(p.b);
	put(p.a, 0, 3000, 1);
	get(two, 0, 3000, 1);
	close_waits(two);
	st_close(p.a);
}
