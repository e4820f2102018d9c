/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between two hosts and forks: on TCP while a child has them, and up again. */
#include <sys/wait.h>

#include "unit/test.h"

#include "unit/conn_pair.h"

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
	peer_ground_ms = 0;
}

/* A child and its parent take turns. */
struct turns {
	int to_child[2], to_parent[2];
};

static struct turns turns_begin(void)
{
	struct turns t;
	REQUIRE(pipe(t.to_child) == 0 && pipe(t.to_parent) == 0);
	return t;
}

static void turns_end(struct turns *t)
{
	for (int i = 0; i < 2; i++) {
		close(t->to_child[i]);
		close(t->to_parent[i]);
	}
}

static void say(int to)
{
	REQUIRE(write(to, "x", 1) == 1);
}

static void await(int from)
{
	char c;
	REQUIRE(read(from, &c, 1) == 1);
}

static bool is_down(const struct pair *p)
{
	struct slot *a = fd_sock(p->a)->slot, *b = fd_sock(p->b)->slot;
	return gate_state(&a->gate_tx) == GATE_TCP &&
	       gate_state(&a->gate_rx) == GATE_TCP &&
	       gate_state(&b->gate_tx) == GATE_TCP && gate_state(&b->gate_rx) == GATE_TCP;
}

/* As long as it takes to ask again whether the child still has it. */
static void up_again(const struct pair *p)
{
	for (int i = 0; i < 500 && !pair_is_up(p); i++) {
		pair_ping(p);
		across_settle();
		usleep(1000);
	}
	CHECK(pair_is_up(p));
	CHECK_EQ(atomic_load(&fd_sock(p->a)->slot->reason), VD_REASON_NONE);
}

static void stays_down(const struct pair *p)
{
	for (int i = 0; i < 50; i++) {
		pair_ping(p);
		across_settle();
		usleep(1000);
	}
	CHECK(is_down(p));
	CHECK_EQ(atomic_load(&fd_sock(p->a)->slot->reason), VD_REASON_SHARED);
}

/* A child cannot use the link: with nothing unread all goes on over TCP, in both. */
STREAM_TEST(a_child_and_its_parent_go_on_over_tcp)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(is_down(&p));
		put(p.a, 0, 1000, 9);
		get(p.b, 0, 600, 9);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		st_exit();
	}
	await(t.to_parent[0]);
	get(p.b, 600, 400, 9);
	put(p.b, 0, 100, 9);
	get(p.a, 0, 100, 9);
	stays_down(&p);
	say(t.to_child[1]);
	st_reap(pid, 0);
	up_again(&p);
	put(p.a, 0, 5000, 10);
	get(p.b, 0, 5000, 10);
	turns_end(&t);
	pair_close(&p);
}

/* One that is not mapped cannot be asked about. */
static bool is_mapped(const void *at, size_t bytes)
{
	static unsigned char there[ACROSS_WINDOW_BYTES / 4096];

	return mincore((void *)at, bytes, there) == 0;
}

/* A child that gives up its rights could write to what a peer's device reads, and to what the parent takes
 * for a peer's words. */
STREAM_TEST(a_child_has_no_window)
{
	struct pair p = pair_open_up();
	uint8_t *windows[2 * ACROSS_LINKS];
	int n = 0;
	for (int i = 0; i < ACROSS_LINKS; i++)
		if (across_links[i].link) {
			windows[n++] = across_links[i].window;
			windows[n++] = across_links[i].staging;
		}
	REQUIRE(n >= 4);
	put(p.a, 0, 700, 9);
	pid_t pid = st_fork();
	for (int i = 0; i < n; i++)
		CHECK_EQ(is_mapped(windows[i], ACROSS_WINDOW_BYTES), pid != 0);
	if (pid == 0) {
		get(p.b, 0, 700, 9);
		put(p.a, 700, 100, 9);
		st_exit();
	}
	st_reap(pid, 0);
	get(p.b, 700, 100, 9);
	pair_close(&p);
}

/* So many handles are free, and are taken. */
static int handles_taken(void)
{
	struct across_guard g = across_enter();
	struct peer *a;
	int n = 0;

	while ((a = across_take_handle())) {
		CHECK(a->link == NULL && a->offer.state == OFFER_NONE && !a->owes);
		a->state = ACROSS_KNOWN;
		n++;
	}
	across_leave(g);
	return n;
}

