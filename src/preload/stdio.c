/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of stdio that name a descriptor or a file: fdopen, fclose, freopen and dprintf. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/hook.h"
#include "preload/stream.h"

/* libc's, declared only with _FORTIFY_SOURCE. */
int __vasprintf_chk(char **out, int flag, const char *fmt, va_list ap);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);

HOOK FILE *fdopen(int fd, const char *mode)
{
	struct sock *s = fd_sock(fd);
	FILE *f = s && fd > 2 && !hook_refuses() ? stream_open(fd, mode) : NULL;
	ssize_t down;

	if (f)
		return f;
	if (!s || !mode[0] || !strchr("rwa", mode[0]))
		return REAL(fdopen)(fd, mode);
	down = hook_take_down(s, fd, VD_REASON_STDIO);
	f = REAL(fdopen)(fd, mode);
	if (f && (mode[0] == 'r' || strchr(mode, '+')))
		stream_prefill(f, s, down);
	return f;
}
HOOK_ALIAS(_IO_fdopen, fdopen);

/* Before libc closes the descriptor of a stream of its own. */
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
	void *memory = stream_memory(f);
	int result;

	if (!stream_is_ours(f))
		stream_closing(f);
	result = REAL(fclose)(f);
	free(memory);
	return result;
}
HOOK_ALIAS(_IO_fclose, fclose);

/* All but the last words is for libc's own object to do. False, with ENOMEM: there is none. */
static bool reopening(FILE *f)
{
	if (stream_is_ours(f)) {
		fflush(f);
		if (!stream_give_up(f)) {
			fclose(f);
			errno = ENOMEM;
			return false;
		}
	}
	stream_closing(f);
	return true;
}

static void unlock(void *f)
{
	funlockfile(f);
}

/* Nobody writes to a stream of ours while it becomes libc's. */
static FILE *reopen(const char *path, const char *mode, FILE *f,
		    FILE *(*real)(const char *, const char *, FILE *))
{
	struct _pthread_cleanup_buffer locked;
	FILE *made;

	if (!stream_is_ours(f))
		return reopening(f) ? real(path, mode, f) : NULL;
	flockfile(f);
	_pthread_cleanup_push(&locked, unlock, f);
	made = reopening(f) ? real(path, mode, f) : NULL;
	/* Without memory it has been closed, and freed. */
	_pthread_cleanup_pop(&locked, made || errno != ENOMEM);
	return made;
}

HOOK FILE *freopen(const char *path, const char *mode, FILE *f)
{
	return reopen(path, mode, f, REAL(freopen));
}

HOOK FILE *freopen64(const char *path, const char *mode, FILE *f)
{
	return reopen(path, mode, f, REAL(freopen64));
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
