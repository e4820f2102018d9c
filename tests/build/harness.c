/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that must fail, skip or pass, so that harness.py can see that the harness does.
 */
#include <fcntl.h>

#include "unit/test.h"

static int opened = -1;

TEST(passes)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQ(close(fd), 0);
	CHECK_STR("a", "a");
}

TEST(check)
{
	CHECK(1 == 2);
}

TEST(check_eq)
{
	CHECK_EQ(1, 2);
}

TEST(check_str)
{
	CHECK_STR("a", "b");
}

TEST(check_str_null)
{
	CHECK_STR(NULL, "b");
}

TEST(require)
{
	REQUIRE(1 == 2);
}

TEST(leak)
{
	opened = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST(closes_what_it_found)
{
	close(0);
}

TEST(settled)
{
	opened = open("/dev/null", O_RDONLY | O_CLOEXEC);
	FDS_SETTLED();
}

TEST(skips)
{
	SKIP("on purpose");
}
