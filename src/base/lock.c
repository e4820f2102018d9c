/* SPDX-License-Identifier: Apache-2.0 */
/* The slow half of the shared lock: waiting, and noticing that the owner is gone. */
#include "base/atomic.h"
#include "base/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/sections.h"

#define SPIN_ROUNDS 200
/* How often a waiter asks whether the owner still lives. */
#define CHECK_NS 5000000

_Thread_local uint32_t lock_self_tid __attribute__((tls_model("initial-exec")));

_Thread_local void (*lock_give_back)(void) __attribute__((tls_model("initial-exec")));

uint32_t lock_self_slow(void)
{
	lock_self_tid = (uint32_t)kernel_call4(SYS_gettid, 0, 0, 0, 0);
	return lock_self_tid;
}

FORK_CODE void lock_forked(void)
{
	lock_self_tid = 0;
}

/*
 * Also a zombie, which still answers signal 0. The kernel is asked for a lock of its own kind that the thread would
 * have: it says ESRCH of one that has ended. No descriptor is needed.
 */
static bool has_ended(uint32_t tid)
{
	uint32_t word = tid;

	return kernel_call4(SYS_futex, (long)&word, FUTEX_TRYLOCK_PI, 0, 0) == -ESRCH;
}

static _Atomic bool are_ours;
/* A child of vfork has its own number in this thread's memory. */
static _Thread_local bool is_lent __attribute__((tls_model("initial-exec")));

void lock_are_ours(void)
{
	atomic_store(&are_ours, true);
}

static bool is_thread_here(uint32_t tid)
{
	long pid = kernel_call4(SYS_getpid, 0, 0, 0, 0);

	return kernel_call4(SYS_tgkill, pid, tid, 0, 0) == 0;
}

void lock_lend(void)
{
	/* It is no thread of this process. */
	if (load_relaxed(&are_ours))
		return;
	lock_self_tid = 0;
	is_lent = true;
}

void lock_returned(bool is_child)
{
	if (is_lent)
		lock_self_tid = 0;
	is_lent = is_child;
}

static bool is_dead(uint32_t tid)
{
	/* Nobody takes a lock twice: it was a child of vfork that has our number. */
	if (tid == lock_self())
		return crit_has_lent;
	/* Relaxed: it is asked again. */
	if (load_relaxed(&are_ours))
		return !is_thread_here(tid);
	return kernel_call4(SYS_tkill, tid, 0, 0, 0) == -ESRCH || has_ended(tid);
}

void lock_take_slow(struct lock *l)
{
	const uint32_t self = lock_self();
	const struct timespec interval = {.tv_nsec = CHECK_NS};

	if ((load_relaxed(&l->word) & ~LOCK_WAITERS) == self)
		lock_give_all_back();
	for (int i = 0; i < SPIN_ROUNDS; i++) {
		uint32_t now = load_relaxed(&l->word);
		/* Acquire pairs with the release half of lock_drop's exchange. */
		if (now == 0 && atomic_compare_exchange_weak_explicit(
					&l->word, &now, self, memory_order_acquire,
					memory_order_relaxed))
			return;
		__builtin_ia32_pause();
	}
	for (;;) {
		uint32_t now = load_relaxed(&l->word);
		if (now == 0) {
			/* Others may sleep: keep the mark, at the price of one idle wake. */
			if (atomic_compare_exchange_strong_explicit(
				    &l->word, &now, self | LOCK_WAITERS,
				    memory_order_acquire, memory_order_relaxed))
				return;
			continue;
		}
		if (!(now & LOCK_WAITERS)) {
			if (!atomic_compare_exchange_strong_explicit(
				    &l->word, &now, now | LOCK_WAITERS,
				    memory_order_relaxed, memory_order_relaxed))
				continue;
			now |= LOCK_WAITERS;
		}
		long r = kernel_call4(SYS_futex, (long)&l->word, FUTEX_WAIT, now,
				      (long)&interval);
		/* EINTR too: signals may come oftener than the interval. */
		if ((r == -ETIMEDOUT || r == -EINTR) && is_dead(now & ~LOCK_WAITERS)) {
			if (atomic_compare_exchange_strong_explicit(
				    &l->word, &now, self | LOCK_WAITERS,
				    memory_order_acquire, memory_order_relaxed))
				return;
		}
	}
}

void lock_leave(struct lock *l)
{
	uint32_t now = atomic_load(&l->word), tid = now & ~LOCK_WAITERS;

	if (tid == 0 || (tid != lock_self() && !is_thread_here(tid)))
		return;
	/* Whoever waits may have set the mark meanwhile. */
	while ((now & ~LOCK_WAITERS) == tid &&
	       !atomic_compare_exchange_weak(&l->word, &now, 0))
		;
	kernel_call4(SYS_futex, (long)&l->word, FUTEX_WAKE, INT32_MAX, 0);
}

void lock_drop_slow(struct lock *l)
{
	kernel_call4(SYS_futex, (long)&l->word, FUTEX_WAKE, 1, 0);
}
