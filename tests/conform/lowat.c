/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT is raised, and lowered, while a call waits for bytes. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

struct receive {
	struct worker worker;
	int fd, flags;
	size_t len;
	_Atomic ssize_t result;
	int error;
};

enum { ASLEEP = -100 };

static void receive(void *arg)
{
	struct receive *r = arg;
	char buf[256];
	ssize_t n = recv(r->fd, buf, r->len, r->flags);
	r->error = errno;
	r->result = n;
}

static void show(const struct receive *r)
{
	wait_crowd_asleep(&r->worker.tid, 1);
	if (r->result == ASLEEP)
		say("it sleeps");
	else
		say("it has %zd", r->result);
}

static struct pair receive_start(struct receive *r, int flags)
{
	struct pair p = pair_warm_open();
	*r = (struct receive){.fd = p.s, .flags = flags, .len = 100, .result = ASLEEP};
	return p;
}

static void sleep_begins(struct receive *r)
{
	worker_start(&r->worker, receive, r);
	wait_crowd_asleep(&r->worker.tid, 1);
}

static void receive_end(struct receive *r, struct pair p)
{
	worker_join(&r->worker);
	errno = r->error;
	say_result("recv", r->result);
	mark(p.s, 1);
	pair_close(p);
}

static void send_some(struct pair p, size_t len, int queued)
{
	char buf[64] = {0};
	send_all(p.c, buf, len);
	wait_inq(p.s, queued);
}

static void raised(int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	sleep_begins(&r);
	mark(p.s, 50);
	show(&r);
	send_some(p, 10, 10);
	show(&r);
	send_all(p.c, "0123456789012345678901234567890123456789", 40);
	receive_end(&r, p);
}

CASE(lowat_raised, DIRECT)
{
	raised(0);
}

CASE(lowat_raised_peek, DIRECT)
{
	raised(MSG_PEEK);
}

static void lowered(int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	mark(p.s, 20);
	show(&r);
	mark(p.s, 5);
	receive_end(&r, p);
}

CASE(lowat_lowered, DIRECT)
{
	lowered(0);
}

CASE(lowat_lowered_peek, DIRECT)
{
	lowered(MSG_PEEK);
}

CASE(lowat_raised_end, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	receive_end(&r, p);
}

CASE(lowat_raised_reset, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct linger now = {1, 0};
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	NEED(close(p.c) == 0);
	worker_join(&r.worker);
	errno = r.error;
	say_result("recv", r.result);
	close(p.s);
}

/* What is there is taken when the time is over. */
CASE(lowat_raised_timeout, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct timeval soon = {1, 0};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	receive_end(&r, p);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Or when a signal comes. */
static void raised_signal(int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	struct sigaction sa = {.sa_handler = nothing, .sa_flags = flags};
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
	sleep_begins(&r);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	NEED(pthread_kill((pthread_t)r.worker.thread, SIGUSR1) == 0);
	receive_end(&r, p);
}

CASE(lowat_raised_signal, DIRECT)
{
	raised_signal(0);
	raised_signal(SA_RESTART);
}

/* A receive that begins when it is raised has the mark for its own. */
CASE(lowat_raised_before, DIRECT)
{
	struct receive r;
	struct pair p = receive_start(&r, 0);
	mark(p.s, 50);
	sleep_begins(&r);
	send_some(p, 10, 10);
	show(&r);
	send_some(p, 40, 0);
	receive_end(&r, p);
}

static void poll_there(void *arg)
{
	struct receive *r = arg;
	struct pollfd f = {r->fd, POLLIN, 0};
	r->result = poll(&f, 1, -1);
}

static void select_there(void *arg)
{
	struct receive *r = arg;
	fd_set in;
	FD_ZERO(&in);
	FD_SET(r->fd, &in);
	r->result = select(r->fd + 1, &in, NULL, NULL, NULL);
}

static void epoll_there(void *arg)
{
	struct receive *r = arg;
	struct epoll_event ev = {.events = EPOLLIN | (uint32_t)r->flags};
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, r->fd, &ev) == 0);
	r->result = epoll_wait(ep, &ev, 1, -1);
	close(ep);
}

