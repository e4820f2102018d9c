/* SPDX-License-Identifier: Apache-2.0 */
/* One random call of the send or the receive family, with its result checked. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "integrity.h"

#define CANARY	   0xa5
#define CANARY_LEN 16
#define IOV_LIMIT  64
#define MMSG_LIMIT 4
#define FILE_LIMIT (32 << 20)

static _Thread_local uint8_t *thread_buf;
static _Thread_local int thread_file = -1;

static uint8_t *buffer(void)
{
	if (!thread_buf)
		thread_buf = malloc(BUF_BYTES + CANARY_LEN);
	if (!thread_buf)
		abort();
	return thread_buf;
}

/*
 * TCP's buffers take all of a stream at once, before the connection can be upgraded: most
 * directions begin with small calls, and let the other end come after them now and then.
 */
#define SMALL_CALLS	40
#define CALLS_AT_ONCE	8
#define COME_AFTER_NAPS 40

static bool begins_small(const struct half *h)
{
	return h->small || (h->key % 4 && h->state->ops < SMALL_CALLS);
}

static void let_come_after(const struct half *h)
{
	const struct conn *c = h->conn;
	const struct dir_state *peer = &sh->conn[!c->side][c->index].rx;
	if (!begins_small(h) || h->state->ops % CALLS_AT_ONCE != CALLS_AT_ONCE - 1)
		return;
	/* Bounded: the other end may be waiting so for us, in a loop that serves many. */
	for (int i = 0; i < COME_AFTER_NAPS && peer->off < h->off; i++)
		usleep(100);
}

static bool may_splice(const struct half *h)
{
	return opt.events && !h->dontwait && h->state->ops >= h->splice_from;
}

/* What may be moved now. */
static uint64_t left_of(const struct half *h)
{
	return (h->until ? h->until : h->total) - h->off;
}

/* Most directions move small pieces by many calls, some large ones, some a mixture. */
static size_t pick_size(struct half *h)
{
	static const unsigned bounds[3][5] = {
		{80, 97, 100, 100, 100}, {50, 80, 95, 99, 100}, {10, 20, 50, 90, 100}};
	static const unsigned sizes[5] = {256, 8192, 65536, 512u << 10, BUF_BYTES};
	const unsigned *bound = bounds[h->key % 5 < 3 ? 0 : h->key % 5 - 2];
	unsigned dice = rnd(&h->rng) % 100, class = 0;
	if (begins_small(h))
		return 1 + rnd(&h->rng) % sizes[0];
	while (dice >= bound[class])
		class ++;
	return 1 + rnd(&h->rng) % sizes[class];
}

/* Cuts buf into at least one piece, some of them empty. */
static int split(uint64_t *rng, uint8_t *buf, size_t len, struct iovec *iov)
{
	int want = chance(rng, 40) ? IOV_LIMIT : 1 + (int)(rnd(rng) % 6);
	int n = 0;
	while (n < want - 1 && len > 0) {
		size_t piece = rnd(rng) % (len / 2 + 2);
		if (chance(rng, 8))
			piece = 0;
		if (piece > len)
			piece = len;
		iov[n++] = (struct iovec){buf, piece};
		buf += piece;
		len -= piece;
	}
	iov[n++] = (struct iovec){buf, len};
	return n;
}

static void pause_sometimes(uint64_t *rng)
{
	if (chance(rng, 300))
		usleep(rnd(rng) % 2000);
	else if (chance(rng, 5000))
		usleep(rnd(rng) % 60000);
}

void maybe_bounce(struct half *h)
{
	static _Thread_local void (*bounce)(int);
	static _Thread_local bool looked;
	if (!opt.bounce || !chance(&h->rng, opt.events ? 40 : 150))
		return;
	if (!looked) {
		*(void **)&bounce = dlsym(RTLD_DEFAULT, "viaduct_test_bounce");
		looked = true;
	}
	if (!bounce)
		return;
	note(h, "bounce");
	bounce(h->fd);
	sh->bounces++;
}

void calls_done(void)
{
	free(thread_buf);
	thread_buf = NULL;
	if (thread_file >= 0)
		close(thread_file);
	thread_file = -1;
	pipes_done();
}

bool may_die(const struct conn *c)
{
	return c->plan.ending == END_ABORT || c->fragile || sh->killed;
}

