/* SPDX-License-Identifier: Apache-2.0 */
/* A send that began in the ring goes on in the kernel, when the direction has gone back to TCP. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "base/fds_call.h"
#include "base/kernel.h"
#include "base/real.h"
#include "conn/conn.h"
#include "ring/source.h"

/* While it sleeps, the kernel has the file itself, and moves the position of that. */
static ssize_t send_file_rest(int fd, struct source *src)
{
	if (source_is_other(src)) {
		errno = EBADF;
		return -1;
	}
	if (!src->moves)
		return REAL(sendfile64)(fd, src->file, src->offset, src->left);
	source_moved(src);
	ssize_t n = REAL(sendfile64)(fd, src->file, NULL, src->left);
	*src->offset += n > 0 ? n : 0;
	return n;
}

static ssize_t send_rest(int fd, struct source *src, int flags)
{
	if (src->is_file)
		return send_file_rest(fd, src);
	struct iovec part = iov_part(&src->from, src->left);
	struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
	if (!(flags & MSG_DONTWAIT))
		return REAL(sendmsg)(fd, &msg, flags);
	/* No point of cancellation: the call may have moved something, and says so. */
	ssize_t n = kernel_sendmsg(fd, &msg, flags);
	errno = n < 0 ? (int)-n : errno;
	return n < 0 ? -1 : n;
}

/* Under the lock, with which whoever closes the number of what a call holds waits. */
static bool has_ended(struct wait *w)
{
	struct lock *lock = &w->s->slot->tx_lock;
	lock_take(lock);
	bool open = wait_is_open(w);
	struct pollfd p = {.fd = w->fd};
	bool ended = open && kernel_poll(&p, 1, 0) > 0 && p.revents;
	lock_drop(lock);
	return ended;
}

/*
 * What a send that began in the ring still has, given to the kernel, which sleeps if it may. 0: the
 * gate has moved again. `amid` the call, what it has sent counts: an error, and SIGPIPE, are the
 * next one's.
 */
static ssize_t rest_in_kernel(struct sock *s, int fd, int number, struct source *src,
			      int flags, bool amid)
{
	enum sock_way way = tx_enter(s, fd);
	if (way == SOCK_DIRECT)
		return 0;
	if (amid)
		flags |= MSG_NOSIGNAL;
	ssize_t n = way == SOCK_COUNTED
			    ? COUNTED(counted_tx_over, s, send_rest(number, src, flags))
			    : send_rest(number, src, flags);
	if (n < 0)
		return -errno;
	if (!src->is_file)
		iov_skip(&src->from, (size_t)n);
	src->left -= (size_t)n;
	if (n == 0)
		src->left = 0;
	return n;
}

/* Of a call that holds the connection: a number that nobody else closes. Not where there is none to be had. */
static int own_number(struct wait *w)
{
	struct lock *lock = &w->s->slot->tx_lock;
	int number = -EBADF, copy;
	lock_take(lock);
	if (wait_is_open(w)) {
		number = w->fd;
		copy = number == load_relaxed(&w->s->kept_fd) ? -1
							      : fds_call_take(number);
		number = copy < 0 ? number : copy;
	}
	lock_drop(lock);
	return number;
}

static void close_number(void *arg)
{
	fds_call_give(*(int *)arg);
}

/* The same by such a number, which a thread that is cancelled closes as well. */
static ssize_t held_rest_in_kernel(struct sock *s, struct wait *w, struct source *src,
				   int flags, bool amid)
{
	struct _pthread_cleanup_buffer cleanup;
	int number, own;
	ssize_t n;
	crit_enter(); /* no handler jumps away with it */
	number = own_number(w);
	own = number == w->fd ? -1 : number;
	if (number >= 0)
		_pthread_cleanup_push(&cleanup, close_number, &own);
	crit_leave();
	if (number < 0)
		return number;
	n = rest_in_kernel(s, w->fd, number, src, flags, amid);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return n;
}

ssize_t tx_go_on_in_kernel(struct sock *s, int fd, struct wait *w, struct source *src,
			   int flags, ssize_t *done)
{
	/* Amid the call any signal ends it: a call of the kernel's that has moved nothing would go on. */
	bool own = !src->is_file &&
		   (wait_is_our_own(w, flags) || (w->some && !(flags & MSG_DONTWAIT)));
	/* A call that has slept holds the connection: whoever closes it now must not end it before. */
	if (!w->some && w->fd == fd && !w->held && !(own && w->deadline_ns))
		return SOCK_KERNEL;
	/* The next of the sends that sendfile is takes what has ended it, with SIGPIPE. */
	if (*done > 0 && !src->is_file && has_ended(w))
		return 0;
	/* The number may be another file's by now; and the kernel's sleep is one of this call, too. */
	if (!w->held && !wait_hold(w))
		return -EBADF;
	size_t asked = src->is_file ? src->left : iov_part(&src->from, src->left).iov_len;
	int how = own ? flags | MSG_DONTWAIT : flags;
	src->has_slept = true;
	ssize_t n = held_rest_in_kernel(s, w, src, how, *done > 0);
	if (n > 0) {
		*done += n;
		w->some = true;
		w->rounds = 0;
	}
	if (n == -EAGAIN && own) {
		w->rounds++;
		n = wait_for(w);
	} else if (n > 0 && (size_t)n < asked && !own) {
		return 0; /* the kernel has ended it */
	}
	return n < 0 ? n : 1;
}
