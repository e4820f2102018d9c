/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that send. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "differential.h"

static uint8_t bytes[65536];

static const int send_flags[] = {
	0, 0, 0, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_DONTWAIT | MSG_NOSIGNAL};

static int a_flag(struct dice *d)
{
	return send_flags[dice(d, 6)];
}

/* A socket, and bytes of its stream in `bytes`. NULL: there is none. */
static struct descriptor *ready_to_send(struct dice *d, int flags, size_t *len)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s) {
		tell("nothing");
		return NULL;
	}
	bool nonblocking = flags & MSG_DONTWAIT || is_nonblocking(s->fd);
	*len = dice_size(d, room_to_send(s, nonblocking));
	fill_bytes(s, bytes, *len);
	return s;
}

static void op_send(struct dice *d)
{
	int flags = a_flag(d);
	size_t len;
	struct descriptor *s = ready_to_send(d, flags, &len);
	if (!s)
		return;
	ssize_t n = send(s->fd, bytes, len, flags);
	tell("(%d, %zu, %s) = %s", s->fd, len, flags_of_message(flags), result(n));
	was_sent(s, n);
}

static void op_write(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_send(d, 0, &len);
	if (!s)
		return;
	ssize_t n = write(s->fd, bytes, len);
	tell("(%d, %zu) = %s", s->fd, len, result(n));
	was_sent(s, n);
}

static void op_sendto(struct dice *d)
{
	int flags = a_flag(d);
	size_t len;
	struct descriptor *s = ready_to_send(d, flags, &len);
	if (!s)
		return;
	/* A connected stream takes no notice of it. */
	struct sockaddr_in a = {.sin_family = AF_INET};
	bool with = once_in(d, 2);
	ssize_t n = sendto(s->fd, bytes, len, flags, with ? (struct sockaddr *)&a : NULL,
			   with ? sizeof a : 0);
	tell("(%d, %zu, %s, %s) = %s", s->fd, len, flags_of_message(flags),
	     with ? "address" : "NULL", result(n));
	was_sent(s, n);
}

/* Cuts len bytes into some pieces, of which some are empty. Returns their number. */
static int cut(struct dice *d, size_t len, struct iovec v[4])
{
	int pieces = 1 + (int)dice(d, 4);
	size_t at = 0;
	for (int i = 0; i < pieces; i++) {
		size_t part =
			i == pieces - 1 ? len - at : dice(d, (unsigned)(len - at) + 1);
		v[i] = (struct iovec){bytes + at, part};
		at += part;
	}
	return pieces;
}

static void op_writev(struct dice *d)
{
	struct iovec v[4];
	size_t len;
	struct descriptor *s = ready_to_send(d, 0, &len);
	if (!s)
		return;
	int pieces = cut(d, len, v);
	bool two = once_in(d, 3);
	ssize_t n = two ? pwritev2(s->fd, v, pieces, -1, 0) : writev(s->fd, v, pieces);
	tell("%s(%d, %zu in %d) = %s", two ? "2" : "", s->fd, len, pieces, result(n));
	was_sent(s, n);
}

static void op_sendmsg(struct dice *d)
{
	struct iovec v[4];
	size_t len;
	int flags = a_flag(d);
	struct descriptor *s = ready_to_send(d, flags, &len);
	if (!s)
		return;
	struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)cut(d, len, v)};
	ssize_t n = sendmsg(s->fd, &m, flags);
	tell("(%d, %zu in %zu, %s) = %s", s->fd, len, m.msg_iovlen,
	     flags_of_message(flags), result(n));
	was_sent(s, n);
}

int send_rest(int fd, struct mmsghdr *m, unsigned count, int n)
{
	int more = n;
	while (more > 0 && n < (int)count) {
		more = sendmmsg(fd, m + n, count - (unsigned)n,
				MSG_DONTWAIT | MSG_NOSIGNAL);
		n += more > 0 ? more : 0;
	}
	return n;
}

static void op_sendmmsg(struct dice *d)
{
	struct mmsghdr m[3] = {0};
	struct iovec v[3];
	size_t len, at = 0;
	int flags = a_flag(d);
	struct descriptor *s = ready_to_send(d, flags, &len);
	if (!s)
		return;
	for (int i = 0; i < 3; i++) {
		size_t part = i == 2 ? len - at : dice(d, (unsigned)(len - at) + 1);
		v[i] = (struct iovec){bytes + at, part};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
		at += part;
	}
	int n = send_rest(s->fd, m, 3, sendmmsg(s->fd, m, 3, flags));
	tell("(%d, %zu in 3, %s) = %s: %u %u %u", s->fd, len, flags_of_message(flags),
	     result(n), m[0].msg_len, m[1].msg_len, m[2].msg_len);
	for (int i = 0; i < n; i++)
		was_sent(s, m[i].msg_len);
}

