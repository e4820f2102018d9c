/* SPDX-License-Identifier: Apache-2.0 */
/* recv and send in all their forms. */
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/timeout.h"
#include "preload/hook.h"

/* Urgent data and the error queue never hold bytes of the stream: they stay the kernel's. SO_ZEROCOPY
 * alone changes nothing: a send must ask for it. */
#define RX_KERNEL_FLAGS (MSG_OOB | MSG_ERRQUEUE)
#define TX_KERNEL_FLAGS (MSG_OOB | MSG_ZEROCOPY)
/* The kernel's own, with which it refuses whole messages. */
#define MSG_COMPAT ((int)0x80000000)

/* What is longer the kernel cuts. */
static size_t move_len(size_t len)
{
	return len < SOCK_MOVE_MAX ? len : SOCK_MOVE_MAX;
}

HOOK_PARTS(recv, rx_enter, counted_rx_over, (int fd, void *buf, size_t len, int flags),
	   (fd, buf, len, flags), REAL(recv)(fd, buf, len, flags),
	   rx_recv(s, fd, &(struct iovec){buf, move_len(len)}, 1, flags))

static __attribute__((noinline)) ssize_t recv_odd(int fd, void *buf, size_t len,
						  int flags, struct sock *s)
{
	return hook_in_reach(buf, move_len(len))
		       ? recv_on(fd, buf, len, flags, s, rx_enter(s, fd))
		       : REAL(recv)(fd, buf, len, flags);
}

NEAR_MOVE HOOK ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	struct sock *s = fd_sock(fd);

	if (!s || (flags & RX_KERNEL_FLAGS))
		return REAL(recv)(fd, buf, len, flags);
	if (!crit_is_near(buf, move_len(len)))
		return recv_odd(fd, buf, len, flags, s);
	return gate_state(&s->slot->gate_rx) == GATE_RING
		       ? recv_ring(fd, buf, len, flags, s)
		       : recv_tcp(fd, buf, len, flags, s);
}

/* TCP has no name to give: the kernel writes a length of 0, after the bytes are taken. */
static ssize_t recvfrom_direct(struct sock *s, int fd, const struct iovec *iov, int flags,
			       struct sockaddr *addr, socklen_t *addr_len)
{
	ssize_t n = rx_recv(s, fd, iov, 1, flags);
	socklen_t room;

	if (n < 0 || !addr)
		return n;
	if (crit_copy(&room, addr_len, sizeof(room)) < 0)
		return -EFAULT;
	if (room > INT_MAX)
		return -EINVAL;
	room = 0;
	return crit_copy(addr_len, &room, sizeof(room)) < 0 ? -EFAULT : n;
}

HOOK ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
		      socklen_t *addr_len)
{
	struct sock *s = fd_sock(fd);
	struct iovec iov = {buf, move_len(len)};

	if (!s || (flags & RX_KERNEL_FLAGS) || !hook_in_reach(buf, iov.iov_len))
		return REAL(recvfrom)(fd, buf, len, flags, addr, addr_len);
	return HOOK_RX(s, fd, REAL(recvfrom)(fd, buf, len, flags, addr, addr_len),
		       recvfrom_direct(s, fd, &iov, flags, addr, addr_len));
}

/*
 * Reads a header of the program's, whose pointers may be bad. False when the kernel
 * refuses it, and so does in our place.
 */
static bool header_read(const struct msghdr *from, struct msghdr *msg, size_t *total)
{
	/* The length of no name is nothing. */
	return crit_copy(msg, from, sizeof(*msg)) == 0 &&
	       (!msg->msg_name || msg->msg_namelen <= INT_MAX) &&
	       hook_vector_is_good(msg->msg_iov, msg->msg_iovlen, total);
}

#define FIELD_WRITE(to, name, value)                                                     \
	__extension__({                                                                  \
		__typeof__((to)->name) value_ = (value);                                 \
		crit_copy(&(to)->name, &value_, sizeof(value_));                         \
	})

/* What TCP_INQ adds to a receive, as the kernel cuts it to the room. Returns the bytes of it. */
static size_t control_inq(const struct msghdr *msg, int inq, int *flags)
{
	union {
		char bytes[CMSG_SPACE(sizeof(inq))];
		struct cmsghdr head;
	} c = {.head = {.cmsg_len = CMSG_LEN(sizeof(inq)),
			.cmsg_level = IPPROTO_TCP,
			.cmsg_type = TCP_CM_INQ}};

	memcpy(CMSG_DATA(&c.head), &inq, sizeof(inq));
	if (!msg->msg_control || msg->msg_controllen < sizeof(c.head)) {
		*flags |= MSG_CTRUNC;
		return 0;
	}
	if (msg->msg_controllen < c.head.cmsg_len) {
		*flags |= MSG_CTRUNC;
		c.head.cmsg_len = msg->msg_controllen;
	}
	if (crit_copy(msg->msg_control, &c, c.head.cmsg_len) != 0)
		return 0;
	return msg->msg_controllen < CMSG_SPACE(sizeof(inq)) ? msg->msg_controllen
							     : CMSG_SPACE(sizeof(inq));
}

