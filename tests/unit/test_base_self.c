/* SPDX-License-Identifier: Apache-2.0 */
/* The process id is right in the process that asked before, and in each that comes of it. */
#include "unit/test.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/self.h"

static int child_agrees(pid_t pid)
{
	int status = -1;
	if (pid == 0)
		_exit(self_pid() == getpid() && self_pid() == getpid() ? 0 : 1);
	REQUIRE(pid > 0);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	return status == 0;
}

TEST(before_it_was_set_up)
{
	CHECK_EQ(self_pid(), getpid());
	CHECK(child_agrees(fork()));
}

TEST(in_every_kind_of_child)
{
	self_init();
	CHECK_EQ(self_pid(), getpid());
	CHECK_EQ(self_pid(), getpid());
	CHECK(child_agrees(fork()));
	/* Past the C library, and so past everything that could have been told of it. */
	CHECK(child_agrees((pid_t)syscall(SYS_fork)));
	CHECK(child_agrees((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)));
	CHECK_EQ(self_pid(), getpid());
}
