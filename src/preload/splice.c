/* SPDX-License-Identifier: Apache-2.0 */
/* splice, and sendfile from a connection: the kernel moves the bytes, so TCP it is. */
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/await.h"
#include "base/fds_call.h"
#include "base/kernel.h"
#include "base/sigsafe.h"
#include "conn/rx_give.h"
#include "conn/stay.h"
#include "preload/hook.h"

/* A page: a pipe that polls writable takes one. */
#define SPLICE_CHUNK 4096

static bool splice_waits(int fd, unsigned flags)
{
	return !(flags & SPLICE_F_NONBLOCK) && !(REAL(fcntl64)(fd, F_GETFL) & O_NONBLOCK);
}

/* The pipe's turn comes first: what has been received must not be given back. */
static ssize_t splice_room(int pipe_fd, unsigned flags)
{
	struct pollfd p = {.fd = pipe_fd, .events = POLLOUT};
	int n = splice_waits(pipe_fd, flags) ? await_poll(&p, 1, NULL, NULL)
					     : await_glance(&p, 1);

	if (n < 0)
		return n;
	if (p.revents & POLLERR) { /* nobody reads it any more */
		crit_send_sigpipe();
		return -EPIPE;
	}
	return n ? 0 : -EAGAIN;
}

/*
 * Socket to pipe, as far as only the ring holds the bytes. None is taken that the pipe has no room for: a thread that
 * is cancelled, or interrupted, as it waits for room has taken nothing.
 */
static ssize_t splice_through(struct stay *stay, int pipe_fd, size_t len, unsigned flags,
			      char *page)
{
	struct iovec iov = {page, len < SPLICE_CHUNK ? len : SPLICE_CHUNK};
	uint32_t handlers = crit_handlers(), interruptions = crit_interruptions();
	ssize_t n;

	do {
		n = splice_room(pipe_fd, flags);
		/* Behind handlers with SA_RESTART it begins anew. */
		if (n == -EINTR && handlers != crit_handlers() &&
		    interruptions == crit_interruptions())
			return SOCK_KERNEL;
		if (n < 0)
			return n;
		/* SPLICE_F_NONBLOCK is about the pipe: the socket waits by its own O_NONBLOCK. With bytes there it
		 * waits for no mark (SO_RCVLOWAT). */
		n = rx_recv(stay->s, stay_number(stay), &iov, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n == -EAGAIN)
			n = rx_recv(stay->s, stay_number(stay), &iov, 1, MSG_PEEK);
		if (n > 0)
			n = rx_give(stay->s, stay_number(stay), page, iov.iov_len,
				    pipe_fd);
		else
			break;
	} while (n == -EAGAIN); /* another writer, or reader, was faster */
	return n;
}

/* Of bytes that were kept as shared memory was left: the program's filter may forbid more. */
static ssize_t splice_left(struct sock *s, int pipe_fd, size_t len, unsigned flags)
{
	ssize_t n;

	do { /* another writer may be faster */
		n = splice_room(pipe_fd, flags);
		if (n == 0)
			n = left_give(s, len < SPLICE_CHUNK ? len : SPLICE_CHUNK,
				      pipe_fd);
	} while (n == -EAGAIN && splice_waits(pipe_fd, flags));
	return n;
}

/* What a call holds while it sleeps. */
struct splice_hold {
	char *page; /* the pipe may have it: nobody writes there again */
	int pipe;   /* a number that nobody else closes, or -EMFILE */
};

static void give_back(void *arg)
{
	struct splice_hold *hold = arg;

	munmap(hold->page, SPLICE_CHUNK);
	fds_call_give(hold->pipe);
}

/*
 * What has gone to TCP meanwhile comes from there; where its number is another file's by now, by the duplicate. Behind
 * a handler with SA_RESTART, which may have closed the number, the call begins anew with what that is by then.
 */
static ssize_t splice_renumbered(struct stay *stay, int fd, int pipe_fd, size_t len,
				 unsigned flags, uint32_t handlers)
{
	int kept = stay_number(stay);
	ssize_t n;

	if (kept == fd || handlers != crit_handlers())
		return SOCK_KERNEL;
	n = REAL(splice)(kept, NULL, pipe_fd, NULL, len, flags);
	return n < 0 ? -errno : n;
}

