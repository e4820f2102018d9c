/* SPDX-License-Identifier: Apache-2.0 */
/* A call sleeps on a connection whose number is closed meanwhile, or becomes another file's. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/call.h"
#include "conform/cases.h"

struct sleeper {
	int fd;
	ssize_t (*run)(struct sleeper *s);
	char got[16];
	ssize_t result;
	int error;
};

static ssize_t run_read(struct sleeper *s)
{
	return read(s->fd, s->got, sizeof(s->got));
}

static ssize_t run_readv(struct sleeper *s)
{
	struct iovec to[2] = {{s->got, 2}, {s->got + 2, 14}};

	return readv(s->fd, to, 2);
}

static ssize_t run_peek(struct sleeper *s)
{
	return recv(s->fd, s->got, sizeof(s->got), MSG_PEEK);
}

static ssize_t run_recvmmsg(struct sleeper *s)
{
	struct iovec to = {s->got, sizeof(s->got)};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &to, .msg_iovlen = 1}};
	int n = recvmmsg(s->fd, &m, 1, 0, NULL);

	return n == 1 ? (ssize_t)m.msg_len : n;
}

static ssize_t run_splice(struct sleeper *s)
{
	int way[2];
	ssize_t n;

	NEED(pipe(way) == 0);
	n = splice(s->fd, NULL, way[1], NULL, 64, 0);
	s->error = errno;
	if (n > 0)
		NEED(read(way[0], s->got, sizeof(s->got)) == n);
	close(way[0]);
	close(way[1]);
	errno = s->error;
	return n;
}

static ssize_t run_send(struct sleeper *s)
{
	return send(s->fd, bulk_room(), BULK, MSG_NOSIGNAL);
}

static const struct {
	const char *name;
	ssize_t (*run)(struct sleeper *s);
} calls[] = {{"read", run_read},	 {"readv", run_readv},	 {"peek", run_peek},
	     {"recvmmsg", run_recvmmsg}, {"splice", run_splice}, {"send", run_send}};

static void sleep_in_it(void *arg)
{
	struct sleeper *s = arg;

	s->result = s->run(s);
	s->error = s->result < 0 ? errno : 0;
}

enum how { CLOSED, CLOSED_IN_RANGE, FILE_INSTEAD, CONNECTION_INSTEAD };

static void take_number(int fd, enum how how, int other)
{
	int null;

	if (how == CLOSED) {
		NEED(close(fd) == 0);
	} else if (how == CLOSED_IN_RANGE) {
		NEED(close_range((unsigned)fd, (unsigned)fd, 0) == 0);
	} else if (how == CONNECTION_INSTEAD) {
		NEED(dup2(other, fd) == fd);
	} else {
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		NEED(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
	}
}

/* Fills the way from fd, so that the call moves nothing before the number is taken. */
static size_t fill(int fd)
{
	size_t sent = 0;
	ssize_t n;

	nonblock(fd, true);
	while ((n = send(fd, bulk_room(), 1 << 20, 0)) > 0)
		sent += (size_t)n;
	nonblock(fd, false);
	return sent;
}

/* The other end obeys a way down that has been asked for, and the call sleeps in the kernel, which has its file: amid
 * that way the contract lets it be either file's. */
static void settle(int peer, const struct worker *w)
{
	struct pollfd p = {.fd = peer, .events = POLLIN};

	NEED(poll(&p, 1, 0) >= 0);
	wait_asleep(getpid(), w->tid);
}

