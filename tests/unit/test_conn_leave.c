/* SPDX-License-Identifier: Apache-2.0 */
/* A process leaves the table of its family: what it had goes on, and nothing that it can write from then
 * on is another's. */
#include "unit/test.h"

#include <dirent.h>

#include <sys/resource.h>
#include <sys/syscall.h>

#include "conn/table.h"
#include "unit/child.h"
#include "unit/conn_pair.h"
#include "unit/mapped.h"
#include "unit/turns.h"

/* ---- what is mapped ---- */

#define MARKS_BYTES 65536u

/* Of what was mapped before, only the marks can still be written. Returns these. */
static uint8_t *only_marks_are_left(const struct mapped *before, int n)
{
	struct mapped now[MAPPED_MOST];
	int count = list_writable(now);
	uint8_t *marks = NULL;
	for (int i = 0; i < count; i++)
		for (int k = 0; k < n; k++) {
			if (now[i].inode != before[k].inode)
				continue;
			CHECK(!marks || marks == (uint8_t *)now[i].from);
			CHECK(now[i].offset > 0);
			CHECK(now[i].to - now[i].from <= MARKS_BYTES);
			marks = (uint8_t *)now[i].from;
		}
	REQUIRE(marks);
	return marks;
}

static int count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	REQUIRE(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static uint32_t phase_at(int fd)
{
	return phase_of(fd_sock(fd)->slot);
}

static void pings(const struct pair *p, int n)
{
	for (int i = 0; i < n; i++)
		pair_ping(p);
}

/* ---- a table without a descriptor ---- */

/* What is shared then cannot be sealed. So nothing of it stays. */
static void leave_without_a_descriptor(void *arg)
{
	struct rlimit all, few;
	struct mapped before[MAPPED_MOST], now[MAPPED_MOST];
	(void)arg;
	REQUIRE(getrlimit(RLIMIT_NOFILE, &all) == 0);
	few = (struct rlimit){8, all.rlim_max};
	REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
	REQUIRE(fd_table_init() == 0);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &all) == 0);
	CHECK_EQ(table_descriptor(), -1);
	struct pair p = pair_open();
	pid_t pid = st_fork();
	if (pid == 0) {
		int n = list_writable(before);
		CHECK(n > 0);
		CHECK(sock_leave_table());
		for (int i = list_writable(now); i-- > 0;)
			for (int k = 0; k < n; k++)
				CHECK(now[i].inode != before[k].inode);
		pings(&p, 5);
		st_exit();
	}
	st_reap(pid, 0);
	pings(&p, 200);
	CHECK(!pair_is_up(&p));
	pair_close(&p);
	p = pair_open_up();
	pair_close(&p);
}

/* The first test: the others have made a table. */
TEST(without_a_descriptor_nothing_of_it_stays)
{
	CHILD(leave_without_a_descriptor, NULL);
}

/* ---- held by it alone ---- */

STREAM_TEST(alone_it_goes_on_in_its_ring)
{
	struct pair ours = pair_open_up();
	uint32_t used = 0;
	pid_t pid = st_fork();
	if (pid == 0) {
		struct pair p = pair_open_up();
		put(p.a, 0, 5000, 1); /* unread there, in the ring */
		st_close(ours.a);
		st_close(ours.b);
		CHECK(sock_leave_table());
		CHECK(pair_is_up(&p));
		get(p.b, 0, 5000, 1);
		for (size_t i = 0; i < 100; i++) {
			put(p.b, i * 60000, 60000, 2);
			get(p.a, i * 60000, 60000, 2);
		}
		CHECK(pair_is_up(&p));
		pair_close(&p);
		/* And so do new ones. */
		p = pair_open_up();
		pings(&p, 10);
		pair_close(&p);
		st_exit();
	}
	st_reap(pid, 0);
	pings(&ours, 10);
	CHECK(pair_is_up(&ours));
	/* Its slots here are free, but for the two. */
	for (uint32_t i = 0; i < 16; i++)
		used += atomic_load(&slot_at(i)->used) != 0;
	CHECK_EQ(used, 2);
	pair_close(&ours);
}

STREAM_TEST(there_is_nothing_to_leave_without_a_fork)
{
	struct mapped before[MAPPED_MOST], after[MAPPED_MOST];
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		int n = list_writable(before), fds = count_descriptors();
		CHECK(sock_leave_table());
		CHECK_EQ(list_writable(after), n);
		CHECK(memcmp(before, after, sizeof(*before) * (size_t)n) == 0);
		CHECK_EQ(count_descriptors(), fds);
		st_exit();
	}
	st_reap(pid, 0);
}

