/* SPDX-License-Identifier: Apache-2.0 */
/* What is Viaduct's stays out of what the program locks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pageable.h"
#include "unit/test.h"

#define BIG	   ((size_t)64 << 20)
#define BIG_KB	   (64L << 10)
#define SMALL	   ((size_t)64 << 10)
#define OTHER_USER 65534
#define PRIVATE	   (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static long locked_kb(void)
{
	char line[256];
	long found = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmLck: %ld", &found);
	if (f)
		fclose(f);
	return found;
}

/* What is there, and as much more. */
static bool may_lock(size_t more)
{
	void *map = mmap(NULL, more, PROT_READ, PRIVATE, -1, 0);
	bool may = map != MAP_FAILED && mlock2(map, more, MLOCK_ONFAULT) == 0;

	if (map != MAP_FAILED)
		munmap(map, more);
	return may && pageable_may_lock(true) == 0;
}

TEST(others_are_locked)
{
	char *own, *other;

	if (!may_lock(2 * BIG))
		SKIP("memory that may be locked is limited");
	own = pageable_map(NULL, BIG, PRIVATE, -1);
	other = mmap(NULL, SMALL, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	REQUIRE(own != MAP_FAILED && other != MAP_FAILED);
	pageable_lock_others(false);
	CHECK(locked_kb() > 0);
	CHECK(locked_kb() < BIG_KB);
	/* What is locked is not given away. */
	CHECK_EQ(madvise(other, SMALL, MADV_DONTNEED), -1);
	CHECK_EQ(madvise(own, BIG, MADV_DONTNEED), 0);
	pageable_unmap(own, BIG);
	REQUIRE(mmap(own, BIG, PROT_READ | PROT_WRITE, PRIVATE | MAP_FIXED, -1, 0) ==
		own);
	/* It is the program's now. */
	pageable_lock_others(true);
	CHECK(locked_kb() > BIG_KB);
	munlockall();
	munmap(own, BIG);
	munmap(other, SMALL);
}

/* Windows come and go with the connections, as long as the process lives. */
TEST(more_than_there_are_at_a_time)
{
	char *own;

	if (!may_lock(2 * BIG))
		SKIP("memory that may be locked is limited");
	for (int i = 0; i < 70000; i++) {
		own = pageable_map(NULL, SMALL, PRIVATE, -1);
		REQUIRE(own != MAP_FAILED);
		pageable_unmap(own, SMALL);
	}
	own = pageable_map(NULL, BIG, PRIVATE, -1);
	REQUIRE(own != MAP_FAILED);
	pageable_lock_others(false);
	CHECK(locked_kb() > 0);
	CHECK(locked_kb() < BIG_KB);
	munlockall();
	pageable_unmap(own, BIG);
}

/* The kernel makes one mapping of neighbours that are alike. */
TEST(amid_others)
{
	char *all, *own[2];

	if (!may_lock(5 * SMALL))
		SKIP("memory that may be locked is limited");
	all = mmap(NULL, 5 * SMALL, PROT_NONE, PRIVATE, -1, 0);
	REQUIRE(all != MAP_FAILED && munmap(all, 5 * SMALL) == 0);
	for (int i = 0; i < 2; i++) {
		own[i] = pageable_map(all + (size_t)(2 * i + 1) * SMALL, SMALL, PRIVATE,
				      -1);
		REQUIRE(own[i] == all + (size_t)(2 * i + 1) * SMALL);
	}
	for (int i = 0; i < 5; i += 2)
		REQUIRE(mmap(all + (size_t)i * SMALL, SMALL, PROT_READ | PROT_WRITE,
			     PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED);
	pageable_lock_others(true);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(madvise(all + (size_t)i * SMALL, SMALL, MADV_DONTNEED),
			 i % 2 ? 0 : -1);
	munlockall();
	for (int i = 0; i < 2; i++)
		pageable_unmap(own[i], SMALL);
	munmap(all, 5 * SMALL);
}

TEST(mapped_later)
{
	char *own, *shared;

	if (!may_lock(2 * BIG))
		SKIP("memory that may be locked is limited");
	CHECK(!pageable_expects());
	pageable_expect(true);
	REQUIRE(mlockall(MCL_FUTURE) == 0);
	own = pageable_map(NULL, BIG, PRIVATE, -1);
	REQUIRE(own != MAP_FAILED);
	CHECK(locked_kb() < BIG_KB);
	memset(own, 7, SMALL);
	/* In the place of what is there. */
	shared = pageable_map(own, BIG, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1);
	CHECK(shared == own);
	CHECK_EQ(own[0], 0);
	own[BIG - 1] = 7;
	CHECK(locked_kb() < BIG_KB);
	CHECK(pageable_map(NULL, BIG, MAP_SHARED, -1) == MAP_FAILED); /* no file */
	CHECK_EQ(errno, EBADF);
	munlockall();
	pageable_expect(false);
	pageable_unmap(own, BIG);
}

/* In a child, as another user where this one has every right. */
static int answer_within(rlim_t bytes, bool now)
{
	struct rlimit limit = {bytes, bytes};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
		    (geteuid() == 0 &&
		     setresuid(OTHER_USER, OTHER_USER, OTHER_USER) != 0))
			_exit(255);
		_exit(-pageable_may_lock(now));
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
		       ? WEXITSTATUS(status)
		       : -1;
}

TEST(the_limit_is_the_programs)
{
	struct rlimit limit;
	char *own;

	REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (limit.rlim_max < BIG / 8)
		SKIP("less memory may be locked than this program has");
	own = pageable_map(NULL, BIG, PRIVATE, -1);
	REQUIRE(own != MAP_FAILED);
	CHECK_EQ(answer_within(BIG / 8, true), 0);
	CHECK_EQ(answer_within(SMALL, true), ENOMEM);
	CHECK_EQ(answer_within(SMALL, false), 0);
	CHECK_EQ(answer_within(0, false), EPERM);
	pageable_unmap(own, BIG);
	own = mmap(NULL, BIG, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	CHECK_EQ(answer_within(BIG / 8, true), ENOMEM);
	munmap(own, BIG);
}
