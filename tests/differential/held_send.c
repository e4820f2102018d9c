/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces that are held back, by each call that may, and what a program does between them. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "held.h"

static uint8_t bytes[65536];

int set_tcp(int fd, int name, int value)
{
	return setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value);
}

/* ---- a piece is sent ---- */

static ssize_t by_splice(int fd, size_t len)
{
	int p[2];
	NEED(pipe2(p, O_CLOEXEC) == 0 && write(p[1], bytes, len) == (ssize_t)len);
	ssize_t n = splice(p[0], NULL, fd, NULL, len, SPLICE_F_NONBLOCK | SPLICE_F_MORE);
	NEED(close(p[0]) == 0 && close(p[1]) == 0);
	return n;
}

static ssize_t by_sendfile(int fd, size_t len)
{
	off_t at = 0;
	int file = out_of_the_way(memfd_create("differential", MFD_CLOEXEC));
	NEED(write(file, bytes, len) == (ssize_t)len);
	ssize_t n = sendfile(fd, file, &at, len);
	NEED(close(file) == 0);
	return n;
}

/* In two messages. */
static ssize_t by_sendmmsg(int fd, size_t len, int flags)
{
	struct iovec v[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
	struct mmsghdr m[2] = {{{.msg_iov = &v[0], .msg_iovlen = 1}, 0},
			       {{.msg_iov = &v[1], .msg_iovlen = 1}, 0}};
	int n = sendmmsg(fd, m, 2, flags);
	return n < 0 ? n : (ssize_t)m[0].msg_len + (n == 2 ? m[1].msg_len : 0);
}

/* The last three say of no call that more is to come. */
static const char *const piece_ways[] = {"send",   "sendto", "sendmsg",	 "sendmmsg",
					 "splice", "write",  "sendfile", "writev"};

static ssize_t send_piece(int fd, unsigned way, size_t len, int flags)
{
	struct iovec v[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	switch (way) {
	case 0:
		return send(fd, bytes, len, flags);
	case 1:
		return sendto(fd, bytes, len, flags, NULL, 0);
	case 2:
		return sendmsg(fd, &m, flags);
	case 3:
		return by_sendmmsg(fd, len, flags);
	case 4:
		return by_splice(fd, len);
	case 5:
		return write(fd, bytes, len);
	case 6:
		return by_sendfile(fd, len);
	default:
		return writev(fd, v, 2);
	}
}

void held_piece(struct dice *d, struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	unsigned way = dice(d, h->cork ? 8 : 5);
	int flags = h->cork && once_in(d, 2) ? 0 : MSG_MORE;
	size_t len = 1 + dice(d, once_in(d, 12) ? 20000 : once_in(d, 8) ? 5000 : 300);
	/* By it a connection goes back to TCP. */
	if (way == 4 && !once_in(d, 3))
		way = 0;
	if (h->asleep && len > h->left)
		len = h->left;
	if (len > room_to_send(s, is_nonblocking(h->fd)) || len == 0)
		return;
	fill_bytes(s, bytes, len);
	ssize_t n = send_piece(h->fd, way, len, flags);
	tell("%s(%d, %zu%s) = %s", piece_ways[way], h->fd, len,
	     way < 4 && flags ? ", MORE" : "", result(n));
	was_sent(s, n);
	h->left -= n > 0 && h->asleep ? (size_t)n : 0;
}

/* ---- what happens between two pieces ---- */

/* Looks of which nothing is told, because what they see is a matter of time. */
static void look_untold(struct dice *d, struct hold *h)
{
	struct descriptor *to = of_end(h->to);
	struct pollfd p = {to->fd, POLLIN | POLLRDHUP, 0};
	struct epoll_event ev;
	int n;
	switch (dice(d, 5)) {
	case 0:
		recv(to->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
		break;
	case 1:
		poll(&p, 1, (int)dice(d, 3));
		break;
	case 2:
		ioctl(to->fd, FIONREAD, &n);
		break;
	case 3:
		recv(to->fd, bytes, 0, MSG_DONTWAIT);
		break;
	default:
		h->told |= h->instance >= 0;
		epoll_wait(h->instance, &ev, 1, (int)dice(d, 3));
	}
}

/* The same end by another number. */
static void by_duplicate(struct dice *d, struct hold *h)
{
	int was = h->fd;
	if (was != of_end(h->from)->fd)
		return;
	h->fd = out_of_the_way(dup(was));
	if (once_in(d, 2)) {
		held_piece(d, h);
		NEED(close(h->fd) == 0);
		h->fd = was;
	}
}

/* A forked child sends one. */
static void by_child(struct dice *d, struct hold *h)
{
	uint64_t was = shared->end[h->from].written;
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		tell_who(" h");
		held_piece(d, h);
		_exit(0);
	}
	int status = wait_for(pid);
	if (status)
		tell("status %#x", (unsigned)status);
	if (h->asleep)
		h->left -= shared->end[h->from].written - was;
}

/* The other end sends, so that the connection earns an upgrade meanwhile. */
static void answers(struct dice *d, struct hold *h)
{
	unsigned turns = once_in(d, 3) ? 5 + dice(d, 60) : 1;
	struct descriptor *from = of_end(h->to), *to = of_end(h->from);
	size_t sum = 0;
	for (unsigned i = 0; i < turns && room_to_send(from, true) >= 100; i++) {
		size_t len = 1 + dice(d, 100);
		fill_bytes(from, bytes, len);
		was_sent(from, send(from->fd, bytes, len, MSG_DONTWAIT));
		settle();
		ssize_t n = recv(h->fd, bytes, sizeof bytes, MSG_DONTWAIT);
		was_received(to, n);
		sum += n > 0 ? (size_t)n : 0;
	}
	tell("%u answers: %zu", turns, sum);
}

/* In a message to oneself, or to a program that sends as well. */
static void hand_over(struct dice *d, struct hold *h)
{
	struct descriptor *s = of_end(h->from);
	/* What is unread is sent once more for that (docs/contract.md). */
	if (unread(s) || room_to_send(s, true) < 100) {
		tell("unread");
		return;
	}
	if (once_in(d, 2) && !h->asleep) {
		carry(d, s);
		return;
	}
	int other = fd_in_message(s->fd);
	NEED(other >= 0);
	other = out_of_the_way(other);
	ssize_t n = send(other, bytes, 0, MSG_MORE);
	tell("none(%d) = %s", other, result(n));
	NEED(close(other) == 0);
}

/* By these the other direction goes back to TCP. */
static void to_tcp(struct dice *d, struct hold *h)
{
	struct rlimit was, few;
	int two = 2, one = 1, r;
	if (unread(of_end(h->from)))
		return;
	if (once_in(d, 2) || h->asleep) {
		r = setsockopt(h->fd, SOL_SOCKET, SO_RCVLOWAT, &two, sizeof two);
		r |= setsockopt(h->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
		tell("RCVLOWAT = %s", result(r));
		return;
	}
	NEED(getrlimit(RLIMIT_NOFILE, &was) == 0);
	few = was;
	few.rlim_cur = 1 + dice(d, 2);
	NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
	tell("dup = %s", result(dup(h->fd)));
	NEED(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

static void tell_options(struct hold *h)
{
	int cork = -1, nodelay = -1;
	socklen_t len = sizeof cork;
	int r = getsockopt(h->fd, IPPROTO_TCP, TCP_CORK, &cork, &len);
	r |= getsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len);
	tell("options = %s: %d %d", result(r), cork, nodelay);
}

void held_between(struct dice *d, struct hold *h)
{
	struct pollfd p = {h->fd, POLLOUT | POLLIN, 0};
	unsigned way = dice(d, 17);
	/* Not of what somebody else is about to receive. */
	if (h->asleep && way >= 8 && way <= 12)
		way = 2;
	switch (way) {
	case 0:
		tell_options(h);
		break;
	case 1:
		by_duplicate(d, h);
		break;
	case 2:
		by_child(d, h);
		break;
	case 3:
	case 4:
		answers(d, h);
		break;
	case 5:
		hand_over(d, h);
		break;
	case 6:
		tell("none = %s", result(send(h->fd, bytes, 0, h->cork ? 0 : MSG_MORE)));
		break;
	case 7:
		tell("poll = %s", result(poll(&p, 1, 0)));
		tell("is %s", events_of_poll((unsigned)p.revents));
		break;
	case 8:
	case 9:
		held_take(h, once_in(d, 2) ? 1 + dice(d, 40) : 20000);
		break;
	case 10:
	case 11:
	case 12:
		look_untold(d, h);
		break;
	case 13:
		/* What is sent so far goes, and the next piece is held anew. */
		tell("push = %s", result(set_tcp(h->fd, TCP_NODELAY, 1)));
		break;
	case 14:
		settle();
		break;
	case 15:
		to_tcp(d, h);
		break;
	}
}
