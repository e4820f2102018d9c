/* SPDX-License-Identifier: Apache-2.0 */
/* read, write and their vector forms, and sendfile. */
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "preload/hook.h"

/*
 * What moves nothing is the kernel's to judge: an empty read returns at once, an empty
 * write reports a broken connection, and a wrong vector is refused before any byte moves.
 */
static bool moves_bytes(const void *buf, size_t len)
{
	return len > 0 && hook_in_reach(buf, len);
}

static bool vector_moves_bytes(const struct iovec *iov, int count, size_t *total)
{
	*total = 0;
	return count > 0 && hook_vector_is_good(iov, (size_t)count, total) && *total > 0;
}

/* What is longer the kernel cuts. */
static size_t move_len(size_t len)
{
	return len < SOCK_MOVE_MAX ? len : SOCK_MOVE_MAX;
}

/* Apart, for the sake of the registers that nearly every read needs not save. */
static __attribute__((noinline, cold)) ssize_t read_odd(struct sock *s, int fd, void *buf,
							size_t len)
{
	struct iovec iov = {buf, move_len(len)};

	if (!moves_bytes(buf, len))
		return hook_passed(s, REAL(read)(fd, buf, len));
	return HOOK_RX(s, fd, REAL(read)(fd, buf, len), rx_recv(s, fd, &iov, 1, 0));
}

static __attribute__((noinline, cold)) ssize_t write_odd(struct sock *s, int fd,
							 const void *buf, size_t len)
{
	struct iovec iov = {(void *)buf, move_len(len)};

	if (!hook_in_reach(buf, len))
		return hook_passed(s, REAL(write)(fd, buf, len));
	if (len == 0)
		return HOOK_TX_NONE(s, fd, 0, REAL(write)(fd, buf, len));
	return HOOK_TX(s, fd, REAL(write)(fd, buf, len), tx_send(s, fd, &iov, 1, 0));
}

HOOK_PARTS(read, rx_enter, counted_rx_over, (int fd, void *buf, size_t len),
	   (fd, buf, len), REAL(read)(fd, buf, len),
	   rx_recv(s, fd, &(struct iovec){buf, move_len(len)}, 1, 0))

NEAR_FIRST HOOK ssize_t read(int fd, void *buf, size_t len)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return REAL(read)(fd, buf, len);
	if (!crit_is_near(buf, len))
		return read_odd(s, fd, buf, len);
	return gate_state(&s->slot->gate_rx) == GATE_RING ? read_ring(fd, buf, len, s)
							  : read_tcp(fd, buf, len, s);
}
HOOK_ALIAS(__read, read);

HOOK ssize_t readv(int fd, const struct iovec *iov, int count)
{
	struct sock *s = fd_sock(fd);
	size_t total;

	if (!s || !vector_moves_bytes(iov, count, &total))
		return REAL(readv)(fd, iov, count);
	return HOOK_RX(s, fd, REAL(readv)(fd, iov, count),
		       hook_recv_vector(s, fd, iov, count, 0, total));
}

HOOK_PARTS(write, tx_enter, counted_tx_over, (int fd, const void *buf, size_t len),
	   (fd, buf, len), REAL(write)(fd, buf, len),
	   tx_send(s, fd, &(struct iovec){(void *)buf, move_len(len)}, 1, 0))

NEAR_MOVE HOOK ssize_t write(int fd, const void *buf, size_t len)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return REAL(write)(fd, buf, len);
	if (!crit_is_near(buf, len))
		return write_odd(s, fd, buf, len);
	return gate_state(&s->slot->gate_tx) == GATE_RING ? write_ring(fd, buf, len, s)
							  : write_tcp(fd, buf, len, s);
}
HOOK_ALIAS(__write, write);

NEAR_MOVE HOOK ssize_t writev(int fd, const struct iovec *iov, int count)
{
	struct sock *s = fd_sock(fd);
	const struct iovec *own;
	struct iovec one;
	size_t total;

	if (!s || !vector_moves_bytes(iov, count, &total))
		return REAL(writev)(fd, iov, count);
	own = hook_vector_own(iov, (size_t)count, &one);
	return HOOK_TX(s, fd, REAL(writev)(fd, iov, count),
		       tx_send(s, fd, own, count, 0));
}

/* The C library's read and write past us, whatever the descriptor is. */
HOOK int eventfd_read(int fd, eventfd_t *value)
{
	return read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
}

