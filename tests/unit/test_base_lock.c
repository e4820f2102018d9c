/* SPDX-License-Identifier: Apache-2.0 */
/* The shared lock: exclusion, wakes, and owners that die with it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/lock.h"
#include "unit/test.h"

#define THREADS 4
#define ROUNDS	50000

struct shared {
	struct lock lock;
	_Atomic uint32_t step;
	uint64_t counter; /* guarded by the lock */
};

static struct shared *shared_map(void)
{
	void *map = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(map != MAP_FAILED);
	return map;
}

static void shared_unmap(struct shared *m)
{
	munmap(m, sizeof(*m));
}

static void await(_Atomic uint32_t *word, uint32_t value)
{
	while (atomic_load(word) != value)
		sched_yield();
}

/* Until somebody sleeps on the lock, or is about to. */
static void await_waiter(struct lock *l)
{
	while (!(atomic_load(&l->word) & LOCK_WAITERS))
		sched_yield();
}

static void *count(void *arg)
{
	struct shared *m = arg;
	for (int i = 0; i < ROUNDS; i++) {
		lock_take(&m->lock);
		m->counter++;
		lock_drop(&m->lock);
	}
	return NULL;
}

TEST(threads_exclude_each_other)
{
	struct shared *m = shared_map();
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&t[i], NULL, count, m) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(m->counter, (uint64_t)THREADS * ROUNDS);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	shared_unmap(m);
}

TEST(processes_exclude_each_other)
{
	struct shared *m = shared_map();
	pid_t pid[2];
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		REQUIRE(pid[i] >= 0);
		if (pid[i] == 0) {
			lock_forked();
			count(m);
			_exit(0);
		}
	}
	count(m);
	for (int i = 0; i < 2; i++) {
		int status = -1;
		REQUIRE(waitpid(pid[i], &status, 0) == pid[i]);
		CHECK_EQ(status, 0);
	}
	CHECK_EQ(m->counter, 3ull * ROUNDS);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	shared_unmap(m);
}

TEST(try_takes_only_a_free_lock)
{
	struct lock l = {0};
	CHECK(lock_try(&l));
	CHECK_EQ(atomic_load(&l.word), lock_self());
	CHECK(!lock_try(&l));
	lock_drop(&l);
	CHECK(lock_try(&l));
	lock_drop(&l);
	CHECK_EQ(atomic_load(&l.word), 0);
}

static void *take_and_wait(void *arg)
{
	struct shared *m = arg;
	lock_take(&m->lock);
	atomic_store(&m->step, 1);
	await(&m->step, 2);
	lock_drop(&m->lock);
	return NULL;
}

/* Its memory came to another use, where somebody else has taken it. */
TEST(one_that_was_emptied_is_another_lock)
{
	struct shared *m = shared_map();
	pthread_t thread, waiter;
	lock_take(&m->lock);
	CHECK(lock_is_mine(&m->lock));
	atomic_store(&m->lock.word, 0);
	CHECK(!lock_is_mine(&m->lock));
	REQUIRE(pthread_create(&thread, NULL, take_and_wait, m) == 0);
	await(&m->step, 1);
	uint32_t word = atomic_load(&m->lock.word);
	lock_drop_if_mine(&m->lock);
	CHECK_EQ(atomic_load(&m->lock.word), word);
	atomic_store(&m->step, 2);
	pthread_join(thread, NULL);
	/* One that was not is dropped, and wakes. */
	lock_take(&m->lock);
	REQUIRE(pthread_create(&waiter, NULL, count, m) == 0);
	await_waiter(&m->lock);
	CHECK(lock_is_mine(&m->lock));
	lock_drop_if_mine(&m->lock);
	pthread_join(waiter, NULL);
	CHECK_EQ(m->counter, ROUNDS);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	CHECK_EQ(crit_depth, 0);
	shared_unmap(m);
}

TEST(a_forked_child_has_its_own_name)
{
	uint32_t parent = lock_self();
	pid_t pid = fork();
	int status = -1;
	REQUIRE(pid >= 0);
	if (pid == 0) {
		lock_forked();
		_exit(lock_self() != parent && lock_self() == (uint32_t)getpid() ? 0 : 1);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(lock_self(), parent);
}

static void *take_once(void *arg)
{
	struct shared *m = arg;
	lock_take(&m->lock);
	m->counter++;
	lock_drop(&m->lock);
	return NULL;
}

TEST(waiters_are_woken_one_after_the_other)
{
	struct shared *m = shared_map();
	pthread_t t[THREADS];
	lock_take(&m->lock);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&t[i], NULL, take_once, m) == 0);
	await_waiter(&m->lock);
	CHECK_EQ(m->counter, 0);
	lock_drop(&m->lock);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(m->counter, THREADS);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	shared_unmap(m);
}

