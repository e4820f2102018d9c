/* SPDX-License-Identifier: Apache-2.0 */
/* Critical sections: what is deferred, what comes after; copies from and to bad memory. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "base/copy.h"
#include "base/lock.h"
#include "base/sigsafe.h"
#include "unit/test.h"

/* Stands in for the hooks' own: the program's handler is `seen`. */
static _Atomic int order[8], count, deferrals;
static siginfo_t last;

static void handler(int sig, siginfo_t *info, void *context)
{
	if (crit_recover(sig, info, context))
		return;
	if (crit_defer(sig, info, context)) {
		deferrals++;
		return;
	}
	crit_note_handler(sig == SIGUSR2);
	last = *info;
	if (count < 8)
		order[count++] = sig;
}

static void catch_it(int sig, int flags)
{
	struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	sigaction(sig, &act, NULL);
	count = deferrals = 0;
}

static uint64_t mask_now(void)
{
	uint64_t mask = 0;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask));
	return mask;
}

TEST(runs_at_once_outside)
{
	catch_it(SIGUSR1, 0);
	raise(SIGUSR1);
	CHECK_EQ(count, 1);
	CHECK_EQ(deferrals, 0);
}

TEST(waits_for_the_end)
{
	union sigval value = {.sival_int = 4711};
	catch_it(SIGUSR1, 0);
	sigset_t some;
	sigemptyset(&some);
	sigaddset(&some, SIGHUP);
	sigprocmask(SIG_BLOCK, &some, NULL);
	uint64_t before = mask_now();
	errno = 33;
	crit_enter();
	crit_enter();
	sigqueue(getpid(), SIGUSR1, value);
	CHECK_EQ(count, 0);
	crit_leave();
	CHECK_EQ(count, 0);
	crit_leave();
	CHECK_EQ(count, 1);
#ifndef __SANITIZE_THREAD__ /* which delivers signals at moments of its own */
	CHECK_EQ(deferrals, 1);
#endif
	CHECK_EQ(errno, 33);
	CHECK_EQ(last.si_code, SI_QUEUE);
	CHECK_EQ(last.si_value.sival_int, 4711);
	CHECK_EQ(last.si_pid, getpid());
	CHECK_EQ(mask_now(), before);
	sigprocmask(SIG_UNBLOCK, &some, NULL);
}

TEST(several_in_one_section)
{
	catch_it(SIGUSR2, SA_NODEFER);
	catch_it(SIGUSR1, SA_NODEFER);
	uint64_t before = mask_now();
	crit_enter();
	raise(SIGUSR2);
	/* This one finds the thread with all blocked. */
	raise(SIGUSR1);
	CHECK_EQ(count, 0);
	crit_leave();
	CHECK_EQ(count, 2);
	CHECK_EQ(order[0] + order[1], SIGUSR1 + SIGUSR2);
	CHECK_EQ(mask_now(), before);
}

/* A sent SIGSEGV is like any other, also once the first signal has blocked the rest. */
TEST(sent_fault_waits)
{
	catch_it(SIGUSR1, 0);
	catch_it(SIGSEGV, 0);
	uint64_t before = mask_now();
	crit_enter();
	raise(SIGUSR1);
	raise(SIGSEGV);
	CHECK_EQ(count, 0);
	CHECK_EQ(deferrals, 2);
	crit_leave();
	CHECK_EQ(count, 2);
	CHECK_EQ(mask_now(), before);
}

TEST(lock_is_a_section)
{
	struct lock lock = {0}, other = {0};
	catch_it(SIGUSR1, 0);
	lock_take(&lock);
	CHECK(lock_try(&other));
	CHECK(!lock_try(&other));
	raise(SIGUSR1);
	lock_drop(&other);
	CHECK_EQ(count, 0);
	lock_drop(&lock);
	CHECK_EQ(count, 1);
	CHECK_EQ(crit_depth, 0);
}

TEST(interruptions_are_counted)
{
	catch_it(SIGUSR1, 0);
	catch_it(SIGUSR2, SA_RESTART);
	uint32_t all = crit_handlers(), some = crit_interruptions();
	raise(SIGUSR2);
	CHECK_EQ(crit_handlers() - all, 1);
	CHECK_EQ(crit_interruptions() - some, 0);
	raise(SIGUSR1);
	CHECK_EQ(crit_handlers() - all, 2);
	CHECK_EQ(crit_interruptions() - some, 1);
}

/* What comes between the section's last step and the release waits, too. */
TEST(waits_for_the_release)
{
	catch_it(SIGUSR1, 0);
	catch_it(SIGTRAP, 0);
	uint64_t before = mask_now();
	crit_enter();
	raise(SIGUSR1);
	crit_depth--;
	raise(SIGTRAP);
	CHECK_EQ(count, 0);
	crit_release();
	CHECK_EQ(count, 2);
	CHECK_EQ(mask_now(), before);
}

