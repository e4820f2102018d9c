/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's descriptors stay high, close-on-exec, and within their half of the limit. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

#include "base/fds.h"
#include "unit/child.h"

static void set_limit(rlim_t soft)
{
	struct rlimit limit;

	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = soft;
	REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST(adopt_moves_and_marks)
{
	int low = dup(0), high;

	errno = 77;
	high = fds_adopt(low);
	REQUIRE(high > low);
	CHECK_EQ(fcntl(high, F_GETFD), FD_CLOEXEC);
	CHECK(fcntl(low, F_GETFD) < 0);
	CHECK(fds_is_ours(high));
	CHECK(!fds_is_ours(low));
	CHECK_EQ(fds_next(0), high);
	CHECK_EQ(fds_next(high), high);
	errno = 77;
	fds_close(high);
	fds_close(-1);
	CHECK_EQ(errno, 77);
	CHECK(!fds_is_ours(high));
	CHECK(fcntl(high, F_GETFD) < 0);
}

/* Closed by a system call of the program's own, and given out again. */
TEST(a_lost_number_is_the_programs)
{
	int high = fds_adopt(dup(0));

	REQUIRE(high >= 0);
	REQUIRE(close(high) == 0);
	REQUIRE(fcntl(0, F_DUPFD, high) == high);
	fds_lost(high);
	CHECK(!fds_is_ours(high));
	close(high);
}

TEST(odd_numbers_are_not_ours)
{
	CHECK(!fds_is_ours(-1));
	CHECK(!fds_is_ours(1 << 20));
	CHECK(!fds_is_ours(__INT_MAX__));
}

static void fill(void *arg)
{
	int fds[256], n = 0, fd;

	(void)arg;
	close_range(3, ~0u, 0); /* what the test's caller left open */
	set_limit(256);
	while ((fd = fds_adopt(dup(0))) >= 0 && n < 256)
		fds[n++] = fd;
	CHECK_EQ(fd, -EMFILE);
	CHECK_EQ(n, 128);
	for (int i = 0; i < n; i++)
		CHECK(fds[i] >= 128 && fds[i] < 256 && fds_is_ours(fds[i]));
	/* The program's half is free: nothing was left behind by the failure. */
	CHECK((fd = dup(0)) >= 0 && fd < 128);
	close(fd);
	fds_close(fds[5]);
	CHECK_EQ(fds_adopt(dup(0)), fds[5]);
}

TEST(never_more_than_half)
{
	CHILD(fill, NULL);
}

static void fill_large(void *arg)
{
	int n = 0, fd = -1;

	(void)arg;
	set_limit(10000);
	while (n < 10000 && (fd = fds_adopt(dup(0))) >= 0)
		n++;
	CHECK_EQ(fd, -EMFILE);
	CHECK_EQ(n, 5000);
}

/* Under a large limit they begin lower, so the half must be counted. */
TEST(never_more_than_half_of_a_large_limit)
{
	struct rlimit limit;

	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < 10000)
		SKIP("the hard limit of descriptors is below 10000");
	CHILD(fill_large, NULL);
}

static void raise_limit(void *arg)
{
	int low, high;

	(void)arg;
	set_limit(128);
	low = fds_adopt(dup(0));
	set_limit(1024);
	high = fds_adopt(dup(0));
	CHECK(low >= 64 && low < 128);
	CHECK(high >= 512 && high < 1024);
	CHECK_EQ(fds_next(0), low);
	CHECK_EQ(fds_next(low + 1), high);
	set_limit(32);
	CHECK_EQ(fds_next(33), low);
	fds_close(low);
	CHECK_EQ(fds_next(0), high);
	CHECK_EQ(fds_next(high + 1), INT_MAX);
	fds_close(high);
	CHECK_EQ(fds_next(0), INT_MAX);
}

TEST(follows_a_raised_limit)
{
	CHILD(raise_limit, NULL);
}

static void inherited(void *arg)
{
	int fd = *(int *)arg;

	CHECK(fds_is_ours(fd));
	fds_close(fd);
	CHECK(!fds_is_ours(fd));
}

TEST(fork_copies_the_marks)
{
	int fd = fds_adopt(dup(0));

	CHILD(inherited, &fd);
	CHECK(fds_is_ours(fd));
	CHECK(fcntl(fd, F_GETFD) >= 0);
	fds_close(fd);
}

static void give_way(void *arg)
{
	int low, next, fd, below;

	(void)arg;
	close_range(3, ~0u, 0);
	CHECK_EQ(fds_tight, INT_MAX);
	set_limit(256);
	CHECK_EQ(fds_adopt(dup(0)), 255);
	low = fds_adopt(dup(0));
	CHECK_EQ(low, 254);
	CHECK_EQ(fds_tight, low - 16);
	while ((fd = dup(0)) < low - 17)
		REQUIRE(fd >= 0);
	CHECK(fds_excess(fd, &below) <= 0);
	next = dup(0);
	CHECK_EQ(next, fds_tight);
	CHECK_EQ(fds_excess(next, &below), 1);
	CHECK_EQ(below, low + 1);
	CHECK_EQ(fds_below(below), 1);
	CHECK_EQ(fds_below(255), 1);
	CHECK_EQ(fds_below(256), 2);
	CHECK_EQ(fds_below(INT_MAX), 2);
	/* None of ours may stand in the way of the program's next numbers. */
	CHECK_EQ(fds_adopt(dup(0)), -EMFILE);
	fd = fds_adopt_needed(dup(0));
	CHECK_EQ(fd, 253);
	fds_close(fd);
	fds_close(low);
	fds_close(255);
	CHECK_EQ(fds_count(), 0);
	CHECK_EQ(fds_tight, INT_MAX);
}

TEST(the_program_goes_first)
{
	CHILD(give_way, NULL);
}
