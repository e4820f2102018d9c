/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slots: allocation, holders, forks and their deaths. */
#include "unit/test.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conn/slot.h"
#include "conn/table.h"

#define SLOTS 64u

static void init(void)
{
	if (!slot_count())
		REQUIRE(slot_table_init(SLOTS, 2) == 0);
}

static pid_t child(void (*body)(struct slot *), struct slot *sl)
{
	fflush(NULL);
	slot_table_forking();
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid != 0)
		table_forked_parent(pid);
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		alarm(960);
		body(sl);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	return pid;
}

static void reap(pid_t pid, int want)
{
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), want);
}

TEST(a_slot_is_fresh_and_comes_back)
{
	init();
	struct slot *a = slot_alloc(), *b = slot_alloc();
	REQUIRE(a && b && a != b);
	CHECK(slot_index(a) < SLOTS && slot_index(b) < SLOTS);
	uint32_t generation = atomic_load(&a->generation);
	CHECK_EQ(atomic_load(&a->phase), SLOT_IDLE);
	CHECK_EQ(atomic_load(&a->gate_rx), gate_word(GATE_TCP));
	CHECK_EQ(atomic_load(&a->holders[0]), getpid());
	CHECK(slot_is_alone(a));
	atomic_store(&a->phase, SLOT_FINAL);
	atomic_store(&a->seen, 0xff);
	slot_release(a, false);
	struct slot *c = slot_alloc();
	CHECK(c == a);
	CHECK(atomic_load(&c->generation) != generation);
	CHECK_EQ(atomic_load(&c->phase), SLOT_IDLE);
	CHECK_EQ(atomic_load(&c->seen), 0);
	slot_release(b, false);
	slot_release(c, false);
}

/* Each process of a family writes the table, also a worker that has given up its rights. */
TEST(what_others_write_is_no_index)
{
	init();
	struct slot_table *t =
		(struct slot_table *)((uint8_t *)slot_records() -
				      offsetof(struct slot_table, records));
	struct slot *used = slot_alloc(), *got[2];
	uint64_t lies[] = {0x20000, 0}, head = atomic_load(&t->free_head);
	REQUIRE(used);
	lies[1] = slot_index(used) + 1;
	for (int i = 0; i < 2; i++) {
		atomic_store(&t->free_head, lies[i]);
		got[i] = slot_alloc();
		REQUIRE(got[i] && slot_index(got[i]) < SLOTS);
		CHECK(got[i] != used);
	}
	atomic_store(&t->free_head, head);
	slot_release(got[0], false);
	slot_release(got[1], false);
	slot_release(used, false);
}

TEST(a_full_table_gives_nothing)
{
	init();
	struct slot *all[SLOTS];
	bool had[SLOTS] = {false};
	for (uint32_t i = 0; i < SLOTS; i++) {
		all[i] = slot_alloc();
		REQUIRE(all[i]);
		CHECK(!had[slot_index(all[i])]);
		had[slot_index(all[i])] = true;
	}
	CHECK(!slot_alloc());
	slot_release(all[17], false);
	CHECK(slot_alloc() == all[17]);
	for (uint32_t i = 0; i < SLOTS; i++)
		slot_release(all[i], false);
}

/* What the caller says is taken for a hint: what the slot knows of others stands above it. */
/* As the next one to have it finds it: all but who it is, and who has it. */
static bool is_empty(struct slot *sl)
{
	static const uint8_t nothing[sizeof(*sl)];
	size_t from = offsetof(struct slot, holders) + sizeof(sl->holders[0]);
	return atomic_load(&sl->cookie) == 0 &&
	       memcmp((const uint8_t *)sl + from, nothing, sizeof(*sl) - from) == 0;
}

