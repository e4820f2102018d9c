/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: memory that cannot be used, given to calls behind a filter that the program has put on itself. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

/* Volatile, so that no compiler takes the calls for what never happens. */
static void *volatile const bad = (void *)8;
static const struct timespec zero;

static struct pair p;
static int ep;

static long poll_bad(void)
{
	return poll(bad, 1, 0);
}

static long ppoll_bad(void)
{
	return ppoll(bad, 1, &zero, NULL);
}

static long ppoll_number(void)
{
	return syscall(SYS_ppoll, bad, 1, bad, bad, 8);
}

static long select_bad(void)
{
	return select(5, bad, NULL, NULL, &(struct timeval){0});
}

static long select_number(void)
{
	return syscall(SYS_select, 5, bad, NULL, NULL, bad);
}

static long pselect_number(void)
{
	return syscall(SYS_pselect6, 5, bad, NULL, NULL, &zero, bad);
}

static long epoll_ctl_bad(void)
{
	return epoll_ctl(ep, EPOLL_CTL_MOD, p.s, bad);
}

static long epoll_wait_bad(void)
{
	return epoll_pwait2(ep, bad, 1, bad, NULL);
}

static long sendmsg_bad(void)
{
	return sendmsg(p.c, bad, 0);
}

static long sendmmsg_bad(void)
{
	return sendmmsg(p.c, bad, 1, 0);
}

static long recvmsg_bad(void)
{
	return recvmsg(p.c, bad, MSG_DONTWAIT);
}

static long writev_bad(void)
{
	return writev(p.c, bad, 1);
}

static long clone3_bad(void)
{
	return syscall(SYS_clone3, bad, 64);
}

static long io_submit_bad(void)
{
	return syscall(SYS_io_submit, 0, 1, bad);
}

static long prctl_bad(void)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, bad);
}

static long seccomp_bad(void)
{
	struct sock_fprog program = {1, bad};
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static char *const words[] = {"true", NULL};

static long execve_name(void)
{
	return execve(bad, words, environ);
}

static long execve_arguments(void)
{
	return execve("/bin/true", bad, environ);
}

static long execve_environment(void)
{
	return execve("/bin/true", words, bad);
}

static long execve_setting(void)
{
	char *settings[] = {"A=b", bad, NULL};
	return execve("/bin/true", words, settings);
}

static long execve_number(void)
{
	return syscall(SYS_execve, bad, bad, bad);
}

static long execveat_name(void)
{
	return execveat(AT_FDCWD, bad, words, environ, 0);
}

static long fexecve_environment(void)
{
	return fexecve(open("/bin/true", O_RDONLY), words, bad);
}

static long posix_spawn_environment(void)
{
	pid_t pid;
	return posix_spawn(&pid, "/bin/true", NULL, NULL, words, bad);
}

/* These are good, and it is executed. */
static long execve_good(void)
{
	char *settings[] = {"A=b", "", NULL};
	return execve("/bin/true", words, settings);
}

static const struct call {
	const char *name;
	long (*run)(void);
} calls[] = {
	{"poll", poll_bad},
	{"ppoll", ppoll_bad},
	{"ppoll by number", ppoll_number},
	{"select", select_bad},
	{"select by number", select_number},
	{"pselect by number", pselect_number},
	{"epoll_ctl", epoll_ctl_bad},
	{"epoll_pwait2", epoll_wait_bad},
	{"sendmsg", sendmsg_bad},
	{"sendmmsg", sendmmsg_bad},
	{"recvmsg", recvmsg_bad},
	{"writev", writev_bad},
	{"io_submit", io_submit_bad},
	{"prctl", prctl_bad},
	{"seccomp", seccomp_bad},
	{"execve, arguments", execve_arguments},
	{"execve, environment", execve_environment},
	{"execve, setting", execve_setting},
	{"fexecve", fexecve_environment},
	{"posix_spawn", posix_spawn_environment},
	{"execve, all good", execve_good},
	{NULL, NULL},
};

/* In a statically linked program these are looked at there, too. */
static const struct call looked_at[] = {
	{"clone3", clone3_bad},
	{"execve", execve_name},
	{"execve by number", execve_number},
	{"execveat", execveat_name},
	{NULL, NULL},
};

/* Allows everything. */
static void put_on(void)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {1, &all};

	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void make_each(const struct call *c)
{
	p = pair_warm_open();
	ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s,
		       &(struct epoll_event){.events = EPOLLIN}) == 0);
	for (; c->name; c++) {
		pid_t pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			put_on();
			say_as("child");
			say_result(c->name, c->run());
			exit(0);
		}
		say("%s: status %d", c->name, child_status(pid));
	}
	pair_close(p);
}

CASE(bad_behind_a_filter, DIRECT)
{
	make_each(calls);
}

CASE(bad_looked_at_behind_a_filter, DIRECT)
{
	make_each(looked_at);
}
