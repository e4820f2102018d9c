/* SPDX-License-Identifier: Apache-2.0 */
/* dprintf and its kin: text for a descriptor. */
#include <gnu/libc-version.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/hook.h"

/* glibc since 2.37 goes on behind a signal's handler. Before, and in musl, that is an error as others are. */
static bool goes_on(void)
{
#ifdef __GLIBC__
	return errno == EINTR && strverscmp(gnu_get_libc_version(), "2.37") >= 0;
#else
	return false;
#endif
}

/* Writes a formatted text through our own write, and frees it. */
static int print(int fd, char *text, int len)
{
	int done = 0;

	while (done < len) {
		ssize_t n =
			HOOK_DEAF_ON_MUSL(write(fd, text + done, (size_t)(len - done)));

		if (n < 0 && goes_on())
			continue;
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

#ifdef __GLIBC__
/* libc's, declared only with _FORTIFY_SOURCE. */
int __vasprintf_chk(char **out, int flag, const char *fmt, va_list ap);
int __dprintf_chk(int fd, int flag, const char *fmt, ...);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);

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
#endif
