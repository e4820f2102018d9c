/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of many messages at once, of flags that are seldom set, and of control messages. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

#define MOST_MESSAGES 8

static uint8_t bytes[65536];

static struct descriptor *a_socket(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s)
		tell("nothing");
	return s;
}

/* ---- preadv2 and pwritev2 ---- */

static const int rw_flags[] = {
	0,	    RWF_NOWAIT, RWF_NOWAIT,
	RWF_HIPRI,  RWF_DSYNC,	RWF_SYNC,
	RWF_APPEND, 0x40000000, RWF_NOWAIT | RWF_HIPRI,
};

static void op_preadv2(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	int flags = rw_flags[dice(d, 9)];
	size_t len = dice_size(d, sizeof bytes);
	off_t at = once_in(d, 8) ? 0 : once_in(d, 8) ? -2 : -1;
	if (!s)
		return;
	if (receive_blocks(s, len, 0) && !is_nonblocking(s->fd) &&
	    !(flags & RWF_NOWAIT)) {
		tell("(%d, %zu) would block", s->fd, len);
		return;
	}
	struct iovec v[2] = {{bytes, len / 2}, {bytes + len / 2, len - len / 2}};
	memset(bytes, 0, len);
	ssize_t n = preadv2(s->fd, v, 2, at, flags);
	tell("(%d, %zu at %ld, %#x) = %s: %08x", s->fd, len, (long)at, (unsigned)flags,
	     result(n), n > 0 ? checksum(bytes, (size_t)n) : 0);
	was_received(s, n);
}

