/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a piece of a unit test in a forked child, whose settings are read afresh. */
#ifndef VD_TESTS_UNIT_CHILD_H
#define VD_TESTS_UNIT_CHILD_H

#include <sys/wait.h>

#include "unit/test.h"

/* The child's failed checks count as one failure of the parent. */
static void child_run(const char *what, void (*body)(void *), void *arg)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		body(arg);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status != 0)
		test_fail(__FILE__, __LINE__, what);
}

#define CHILD(body, arg) child_run("child " #body "(" #arg ")", (body), (arg))

#endif