/* ---- nothing of the others' remains ---- */

STREAM_TEST(only_the_marks_can_be_written)
{
	struct mapped before[MAPPED_MOST];
	struct pair up = pair_open_up(), other = pair_open_up(), early = pair_open();
	pid_t pid = st_fork();
	if (pid == 0) {
		int n = list_writable(before), fds = count_descriptors();
		CHECK(n >= 5); /* the table, and the windows of four ends */
		st_close(other.a);
		st_close(other.b);
		CHECK(sock_leave_table());
		only_marks_are_left(before, n);
		CHECK(count_descriptors() < fds);
		CHECK_EQ(phase_at(up.a), SLOT_FINAL);
		CHECK_EQ(phase_at(up.b), SLOT_FINAL);
		pings(&up, 3);
		pings(&early, 3);
		st_exit();
	}
	st_reap(pid, 0);
	CHECK(pair_is_up(&other));
	pings(&other, 3);
	pings(&up, 3);
	pair_close(&up);
	pair_close(&other);
	pair_close(&early);
}

/* Nor can more of the old table be had by what is left of it. */
STREAM_TEST(the_marks_are_no_way_to_the_rest)
{
	struct mapped before[MAPPED_MOST];
	struct pair p = pair_open();
	pid_t pid = st_fork();
	if (pid == 0) {
		int n = list_writable(before);
		CHECK(sock_leave_table());
		uint8_t *marks = only_marks_are_left(before, n);
		CHECK(syscall(SYS_remap_file_pages, marks, MARKS_BYTES, 0, 0, 0) != 0);
		void *more = mremap(marks, 0, MARKS_BYTES, MREMAP_MAYMOVE);
		CHECK(more == MAP_FAILED || *(uint8_t *)more == *marks);
		st_exit();
	}
	st_reap(pid, 0);
	pair_close(&p);
}

/* What a process that is taken over can do: it stores whatever it likes, wherever it can. */
static void store_everywhere(const struct mapped *before, int n)
{
	uint8_t *marks = only_marks_are_left(before, n);
	static const uint8_t patterns[] = {0xff, 0x00, 0x80, 0x01};
	for (size_t p = 0; p < sizeof(patterns); p++)
		memset(marks, patterns[p], MARKS_BYTES);
}

STREAM_TEST(what_it_stores_then_harms_nobody)
{
	struct pair up = pair_open_up(), fresh;
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		struct mapped before[MAPPED_MOST];
		int n = list_writable(before);
		st_close(up.a);
		st_close(up.b);
		CHECK(sock_leave_table());
		for (uint32_t i = 0; i < 64; i++) {
			struct slot *sl = slot_at(i);
			/* Its own by now: free list, locks, gates, cursors, holders. */
			memset((void *)sl, 0xff, sizeof(*sl));
		}
		store_everywhere(before, n);
		turn_give(t.to_parent);
		turn_take(t.to_child);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	turn_take(t.to_parent);
	for (int i = 0; i < 20; i++) {
		pings(&up, 5);
		CHECK(pair_is_up(&up));
		fresh = pair_open_up();
		pings(&fresh, 5);
		pair_close(&fresh);
	}
	turn_give(t.to_child);
	st_reap(pid, 0);
	pair_close(&up);
	turns_end(&t);
}

/* ---- held by others, too, and not attached ---- */

STREAM_TEST(others_wait_until_it_has_died)
{
	struct pair p = pair_open();
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		pings(&p, 50);
		CHECK(!pair_is_up(&p));
		turn_give(t.to_parent);
		turn_take(t.to_child);
		st_exit();
	}
	turn_take(t.to_parent);
	pings(&p, 50);
	CHECK(!pair_is_up(&p));
	CHECK(phase_at(p.a) < SLOT_ATTACHED);
	turn_give(t.to_child);
	st_reap(pid, 0);
	for (int i = 0; i < 2000 && !pair_is_up(&p); i++)
		pair_ping(&p);
	CHECK(pair_is_up(&p));
	pair_close(&p);
	turns_end(&t);
}

