/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what connections take of the memory that a program, its core file or the machine may
 * have. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "conform/cases.h"

/* Memory files are files to RLIMIT_FSIZE, whose signal would end the program. */
CASE(file_size_limit, ON_TCP)
{
	struct rlimit limit = {65536, 65536};
	NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	struct pair p = pair_warm_open();
	pair_close(p);
	say("goes on");
}

static rlim_t own_size(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	NEED(f && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Half of the address space that the program may have is left to it. */
CASE(address_space_limit, ON_TCP)
{
	rlim_t size = own_size(), more = 4 << 20;
	struct rlimit limit = {2 * size + more, 2 * size + more};
	NEED(setrlimit(RLIMIT_AS, &limit) == 0);
	for (int i = 0; i < 8; i++)
		pair_warm_open();
	say("%d", mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
			  MAP_FAILED);
}

/* What connections leave behind is none of the data that the program may have. */
CASE(data_limit, DIRECT)
{
	enum { PAIRS = 8 };
	const size_t more = 24 << 20;
	rlim_t bytes = (rlim_t)own_kb("VmData") * 1024 + more;
	struct rlimit limit = {bytes, bytes};
	struct pair p[PAIRS];
	NEED(setrlimit(RLIMIT_DATA, &limit) == 0);
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
	say("%d", mmap(NULL, more / 2, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
}

extern char __data_start[], _end[];

/* Writable memory that a core file of this process would have, but for this program's own
 * variables. */
static long dumped_kb(void)
{
	char line[512], access[8] = "";
	long kb = -((_end - __data_start) / 1024), size = 0;
	FILE *f = fopen("/proc/self/smaps", "r");
	NEED(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*[0-9a-f]-%*[0-9a-f] %7s", access) == 1)
			continue;
		sscanf(line, "Size: %ld", &size);
		if (!strncmp(line, "VmFlags:", 8) && access[1] == 'w' &&
		    !strstr(line, " dd"))
			kb += size;
	}
	fclose(f);
	return kb;
}

static void say_dumped(const char *when)
{
	const long enough = 32 << 10;
	long kb = dumped_kb();
	say("%s: %s", when, kb < enough ? "little" : "much");
	if (kb >= enough)
		say("%ld KiB", kb);
}

/* What Viaduct maps in advance does not fill the disk when the program crashes. */
CASE(core_file, DIRECT)
{
	enum { PAIRS = 8 };
	struct pair p[PAIRS];
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	say_dumped("open");
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
	say_dumped("closed");
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		say_dumped("forked");
		_exit(0);
	}
	say("status %d", child_status(pid));
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
}

/* Of what the kernel has promised, to all processes. */
static long promised_kb(void)
{
	char line[128];
	long kb = -1;
	FILE *f = fopen("/proc/meminfo", "r");
	NEED(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "Committed_AS: %ld", &kb);
	fclose(f);
	NEED(kb >= 0);
	return kb;
}

/* Where it promises no more than there is (vm.overcommit_memory=2) a process needs little more than
 * without us, and a closed connection nothing. For a machine on which nothing else runs. */
CASE(memory_is_promised, DIRECT)
{
	enum { PAIRS = 8, CHILDREN = 2, ENOUGH_KB = 12 << 10 };
	struct pair p[PAIRS];
	pid_t pids[CHILDREN];
	FILE *f = fopen("/proc/sys/vm/overcommit_memory", "r");
	if (!f || getc(f) != '2')
		skip("this machine promises more memory than there is");
	fclose(f);
	struct signal_pipe up = signal_pipe();
	pair_close(pair_warm_open());
	long before = promised_kb(), more;
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
	more = promised_kb() - before;
	say("connections: %s", more < ENOUGH_KB ? "little" : "much");
	if (more >= ENOUGH_KB)
		say("%ld KiB", more);
	before = promised_kb();
	for (int i = 0; i < CHILDREN; i++) {
		pids[i] = fork();
		NEED(pids[i] >= 0);
		if (pids[i] == 0) {
			signal_send(up);
			pause();
			_exit(0);
		}
		signal_wait(up);
	}
	/* But for this program's own variables. */
	more = (promised_kb() - before) / CHILDREN - (_end - __data_start) / 1024;
	for (int i = 0; i < CHILDREN; i++) {
		kill(pids[i], SIGKILL);
		child_status(pids[i]);
	}
	say("a child: %s", more < ENOUGH_KB ? "little" : "much");
	if (more >= ENOUGH_KB)
		say("%ld KiB", more);
}
