/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of stdio that name a descriptor or a file: fdopen, fclose and freopen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "preload/hook.h"
#include "preload/stream.h"

HOOK FILE *fdopen(int fd, const char *mode)
{
	struct sock *s = fd_sock(fd);
	ssize_t down = 0;
	FILE *f = NULL;

	if (!s || !mode[0] || !strchr("rwa", mode[0]))
		return REAL(fdopen)(fd, mode);
	if (hook_refuses())
		down = hook_take_down(s, fd, VD_REASON_STDIO);
	/* Ours reads no more ahead than libc's, also where the peer has not answered. */
	if (fd > 2 && (down != 0 || !hook_refuses()))
		f = stream_open(fd, mode);
	if (f)
		return f;
	if (down == 0)
		down = hook_take_down(s, fd, VD_REASON_STDIO);
	f = REAL(fdopen)(fd, mode);
	if (f && (mode[0] == 'r' || strchr(mode, '+')))
		stream_prefill(f, s, down);
	return f;
}
HOOK_ALIAS(_IO_fdopen, fdopen);

HOOK int fclose(FILE *f)
{
	void *memory = stream_memory(f);
	int result;

	if (!stream_is_ours(f))
		hook_closing_stream(f);
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
	hook_closing_stream(f);
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
