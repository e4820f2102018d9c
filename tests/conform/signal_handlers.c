/* SPDX-License-Identifier: Apache-2.0 */
/* Signal handlers: what they see, what may be asked about them, and sockets used in them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"

/* The old names are deprecated, and in use. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

sighandler_t bsd_signal(int sig, sighandler_t handler);
sighandler_t ssignal(int sig, sighandler_t handler);

static _Atomic int runs, last_sig, last_code, last_value;

static void one(int sig)
{
	last_sig = sig;
	runs++;
}

static void three(int sig, siginfo_t *info, void *context)
{
	(void)context;
	last_sig = sig;
	last_code = info->si_code;
	last_value = info->si_value.sival_int;
	runs++;
}

static const char *name_of(sighandler_t handler)
{
	if (handler == SIG_DFL)
		return "default";
	if (handler == SIG_IGN)
		return "ignore";
	if (handler == SIG_ERR)
		return errno_name(errno);
	if (handler == SIG_HOLD)
		return "hold";
	if (handler == one)
		return "one";
	return handler == (sighandler_t)(void (*)(void))three ? "three" : "unknown";
}

static void say_action(const char *what, int sig)
{
	struct sigaction act;
	unsigned long mask = 0;
	memset(&act, 0x55, sizeof act);
	if (sigaction(sig, NULL, &act) != 0) {
		say("%s %d: %s", what, sig, errno_name(errno));
		return;
	}
	for (int i = 1; i < NSIG; i++)
		mask |= sigismember(&act.sa_mask, i) == 1 ? 1ul << (i - 1) : 0;
	say("%s %d: %s, flags %#x, mask %#lx", what, sig, name_of(act.sa_handler),
	    act.sa_flags, mask);
}

static unsigned long mask_now(void)
{
	unsigned long mask = 0;
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask);
	return mask;
}

CASE(signal_queries, ANYWAY)
{
	static const int flags[] = {0,
				    SA_RESTART,
				    SA_SIGINFO,
				    SA_NODEFER | SA_ONSTACK,
				    (int)SA_RESETHAND | SA_RESTART | SA_NOCLDSTOP,
				    SA_SIGINFO | SA_RESTART | (int)SA_RESETHAND};
	static const int signals[] = {SIGHUP, SIGSEGV, SIGBUS, SIGCHLD, SIGKILL,
				      32,     64,      0,      -1,	65};
	for (size_t s = 0; s < sizeof signals / sizeof *signals; s++) {
		int sig = signals[s];
		say_action("first", sig);
		for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
			struct sigaction old = {.sa_handler = SIG_DFL}, act = old;
			act.sa_handler = one;
			act.sa_flags = flags[f];
			if (flags[f] & SA_SIGINFO)
				act.sa_sigaction = three;
			sigaddset(&act.sa_mask, SIGUSR1);
			sigaddset(&act.sa_mask, SIGKILL);
			say_result("set", sigaction(sig, &act, NULL));
			say_action("got", sig);
			act.sa_handler = f & 1 ? SIG_DFL : SIG_IGN;
			say_result("set", sigaction(sig, &act, &old));
			say("old %s %#x", name_of(old.sa_handler), old.sa_flags);
			say_action("got", sig);
		}
	}
}

CASE(signal_old_names, ANYWAY)
{
	static const struct {
		const char *name;
		sighandler_t (*set)(int, sighandler_t);
	} calls[] = {{"signal", signal},
		     {"bsd_signal", bsd_signal},
		     {"ssignal", ssignal},
		     {"sysv_signal", sysv_signal},
		     {"sigset", sigset}};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		say("%s: %s", calls[i].name, name_of(calls[i].set(SIGUSR1, one)));
		say_action("got", SIGUSR1);
		say("again: %s", name_of(calls[i].set(SIGUSR1, SIG_IGN)));
		say_action("got", SIGUSR1);
		say("again: %s", name_of(calls[i].set(SIGUSR1, SIG_DFL)));
		say("error: %s", name_of(calls[i].set(SIGUSR1, SIG_ERR)));
		say("error: %s", name_of(calls[i].set(SIGKILL, one)));
		say("error: %s", name_of(calls[i].set(33, one)));
		say("error: %s", name_of(calls[i].set(0, one)));
		say("error: %s", name_of(calls[i].set(65, one)));
	}
	say_result("siginterrupt", siginterrupt(SIGUSR2, 1));
	signal(SIGUSR2, one);
	say_action("got", SIGUSR2);
	say_result("siginterrupt", siginterrupt(SIGUSR2, 0));
	say_action("got", SIGUSR2);
	say_result("siginterrupt", siginterrupt(0, 0));
	say_result("sigignore", sigignore(SIGUSR2));
	say_action("got", SIGUSR2);
	say_result("sigignore", sigignore(SIGKILL));
	say("hold: %s", name_of(sigset(SIGUSR1, SIG_HOLD)));
	say("hold: %s", name_of(sigset(SIGUSR1, SIG_HOLD)));
	say("mask %#lx", mask_now());
	say("one: %s", name_of(sigset(SIGUSR1, one)));
	say("mask %#lx", mask_now());
}

CASE(signal_details, ANYWAY)
{
	struct sigaction act = {.sa_sigaction = three, .sa_flags = SA_SIGINFO};
	union sigval value = {.sival_int = 99};
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	NEED(sigqueue(getpid(), SIGUSR1, value) == 0);
	say("queued: %d %d %d", last_sig, last_code, last_value);
	NEED(kill(getpid(), SIGUSR1) == 0);
	say("killed: %d %d", last_sig, last_code);
	NEED(raise(SIGUSR1) == 0);
	say("raised: %d %d", last_sig, last_code);
	signal(SIGUSR1, one);
	NEED(raise(SIGUSR1) == 0);
	say("runs %d", runs);
}

static void reset_child(void)
{
	struct sigaction act = {.sa_handler = one, .sa_flags = (int)SA_RESETHAND};
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	raise(SIGUSR1);
	say("runs %d", runs);
	say_action("after", SIGUSR1);
	raise(SIGUSR1);
	say("not reached");
	_exit(0);
}

CASE(signal_resethand, ANYWAY)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		reset_child();
	}
	say("status %d", child_status(pid));
}

/* The child of vfork shares memory, but its handlers are its own. */
CASE(signal_vfork, ANYWAY)
{
	NEED(signal(SIGUSR1, one) == SIG_DFL);
	NEED(signal(SIGSEGV, one) == SIG_DFL);
	pid_t pid = vfork();
	NEED(pid >= 0);
	if (pid == 0) {
		signal(SIGUSR1, SIG_IGN);
		signal(SIGSEGV, SIG_DFL);
		raise(SIGUSR1);
		_exit(0);
	}
	say("status %d, runs %d", child_status(pid), runs);
	say_action("parent", SIGUSR1);
	say_action("parent", SIGSEGV);
	raise(SIGUSR1);
	say("runs %d", runs);
}