/* A server that forks for each connection, and whose children give up their rights. */
STREAM_TEST(it_is_upgraded_once_the_others_have_closed)
{
	struct pair p = pair_open();
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		pings(&p, 50);
		CHECK(!pair_is_up(&p));
		turn_give(t.to_parent);
		turn_take(t.to_child);
		for (int i = 0; i < 2000 && !pair_is_up(&p); i++)
			pair_ping(&p);
		CHECK(pair_is_up(&p));
		pair_close(&p);
		st_exit();
	}
	turn_take(t.to_parent);
	pair_close(&p);
	turn_give(t.to_child);
	st_reap(pid, 0);
	turns_end(&t);
}

/* The last of its kind has died, but somebody got the socket whom nobody counts. */
static void passes_on(void (*how)(const struct pair *p, const struct turns *t))
{
	struct pair p = pair_open();
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		how(&p, &t);
		st_exit();
	}
	turn_take(t.to_parent);
	st_reap(pid, 0);
	pings(&p, 200);
	CHECK(!pair_is_up(&p));
	CHECK(phase_at(p.a) < SLOT_ATTACHED);
	CHECK(phase_at(p.b) < SLOT_ATTACHED);
	turn_give(t.to_child);
	pair_close(&p);
	/* The slots are as good as new. */
	p = pair_open_up();
	pair_close(&p);
	turns_end(&t);
}

static void by_fork(const struct pair *p, const struct turns *t)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		turn_give(t->to_parent);
		turn_take(t->to_child);
		st_exit();
	}
	(void)p;
}

static void by_message(const struct pair *p, const struct turns *t)
{
	sock_hand_over(fd_sock(p->a), p->a, VD_REASON_PASSED);
	sock_hand_over(fd_sock(p->b), p->b, VD_REASON_PASSED);
	turn_give(t->to_parent);
}

STREAM_TEST(what_it_forks_has_them_as_well)
{
	passes_on(by_fork);
}

STREAM_TEST(what_it_passes_on_stays_on_tcp)
{
	passes_on(by_message);
}

STREAM_TEST(a_half_that_it_has_closed_stays_on_tcp)
{
	struct pair p = pair_open();
	pid_t pid = st_fork();
	char byte = 'x';
	if (pid == 0) {
		CHECK(sock_leave_table());
		CHECK_EQ(st_shutdown(p.a, SHUT_WR), 0);
		st_exit();
	}
	st_reap(pid, 0);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(st_send(p.b, &byte, 1, 0), 1);
		CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
		CHECK_EQ(st_recv(p.b, &byte, 1, 0), 0);
	}
	CHECK(phase_at(p.a) < SLOT_ATTACHED);
	pair_close(&p);
}

/* What the other table does not know of when the connection is upgraded. */
STREAM_TEST(what_it_sets_is_asked_again)
{
	struct pair p = pair_open();
	char byte;
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		st_nonblock(p.b);
		st_exit();
	}
	st_reap(pid, 0);
	CHECK_EQ(atomic_load(&fd_sock(p.b)->slot->nonblock), 0);
	for (int i = 0; i < 2000 && !pair_is_up(&p); i++) {
		put(p.a, 0, 1, 1);
		REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, 100) >= 0);
		get(p.b, 0, 1, 1);
		put(p.b, 0, 1, 1);
		get(p.a, 0, 1, 1);
	}
	CHECK(pair_is_up(&p));
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -EAGAIN);
	pair_close(&p);
}

/* ---- words of others ---- */

STREAM_TEST(locks_and_counts_of_others_stay_with_them)
{
	struct pair p = pair_open();
	struct slot *sl = fd_sock(p.a)->slot;
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		turn_take(t.to_child);
		CHECK(atomic_load(&sl->ctl.word) != 0);
		CHECK(sock_leave_table());
		CHECK_EQ(atomic_load(&sl->ctl.word), 0);
		CHECK_EQ(atomic_load(&sl->tx_lock.word), 0);
		CHECK_EQ(atomic_load(&sl->gate_tx) & GATE_COUNT_MASK, 0);
		CHECK_EQ(atomic_load(&sl->sleepers_rx), 0);
		CHECK_EQ(atomic_load(&sl->forking), 0);
		pings(&p, 10);
		st_exit();
	}
	lock_take(&sl->ctl);
	lock_take(&sl->tx_lock);
	atomic_fetch_add(&sl->gate_tx, 1);
	atomic_fetch_add(&sl->sleepers_rx, 1);
	atomic_fetch_add(&sl->forking, 1);
	turn_give(t.to_child);
	st_reap(pid, 0);
	CHECK_EQ(atomic_load(&sl->forking), 1);
	atomic_fetch_sub(&sl->forking, 1);
	atomic_fetch_sub(&sl->sleepers_rx, 1);
	atomic_fetch_sub(&sl->gate_tx, 1);
	lock_drop(&sl->tx_lock);
	lock_drop(&sl->ctl);
	pair_close(&p);
	turns_end(&t);
}