/* A child of vfork has been killed in a section, with a signal deferred. */
TEST(a_child_s_section_ends_with_it)
{
	catch_it(SIGUSR1, 0);
	uint64_t before = mask_now();
	crit_lend();
	crit_depth = 2;
	crit_deferred = 1;
	crit_returned(true);
	CHECK(crit_lent);
	crit_depth = 1;
	crit_returned(false);
	CHECK(!crit_lent);
	raise(SIGUSR1);
	CHECK_EQ(count, 1);
	CHECK_EQ(deferrals, 0);
	CHECK_EQ(mask_now(), before);
	crit_enter();
	raise(SIGUSR1);
	CHECK_EQ(count, 1);
	crit_leave();
	CHECK_EQ(count, 2);
	CHECK_EQ(mask_now(), before);
}

/* Timer signals at any instruction: none is lost for good, none comes inside. */
static _Atomic uint32_t ticks, inside;

static void tick(int sig, siginfo_t *info, void *context)
{
	if (crit_defer(sig, info, context))
		return;
	if (crit_depth)
		atomic_fetch_add(&inside, 1);
	atomic_fetch_add(&ticks, 1);
}

TEST(timer_storm)
{
	struct sigaction act = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO};
	struct itimerval fast = {{0, 50}, {0, 50}}, stop = {{0, 0}, {0, 0}};
	struct lock lock = {0};
	uint64_t before = mask_now();
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &fast, NULL);
	while (atomic_load(&ticks) < 2000) {
		lock_take(&lock);
		lock_drop(&lock);
	}
	setitimer(ITIMER_REAL, &stop, NULL);
	CHECK_EQ(inside, 0);
	CHECK_EQ(crit_depth, 0);
	CHECK_EQ(mask_now(), before);
}

/* ---- copies ---- */

static uint8_t *page(void)
{
	uint8_t *at = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(at != MAP_FAILED);
	mprotect(at + 4 * 4096, 4 * 4096, PROT_NONE);
	return at + 4 * 4096;
}

static void copies_by(int (*copy)(void *to, const void *from, size_t len))
{
	static uint8_t from[5000], to[5016];
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 7 + 1);
	for (size_t len = 0; len < sizeof(from); len += len < 300 ? 1 : 97) {
		memset(to, 0, sizeof(to));
		CHECK_EQ(copy(to + 8, from, len), 0);
		CHECK_EQ(memcmp(to + 8, from, len), 0);
		CHECK_EQ(to[7], 0);
		CHECK_EQ(to[8 + len], 0);
	}
}

TEST(copies_every_length)
{
	copies_by(crit_copy);
	copies_by(crit_copy_plain);
}

/* What is 1 to 31 bytes behind within a page goes in pieces, by either copy. */
TEST(copies_in_pieces_copy)
{
	enum { PAGES = 4, BYTES = PAGES * COPY_PAGE_BYTES };
	static const size_t lengths[] = {2047, 2048, 2049, 4096, 4097, 3 * 4096 - 1};
	static uint8_t from[BYTES] __attribute__((aligned(COPY_PAGE_BYTES)));
	static uint8_t to[BYTES], again[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t skip = 0; skip < 40; skip += 13) {
		for (size_t ahead = 0; ahead < 40; ahead++) {
			/* The same place within a page, wherever `to` lies. */
			size_t begin = (COPY_PAGE_BYTES -
					(uintptr_t)to % COPY_PAGE_BYTES + skip + ahead) %
				       COPY_PAGE_BYTES;
			for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]);
			     i++) {
				size_t len = lengths[i];
				bool pieces = len > 2048 && ahead > 0 && ahead < 32;
				if (begin + len >= BYTES)
					continue;
				CHECK_EQ(copy_needs_pieces(to + begin, from + skip, len),
					 pieces);
				memset(to, 0xee, BYTES);
				memset(again, 0xee, BYTES);
				REQUIRE(crit_copy(to + begin, from + skip, len) == 0);
				memcpy(again + begin, from + skip, len);
				REQUIRE(memcmp(to, again, BYTES) == 0);
				memset(to, 0xee, BYTES);
				copy_bytes(to + begin, from + skip, len);
				REQUIRE(memcmp(to, again, BYTES) == 0);
			}
		}
	}
}

TEST(copies_past_the_caches_copy)
{
	static uint8_t from[1200], to[sizeof(from) + 256];
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 7 + 1);
	for (size_t begin = 1; begin <= 65; begin += 3)
		for (size_t skip = 0; skip < 17; skip += 5)
			for (size_t len = 0; len + skip <= sizeof(from);
			     len += len < 200 ? 1 : 41) {
				memset(to, 0, sizeof(to));
				REQUIRE(crit_copy_past(to + begin, from + skip, len) ==
					0);
				REQUIRE(memcmp(to + begin, from + skip, len) == 0);
				REQUIRE(to[begin - 1] == 0 && to[begin + len] == 0);
			}
}

/* Longer copies are memcpy's, and the address sanitizer's memcpy judges pointers itself. */
#ifdef __SANITIZE_ADDRESS__
#define LONGEST_BAD 128
#else
#define LONGEST_BAD 12000
#endif