/* ---- sockets in handlers ---- */

/* A record: who wrote it, and its number; a handler's may come between two of main's. */
struct record {
	uint32_t who, number;
};

static int shared_fd = -1;
static uint32_t from_handler;

/*
 * With SA_NODEFER each handler asks for the next signal, and so many are one in another at most: signals that come by
 * themselves would fill the stack where the machine is too busy for one handler between two of them.
 */
#define NESTED_MOST 50
static const struct itimerspec storm_pace = {{0, 100000}, {0, 100000}},
			       storm_once = {{0, 0}, {0, 100000}};
static timer_t storm;
static bool storm_is_asked;

static void ask_next(void)
{
	if (storm_is_asked)
		timer_settime(storm, 0, &storm_once, NULL);
}

static void write_record(int sig)
{
	static _Atomic int busy;
	int saved = errno, depth = busy++;
	(void)sig;
	if (depth < NESTED_MOST)
		ask_next();
	if (depth == 0) {
		struct record r = {1, from_handler++};
		ssize_t n;
		do
			n = write(shared_fd, &r, sizeof r);
		while (n < 0 && errno == EINTR);
		if (n != sizeof r)
			broken("write in the handler");
	}
	busy--;
	if (depth == NESTED_MOST)
		ask_next();
	errno = saved;
}

static timer_t storm_start(int sig, sighandler_t handler, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};
	storm_is_asked = flags & SA_NODEFER;
	NEED(sigaction(sig, &act, NULL) == 0);
	NEED(timer_create(CLOCK_MONOTONIC, &event, &storm) == 0);
	NEED(timer_settime(storm, 0, storm_is_asked ? &storm_once : &storm_pace, NULL) ==
	     0);
	return storm;
}

#define STORM_SIGNALS 5000

