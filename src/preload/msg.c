/* SPDX-License-Identifier: Apache-2.0 */
/* recv and send in all their forms. */
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/stay.h"
#include "conn/timeout.h"
#include "preload/hook.h"
#include "preload/msg_time.h"

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
			      size_t total, struct msghdr *to, int flags,
			      const struct stay *more)
{
	ssize_t n = hook_recv_vector(s, fd, msg->msg_iov, (int)msg->msg_iovlen, flags,
				     total, more);
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

HOOK ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr head;
	size_t total;
	ssize_t n;

	if (s && !(flags & (RX_KERNEL_FLAGS | MSG_COMPAT)) &&
	    header_read(msg, &head, &total))
		return HOOK_RX(s, fd, REAL(recvmsg)(fd, msg, flags),
			       recvmsg_direct(s, fd, &head, total, msg, flags, NULL));
	rights_room(msg, 1);
	n = REAL(recvmsg)(fd, msg, flags);
	if (n >= 0 && msg->msg_controllen > 0)
		rights_received(msg);
	return n;
}

/* An error that waits is told before any bytes. Taken: 0 or -errno. */
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

/* A further message, where an error stands behind the first ones: it waits. */
static ssize_t recvmmsg_more(struct stay *stay, int fd, const struct msghdr *head,
			     size_t total, struct mmsghdr *to, int flags)
{
	int saved = errno, r;
	ssize_t n;

	do { /* the kernel would begin a sleep of its own anew behind a signal */
		n = recvmsg_direct(stay->s, fd, head, total, &to->msg_hdr, flags, stay);
		r = n == SOCK_KERNEL ? stay_sleeps(stay, flags) : 0;
		fd = stay->fd;
	} while (r > 0);
	if (r < 0)
		return r;
	if ((n == 0 || n == SOCK_KERNEL) && (sock_level(stay->s, fd) & EPOLLERR))
		return -ECONNRESET;
	if (n == SOCK_KERNEL) {
		n = recvmsg(fd, &to->msg_hdr, flags);
		n = n < 0 ? -errno : n;
		errno = saved;
	}
	return n;
}

static ssize_t recvmmsg_one(struct stay *y, int fd, struct mmsghdr *to, int flags)
{
	struct msghdr head;
	size_t total;
	ssize_t n;

	if (!header_read(&to->msg_hdr, &head, &total))
		return REAL(recvmsg)(fd, &to->msg_hdr, flags) < 0 ? -errno : -EINVAL;
	flags &= ~MSG_WAITFORONE;
	n = y->some ? recvmmsg_more(y, fd, &head, total, to, flags)
		    : recvmsg_direct(y->s, fd, &head, total, &to->msg_hdr, flags, NULL);
	if (n >= 0 && FIELD_WRITE(to, msg_len, (unsigned)n) < 0)
		return -EFAULT;
	return n;
}

/* The kernel leaves the error of a further message to the next call. That of the connection stays
 * where it is. So it does with a signal where there is a timeout; without one what it leaves has no
 * name, and is not told here. */
static void error_waits(struct sock *s, ssize_t error)
{
	if (error == -EFAULT || error == -EINVAL || error == -EMSGSIZE ||
	    (error == -EINTR && timeout_ns(s, TIMEOUT_RX) != TIMEOUT_NEVER))
		sock_keep_error(s, (int)-error);
}

/* As the kernel: the time is looked at only after each message, and written back. */
static ssize_t recvmmsg_held(struct sock *s, struct stay *stay, struct mmsghdr *msgs,
			     unsigned count, int flags, struct timespec *timeout)
{
	struct timespec end = {0, 0}, left;
	unsigned done = 0;
	int r = timeout ? time_end(timeout, &end) : 0;

	if (r == 0)
		r = pending_error(s, stay->fd);
	if (r < 0)
		return r;
	while (done < count && done < UIO_MAXIOV) {
		int fd = done ? stay_number(stay) : stay->fd;
		ssize_t n = recvmmsg_one(stay, fd, &msgs[done], flags);

		if (n < 0 && done > 0) {
			error_waits(s, n);
			return done;
		}
		if (n < 0)
			return n;
		done++;
		stay->some = true;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (timeout) {
			bool more = time_left(&end, &left);

			if (crit_copy(timeout, &left, sizeof(left)) < 0)
				return -EFAULT;
			if (!more)
				break;
		}
	}
	return done;
}

