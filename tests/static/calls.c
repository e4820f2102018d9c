/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what a statically linked program brings along, and Viaduct has to live beside. */
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- one end echoes, in a thread ---- */

static void echo(void *arg)
{
	int fd = *(int *)arg;
	char buf[512];
	ssize_t n;

	for (;;) {
		n = recv(fd, buf, sizeof buf, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		send_all(fd, buf, (size_t)n);
	}
}

static void ask(int fd, int times)
{
	for (int i = 0; i < times; i++) {
		send_pattern(fd, (uint64_t)i, 1 + (size_t)i % 300);
		recv_pattern(fd, (uint64_t)i, 1 + (size_t)i % 300);
	}
}

struct echoed {
	struct pair p;
	struct worker w;
};

static void echoed_open(struct echoed *e)
{
	e->p = pair_warm_open();
	worker_start(&e->w, echo, &e->p.s);
}

static void echoed_close(struct echoed *e)
{
	NEED(shutdown(e->p.c, SHUT_WR) == 0);
	worker_join(&e->w);
	pair_close(e->p);
}

/* ---- signals at any place ---- */

static _Thread_local int own = 7;
static _Atomic int came;

static double sum(double x)
{
	double s = 0;

	for (int i = 1; i < 50; i++)
		s += x / i;
	return s;
}

static void count(int sig)
{
	int saved = errno;
	volatile double d = sum(sig);

	if (own != 7 || d != sum(sig))
		_exit(9);
	came++;
	errno = saved;
}

static void storm(void (*handler)(int), int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
	const struct itimerval every = {{0, handler ? 200 : 0}, {0, handler ? 200 : 0}};

	if (handler)
		NEED(sigaction(SIGALRM, &act, NULL) == 0);
	NEED(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void storm_on_registers(bool has_threads)
{
	struct echoed e;
	double want = sum(3.5);

	echoed_open(&e);
	storm(count, SA_RESTART);
	for (int i = 0; i < 20; i++) {
		if (has_threads) {
			struct echoed more;

			echoed_open(&more);
			ask(more.p.c, 5);
			echoed_close(&more);
		}
		ask(e.p.c, 50);
		NEED(sum(3.5) == want && own == 7);
	}
	storm(NULL, 0);
	say("came: %d", came > 0);
	echoed_close(&e);
}

CASE(static_storm, DIRECT)
{
	storm_on_registers(false);
}

CASE(static_storm_threads, DIRECT)
{
	storm_on_registers(true);
}

static struct pair inner;
static _Atomic bool is_nested;

/* It makes calls of its own amid the one that it has interrupted. */
static void talk(int sig)
{
	int saved = errno;
	char got[20];

	(void)sig;
	if (is_nested)
		return;
	is_nested = true;
	send_all(inner.c, "twenty bytes of text", 20);
	recv_all(inner.s, got, 20);
	NEED(!memcmp(got, "twenty bytes of text", 20));
	is_nested = false;
	came++;
	errno = saved;
}

static void storm_of_calls(int flags)
{
	static char stack[65536];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack}, now;
	sigset_t alarms;
	struct echoed e;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	NEED(sigaltstack(&alternate, NULL) == 0);
	inner = pair_warm_open();
	NEED(sigprocmask(SIG_BLOCK, &alarms, NULL) == 0);
	echoed_open(&e); /* its thread has no alternate stack */
	NEED(sigprocmask(SIG_UNBLOCK, &alarms, NULL) == 0);
	storm(talk, flags);
	for (int i = 0; i < 20; i++)
		ask(e.p.c, 50);
	storm(NULL, 0);
	NEED(sigaltstack(NULL, &now) == 0);
	say("came: %d, alternate stack: %d, flags %d", came > 0, now.ss_sp == stack,
	    now.ss_flags);
	echoed_close(&e);
	pair_close(inner);
}

CASE(static_storm_calls, DIRECT)
{
	storm_of_calls(SA_RESTART);
}

CASE(static_storm_calls_alternate, DIRECT)
{
	storm_of_calls(SA_RESTART | SA_ONSTACK);
}

CASE(static_storm_calls_nested, DIRECT)
{
	storm_of_calls(SA_RESTART | SA_ONSTACK | SA_NODEFER);
}

/* ---- threads and processes ---- */

static void *thrice(void *arg)
{
	NEED(own == 7);
	own = 8;
	return (void *)((long)arg * 3);
}

static void many_threads(int rounds)
{
	for (int i = 0; i < rounds; i++) {
		pthread_t thread[4], detached;
		void *result;

		for (long k = 0; k < 4; k++)
			NEED(pthread_create(&thread[k], NULL, thrice, (void *)k) == 0);
		for (long k = 0; k < 4; k++) {
			NEED(pthread_join(thread[k], &result) == 0);
			NEED((long)result == 3 * k);
		}
		NEED(pthread_create(&detached, NULL, thrice, NULL) == 0);
		NEED(pthread_detach(detached) == 0);
	}
}

CASE(static_threads, DIRECT)
{
	struct echoed e;

	echoed_open(&e);
	for (int i = 0; i < 20; i++) {
		many_threads(5);
		ask(e.p.c, 3);
	}
	echoed_close(&e);
}

/* The child has its thread alone, and can begin others. */
CASE(static_forks_among_threads, DIRECT)
{
	struct echoed e[3];

	for (int i = 0; i < 3; i++)
		echoed_open(&e[i]);
	storm(count, SA_RESTART);
	for (int i = 0; i < 20; i++) {
		pid_t pid;

		for (int k = 0; k < 3; k++)
			ask(e[k].p.c, 5);
		pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			storm(NULL, 0);
			many_threads(2);
			_exit(4);
		}
		NEED(child_status(pid) == 4);
	}
	storm(NULL, 0);
	for (int i = 0; i < 3; i++)
		echoed_close(&e[i]);
}

/* By the bare call, as C libraries to come may fork. */
CASE(static_clone3, DIRECT)
{
	struct pair p = pair_warm_open();
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t tid = -1, pid;

	args.flags = CLONE_PARENT_SETTID;
	args.parent_tid = (uint64_t)&tid;
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
	NEED(pid >= 0);
	if (pid == 0) {
		send_pattern(p.c, 0, 300);
		_exit(5);
	}
	recv_pattern(p.s, 0, 300);
	say("told: %d, status %d", tid == pid, child_status(pid));
	args.flags = CLONE_THREAD;
	say_result("half a thread", syscall(SYS_clone3, &args, sizeof args));
	say_result("too short", syscall(SYS_clone3, &args, 8));
	send_pattern(p.s, 0, 300);
	recv_pattern(p.c, 0, 300);
	pair_close(p);
}

/* ---- locks that pass on at an end ---- */

struct robust {
	pthread_mutex_t lock[2];
};

static void *die_with(void *arg)
{
	struct robust *r = arg;

	NEED(pthread_mutex_lock(&r->lock[0]) == 0);
	NEED(pthread_mutex_lock(&r->lock[1]) == 0);
	return NULL;
}

static void take_over(struct robust *r)
{
	for (int i = 0; i < 2; i++) {
		errno = pthread_mutex_lock(&r->lock[i]);
		say_result("lock", errno ? -1 : 0);
		NEED(pthread_mutex_consistent(&r->lock[i]) == 0);
		NEED(pthread_mutex_unlock(&r->lock[i]) == 0);
	}
}

CASE(static_robust, DIRECT)
{
	struct robust *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct echoed e;
	pthread_mutexattr_t attr;
	pthread_t thread;
	pid_t pid;

	NEED(r != MAP_FAILED && pthread_mutexattr_init(&attr) == 0);
	NEED(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) == 0);
	NEED(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) == 0);
	for (int i = 0; i < 2; i++)
		NEED(pthread_mutex_init(&r->lock[i], &attr) == 0);
	echoed_open(&e);
	ask(e.p.c, 5);
	for (int how = 0; how < 3; how++) {
		pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			die_with(r);
			if (how == 2) {
				NEED(pthread_create(&thread, NULL, thrice, NULL) == 0);
				syscall(SYS_exit, 0); /* of this thread alone */
			}
			if (how == 1)
				raise(SIGKILL);
			_exit(0);
		}
		say("status %d", child_status(pid));
		take_over(r);
	}
	for (int i = 0; i < 3; i++) {
		NEED(pthread_create(&thread, NULL, die_with, r) == 0);
		NEED(pthread_join(thread, NULL) == 0);
		take_over(r);
	}
	/* It waits for a lock while the owner ends. */
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		die_with(r);
		usleep(50000);
		_exit(0);
	}
	usleep(20000);
	take_over(r);
	NEED(child_status(pid) == 0);
	echoed_close(&e);
}