static void raised_ready(void (*there)(void *), int flags)
{
	struct receive r;
	struct pair p = receive_start(&r, flags);
	worker_start(&r.worker, there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	mark(p.s, 50);
	send_some(p, 10, 10);
	show(&r);
	send_some(p, 40, 50);
	worker_join(&r.worker);
	say("ready: %zd", r.result);
	pair_close(p);
}

CASE(lowat_raised_poll, DIRECT)
{
	raised_ready(poll_there, 0);
}

CASE(lowat_raised_select, DIRECT)
{
	raised_ready(select_there, 0);
}

CASE(lowat_raised_epoll, DIRECT)
{
	raised_ready(epoll_there, 0);
}

CASE(lowat_raised_edge, DIRECT)
{
	raised_ready(epoll_there, EPOLLET);
}

/* ---- set while bytes are unread: these count as all others ---- */

static int ready_now(int fd)
{
	struct pollfd f = {fd, POLLIN, 0};
	return poll(&f, 1, 0);
}

static void over_unread(struct pair p, const char *what)
{
	say("%s", what);
	mark(p.s, 50);
	say_result("poll", ready_now(p.s));
	mark(p.s, 5);
	say_result("poll, less", ready_now(p.s));
	mark(p.s, 50);
	send_some(p, 40, 50);
	say_result("poll, more", ready_now(p.s));
}

CASE(lowat_set_over_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	send_some(p, 10, 10);
	over_unread(p, "unread");
	say_result("recv", recv(p.s, buf, 41, MSG_DONTWAIT));
	say_result("poll, rest", ready_now(p.s));
	say_result("recv", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_close(p);
}

static void peek_at(int fd, int offset)
{
	char buf[8] = {0};
	socklen_t len = sizeof offset;
	if (offset >= 0)
		NEED(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, len) == 0);
	say_result("peek", recv(fd, buf, 3, MSG_PEEK));
	say("%s", buf);
	NEED(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len) == 0);
	say("offset %d", offset);
}

CASE(peek_offset_set_over_unread, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = {0};
	send_all(p.c, "0123456789abcdef", 16);
	wait_inq(p.s, 16);
	peek_at(p.s, 4);
	peek_at(p.s, -1);
	say_result("recv", recv(p.s, buf, 5, 0));
	say("%s", buf);
	peek_at(p.s, -1);
	peek_at(p.s, 0);
	pair_close(p);
}

/* The other end is in a process that sleeps. */
static void send_and_wait(int fd, void *arg)
{
	char byte;
	(void)arg;
	send_all(fd, "0123456789", 10);
	NEED(read(fd, &byte, 1) == 1);
	send_all(fd, "0123456789012345678901234567890123456789", 40);
	NEED(read(fd, &byte, 1) == 1);
}

CASE(lowat_set_over_unread_of_another, DIRECT)
{
	pid_t pid;
	int fd = peer_start(send_and_wait, NULL, &pid);
	char buf[64];
	wait_inq(fd, 10);
	wait_asleep(pid, pid);
	mark(fd, 50);
	say_result("poll", ready_now(fd));
	send_all(fd, "x", 1);
	wait_inq(fd, 50);
	say_result("poll, more", ready_now(fd));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	send_all(fd, "x", 1);
	say("status %d", child_status(pid));
}

/* The sender has left shared memory, with bytes unread there, and sent more over TCP. */
CASE(lowat_set_over_both_ways, DIRECT)
{
	struct pair p = pair_warm_open();
	int pipe_ends[2], queued = -1;
	char buf[64];
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	NEED(pipe(pipe_ends) == 0);
	NEED(fcntl(p.c, F_SETFL, O_NONBLOCK) == 0);
	say_result("splice",
		   splice(p.c, NULL, pipe_ends[1], NULL, 10, SPLICE_F_NONBLOCK));
	send_all(p.c, "x", 1);
	wait_inq(p.s, 11);
	mark(p.s, 11);
	say_result("FIONREAD", ioctl(p.s, FIONREAD, &queued));
	say("%d", queued);
	say_result("poll", ready_now(p.s));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	pair_close(p);
}

/* ---- the sender makes no call for longer than the mark waits for it ---- */

static void send_when_told(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	char byte;
	send_all(fd, "0123456789", 10);
	for (int i = 0; i < 2; i++) {
		signal_wait(go[0]);
		send_pattern(fd, 0, i == 0 ? 20 : 60);
		signal_send(go[1]);
	}
	NEED(read(fd, &byte, 1) == 1);
}

/* TCP would not surely take what it has sent once more. */
static void send_by_little(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	int few = 4096;
	char byte;
	NEED(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
	send_all(fd, "0123456789", 10);
	signal_wait(go[0]);
	NEED(recv(fd, &byte, 1, MSG_DONTWAIT) < 0);
	signal_send(go[1]);
	signal_wait(go[0]);
	send_pattern(fd, 0, 45);
	signal_send(go[1]);
	NEED(read(fd, &byte, 1) == 1);
}

static int silent_start_as(void (*peer)(int fd, void *arg), struct signal_pipe *go,
			   pid_t *pid)
{
	go[0] = signal_pipe();
	go[1] = signal_pipe();
	int fd = peer_start(peer, go, pid);
	wait_inq(fd, 10);
	return fd;
}

static int silent_start(struct signal_pipe *go, pid_t *pid)
{
	int fd = silent_start_as(send_when_told, go, pid);
	mark(fd, 50);
	return fd;
}

static void silent_sends(struct signal_pipe *go, int fd, int queued)
{
	signal_send(go[0]);
	signal_wait(go[1]);
	wait_inq(fd, queued);
}

static void silent_end(int fd, pid_t pid)
{
	mark(fd, 1);
	send_all(fd, "x", 1);
	say("status %d", child_status(pid));
	close(fd);
}

CASE(lowat_set_over_unread_of_silent, DIRECT)
{
	struct signal_pipe go[2];
	pid_t pid;
	int fd = silent_start(go, &pid), ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN}, edge = {.events = EPOLLIN | EPOLLET};
	char buf[100];
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	say_result("poll", ready_now(fd));
	say_result("epoll", epoll_wait(ep, &ev, 1, 0));
	silent_sends(go, fd, 30);
	say_result("poll, more", ready_now(fd));
	say_result("epoll, more", epoll_wait(ep, &ev, 1, 0));
	NEED(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &edge) == 0);
	say_result("edge", epoll_wait(ep, &ev, 1, 0));
	silent_sends(go, fd, 90);
	say_result("edge, enough", epoll_wait(ep, &ev, 1, 0));
	say_result("edge, again", epoll_wait(ep, &ev, 1, 0));
	say_result("poll, enough", ready_now(fd));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	say("%.10s", buf);
	close(ep);
	silent_end(fd, pid);
}