static ssize_t recvmmsg_direct(struct sock *s, int fd, struct mmsghdr *msgs,
			       unsigned count, int flags, struct timespec *timeout)
{
	struct stay stay;
	int saved = errno;
	ssize_t n;

	stay_begin(&stay, s, fd, count);
	n = recvmmsg_held(s, &stay, msgs, count, flags, timeout);
	stay_end(&stay);
	errno = saved; /* that of a further message is told by the next call */
	return n;
}

HOOK int recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags,
		  struct timespec *timeout)
{
	struct sock *s = fd_sock(fd);
	int n;

	if (s && !(flags & (RX_KERNEL_FLAGS | MSG_COMPAT)))
		return (int)HOOK_RX(s, fd,
				    REAL(recvmmsg)(fd, msgs, count, flags, timeout),
				    recvmmsg_direct(s, fd, msgs, count, flags, timeout));
	rights_room(msgs ? &msgs->msg_hdr : NULL, count);
	n = REAL(recvmmsg)(fd, msgs, count, flags, timeout);
	for (int i = 0; i < n; i++)
		if (msgs[i].msg_hdr.msg_controllen > 0)
			rights_received(&msgs[i].msg_hdr);
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
	if ((flags & MSG_FASTOPEN) && load_relaxed(&s->slot->phase) == SLOT_IDLE)
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

/* *at: what has it; by the end another, or NULL, where the call has begun anew. `stay`: one message of that call. */
static ssize_t sendmsg_ours(struct sock **at, int fd, const struct msghdr *msg, int flags,
			    struct stay *stay)
{
	struct iovec one;
	const struct iovec *iov = hook_vector_own(msg->msg_iov, msg->msg_iovlen, &one);
	/* A further message sleeps in no call of the kernel's, which that would begin anew behind a signal. But what is
	 * urgent, or not copied, goes in one call, whatever its pieces. */
	bool here =
		stay && stay->some && !(flags & TX_KERNEL_FLAGS) && stay_may_sleep(*at);

	/* Control data (marks, timestamps) goes with the kernel's own segments. */
	if (msg->msg_controllen >= sizeof(struct cmsghdr)) {
		log_debug("fd %d: a send with control data is the kernel's", fd);
		hook_take_down(*at, fd, VD_REASON_OPTION);
		here = false;
	}
	sending(*at, fd, flags);
	return HOOK_WAY_ON(here ? SOCK_DIRECT : tx_enter(*at, fd), tx_enter,
			   counted_tx_over, *at, fd,
			   stay_sent(stay, REAL(sendmsg)(fd, msg, flags)),
			   tx_send_of(stay, *at, fd, iov, (int)msg->msg_iovlen, flags));
}

static void control_sending(const struct msghdr *from)
{
	struct msghdr msg;

	if (!hook_active && !left_any())
		return;
	if (crit_copy(&msg, from, sizeof(msg)) == 0 && msg.msg_control &&
	    msg.msg_controllen > 0)
		rights_sending(&msg);
}

HOOK ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr head;
	size_t total;

	if (s && message_read(msg, &head, &total) && !(flags & MSG_COMPAT) &&
	    !opens_again(s, flags))
		return total > 0 || (flags & MSG_FASTOPEN)
			       ? sendmsg_ours(&s, fd, &head, flags, NULL)
			       : HOOK_TX_NONE(s, fd, flags,
					      REAL(sendmsg)(fd, msg, flags));
	if (!s)
		control_sending(msg);
	return hook_passed(s, REAL(sendmsg)(fd, msg, flags));
}

/* One message of several. *cut: less was sent than there is, and the kernel stops there. */
static ssize_t sendmmsg_one(struct sock **at, int fd, struct mmsghdr *from, int flags,
			    struct stay *stay, bool *cut)
{
	struct msghdr head;
	size_t total = 0;
	ssize_t n;

	if (!message_read(&from->msg_hdr, &head, &total) || opens_again(*at, flags))
		n = hook_passed(*at, REAL(sendmsg)(fd, &from->msg_hdr, flags));
	else if (total == 0)
		n = HOOK_TX_NONE(*at, fd, flags,
				 REAL(sendmsg)(fd, &from->msg_hdr, flags));
	else
		n = sendmsg_ours(at, fd, &head, flags, stay);
	if (n < 0)
		return n;
	*cut = (size_t)n < move_len(total);
	return FIELD_WRITE(from, msg_len, (unsigned)n) < 0 ? ret_errno(-EFAULT) : n;
}

