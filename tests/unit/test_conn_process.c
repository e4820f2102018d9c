/* SPDX-License-Identifier: Apache-2.0 */
/* One end held by several processes: forks at any time, and deaths at the worst moments. */
#include "unit/test.h"

#include "conn/gate_move.h"
#include "unit/conn_pair.h"

/* Runs body in a forked child, to its end. */
static void in_child(void (*body)(const struct pair *), const struct pair *p)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		body(p);
		st_exit();
	}
	st_reap(pid, 0);
}

static void child_uses_both_ways(const struct pair *p)
{
	CHECK(pair_is_up(p));
	get(p->b, 0, 500, 1);
	put(p->b, 0, 500, 2);
	get(p->a, 0, 200, 2);
}

STREAM_TEST(a_child_goes_on_where_its_parent_was)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 1000, 1);
	in_child(child_uses_both_ways, &p);
	get(p.b, 500, 500, 1);
	get(p.a, 200, 300, 2);
	put(p.b, 500, 100, 2);
	get(p.a, 500, 100, 2);
	pair_close(&p);
}

static void child_closes(const struct pair *p)
{
	st_close(p->b);
	st_close(p->a);
}

STREAM_TEST(a_close_in_the_child_ends_nothing)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 100, 3); /* unread there: no reset either */
	in_child(child_closes, &p);
	CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, MSG_DONTWAIT), -EAGAIN);
	get(p.b, 0, 100, 3);
	pair_ping(&p);
	CHECK(pair_is_up(&p));
	pair_close(&p);
}

static void child_exits(const struct pair *p)
{
	(void)p;
}

STREAM_TEST(the_last_close_is_the_end)
{
	struct pair p = pair_open_up();
	int go[2];
	REQUIRE(pipe(go) == 0);
	pid_t pid = st_fork();
	if (pid == 0) {
		char byte;
		st_close(p.a);
		REQUIRE(read(go[0], &byte, 1) == 1);
		put(p.b, 0, 50, 4);
		st_close(p.b);
		st_exit();
	}
	st_close(p.b);
	p.b = -1;
	CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, MSG_DONTWAIT), -EAGAIN);
	REQUIRE(write(go[1], "x", 1) == 1);
	get(p.a, 0, 50, 4);
	CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, 0), 0);
	st_reap(pid, 0);
	close(go[0]);
	close(go[1]);
	pair_close(&p);
}

STREAM_TEST(held_by_two_it_stays_on_tcp_until_one_is_alone)
{
	struct pair p = pair_open();
	pid_t pid = st_fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	while (pair_is_forking(&p)) /* until the child has its holds */
		usleep(100);
	for (int i = 0; i < 50; i++)
		pair_ping(&p);
	CHECK(!pair_is_up(&p));
	CHECK(phase_of(fd_sock(p.a)->slot) < SLOT_ATTACHED);
	CHECK(phase_of(fd_sock(p.b)->slot) < SLOT_ATTACHED);
	kill(pid, SIGKILL);
	st_reap(pid, 128 + SIGKILL);
	for (int i = 0; i < 2000 && !pair_is_up(&p); i++)
		pair_ping(&p);
	CHECK(pair_is_up(&p));
	pair_close(&p);
}

/* A fork-per-connection server: the parent closes while the child is in the kernel. */
STREAM_TEST(a_server_that_forks_is_upgraded)
{
	for (int i = 0; i < 20; i++) {
		struct pair p = pair_open();
		pid_t pid = st_fork();
		if (pid == 0) {
			char byte;
			st_close(p.a);
			while (st_recv(p.b, &byte, 1, 0) == 1)
				REQUIRE(st_send(p.b, &byte, 1, 0) == 1);
			CHECK(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_RING);
			st_close(p.b);
			st_exit();
		}
		for (int k = 0; k < i * 1000; k++)
			__builtin_ia32_pause();
		st_close(p.b);
		char byte = 0;
		struct slot *a = fd_sock(p.a)->slot;
		while (gate_state(&a->gate_rx) != GATE_RING ||
		       gate_state(&a->gate_tx) != GATE_RING) {
			REQUIRE(phase_of(a) != SLOT_FINAL);
			REQUIRE(st_send(p.a, &byte, 1, 0) == 1);
			REQUIRE(st_recv(p.a, &byte, 1, 0) == 1);
		}
		REQUIRE(st_send(p.a, &byte, 1, 0) == 1);
		REQUIRE(st_recv(p.a, &byte, 1, 0) == 1);
		CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), 0);
		st_reap(pid, 0);
		st_close(p.a);
	}
}

/* ---- a sibling dies under a lock, between two stores ---- */

