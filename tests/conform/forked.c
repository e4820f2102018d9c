/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a fork while a call sleeps, also one by a handler that has interrupted that very call. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "call.h"

/* A child has nothing of a connection that was closed before it was made, though one sleeps on it still. */
CASE(forked_closed, DIRECT)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 1};
	struct signal_pipe go = signal_pipe();
	struct worker t;
	char byte;
	worker_start(&t, call_recv, &c);
	wait_crowd_asleep(&t.tid, 1);
	NEED(close(p.s) == 0);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		close(p.c);
		signal_wait(go);
		_exit(0);
	}
	send_all(p.c, "x", 1);
	call_end(&t, &c);
	/* Else it waits for the child. */
	alarm(20);
	say_result("end", recv(p.c, &byte, 1, 0));
	alarm(0);
	signal_send(go);
	say("status %d", child_status(pid));
	close(p.c);
}

/* ---- a handler forks amid a call ---- */

static ssize_t amid_recv(int fd)
{
	return recv(fd, bulk_room(), 10, 0);
}

static ssize_t amid_peek(int fd)
{
	return recv(fd, bulk_room(), 10, MSG_PEEK | MSG_WAITALL);
}

static ssize_t amid_recvmmsg(int fd)
{
	struct iovec iov = {bulk_room(), 10};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}},
			       {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}}};
	return recvmmsg(fd, m, 2, 0, NULL);
}

static ssize_t amid_send(int fd)
{
	return send(fd, bulk_room(), BULK, 0);
}

static ssize_t amid_writev(int fd)
{
	struct iovec iov[2] = {{bulk_room(), BULK / 2}, {bulk_room(), BULK / 2}};
	return writev(fd, iov, 2);
}

static ssize_t amid_sendfile(int fd)
{
	int file = memfd_create("amid", 0);
	NEED(file >= 0 && ftruncate(file, BULK) == 0);
	ssize_t n = sendfile(fd, file, NULL, BULK);
	int error = errno;
	close(file);
	errno = error;
	return n;
}

static ssize_t amid_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, -1);
}

static ssize_t amid_select(int fd)
{
	fd_set in;
	FD_ZERO(&in);
	FD_SET(fd, &in);
	return select(fd + 1, &in, NULL, NULL, NULL);
}

