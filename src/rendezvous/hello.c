/* SPDX-License-Identifier: Apache-2.0 */
/* The one message of the rendezvous: what the acceptor offers, and to whom. */
#include <errno.h>
#include <string.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/real.h"
#include "rendezvous/hello.h"
#include "rendezvous/ident.h"

#define HELLO_SPARE_FDS 1 /* room to notice a descriptor too many */

union hello_control {
	char bytes[CMSG_SPACE((SEGMENT_FDS + HELLO_SPARE_FDS) * sizeof(int))];
	struct cmsghdr align;
};

union hello_sent {
	char bytes[CMSG_SPACE(SEGMENT_FDS * sizeof(int)) +
		   CMSG_SPACE(sizeof(struct ucred))];
	struct cmsghdr align;
};

void hello_init(struct hello *h)
{
	memset(h, 0, sizeof(*h));
	h->magic = WIRE_MAGIC;
	h->version = WIRE_VERSION;
	h->hello_bytes = sizeof(*h);
	h->header_bytes = sizeof(struct wire);
	h->dir_bytes = sizeof(struct wire_dir);
	for (unsigned i = 0; i < WIRE_AREAS; i++)
		h->area_bytes[i] = wire_area_bytes(i);
	h->total_bytes = WIRE_TOTAL_BYTES;
}

int hello_check(const struct hello *h)
{
	struct hello own;

	hello_init(&own);
	if (h->magic != own.magic)
		return -VD_REASON_HELLO;
	/* Everything before total_bytes describes the layout, but for the features. */
	own.features = h->features;
	if (memcmp(h, &own, offsetof(struct hello, total_bytes)) != 0 ||
	    h->total_bytes != own.total_bytes)
		return -VD_REASON_VERSION;
	return 1;
}

/* How many descriptors go with it. */
static unsigned hello_fds(const struct hello *h)
{
	if (h->declined)
		return 0;
	return h->acceptor_port ? SEGMENT_MEMFD + 1 : SEGMENT_FDS;
}

/* The number is another process's, and may be anything. */
enum vd_reason hello_declined(const struct hello *h)
{
	if (h->declined == VD_REASON_NONE)
		return VD_REASON_NONE;
	return h->declined > VD_REASON_SHORT && h->declined < VD_REASON_COUNT
		       ? (enum vd_reason)h->declined
		       : VD_REASON_PEER_ASKED;
}

static void hello_put(struct msghdr *msg, int type, const void *data, size_t bytes)
{
	struct cmsghdr *c = (void *)((char *)msg->msg_control + msg->msg_controllen);

	msg->msg_controllen += CMSG_SPACE(bytes);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), data, bytes);
}

static void hello_put_fds(struct msghdr *msg, size_t bytes,
			  const struct meet_segment *seg)
{
	int fds[SEGMENT_FDS];

	fds[SEGMENT_MEMFD] = seg->memfd;
	fds[SEGMENT_ACCEPTOR_BELL] = seg->bell;
	fds[SEGMENT_CONNECTOR_BELL] = seg->peer_bell;
	hello_put(msg, SCM_RIGHTS, fds, bytes);
}

int hello_send(int sock, const struct hello *h, const struct meet_segment *seg, uid_t as)
{
	union hello_sent control = {0};
	struct iovec iov = {.iov_base = (void *)h, .iov_len = sizeof(*h)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes};
	struct ucred stated = {.uid = as};

	if (hello_fds(h))
		hello_put_fds(&msg, hello_fds(h) * sizeof(int), seg);
	if (as != IDENT_AS_IT_IS) {
		stated.pid = kernel_getpid();
		stated.gid = (gid_t)kernel_call4(SYS_getegid, 0, 0, 0, 0);
		hello_put(&msg, SCM_CREDENTIALS, &stated, sizeof(stated));
	}
	ssize_t n = kernel_sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? (int)n : 0;
}

/* Takes all descriptors out of the control data: up to SEGMENT_FDS go to fds, the others are
 * dropped. Returns how many there were. */
static int hello_take_fds(struct msghdr *msg, int *fds)
{
	int count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= c->cmsg_len;
		     at += sizeof(int)) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			if (count < SEGMENT_FDS)
				fds[count] = fd;
			else
				fds_close(fd);
			count++;
		}
	}
	return count;
}

/* What recvmsg says; *count descriptors came, of which no more than SEGMENT_FDS are in fds. */
static ssize_t hello_read(int sock, struct hello *h, int fds[SEGMENT_FDS], int *count,
			  int *flags)
{
	union hello_control control;
	struct iovec iov = {.iov_base = h, .iov_len = sizeof(*h)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = fds_receive(sock, &msg);

	*count = n < 0 ? 0 : hello_take_fds(&msg, fds);
	*flags = msg.msg_flags;
	return n;
}

int hello_receive(int sock, struct hello *h, int fds[SEGMENT_FDS])
{
	ssize_t n;
	int count, due, flags;

	memset(h, 0, sizeof(*h));
	for (int i = 0; i < SEGMENT_FDS; i++)
		fds[i] = -1;
	n = hello_read(sock, h, fds, &count, &flags);
	/* The kernel looks for a message, and then whether the sender has gone: who has sent one
	 * and gone in between has left it. */
	if ((n == 0 && count == 0) || n == -ECONNRESET)
		n = hello_read(sock, h, fds, &count, &flags);
	if (n < 0)
		return n == -EAGAIN ? 0 : n == -ECONNRESET ? -EPIPE : (int)n;
	due = (int)hello_fds(h);
	if (n == sizeof(*h) && count == due && !(flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 1;
	for (int i = 0; i < count && i < SEGMENT_FDS; i++)
		fds_close(fds[i]);
	if (n == 0)
		return -EPIPE;
	/* The kernel truncates too when our table has no room for a descriptor. */
	return (flags & MSG_CTRUNC) && count < due ? -EMFILE : -EPROTO;
}

#define COUNT_TRIES 16

int hello_counts(int fd, enum tcp_role role, struct wire_counts *out)
{
	struct tcp_counts c;
	int r = -EAGAIN;

	/* The counts of a busy connection may refuse to stand still for a while. */
	for (int i = 0; r == -EAGAIN && i < COUNT_TRIES; i++)
		r = tcp_counts(fd, role, &c);
	if (r == 0)
		*out = (struct wire_counts){c.acked, c.written, c.received};
	return r;
}

/*
 * At every moment: what the peer knows to have arrived <= what arrived here, and what
 * arrived there <= what was written here. Our side of each only grows, so an old count of
 * the peer's may be compared with a new one of ours, but not the other way round: that is
 * why each end judges these two, by the other's older counts.
 */
bool hello_counts_fit(int fd, enum tcp_role role, const struct wire_counts *peer,
		      struct wire_counts *own)
{
	return hello_counts(fd, role, own) == 0 && peer->acked <= own->received &&
	       peer->received <= own->written;
}