/* `msg` is the copy that header_read made of `to`. */
static ssize_t recvmsg_direct(struct sock *s, int fd, const struct msghdr *msg,
			      size_t total, struct msghdr *to, int flags)
{
	ssize_t n =
		hook_recv_vector(s, fd, msg->msg_iov, (int)msg->msg_iovlen, flags, total);
	int told = flags & MSG_CMSG_CLOEXEC;
	size_t control = 0;

	if (n < 0)
		return n;
	if (load_relaxed(&s->slot->inq))
		control = control_inq(msg, sock_inq_hint(s, fd), &told);
	if ((msg->msg_name && FIELD_WRITE(to, msg_namelen, 0) < 0) ||
	    FIELD_WRITE(to, msg_controllen, control) < 0 ||
	    FIELD_WRITE(to, msg_flags, told) < 0)
		return -EFAULT;
	return n;
}

static ssize_t recv_message(int fd, struct msghdr *msg, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr head;
	size_t total;
	ssize_t n;

	if (s && !(flags & (RX_KERNEL_FLAGS | MSG_COMPAT)) &&
	    header_read(msg, &head, &total))
		return HOOK_RX(s, fd, REAL(recvmsg)(fd, msg, flags),
			       recvmsg_direct(s, fd, &head, total, msg, flags));
	rights_room(msg, 1);
	n = REAL(recvmsg)(fd, msg, flags);
	if (n >= 0 && msg->msg_controllen > 0)
		rights_received(fd, msg, flags);
	return n;
}

HOOK ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	return recv_message(fd, msg, flags);
}

/* The kernel tells an error that waits before any bytes. Taken: 0 or -errno. */
static int pending_error(struct sock *s, int fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	sock_error_ask(s, fd);
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
	    error == ECONNRESET)
		sock_error_told(s);
	int own = sock_take_error(s);
	return error ? -error : -own;
}

/* A further message begins only where there are bytes for it: no error, and no end, is
 * told to a call that has something else to tell. */
static bool has_more(struct sock *s, int fd)
{
	int bytes = 0, r;

	if (fd_sock(fd) != s)
		return false;
	r = sock_inq(s, fd, &bytes);
	if (r == SOCK_KERNEL)
		r = REAL(ioctl)(fd, FIONREAD, &bytes);
	return r == 0 && bytes > 0;
}

/* One message after the other, until it is so late. The first one waits if it may, the
 * others do not. How many, or -1. */
static int recv_messages(struct sock *s, int fd, struct mmsghdr *msgs, unsigned count,
			 int flags, int64_t end)
{
	unsigned done = 0;
	int saved = errno, error = pending_error(s, fd);

	if (error < 0)
		return (int)ret_errno(error);
	flags &= ~MSG_WAITFORONE;
	while (done < count &&
	       (done == 0 || (has_more(s, fd) &&
			      (end == INT64_MAX || (int64_t)clock_now_ns() < end)))) {
		ssize_t n = recv_message(fd, &msgs[done].msg_hdr, flags);

		if (n >= 0 && FIELD_WRITE(&msgs[done], msg_len, (unsigned)n) < 0)
			n = ret_errno(-EFAULT);
		if (n < 0)
			break;
		flags |= MSG_DONTWAIT;
		done++;
	}
	if (done == 0 && count > 0)
		return -1;
	errno = saved;
	return (int)done;
}

/* The kernel looks at the time behind each message, and writes back what is left. */
static int recv_messages_within(struct sock *s, int fd, struct mmsghdr *msgs,
				unsigned count, int flags, struct timespec *timeout)
{
	struct timespec left;
	int64_t end;
	int n;

	if (crit_copy(&left, timeout, sizeof(left)) < 0)
		return (int)ret_errno(-EFAULT);
	if (left.tv_sec < 0 || (unsigned long)left.tv_nsec >= 1000000000)
		return (int)ret_errno(-EINVAL);
	/* As the kernel: what has no number is at the end of time. */
	if (__builtin_mul_overflow(left.tv_sec, 1000000000, &end) ||
	    __builtin_add_overflow(end, left.tv_nsec, &end) ||
	    __builtin_add_overflow(end, (int64_t)clock_now_ns(), &end))
		end = INT64_MAX;
	n = recv_messages(s, fd, msgs, count, flags, end);
	if (n <= 0)
		return n;
	end -= (int64_t)clock_now_ns();
	end = end < 0 ? 0 : end;
	left = (struct timespec){end / 1000000000, end % 1000000000};
	return crit_copy(timeout, &left, sizeof(left)) < 0 ? (int)ret_errno(-EFAULT) : n;
}