/* ---- frames that are left ---- */

static int left_frames;

static void note(int *frame)
{
	left_frames += *frame;
}

static __attribute__((noinline)) void leave_deep(int fd, int depth)
{
	__attribute__((cleanup(note), unused)) int frame = 1;

	ask(fd, 1);
	if (depth == 0)
		pthread_exit((void *)17L);
	leave_deep(fd, depth - 1);
}

static void *leave(void *arg)
{
	leave_deep(*(int *)arg, 5);
	return NULL;
}

CASE(static_unwound, DIRECT)
{
	struct echoed e;
	pthread_t thread;
	void *result;

	echoed_open(&e);
	NEED(pthread_create(&thread, NULL, leave, &e.p.c) == 0);
	NEED(pthread_join(thread, &result) == 0);
	say("result %ld, frames %d", (long)result, left_frames);
	echoed_close(&e);
}

/* ---- a call that the C library makes in all threads, by a signal of its own ---- */

static bool all_are(uid_t uid)
{
	char line[256];
	FILE *out = popen("cat /proc/$PPID/task/*/status | grep Uid", "r");
	bool good = out;

	while (out && fgets(line, sizeof line, out)) {
		unsigned real = 0;

		good = good && sscanf(line, "Uid: %u", &real) == 1 && real == uid;
	}
	if (out)
		pclose(out);
	return good;
}

CASE(static_users, ANYWAY)
{
	struct echoed e[3];
	uid_t uid = getuid() ? getuid() : 65534;

	for (int i = 0; i < 3; i++) {
		echoed_open(&e[i]);
		wait_asleep(getpid(), e[i].w.tid);
	}
	say_result("setresuid", setresuid(uid, uid, uid));
	say("all: %d", all_are(uid));
	for (int i = 0; i < 3; i++) {
		ask(e[i].p.c, 5);
		echoed_close(&e[i]);
	}
}
