/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a signal, or a cancellation, that comes while a call sleeps. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

/* ---- a process that a signal ends, while the kernel holds a lock in a sleep of another thread ---- */

struct locker {
	int in, out;
};

static void run_splice(void *arg)
{
	struct locker *l = arg;
	say_result("splice", splice(l->in, NULL, l->out, NULL, 65536, 0));
}

/* The first thread waits for the pipe, with which the other sleeps: in state D. */
static _Noreturn void wait_for_pipe(struct signal_pipe up)
{
	struct pair p = pair_warm_open();
	struct signal_pipe pipe = signal_pipe();
	struct locker l = {p.s, pipe.fd[1]};
	struct worker t;
	worker_start(&t, run_splice, &l);
	wait_crowd_asleep(&t.tid, 1);
	signal_send(up);
	signal_wait(pipe);
	broken("the pipe is empty");
}

static void end_behind_splice(int sig)
{
	struct signal_pipe up = signal_pipe();
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		alarm(60);
		NEED(signal(sig, SIG_DFL) != SIG_ERR); /* nohup has it ignored */
		wait_for_pipe(up);
	}
	signal_wait(up);
	wait_in_state(pid, pid, "SD");
	NEED(kill(pid, sig) == 0);
	say("status %d", child_status(pid));
}

CASE(ended_behind_a_splice, ANYWAY)
{
	end_behind_splice(SIGTERM);
	end_behind_splice(SIGINT);
	end_behind_splice(SIGHUP);
}

/* ---- the first process of a pid namespace, which such a signal does not even wake ---- */

CASE(ended_not_as_the_first, DIRECT)
{
	struct pair p = pair_warm_open();
	struct signal_pipe go = signal_pipe();
	struct pollfd look = {go.fd[0], POLLIN, 0};
	if (unshare(CLONE_NEWPID) != 0)
		skip("no pid namespace can be made");
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		say("process %d", (int)getpid());
		say_result("poll", poll(&look, 1, -1));
		_exit(0);
	}
	wait_asleep(pid, pid);
	NEED(kill(pid, SIGTERM) == 0);
	wait_in_state(pid, pid, "SZ");
	signal_send(go);
	say("status %d", child_status(pid));
	pair_close(p);
}

/* ---- a thread that is cancelled amid a call that has moved something: musl and later glibc say how much ---- */

static void cancel_amid(void (*run)(void *), size_t len, int flags, const char *first)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = len, .flags = flags, .result = -2};
	struct worker t;
	char rest[8];
	call_start(&t, run, &c);
	if (first) {
		send_all(p.c, first, strlen(first));
		wait_inq(p.s, flags & MSG_PEEK ? (int)strlen(first) : 0);
		wait_crowd_asleep(&t.tid, 1);
	}
	NEED(pthread_cancel(t.thread) == 0);
	worker_join(&t);
	say("moved %s", c.result == -2 ? "is not told"
			: c.result < 0 ? "nothing"
			: c.result > 8 ? "much"
				       : (char[]){(char)('0' + c.result), 0});
	if (first)
		say_result("left", recv(p.s, rest, sizeof rest, MSG_DONTWAIT));
	close(p.s);
	close(p.c);
}

CASE(ended_amid_a_part, DIRECT)
{
	cancel_amid(call_recv, 8, MSG_WAITALL, "ab");
	cancel_amid(call_recv, 8, MSG_WAITALL | MSG_PEEK, "ab");
	cancel_amid(call_send, BULK_ROOM, 0, NULL);
	cancel_amid(call_recv, 8, 0, NULL);
	cancel_amid(call_recv, 0, 0, NULL);
}

/* ---- dprintf, which glibc since 2.37 has go on behind a handler ---- */

static _Atomic int struck;

static void on_signal(int sig)
{
	(void)sig;
	struck++;
}

static void run_dprintf(void *arg)
{
	struct call *c = arg;
	ssize_t n = dprintf(c->fd, "%s", "text");
	c->error = errno;
	__atomic_store_n(&c->result, n, __ATOMIC_RELEASE);
}

/* Until there is room for nothing, and stays so. */
static void fill(int fd)
{
	for (int full = 0; full < 20; full++)
		for (; send(fd, bulk_room(), 1 << 16, MSG_DONTWAIT) > 0; full = 0)
			;
}

CASE(ended_dprintf, DIRECT)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .result = -2};
	struct worker t;
	struck = 0;
	NEED(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_signal}, NULL) == 0);
	fill(p.s);
	call_start(&t, run_dprintf, &c);
	NEED(pthread_kill(t.thread, SIGUSR2) == 0);
	while (struck == 0)
		usleep(100);
	wait_crowd_asleep(&t.tid, 1);
	while (__atomic_load_n(&c.result, __ATOMIC_ACQUIRE) == -2)
		if (recv(p.c, bulk_room(), BULK_ROOM, MSG_DONTWAIT) < 0)
			usleep(100);
	call_end(&t, &c);
	close(p.s);
	close(p.c);
}

/* ---- the last one out of a closed connection lingers ---- */

static double seconds(void)
{
	struct timespec now;
	NEED(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double ended_at;

static void recv_and_time(void *arg)
{
	struct call *c = arg;
	call_recv(c);
	ended_at = seconds();
}

/* The other threads, which make and close connections, do not wait with it. */
CASE(ended_lingering, ANYWAY)
{
	const struct linger two_seconds = {.l_onoff = 1, .l_linger = 2};
	struct pair p = pair_open(), other;
	struct call c = {.fd = p.s, .len = 1};
	struct worker t;
	double begin, made;
	char byte;
	/* In shared memory there, and on TCP back, with more than the peer takes. */
	for (int i = 0; i < 300; i++) {
		send_all(p.c, "x", 1);
		recv_all(p.s, &byte, 1);
	}
	while (send(p.s, bulk_room(), BULK, MSG_DONTWAIT) > 0)
		;
	NEED(setsockopt(p.s, SOL_SOCKET, SO_LINGER, &two_seconds, sizeof(two_seconds)) ==
	     0);
	call_start(&t, recv_and_time, &c);
	NEED(close(p.s) == 0);
	begin = seconds();
	send_all(p.c, "x", 1);
	usleep(100000);
	other = pair_warm_open();
	NEED(close(dup(other.c)) == 0);
	pair_close(other);
	made = seconds();
	call_end(&t, &c);
	say("the others waited: %d", made - begin > 1.5);
	say("it has lingered: %d", ended_at - begin > 1.5);
	close(p.c);
}
