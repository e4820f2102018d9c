/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are opened whose names others choose. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/regular.h"
#include "unit/test.h"

static int opened(const char *path)
{
	int fd = regular_open(path);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

TEST(a_file)
{
	CHECK_EQ(opened("/etc/passwd"), 0);
	/* The link leads to a file elsewhere. */
	CHECK_EQ(opened("/proc/self/exe"), 0);
	CHECK_EQ(opened("/nowhere/at/all"), -ENOENT);
}

TEST(no_regular_file)
{
	char fifo[] = "/tmp/viaduct-test-XXXXXX";

	REQUIRE(mkdtemp(fifo) && rmdir(fifo) == 0 && mkfifo(fifo, 0600) == 0);
	CHECK_EQ(opened(fifo), -ENOEXEC);
	unlink(fifo);
	CHECK_EQ(opened("/dev/null"), -ENOEXEC);
	CHECK_EQ(opened("/tmp"), -ENOEXEC);
}

/* Reading /proc/kmsg takes messages away, and a pipe of tracefs does not end. */
TEST(files_of_the_kernel)
{
	CHECK_EQ(opened("/proc/self/status"), -ENOEXEC);
	CHECK_EQ(opened("/proc/sys/kernel/ostype"), -ENOEXEC);
	if (access("/sys/kernel/uevent_seqnum", F_OK) == 0)
		CHECK_EQ(opened("/sys/kernel/uevent_seqnum"), -ENOEXEC);
}
