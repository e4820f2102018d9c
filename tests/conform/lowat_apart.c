/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT over bytes of a peer that has left, with urgent data, several threads, other ends. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

static int mark_told(int fd)
{
	int bytes = -1;
	socklen_t len = sizeof bytes;
	NEED(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, &len) == 0);
	return bytes;
}

static void leave(int fd)
{
	int pipe_ends[2];
	NEED(pipe(pipe_ends) == 0);
	NEED(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	NEED(splice(fd, NULL, pipe_ends[1], NULL, 10, SPLICE_F_NONBLOCK) < 0);
	NEED(fcntl(fd, F_SETFL, 0) == 0);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
}

/* 10 bytes by the ring, and 5 behind them by TCP. */
static struct pair left_open(void)
{
	struct pair p = pair_warm_open();
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	leave(p.c);
	send_all(p.c, "abcde", 5);
	wait_inq(p.s, 15);
	return p;
}

static int ready_now(int fd)
{
	struct pollfd f = {fd, POLLIN, 0};
	return poll(&f, 1, 0);
}

static void more(struct pair p, size_t len, int queued)
{
	char buf[64];
	memset(buf, '.', sizeof buf);
	send_all(p.c, buf, len);
	wait_inq(p.s, queued);
}

/* A receive ends before urgent data, whatever the mark. */
CASE(lowat_apart_urgent, DIRECT)
{
	struct pair p = left_open();
	char buf[100];
	mark(p.s, 50);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	wait_events(p.s, POLLPRI);
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say_result("urgent", recv(p.s, buf, 1, MSG_OOB));
	pair_close(p);
}

/* As it stands amid what comes, and once it has been taken. */
static void urgent_amid(bool taken)
{
	struct pair p = left_open();
	char buf[100];
	mark(p.s, 50);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	send_pattern(p.c, 0, 60);
	wait_events(p.s, POLLPRI);
	wait_events(p.s, POLLIN);
	if (taken)
		say_result("urgent", recv(p.s, buf, 1, MSG_OOB));
	else
		say_result("peek", recv(p.s, buf, sizeof buf, MSG_PEEK));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	if (!taken)
		say_result("urgent", recv(p.s, buf, 1, MSG_OOB));
	pair_close(p);
}

CASE(lowat_apart_urgent_amid, DIRECT)
{
	urgent_amid(false);
}

CASE(lowat_apart_urgent_taken, DIRECT)
{
	urgent_amid(true);
}

struct reader {
	struct worker worker;
	int fd, flags, error;
	ssize_t result;
	size_t len;
};

static void recv_there(void *arg)
{
	struct reader *r = arg;
	static char buf[65536];
	r->result = recv(r->fd, buf, r->len, r->flags);
	r->error = errno;
}

CASE(lowat_apart_urgent_asleep, DIRECT)
{
	struct pair p = left_open();
	struct reader r = {.fd = p.s, .len = 100};
	mark(p.s, 50);
	worker_start(&r.worker, recv_there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	worker_join(&r.worker);
	errno = r.error;
	say_result("recv", r.result);
	pair_close(p);
}

struct looker {
	struct worker worker;
	int fd;
	_Atomic bool ends;
};

static void look(void *arg)
{
	struct looker *l = arg;
	while (!l->ends)
		ready_now(l->fd);
}

/* What one thread sets holds, whatever another does. */
CASE(lowat_apart_threads, DIRECT)
{
	struct pair p = left_open();
	struct looker l = {.fd = p.s};
	int other = 0;
	mark(p.s, 50);
	worker_start(&l.worker, look, &l);
	for (int i = 0; i < 20000; i++) {
		int bytes = i % 3 == 0 ? 1 : 20 + i % 50;
		mark(p.s, bytes);
		other += mark_told(p.s) != bytes;
	}
	l.ends = true;
	worker_join(&l.worker);
	say("others: %d", other);
	pair_close(p);
}

/* A number that is closed meanwhile. */
CASE(lowat_apart_closed, DIRECT)
{
	struct pair p = left_open();
	struct reader r = {.fd = p.s, .len = 100};
	mark(p.s, 50);
	worker_start(&r.worker, recv_there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	close(p.s);
	send_pattern(p.c, 0, 60);
	worker_join(&r.worker);
	say_result("recv", r.result);
	close(p.c);
}

CASE(lowat_apart_closed_before, DIRECT)
{
	struct pair p = pair_warm_open();
	struct reader r = {.fd = p.s, .len = 100};
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	mark(p.s, 50);
	worker_start(&r.worker, recv_there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	close(p.s);
	leave(p.c);
	send_pattern(p.c, 0, 60);
	worker_join(&r.worker);
	say_result("recv", r.result);
	close(p.c);
}

static int handled_fd;
static void shut_there(int sig)
{
	(void)sig;
	shutdown(handled_fd, SHUT_RD);
}

static void nothing(int sig)
{
	(void)sig;
}

static void ends_in_handler(void (*handler)(int), int flags)
{
	struct pair p = left_open();
	struct reader r = {.fd = p.s, .len = 100};
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};
	handled_fd = p.s;
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
	mark(p.s, 50);
	worker_start(&r.worker, recv_there, &r);
	wait_crowd_asleep(&r.worker.tid, 1);
	NEED(pthread_kill((pthread_t)r.worker.thread, SIGUSR1) == 0);
	worker_join(&r.worker);
	errno = r.error;
	say_result("recv", r.result);
	pair_close(p);
}

CASE(lowat_apart_signal_shut, DIRECT)
{
	ends_in_handler(shut_there, 0);
}

/* It has bytes: the kernel does not begin it anew, whatever the handler's flags. */
CASE(lowat_apart_signal_restarts, DIRECT)
{
	ends_in_handler(nothing, 0);
	ends_in_handler(nothing, SA_RESTART);
}

CASE(lowat_apart_told, DIRECT)
{
	struct pair p = left_open();
	char buf[100];
	unsigned char raw[8];
	mark(p.s, 50);
	for (int n = 0; n < 8; n++) {
		socklen_t len = (socklen_t)n;
		memset(raw, 7, sizeof raw);
		int r = getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, raw, &len);
		say("%d %d: %d %d %d %d %d", r, (int)len, raw[0], raw[1], raw[2], raw[3],
		    raw[4]);
	}
	/* The length lies in the value. */
	for (size_t at = 0; at < sizeof raw - sizeof(socklen_t); at++) {
		socklen_t four = sizeof(int);
		memset(raw, 0, sizeof raw);
		memcpy(raw + at, &four, sizeof four);
		int r = getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, raw, (void *)(raw + at));
		say("%d: %d %d %d %d %d %d", r, raw[0], raw[1], raw[2], raw[3], raw[4],
		    raw[5]);
	}
	socklen_t len = (socklen_t)-1;
	say_result("bad", getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, raw, &len));
	len = 4;
	say_result("bad", getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, (void *)8, &len));
	say_result("bad", getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, raw, (void *)8));
	say_result("bad", setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, raw, 2));
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 0);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 50);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, -1);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 0x7fffffff);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 10);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 15);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 16);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	mark(p.s, 1);
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	mark(p.s, 30);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	more(p, 29, 29);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	more(p, 1, 30);
	say("mark %d, %d", mark_told(p.s), ready_now(p.s));
	pair_close(p);
}

