/* SPDX-License-Identifier: Apache-2.0 */
/* Alternate stacks of a statically linked program: where handlers run behind others, and amid them. */
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "edges.h"

#define EACH 65536

static char stacks[2][EACH];
static volatile int where;
static jmp_buf back;
static int pipes[2];

static int stack_at(const char *at)
{
	for (int i = 0; i < 2; i++)
		if (at > stacks[i] && at < stacks[i] + EACH)
			return i;
	return -1;
}

static void stays(int sig)
{
	char here;

	(void)sig;
	where = stack_at(&here);
}

static void leaves(int sig)
{
	stays(sig);
	_longjmp(back, 1);
}

static long use(int i)
{
	const stack_t s = {.ss_sp = stacks[i], .ss_size = EACH};

	return sigaltstack(&s, NULL);
}

static void say_stack(const char *when)
{
	stack_t s;

	CHECK(sigaltstack(NULL, &s) == 0);
	printf("%s: %d, the last on %d\n", when, stack_at((char *)s.ss_sp + 1), where);
}

static void send_self(int sig)
{
	CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig) == 0);
}

/* ---- amid a handler that is not on it ---- */

static void raises(int sig)
{
	(void)sig;
	send_self(SIGUSR2);
	say_stack("amid");
}

static void writes_and_raises(int sig)
{
	CHECK(write(pipes[1], "x", 1) == 1);
	raises(sig);
}

static void t_nested(void)
{
	char b;

	CHECK(pipe(pipes) == 0 && use(0) == 0);
	set(SIGUSR2, stays, SA_ONSTACK);
	set(SIGUSR1, raises, 0);
	send_self(SIGUSR1);
	say_stack("behind");
	where = -1;
	set(SIGALRM, writes_and_raises, SA_RESTART);
	fire(20000);
	CHECK(read(pipes[0], &b, 1) == 1);
	say_stack("behind a call");
}

/* ---- behind handlers that have left ---- */

static void t_left_twice(void)
{
	CHECK(use(0) == 0);
	set(SIGUSR1, leaves, SA_ONSTACK | SA_NODEFER);
	for (int i = 0; i < 4; i++) {
		if (!_setjmp(back))
			send_self(SIGUSR1);
		if (i > 1)
			say_stack("left twice");
	}
}

/* ---- behind a handler that has set another one ---- */

static void sets(int sig)
{
	(void)sig;
	CHECK(use(1) == 0);
	say_stack("set");
}

/* The kernel puts the one before back, and what is on it is on an alternate stack. */
static void t_set_in_handler(void)
{
	char b;

	CHECK(pipe(pipes) == 0 && use(0) == 0);
	set(SIGUSR1, sets, 0);
	send_self(SIGUSR1);
	say_stack("behind");
	send_self(SIGUSR1);
	set(SIGALRM, writes_and_raises, SA_ONSTACK | SA_RESTART);
	set(SIGUSR2, stays, SA_ONSTACK);
	for (int i = 0; i < 3; i++) {
		fire(20000);
		CHECK(read(pipes[0], &b, 1) == 1 && b == 'x');
		say_stack("behind a call");
	}
}

const struct edge_case edges_stack[] = {
	{"stack_nested", t_nested},
	{"stack_left_twice", t_left_twice},
	{"stack_set_in_handler", t_set_in_handler},
	{NULL, NULL},
};
