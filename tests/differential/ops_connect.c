/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that connect in other ways: IPv6, to oneself, once more, with a listener of many. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

static bool room_for_a_pair(void)
{
	bool room = shared->ends + 2 <= MOST_ENDS &&
		    descriptor_count <= MOST_DESCRIPTORS - 12;
	if (!room)
		tell("enough");
	return room;
}

/* Of IPv6, or of IPv4 as a socket of IPv6 sees it. */
static void op_open_6(struct dice *d)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6}, seen;
	socklen_t len = sizeof a;
	bool mapped = once_in(d, 2), client4 = mapped && once_in(d, 2);
	if (!room_for_a_pair())
		return;
	if (!mapped)
		a.sin6_addr = in6addr_loopback;
	int l = out_of_the_way(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)), c, s;
	int off = 0;
	NEED(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0);
	NEED(bind(l, (struct sockaddr *)&a, sizeof a) == 0 && listen(l, 2) == 0);
	NEED(getsockname(l, (struct sockaddr *)&a, &len) == 0);
	if (client4) {
		c = connect_here(ntohs(a.sin6_port));
	} else {
		c = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (mapped)
			NEED(inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr) == 1);
		NEED(connect(c, (struct sockaddr *)&a, sizeof a) == 0);
	}
	len = sizeof seen;
	s = accept4(l, (struct sockaddr *)&seen, &len,
		    SOCK_CLOEXEC | (once_in(d, 3) ? SOCK_NONBLOCK : 0));
	NEED(s >= 0 && close(l) == 0);
	end_prepare(c);
	end_prepare(s);
	tell("%s = %d %d: of %u, %08x",
	     client4  ? "4"
	     : mapped ? "mapped"
		      : "6",
	     c, s, len, checksum(&seen.sin6_addr, sizeof seen.sin6_addr));
	descriptor_add(c, SOCKET, shared->ends);
	descriptor_add(s, SOCKET, shared->ends + 1);
	shared->ends += 2;
}

/* A socket that has lost its connection gets another. */
static void op_again(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	uint16_t port;
	if (!s || end_of(s)->holders != 1 || !once_in(d, 3)) {
		tell("nothing");
		return;
	}
	if (!room_for_a_pair())
		return;
	int r = connect(s->fd, &none, sizeof none);
	tell("(%d, UNSPEC) = %s", s->fd, result(r));
	if (r != 0)
		return;
	end_of(s)->gone = true;
	peer_of(s)->gone = true;
	int l = listen_here(&port);
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)},
				.sin_port = htons(port)};
	bool later = is_nonblocking(s->fd);
	r = connect(s->fd, (struct sockaddr *)&a, sizeof a);
	tell("(%d) = %s", s->fd, result(r));
	if (r != 0 && errno != EINPROGRESS) {
		NEED(close(l) == 0);
		return;
	}
	struct pollfd p = {s->fd, POLLOUT, 0};
	if (later) {
		NEED(poll(&p, 1, 1000) == 1);
		tell("poll = %s", events_of_poll((unsigned)p.revents));
	}
	r = connect(s->fd, (struct sockaddr *)&a, sizeof a);
	tell("once more = %s", result(r));
	int t = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	NEED(t >= 0 && close(l) == 0);
	end_prepare(t);
	int fd = s->fd, end = shared->ends;
	/* It is the same socket. */
	shared->end[end].corked = end_of(s)->corked;
	tell("accept = %d", t);
	descriptor_gone(s);
	descriptor_add(fd, SOCKET, end);
	descriptor_add(t, SOCKET, end + 1);
	shared->ends += 2;
}

/* A connection both ends of which are one socket. */
static void op_to_itself(struct dice *d)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof a;
	uint8_t out[300], in[600];
	int s = out_of_the_way(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), r, on = 1;
	NEED(bind(s, (struct sockaddr *)&a, sizeof a) == 0);
	NEED(getsockname(s, (struct sockaddr *)&a, &len) == 0);
	r = connect(s, (struct sockaddr *)&a, sizeof a);
	tell("connect = %s", result(r));
	if (r == 0)
		NEED(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	for (int i = 0, turns = 2 + (int)dice(d, 60); i < turns && r == 0; i++) {
		size_t n = 1 + dice(d, sizeof out);
		memset(out, i, sizeof out);
		ssize_t sent = send(s, out, n, MSG_DONTWAIT);
		struct pollfd p = {s, POLLIN, 0};
		int ready = poll(&p, 1, 1000);
		ssize_t got = recv(s, in, sizeof in, MSG_DONTWAIT);
		if (i < 2 || i == turns - 1 || sent != got)
			tell("send %s, poll %s %s, recv %s: %08x", result(sent),
			     result(ready), events_of_poll((unsigned)p.revents),
			     result(got), got > 0 ? checksum(in, (size_t)got) : 0);
	}
	if (once_in(d, 2)) {
		r = shutdown(s, SHUT_WR);
		tell("shutdown = %s", result(r));
		struct pollfd p = {s, POLLIN | POLLRDHUP, 0};
		int ready = poll(&p, 1, 1000);
		tell("poll %s, IN %d, recv %s", result(ready), p.revents & POLLIN,
		     result(recv(s, in, sizeof in, MSG_DONTWAIT)));
	}
	NEED(close(s) == 0);
}