/* What a parent has in use, or has filled, is nothing to its child: it can have as many connections. */
STREAM_TEST(a_child_has_all_handles)
{
	struct pair p = pair_open_up();
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK_EQ(handles_taken(), ACROSS_CONNECTIONS);
		/* None of them is this connection's. */
		put(p.a, 0, 1000, 9);
		get(p.b, 0, 1000, 9);
		pair_close(&p);
		for (int i = 0; i < ACROSS_CONNECTIONS; i++)
			CHECK_EQ(across_pool[i].state, ACROSS_KNOWN);
		pid = st_fork();
		if (pid == 0)
			CHECK_EQ(handles_taken(), ACROSS_CONNECTIONS);
		else
			st_reap(pid, 0);
		st_exit();
	}
	st_reap(pid, 0);
	up_again(&p);
	pair_close(&p);
}

/* Who only sends has nobody else to take back what it has asked of its peer. */
STREAM_TEST(one_way_comes_up_again)
{
	struct pair p = pair_open_up();
	struct slot *a = fd_sock(p.a)->slot;
	size_t at = 0;
	pid_t pid = st_fork();
	if (pid == 0)
		st_exit();
	CHECK(is_down(&p));
	st_reap(pid, 0);
	for (; at < 50000 && gate_state(&a->gate_tx) != GATE_RING; at += 100) {
		put(p.a, at, 100, 16);
		get(p.b, at, 100, 16);
		usleep(1000);
	}
	CHECK(gate_state(&a->gate_tx) == GATE_RING);
	pair_close(&p);
}

/* What a child has closed is its parent's alone. */
STREAM_TEST(up_again_when_a_child_has_closed_it)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	pid_t pid = st_fork();
	if (pid == 0) {
		st_close(p.a);
		st_close(p.b);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		st_exit();
	}
	await(t.to_parent[0]);
	up_again(&p);
	put(p.a, 0, 3000, 11);
	say(t.to_child[1]);
	st_reap(pid, 0);
	get(p.b, 0, 3000, 11);
	turns_end(&t);
	pair_close(&p);
}

/* A child of the child has it, too; and what a child passes on is never counted. */
STREAM_TEST(grandchildren_count)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	pid_t pid = st_fork();
	if (pid == 0) {
		pid = st_fork();
		if (pid > 0) {
			st_close(p.a);
			st_close(p.b);
			st_reap(pid, 0);
			st_exit();
		}
		put(p.a, 0, 100, 12);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		st_exit();
	}
	await(t.to_parent[0]);
	get(p.b, 0, 100, 12);
	stays_down(&p);
	say(t.to_child[1]);
	st_reap(pid, 0);
	up_again(&p);
	pid = st_fork();
	if (pid == 0) {
		sock_hand_over(fd_sock(p.a), p.a, VD_REASON_PASSED);
		CHECK_EQ(sock_down_wait(fd_sock(p.a), p.a, VD_REASON_PASSED, 1000), 0);
		st_exit();
	}
	st_reap(pid, 0);
	stays_down(&p);
	turns_end(&t);
	pair_close(&p);
}

/* The parent closes, and the child goes on: its peer hears that this is TCP for good. */
STREAM_TEST(a_child_goes_on_alone)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	char byte;
	pid_t pid = st_fork();
	if (pid == 0) {
		st_close(p.b);
		await(t.to_child[0]);
		put(p.a, 0, 1000, 13);
		get(p.a, 0, 500, 14);
		st_exit();
	}
	st_close(p.a);
	put(p.b, 0, 500, 14);
	CHECK_EQ(phase_of(fd_sock(p.b)->slot), SLOT_FINAL);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->slot->reason), VD_REASON_PEER_ASKED);
	say(t.to_child[1]);
	get(p.b, 0, 1000, 13);
	st_reap(pid, 0);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	turns_end(&t);
	st_close(p.b);
}

/* What lies in the ring at a fork is there for both, once, and then comes TCP. */
STREAM_TEST(a_fork_amid_the_ring_loses_nothing)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	put(p.a, 0, 1000, 10);
	pid_t pid = st_fork();
	if (pid == 0) {
		get(p.b, 0, 300, 10);
		put(p.b, 0, 500, 11);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		get(p.b, 600, 700, 10); /* over the end of the ring */
		put(p.a, 1300, 100, 10);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		st_exit();
	}
	await(t.to_parent[0]);
	get(p.b, 300, 300, 10);
	get(p.a, 0, 500, 11);
	put(p.a, 1000, 300, 10);
	say(t.to_child[1]);
	await(t.to_parent[0]);
	get(p.b, 1300, 100, 10);
	stays_down(&p);
	say(t.to_child[1]);
	st_reap(pid, 0);
	up_again(&p);
	put(p.a, 0, 3000, 12);
	get(p.b, 0, 3000, 12);
	turns_end(&t);
	pair_close(&p);
}

