/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in which a call sleeps: a thread or a signal ends that. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "differential.h"

static atomic_int broken_pipes, urgents;

static void on_pipe(int number)
{
	(void)number;
	atomic_fetch_add(&broken_pipes, 1);
}

void signals_prepare(void)
{
	struct sigaction a = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};
	/* What a peer that goes on sends may come late, while pthread_create blocks it: then it is not
	 * ignored at once, and wakes another thread. */
	struct sigaction quiet = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP};
	NEED(sigaction(SIGPIPE, &a, NULL) == 0);
	NEED(sigaction(SIGCHLD, &quiet, NULL) == 0);
}

void signals_tell(void)
{
	int n = atomic_exchange(&broken_pipes, 0);
	if (n)
		tell("SIGPIPE: %d", n);
}

/* ---- a thread that sleeps in a call ---- */

struct sleeper {
	int fd;
	unsigned way;
	size_t len;
	_Atomic pid_t tid;
	ssize_t r;
	int err;
	uint8_t bytes[512];
};

static ssize_t sleep_in(struct sleeper *s)
{
	struct pollfd p = {s->fd, POLLIN, 0};
	fd_set in;
	struct iovec v = {s->bytes, s->len};
	struct epoll_event ev = {EPOLLIN, {.fd = s->fd}};
	ssize_t r;
	switch (s->way) {
	case 0:
		return recv(s->fd, s->bytes, s->len, 0);
	case 1:
		return recv(s->fd, s->bytes, s->len, MSG_WAITALL);
	case 2:
		r = poll(&p, 1, -1);
		return r == 1 ? p.revents : r;
	case 3:
		FD_ZERO(&in);
		FD_SET(s->fd, &in);
		return select(s->fd + 1, &in, NULL, NULL, NULL);
	case 4:
		return recv(s->fd, s->bytes, s->len, MSG_PEEK);
	case 5: {
		int e = out_of_the_way(epoll_create1(EPOLL_CLOEXEC));
		NEED(epoll_ctl(e, EPOLL_CTL_ADD, s->fd, &ev) == 0);
		r = epoll_wait(e, &ev, 1, -1);
		close(e);
		return r == 1 ? (ssize_t)ev.events : r;
	}
	default:
		return readv(s->fd, &v, 1);
	}
}

static void *sleeper_run(void *arg)
{
	struct sleeper *s = arg;
	s->tid = (pid_t)syscall(SYS_gettid);
	s->r = sleep_in(s);
	s->err = errno;
	return NULL;
}

static void wait_asleep(pid_t tid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	for (int i = 0; i < 20000; i++) {
		FILE *f = fopen(path, "re");
		if (!f)
			return;
		char *got = fgets(line, sizeof line, f);
		fclose(f);
		if (!got || !strrchr(line, ')') || strrchr(line, ')')[2] == 'S')
			return;
		usleep(50);
	}
}

static void op_thread(struct dice *d)
{
	static const char *const ways[] = {"recv", "waitall", "poll", "select",
					   "peek", "epoll",   "readv"};
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || unread(s) || is_nonblocking(s->fd) ||
	    room_to_send(other, true) < 1000 ||
	    raw_option(s->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		tell("nothing");
		return;
	}
	struct sleeper t = {.fd = s->fd, .way = dice(d, 7), .len = 1 + dice(d, 500)};
	uint8_t bytes[512];
	pthread_t thread;
	unsigned end = dice(d, 4);
	NEED(pthread_create(&thread, NULL, sleeper_run, &t) == 0);
	while (!t.tid)
		usleep(20);
	wait_asleep(t.tid);
	ssize_t n = 0;
	if (end) {
		fill_bytes(other, bytes, t.len);
		n = send(other->fd, bytes, t.len, 0);
		was_sent(other, n);
	} else {
		NEED(shutdown(other->fd, SHUT_WR) == 0);
		end_of(other)->shut_write = true;
	}
	NEED(pthread_join(thread, NULL) == 0);
	errno = t.err;
	tell("%s(%d, %zu) after %s = %s: %08x", ways[t.way], s->fd, t.len,
	     end ? "send" : "shutdown", result(t.r), checksum(t.bytes, t.len));
	if (t.way == 0 || t.way == 1 || t.way == 6)
		was_received(s, t.r);
}

/* ---- a signal in a sleep ---- */

static int handler_fd = -1;
static atomic_int handled;

static void on_alarm(int number)
{
	(void)number;
	int err = errno;
	/* Only the first sends. */
	if (atomic_fetch_add(&handled, 1) == 0 && handler_fd >= 0)
		send(handler_fd, "from the handler", 16, MSG_NOSIGNAL);
	errno = err;
}

static bool has_timeout(int fd)
{
	struct timeval t = {0, 0};
	socklen_t len = sizeof t;
	raw_call(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&t, (long)&len);
	return t.tv_sec || t.tv_usec;
}

static void op_signal(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	bool restarts = once_in(d, 2);
	unsigned way = dice(d, 3);
	if (!s || unread(s) || is_nonblocking(s->fd) ||
	    room_to_send(other, true) < 1000 ||
	    raw_option(s->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		tell("nothing");
		return;
	}
	struct sigaction a = {.sa_handler = on_alarm,
			      .sa_flags = restarts ? SA_RESTART : 0},
			 was;
	struct itimerval t = {{0, 3000}, {0, 3000}}, none = {{0, 0}, {0, 0}};
	char buf[64];
	struct pollfd p = {s->fd, POLLIN, 0};
	handled = 0;
	/* With a timeout a call is not restarted. */
	restarts = restarts && way != 1 && !has_timeout(s->fd);
	a.sa_flags = restarts ? SA_RESTART : 0;
	handler_fd = restarts ? other->fd : -1;
	NEED(sigaction(SIGALRM, &a, &was) == 0);
	/* In the end one comes while the call sleeps. */
	NEED(setitimer(ITIMER_REAL, &t, NULL) == 0);
	ssize_t n = way == 0   ? recv(s->fd, buf, sizeof buf, 0)
		    : way == 1 ? poll(&p, 1, -1)
			       : read(s->fd, buf, sizeof buf);
	int err = errno;
	NEED(setitimer(ITIMER_REAL, &none, NULL) == 0);
	NEED(sigaction(SIGALRM, &was, NULL) == 0);
	errno = err;
	tell("%s(%d)%s = %s", way == 1 ? "poll" : "recv", s->fd,
	     restarts ? ", RESTART" : "", result(n));
	(void)urgents;
}

static void op_recv_timeout(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || unread(s) || is_nonblocking(s->fd)) {
		tell("nothing");
		return;
	}
	struct timeval t = {0, 4000}, none = {0, 0};
	char buf[8];
	int r = setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	ssize_t n = recv(s->fd, buf, sizeof buf, once_in(d, 3) ? MSG_WAITALL : 0);
	tell("(%d) = %s", s->fd, result(n));
	r |= setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
	tell("SO_RCVTIMEO(%d) = %s", s->fd, result(r));
}

const struct op ops_thread[] = {
	{"thread", op_thread, 8},
	{"signal", op_signal, 2},
	{"recv-timeout", op_recv_timeout, 2},
	{NULL, NULL, 0},
};