__attribute__((weak)) void viaduct_test_bounce(int fd);

static void show_ready(struct pair p, size_t len, int queued)
{
	if (len > 0)
		more(p, len, queued);
	say("%d: %d", queued, ready_now(p.s));
}

/* The ring has enough, and each byte behind it is an edge. */
CASE(lowat_apart_edge, DIRECT)
{
	struct pair p = left_open();
	char buf[4];
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int ep = epoll_create1(0);
	mark(p.s, 8);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev) == 0);
	say("enough %d", epoll_wait(ep, &ev, 1, 0));
	say("again %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 16);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	more(p, 1, 17);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say("part %d, mark %d", epoll_wait(ep, &ev, 1, 0), mark_told(p.s));
	more(p, 1, 14);
	say("more %d", epoll_wait(ep, &ev, 1, 0));
	close(ep);
	pair_close(p);
}

/* The mark outlives its connection. */
CASE(lowat_apart_dissolved, DIRECT)
{
	struct pair p = left_open();
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	mark(p.s, 50);
	say("few %d", ready_now(p.s));
	NEED(connect(p.s, &nobody, sizeof nobody) == 0);
	say("mark %d", mark_told(p.s));
	close(p.c);
	uint16_t port;
	int l = listen_any(AF_INET, &port);
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	NEED(connect(p.s, (struct sockaddr *)&to, sizeof to) == 0);
	p.c = accept(l, NULL, NULL);
	NEED(p.c >= 0);
	close(l);
	more(p, 45, 45);
	say("few %d", ready_now(p.s));
	more(p, 5, 50);
	say("enough %d", ready_now(p.s));
	pair_close(p);
}

/* TCP first, then the ring, then TCP. */
CASE(lowat_apart_between, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[200];
	if (viaduct_test_bounce)
		viaduct_test_bounce(p.c);
	send_all(p.c, "012345678", 9);
	wait_inq(p.s, 9);
	for (int i = 0; i < 4; i++) {
		recv_all(p.s, buf, 1);
		NEED(recv(p.c, buf, 1, MSG_DONTWAIT) < 0);
	}
	send_all(p.c, "ABCDEFGHIJ", 10);
	wait_inq(p.s, 15);
	leave(p.c);
	send_all(p.c, "klmno", 5);
	wait_inq(p.s, 20);
	mark(p.s, 50);
	show_ready(p, 0, 20);
	mark(p.s, 20);
	show_ready(p, 0, 20);
	mark(p.s, 50);
	say("mark %d", mark_told(p.s));
	show_ready(p, 29, 49);
	show_ready(p, 1, 50);
	say_result("recv", recv(p.s, buf, 3, 0));
	say("mark %d", mark_told(p.s));
	show_ready(p, 0, 47);
	show_ready(p, 2, 49);
	show_ready(p, 1, 50);
	say_result("recv", recv(p.s, buf, 10, 0));
	show_ready(p, 0, 40);
	show_ready(p, 10, 50);
	say_result("recv", recv(p.s, buf, 200, 0));
	say("mark %d", mark_told(p.s));
	pair_close(p);
}
