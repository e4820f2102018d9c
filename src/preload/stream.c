/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of connections: libc's buffers, and our reads and writes. */
#include "base/kernel.h"
#include "preload/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/hook.h"

/*
 * libc's fdopen makes an object whose reads and writes are system calls of libc's own. fopencookie makes
 * the same object, with the same buffers, locks and order of flushing, and leaves four calls to us. What
 * is different beside is put right here:
 * - the descriptor (`_fileno`) and the size of the buffer are those that fdopen's has;
 * - seek says ESPIPE, as the kernel does of a socket;
 * - fread of more than a buffer reads straight into the program's memory (stream_fread);
 * - the orientation is still open, as after fdopen. libc has no wide characters for such an object: before
 *   the first one the connection goes to TCP, and the object becomes libc's own (orientation.c);
 * - the descriptor may be changed by the program, so it is looked up at each call.
 */

/* libc's, declared in no installed header: the list of all streams. */
void _IO_list_lock(void);
void _IO_list_unlock(void);
FILE *_IO_iter_begin(void);
FILE *_IO_iter_end(void);
FILE *_IO_iter_next(FILE *at);
FILE *_IO_iter_file(FILE *at);
/* And of one stream: it goes on with its buffer, without what was pushed back. */
void _IO_free_backup_area(FILE *f);

struct stream_mark stream_mark;

static ssize_t stream_read(void *cookie, char *buf, size_t len)
{
	FILE *f = cookie;

	return read(f->_fileno, buf, len);
}

/* Until all is written, or an error: what is missing tells libc. */
static ssize_t stream_write(void *cookie, const char *buf, size_t len)
{
	FILE *f = cookie;
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(f->_fileno, buf + done, len - done);

		if (n < 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *offset, int whence)
{
	FILE *f = cookie;
	off64_t at = kernel_lseek(f->_fileno, *offset, whence);

	if (at < 0) {
		errno = (int)-at;
		return -1;
	}
	*offset = at;
	return 0;
}

static int stream_close(void *cookie)
{
	FILE *f = cookie;

	/* What libc lays out otherwise never was a stream of the descriptor. */
	return cookie == &stream_mark ? 0 : HOOK_DEAF(close(f->_fileno));
}

static const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek,
					    stream_close};

/* libc looks at so much of a mode. */
static bool mode_updates(const char *mode)
{
	for (int i = 1; i < 5 && mode[i]; i++)
		if (mode[i] == '+')
			return true;
	return false;
}

/* The buffer that libc would make at the first use: of the size of the kernel's blocks. */
static void give_buffer(FILE *f, int fd)
{
	size_t size = BUFSIZ;
	struct stat st;
	char *buf;

	if (REAL(fstat)(fd, &st) == 0 && st.st_blksize > 0 && st.st_blksize < BUFSIZ)
		size = (size_t)st.st_blksize;
	buf = malloc(size);
	if (!buf)
		return;
	f->_IO_buf_base = buf;
	f->_IO_buf_end = buf + size;
}

static bool append_is_set(int fd)
{
	int flags = REAL(fcntl64)(fd, F_GETFL);

	return flags >= 0 &&
	       (flags & O_APPEND || REAL(fcntl64)(fd, F_SETFL, flags | O_APPEND) == 0);
}

FILE *stream_open(int fd, const char *mode)
{
	const char how[] = {mode[0], mode_updates(mode) ? '+' : '\0', '\0'};
	struct stream *s;
	FILE *f;

	if ((mode[0] != 'r' && mode[0] != 'w' && mode[0] != 'a') ||
	    (mode[0] == 'a' && !append_is_set(fd)))
		return NULL;
	f = REAL(fopencookie)(&stream_mark, how, calls);
	if (!f)
		return NULL;
	s = (struct stream *)f;
	if (s->cookie != &stream_mark || f->_IO_buf_base) {
		REAL(fclose)(f);
		return NULL;
	}
	s->cookie = f;
	f->_fileno = fd;
	f->_mode = 0;
	give_buffer(f, fd);
	store_relaxed(&stream_mark.read, s->calls.read);
	/* Release: whoever finds the one finds the other. */
	store_release(&stream_mark.jumps, s->jumps);
	return f;
}

/* ---- streams that become libc's own ---- */

/* libc's own functions, on bytes and on wide characters, and an object that has memory for both. */
extern const char _IO_file_jumps[], _IO_wfile_jumps[];
extern FILE _IO_2_1_stdin_;

/* Words that the memory for wide characters may have; its last names the functions. */
#define WIDE_MOST 64

/* Once a stream has been given up. */
static _Atomic bool some_given_up;

/* Memory for wide characters as libc's own objects have it, and fopencookie's have not. */
static void *wide_memory(void)
{
	const void *const *own = (const void *)_IO_2_1_stdin_._wide_data;
	const void **made;
	size_t last = 0;

	while (last < WIDE_MOST && own[last] != _IO_wfile_jumps)
		last++;
	made = last < WIDE_MOST ? calloc(last + 1, sizeof(*made)) : NULL;
	if (made)
		made[last] = _IO_wfile_jumps;
	return made;
}

bool stream_give_up(FILE *f)
{
	struct stream *s = (struct stream *)f;
	void *memory = wide_memory();

	if (!memory)
		return false;
	store_relaxed(&some_given_up, true);
	f->_wide_data = memory;
	s->cookie = memory;
	s->jumps = _IO_file_jumps;
	return true;
}

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