ssize_t send_mmsg(struct half *h, uint8_t *buf, size_t len, int flags)
{
	struct mmsghdr msgs[MMSG_LIMIT] = {0};
	struct iovec iov[MMSG_LIMIT][IOV_LIMIT];
	unsigned n = 1 + rnd(&h->rng) % MMSG_LIMIT;
#ifndef __GLIBC__
	/* musl's own, on TCP, goes on with the next message where one was sent in part. */
	n = 1;
#endif
	size_t each = len / n;
	for (unsigned i = 0; i < n; i++) {
		size_t part = i == n - 1 ? len - each * (n - 1) : each;
		msgs[i].msg_hdr.msg_iov = iov[i];
		msgs[i].msg_hdr.msg_iovlen = split(&h->rng, buf + each * i, part, iov[i]);
	}
	note(h, "sendmmsg %u of %zu flags %#x", n, len, flags);
	int r = sendmmsg(h->fd, msgs, n, flags);
	if (r <= 0)
		return r;
	ssize_t sum = 0;
	for (int i = 0; i < r; i++) {
		size_t part = i == (int)n - 1 ? len - each * (n - 1) : each;
		if (msgs[i].msg_len > part || (msgs[i].msg_len < part && i != r - 1))
			fail_at(h, "sendmmsg: message %d of %d says %u of %zu", i, r,
				msgs[i].msg_len, part);
		sum += msgs[i].msg_len;
	}
	if (h->blocking && !(flags & MSG_DONTWAIT) && (size_t)sum < len)
		count(COUNT_SENDMMSG_CUT);
	if (sum > 0)
		return sum;
	/* All that went were empty messages, before the one byte that a signal, or a full
	 * socket, has kept back. */
	errno = opt.signals ? EINTR : EAGAIN;
	return -1;
}

/*
 * sendfile hands the file's pages over, not a copy: no byte that was sent may be written
 * again, so the file only grows, and is replaced by a new one in the end.
 */
static off_t put_in_file(struct half *h, const uint8_t *buf, size_t len)
{
	static _Thread_local off_t end;
	off_t at = end + (off_t)(rnd(&h->rng) % 5000);
	if (thread_file >= 0 && at > FILE_LIMIT) {
		close(thread_file);
		thread_file = -1;
	}
	if (thread_file < 0) {
		thread_file = memfd_create("integrity", MFD_CLOEXEC);
		at = 0;
	}
	if (thread_file < 0 || pwrite(thread_file, buf, len, at) != (ssize_t)len)
		fail_at(h, "memfd: %s", strerror(errno));
	end = at + (off_t)len;
	return at;
}

static ssize_t send_file(struct half *h, const uint8_t *buf, size_t len)
{
	off_t at = put_in_file(h, buf, len), pos = at;
	bool own = chance(&h->rng, 2);
	if (own && lseek(thread_file, at, SEEK_SET) != at)
		fail_at(h, "lseek: %s", strerror(errno));
	note(h, "sendfile %zu at %ld%s", len, (long)at, own ? " own position" : "");
	ssize_t r = sendfile(h->fd, thread_file, own ? NULL : &pos, len);
	int saved = errno;
	if (own)
		pos = lseek(thread_file, 0, SEEK_CUR);
	if (pos != at + (r > 0 ? r : 0))
		fail_at(h, "sendfile moved the position by %ld for %zd", (long)(pos - at),
			r);
	errno = saved;
	return r;
}