/* The same in the child alone, while the link's memory is another connection's. */
STREAM_TEST(what_lies_in_the_ring_outlives_the_parents_end)
{
	struct pair p = pair_open_up(), other;
	struct turns t = turns_begin();
	put(p.a, 0, 5000, 10);
	pid_t pid = st_fork();
	if (pid == 0) {
		st_close(p.a);
		await(t.to_child[0]);
		get(p.b, 0, 6000, 10);
		put(p.b, 0, 100, 11);
		st_exit();
	}
	st_close(p.b);
	put(p.a, 5000, 1000, 10);
	CHECK_EQ(atomic_load(&fd_sock(p.a)->slot->reason), VD_REASON_PEER_ASKED);
	other = pair_open_up();
	put(other.a, 0, 8000, 12);
	get(other.b, 0, 8000, 12);
	say(t.to_child[1]);
	get(p.a, 0, 100, 11);
	st_reap(pid, 0);
	turns_end(&t);
	pair_close(&other);
	st_close(p.a);
}

/* A peer that has shut down need not answer: all that it wrote is there. It hears of us by TCP. */
STREAM_TEST(a_fork_behind_the_peers_last_byte)
{
	struct pair p = pair_open_up();
	struct turns t = turns_begin();
	char byte;
	put(p.a, 0, 2000, 10);
	CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
	across_settle();
	struct sock *silent = fd_sock(p.a);
	atomic_store(&fd_table[p.a], NULL);
	pid_t pid = st_fork();
	atomic_store(&fd_table[p.a], silent);
	if (pid == 0) {
		get(p.b, 0, 700, 10);
		put(p.b, 0, 300, 11);
		say(t.to_parent[1]);
		await(t.to_child[0]);
		get(p.b, 1500, 500, 10);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
		st_exit();
	}
	await(t.to_parent[0]);
	get(p.a, 0, 300, 11);
	get(p.b, 700, 800, 10);
	say(t.to_child[1]);
	st_reap(pid, 0);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	put(p.b, 300, 300, 11);
	get(p.a, 300, 300, 11);
	turns_end(&t);
	pair_close(&p);
}

/* A peer that does not answer may still write to the ring: it goes on where it was, and the child
 * gets an error. */
STREAM_TEST(a_fork_with_a_silent_peer_loses_nothing)
{
	struct pair p = pair_open_up();
	struct sock *silent = fd_sock(p.a);
	int copy = dup(p.b);
	REQUIRE(copy >= 0);
	fd_duplicated(p.b, copy);
	put(p.a, 0, 1000, 10);
	atomic_store(&fd_table[p.a], NULL);
	pid_t pid = st_fork();
	if (pid == 0) {
		char byte;
		CHECK(st_recv(p.b, &byte, 1, 0) < 0);
		CHECK(st_recv(copy, &byte, 1, 0) < 0);
		st_exit();
	}
	atomic_store(&fd_table[p.a], silent);
	st_reap(pid, 0);
	st_close(copy);
	put(p.a, 1000, 1000, 10);
	get(p.b, 0, 2000, 10);
	up_again(&p);
	put(p.a, 2000, 1000, 10);
	get(p.b, 2000, 1000, 10);
	pair_close(&p);
}

static _Atomic bool is_served;

static void *serve(void *arg)
{
	int fd = *(int *)arg;
	while (!atomic_load(&is_served))
		sock_service(fd_sock(fd), fd);
	return NULL;
}