/* With `down` the connection goes back to TCP meanwhile. */
static void one(unsigned call, enum how how, bool down)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	struct sleeper s = {.fd = p.s, .run = calls[call].run};
	bool sends = s.run == run_send;
	size_t before = sends && down ? fill(p.s) : 0;
	struct worker w;
	int on = 1;
	char c;

	worker_start(&w, sleep_in_it, &s);
	wait_asleep(getpid(), w.tid);
	if (down)
		NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0);
	settle(p.c, &w);
	take_number(p.s, how, q.s);
	if (sends)
		read_bulk(p.c, before + BULK);
	else
		send_all(p.c, "first", 5);
	worker_join(&w);
	say("%s %d %d: %zd %s %.5s", calls[call].name, how, down, s.result,
	    errno_name(s.error), s.got);
	wait_events(p.c, POLLIN | POLLHUP);
	say_result("end", recv(p.c, &c, 1, 0));
	if (how == CONNECTION_INSTEAD) {
		send_all(q.c, "q", 1);
		recv_all(p.s, &c, 1);
		say("%c", c);
	}
	if (how == CONNECTION_INSTEAD || how == FILE_INSTEAD)
		NEED(close(p.s) == 0);
	NEED(close(p.c) == 0);
	pair_close(q);
}

static void each(enum how how)
{
	for (unsigned call = 0; call < sizeof(calls) / sizeof(*calls); call++) {
		one(call, how, false);
		one(call, how, true);
	}
}

CASE(taken_closed, DIRECT)
{
	each(CLOSED);
}

CASE(taken_in_range, DIRECT)
{
	each(CLOSED_IN_RANGE);
}

CASE(taken_by_file, DIRECT)
{
	each(FILE_INSTEAD);
}

CASE(taken_by_connection, DIRECT)
{
	each(CONNECTION_INSTEAD);
}

struct placer {
	int from;
	int to;
	int until; /* the thread lives until a byte is here */
};

static void place_it(void *arg)
{
	struct placer *p = arg;
	char c;

	NEED(dup2(p->from, p->to) == p->to);
	recv_all(p->until, &c, 1);
}

/* One that stays on TCP, and lingers for a second when it is closed: its peer reads nothing. */
static struct pair lingering(void)
{
	const struct linger wait = {.l_onoff = 1, .l_linger = 1};
	struct pair p = pair_open();
	int on = 1;

	NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0);
	fill(p.s);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) == 0);
	return p;
}

/* The first of two dup2 to one number still closes what was there when the second one comes. */
CASE(taken_by_two, DIRECT)
{
	struct pair old = lingering(), p = pair_warm_open(), q = pair_warm_open(),
		    end = pair_open();
	struct placer first = {.from = p.s, .to = old.s, .until = end.s};
	struct worker w;
	char c;

	worker_start(&w, place_it, &first);
	wait_asleep(getpid(), w.tid);
	NEED(dup2(q.s, old.s) == old.s);
	send_all(end.c, "e", 1);
	worker_join(&w);
	send_all(old.s, "q", 1);
	wait_events(q.c, POLLIN);
	recv_all(q.c, &c, 1);
	say("%c", c);
	NEED(close(old.c) == 0 && close(p.s) == 0 && close(q.s) == 0);
	wait_events(p.c, POLLIN | POLLHUP);
	say_result("end of the first", recv(p.c, &c, 1, 0));
	send_all(q.c, "more", 4);
	recv_all(old.s, &c, 1);
	say("%c", c);
	NEED(close(old.s) == 0 && close(p.c) == 0 && close(q.c) == 0);
	pair_close(end);
}

/* And a child that is forked meanwhile. */
CASE(taken_in_child, DIRECT)
{
	struct pair old = lingering(), p = pair_warm_open(), q = pair_warm_open(),
		    end = pair_open();
	struct placer first = {.from = p.s, .to = old.s, .until = end.s};
	struct worker w;
	pid_t child;
	char c;

	worker_start(&w, place_it, &first);
	wait_asleep(getpid(), w.tid);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(dup2(q.s, old.s) == old.s && send(old.s, "q", 1, 0) == 1 ? 0 : 1);
	NEED(waitpid(child, &child, 0) > 0 && child == 0);
	send_all(end.c, "e", 1);
	worker_join(&w);
	recv_all(q.c, &c, 1);
	send_all(old.s, "p", 1);
	recv_all(p.c, &c, 1);
	say("%c", c);
	NEED(close(old.s) == 0 && close(old.c) == 0);
	pair_close(p);
	pair_close(q);
	pair_close(end);
}