static void tell_client(int fd, int i)
{
	char buf[16];
	struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	int r = poll(&p, 1, 1000);
	ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	tell("client %d: poll %s, recv %s", i, result(r), result(n));
	n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	tell("then %s", result(n));
	r = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	tell("state %s: %u", result(r), info.tcpi_state);
}

/* A listener, what waits in its queue, and what is lost with it. */
static void op_listener(struct dice *d)
{
	uint16_t port;
	int l = listen_here(&port), clients[4], count = (int)dice(d, 5), r, queued = 0;
	char buf[8];
	struct pollfd p = {l, POLLIN | POLLOUT, 0};
	if (once_in(d, 3)) {
		int low = 1 + (int)dice(d, 3), wide = 150000;
		NEED(setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0);
		NEED(setsockopt(l, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide) == 0);
	}
	for (int i = 0; i < count; i++) {
		clients[i] = out_of_the_way(connect_here(port));
		if (once_in(d, 2))
			tell("send %d = %s", i,
			     result(send(clients[i], "early", 5, MSG_DONTWAIT)));
	}
	r = poll(&p, 1, count ? 1000 : 0);
	tell("%d: poll %s %s", count, result(r), events_of_poll((unsigned)p.revents));
	r = ioctl(l, FIONREAD, &queued);
	tell("FIONREAD = %s: %d", result(r), queued);
	tell("recv = %s", result(recv(l, buf, sizeof buf, MSG_DONTWAIT)));
	tell("send = %s", result(send(l, buf, sizeof buf, MSG_DONTWAIT | MSG_NOSIGNAL)));
	int takes = count ? (int)dice(d, (unsigned)count + 1) : 0;
	for (int i = 0; i < takes; i++) {
		struct sockaddr_in6 a;
		socklen_t len = once_in(d, 2) ? sizeof a : dice(d, 20);
		static const int some[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, 1,
					   SOCK_NONBLOCK | SOCK_CLOEXEC};
		int flags = some[dice(d, 5)];
		bool bad = once_in(d, 8);
		int s = accept4(l, bad ? bad_page() : (void *)&a, &len, flags);
		int err = errno;
		if (s >= 0)
			s = out_of_the_way(s);
		errno = err;
		tell("accept4(%#x%s) = %s of %u", (unsigned)flags, bad ? ", bad" : "",
		     s >= 0 ? "some" : result(s), len);
		if (s < 0)
			continue;
		int low = 0, buf_size = 0;
		socklen_t n = sizeof low;
		NEED(getsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &low, &n) == 0);
		NEED(getsockopt(s, SOL_SOCKET, SO_RCVBUF, &buf_size, &n) == 0);
		tell("F_GETFL %#x, RCVLOWAT %d, RCVBUF %s", (unsigned)fcntl(s, F_GETFL),
		     low, buf_size == 300000 ? "set" : "own");
		if (once_in(d, 2)) {
			/* The client has sent, or not: this may end in a reset. */
			NEED(close(s) == 0);
		} else {
			tell("send = %s",
			     result(send(s, "hello", 5, MSG_DONTWAIT | MSG_NOSIGNAL)));
			shutdown(s, SHUT_WR);
			while (recv(s, buf, sizeof buf, MSG_DONTWAIT) > 0)
				;
			NEED(close(s) == 0);
		}
	}
	if (once_in(d, 3)) {
		r = shutdown(l, SHUT_RD);
		tell("shutdown = %s", result(r));
		r = poll(&p, 1, 0);
		tell("poll %s %s", result(r), events_of_poll((unsigned)p.revents));
		r = accept(l, NULL, NULL);
		tell("accept = %s", result(r));
	}
	NEED(close(l) == 0);
	for (int i = 0; i < count; i++) {
		tell_client(clients[i], i);
		NEED(close(clients[i]) == 0);
	}
}