HOOK int recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags,
		  struct timespec *timeout)
{
	struct sock *s = fd_sock(fd);
	int n;

	count = count < UIO_MAXIOV ? count : UIO_MAXIOV;
	/* The kernel would leave the error of a further message to the next call. */
	if (s && !(flags & (MSG_ERRQUEUE | MSG_COMPAT)) &&
	    (gate_state(&s->slot->gate_rx) != GATE_FINAL ||
	     rx_enter(s, fd) != SOCK_PLAIN))
		return timeout ? recv_messages_within(s, fd, msgs, count, flags, timeout)
			       : recv_messages(s, fd, msgs, count, flags, INT64_MAX);
	rights_room(msgs ? &msgs->msg_hdr : NULL, count);
	n = REAL(recvmmsg)(fd, msgs, count, flags, timeout);
	for (int i = 0; i < n; i++)
		if (msgs[i].msg_hdr.msg_controllen > 0)
			rights_received(fd, &msgs[i].msg_hdr, flags);
	return n;
}

static __attribute__((noinline, cold)) void flags_need_kernel(struct sock *s, int fd,
							      int flags)
{
	log_debug("fd %d: a send with flags %#x is the kernel's", fd, flags);
	hook_take_down(s, fd, flags & MSG_OOB ? VD_REASON_OOB : VD_REASON_OPTION);
}

/* Flags that only the kernel's TCP can serve take the connection there. */
static void sending(struct sock *s, int fd, int flags)
{
	if (__builtin_expect(flags & TX_KERNEL_FLAGS, 0))
		flags_need_kernel(s, fd, flags);
	if ((flags & MSG_FASTOPEN) && load_relaxed(&s->slot->role) == TCP_ROLE_UNKNOWN)
		fd_connecting(s, fd);
}

/* A connection that is there: the kernel says EISCONN. */
static inline bool opens_again(struct sock *s, int flags)
{
	return __builtin_expect(flags & MSG_FASTOPEN, 0) && sock_is_direct(s);
}

HOOK_PARTS(send, tx_enter, counted_tx_over,
	   (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags),
	   REAL(send)(fd, buf, len, flags),
	   tx_send(s, fd, &(struct iovec){(void *)buf, move_len(len)}, 1, flags))

static __attribute__((noinline)) ssize_t send_odd(int fd, const void *buf, size_t len,
						  int flags, struct sock *s)
{
	if (!hook_in_reach(buf, move_len(len)) || opens_again(s, flags) ||
	    (len == 0 && (flags & MSG_FASTOPEN)))
		return hook_passed(s, REAL(send)(fd, buf, len, flags));
	if (len == 0)
		return HOOK_TX_NONE(s, fd, flags, REAL(send)(fd, buf, len, flags));
	sending(s, fd, flags);
	return send_on(fd, buf, len, flags, s, tx_enter(s, fd));
}

NEAR_MOVE HOOK ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return REAL(send)(fd, buf, len, flags);
	if (!crit_is_near(buf, move_len(len)) ||
	    (flags & (TX_KERNEL_FLAGS | MSG_FASTOPEN)))
		return send_odd(fd, buf, len, flags, s);
	return gate_state(&s->slot->gate_tx) == GATE_RING
		       ? send_ring(fd, buf, len, flags, s)
		       : send_tcp(fd, buf, len, flags, s);
}
HOOK_ALIAS(__send, send);

/* A connected TCP socket ignores the name, which the kernel has read all the same. */
static bool name_is_good(const void *name, socklen_t len)
{
	return crit_readable(name, len < sizeof(struct sockaddr_storage)
					   ? len
					   : sizeof(struct sockaddr_storage));
}