TEST(a_slot_is_emptied_as_far_as_it_was_used)
{
	init();
	struct slot *sl = slot_alloc();
	REQUIRE(sl && is_empty(sl));
	for (int way = 0; way < 4; way++) {
		atomic_store(&sl->phase, way == 1 ? SLOT_FINAL : SLOT_EARNING);
		atomic_store(&sl->ops, way == 2);
		atomic_store(&sl->native, way == 3);
		atomic_store(&sl->fd, 7);
		atomic_store(&sl->timeout_ns[1], 5);
		atomic_store(&sl->left_tick, 3);
		if (way > 0) {
			atomic_store(&sl->native_counts[0], 1);
			atomic_store(&sl->bells[2], 9);
			sl->tx_messages = 4;
		}
		slot_release(sl, way % 2);
		REQUIRE(slot_alloc() == sl);
		CHECK(is_empty(sl));
	}
	CHECK(slot_release_ours(sl));
	REQUIRE(slot_alloc() == sl);
	CHECK(is_empty(sl));
	slot_release(sl, false);
}

TEST(a_slot_of_nobody_else_is_released_at_once)
{
	init();
	struct slot *sl = slot_alloc();
	slot_release(sl, true);
	CHECK_EQ(atomic_load(&sl->used), 0);
	REQUIRE(slot_alloc() == sl);
	atomic_store(&sl->forking, 1); /* a child is on its way */
	slot_release(sl, true);
	CHECK(atomic_load(&sl->used) != 0);
	slot_forked(sl);
	CHECK_EQ(atomic_load(&sl->used), 0);
	REQUIRE(slot_alloc() == sl);
	slot_hold_foreign(sl);
	slot_release(sl, true);
	CHECK(atomic_load(&sl->used) != 0);
	atomic_store(&sl->crowded, 0);
	atomic_store(&sl->forking, 1);
	slot_forked(sl);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

static void hold_and_release(struct slot *sl)
{
	slot_hold(sl);
	slot_forked(sl);
	CHECK(!slot_is_alone(sl));
	CHECK(slot_is_shared(sl));
	slot_release(sl, false);
}

TEST(a_child_holds_it_too)
{
	init();
	struct slot *sl = slot_alloc();
	atomic_fetch_add(&sl->forking, 1); /* before the fork, as the stream does */
	CHECK(!slot_is_alone(sl));
	reap(child(hold_and_release, sl), 0);
	CHECK(slot_is_alone(sl));
	CHECK(!slot_is_shared(sl));
	CHECK(atomic_load(&sl->used) != 0);
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

static void hold_and_stay(struct slot *sl)
{
	slot_hold(sl);
	slot_forked(sl);
	for (;;)
		pause();
}

static void await_holder(struct slot *sl, pid_t pid)
{
	for (;;) {
		for (int i = 0; i < SLOT_HOLDERS; i++)
			if (atomic_load(&sl->holders[i]) == pid &&
			    atomic_load(&sl->forking) == 0)
				return;
		usleep(100);
	}
}

TEST(a_dead_holder_counts_no_more)
{
	init();
	struct slot *sl = slot_alloc();
	atomic_fetch_add(&sl->forking, 1);
	pid_t pid = child(hold_and_stay, sl);
	await_holder(sl, pid);
	CHECK(!slot_is_alone(sl));
	kill(pid, SIGKILL);
	reap(pid, 128 + SIGKILL);
	CHECK(slot_is_alone(sl));
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

static void hold_and_die(struct slot *sl)
{
	slot_hold(sl);
	slot_forked(sl);
}

/* However many children have come and gone, each without a close. */
TEST(the_dead_are_no_crowd)
{
	init();
	struct slot *sl = slot_alloc();
	for (int i = 0; i < 3 * SLOT_HOLDERS; i++) {
		atomic_fetch_add(&sl->forking, 1);
		reap(child(hold_and_die, sl), 0);
	}
	CHECK_EQ(atomic_load(&sl->crowded), 0);
	CHECK(slot_is_alone(sl));
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

TEST(the_parent_goes_first)
{
	init();
	struct slot *sl = slot_alloc();
	atomic_fetch_add(&sl->forking, 1);
	pid_t pid = child(hold_and_stay, sl);
	await_holder(sl, pid);
	slot_release(sl, false);
	CHECK(atomic_load(&sl->used) != 0); /* it is the child's */
	struct slot *other = slot_alloc();
	CHECK(other != sl);
	kill(pid, SIGKILL);
	reap(pid, 128 + SIGKILL);
	slot_release(other, false);
}

/* Nobody told of those deaths: the slots come back when there are no others. */
TEST(a_full_table_reclaims_the_slots_of_the_dead)
{
	init();
	struct slot *mine[SLOTS];
	uint32_t n = 0;
	struct slot *sl = slot_alloc();
	if (sl) {
		atomic_fetch_add(&sl->forking, 1);
		pid_t pid = child(hold_and_stay, sl);
		await_holder(sl, pid);
		slot_release(sl, false);
		kill(pid, SIGKILL);
		reap(pid, 128 + SIGKILL);
	}
	while (n < SLOTS && (mine[n] = slot_alloc()))
		n++;
	CHECK_EQ(n, SLOTS); /* those of earlier tests as well */
	for (uint32_t i = 0; i < n; i++)
		slot_release(mine[i], false);
}

TEST(held_twice_by_one_process_takes_one_place)
{
	init();
	struct slot *sl = slot_alloc();
	for (int i = 0; i < 2 * SLOT_HOLDERS; i++)
		slot_hold(sl); /* a child with many duplicates */
	CHECK_EQ(atomic_load(&sl->crowded), 0);
	CHECK(slot_is_alone(sl));
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

static void hold_until_told(struct slot *sl)
{
	slot_hold(sl);
	slot_forked(sl);
	while (!atomic_load(&sl->nonblock)) /* a word that nobody else uses here */
		usleep(200);
	slot_release(sl, false);
}

static void become_cat(struct slot *sl)
{
	slot_hold(sl);
	slot_ends_by_exec(sl, true);
	slot_forked(sl);
	execl("/nonexistent/none", "none", (char *)NULL);
	CHECK(!slot_is_alone(sl));
	slot_ends_by_exec(sl, false);
	slot_ends_by_exec(sl, true);
	execl("/bin/cat", "cat", (char *)NULL);
}

/* A holder that has left by exec is none, though its process lives. */
TEST(a_holder_becomes_another_image)
{
	init();
	struct slot *sl = slot_alloc();
	int to_cat[2], from_cat[2];
	char c = 0;
	REQUIRE(pipe(to_cat) == 0 && pipe(from_cat) == 0);
	int saved[2] = {dup(0), dup(1)};
	REQUIRE(dup2(to_cat[0], 0) == 0 && dup2(from_cat[1], 1) == 1);
	atomic_fetch_add(&sl->forking, 1);
	pid_t pid = child(become_cat, sl);
	REQUIRE(dup2(saved[0], 0) == 0 && dup2(saved[1], 1) == 1);
	while (atomic_load(&sl->forking))
		usleep(100);
	REQUIRE(write(to_cat[1], "x", 1) == 1 && read(from_cat[0], &c, 1) == 1 &&
		c == 'x');
	CHECK(slot_is_alone(sl));
	CHECK(kill(pid, SIGKILL) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(close(to_cat[i]) == 0 && close(from_cat[i]) == 0 &&
		      close(saved[i]) == 0);
	reap(pid, 128 + SIGKILL);
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

/* This process itself may be on its way. */
TEST(released_on_the_way_to_exec)
{
	init();
	struct slot *sl = slot_alloc();
	slot_ends_by_exec(sl, true);
	CHECK(slot_is_alone(sl));
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

/* More holders than fit: it is shared until the last of them has gone. */
TEST(a_crowd)
{
	init();
	struct slot *sl = slot_alloc();
	enum { CROWD = SLOT_HOLDERS + 3 };
	pid_t pid[CROWD];
	for (int i = 0; i < CROWD; i++) {
		atomic_fetch_add(&sl->forking, 1);
		pid[i] = child(hold_until_told, sl);
	}
	while (atomic_load(&sl->forking))
		usleep(100);
	CHECK(!slot_is_alone(sl));
	atomic_store(&sl->nonblock, 1);
	for (int i = 0; i < CROWD; i++)
		reap(pid[i], 0);
	CHECK(slot_is_alone(sl));
	slot_release(sl, false);
	CHECK_EQ(atomic_load(&sl->used), 0);
}

#define THREADS 4
#define ROUNDS	20000

static _Atomic uint32_t owner[SLOTS];

/* No slot has two owners at once. */
static void *churn(void *arg)
{
	uint32_t self = (uint32_t)(uintptr_t)arg + 1;
	struct slot *mine[3] = {NULL};
	for (int i = 0; i < ROUNDS; i++) {
		struct slot **at = &mine[i % 3];
		if (*at) {
			REQUIRE(atomic_exchange(&owner[slot_index(*at)], 0) == self);
			slot_release(*at, false);
		}
		*at = slot_alloc();
		REQUIRE(*at);
		REQUIRE(atomic_exchange(&owner[slot_index(*at)], self) == 0);
	}
	for (int i = 0; i < 3; i++) {
		REQUIRE(atomic_exchange(&owner[slot_index(mine[i])], 0) == self);
		slot_release(mine[i], false);
	}
	return NULL;
}

TEST(threads_take_and_release)
{
	init();
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void release_at_once(struct slot *sl)
{
	slot_hold(sl);
	slot_forked(sl);
	while (!atomic_load(&sl->nonblock))
		;
	slot_release(sl, false);
}

/* Two processes let go at the same moment: the slot is freed exactly once. */
TEST(released_by_two_at_once)
{
	init();
	for (int i = 0; i < 200; i++) {
		struct slot *sl = slot_alloc();
		atomic_fetch_add(&sl->forking, 1);
		pid_t pid = child(release_at_once, sl);
		await_holder(sl, pid);
		atomic_store(&sl->nonblock, 1);
		slot_release(sl, false);
		struct slot *a = slot_alloc(), *b = slot_alloc();
		REQUIRE(a && b && a != b);
		reap(pid, 0);
		struct slot *c = slot_alloc(), *d = slot_alloc();
		REQUIRE(c && d && c != d && c != a && c != b && d != a && d != b);
		slot_release(a, false);
		slot_release(b, false);
		slot_release(c, false);
		slot_release(d, false);
	}
}

static void wait_for_word(struct slot *sl)
{
	while (!atomic_load(&sl->nonblock))
		;
}

/* What was made before the second of three forks can only have come to the children of the last two. */
TEST(who_was_forked_before_does_not_count)
{
	init();
	struct slot *sl = slot_alloc();
	pid_t pid = child(wait_for_word, sl);
	slot_table_forking();
	uint32_t since = table_fork_number();
	CHECK(!slot_table_has_others_since(since, true));
	CHECK(slot_table_has_others_since(since, false));
	table_forked_parent(-1);
	CHECK(!slot_table_has_others_since(since, false));
	slot_table_forking();
	CHECK(!slot_table_has_others_since(since, true));
	CHECK(slot_table_has_others_since(since, false));
	table_forked_parent(-1);
	CHECK(slot_table_has_others());
	CHECK(slot_table_has_others_since(since - 1, false));
	atomic_store(&sl->nonblock, 1);
	reap(pid, 0);
	CHECK(!slot_table_has_others_since(since - 1, false));
	slot_release(sl, false);
}

/* Its parent dies before it has told the pid. */
TEST(an_untold_child_is_not_another)
{
	init();
	slot_table_forking();
	uint32_t since = table_fork_number();
	fflush(NULL);
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		table_forked_child(false);
		_exit(slot_table_has_others_since(since, false));
	}
	reap(pid, 0);
	table_forked_parent(-1);
}
