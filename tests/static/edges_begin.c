/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, processes and programs that begin in ways that are seldom. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

static void *execs_once(void *arg)
{
	child_execs();
	return arg;
}

/* Nor does a thread that ends behind its child. */
static void t_much_in_threads(void)
{
	size_t before = 0;
	pthread_t thread;

	fill_much(SETTINGS / 10);
	for (int i = 0; i < 62; i++) {
		if (i == 2)
			before = memory_pages();
		CHECK(pthread_create(&thread, NULL, execs_once, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	/* Each needs 36 pages. The stack of a thread or two may be given back late. */
	printf("grown: %d\n", (long)(memory_pages() - before) > 60 * 25);
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

/* ---- FS of a child that shares the memory ---- */

static long call(long nr, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

#define SET_FS 0x1002 /* of asm/prctl.h */
#define GET_FS 0x1003
static char other_fs[256] __attribute__((aligned(64)));
static uint64_t fs_of_child;

static uint64_t fs_now(void)
{
	uint64_t fs;

	CHECK(call(SYS_arch_prctl, GET_FS, (long)&fs, 0) == 0);
	return fs;
}

/* What lies there is the address itself, with both C libraries. */
static uint64_t fs_used(void)
{
	uint64_t fs;

	__asm__ volatile("movq %%fs:0, %0" : "=r"(fs));
	return fs;
}

static __attribute__((noinline)) long vfork_and_set(void)
{
	long pid = vfork();

	if (pid == 0) {
		call(SYS_arch_prctl, SET_FS, (long)other_fs, 0);
		call(SYS_write, ends_of.client, (long)"x", 1);
		call(SYS_arch_prctl, GET_FS, (long)&fs_of_child, 0);
		call(SYS_exit, fs_used() == (uint64_t)(uintptr_t)other_fs ? 6 : 7, 0, 0);
	}
	return pid;
}

/* The same, with another FS from its begin on. */
static __attribute__((noinline)) long clone_with(void)
{
	register long r10 __asm__("r10") = 0;
	register char *r8 __asm__("r8") = other_fs;
	long result;

	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "movl %[brk], %%eax\n\t"
			 "xorl %%edi, %%edi\n\t"
			 "syscall\n\t"
			 "movq %%fs:0, %%rax\n\t"
			 "movq %%rax, %[to]\n\t"
			 "movl %[exit], %%eax\n\t"
			 "movl $8, %%edi\n\t"
			 "syscall\n"
			 "1:"
			 : "=a"(result), [to] "=m"(fs_of_child)
			 : "0"((long)SYS_clone),
			   "D"((long)(CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD)),
			   "S"(0l), "d"(0l), "r"(r10),
			   "r"(r8), [brk] "i"(SYS_brk), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory", "cc");
	return result;
}

static void look_at_fs(long (*child)(void))
{
	uint64_t was = fs_used();
	int status;

	memcpy(other_fs, (void *)(uintptr_t)was, sizeof(other_fs));
	*(uint64_t *)(void *)other_fs = (uint64_t)(uintptr_t)other_fs;
	fs_of_child = 0;
	status = status_of_child((pid_t)child());
	CHECK(write(ends_of.client, "yy", 2) == 2);
	printf("child %d %d, parent %d %d\n", WEXITSTATUS(status),
	       fs_of_child == (uint64_t)(uintptr_t)other_fs, fs_used() == was,
	       fs_now() == was);
}

static void t_vfork_fs(void)
{
	make_pair();
	look_at_fs(vfork_and_set);
	look_at_fs(clone_with);
	look_at_fs(vfork_and_set);
}

const struct edge_case edges_begin[] = {
	{"vfork_fs", t_vfork_fs},
	{"count_much", count_much},
	{"much", t_much},
	{"much_often", t_much_often},
	{"much_in_threads", t_much_in_threads},
	{"bad_id", t_bad_id},
	{"vfork_behind_filter", t_vfork_behind_filter},
	{"vfork_behind_all_filter", t_vfork_behind_all_filter},
	{"vfork_behind_own_filter", t_vfork_behind_own_filter},
	{NULL, NULL},
};
