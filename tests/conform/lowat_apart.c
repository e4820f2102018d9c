/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SO_RCVLOWAT over bytes of a peer that has left, with urgent data, several threads, other ends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

static void mark(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
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

CASE(lowat_apart_urgent_amid, DIRECT)
{
	struct pair p = left_open();
	char buf[100];
	mark(p.s, 50);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	send_pattern(p.c, 0, 60);
	wait_events(p.s, POLLPRI);
	wait_events(p.s, POLLIN);
	say_result("peek", recv(p.s, buf, sizeof buf, MSG_PEEK));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	say_result("urgent", recv(p.s, buf, 1, MSG_OOB));
	pair_close(p);
}

CASE(lowat_apart_urgent_taken, DIRECT)
{
	struct pair p = left_open();
	char buf[100];
	mark(p.s, 50);
	NEED(send(p.c, "!", 1, MSG_OOB) == 1);
	send_pattern(p.c, 0, 60);
	wait_events(p.s, POLLPRI);
	wait_events(p.s, POLLIN);
	say_result("urgent", recv(p.s, buf, 1, MSG_OOB));
	say_result("recv", recv(p.s, buf, sizeof buf, 0));
	pair_close(p);
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