/* One end has opened, and the other has not begun: it passes that over. */
STREAM_TEST(a_fork_before_the_first_byte)
{
	for (int turn = 0; turn < 3; turn++) {
		struct pair p = pair_open_up();
		pthread_t peer;
		sock_bounce(fd_sock(p.a), p.a);
		for (int i = 0; i < 100 && !is_down(&p); i++) {
			sock_service(fd_sock(p.b), p.b);
			sock_service(fd_sock(p.a), p.a);
			across_settle();
		}
		REQUIRE(is_down(&p));
		rx_open(fd_sock(p.b), p.b);
		if (turn > 0) /* the peer knows of it */
			across_settle();
		REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_READY);
		if (turn == 2) /* and has begun */
			put(p.a, 0, 100, 15);
		atomic_store(&is_served, false);
		REQUIRE(pthread_create(&peer, NULL, serve, &p.a) == 0);
		pid_t pid = st_fork();
		if (pid == 0) {
			if (turn < 2) {
				CHECK(is_down(&p));
				put(p.a, 0, 100, 15);
			}
			st_exit();
		}
		atomic_store(&is_served, true);
		REQUIRE(pthread_join(peer, NULL) == 0);
		st_reap(pid, 0);
		get(p.b, 0, 100, 15);
		up_again(&p);
		pair_close(&p);
	}
}

/* Who forks often stays on TCP, and is not waited for each time. */
STREAM_TEST(many_forks_are_few_ways_down)
{
	struct pair p = pair_open_up();
	struct sock *s = fd_sock(p.a);
	uint32_t before, switches;
	peer_ground_ms = 20;
	before = atomic_load(&s->slot->switches);
	for (int i = 0; i < 50; i++) {
		pid_t pid = st_fork();
		if (pid == 0)
			st_exit();
		st_reap(pid, 0);
		pair_ping(&p);
	}
	switches = atomic_load(&s->slot->switches) - before;
	CHECK(switches < 20);
	CHECK(atomic_load(&s->ground_ms) > 1000);
	peer_ground_ms = 0;
	pair_close(&p);
}

/* Forks at any moment of two streams, of which the children close both ends, or leave them. */
STREAM_TEST(forks_amid_streams)
{
	enum { BYTES = 6 << 20, FORKS = 60 };
	struct pair p = pair_open_up();
	uint64_t direct = atomic_load(&report_now.tx_direct_bytes);
	struct flow f[4] = {{.fd = p.a, .bytes = BYTES, .seed = 1},
			    {.fd = p.b, .bytes = BYTES, .seed = 1},
			    {.fd = p.b, .bytes = BYTES, .seed = 2},
			    {.fd = p.a, .bytes = BYTES, .seed = 2}};
	for (int i = 0; i < 4; i++)
		flow_start(&f[i], i % 2 ? flow_recv : flow_send);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = st_fork();
		if (pid == 0) {
			usleep(i % 3 * 1000);
			_exit(0);
		}
		st_reap(pid, 0);
		usleep(i % 7 * 1000);
	}
	for (int i = 0; i < 4; i++)
		flow_join(&f[i]);
	up_again(&p);
	pair_close(&p);
	CHECK(atomic_load(&report_now.tx_direct_bytes) > direct);
}

/* A process of the family, which has given up its rights, writes to the table of sockets: what is
 * put by for a child comes from the connection's own place, and ends. */
static void forks_amid_a_lie(void (*lie)(struct ring_rx *rx), bool is_beside)
{
	uint8_t buf[1000];
	struct pair p = pair_open_up();
	struct ring_rx *rx = &fd_sock(p.b)->slot->rx;
	pid_t pid;

	put(p.a, 0, 700, 9);
	across_settle();
	/* The largest area that a place has. */
	memset(fd_sock(p.b)->link_data + ring_area_offset(ACROSS_AREA_LIMIT), 'z',
	       wire_area_bytes(ACROSS_AREA_LIMIT));
	lie(rx);
	pid = st_fork();
	if (pid == 0)
		st_exit();
	st_reap(pid, 0);
	CHECK(fd_sock(p.b)->in_data != fd_sock(p.b)->link_data);
	CHECK(!is_beside || st_recv(p.b, buf, sizeof(buf), MSG_DONTWAIT) == 700);
	for (size_t i = 0; is_beside && i < 700; i++)
		CHECK_EQ(buf[i], 'z');
	pair_close(&p);
}

static void no_such_area(struct ring_rx *rx)
{
	rx->area = 9;
}

static void beside_the_place(struct ring_rx *rx)
{
	rx->area = RING_ALL_AREAS;
}

static void more_than_memory(struct ring_rx *rx)
{
	rx->consumed -= UINT64_C(1) << 50;
}

STREAM_TEST(a_cursor_that_lies_before_a_fork)
{
	forks_amid_a_lie(no_such_area, true);
	forks_amid_a_lie(beside_the_place, true);
	forks_amid_a_lie(more_than_memory, false);
}