static void count_records(int fd, void *arg)
{
	struct record r[64];
	uint32_t next[2] = {0, 0};
	ssize_t n, kept = 0;
	(void)arg;
	while ((n = recv(fd, (char *)r + kept, sizeof r - (size_t)kept, 0)) > 0) {
		kept += n;
		for (size_t i = 0; i < (size_t)kept / sizeof *r; i++) {
			NEED(r[i].who < 2);
			if (r[i].number != next[r[i].who]++)
				broken("a record is missing");
		}
		size_t rest = (size_t)kept % sizeof *r;
		memmove(r, (char *)r + (size_t)kept - rest, rest);
		kept = (ssize_t)rest;
	}
	NEED(n == 0 && kept == 0);
	NEED(send(fd, next, sizeof next, 0) == sizeof next);
}

static void write_storm(int flags)
{
	pid_t pid;
	uint32_t counts[2], number = 0;
	shared_fd = peer_start(count_records, NULL, &pid);
	unsigned long mask = mask_now();
	timer_t timer = storm_start(SIGUSR1, write_record, flags);
	while (*(_Atomic uint32_t *)&from_handler < STORM_SIGNALS) {
		struct record r = {0, number};
		ssize_t n = send(shared_fd, &r, sizeof r, 0);
		NEED(n == sizeof r || (n < 0 && errno == EINTR));
		number += n > 0;
	}
	NEED(timer_delete(timer) == 0);
	say("mask is as before: %d", mask_now() == mask);
	NEED(shutdown(shared_fd, SHUT_WR) == 0);
	recv_all(shared_fd, counts, sizeof counts);
	say("all records: %d", counts[0] == number && counts[1] == from_handler);
	say("status %d", child_status(pid));
}

CASE(signal_write_in_handler, DIRECT)
{
	write_storm(SA_RESTART);
}

CASE(signal_write_in_handler_interrupting, DIRECT)
{
	write_storm(0);
}

CASE(signal_write_in_handler_nodefer, DIRECT)
{
	write_storm(SA_NODEFER);
}

/* Handlers that leave by longjmp, from wherever they may run. */
static sigjmp_buf away;
static _Atomic int may_jump;

static void jump(int sig)
{
	(void)sig;
	runs++;
	if (may_jump) {
		may_jump = 0;
		siglongjmp(away, 1);
	}
}

CASE(signal_longjmp, DIRECT)
{
	struct pair p = pair_warm_open();
	static volatile int jumps;
	char buf[8];
	unsigned long mask = mask_now();
	timer_t timer = storm_start(SIGUSR1, jump, SA_RESTART);
	while (jumps < 1000) {
		if (sigsetjmp(away, 1) == 0) {
			may_jump = 1;
			for (;;) {
				send(p.c, "12345678", 8, MSG_DONTWAIT);
				recv(p.s, buf, 8, MSG_DONTWAIT);
			}
		}
		jumps = jumps + 1;
	}
	NEED(timer_delete(timer) == 0);
	say("mask is as before: %d", mask_now() == mask);
	while (recv(p.s, buf, 8, MSG_DONTWAIT) > 0)
		;
	send_all(p.c, "!", 1);
	do
		recv_all(p.s, buf, 1);
	while (*buf != '!');
	pair_warm(p);
	pair_close(p);
}

/* ---- which calls are interrupted ---- */

static void blocked_recv(void *arg)
{
	int fd = *(int *)arg;
	char c;
	ssize_t n = recv(fd, &c, 1, 0);
	*(int *)arg = n < 0 ? -errno : (int)n;
}

/* The handler that runs decides, not another that is installed. */
CASE(signal_interrupts, DIRECT)
{
	static const int flags[] = {0, SA_RESTART};
	for (int i = 0; i < 2; i++) {
		struct pair p = pair_warm_open();
		struct sigaction act = {.sa_handler = one, .sa_flags = flags[i]};
		struct sigaction other = {.sa_handler = one, .sa_flags = flags[!i]};
		struct worker t;
		int state = p.s;
		NEED(sigaction(SIGUSR1, &act, NULL) == 0);
		NEED(sigaction(SIGUSR2, &other, NULL) == 0);
		worker_start(&t, blocked_recv, &state);
		wait_asleep(getpid(), t.tid);
		runs = 0;
		pthread_kill(t.thread, SIGUSR1);
		while (runs == 0)
			usleep(100);
		if (flags[i])
			send_all(p.c, "x", 1);
		worker_join(&t);
		say("recv: %s", state < 0 ? errno_name(-state) : "a byte");
		pair_close(p);
	}
}

