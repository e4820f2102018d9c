/* SPDX-License-Identifier: Apache-2.0 */
/* stdio on sockets: libc reads and writes past every symbol of ours, so TCP it is. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/hook.h"

/* libc's, declared only with _FORTIFY_SOURCE. */
int __vasprintf_chk(char **out, int flag, const char *fmt, va_list ap);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);

/* _IO_USER_BUF: fclose does not free the buffer. */
#define STREAM_USER_BUFFER 1

/* Reads what only the ring holds. Returns the number of bytes. */
static size_t drain(struct sock *s, int fd, char *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		struct iovec iov = {buf + got, len - got};
		ssize_t n = rx_recv(s, fd, &iov, 1, MSG_DONTWAIT);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

/*
 * Bytes that libc cannot read, after an attempt to go down: while the peer has not
 * answered, all that have come; what it sends from now on goes over TCP.
 */
static size_t unread(struct sock *s, int fd, ssize_t left)
{
	int count = 0;

	if (left >= 0)
		return (size_t)left;
	return sock_inq(s, fd, &count) == 0 && count > 0 ? (size_t)count : 0;
}

/* The stream begins with the bytes that libc cannot read, as if it had read them. */
static void prefill(FILE *f, struct sock *s, int fd, size_t len)
{
	size_t size = len > BUFSIZ ? len : BUFSIZ;
	char *buf = malloc(size);

	if (!buf)
		return;
	if (setvbuf(f, buf, _IOFBF, size) != 0) {
		free(buf);
		return;
	}
	f->_flags &= ~STREAM_USER_BUFFER;
	f->_IO_read_base = f->_IO_read_ptr = buf;
	f->_IO_read_end = buf + drain(s, fd, buf, len);
}

HOOK FILE *fdopen(int fd, const char *mode)
{
	struct sock *s = fd_sock(fd);
	ssize_t down;
	size_t left;
	FILE *f;

	if (!s)
		return REAL(fdopen)(fd, mode);
	down = hook_take_down(s, fd, VD_REASON_STDIO);
	f = REAL(fdopen)(fd, mode);
	if (!f || (mode[0] != 'r' && !strchr(mode, '+')))
		return f;
	left = unread(s, fd, down);
	if (left > 0)
		prefill(f, s, fd, left);
	return f;
}
HOOK_ALIAS(_IO_fdopen, fdopen);

/* Before libc closes the stream's descriptor. */
static void stream_closing(FILE *f)
{
	int saved = errno, fd = fileno(f);

	if (fd_sock(fd) && !hook_is_borrowed()) {
		/* The last words come after the last bytes. */
		fflush(f);
		hook_closing(fd);
	}
	errno = saved;
}

HOOK int fclose(FILE *f)
{
	stream_closing(f);
	return REAL(fclose)(f);
}
HOOK_ALIAS(_IO_fclose, fclose);

HOOK FILE *freopen(const char *path, const char *mode, FILE *f)
{
	stream_closing(f);
	return REAL(freopen)(path, mode, f);
}

HOOK FILE *freopen64(const char *path, const char *mode, FILE *f)
{
	stream_closing(f);
	return REAL(freopen64)(path, mode, f);
}

/* Writes a formatted text through our own write, and frees it. */
static int print(int fd, char *text, int len)
{
	int done = 0;

	while (done < len) {
		ssize_t n = write(fd, text + done, (size_t)(len - done));

		if (n < 0) {
			free(text);
			return -1;
		}
		done += (int)n;
	}
	if (len >= 0)
		free(text);
	return len;
}

HOOK int vdprintf(int fd, const char *fmt, va_list ap)
{
	char *text = NULL;
	int len;

	if (!fd_sock(fd))
		return REAL(vdprintf)(fd, fmt, ap);
	len = vasprintf(&text, fmt, ap);
	return print(fd, text, len);
}

HOOK int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vdprintf(fd, fmt, ap);
	va_end(ap);
	return n;
}

/* The check is of the format (%n), which libc makes while it formats. */
HOOK int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	char *text = NULL;
	int len = __vasprintf_chk(&text, flag, fmt, ap);

	return print(fd, text, len);
}

HOOK int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = __vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return n;
}