/* A process that takes the lock, says so, and never lets go. */
static pid_t start_owner(struct shared *m)
{
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		lock_forked();
		lock_take(&m->lock);
		m->counter = 7;
		atomic_store(&m->step, 1);
		for (;;)
			pause();
	}
	await(&m->step, 1);
	return pid;
}

static void check_passed_on(struct shared *m)
{
	lock_take(&m->lock);
	CHECK_EQ(atomic_load(&m->lock.word) & ~LOCK_WAITERS, lock_self());
	CHECK_EQ(m->counter, 7);
	lock_drop(&m->lock);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	shared_unmap(m);
}

TEST(a_lock_survives_an_owner_that_was_killed_and_reaped)
{
	struct shared *m = shared_map();
	pid_t pid = start_owner(m);
	kill(pid, SIGKILL);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	check_passed_on(m);
}

static void check_survives_zombie(void)
{
	struct shared *m = shared_map();
	pid_t pid = start_owner(m);
	siginfo_t info;
	kill(pid, SIGKILL);
	REQUIRE(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	check_passed_on(m);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
}

TEST(a_lock_survives_an_owner_that_is_a_zombie)
{
	check_survives_zombie();
}

TEST(no_descriptor_is_needed_to_tell_a_zombie)
{
	struct rlimit was, none;
	REQUIRE(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = was.rlim_max};
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	check_survives_zombie();
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

TEST(a_sleeping_waiter_notices_the_death)
{
	struct shared *m = shared_map();
	pid_t pid = start_owner(m);
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		REQUIRE(pthread_create(&t[i], NULL, take_once, m) == 0);
	await_waiter(&m->lock);
	kill(pid, SIGKILL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(m->counter, 9);
	CHECK_EQ(atomic_load(&m->lock.word), 0);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	shared_unmap(m);
}

TEST(a_living_owner_keeps_the_lock)
{
	struct shared *m = shared_map();
	pid_t pid = start_owner(m);
	pthread_t t;
	/* The waiter asks several times whether the owner lives. */
	REQUIRE(pthread_create(&t, NULL, take_once, m) == 0);
	await_waiter(&m->lock);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(atomic_load(&m->lock.word), (uint32_t)pid | LOCK_WAITERS);
		CHECK(!lock_try(&m->lock));
		usleep(6000);
	}
	kill(pid, SIGKILL);
	pthread_join(t, NULL);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	shared_unmap(m);
}

static void ignore(int sig)
{
	(void)sig;
}

static void *take_under_signals(void *arg)
{
	struct shared *m = arg;
	atomic_store(&m->step, 2);
	lock_take(&m->lock);
	m->counter++;
	lock_drop(&m->lock);
	atomic_store(&m->step, 3);
	return NULL;
}

/* A profiler's signals come oftener than the look at the owner. */
TEST(signals_do_not_hide_a_death)
{
	struct shared *m = shared_map();
	pid_t pid = start_owner(m);
	struct sigaction act = {.sa_handler = ignore}, old;
	pthread_t t;
	sigaction(SIGUSR1, &act, &old);
	REQUIRE(pthread_create(&t, NULL, take_under_signals, m) == 0);
	await_waiter(&m->lock);
	kill(pid, SIGKILL);
	REQUIRE(waitpid(pid, NULL, 0) == pid);
	for (int i = 0; i < 3000 && atomic_load(&m->step) != 3; i++) {
		pthread_kill(t, SIGUSR1);
		usleep(1000);
	}
	CHECK_EQ(atomic_load(&m->step), 3);
	pthread_join(t, NULL);
	sigaction(SIGUSR1, &old, NULL);
	CHECK_EQ(m->counter, 8);
	shared_unmap(m);
}

/* It has had its parent's number, and so its parent is alive, and is who asks. */
TEST(a_child_of_vfork_that_was_killed_holds_nothing)
{
	struct lock lock = {0};
	crit_lend();
	store_relaxed(&lock.word, lock_self());
	crit_returned(false);
	lock_take(&lock);
	lock_drop(&lock);
	CHECK_EQ(lock.word, 0);
}
