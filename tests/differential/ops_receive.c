/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that receive. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "differential.h"

static uint8_t into[65536];

/* A flag set, without what would block for ever. */
static int flags_for(struct dice *d, const struct descriptor *s, size_t len)
{
	static const int some[] = {0,
				   0,
				   0,
				   0,
				   MSG_DONTWAIT,
				   MSG_PEEK,
				   MSG_WAITALL,
				   MSG_TRUNC,
				   MSG_PEEK | MSG_TRUNC,
				   MSG_PEEK | MSG_WAITALL};
	int flags = some[dice(d, 10)];
	if (receive_blocks(s, len, flags) && !is_nonblocking(s->fd))
		flags |= MSG_DONTWAIT;
	return flags;
}

static struct descriptor *ready_to_receive(struct dice *d, size_t *len)
{
	struct descriptor *s = any_of(d, SOCKET);
	*len = dice_size(d, sizeof into);
	if (once_in(d, 3))
		*len = sizeof into;
	memset(into, 0, *len);
	if (!s)
		tell("nothing");
	return s;
}

/* The same for calls without flags. */
static struct descriptor *ready_to_read(struct dice *d, size_t *len)
{
	struct descriptor *s = ready_to_receive(d, len);
	if (s && receive_blocks(s, *len, 0) && !is_nonblocking(s->fd)) {
		tell("(%d, %zu) would block", s->fd, *len);
		return NULL;
	}
	return s;
}

static uint32_t sum_of(ssize_t n)
{
	return n > 0 ? checksum(into, (size_t)n < sizeof into ? (size_t)n : sizeof into)
		     : 0;
}

static void op_recv(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_receive(d, &len);
	if (!s)
		return;
	int flags = flags_for(d, s, len);
	ssize_t n = recv(s->fd, into, len, flags);
	tell("(%d, %zu, %s) = %s: %08x", s->fd, len, flags_of_message(flags), result(n),
	     sum_of(n));
	if (!(flags & MSG_PEEK))
		was_received(s, n);
}

static void op_recvfrom(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_receive(d, &len);
	if (!s)
		return;
	int flags = flags_for(d, s, len);
	struct sockaddr_in a = {0};
	socklen_t a_len = sizeof a;
	ssize_t n = recvfrom(s->fd, into, len, flags, (struct sockaddr *)&a, &a_len);
	tell("(%d, %zu, %s) = %s: %08x, address of %u", s->fd, len,
	     flags_of_message(flags), result(n), sum_of(n), a_len);
	if (!(flags & MSG_PEEK))
		was_received(s, n);
}

static void op_read(struct dice *d)
{
	size_t len;
	struct descriptor *s = ready_to_read(d, &len);
	if (!s)
		return;
	ssize_t n = read(s->fd, into, len);
	tell("(%d, %zu) = %s: %08x", s->fd, len, result(n), sum_of(n));
	was_received(s, n);
}

static int cut(struct dice *d, size_t len, struct iovec v[4])
{
	int pieces = 1 + (int)dice(d, 4);
	size_t at = 0;
	for (int i = 0; i < pieces; i++) {
		size_t part =
			i == pieces - 1 ? len - at : dice(d, (unsigned)(len - at) + 1);
		v[i] = (struct iovec){into + at, part};
		at += part;
	}
	return pieces;
}

static void op_readv(struct dice *d)
{
	struct iovec v[4];
	size_t len;
	struct descriptor *s = ready_to_read(d, &len);
	if (!s)
		return;
	int pieces = cut(d, len, v);
	bool two = once_in(d, 3);
	ssize_t n = two ? preadv2(s->fd, v, pieces, -1, 0) : readv(s->fd, v, pieces);
	tell("%s(%d, %zu in %d) = %s: %08x", two ? "2" : "", s->fd, len, pieces,
	     result(n), sum_of(n));
	was_received(s, n);
}

static void op_recvmsg(struct dice *d)
{
	struct iovec v[4];
	char control[128];
	struct sockaddr_in a;
	size_t len;
	struct descriptor *s = ready_to_receive(d, &len);
	if (!s)
		return;
	int flags = flags_for(d, s, len);
	struct msghdr m = {
		.msg_iov = v, .msg_iovlen = (size_t)cut(d, len, v), .msg_flags = 0x5A};
	if (once_in(d, 2)) {
		m.msg_control = control;
		m.msg_controllen = sizeof control;
	}
	if (once_in(d, 2)) {
		m.msg_name = &a;
		m.msg_namelen = sizeof a;
	}
	ssize_t n = recvmsg(s->fd, &m, flags);
	tell("(%d, %zu in %zu, %s) = %s: %08x, %s, control %zu, name %u", s->fd, len,
	     m.msg_iovlen, flags_of_message(flags), result(n), sum_of(n),
	     flags_of_message(m.msg_flags), m.msg_controllen, m.msg_namelen);
	if (!(flags & MSG_PEEK))
		was_received(s, n);
}