/* Has the port, and does not listen: so no other seed gets it, nor a connect from it to itself. */
static int hold_port(struct sockaddr_in a)
{
	int on = 1, s = out_of_the_way(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	NEED(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
	NEED(bind(s, (struct sockaddr *)&a, sizeof a) == 0);
	return s;
}

/* Refused, wrong and repeated connects. */
static void op_refused(struct dice *d)
{
	uint16_t port;
	int l = listen_here(&port), r;
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)},
				.sin_port = htons(port)};
	bool nonblocking = once_in(d, 2);
	char buf[8];
	NEED(close(l) == 0);
	int held = hold_port(a);
	int s = out_of_the_way(socket(
		AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0),
		0));
	struct pollfd p = {s, POLLIN | POLLOUT, 0};
	tell("poll before = %s", events_of_poll((unsigned)(poll(&p, 1, 0), p.revents)));
	tell("recv before = %s", result(recv(s, buf, 8, MSG_DONTWAIT)));
	tell("send before = %s", result(send(s, buf, 8, MSG_DONTWAIT | MSG_NOSIGNAL)));
	tell("shutdown before = %s", result(shutdown(s, SHUT_RDWR)));
	for (int i = 0; i < 3; i++) {
		r = connect(s, (struct sockaddr *)&a, once_in(d, 6) ? 3 : sizeof a);
		tell("connect = %s", result(r));
		r = poll(&p, 1, 1000);
		tell("poll = %s %s", result(r), events_of_poll((unsigned)p.revents));
		int err = -1;
		socklen_t len = sizeof err;
		if (once_in(d, 2)) {
			r = getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len);
			tell("SO_ERROR = %s: %d", result(r), err);
		}
		if (once_in(d, 2))
			tell("recv = %s", result(recv(s, buf, 8, MSG_DONTWAIT)));
	}
	NEED(close(held) == 0);
	/* It can be connected all the same. */
	l = listen_here(&port);
	a.sin_port = htons(port);
	r = connect(s, (struct sockaddr *)&a, sizeof a);
	tell("connect to one = %s", result(r));
	if (r == 0 || errno == EINPROGRESS) {
		NEED(poll(&p, 1, 1000) == 1);
		tell("poll = %s", events_of_poll((unsigned)p.revents));
		tell("connect once more = %s",
		     result(connect(s, (struct sockaddr *)&a, sizeof a)));
		tell("listen = %s", result(listen(s, 1)));
	}
	NEED(close(s) == 0 && close(l) == 0);
}

/* A child takes from the listener, answers, and leaves with a code. */
static void op_child_accepts(struct dice *d)
{
	uint16_t port;
	if (perform_depth || !once_in(d, 2)) {
		tell("nothing");
		return;
	}
	int l = listen_here(&port), c = out_of_the_way(connect_here(port)), status = -1;
	unsigned turns = 1 + dice(d, 40), way = dice(d, 3), right = 0;
	end_prepare(c);
	pid_t pid = fork();
	NEED(pid >= 0);
	uint8_t buf[256];
	if (pid == 0) {
		int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		NEED(s >= 0 && close(c) == 0);
		end_prepare(s);
		for (unsigned i = 0; i < turns; i++) {
			ssize_t n = recv(s, buf, sizeof buf, 0);
			if (n <= 0 || send(s, buf, (size_t)n, 0) != n)
				_exit(99);
		}
		if (way == 1)
			NEED(send(s, "last", 4, 0) == 4);
		if (way == 2)
			NEED(shutdown(s, SHUT_RDWR) == 0);
		_exit((int)turns);
	}
	for (unsigned i = 0; i < turns; i++) {
		size_t len = 1 + dice(d, 200);
		memset(buf, (int)i, sizeof buf);
		ssize_t n = send(c, buf, len, MSG_NOSIGNAL);
		memset(buf, 0, sizeof buf);
		right +=
			n == recv(c, buf, len, MSG_WAITALL) && buf[len - 1] == (uint8_t)i;
	}
	pid_t w;
	while ((w = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	tell("%u of %u, status %#x", right, turns, (unsigned)status);
	for (int i = 0; i < 2; i++)
		tell("recv = %s", result(recv(c, buf, sizeof buf, 0)));
	NEED(close(c) == 0 && close(l) == 0);
}

const struct op ops_connect[] = {
	{"open-6", op_open_6, 5},
	{"again", op_again, 4},
	{"to-itself", op_to_itself, 3},
	{"listener", op_listener, 5},
	{"refused", op_refused, 4},
	{"child-accepts", op_child_accepts, 3},
	{NULL, NULL, 0},
};