/* A receive that sleeps leaves them, too, until it has waited for long enough. */
static void silent_receive(int flags, size_t before)
{
	struct receive r = {.flags = flags, .len = 100, .result = ASLEEP};
	struct signal_pipe go[2];
	pid_t pid;
	char buf[100];
	r.fd = silent_start(go, &pid);
	if (before > 0)
		say_result("at once", recv(r.fd, buf, before, flags | MSG_DONTWAIT));
	sleep_begins(&r);
	show(&r);
	signal_send(go[0]);
	signal_wait(go[1]);
	show(&r);
	signal_send(go[0]);
	worker_join(&r.worker);
	say("it has %zd", r.result);
	signal_wait(go[1]);
	say_result("rest", recv(r.fd, buf, sizeof buf, MSG_DONTWAIT));
	silent_end(r.fd, pid);
}

CASE(lowat_set_over_silent_receive, DIRECT)
{
	silent_receive(0, 0);
}

CASE(lowat_set_over_silent_peek, DIRECT)
{
	silent_receive(MSG_PEEK, 0);
}

/* One that has taken a part leaves the rest to the mark. */
CASE(lowat_set_over_silent_partly, DIRECT)
{
	silent_receive(0, 4);
}

CASE(lowat_set_over_silent_timeout, DIRECT)
{
	struct timeval soon = {0, 300000};
	struct signal_pipe go[2];
	pid_t pid;
	char buf[64];
	int fd = silent_start(go, &pid);
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
	say_result("few", recv(fd, buf, 4, 0));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	silent_sends(go, fd, 20);
	say_result("poll", ready_now(fd));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	silent_sends(go, fd, 60);
	say_result("at once", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	silent_end(fd, pid);
}

/* Its end, and a lower mark, are told at once. */
CASE(lowat_set_over_silent_lowered, DIRECT)
{
	struct signal_pipe go[2];
	struct receive r = {.result = ASLEEP};
	pid_t pid;
	int fd = silent_start(go, &pid);
	char buf[64];
	r.fd = fd;
	worker_start(&r.worker, poll_there, &r);
	show(&r);
	mark(fd, 10);
	worker_join(&r.worker);
	say("ready: %zd", r.result);
	mark(fd, 50);
	say_result("poll", ready_now(fd));
	r.result = ASLEEP;
	worker_start(&r.worker, epoll_there, &r);
	show(&r);
	NEED(kill(pid, SIGKILL) == 0);
	worker_join(&r.worker);
	say("ready: %zd, status %d", r.result, child_status(pid));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	close(fd);
}

/* An edge has been told of them, or of nothing: when there are enough, that is one. */
CASE(lowat_set_over_silent_refused, DIRECT)
{
	struct signal_pipe go[2];
	pid_t pid;
	int fd = silent_start_as(send_by_little, go, &pid);
	int before = epoll_create1(0), after = epoll_create1(0);
	struct epoll_event ev, edge = {.events = EPOLLIN | EPOLLET};
	char buf[100];
	NEED(epoll_ctl(before, EPOLL_CTL_ADD, fd, &edge) == 0);
	say_result("edge", epoll_wait(before, &ev, 1, 0));
	mark(fd, 50);
	NEED(epoll_ctl(after, EPOLL_CTL_ADD, fd, &edge) == 0);
	say_result("edge, few", epoll_wait(before, &ev, 1, 0));
	say_result("edge, few", epoll_wait(after, &ev, 1, 0));
	/* It answers, and has left shared memory. */
	silent_sends(go, fd, 10);
	say_result("edge, few", epoll_wait(before, &ev, 1, 0));
	say_result("edge, few", epoll_wait(after, &ev, 1, 0));
	silent_sends(go, fd, 55);
	say_result("edge", epoll_wait(before, &ev, 1, 0));
	say_result("edge", epoll_wait(after, &ev, 1, 0));
	say_result("recv", recv(fd, buf, sizeof buf, 0));
	close(before);
	close(after);
	silent_end(fd, pid);
}