/* ---- attached, and held by others ---- */

STREAM_TEST(a_ring_of_two_goes_back_to_tcp_before)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 3000, 1); /* unread */
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		get(p.b, 0, 1000, 1);
		put(p.b, 0, 500, 2);
		st_exit();
	}
	st_reap(pid, 0);
	get(p.b, 1000, 2000, 1);
	put(p.a, 3000, 100, 1);
	get(p.b, 3000, 100, 1);
	get(p.a, 0, 500, 2);
	CHECK_EQ(phase_at(p.a), SLOT_FINAL);
	CHECK_EQ(phase_at(p.b), SLOT_FINAL);
	pair_close(&p);
}

/* Its peer makes no call: the bytes cannot follow. It gets an error, and the others go on. */
STREAM_TEST(bytes_that_cannot_follow_are_an_error_for_it_alone)
{
	struct pair p = pair_open_up();
	struct turns t = turns_make();
	pid_t peer = st_fork();
	char byte;
	if (peer == 0) {
		st_close(p.b);
		put(p.a, 0, 2000, 1);
		turn_give(t.to_parent);
		turn_take(t.to_child); /* stands still all the while */
		put(p.a, 2000, 100, 1);
		get(p.a, 0, 100, 2);
		st_exit();
	}
	st_close(p.a);
	p.a = -1;
	turn_take(t.to_parent);
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_table());
		CHECK_EQ(st_recv(p.b, &byte, 1, MSG_DONTWAIT), -ENOTCONN);
		st_exit();
	}
	st_reap(pid, 0);
	get(p.b, 0, 2000, 1);
	turn_give(t.to_child);
	get(p.b, 2000, 100, 1);
	put(p.b, 0, 100, 2);
	st_reap(peer, 0);
	pair_close(&p);
	turns_end(&t);
}

/* ---- again, and deaths ---- */

STREAM_TEST(its_own_child_leaves_it)
{
	struct pair inherited = pair_open();
	pid_t pid = st_fork();
	if (pid == 0) {
		struct turns t = turns_make();
		struct mapped before[MAPPED_MOST];
		CHECK(sock_leave_table());
		struct pair p = pair_open();
		pid_t child = st_fork();
		if (child == 0) {
			int n = list_writable(before);
			CHECK(sock_leave_table());
			only_marks_are_left(before, n);
			turn_take(t.to_child);
			for (int i = 0; i < 2000 && !pair_is_up(&p); i++)
				pair_ping(&p);
			CHECK(pair_is_up(&p));
			pings(&inherited, 100);
			CHECK(!pair_is_up(&inherited));
			st_exit();
		}
		pair_close(&p);
		turn_give(t.to_child);
		st_reap(child, 0);
		st_exit();
	}
	st_reap(pid, 0);
	pings(&inherited, 100);
	CHECK(!pair_is_up(&inherited));
	pair_close(&inherited);
}

#define KILLS 300

STREAM_TEST(killed_amid_its_leaving_it_harms_nobody)
{
	struct pair up = pair_open_up();
	for (int i = 0; i < KILLS; i++) {
		struct pair early = pair_open();
		pid_t pid = st_fork();
		if (pid == 0) {
			struct pair own = pair_open_up();
			st_close(up.a);
			st_close(up.b);
			sock_leave_table();
			pings(&own, 2);
			pause();
		}
		for (int k = 0; k < i * 3000; k++)
			__builtin_ia32_pause();
		kill(pid, SIGKILL);
		st_reap(pid, 128 + SIGKILL);
		pings(&up, 2);
		for (int k = 0;
		     k < 2000 && !pair_is_up(&early) && !pair_is_forking(&early); k++)
			pair_ping(&early);
		/* A child that died before it had listed itself stays counted. */
		CHECK(pair_is_up(&early) || pair_is_forking(&early));
		pair_close(&early);
	}
	pair_close(&up);
}