/* Sends up to *len_io bytes, which it lowers where the call has a limit. */
static ssize_t send_one(struct half *h, uint8_t *buf, size_t *len_io)
{
	size_t len = *len_io;
	struct iovec iov[IOV_LIMIT];
	struct msghdr msg = {.msg_iov = iov};
	int flags = h->dontwait ? MSG_DONTWAIT : 0;
	unsigned call = rnd(&h->rng) % 8;
	if (h->plain)
		call = 0;
	else if (may_splice(h) && chance(&h->rng, 20)) {
		*len_io = len < PIPE_MOST ? len : PIPE_MOST;
		return send_splice(h, buf, *len_io);
	}
	if (chance(&h->rng, 2))
		flags |= MSG_NOSIGNAL;
	if (chance(&h->rng, 30) && len < left_of(h))
		flags |= MSG_MORE;
	if (chance(&h->rng, 30) && !h->blocking)
		flags |= MSG_DONTWAIT;
	if (h->dontwait && (call < 2 || call == 7))
		call = 2;
	switch (call) {
	case 0:
		note(h, "write %zu", len);
		return write(h->fd, buf, len);
	case 1:
		msg.msg_iovlen = split(&h->rng, buf, len, iov);
		note(h, "writev %zu in %zu", len, msg.msg_iovlen);
		return writev(h->fd, iov, (int)msg.msg_iovlen);
	case 2:
	case 3:
		note(h, "send %zu flags %#x", len, flags);
		return send(h->fd, buf, len, flags);
	case 4:
		note(h, "sendto %zu flags %#x", len, flags);
		return sendto(h->fd, buf, len, flags, NULL, 0);
	case 5:
		msg.msg_iovlen = split(&h->rng, buf, len, iov);
		note(h, "sendmsg %zu in %zu flags %#x", len, msg.msg_iovlen, flags);
		return sendmsg(h->fd, &msg, flags);
	case 6:
		return send_mmsg(h, buf, len, flags);
	default:
		*len_io = len < 300000 ? len : 300000;
		return send_file(h, buf, *len_io);
	}
}

/*
 * Linux stores the error of a recvmmsg that was cut short in the socket, where the next
 * call of either direction finds it; a signal leaves its internal ERESTARTSYS there.
 */
static bool interrupted(const struct half *h)
{
	const struct conn *c = h->conn;
	return errno == EINTR ||
	       (errno == 512 && (opt.signals || c->rx.cut || c->tx.cut));
}

enum moved half_send(struct half *h)
{
	uint8_t *buf = buffer();
	size_t len = pick_size(h);
	if (len > left_of(h))
		len = left_of(h);
	pause_sometimes(&h->rng);
	let_come_after(h);
	maybe_bounce(h);
	stream_fill(h->key, h->off, buf, len);
	ssize_t r = send_one(h, buf, &len);
	h->state->ops++;
	if (r < 0) {
		note(h, "... %s", strerror(errno));
		if (errno == EAGAIN)
			return MOVED_AGAIN;
		if (interrupted(h))
			return MOVED;
		if ((errno == EPIPE || errno == ECONNRESET) && may_die(h->conn))
			return MOVED_DEAD;
		fail_at(h, "send: %s", strerror(errno));
	}
	note(h, "... %zd", r);
	if (r == 0 || (size_t)r > len)
		fail_at(h, "send of %zu returned %zd", len, r);
	h->off += r;
	h->state->off = h->off;
	/* A signal cuts a sendfile short though there is room: no edge would follow. */
	return (size_t)r < len && !opt.signals ? MOVED_SHORT : MOVED;
}

/* ---- receiving ---- */

void verify(struct half *h, uint64_t off, const uint8_t *buf, size_t len)
{
	uint64_t end = off + len;
	if (end > h->total)
		fail_at(h, "%zu bytes at %lu: the stream has %lu", len, off, h->total);
	ssize_t bad = stream_check(h->key, off, buf, len);
	if (bad < 0)
		return;
	size_t from = bad, n = len - from < 16 ? len - from : 16;
	uint8_t right[16];
	char text[160] = "";
	stream_fill(h->key, off + from, right, n);
	for (size_t i = 0; i < n; i++)
		sprintf(text + strlen(text), " %02x/%02x", buf[from + i], right[i]);
	fail_at(h, "wrong byte at %lu (%zd into %zu; got/right:%s)", off + from, bad, len,
		text);
}

static void check_msg(struct half *h, const struct msghdr *msg)
{
	if (msg->msg_flags & ~MSG_DONTWAIT)
		fail_at(h, "recvmsg: msg_flags %#x", msg->msg_flags);
	if (msg->msg_controllen)
		fail_at(h, "recvmsg: msg_controllen %zu", msg->msg_controllen);
}