static void die(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

/* The child does it to p.b, and dies without letting go of anything. */
static void sibling_dies(const struct pair *p, void (*half)(struct sock *s, int fd))
{
	pid_t pid = st_fork();
	if (pid == 0) {
		half(fd_sock(p->b), p->b);
		die();
	}
	st_reap(pid, 128 + SIGKILL);
}

static void half_recv(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	(void)fd;
	lock_take(&sl->rx_lock);
	REQUIRE(ring_rx_avail(&sl->rx, s->in, 1) > 0);
	sl->rx.consumed += 10; /* and not yet told to the sender */
}

STREAM_TEST(death_between_taking_and_giving_back)
{
	struct pair p = pair_open_up();
	char byte;
	put(p.a, 0, 100, 5);
	sibling_dies(&p, half_recv);
	get(p.b, 10, 90, 5);
	put(p.a, 100, 10, 5);
	sibling_dies(&p, half_recv); /* now there is nothing after it */
	st_timeout(p.b, SO_RCVTIMEO, 20);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -EAGAIN);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->in->consumed),
		 fd_sock(p.b)->slot->rx.consumed);
	CHECK(!(st_level(p.b) & EPOLLIN));
	/* The sender has all its room. */
	static uint8_t big[WIRE_DIR_DATA_BYTES];
	size_t sent = 0;
	ssize_t n;
	while ((n = st_send(p.a, big, sizeof(big), MSG_DONTWAIT)) > 0)
		sent += (size_t)n;
	CHECK(sent >= WIRE_AREA2_BYTES);
	pair_close(&p);
}

static void half_send(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	struct ring_span span;
	(void)fd;
	lock_take(&sl->tx_lock);
	REQUIRE(ring_tx_span(&sl->tx, s->out, s->out_data, 10, &span) == 0 &&
		span.len >= 10);
	flow_fill(span.data, 10, 0, 6);
	sl->tx.produced += 10; /* and not yet told to the receiver */
}

STREAM_TEST(death_between_writing_and_publishing)
{
	struct pair p = pair_open_up();
	sibling_dies(&p, half_send);
	put(p.b, 10, 10, 6);
	get(p.a, 0, 20, 6);
	sibling_dies(&p, half_send);
	CHECK_EQ(st_shutdown(p.b, SHUT_WR), 0);
	get(p.a, 0, 10, 6);
	CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, 0), 0);
	pair_close(&p);
}

static void half_down(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	(void)fd;
	lock_take(&sl->tx_lock);
	atomic_store(&s->out->down_at, sl->tx.produced);
	atomic_store(&s->out->down_epoch, atomic_load(&s->out->up_epoch));
}

STREAM_TEST(death_on_the_way_down)
{
	struct pair p = pair_open_up();
	put(p.b, 0, 100, 7);
	sibling_dies(&p, half_down);
	put(p.b, 100, 100, 7);
	get(p.a, 0, 200, 7);
	pair_up(&p);
	pair_close(&p);
}

static void half_up(struct sock *s, int fd)
{
	(void)fd;
	lock_take(&s->slot->tx_lock);
	REQUIRE(gate_close(&s->slot->gate_tx, GATE_RING));
}

STREAM_TEST(death_on_the_way_up)
{
	struct pair p = pair_open_up();
	sock_bounce(fd_sock(p.b), p.b);
	for (int i = 0; i < 3;
	     i++) { /* both sides down; a opens again, b has not gone up */
		sock_service(fd_sock(p.a), p.a);
		sock_service(fd_sock(p.b), p.b);
	}
	rx_open(fd_sock(p.a), p.a);
	REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_tx) == GATE_TCP);
	sibling_dies(&p, half_up);
	put(p.b, 0, 100, 8);
	get(p.a, 0, 100, 8);
	pair_up(&p);
	put(p.b, 100, 100, 8);
	get(p.a, 100, 100, 8);
	pair_close(&p);
}

static void half_open(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	(void)fd;
	lock_take(&sl->rx_lock);
	sl->rx_epoch = atomic_load(&s->in->ready_epoch) + 1;
	REQUIRE(gate_close(&sl->gate_rx, GATE_READY));
}

STREAM_TEST(death_between_ready_and_its_announcement)
{
	struct pair p = pair_open_up();
	sock_bounce(fd_sock(p.a), p.a);
	for (int i = 0; i < 3; i++) {
		sock_service(fd_sock(p.b), p.b);
		sock_service(fd_sock(p.a), p.a);
	}
	REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_TCP);
	sibling_dies(&p, half_open);
	put(p.a, 0, 100, 9);
	get(p.b, 0, 100, 9);
	pair_up(&p);
	pair_close(&p);
}

static void half_shutdown(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	(void)fd;
	lock_take(&sl->tx_lock);
	seen_add(sl, SEEN_SHUT_WR);
	ring_tx_push(&sl->tx, s->out);
	atomic_store(&s->out->fin, 1);
}

