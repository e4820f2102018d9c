/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on descriptors: duplicates, closes, new connections. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "differential.h"

static void op_open(struct dice *d)
{
	if (shared->ends + 2 > MOST_ENDS || descriptor_count > MOST_DESCRIPTORS - 12) {
		tell("enough");
		return;
	}
	if (getpid() == peer_pid(-1) && once_in(d, 3)) {
		peer_connect((int)dice(d, PEERS), d);
		return;
	}
	int end = pair_open(d);
	tell("= %d %d", of_end(end)->fd, of_end(end + 1)->fd);
}

static void op_dup(struct dice *d)
{
	struct descriptor *s = any_descriptor(d);
	if (!s || descriptor_count > MOST_DESCRIPTORS - 8) {
		tell("nothing");
		return;
	}
	int from = s->fd, fd = -1, end = s->end;
	enum kind kind = s->kind;
	switch (dice(d, 3)) {
	case 0:
		fd = dup(from);
		tell("(%d) = %s", from, result(fd));
		break;
	case 1:
		fd = fcntl(from, F_DUPFD, 3 + (int)dice(d, 80));
		tell("F_DUPFD(%d) = %s", from, result(fd));
		break;
	case 2:
		fd = fcntl(from, F_DUPFD_CLOEXEC, 3 + (int)dice(d, 80));
		tell("F_DUPFD_CLOEXEC(%d) = %s", from, result(fd));
		break;
	}
	if (fd >= 0)
		descriptor_add(fd, kind, end);
	if (fd >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
		NEED(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
}

static void op_dup2(struct dice *d)
{
	struct descriptor *s = any_descriptor(d), *t = any_descriptor(d);
	if (!s || descriptor_count > MOST_DESCRIPTORS - 8) {
		tell("nothing");
		return;
	}
	int from = s->fd, to = once_in(d, 2) ? t->fd : 100 + (int)dice(d, 20),
	    end = s->end, r;
	enum kind kind = s->kind;
	bool three = once_in(d, 2);
	if (to == from && three)
		three = false;
	struct descriptor *was = descriptor_of(to);
	/* Its linger time is a time. */
	if (was && was->kind == SOCKET && from != to && end_of(was)->holders == 1 &&
	    once_in(d, 2)) {
		tell("not this time");
		return;
	}
	r = three ? dup3(from, to, O_CLOEXEC) : dup2(from, to);
	tell("(%d, %d%s) = %s", from, to, three ? ", CLOEXEC" : "", result(r));
	if (r != to || from == to)
		return;
	if (was)
		descriptor_gone(was);
	descriptor_add(to, kind, end);
	NEED(fcntl(to, F_SETFD, FD_CLOEXEC) == 0);
}

static void close_it(struct descriptor *s)
{
	int fd = s->fd;
	int r = close(fd);
	tell("(%d) = %s", fd, result(r));
	descriptor_gone(s);
}

static void op_close(struct dice *d)
{
	struct descriptor *s = any_descriptor(d);
	if (!s) {
		tell("nothing");
		return;
	}
	/* Duplicates go sooner. */
	bool last = s->kind == SOCKET ? end_of(s)->holders == 1 : true;
	if (last && !once_in(d, 3)) {
		tell("not this time");
		return;
	}
	close_it(s);
}

static void op_abort(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s || !once_in(d, 3)) {
		tell("nothing");
		return;
	}
	struct linger l = {1, 0};
	int r = setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	tell("SO_LINGER(%d) = %s", s->fd, result(r));
	if (once_in(d, 2)) {
		if (end_of(s)->holders == 1 && !end_of(s)->gone)
			peer_of(s)->resets = true;
		close_it(s);
		return;
	}
	l.l_onoff = 0;
	r = setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	tell("SO_LINGER off(%d) = %s", s->fd, result(r));
}

static void op_cloexec(struct dice *d)
{
	struct descriptor *s = any_descriptor(d);
	if (!s) {
		tell("nothing");
		return;
	}
	tell("F_GETFD(%d) = %s", s->fd, result(fcntl(s->fd, F_GETFD)));
}

int fd_in_message(int fd)
{
	int channel[2], got = -1;
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} c = {0};
	char byte = 'x';
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &c,
			   .msg_controllen = sizeof c};
	c.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&c.head), &fd, sizeof fd);
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
	channel[0] = out_of_the_way(channel[0]);
	channel[1] = out_of_the_way(channel[1]);
	ssize_t n = sendmsg(channel[0], &m, 0);
	tell("sendmsg(%d) = %s", fd, result(n));
	m.msg_controllen = sizeof c;
	n = recvmsg(channel[1], &m, MSG_CMSG_CLOEXEC);
	memcpy(&got, CMSG_DATA(&c.head), sizeof got);
	tell("recvmsg = %s: %d", result(n), got);
	NEED(close(channel[0]) == 0 && close(channel[1]) == 0);
	return got;
}

/* In a message to oneself: the same socket by another number, as dup. */
static void op_to_oneself(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s || descriptor_count > MOST_DESCRIPTORS - 8 ||
	    (unread(s) && (!pending() || !of_end(s->end ^ 1) || peer_of(s)->shut_write ||
			   peer_of(s)->closed))) {
		tell("nothing");
		return;
	}
	int end = s->end;
	descriptor_add(fd_in_message(s->fd), SOCKET, end);
}

const struct op ops_descriptor[] = {
	{"open", op_open, 8},
	{"dup", op_dup, 8},
	{"dup2", op_dup2, 6},
	{"close", op_close, 20},
	{"abort", op_abort, 4},
	{"cloexec", op_cloexec, 1},
	{"to-oneself", op_to_oneself, 2},
	{NULL, NULL, 0},
};