static ssize_t splice_from_ring(struct sock *s, int fd, int pipe_fd, size_t len,
				unsigned flags)
{
	struct _pthread_cleanup_buffer cleanup;
	struct splice_hold hold = {.pipe = -EMFILE};
	uint32_t handlers = crit_handlers();
	ssize_t n = -ENOMEM;
	struct stay stay;

	if (s->left)
		return splice_left(s, pipe_fd, len, flags);
	stay_begin(&stay, s, fd); /* also while it waits for room in the pipe */
	crit_enter();		  /* no handler jumps away with it */
	hold.page = mmap(NULL, SPLICE_CHUNK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (hold.page != MAP_FAILED) {
		hold.pipe = fds_call_take(pipe_fd);
		_pthread_cleanup_push(&cleanup, give_back, &hold);
	}
	crit_leave();
	if (hold.page != MAP_FAILED) {
		pipe_fd = hold.pipe < 0 ? pipe_fd : hold.pipe;
		n = splice_through(&stay, pipe_fd, len, flags, hold.page);
		if (n == SOCK_KERNEL)
			n = splice_renumbered(&stay, fd, pipe_fd, len, flags, handlers);
		crit_enter();
		_pthread_cleanup_pop(&cleanup, 1);
		crit_leave();
	}
	stay_end(&stay);
	return n;
}

/* Pipe to socket, should the way down not be free yet, or an error be there that the kernel does not know: that is told
 * once the pipe has something to send. */
static ssize_t splice_to_ring(struct sock *s, int fd, int pipe_fd, unsigned flags)
{
	struct pollfd p = {.fd = pipe_fd, .events = POLLIN};
	uint32_t handlers = crit_handlers(), interruptions = crit_interruptions();
	int n, error;

	hook_take_down(s, fd, VD_REASON_SPLICE);
	n = splice_waits(pipe_fd, flags) ? await_poll(&p, 1, NULL, NULL)
					 : await_glance(&p, 1);
	if (n == -EINTR && handlers != crit_handlers() &&
	    interruptions == crit_interruptions())
		return SOCK_KERNEL;
	if (n <= 0)
		return n < 0 ? n : -EAGAIN;
	if (!(p.revents & POLLIN)) /* nobody writes there any more */
		return p.revents & POLLNVAL ? -EBADF : 0;
	error = sock_take_error(s);
	return error ? -error : SOCK_KERNEL;
}

#define SPLICE_KNOWN (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

/* The kernel does not look at the socket: one end is to be a pipe's right end, with no offset. */
static bool splice_is_refused(int in, const off64_t *in_offset, int out,
			      const off64_t *out_offset, unsigned flags)
{
	int pipe_fd = fd_sock(in) ? out : in, way = fd_sock(in) ? O_RDONLY : O_WRONLY;
	int mode = REAL(fcntl64)(pipe_fd, F_GETFL);

	return (flags & ~(unsigned)SPLICE_KNOWN) || in_offset || out_offset || mode < 0 ||
	       (mode & O_ACCMODE) == way || REAL(fcntl64)(pipe_fd, F_GETPIPE_SZ) < 0;
}

static bool is_blocking_socket(int fd)
{
	struct stat st;

	return kernel_fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       !(REAL(fcntl64)(fd, F_GETFL) & O_NONBLOCK);
}

/*
 * The kernel waits for a socket with the pipe locked, and whoever else uses the pipe then waits for the lock in a
 * sleep that nothing but the process's end ends (state D). So no handler may stand in for an end by a signal: the
 * thread that is to run it may be that one.
 */
static void splice_locks(int in, int out)
{
	if (__builtin_expect(signal_has_last_words(), 0) &&
	    (is_blocking_socket(in) || is_blocking_socket(out)))
		signal_no_last_words();
}

static ssize_t splice_ours(int in, off64_t *in_offset, int out, off64_t *out_offset,
			   size_t len, unsigned flags)
{
	struct sock *from = fd_sock(in), *to = fd_sock(out);
	ssize_t n;

	if (!from && !to) /* another thread has closed it */
		return REAL(splice)(in, in_offset, out, out_offset, len, flags);
	if (to)
		hook_take_down(to, out, VD_REASON_SPLICE);
	if (!from) {
		n = HOOK_TX(to, out,
			    REAL(splice)(in, in_offset, out, out_offset, len, flags),
			    splice_to_ring(to, out, in, flags));
		/* Of a large pipe it is several sends. */
		if (to && n > 0 && (size_t)n < len)
			sock_ended_short(to, out);
		return n;
	}
	hook_take_down(from, in, VD_REASON_SPLICE);
	return HOOK_RX(from, in, REAL(splice)(in, in_offset, out, out_offset, len, flags),
		       splice_from_ring(from, in, out, len, flags));
}

HOOK ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t len,
		    unsigned flags)
{
	splice_locks(in, out);
	if ((!fd_sock(in) && !fd_sock(out)) || len == 0 ||
	    splice_is_refused(in, in_offset, out, out_offset, flags))
		return REAL(splice)(in, in_offset, out, out_offset, len, flags);
	return HOOK_DEAF_ON_MUSL(splice_ours(in, in_offset, out, out_offset, len, flags));
}

/* A call for no bytes is refused as one for some is, and waits for room in the pipe as that does. */
ssize_t hook_sendfile_from(struct sock *from, int out, int in, off64_t *offset,
			   size_t count)
{
	if (REAL(sendfile64)(out, in, offset, 0) < 0)
		return -1;
	splice_locks(in, out);
	hook_take_down(from, in, VD_REASON_SPLICE);
	return HOOK_RX(from, in, REAL(sendfile64)(out, in, offset, count),
		       splice_from_ring(from, in, out, count, 0));
}

#if __has_include(<execinfo.h>)
/* The C library writes past us. */
HOOK void backtrace_symbols_fd(void *const *buffer, int size, int fd)
{
	struct sock *s = fd_sock(fd);

	if (s)
		hook_take_down(s, fd, VD_REASON_STDIO);
	REAL_LATE(backtrace_symbols_fd)(buffer, size, fd);
}
HOOK_ALIAS(__backtrace_symbols_fd, backtrace_symbols_fd);
#endif