int receive_rest(int fd, struct mmsghdr *m, unsigned count, int flags, int n)
{
	int more = n;
	while (more > 0 && n < (int)count) {
		more = recvmmsg(fd, m + n, count - (unsigned)n, flags | MSG_DONTWAIT,
				NULL);
		n += more > 0 ? more : 0;
	}
	return n;
}

static void op_recvmmsg(struct dice *d)
{
	struct mmsghdr m[3] = {0};
	struct iovec v[3];
	size_t len, sum = 0;
	struct descriptor *s = ready_to_receive(d, &len);
	if (!s)
		return;
	if (len < 3)
		len = 3;
	for (int i = 0; i < 3; i++) {
		v[i] = (struct iovec){into + sum, len / 3};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
		sum += len / 3;
	}
	struct timespec t = {0, 0};
	int flags = once_in(d, 4) ? MSG_PEEK | MSG_DONTWAIT : MSG_DONTWAIT;
	int n = recvmmsg(s->fd, m, 3, flags, once_in(d, 2) ? &t : NULL);
	n = receive_rest(s->fd, m, 3, flags, n);
	tell("(%d, 3 of %zu, %s) = %s: %u %u %u, %s, %08x", s->fd, len / 3,
	     flags_of_message(flags), result(n), m[0].msg_len, m[1].msg_len, m[2].msg_len,
	     flags_of_message(m[0].msg_hdr.msg_flags), checksum(into, sum));
	for (int i = 0; i < n && !(flags & MSG_PEEK); i++)
		was_received(s, m[i].msg_len);
}

static void op_recv_urgent(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s || !peer_of(s)->urgent) {
		tell("nothing");
		return;
	}
	int mark = -1, flags = MSG_OOB | MSG_DONTWAIT | (once_in(d, 3) ? MSG_PEEK : 0);
	int r = ioctl(s->fd, SIOCATMARK, &mark);
	tell("SIOCATMARK(%d) = %s: %d", s->fd, result(r), mark);
	into[0] = 0;
	ssize_t n = recv(s->fd, into, 1, flags);
	tell("(%d) = %s: %02x", s->fd, result(n), into[0]);
}

/* By it a connection goes back to TCP, and what is unread has to be sent once more. */
static bool may_go_down(const struct descriptor *s)
{
	const struct end *peer = peer_of(s);
	return unread(s) == 0 ||
	       (pending() && of_end(s->end ^ 1) && !peer->shut_write && !peer->closed);
}

static void op_splice_out(struct dice *d)
{
	int p[2];
	struct descriptor *s = any_of(d, SOCKET);
	size_t len = 1 + dice_size(d, 4000);
	if (!s || !may_go_down(s)) {
		tell("nothing");
		return;
	}
	if (receive_blocks(s, 1, 0) && !is_nonblocking(s->fd)) {
		tell("(%d) would block", s->fd);
		return;
	}
	NEED(pipe2(p, O_CLOEXEC) == 0);
	ssize_t n = splice(s->fd, NULL, p[1], NULL, len, SPLICE_F_NONBLOCK);
	/* Where its buffers end a splice may end. */
	const char *r = result(n);
	ssize_t all = n;
	while (n > 0 && all < (ssize_t)len && unread(s) > (size_t)all) {
		n = splice(s->fd, NULL, p[1], NULL, len - (size_t)all, SPLICE_F_NONBLOCK);
		all += n > 0 ? n : 0;
	}
	ssize_t got = all > 0 ? read(p[0], into, sizeof into) : 0;
	tell("(%d, %zu) = %s: %zd, %08x", s->fd, len, all > 0 ? "some" : r, got,
	     sum_of(got));
	was_received(s, all);
	NEED(close(p[0]) == 0 && close(p[1]) == 0);
}

static void op_inq(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s) {
		tell("nothing");
		return;
	}
	int n = -1, mark = -1;
	int r = ioctl(s->fd, FIONREAD, &n);
	tell("FIONREAD(%d) = %s: %d", s->fd, result(r), n);
	if (once_in(d, 4)) {
		r = ioctl(s->fd, SIOCATMARK, &mark);
		tell("SIOCATMARK(%d) = %s: %d", s->fd, result(r), mark);
	}
	if (once_in(d, 4)) {
		n = -1;
		r = ioctl(s->fd, SIOCOUTQNSD, &n);
		tell("SIOCOUTQNSD(%d) = %s: %s", s->fd, result(r), n ? "some" : "0");
	}
}

const struct op ops_receive[] = {
	{"recv", op_recv, 40},
	{"recvfrom", op_recvfrom, 8},
	{"read", op_read, 25},
	{"readv", op_readv, 12},
	{"recvmsg", op_recvmsg, 16},
	{"recvmmsg", op_recvmmsg, 8},
	{"recv-urgent", op_recv_urgent, 3},
	{"splice-out", op_splice_out, 3},
	{"inq", op_inq, 12},
	{NULL, NULL, 0},
};