HOOK ssize_t sendto(int fd, const void *buf, size_t len, int flags,
		    const struct sockaddr *addr, socklen_t addr_len)
{
	struct sock *s = fd_sock(fd);
	struct iovec iov = {(void *)buf, move_len(len)};

	if (!s || !hook_in_reach(buf, iov.iov_len) || opens_again(s, flags) ||
	    (addr && (addr_len > sizeof(struct sockaddr_storage) ||
		      !name_is_good(addr, addr_len))))
		return hook_passed(s, REAL(sendto)(fd, buf, len, flags, addr, addr_len));
	if (len == 0 && !(flags & MSG_FASTOPEN))
		return HOOK_TX_NONE(s, fd, flags,
				    REAL(sendto)(fd, buf, len, flags, addr, addr_len));
	sending(s, fd, flags);
	return HOOK_TX(s, fd, REAL(sendto)(fd, buf, len, flags, addr, addr_len),
		       tx_send(s, fd, &iov, 1, flags));
}

/* Of control data the kernel looks at the first piece, too, before anything is sent. */
static bool control_is_good(const void *control, size_t len)
{
	struct cmsghdr first;

	if (len > INT_MAX || !crit_readable(control, len))
		return false;
	return len < sizeof(first) ||
	       (crit_copy(&first, control, sizeof(first)) == 0 &&
		first.cmsg_len >= sizeof(first) && first.cmsg_len <= len);
}

/* As header_read, of what is to be sent. */
static bool message_read(const struct msghdr *from, struct msghdr *msg, size_t *total)
{
	return header_read(from, msg, total) &&
	       (!msg->msg_name || name_is_good(msg->msg_name, msg->msg_namelen)) &&
	       control_is_good(msg->msg_control, msg->msg_controllen);
}

static ssize_t sendmsg_ours(struct sock *s, int fd, const struct msghdr *msg, int flags)
{
	struct iovec one;
	const struct iovec *iov = hook_vector_own(msg->msg_iov, msg->msg_iovlen, &one);

	/* Control data (marks, timestamps) goes with the kernel's own segments. */
	if (msg->msg_controllen >= sizeof(struct cmsghdr)) {
		log_debug("fd %d: a send with control data is the kernel's", fd);
		hook_take_down(s, fd, VD_REASON_OPTION);
	}
	sending(s, fd, flags);
	return HOOK_TX(s, fd, REAL(sendmsg)(fd, msg, flags),
		       tx_send(s, fd, iov, (int)msg->msg_iovlen, flags));
}

static void control_sending(int fd, const struct msghdr *from)
{
	struct msghdr msg;

	if (!hook_active && !left_any())
		return;
	if (crit_copy(&msg, from, sizeof(msg)) == 0 && msg.msg_control &&
	    msg.msg_controllen > 0)
		rights_sending(fd, &msg);
}

/* *total: the bytes of the message, where it is good. */
static ssize_t send_message(int fd, const struct msghdr *msg, int flags, size_t *total)
{
	struct sock *s = fd_sock(fd);
	struct msghdr head;

	*total = 0;
	if (s && message_read(msg, &head, total) && !(flags & MSG_COMPAT) &&
	    !opens_again(s, flags))
		return *total > 0 || (flags & MSG_FASTOPEN)
			       ? sendmsg_ours(s, fd, &head, flags)
			       : HOOK_TX_NONE(s, fd, flags,
					      REAL(sendmsg)(fd, msg, flags));
	if (!s)
		control_sending(fd, msg);
	return hook_passed(s, REAL(sendmsg)(fd, msg, flags));
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	size_t total;

	return send_message(fd, msg, flags, &total);
}

/* One message after the other, until one is not sent as a whole. How many, or -1. */
static int send_messages(struct sock *s, int fd, struct mmsghdr *msgs, unsigned count,
			 int flags)
{
	unsigned done = 0;
	int saved = errno;
	bool whole = true;

	while (done < count && whole && fd_sock(fd) == s) {
		size_t total;
		ssize_t n = send_message(fd, &msgs[done].msg_hdr, flags, &total);

		if (n >= 0 && FIELD_WRITE(&msgs[done], msg_len, (unsigned)n) < 0)
			n = ret_errno(-EFAULT);
		if (n < 0)
			break;
		whole = (size_t)n >= move_len(total);
		done++;
	}
	if (done == 0 && count > 0)
		return -1;
	errno = saved;
	return (int)done;
}

HOOK int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
	struct sock *s = fd_sock(fd);

	count = count < UIO_MAXIOV ? count : UIO_MAXIOV;
	if (s && !(flags & MSG_COMPAT) &&
	    (gate_state(&s->slot->gate_tx) != GATE_FINAL ||
	     tx_enter(s, fd) != SOCK_PLAIN))
		return send_messages(s, fd, msgs, count, flags);
	for (unsigned i = 0; !s && i < count; i++)
		control_sending(fd, &msgs[i].msg_hdr);
	return (int)hook_passed(s, REAL(sendmmsg)(fd, msgs, count, flags));
}