ssize_t recv_mmsg(struct half *h, uint8_t *buf, size_t len, int flags, unsigned n)
{
	struct mmsghdr msgs[MMSG_LIMIT] = {0};
	struct iovec iov[MMSG_LIMIT][IOV_LIMIT];
	if (!n)
		n = 1 + rnd(&h->rng) % MMSG_LIMIT;
	size_t each = len / n ? len / n : 1;
	if (len < n)
		n = (unsigned)len;
	if (chance(&h->rng, 2))
		flags |= MSG_WAITFORONE;
	for (unsigned i = 0; i < n; i++) {
		msgs[i].msg_hdr.msg_iov = iov[i];
		msgs[i].msg_hdr.msg_iovlen = split(&h->rng, buf + each * i, each, iov[i]);
	}
	note(h, "recvmmsg %u of %zu flags %#x", n, each, flags);
	int r = recvmmsg(h->fd, msgs, n, flags, NULL);
	if (r <= 0)
		return r < 0 ? r : (fail_at(h, "recvmmsg returned 0"), 0);
	ssize_t sum = 0;
	for (int i = 0; i < r; i++) {
		check_msg(h, &msgs[i].msg_hdr);
		if (msgs[i].msg_len > each)
			fail_at(h, "recvmmsg: %u of %zu", msgs[i].msg_len, each);
		verify(h, h->off + sum, buf + each * i, msgs[i].msg_len);
		sum += msgs[i].msg_len;
		if (!msgs[i].msg_len && h->off + sum < h->total && !may_die(h->conn))
			fail_at(h, "recvmmsg: message %d of %d is an end at %lu of %lu",
				i, r, h->off + sum, h->total);
	}
	if (h->blocking && !(flags & (MSG_DONTWAIT | MSG_WAITFORONE)) && r < (int)n &&
	    h->off + sum < h->total) {
		count(COUNT_RECVMMSG_CUT);
		h->cut = true;
	}
	return sum;
}

static ssize_t recv_msg(struct half *h, uint8_t *buf, size_t len, int flags)
{
	struct iovec iov[IOV_LIMIT];
	char control[128];
	struct msghdr msg = {.msg_iov = iov};
	if (chance(&h->rng, 2)) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof control;
	}
	msg.msg_iovlen = split(&h->rng, buf, len, iov);
	note(h, "recvmsg %zu in %zu flags %#x", len, msg.msg_iovlen, flags);
	ssize_t r = recvmsg(h->fd, &msg, flags);
	if (r > 0)
		check_msg(h, &msg);
	return r;
}

/* What FIONREAD counts can be had at once. */
static void check_inq(struct half *h, uint8_t *buf)
{
	int n = -1;
	if (!chance(&h->rng, 20) || may_die(h->conn) || h->plain)
		return;
	if (ioctl(h->fd, FIONREAD, &n) != 0 || n < 0)
		fail_at(h, "FIONREAD: %d, %s", n, strerror(errno));
	if ((uint64_t)n > h->total - h->off)
		fail_at(h, "FIONREAD says %d, %lu are left", n, h->total - h->off);
	if (n == 0)
		return;
	if (n > (int)BUF_BYTES)
		n = BUF_BYTES;
	note(h, "FIONREAD %d, peek", n);
	ssize_t r = recv(h->fd, buf, n, MSG_PEEK | MSG_DONTWAIT);
	if (r < 0 && errno == EINTR)
		return;
	if (r <= 0)
		fail_at(h, "FIONREAD says %d, MSG_PEEK %zd, %s", n, r, strerror(errno));
	verify(h, h->off, buf, r);
	note(h, "FIONREAD %d, recv", n);
	r = recv(h->fd, buf, n, MSG_DONTWAIT);
	if (r != n)
		fail_at(h, "FIONREAD says %d, recv gives %zd", n, r);
	verify(h, h->off, buf, r);
	h->off += r;
	h->state->off = h->off;
}

struct got {
	ssize_t r;
	bool checked, peeked, trunc;
};

static struct got recv_flagged(struct half *h, uint8_t *buf, size_t len, int flags)
{
	struct sockaddr_storage from;
	socklen_t from_len = sizeof from;
	struct got g = {0};
	if (flags & MSG_PEEK)
		g.peeked = true;
	else if (chance(&h->rng, 100))
		flags |= MSG_TRUNC, g.trunc = true;
	if (chance(&h->rng, 2)) {
		note(h, "recv %zu flags %#x", len, flags);
		g.r = recv(h->fd, buf, len, flags);
		return g;
	}
	note(h, "recvfrom %zu flags %#x", len, flags);
	g.r = recvfrom(h->fd, buf, len, flags, (struct sockaddr *)&from, &from_len);
	if (g.r > 0 && from_len != 0)
		fail_at(h, "recvfrom: address length %u", from_len);
	return g;
}

