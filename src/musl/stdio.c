/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of musl's stdio that name a descriptor or a file: fdopen, fclose and freopen. */
#include <errno.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "musl/command.h"
#include "preload/hook.h"

/*
 * A stream of musl's keeps the functions that read and write for it: for one of a connection these are
 * ours. They do what musl's do, with our readv and writev in the place of its system calls, and so with
 * its buffers, its locks, and its wide characters. Where a stream is not laid out as it is known here, the
 * connection goes to TCP.
 */
struct stream {
	unsigned flags;
	unsigned char *rpos, *rend;
	int (*close)(FILE *f);
	unsigned char *wend, *wpos, *zero, *wbase;
	size_t (*read)(FILE *f, unsigned char *to, size_t len);
	size_t (*write)(FILE *f, const unsigned char *from, size_t len);
	off_t (*seek)(FILE *f, off_t offset, int whence);
	unsigned char *buf;
	size_t buf_size;
	FILE *prev, *next;
	int fd;
};

enum { STREAM_EOF = 16, STREAM_ERROR = 32 };

/* musl's functions, as its first stream has them before the program runs. */
static struct stream known;
/* There has been one of ours. */
static _Atomic bool some;

static struct stream *inside(FILE *f)
{
	return (struct stream *)f;
}

__attribute__((constructor)) static void stdio_learn(void)
{
	const struct stream *first = inside(stdin);

	if (first->fd == STDIN_FILENO && first->buf_size == BUFSIZ && first->read &&
	    first->seek && first->close)
		known = *first;
}

/* A new one. */
static bool is_known(const struct stream *s, int fd)
{
	const unsigned char *begin = (const void *)s;

	return known.read && s->fd == fd && s->buf_size == BUFSIZ &&
	       s->read == known.read && s->seek == known.seek &&
	       s->close == known.close && s->write && s->buf > begin + sizeof(*s) &&
	       s->buf < begin + BUFSIZ && !s->rpos && !s->rend && !s->wpos && !s->wend &&
	       !s->wbase && !s->zero;
}

/* ---- the two functions ---- */

/* All but the last byte goes where it is wanted, what comes beyond it to the buffer, of which the
 * last is then the first. */
static size_t stream_read(FILE *f, unsigned char *to, size_t len)
{
	struct stream *s = inside(f);
	size_t straight = len - (s->buf_size > 0);
	struct iovec iov[] = {{to, straight}, {s->buf, s->buf_size}};
	ssize_t n = HOOK_DEAF(straight > 0 ? readv(s->fd, iov, 2)
					   : read(s->fd, s->buf, s->buf_size));

	if (n <= 0) {
		s->flags |= n < 0 ? STREAM_ERROR : STREAM_EOF;
		return 0;
	}
	if ((size_t)n <= straight)
		return (size_t)n;
	s->rpos = s->buf;
	s->rend = s->buf + ((size_t)n - straight);
	if (s->buf_size > 0)
		to[len - 1] = *s->rpos++;
	return len;
}

/* What is in the buffer, and then this: until all is written, or an error. */
static size_t stream_write(FILE *f, const unsigned char *from, size_t len)
{
	struct stream *s = inside(f);
	size_t held = (size_t)(s->wpos - s->wbase), done = 0;

	while (done < held + len) {
		size_t past = done > held ? done - held : 0;
		struct iovec iov[] = {{s->wbase + done, done < held ? held - done : 0},
				      {(void *)(from + past), len - past}};
		int first = done >= held;
		ssize_t n = HOOK_DEAF(writev(s->fd, iov + first, 2 - first));

		if (n < 0) {
			s->wpos = s->wbase = s->wend = NULL;
			s->flags |= STREAM_ERROR;
			return past;
		}
		done += (size_t)n;
	}
	s->wend = s->buf + s->buf_size;
	s->wpos = s->wbase = s->buf;
	return len;
}

/* ---- the calls ---- */

HOOK FILE *fdopen(int fd, const char *mode)
{
	/* It moves no byte. */
	FILE *f = REAL(fdopen)(fd, mode);
	struct sock *s = f ? fd_sock(fd) : NULL;
	int saved = errno;

	if (!s)
		return f;
	if (is_known(inside(f), fd)) {
		store_relaxed(&some, true);
		inside(f)->read = stream_read;
		inside(f)->write = stream_write;
	} else if (hook_is_stranded(s, fd, VD_REASON_STDIO)) {
		sock_sever(s, fd);
	}
	errno = saved;
	return f;
}

HOOK int fclose(FILE *f)
{
	hook_closing_stream(f);
	command_closing(f);
	return REAL(fclose)(f);
}

/* The descriptor stays, but with other flags, of which musl tells the kernel alone. */
static FILE *reopen_same(const char *mode, FILE *f)
{
	FILE *same = REAL(freopen)(NULL, mode, f);
	int saved = errno, fd = same ? fileno(same) : -1;

	if (fd_sock(fd))
		fcntl(fd, F_SETFL, REAL(fcntl64)(fd, F_GETFL));
	errno = saved;
	return same;
}

HOOK FILE *freopen(const char *path, const char *mode, FILE *f)
{
	if (!path && fd_sock(fileno(f)) && !hook_is_borrowed())
		return reopen_same(mode, f);
	hook_closing_stream(f);
	return REAL(freopen)(path, mode, f);
}
HOOK_ALIAS(freopen64, freopen);

/* musl writes what is in the buffers when all destructors have run. By then the peers have been told of
 * the end. It waits there for each stream's lock, as here. */
void stream_flush_all(void)
{
	if (load_relaxed(&some))
		fflush(NULL);
}
