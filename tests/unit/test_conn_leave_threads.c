/* SPDX-License-Identifier: Apache-2.0 */
/* A process leaves the table of its family while its threads work in it: they go on exactly, and nothing
 * that it can write from then on is another's. */
#include "unit/test.h"

#include "conn/table.h"
#include "unit/conn_pair.h"
#include "unit/mapped.h"
#include "unit/turns.h"

enum { ROUNDS = 8, PAIRS = 3 };

static void pings(const struct pair *p, int n)
{
	for (int i = 0; i < n; i++)
		pair_ping(p);
}

/* Nothing that was shared and writable before is so now. */
static void nothing_is_left(const struct mapped *before, int n)
{
	struct mapped now[MAPPED_MOST];
	for (int i = list_writable(now); i-- > 0;)
		for (int k = 0; k < n; k++)
			CHECK(now[i].inode != before[k].inode);
}

static uint32_t used_slots(void)
{
	uint32_t used = 0;
	for (uint32_t i = 0; i < 64; i++)
		used += atomic_load(&slot_at(i)->used) != 0;
	return used;
}

/* ---- what threads do meanwhile ---- */

struct work {
	struct pair p;
	_Atomic bool *stop;
	_Atomic uint64_t rounds;
	pthread_t thread;
};

static void *talk(void *arg)
{
	struct work *w = arg;
	uint64_t at = 0;
	while (!atomic_load(w->stop)) {
		size_t n = 1 + at % 3000;
		put(w->p.a, at, n, 1);
		get(w->p.b, at, n, 1);
		put(w->p.b, at, n, 2);
		get(w->p.a, at, n, 2);
		at += n;
		atomic_fetch_add(&w->rounds, 1);
	}
	return NULL;
}

static void *open_and_close(void *arg)
{
	struct work *w = arg;
	while (!atomic_load(w->stop)) {
		int fd = pair_socket();
		fd_open_socket(fd, false);
		st_close(fd);
		atomic_fetch_add(&w->rounds, 1);
	}
	return NULL;
}

static void work_begin(struct work *w, void *(*what)(void *), _Atomic bool *stop)
{
	w->stop = stop;
	atomic_store(&w->rounds, 0);
	REQUIRE(pthread_create(&w->thread, NULL, what, w) == 0);
}

/* That it gets on. */
static void work_goes_on(struct work *w)
{
	uint64_t rounds = atomic_load(&w->rounds);
	while (atomic_load(&w->rounds) < rounds + 20)
		usleep(100);
}

static void leave_amid_work(const struct mapped *before, int n)
{
	struct work w[PAIRS + 1];
	_Atomic bool stop = false;
	for (int i = 0; i < PAIRS; i++) {
		w[i].p = pair_open_up();
		work_begin(&w[i], talk, &stop);
	}
	work_begin(&w[PAIRS], open_and_close, &stop);
	for (int i = 0; i <= PAIRS; i++)
		work_goes_on(&w[i]);
	CHECK(sock_leave_amid_threads(true));
	for (int i = 0; i <= PAIRS; i++)
		work_goes_on(&w[i]);
	/* What nobody else has stays in its ring. */
	for (int i = 0; i < PAIRS; i++)
		CHECK(pair_is_up(&w[i].p));
	nothing_is_left(before, n);
	atomic_store(&stop, true);
	for (int i = 0; i <= PAIRS; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < PAIRS; i++)
		pair_close(&w[i].p);
}

STREAM_TEST(threads_go_on_in_a_copy)
{
	struct mapped before[MAPPED_MOST];
	struct pair ours = pair_open_up();
	for (int i = 0; i < ROUNDS; i++) {
		int n = list_writable(before);
		pid_t pid = st_fork();
		if (pid == 0) {
			st_close(ours.a);
			st_close(ours.b);
			leave_amid_work(before, n);
			st_exit();
		}
		pings(&ours, 50);
		st_reap(pid, 0);
		CHECK(pair_is_up(&ours));
		put(ours.a, 0, 50000, 3);
		get(ours.b, 0, 50000, 3);
	}
	pair_close(&ours);
}

/* ---- what is left for the others ---- */