TEST(bad_memory)
{
	static uint8_t good[16384];
	uint8_t *end = page();
	catch_it(SIGSEGV, 0);
	catch_it(SIGBUS, 0);
	for (size_t len = 1; len <= LONGEST_BAD; len += len < 300 ? 1 : 501) {
		CHECK_EQ(crit_copy(good, end - len, len), 0);
		CHECK_EQ(crit_copy(end - len, good, len), 0);
		CHECK_EQ(crit_copy(good, end - len + 1, len), -EFAULT);
		CHECK_EQ(crit_copy(end - len + 1, good, len), -EFAULT);
		CHECK_EQ(crit_copy(good, end, len), -EFAULT);
		CHECK_EQ(crit_copy(good, NULL, len), -EFAULT);
		CHECK_EQ(crit_copy((void *)0xdeadbeefdeadbeef, good, len), -EFAULT);
	}
	for (size_t len = 1; len <= 12000; len += len < 300 ? 1 : 501) {
		CHECK_EQ(crit_copy_past(good + 5, end - len, len), 0);
		CHECK_EQ(crit_copy_past(end - len, good, len), 0);
		CHECK_EQ(crit_copy_past(good + 5, end - len + 1, len), -EFAULT);
		CHECK_EQ(crit_copy_past(end - len + 1, good, len), -EFAULT);
		CHECK_EQ(crit_copy_past(good, end, len), -EFAULT);
		CHECK_EQ(crit_copy_plain(good, end - len, len), 0);
		CHECK_EQ(crit_copy_plain(end - len, good, len), 0);
		CHECK_EQ(crit_copy_plain(good, end - len + 1, len), -EFAULT);
		CHECK_EQ(crit_copy_plain(end - len + 1, good, len), -EFAULT);
	}
	CHECK_EQ(count, 0);
	CHECK_EQ(crit_depth, 0);
	munmap(end - 4 * 4096, 8 * 4096);
}

TEST(readable)
{
	uint8_t *end = page();
	catch_it(SIGSEGV, 0);
	catch_it(SIGBUS, 0);
	CHECK(crit_readable(NULL, 0));
	CHECK(!crit_readable(NULL, 1));
	for (size_t len = 1; len <= 3 * 4096; len += len < 20 ? 1 : 501) {
		CHECK(crit_readable(end - len, len));
		CHECK(!crit_readable(end - len + 1, len));
	}
	CHECK_EQ(count, 0);
	munmap(end - 4 * 4096, 8 * 4096);
}

/* Also while a deferred signal has everything else blocked. */
TEST(bad_memory_after_a_deferral)
{
	uint8_t byte;
	catch_it(SIGSEGV, 0);
	catch_it(SIGUSR1, 0);
	crit_enter();
	raise(SIGUSR1);
	CHECK_EQ(crit_copy(&byte, NULL, 1), -EFAULT);
	CHECK_EQ(count, 0);
	crit_leave();
	CHECK_EQ(count, 1);
}

static sigjmp_buf back;

static void leave(int sig, siginfo_t *info, void *context)
{
	if (crit_recover(sig, info, context))
		return;
	siglongjmp(back, 1);
}

/* UndefinedBehaviorSanitizer is not to see what is done on purpose. */
__attribute__((noinline, no_sanitize("undefined"))) static void store_at(uint8_t *at)
{
	*(volatile uint8_t *)at = 1;
}

/* Any other fault is the program's. */
/* A signal's frame lies on the one of a fault's handler, before that begins, and then comes to the section itself. */
TEST(a_deferral_over_a_fault)
{
	const uint64_t fault = 1ull << (SIGSEGV - 1), before = mask_now();
	siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_USER};
	ucontext_t over_handler, in_section;

	catch_it(SIGUSR1, 0);
	memset(&over_handler, 0, sizeof(over_handler));
	memset(&in_section, 0, sizeof(in_section));
	sigaddset(&over_handler.uc_sigmask, SIGSEGV);
	crit_enter();
	CHECK(crit_defer(SIGUSR1, &info, &over_handler));
	memcpy(&in_section.uc_sigmask, &before, sizeof(before));
	CHECK(crit_defer(SIGUSR1, &info, &in_section));
	/* The next fault of the section is not blocked. */
	CHECK(!sigismember(&in_section.uc_sigmask, SIGSEGV));
	CHECK(sigismember(&in_section.uc_sigmask, SIGUSR1));
	crit_leave();
	CHECK_EQ(mask_now() & fault, 0);
	CHECK_EQ(mask_now(), before);
	CHECK_EQ(count, 1);
}

TEST(other_faults_are_not_ours)
{
	struct sigaction act = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO};
	uint8_t *_Atomic nowhere = NULL, byte;
	volatile int left = 0;
	sigaction(SIGSEGV, &act, NULL);
	CHECK_EQ(crit_copy(&byte, nowhere, 1), -EFAULT);
	if (sigsetjmp(back, 1) == 0)
		store_at(nowhere);
	else
		left = 1;
	CHECK_EQ(left, 1);
	CHECK_EQ(crit_copy(&byte, nowhere, 1), -EFAULT);
}