/* ---- urgent data comes with a signal, and is what the wait tells of ---- */

enum { URGENT_ROUNDS = 3, INTERRUPTED = 3 };

static int urgent_epoll(int fd)
{
	struct epoll_event ev = {.events = EPOLLPRI};
	int ep = epoll_create1(EPOLL_CLOEXEC), n;

	NEED(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	n = epoll_wait(ep, &ev, 1, -1);
	close(ep);
	return n;
}

static int urgent_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};

	return poll(&p, 1, -1);
}

static int urgent_select(int fd)
{
	fd_set except;

	FD_ZERO(&except);
	FD_SET(fd, &except);
	return select(fd + 1, NULL, NULL, &except, NULL);
}

/* On the first processor that this process may use, and with it whom it starts. */
static void run_on_one(void)
{
	cpu_set_t set;
	int first = 0;

	NEED(sched_getaffinity(0, sizeof(set), &set) == 0);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	NEED(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void waits_for_urgent(int fd, void *arg)
{
	int (**wait)(int fd) = arg;
	int n, interrupted = 0;

	NEED(fcntl(fd, F_SETOWN, getpid()) == 0);
	NEED(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	raise(SIGSTOP);
	while ((n = (*wait)(fd)) < 0 && errno == EINTR)
		interrupted++;
	NEED(n == 1);
	_exit(interrupted ? INTERRUPTED : 0);
}

/* Until it stops, for the one that traces it. Returns the signal, 0: at a system call. */
static int stop_of(pid_t pid)
{
	int status;

	NEED(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	return WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
}

static void continues(pid_t pid, int request, long sig)
{
	NEED(ptrace(request, pid, NULL, (void *)sig) == 0);
}

/* From one system call to the next, up to one in which it sleeps. */
static void goes_to_sleep(pid_t pid)
{
	siginfo_t stopped;

	do {
		continues(pid, PTRACE_SYSCALL, 0);
		wait_in_state(pid, pid, "St");
		stopped = (siginfo_t){0};
		NEED(waitid(P_PID, (id_t)pid, &stopped, WSTOPPED | WNOHANG | WNOWAIT) ==
		     0);
	} while (stopped.si_pid == pid && stop_of(pid) == 0);
	NEED(stopped.si_pid == 0);
}

static bool has_pending(pid_t pid, int sig)
{
	char path[64], line[256];
	unsigned long mask, all = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	NEED(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigPnd: %lx", &mask) == 1 ||
		    sscanf(line, "ShdPnd: %lx", &mask) == 1)
			all |= mask;
	fclose(f);
	return all >> (sig - 1) & 1;
}

/*
 * True: a wait was interrupted by the signal, although the byte was there before the process heard of either.
 * Whatever else wakes it for the byte, it stops there until both have come.
 */
static bool is_interrupted(int (*wait)(int fd))
{
	pid_t pid;
	int fd = peer_start(waits_for_urgent, &wait, &pid), sig, status;

	NEED(stop_of(pid) == SIGSTOP);
	NEED(ptrace(PTRACE_SETOPTIONS, pid, NULL,
		    (void *)(long)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) == 0);
	goes_to_sleep(pid);
	NEED(send(fd, "!", 1, MSG_OOB) == 1);
	sig = stop_of(pid);
	while (sig != SIGURG && !has_pending(pid, SIGURG))
		usleep(1000);
	continues(pid, PTRACE_CONT, sig);
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
		continues(pid, PTRACE_CONT, WSTOPSIG(status));
	NEED(WIFEXITED(status));
	close(fd);
	if (WEXITSTATUS(status) == INTERRUPTED)
		return true;
	NEED(WEXITSTATUS(status) == 0);
	return false;
}

static int urgent_rounds(int (*wait)(int fd))
{
	int interrupted = 0;

	for (int i = 0; i < URGENT_ROUNDS; i++)
		interrupted += is_interrupted(wait);
	return interrupted;
}

CASE(urgent_with_a_signal, DIRECT)
{
	struct sigaction act = {.sa_handler = one};

	NEED(sigaction(SIGURG, &act, NULL) == 0);
	run_on_one();
	say("epoll: %d", urgent_rounds(urgent_epoll));
	say("poll: %d", urgent_rounds(urgent_poll));
	say("select: %d", urgent_rounds(urgent_select));
}