static struct got recv_one(struct half *h, uint8_t *buf, size_t len)
{
	struct iovec iov[IOV_LIMIT];
	struct got g = {0};
	int flags = h->dontwait ? MSG_DONTWAIT : 0, n;
	unsigned call = rnd(&h->rng) % 8;
	if (h->plain)
		call = 0;
	else if (may_splice(h) && chance(&h->rng, h->small ? 40 : 10)) {
		g.r = recv_splice(h, buf, len < PIPE_MOST ? len : PIPE_MOST);
		g.checked = true;
		return g;
	}
	if (h->dontwait && call < 2)
		call = 2;
	if (call == 2 || call == 3) {
		if (chance(&h->rng, 8))
			flags |= MSG_PEEK;
		else if (chance(&h->rng, 6))
			flags |= MSG_WAITALL;
		if (chance(&h->rng, 10) && !h->blocking)
			flags |= MSG_DONTWAIT;
	}
	switch (call) {
	case 0:
		note(h, "read %zu", len);
		g.r = read(h->fd, buf, len);
		return g;
	case 1:
		n = split(&h->rng, buf, len, iov);
		note(h, "readv %zu in %d", len, n);
		g.r = readv(h->fd, iov, n);
		return g;
	case 2:
	case 3:
		g = recv_flagged(h, buf, len, flags);
		break;
	case 4:
	case 5:
		g.r = recv_msg(h, buf, len, flags);
		break;
	default:
		g.r = recv_mmsg(h, buf, len, flags, 0);
		g.checked = true;
	}
	/* A call may be short whose number is replaced meanwhile: the scene dup. */
	if ((flags & MSG_WAITALL) && h->blocking && !h->small &&
	    !(flags & MSG_DONTWAIT) && !may_die(h->conn) && !opt.signals && g.r >= 0 &&
	    (size_t)g.r < len && h->off + g.r != h->total)
		fail_at(h, "MSG_WAITALL for %zu gave %zd before the end", len, g.r);
	return g;
}

static enum moved recv_failed(struct half *h)
{
	note(h, "... %s", strerror(errno));
	if (errno == EAGAIN)
		return MOVED_AGAIN;
	if (interrupted(h))
		return MOVED;
	if (errno == ECONNRESET && may_die(h->conn))
		return MOVED_DEAD;
	if (errno == EPIPE && may_die(h->conn))
		return MOVED_DEAD;
	if (errno == ENOTCONN && h->conn->fragile)
		return MOVED_DEAD;
	fail_at(h, "receive: %s", strerror(errno));
}

enum moved half_recv(struct half *h)
{
	uint8_t *buf = buffer();
	size_t len = pick_size(h);
	pause_sometimes(&h->rng);
	maybe_bounce(h);
	check_inq(h, buf);
	if ((h->off == h->total && rx_complete(h)) || (h->until && h->off >= h->until))
		return MOVED;
	if (h->until && len > left_of(h))
		len = left_of(h);
	memset(buf + len, CANARY, CANARY_LEN);
	struct got g = recv_one(h, buf, len);
	h->state->ops++;
	if (g.r < 0)
		return recv_failed(h);
	note(h, "... %zd", g.r);
	for (unsigned i = 0; i < CANARY_LEN; i++)
		if (buf[len + i] != CANARY)
			fail_at(h, "byte %u past the buffer was written", i);
	if (g.r == 0) {
		if (h->off != h->total && !may_die(h->conn))
			fail_at(h, "end of stream at %lu of %lu", h->off, h->total);
		return MOVED_EOF;
	}
	if ((size_t)g.r > len)
		fail_at(h, "receive of %zu returned %zd", len, g.r);
	if (h->off + g.r > h->total)
		fail_at(h, "%zd bytes at %lu: the stream has %lu", g.r, h->off, h->total);
	if (!g.checked && !g.trunc)
		verify(h, h->off, buf, g.r);
	if (g.peeked)
		return MOVED;
	h->off += g.r;
	h->state->off = h->off;
	/* A short message among several need not mean that nothing is left. */
	return !g.checked && (size_t)g.r < len ? MOVED_SHORT : MOVED;
}
