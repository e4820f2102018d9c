/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a program that locks all of its memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

#define PAIRS 4
/* This program has 110 MB, of which most is never touched. */
#define LITTLE_KB  (160 << 10)
#define LIMIT	   (160u << 20)
#define OTHER_USER 65534

static void say_size(const char *when, const char *name)
{
	long kb = own_kb(name);
	say("%s: %s %s", when, name,
	    kb < 0	     ? "unknown"
	    : kb == 0	     ? "none"
	    : kb < LITTLE_KB ? "little"
			     : "much");
	if (kb >= LITTLE_KB)
		say("%ld KiB", kb);
}

static void connections(const char *when)
{
	struct pair p[PAIRS];
	for (int i = 0; i < PAIRS; i++)
		p[i] = pair_warm_open();
	send_pattern(p[0].c, 0, 100000);
	recv_pattern(p[0].s, 0, 100000);
	say_size(when, "VmLck");
	say_size(when, "VmRSS");
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
}

/* Locked is what the program has, not what Viaduct keeps for sockets that there could be. */
CASE(all_memory_locked, DIRECT)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY)
		skip("memory that may be locked is limited");
	connections("before");
	say_result("mlockall now", mlockall(MCL_CURRENT));
	connections("now");
	say_result("mlockall both", mlockall(MCL_CURRENT | MCL_FUTURE));
	connections("both");
	say_result("mlockall on fault", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
	connections("on fault");
	say_result("munlockall", munlockall());
	say_size("unlocked", "VmLck");
	say_result("system call", syscall(SYS_mlockall, MCL_FUTURE));
	connections("later");
	/* What is mapped is locked, as without us. */
	long before = own_kb("VmLck");
	void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(map != MAP_FAILED);
	say("a mapping: %ld KiB", own_kb("VmLck") - before);
	say_result("mlockall now", mlockall(MCL_CURRENT));
	before = own_kb("VmLck");
	NEED(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		  0) != MAP_FAILED);
	say("another one: %ld KiB", own_kb("VmLck") - before);
	say_result("munlockall", munlockall());
}

CASE(all_memory_locked_over_fork, DIRECT)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	if (geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY)
		skip("memory that may be locked is limited");
	say_result("mlockall", mlockall(MCL_CURRENT | MCL_FUTURE));
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		say_size("inherited", "VmLck");
		connections("child");
		_exit(0);
	}
	say("status %d", child_status(pid));
	connections("parent");
}

/* Without /proc nobody can tell what is whose. */
CASE(all_memory_locked_in_a_cage, ANYWAY)
{
	if (geteuid() != 0)
		skip("no right to change the root");
	char here[] = "/tmp/conform.XXXXXX";
	NEED(mkdtemp(here));
	pid_t pid = fork();
	if (pid == 0) {
		static char data[1 << 20];
		say_as("child");
		NEED(chroot(here) == 0 && chdir("/") == 0);
		memset(data, 1, sizeof data);
		say_result("mlockall", mlockall(MCL_CURRENT));
		/* What is locked is not given away. */
		uintptr_t page = ((uintptr_t)data + 4095) & ~(uintptr_t)4095;
		say_result("madvise", madvise((void *)page, 4096, MADV_DONTNEED));
		_exit(0);
	}
	say("status %d", child_status(pid));
	rmdir(here);
}

static void within(rlim_t bytes)
{
	struct rlimit limit = {bytes, bytes};
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		NEED(geteuid() != 0 ||
		     setresuid(OTHER_USER, OTHER_USER, OTHER_USER) == 0);
		say_result("mlockall now", mlockall(MCL_CURRENT));
		say_result("mlockall later", mlockall(MCL_FUTURE));
		say_result("munlockall", munlockall());
		_exit(0);
	}
	say("status %d", child_status(pid));
}

CASE(all_memory_within_a_limit, ANYWAY)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	say_result("no flags", mlockall(0));
	say_result("unknown flags", mlockall(64 | MCL_CURRENT));
	say_result("nothing to be locked on fault", mlockall(MCL_ONFAULT));
	/* Few may have so much; a smaller program's way is in tests/unit/test_base_pageable.c. */
	if (limit.rlim_max >= LIMIT)
		within(LIMIT);
	within(65536);
	within(0);
}
