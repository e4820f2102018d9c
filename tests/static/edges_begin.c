/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, processes and programs that begin in ways that are seldom. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edges.h"

/* ---- much environment ---- */

#define SETTING	 "A"
#define SETTINGS 180000 /* whose pointers take more than the stack of a thread's calls */

static char *much[SETTINGS + 200];

static void fill_much(size_t count)
{
	size_t n = 0;

	for (; n < 190 && environ[n]; n++)
		much[n] = environ[n];
	for (size_t i = 0; i < count; i++)
		much[n++] = SETTING;
}

static void count_much(void)
{
	size_t n = 0;

	for (char **e = environ; *e; e++)
		n += strcmp(*e, SETTING) == 0;
	printf("%zu settings\n", n);
}

static void begin_with_much(void)
{
	static char *const args[] = {"edges", "count_much", NULL};

	execve("/proc/self/exe", args, much);
}

static int status_of_child(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return status;
}

static __attribute__((noinline)) void child_execs(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		begin_with_much();
		_exit(1);
	}
	printf("status %d\n", status_of_child(pid));
}

static size_t memory_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	size_t pages = 0;

	CHECK(f && fscanf(f, "%zu", &pages) == 1);
	fclose(f);
	return pages;
}

static void *execs(void *arg)
{
	for (int i = 0; i < 3; i++)
		child_execs();
	begin_with_much();
	return arg;
}

static void t_much(void)
{
	pthread_t thread;

	fill_much(SETTINGS);
	CHECK(pthread_create(&thread, NULL, execs, NULL) == 0);
	pthread_join(thread, NULL);
	CHECK(!"executed");
}

/* A row of children leaves no memory behind, but for the last one. */
static void t_much_often(void)
{
	size_t before = 0;

	fill_much(SETTINGS / 10);
	for (int i = 0; i < 20; i++) {
		if (i == 2)
			before = memory_pages();
		child_execs();
	}
	printf("grown by %ld pages\n", (long)(memory_pages() - before));
}

/* ---- where the kernel is to write a thread's id ---- */

static volatile int has_run;

static int runs(void *arg)
{
	has_run = 1;
	syscall(SYS_exit, 0);
	return arg != NULL;
}

static void t_bad_id(void)
{
	static char stack[65536] __attribute__((aligned(64)));
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
		    CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID |
		    CLONE_CHILD_CLEARTID;
	int is_made = clone(runs, stack + sizeof(stack), flags, NULL, (void *)8, NULL,
			    (void *)16) > 0;

	while (is_made && !has_run)
		usleep(1000);
	printf("made %d, has run %d\n", is_made, has_run);
}

/* ---- a child of vfork behind a filter ---- */

static _Atomic int is_filtered, is_over;

static void *makes_child_behind(void *arg)
{
	pid_t pid;

	while (!is_filtered)
		usleep(1000);
	pid = vfork();
	if (pid == 0)
		syscall(SYS_exit, 3);
	printf("status %d\n", WEXITSTATUS(status_of_child(pid)));
	usleep(100000);
	is_over = 1;
	return arg;
}

/* As linux/filter.h and linux/seccomp.h have it, which musl's compiler does not find. */
enum { LOAD = 0x20, JUMP_EQUAL = 0x15, RETURN = 6 };
#define SECCOMP_RET_KILL	  0x80000000
#define SECCOMP_RET_ALLOW	  0x7fff0000
#define SECCOMP_SET_MODE_FILTER	  1
#define SECCOMP_FILTER_FLAG_TSYNC 1
struct instruction {
	uint16_t code;
	uint8_t jt, jf;
	uint32_t k;
};

/* All calls but that one are allowed, to those threads that are there with the flag. */
static void filter(uint32_t but, unsigned flags)
{
	struct instruction lines[] = {{LOAD, 0, 0, 0},
				      {JUMP_EQUAL, 0, 1, but},
				      {RETURN, 0, 0, SECCOMP_RET_KILL},
				      {RETURN, 0, 0, SECCOMP_RET_ALLOW}};
	const struct {
		unsigned short count;
		struct instruction *of;
	} all = {4, lines};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &all) == 0);
}

static void vfork_behind_filter(uint32_t but, unsigned flags)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, makes_child_behind, NULL) == 0);
	filter(but, flags);
	is_filtered = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	printf("joined at its end: %d\n", is_over);
}

static void t_vfork_behind_filter(void)
{
	vfork_behind_filter(SYS_uselib, 0);
}

/* Nobody may ask who he is there. */
static void t_vfork_behind_all_filter(void)
{
	vfork_behind_filter(SYS_getpid, SECCOMP_FILTER_FLAG_TSYNC);
}

static void t_vfork_behind_own_filter(void)
{
	pid_t pid;

	filter(SYS_getpid, 0);
	for (int i = 0; i < 2; i++) {
		pid = vfork();
		if (pid == 0)
			syscall(SYS_exit, 4);
		printf("status %d\n", WEXITSTATUS(status_of_child(pid)));
	}
}

const struct edge_case edges_begin[] = {
	{"count_much", count_much},
	{"much", t_much},
	{"much_often", t_much_often},
	{"bad_id", t_bad_id},
	{"vfork_behind_filter", t_vfork_behind_filter},
	{"vfork_behind_all_filter", t_vfork_behind_all_filter},
	{"vfork_behind_own_filter", t_vfork_behind_own_filter},
	{NULL, NULL},
};