static void op_sendfile(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_send(d, 0, &len);
	if (!s)
		return;
	int file = memfd_create("differential", MFD_CLOEXEC);
	NEED(file >= 0 && write(file, bytes, len) == (ssize_t)len);
	bool with = once_in(d, 2);
	off_t at = 0;
	NEED(lseek(file, 0, SEEK_SET) == 0);
	size_t ask = len + (once_in(d, 4) ? 100 : 0);
	ssize_t n = sendfile(s->fd, file, with ? &at : NULL, ask);
	tell("(%d, %zu of %zu) = %s, at %ld, file at %ld", s->fd, ask, len, result(n),
	     (long)at, (long)lseek(file, 0, SEEK_CUR));
	was_sent(s, n);
	NEED(close(file) == 0);
}

static void op_splice_in(struct dice *d)
{
	int p[2];
	size_t len;
	struct descriptor *s = ready_to_send(d, 0, &len);
	if (!s)
		return;
	NEED(pipe2(p, O_CLOEXEC) == 0);
	NEED(write(p[1], bytes, len) == (ssize_t)len);
	ssize_t n = splice(p[0], NULL, s->fd, NULL, len, SPLICE_F_NONBLOCK);
	tell("(%d, %zu) = %s", s->fd, len, result(n));
	was_sent(s, n);
	NEED(close(p[0]) == 0 && close(p[1]) == 0);
}

static void op_urgent(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_send(d, 0, &len);
	if (!s)
		return;
	if (len > 3)
		len = 3;
	if (!once_in(d, 4) || end_of(s)->urgent) {
		tell("not this time");
		return;
	}
	ssize_t n = send(s->fd, bytes, len, MSG_OOB | MSG_DONTWAIT);
	tell("(%d, %zu) = %s", s->fd, len, result(n));
	was_sent(s, n);
	if (n > 0)
		end_of(s)->urgent = true;
}

/* Reads whatever is there. Returns the count. */
static size_t drain(int fd)
{
	static uint8_t into[65536];
	size_t sum = 0;
	ssize_t n;
	while ((n = recv(fd, into, sizeof into, MSG_DONTWAIT)) > 0)
		sum += (size_t)n;
	return sum;
}

/* As full as it becomes, and empty again: only that all of it came is looked at. */
static void op_fill(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	if (!s || !once_in(d, 4)) {
		tell("nothing");
		return;
	}
	size_t sent = 0, came = unread(other), got = 0;
	ssize_t n;
	memset(bytes, 0x5A, sizeof bytes);
	size_t piece = once_in(d, 2) ? 4096 : sizeof bytes;
	while ((n = send(s->fd, bytes, piece, MSG_DONTWAIT)) > 0)
		sent += (size_t)n;
	tell("full(%d) = %s", s->fd, result(n));
	struct pollfd p = {s->fd, POLLOUT | POLLIN, 0};
	/* What has been acknowledged meanwhile may have made room again. */
	int r = poll(&p, 1, 0);
	if (once_in(d, 2))
		tell("poll(%d) = %s", s->fd, r < 0 ? result(r) : "0 or 1");
	for (int turns = 0; got < came + sent && turns < 5000; turns++) {
		struct pollfd q = {other->fd, POLLIN, 0};
		poll(&q, 1, 1000);
		got += drain(other->fd);
	}
	was_received(other, (ssize_t)came);
	tell("drained(%d) %s", other->fd, got == came + sent ? "all" : "NOT ALL");
	p.events = POLLOUT;
	r = poll(&p, 1, 10000);
	tell("poll(%d, OUT) = %s: %s", s->fd, result(r),
	     events_of_poll((unsigned)p.revents));
}

const struct op ops_send[] = {
	{"send", op_send, 30},
	{"write", op_write, 20},
	{"sendto", op_sendto, 6},
	{"writev", op_writev, 10},
	{"sendmsg", op_sendmsg, 10},
	{"sendmmsg", op_sendmmsg, 6},
	{"sendfile", op_sendfile, 8},
	{"splice-in", op_splice_in, 3},
	{"urgent", op_urgent, 2},
	{"fill", op_fill, 2},
	{NULL, NULL, 0},
};