STREAM_TEST(what_both_have_stays_on_tcp)
{
	struct mapped before[MAPPED_MOST];
	struct pair early = pair_open(), up = pair_open_up();
	struct turns t = turns_make();
	int n = list_writable(before);
	pid_t pid = st_fork();
	if (pid == 0) {
		struct pair p = pair_open_up();
		CHECK(sock_leave_amid_threads(true));
		nothing_is_left(before, n);
		pings(&up, 20);
		CHECK(pair_is_up(&p));
		turn_give(t.to_parent);
		turn_take(t.to_child);
		st_exit();
	}
	turn_take(t.to_parent);
	/* Slots of the leaver's own are free here. */
	CHECK_EQ(used_slots(), 4);
	turn_give(t.to_child);
	st_reap(pid, 0);
	pings(&early, 200);
	pings(&up, 200);
	CHECK(!pair_is_up(&early) && !pair_is_up(&up));
	pair_close(&early);
	pair_close(&up);
	/* The slots begin anew. */
	up = pair_open_up();
	pair_close(&up);
	turns_end(&t);
}

/* As somebody who has taken it over. */
STREAM_TEST(what_it_writes_is_its_own)
{
	struct pair ours = pair_open_up();
	struct turns t = turns_make();
	pid_t pid = st_fork();
	if (pid == 0) {
		st_close(ours.a);
		st_close(ours.b);
		CHECK(sock_leave_amid_threads(true));
		memset((void *)slot_at(0), 0xff, 64 * sizeof(struct slot));
		memset((void *)slot_records(), 0xff, SLOT_RECORDS);
		turn_give(t.to_parent);
		turn_take(t.to_child);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	turn_take(t.to_parent);
	for (int i = 0; i < 10; i++) {
		struct pair p = pair_open_up();
		pings(&p, 10);
		pair_close(&p);
	}
	put(ours.a, 0, 50000, 3);
	get(ours.b, 0, 50000, 3);
	CHECK(pair_is_up(&ours));
	turn_give(t.to_child);
	st_reap(pid, 0);
	pair_close(&ours);
	turns_end(&t);
}

/* Nor does it go by what the others write from then on. */
STREAM_TEST(what_the_others_write_is_theirs)
{
	struct pair p = pair_open(), free = pair_open();
	struct turns t = turns_make();
	struct slot *sl = fd_sock(p.a)->slot;
	/* Of no use now, but in use before: what never was is not looked at. */
	uint32_t next = slot_index(fd_sock(free.b)->slot);
	pair_close(&free);
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_amid_threads(true));
		turn_give(t.to_parent);
		turn_take(t.to_child);
		CHECK_EQ(atomic_load(&sl->tx_unsent), 0);
		CHECK_EQ(atomic_load(&slot_at(next)->tx_unsent), 0);
		st_exit();
	}
	turn_take(t.to_parent);
	atomic_store(&sl->tx_unsent, 77);
	atomic_store(&slot_at(next)->tx_unsent, 77);
	turn_give(t.to_child);
	st_reap(pid, 0);
	atomic_store(&slot_at(next)->tx_unsent, 0);
	pair_close(&p);
	turns_end(&t);
}

struct holder {
	struct lock *lock;
	_Atomic bool has, ends;
};

static void *hold_a_lock(void *arg)
{
	struct holder *h = arg;
	lock_take(h->lock);
	atomic_store(&h->has, true);
	while (!table_is_private())
		usleep(100);
	lock_drop(h->lock);
	/* A lock of the dead would be taken over. */
	while (!atomic_load(&h->ends))
		usleep(100);
	return NULL;
}

/* A thread is amid a section: the others need not wait for what it does in the copy. */
STREAM_TEST(a_lock_of_a_thread_is_free_for_the_others)
{
	struct pair p = pair_open();
	struct turns t = turns_make();
	struct slot *sl = fd_sock(p.a)->slot;
	pid_t pid = st_fork();
	if (pid == 0) {
		struct holder h = {.lock = &sl->rx_lock};
		pthread_t thread;
		REQUIRE(pthread_create(&thread, NULL, hold_a_lock, &h) == 0);
		while (!atomic_load(&h.has))
			usleep(100);
		CHECK(sock_leave_amid_threads(true));
		turn_give(t.to_parent);
		turn_take(t.to_child);
		atomic_store(&h.ends, true);
		pthread_join(thread, NULL);
		st_exit();
	}
	turn_take(t.to_parent);
	lock_take(&sl->rx_lock);
	lock_drop(&sl->rx_lock);
	turn_give(t.to_child);
	st_reap(pid, 0);
	pair_close(&p);
	turns_end(&t);
}