/* musl's sendmmsg is a row of calls of sendmsg, and goes on behind one that has sent a part. */
#ifdef __GLIBC__
#define IS_ONE_CALL true
#else
#define IS_ONE_CALL false
#endif

/* All by the kernel's own call. The bytes of them; -1: none, and an error. */
static ssize_t sendmmsg_bytes(int fd, struct mmsghdr *msgs, unsigned count, int flags,
			      int *sent)
{
	ssize_t bytes = 0;
	unsigned len;

	*sent = REAL(sendmmsg)(fd, msgs, count, flags);
	for (int i = 0; i < *sent; i++)
		bytes += crit_copy(&len, &msgs[i].msg_len, sizeof(len)) ? 0 : len;
	return *sent < 0 ? -1 : bytes;
}

/* Where the connection is on TCP the kernel holds it, and has its own word on each message. False: it is not. */
static bool sendmmsg_tcp(struct sock *s, int fd, struct mmsghdr *msgs, unsigned count,
			 int flags, int *sent)
{
	struct msghdr first;
	enum sock_way way;
	ssize_t n;

	if (crit_copy(&first, &msgs->msg_hdr, sizeof(first)) == 0 &&
	    first.msg_controllen >= sizeof(struct cmsghdr))
		hook_take_down(s, fd, VD_REASON_OPTION);
	sending(s, fd, flags);
	way = tx_enter(s, fd);
	if (way == SOCK_DIRECT)
		return false;
	n = way == SOCK_PLAIN ? sendmmsg_bytes(fd, msgs, count, flags, sent)
			      : COUNTED(counted_tx_over, s,
					sendmmsg_bytes(fd, msgs, count, flags, sent));
	hook_passed(s, n);
	if (*sent > 0 && (unsigned)*sent < count)
		sock_ended_short(s, fd);
	return true;
}

/* What is left of a call. `more`: others of it have gone. */
static int sendmmsg_rest(int fd, struct mmsghdr *msgs, unsigned count, int flags,
			 bool more);

/* The kernel, which sent the first message, has begun its call once more behind such a handler. */
static bool kernel_begins_anew(struct sock *s, int fd, uint32_t handlers)
{
	return crit_handlers() != handlers && fd_sock(fd) != s &&
	       gate_state(&s->slot->gate_tx) != GATE_RING;
}

/* One after the other. How many; -1: none, and an error. `more`: behind others of the same call. */
static int sendmmsg_ours(struct sock *s, int fd, struct mmsghdr *msgs, unsigned count,
			 int flags, bool more)
{
	unsigned done = 0;
	bool cut = false, anew = false;
	struct stay stay;
	int saved = errno;
	uint32_t handlers = crit_handlers();

	stay_begin(&stay, s, fd, count);
	stay.some = more;
	while (done < count && !cut && !anew) {
		struct sock *at = s;

		fd = done ? stay_number(&stay) : fd;
		if (sendmmsg_one(&at, fd, &msgs[done], flags, &stay, &cut) < 0)
			break;
		stay.some = true;
		anew = done++ == 0 && (at != s || kernel_begins_anew(s, fd, handlers));
	}
	stay_end(&stay);
	/* A handler has put another at its number before anything was sent: that has the rest, too. */
	if (anew && !cut && done < count) {
		int rest = sendmmsg_rest(fd, msgs + done, count - done, flags, true);

		done += rest > 0 ? (unsigned)rest : 0;
	}
	if (done)
		errno = saved;
	return done ? (int)done : -1;
}

static int sendmmsg_rest(int fd, struct mmsghdr *msgs, unsigned count, int flags,
			 bool more)
{
	struct sock *s = fd_sock(fd);
	int sent;

	if (s && count > 0 && !(flags & MSG_COMPAT))
		return IS_ONE_CALL && sendmmsg_tcp(s, fd, msgs, count, flags, &sent)
			       ? sent
			       : sendmmsg_ours(s, fd, msgs, count, flags, more);
	for (unsigned i = 0; i < count; i++)
		control_sending(&msgs[i].msg_hdr);
	return REAL(sendmmsg)(fd, msgs, count, flags);
}

HOOK int sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
	return sendmmsg_rest(fd, msgs, count < UIO_MAXIOV ? count : UIO_MAXIOV, flags,
			     false);
}