STREAM_TEST(death_between_fin_and_the_kernels)
{
	struct pair p = pair_open_up();
	put(p.b, 0, 100, 10);
	sibling_dies(&p, half_shutdown);
	get(p.a, 0, 100, 10);
	CHECK_EQ(st_recv(p.a, (char[1]){0}, 1, 0), 0);
	CHECK_EQ(st_send(p.b, "x", 1, MSG_NOSIGNAL), -EPIPE);
	put(p.a, 0, 10, 11);
	get(p.b, 0, 10, 11);
	pair_close(&p);
}

/* A sibling was woken, has emptied the doorbell, and died before it took anything. */
STREAM_TEST(a_lost_wake_up_is_found_in_the_end)
{
	struct pair p = pair_open_up();
	char byte;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	pid_t pid = st_fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	while (pair_is_forking(&p)) /* until the child has its holds */
		usleep(100);
	call_start(&c, call_recv);
	CHECK(!atomic_load(&c.done));
	/* As if it had been rung, and nobody had it any more. */
	for (int i = 0; i < 100 && !atomic_load(&c.done); i++) {
		atomic_store(&fd_sock(p.a)->slot->tx.rung,
			     atomic_load(&fd_sock(p.b)->in->rx_armed));
		usleep(100);
	}
	CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
	CHECK_EQ(call_end(&c), 1);
	kill(pid, SIGKILL);
	st_reap(pid, 128 + SIGKILL);
	pair_close(&p);
}

/* ---- forks while other threads open, attach and close ---- */

struct churn {
	_Atomic bool stop;
	_Atomic int fds[2]; /* what the child may look at */
	pthread_t thread;
	unsigned rounds;
};

static void *churn(void *arg)
{
	struct churn *c = arg;
	while (!atomic_load(&c->stop)) {
		struct pair p = pair_open();
		atomic_store(&c->fds[0], p.a);
		atomic_store(&c->fds[1], p.b);
		/* Children may keep it on TCP for a while. */
		for (int i = 0; i < 8 && !pair_is_up(&p); i++)
			pair_ping(&p);
		pair_close(&p);
		c->rounds++;
	}
	return NULL;
}

static uint32_t slots_in_use(void)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < 4096; i++)
		n += atomic_load(&slot_at(i)->used) != 0;
	return n;
}

/* A child uses what it finds, whatever its parent was doing with it just then. */
STREAM_TEST(forks_at_any_moment)
{
	struct churn c = {.stop = false};
	uint32_t before = slots_in_use();
	REQUIRE(pthread_create(&c.thread, NULL, churn, &c) == 0);
	for (int i = 0; i < 150; i++) {
		meet_give_back(); /* so that numbers come and go */
		pid_t pid = st_fork();
		if (pid == 0) {
			char buf[16];
			for (int fd = 0; fd < fd_limit(); fd++) {
				if (!fd_sock(fd))
					continue;
				(void)st_level(fd);
				(void)st_recv(fd, buf, 0, MSG_DONTWAIT);
				if (rx_enter(fd_sock(fd), fd) == SOCK_COUNTED) {
					crit_leave();
					rx_leave(fd_sock(fd), 0);
				}
				if (sock_is_direct(fd_sock(fd)))
					(void)sock_level_quick(fd_sock(fd), EPOLLIN);
				st_close(fd);
			}
			struct pair p = pair_open_up(); /* and lives its own life */
			pair_ping(&p);
			pair_close(&p);
			st_exit();
		}
		st_reap(pid, 0);
	}
	atomic_store(&c.stop, true);
	pthread_join(c.thread, NULL);
	CHECK(c.rounds > 10);
	CHECK_EQ(slots_in_use(), before);
	for (uint32_t i = 0; i < 4096; i++)
		CHECK_EQ(atomic_load(&slot_at(i)->forking), 0);
}

/* A thread of the parent sleeps in a socket that was closed: the child's table is its own. */
STREAM_TEST(a_child_of_a_parent_with_closed_sleepers)
{
	struct pair p = pair_open_up();
	char byte;
	struct call c = {.fd = p.b, .buf = &byte, .len = 1};
	call_start(&c, call_recv);
	st_close(p.b);
	pid_t pid = st_fork();
	if (pid == 0) {
		for (int i = 0; i < 5; i++) {
			struct pair q = pair_open_up();
			pair_ping(&q);
			pair_close(&q);
		}
		st_exit();
	}
	st_reap(pid, 0);
	CHECK_EQ(st_send(p.a, "x", 1, MSG_NOSIGNAL), 1);
	CHECK_EQ(call_end(&c), 1);
	in_child(child_exits, &p);
	st_close(p.a);
}