/* And one that one of the others has at that moment is nobody's in the copy. */
STREAM_TEST(a_lock_of_the_others_is_free_in_the_copy)
{
	struct pair p = pair_open();
	struct turns t = turns_make();
	struct slot *sl = fd_sock(p.a)->slot;
	pid_t pid = st_fork();
	if (pid == 0) {
		turn_take(t.to_child);
		CHECK(slot_part(true));
		lock_take(&sl->ctl);
		lock_drop(&sl->ctl);
		turn_give(t.to_parent);
		st_exit();
	}
	lock_take(&sl->ctl);
	turn_give(t.to_child);
	turn_take(t.to_parent);
	lock_drop(&sl->ctl);
	st_reap(pid, 0);
	pair_close(&p);
	turns_end(&t);
}

/* ---- closed sockets that a thread is inside of ---- */

static bool is_shared_there(const void *at)
{
	struct mapped now[MAPPED_MOST];
	for (int i = list_writable(now); i-- > 0;)
		if (now[i].from <= (uintptr_t)at && (uintptr_t)at < now[i].to)
			return true;
	return false;
}

static void leave_with_a_closed_one(bool (*leave)(void))
{
	struct pair up = pair_open_up();
	pid_t pid = st_fork();
	if (pid == 0) {
		struct sock *s = fd_sock(up.a);
		atomic_fetch_add(&s->inside, 1);
		st_close(up.a);
		st_close(up.b);
		CHECK(is_shared_there(s->window));
		CHECK(leave());
		CHECK(!is_shared_there(s->window));
		CHECK_EQ(gate_state(&s->slot->gate_rx), GATE_FINAL);
		atomic_fetch_sub(&s->inside, 1);
		st_exit();
	}
	st_reap(pid, 0);
	pings(&up, 10);
	CHECK(pair_is_up(&up));
	pair_close(&up);
}

static bool leave_amid_threads(void)
{
	return sock_leave_amid_threads(true);
}

STREAM_TEST(the_ring_of_a_closed_one_is_left)
{
	leave_with_a_closed_one(sock_leave_table);
	leave_with_a_closed_one(leave_amid_threads);
}

/* ---- children of it ---- */

STREAM_TEST(a_child_of_it_gets_no_ring)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		struct pair p = pair_open_up();
		put(p.a, 0, 3000, 1);
		CHECK(sock_leave_amid_threads(true));
		pid_t child = st_fork();
		if (child == 0) {
			char byte;
			CHECK(!fd_sock(p.a) && !fd_sock(p.b));
			CHECK(recv(p.b, &byte, 1, MSG_DONTWAIT) < 0 && errno == ENOTCONN);
			CHECK(sock_leave_table());
			st_exit();
		}
		st_reap(child, 0);
		CHECK(slot_is_alone(fd_sock(p.a)->slot));
		get(p.b, 0, 3000, 1);
		put(p.b, 0, 3000, 2);
		get(p.a, 0, 3000, 2);
		CHECK(pair_is_up(&p));
		pair_close(&p);
		st_exit();
	}
	st_reap(pid, 0);
}

/* ---- whether somebody has it ---- */

STREAM_TEST(the_dead_do_not_have_it)
{
	struct turns t = turns_make();
	pid_t pid = st_fork(), child;
	if (pid == 0) {
		CHECK(slot_table_has_others());
		child = st_fork();
		if (child == 0) {
			turn_take(t.to_child);
			st_exit();
		}
		CHECK(slot_table_has_others());
		turn_give(t.to_child);
		st_reap(child, 0);
		/* The parent. */
		CHECK(slot_table_has_others());
		st_exit();
	}
	st_reap(pid, 0);
	CHECK(!slot_table_has_others());
	turns_end(&t);
}

/* Of one in another pid namespace it cannot be told. */
STREAM_TEST(in_doubt_somebody_has_it)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		slot_table_uncounted();
		st_exit();
	}
	st_reap(pid, 0);
	CHECK(slot_table_has_others());
}

/* Nothing is given out any more that others may take, too. */
STREAM_TEST(no_slot_is_taken_from_the_copy)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		CHECK(sock_leave_amid_threads(true));
		int fd = pair_socket();
		CHECK(!fd_open_socket(fd, false));
		close(fd);
		st_exit();
	}
	st_reap(pid, 0);
}

/* A thread that has parted from the others' descriptors has another file there. */
STREAM_TEST(another_file_is_not_taken_for_the_table)
{
	pid_t pid = st_fork();
	if (pid == 0) {
		int other = memfd_create("other", MFD_CLOEXEC);
		REQUIRE(other >= 0 && dup2(other, table_descriptor()) >= 0);
		CHECK(!sock_leave_amid_threads(false));
		CHECK(!table_is_private());
		struct pair p = pair_open_up();
		pair_close(&p);
		st_exit();
	}
	st_reap(pid, 0);
}
