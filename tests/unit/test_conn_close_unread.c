/* SPDX-License-Identifier: Apache-2.0 */
/* A close with bytes unread, while a thread is in the kernel's receive by the number: no gap, but a reset. */
#include "unit/test.h"

#include "unit/conn_pair.h"

#ifdef __SANITIZE_THREAD__
/* A close puts zeros under the feet of a thread that comes too late, on purpose: see sock_drop_segment. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:sock_drop_segment\nrace:fds_close\nrace:st_close\n";
}
#endif

static void *end_at_once(void *arg)
{
	return arg;
}

/* As the C library sees it. */
static void have_threads(void)
{
	pthread_t other;
	REQUIRE(pthread_create(&other, NULL, end_at_once, NULL) == 0);
	pthread_join(other, NULL);
}

/*
 * A thread that comes by a number amid its close finds the kernel's socket. What the peer sends by then is behind
 * bytes that nobody will read: it must not be taken for what comes next.
 */
STREAM_TEST(nothing_comes_behind_what_a_close_leaves_unread)
{
	struct pair p = pair_open_up();
	char got[8];
	have_threads();
	CHECK_EQ(st_send(p.a, "first", 5, 0), 5);
	fd_closing(p.b);
	st_send(p.a, "second", 6, MSG_DONTWAIT | MSG_NOSIGNAL);
	st_send(p.a, "third", 5, MSG_DONTWAIT | MSG_NOSIGNAL);
	CHECK(recv(p.b, got, sizeof(got), MSG_DONTWAIT) <= 0);
	close(p.b);
	st_close(p.a);
}

/* The rest of a send that had found the connection open, and was preempted before its copy. */
static void put_late(int fd, const char *text, size_t len)
{
	struct sock *s = fd_sock(fd);
	struct ring_span span;
	lock_take(&s->slot->tx_lock);
	REQUIRE(ring_tx_span(&s->slot->tx, s->out, s->out_data, len, &span) == 0 &&
		span.len >= len);
	memcpy(span.data, text, len);
	ring_tx_commit(&s->slot->tx, s->out, len, false);
	lock_drop(&s->slot->tx_lock);
}

/* The close has looked at the ring for the last time, and does not reset the connection. */
STREAM_TEST(nothing_comes_behind_what_comes_during_a_close)
{
	struct pair p = pair_open_up();
	char got[8];
	if (across_is_tested()) {
		pair_close(&p);
		return;
	}
	have_threads();
	fd_closing(p.b);
	put_late(p.a, "first", 5);
	CHECK_EQ(st_send(p.a, "second", 6, MSG_DONTWAIT | MSG_NOSIGNAL), -ECONNRESET);
	CHECK_EQ(st_send(p.a, "third", 5, MSG_DONTWAIT | MSG_NOSIGNAL), -EPIPE);
	CHECK_EQ(recv(p.b, got, sizeof(got), MSG_DONTWAIT), -1);
	CHECK_EQ(errno, ECONNRESET);
	CHECK(st_recv(p.a, got, sizeof(got), 0) <= 0);
	close(p.b);
	st_close(p.a);
}

/* What the peer had sent by the ring is still to be read, and what by TCP, too. */
STREAM_TEST(what_the_closing_end_has_sent_is_read_before_its_reset)
{
	struct pair p = pair_open_up();
	char got[8] = "";
	if (across_is_tested()) {
		pair_close(&p);
		return;
	}
	have_threads();
	CHECK_EQ(st_send(p.b, "ring", 4, 0), 4);
	tx_down(fd_sock(p.b), p.b, GATE_TCP);
	CHECK_EQ(write(p.b, "tcp", 3), 3);
	fd_closing(p.b);
	put_late(p.a, "first", 5);
	CHECK(st_send(p.a, "second", 6, MSG_DONTWAIT | MSG_NOSIGNAL) < 0);
	CHECK(recv(p.b, got, sizeof(got), MSG_DONTWAIT) <= 0);
	CHECK_EQ(st_recv(p.a, got, 7, MSG_WAITALL), 7);
	CHECK(memcmp(got, "ringtcp", 7) == 0);
	close(p.b);
	st_close(p.a);
}

static void *close_number(void *arg)
{
	fd_closing(*(int *)arg);
	return NULL;
}

/* The peer has gone on by TCP, since this end has shut down: by then the number is not in the table any more. */
STREAM_TEST(a_close_resets_before_its_number_is_unknown)
{
	struct pair p = pair_open_up();
	struct slot *sl = fd_sock(p.b)->slot;
	char got[8];
	pthread_t closer;
	if (across_is_tested()) {
		pair_close(&p);
		return;
	}
	CHECK_EQ(st_send(p.a, "first", 5, 0), 5);
	CHECK_EQ(st_shutdown(p.b, SHUT_WR), 0);
	CHECK_EQ(st_send(p.a, "second", 6, 0), 6);
	REQUIRE(gate_is_kernel(gate_state(&fd_sock(p.a)->slot->gate_tx)));
	lock_take(&sl->ctl); /* the close waits for it */
	REQUIRE(pthread_create(&closer, NULL, close_number, &p.b) == 0);
	while (fd_sock(p.b))
		sched_yield();
	CHECK(recv(p.b, got, sizeof(got), MSG_DONTWAIT) <= 0);
	lock_drop(&sl->ctl);
	pthread_join(closer, NULL);
	close(p.b);
	st_close(p.a);
}
