/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, processes and programs that begin in ways that are seldom. */
#include <pthread.h>
#include <string.h>
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

const struct edge_case edges_begin[] = {
	{"count_much", count_much},
	{"much", t_much},
	{"much_often", t_much_often},
	{NULL, NULL},
};