static ssize_t amid_epoll(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(0);
	NEED(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
	ssize_t n = epoll_wait(epfd, &ev, 1, -1);
	int error = errno;
	close(epfd);
	errno = error;
	return n;
}

static const struct {
	const char *name;
	ssize_t (*run)(int fd);
} calls[] = {{"recv", amid_recv}, {"peek", amid_peek},	   {"recvmmsg", amid_recvmmsg},
	     {"send", amid_send}, {"writev", amid_writev}, {"sendfile", amid_sendfile},
	     {"poll", amid_poll}, {"select", amid_select}, {"epoll", amid_epoll}};
enum { CALLS = sizeof calls / sizeof *calls, ROUNDS = 300 };

struct amid {
	struct pair p;
	ssize_t (*run)(int fd);
	bool child_stays; /* the child uses the connection, and else its parent does */
	struct signal_pipe closed, go;
	ssize_t result;
	int error;
};

static volatile pid_t forked;

static void fork_now(int sig)
{
	(void)sig;
	forked = fork();
}

static void answer_all(int fd)
{
	char byte;
	for (int i = 0; i < ROUNDS; i++) {
		recv_all(fd, &byte, 1);
		send_all(fd, "y", 1);
	}
	close(fd);
}

/* The child, in which there is this thread alone, comes out of the call as its parent does. */
static void call_and_fork(void *arg)
{
	struct amid *a = arg;
	a->result = a->run(a->p.s);
	a->error = errno;
	if (forked != 0)
		return;
	close(a->p.c);
	if (a->child_stays) {
		signal_wait(a->closed);
		answer_all(a->p.s);
	} else {
		close(a->p.s);
		signal_send(a->closed);
	}
	signal_wait(a->go);
	_exit(0);
}

static void say_amid(const char *name, const struct amid *a)
{
	errno = a->error;
	if (a->result > 0)
		say("%s: some: %d", name, a->result < BULK);
	else
		say_result(name, a->result);
	if (a->result > 0)
		read_bulk(a->p.c, (size_t)a->result);
}

static void answer(void *arg)
{
	answer_all(((struct amid *)arg)->p.s);
}

static void fork_amid(unsigned call, struct pair p, bool child_stays)
{
	struct sigaction act = {.sa_handler = fork_now};
	struct amid a = {p, calls[call].run, child_stays, signal_pipe(), signal_pipe(), 0,
			 0};
	struct worker t;
	char byte;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	forked = -1;
	worker_start(&t, call_and_fork, &a);
	wait_crowd_asleep(&t.tid, 1);
	NEED(pthread_kill(t.thread, SIGUSR1) == 0);
	worker_join(&t);
	say_amid(calls[call].name, &a);
	/* Else one waits for the other. */
	alarm(20);
	if (child_stays) {
		close(p.s);
		signal_send(a.closed);
	} else {
		signal_wait(a.closed);
		worker_start(&t, answer, &a);
	}
	for (int i = 0; i < ROUNDS; i++) {
		send_all(p.c, "x", 1);
		recv_all(p.c, &byte, 1);
	}
	say_result("end", recv(p.c, &byte, 1, 0));
	alarm(0);
	close(p.c);
	if (!child_stays)
		worker_join(&t);
	signal_send(a.go);
	say("status %d", child_status(forked));
}

CASE(forked_amid, DIRECT)
{
	for (unsigned call = 0; call < CALLS; call++)
		fork_amid(call, pair_warm_open(), false);
}

CASE(forked_amid_child, DIRECT)
{
	for (unsigned call = 0; call < CALLS; call++)
		fork_amid(call, pair_warm_open(), true);
}

/* The call sleeps in the kernel. */
CASE(forked_amid_new, ANYWAY)
{
	for (unsigned call = 0; call < CALLS; call++)
		fork_amid(call, pair_open(), false);
}

CASE(forked_amid_new_child, ANYWAY)
{
	for (unsigned call = 0; call < CALLS; call++)
		fork_amid(call, pair_open(), true);
}

/* ---- a holder that does not answer ---- */

static double used_s(void)
{
	struct timespec t;

	NEED(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * A child sleeps on shared connections, and is stopped or killed there. Bytes that come do not keep this process,
 * which waits for room, from sleeping.
 */
static void waits_beside(int sig, bool polls)
{
	struct pair p[2] = {pair_warm_open(), pair_warm_open()};
	struct timeval limit = {.tv_sec = 1};
	struct pollfd bytes[2] = {{.fd = p[0].s, .events = POLLIN},
				  {.fd = p[1].s, .events = POLLIN}};
	struct pollfd room[2] = {{.fd = p[0].s, .events = POLLOUT},
				 {.fd = p[1].s, .events = POLLOUT}};
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0)
		_exit(poll(bytes, 2, -1) > 0 ? 0 : 1);
	wait_asleep(pid, pid);
	NEED(kill(pid, sig) == 0);
	NEED(waitpid(pid, NULL, WUNTRACED) == pid);
	for (int i = 0; i < 2; i++) {
		send_until_no_room(p[i].s);
		send_all(p[i].c, "xyz", 3);
	}
	NEED(setsockopt(p[0].s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
	double before = used_s();
	if (polls)
		say_result("poll", poll(room, 2, 1000));
	else
		say_result("send", send(p[0].s, "x", 1, 0));
	say("%s", used_s() - before < 0.3 ? "slept" : "was busy");
	if (sig == SIGSTOP) {
		NEED(kill(pid, SIGCONT) == 0);
		say("status %d", child_status(pid));
	}
	for (int i = 0; i < 2; i++) {
		say_result("recv", recv(p[i].s, bulk_room(), 3, 0));
		pair_close(p[i]);
	}
}

CASE(forked_stopped_send, DIRECT)
{
	waits_beside(SIGSTOP, false);
}

CASE(forked_stopped_poll, DIRECT)
{
	waits_beside(SIGSTOP, true);
}

CASE(forked_killed_send, DIRECT)
{
	waits_beside(SIGKILL, false);
}

CASE(forked_killed_poll, DIRECT)
{
	waits_beside(SIGKILL, true);
}