HOOK int eventfd_write(int fd, eventfd_t value)
{
	return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

/* Newer than some headers. */
#define FLAG_NOAPPEND 0x20
#define FLAG_NOSIGNAL 0x100

/*
 * The flags of preadv2 and pwritev2 that the sockets of this kernel take. By its version:
 * asking one would be moving bytes.
 */
static int rwf_taken(void)
{
	static _Atomic int seen; /* 0: not looked yet */
	int taken = load_relaxed(&seen);
	struct utsname u = {0};
	char *end;

	if (taken)
		return taken;
	taken = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND;
	kernel_uname(&u);
	unsigned long version = strtoul(u.release, &end, 10) << 16;
	if (*end == '.')
		version += strtoul(end + 1, NULL, 10);
	if (version >= (6 << 16 | 5))
		taken |= RWF_NOWAIT;
	if (version >= (6 << 16 | 9))
		taken |= FLAG_NOAPPEND;
	if (version >= (6 << 16 | 18))
		taken |= FLAG_NOSIGNAL;
	store_relaxed(&seen, taken);
	return taken;
}

/* The flags of a send or receive that does the same, or -errno as the kernel would say. */
static int rwf_to_msg(int flags)
{
	if (flags & ~rwf_taken())
		return -EOPNOTSUPP;
	if (flags & RWF_APPEND && flags & FLAG_NOAPPEND)
		return -EINVAL;
	return (flags & RWF_NOWAIT ? MSG_DONTWAIT : 0) |
	       (flags & FLAG_NOSIGNAL ? MSG_NOSIGNAL : 0);
}

static ssize_t rwf_recv(struct sock *s, int fd, const struct iovec *iov, int count,
			int flags, size_t total)
{
	int msg = rwf_to_msg(flags);

	return msg < 0 ? msg
		       : hook_recv_vector(s, fd, iov, count, msg & MSG_DONTWAIT, total);
}

static ssize_t rwf_send(struct sock *s, int fd, const struct iovec *iov, int count,
			int flags)
{
	int msg = rwf_to_msg(flags);
	struct iovec one;

	return msg < 0 ? msg
		       : tx_send(s, fd, hook_vector_own(iov, (size_t)count, &one), count,
				 msg);
}

/* On a socket, offset -1 makes these readv and writev with flags; else they fail. */
HOOK ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	struct sock *s = fd_sock(fd);
	size_t total;

	if (!s || offset != -1 || !vector_moves_bytes(iov, count, &total))
		return REAL(preadv2)(fd, iov, count, offset, flags);
	return HOOK_RX(s, fd, REAL(preadv2)(fd, iov, count, offset, flags),
		       rwf_recv(s, fd, iov, count, flags, total));
}
HOOK_ALIAS(preadv64v2, preadv2);

HOOK ssize_t pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	struct sock *s = fd_sock(fd);
	size_t total;

	if (!s || offset != -1 || !vector_moves_bytes(iov, count, &total))
		return REAL(pwritev2)(fd, iov, count, offset, flags);
	return HOOK_TX(s, fd, REAL(pwritev2)(fd, iov, count, offset, flags),
		       rwf_send(s, fd, iov, count, flags));
}
HOOK_ALIAS(pwritev64v2, pwritev2);

/* off_t has 64 bits on every machine that Viaduct runs on: one function, two names. */
_Static_assert(sizeof(off_t) == sizeof(off64_t), "off_t");

/* The kernel judges the end before it cuts: where it has no number. */
static bool file_end_is_beyond(int in, const off64_t *offset, size_t count)
{
	off64_t at = offset		     ? *offset
		     : count > SOCK_MOVE_MAX ? kernel_lseek(in, 0, SEEK_CUR)
					     : 0;

	return at > 0 && count > (size_t)(INT64_MAX - at);
}

static ssize_t sendfile_direct(struct sock *s, int out, int in, off64_t *offset,
			       size_t count)
{
	off64_t at;
	ssize_t n;

	if (offset && crit_copy(&at, offset, sizeof(at)) < 0)
		return -EFAULT;
	/* Behind what the kernel has against the file. */
	if (file_end_is_beyond(in, offset ? &at : NULL, count))
		n = REAL(sendfile64)(out, in, offset, 0) < 0 ? -errno : -EINVAL;
	else
		n = tx_sendfile(s, out, in, offset ? &at : NULL, move_len(count));
	/* Also where nothing was sent. */
	return offset && n != SOCK_KERNEL && crit_copy(offset, &at, sizeof(at)) < 0
		       ? -EFAULT
		       : n;
}

HOOK ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	struct sock *s = fd_sock(out), *from = fd_sock(in);
	ssize_t n;

	if (from && !s && count > 0 && count <= SSIZE_MAX)
		return HOOK_DEAF(hook_sendfile_from(from, out, in, offset, count));
	if (!s || in < 0 || count == 0 || count > SSIZE_MAX)
		return REAL(sendfile64)(out, in, offset, count);
	n = HOOK_DEAF(HOOK_TX(s, out, REAL(sendfile64)(out, in, offset, count),
			      sendfile_direct(s, out, in, offset, count)));
	if (s && n > 0 && (size_t)n < count)
		sock_ended_short(s, out);
	return n;
}
HOOK_ALIAS(sendfile, sendfile64);