/* The stream begins with these bytes, as if libc had read them. */
void stream_prefill(FILE *f, struct sock *s, ssize_t down)
{
	size_t len = unread(s, f->_fileno, down), size = len > BUFSIZ ? len : BUFSIZ;
	char *buf = len > 0 ? malloc(size) : NULL;

	if (!buf)
		return;
	if (setvbuf(f, buf, _IOFBF, size) != 0) {
		free(buf);
		return;
	}
	f->_flags &= ~STREAM_USER_BUFFER;
	f->_IO_read_base = f->_IO_read_ptr = buf;
	f->_IO_read_end = buf + drain(s, f->_fileno, buf, len);
}

void *stream_memory(FILE *f)
{
	const struct stream *s = (const struct stream *)f;

	if (!load_relaxed(&some_given_up) ||
	    (s->jumps != _IO_file_jumps && s->jumps != _IO_wfile_jumps) ||
	    s->calls.read != load_relaxed(&stream_mark.read))
		return NULL;
	return s->cookie;
}

/* ---- the end ---- */

static void unlock_list(void *nothing)
{
	(void)nothing;
	_IO_list_unlock();
}

/*
 * libc writes what is in the buffers when all destructors have run. By then the peers have been told of
 * the end. As there, no stream's lock is taken: another thread may sleep with it.
 */
void stream_flush_all(void)
{
	struct _pthread_cleanup_buffer locked;

	if (!load_relaxed(&stream_mark.jumps))
		return;
	_IO_list_lock();
	_pthread_cleanup_push(&locked, unlock_list, NULL);
	for (FILE *at = _IO_iter_begin(); at != _IO_iter_end(); at = _IO_iter_next(at)) {
		FILE *f = _IO_iter_file(at);

		if (stream_is_ours(f) && __fpending(f) > 0)
			fflush_unlocked(f);
	}
	_pthread_cleanup_pop(&locked, 1);
}

/* ---- fread ---- */

static void stream_unlock(void *f)
{
	funlockfile(f);
}

static size_t held(const FILE *f)
{
	return (size_t)(f->_IO_read_end - f->_IO_read_ptr);
}

/* As libc's own object does it. What is more than a buffer goes straight into the program's memory. */
static size_t take(char *to, size_t want, FILE *f)
{
	size_t room = (size_t)(f->_IO_buf_end - f->_IO_buf_base), have = held(f), got = 0;

	if (f->_flags & STREAM_IN_BACKUP && want > have) {
		got = REAL(fread_unlocked)(to, 1, have, f);
		_IO_free_backup_area(f);
		have = held(f);
	}
	if (room == 0 || want - got < have + room)
		return got + REAL(fread_unlocked)(to + got, 1, want - got, f);
	if (have > 0)
		got += REAL(fread_unlocked)(to + got, 1, have, f);
	while (want - got >= room) {
		size_t count = want - got;
		ssize_t n;

		f->_IO_read_base = f->_IO_read_ptr = f->_IO_read_end = f->_IO_buf_base;
		f->_IO_write_base = f->_IO_write_ptr = f->_IO_write_end = f->_IO_buf_base;
		n = read(f->_fileno, to + got, room < 128 ? count : count - count % room);
		if (n <= 0) {
			f->_flags |= n == 0 ? _IO_EOF_SEEN : _IO_ERR_SEEN;
			return got;
		}
		got += (size_t)n;
	}
	return got < want ? got + REAL(fread_unlocked)(to + got, 1, want - got, f) : got;
}

static size_t stream_fread(void *to, size_t size, size_t count, FILE *f, bool locks)
{
	struct _pthread_cleanup_buffer locked;
	size_t want = size * count, got;

	if (want == 0)
		return 0;
	if (!locks || __fsetlocking(f, FSETLOCKING_QUERY) != FSETLOCKING_INTERNAL) {
		got = take(to, want, f);
	} else {
		flockfile(f);
		_pthread_cleanup_push(&locked, stream_unlock, f);
		got = take(to, want, f);
		_pthread_cleanup_pop(&locked, 1);
	}
	return got == want ? count : got / size;
}

/* Some headers have a macro of it. */
#undef fread_unlocked

HOOK size_t fread(void *to, size_t size, size_t count, FILE *f)
{
	return stream_is_ours(f) ? stream_fread(to, size, count, f, true)
				 : REAL(fread)(to, size, count, f);
}

HOOK size_t fread_unlocked(void *to, size_t size, size_t count, FILE *f)
{
	return stream_is_ours(f) ? stream_fread(to, size, count, f, false)
				 : REAL(fread_unlocked)(to, size, count, f);
}

/* libc's own would call its fread past ours. */
HOOK int getw(FILE *f)
{
	int word;

	return fread(&word, sizeof word, 1, f) == 1 ? word : EOF;
}

/* libc's, declared only with _FORTIFY_SOURCE. */
_Noreturn void __chk_fail(void);
size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *f);

static void check(size_t room, size_t size, size_t count)
{
	size_t want;

	if (__builtin_mul_overflow(size, count, &want) || want > room)
		__chk_fail();
}

HOOK size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f)
{
	check(room, size, count);
	return fread(to, size, count, f);
}

HOOK size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count,
				 FILE *f)
{
	check(room, size, count);
	return fread_unlocked(to, size, count, f);
}