static void op_pwritev2(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	int flags = rw_flags[dice(d, 9)];
	off_t at = once_in(d, 8) ? 0 : once_in(d, 8) ? -2 : -1;
	if (!s)
		return;
	size_t len = dice_size(d, room_to_send(s, true));
	fill_bytes(s, bytes, len);
	struct iovec v[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
	ssize_t n = pwritev2(s->fd, v, 2, at, flags);
	tell("(%d, %zu at %ld, %#x) = %s", s->fd, len, (long)at, (unsigned)flags,
	     result(n));
	was_sent(s, n);
}

/* ---- sendmmsg and recvmmsg ---- */

static void op_send_many(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	struct mmsghdr m[MOST_MESSAGES] = {0};
	struct iovec v[MOST_MESSAGES];
	unsigned count = dice(d, MOST_MESSAGES + 1), bad = once_in(d, 6) ? dice(d, 8) : 8;
	if (!s)
		return;
	size_t len = dice_size(d, room_to_send(s, true)), at = 0;
	fill_bytes(s, bytes, len);
	for (unsigned i = 0; i < count; i++) {
		size_t part =
			i == count - 1 ? len - at : dice(d, (unsigned)(len - at) + 1);
		v[i] = (struct iovec){bytes + at, part};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
		m[i].msg_len = 99;
		at += part;
	}
	if (bad < count)
		v[bad] = (struct iovec){bad_page(), 10};
	int n = sendmmsg(s->fd, m, count,
			 MSG_DONTWAIT | (once_in(d, 2) ? MSG_NOSIGNAL : 0));
	n = send_rest(s->fd, m, count, n);
	tell("(%d, %zu in %u, bad %u) = %s", s->fd, len, count, bad, result(n));
	for (unsigned i = 0; i < count; i++)
		tell("  %u", m[i].msg_len);
	for (int i = 0; i < n; i++)
		was_sent(s, m[i].msg_len);
}

static void op_receive_many(struct dice *d)
{
	static const int some[] = {0,
				   MSG_WAITFORONE,
				   MSG_PEEK,
				   MSG_TRUNC,
				   MSG_PEEK | MSG_WAITFORONE,
				   MSG_WAITALL};
	static const struct timespec times[] = {{0, 0},	 {0, 1},  {100, 0},
						{-1, 0}, {0, -1}, {0, 1000000000}};
	struct descriptor *s = a_socket(d);
	struct mmsghdr m[MOST_MESSAGES] = {0};
	struct iovec v[MOST_MESSAGES];
	unsigned count = dice(d, MOST_MESSAGES + 1);
	int flags = some[dice(d, 6)];
	unsigned which = dice(d, 6);
	struct timespec t = times[which], *with = once_in(d, 2) ? &t : NULL;
	size_t part = 1 + dice_size(d, sizeof bytes / MOST_MESSAGES - 1);
	if (!s)
		return;
	/* The first with something to read, and only what is there, unless it does not wait. */
	if (!(flags & MSG_WAITFORONE) || receive_blocks(s, 1, flags) ||
	    (flags & MSG_WAITALL && part > unread(s)))
		flags |= MSG_DONTWAIT;
	memset(bytes, 0, sizeof bytes);
	for (unsigned i = 0; i < count; i++) {
		v[i] = (struct iovec){bytes + i * part, part};
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
		m[i].msg_hdr.msg_flags = 0x5A;
		m[i].msg_len = 99;
	}
	int n = recvmmsg(s->fd, m, count, flags, with);
	n = receive_rest(s->fd, m, count, flags, n);
	/* How much of it is left is a time. */
	const char *r = result(n), *left = !with		   ? "no time"
					   : t.tv_sec == 99	   ? "some left"
					   : t.tv_sec || t.tv_nsec ? "as it was"
								   : "none left";
	tell("(%d, %u of %zu, %s, %s of %u) = %s: %08x", s->fd, count, part,
	     flags_of_message(flags), left, which, r, checksum(bytes, count * part));
	for (unsigned i = 0; i < count; i++)
		tell("  %u, %s", m[i].msg_len, flags_of_message(m[i].msg_hdr.msg_flags));
	for (int i = 0; i < n && !(flags & MSG_PEEK); i++)
		was_received(s, m[i].msg_len);
}

/* ---- flags ---- */

static void op_odd_flags(struct dice *d)
{
	static const int out[] = {MSG_EOR,     MSG_CONFIRM, MSG_DONTROUTE, MSG_TRUNC,
				  MSG_FIN,     MSG_RST,	    MSG_WAITALL,   MSG_PEEK,
				  MSG_CTRUNC,  MSG_SYN,	    0x1000000,	   0x40000,
				  MSG_ERRQUEUE};
	static const int in[] = {MSG_EOR,	  MSG_CONFIRM,	MSG_DONTROUTE,
				 MSG_ERRQUEUE,	  MSG_CTRUNC,	MSG_MORE,
				 0x1000000,	  MSG_NOSIGNAL, MSG_ERRQUEUE | MSG_PEEK,
				 MSG_CMSG_CLOEXEC};
	struct descriptor *s = a_socket(d);
	bool sends = once_in(d, 2);
	int flags = MSG_DONTWAIT | (sends ? out[dice(d, 13)] : in[dice(d, 10)]);
	size_t len = 1 + dice(d, 300);
	if (!s || (sends && room_to_send(s, true) < 1000))
		return;
	if (sends) {
		fill_bytes(s, bytes, len);
		ssize_t n = send(s->fd, bytes, len, flags);
		tell("send(%d, %zu, %s) = %s", s->fd, len, flags_of_message(flags),
		     result(n));
		was_sent(s, n);
		return;
	}
	memset(bytes, 0, len);
	ssize_t n = recv(s->fd, bytes, len, flags);
	tell("recv(%d, %zu, %s) = %s: %08x", s->fd, len, flags_of_message(flags),
	     result(n), checksum(bytes, len));
	was_received(s, n);
}

/* ---- control messages ---- */

static void op_send_control(struct dice *d)
{
	static const struct {
		int level, type;
		unsigned len;
	} some[] = {{SOL_SOCKET, SCM_RIGHTS, 4},
		    {SOL_SOCKET, SCM_RIGHTS, 0},
		    {SOL_SOCKET, SCM_CREDENTIALS, 12},
		    {SOL_SOCKET, SO_MARK, 4},
		    {SOL_SOCKET, SO_MARK, 2},
		    {SOL_SOCKET, 999, 4},
		    {0, 1, 4},
		    {999, 1, 4},
		    {SOL_SOCKET, SO_PRIORITY, 4},
		    {SOL_SOCKET, SO_TIMESTAMPING, 2}};
	struct descriptor *s = a_socket(d);
	unsigned which = dice(d, 10), cut = dice(d, 6);
	size_t len = dice(d, 200);
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(64)];
	} c;
	if (!s || room_to_send(s, true) < 1000)
		return;
	memset(&c, 0, sizeof c);
	c.head = (struct cmsghdr){CMSG_LEN(some[which].len), some[which].level,
				  some[which].type};
	fill_bytes(s, bytes, len);
	struct iovec v = {bytes, len};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &c,
			   .msg_controllen = CMSG_SPACE(some[which].len)};
	if (cut == 0)
		m.msg_controllen = 8;
	else if (cut == 1)
		c.head.cmsg_len = 3;
	else if (cut == 2)
		c.head.cmsg_len = 1000;
	else if (cut == 3)
		m.msg_control = bad_page();
	ssize_t n = sendmsg(s->fd, &m, MSG_DONTWAIT);
	tell("(%d, %zu, level %d type %d of %u, %u) = %s", s->fd, len, some[which].level,
	     some[which].type, some[which].len, cut, result(n));
	was_sent(s, n);
}

const struct op ops_batch[] = {
	{"preadv2", op_preadv2, 5},
	{"pwritev2", op_pwritev2, 5},
	{"send-many", op_send_many, 6},
	{"receive-many", op_receive_many, 8},
	{"odd-flags", op_odd_flags, 8},
	{"send-control", op_send_control, 4},
	{NULL, NULL, 0},
};
