/* SPDX-License-Identifier: Apache-2.0 */
/* Operations by way of FILE, of files and pipes, and of aio. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "differential.h"

static uint8_t bytes[65536];

static size_t queued(int fd)
{
	int n = 0;
	NEED(ioctl(fd, FIONREAD, &n) == 0);
	return (size_t)n;
}

/* ---- FILE ---- */

static FILE *file_of(struct dice *d, const struct descriptor *s, const char *mode,
		     char *buffer)
{
	static const int some[] = {_IOFBF, _IOLBF, _IONBF};
	FILE *f = fdopen(out_of_the_way(dup(s->fd)), mode);
	NEED(f);
	if (once_in(d, 2))
		NEED(setvbuf(f, once_in(d, 2) ? buffer : NULL, some[dice(d, 3)],
			     64 + dice(d, 900)) == 0);
	return f;
}

static void op_file_read(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	char buffer[1024], line[400];
	if (!s || unread(s) == 0 || raw_option(s->fd, SOL_SOCKET, SO_RCVLOWAT) > 1) {
		tell("nothing");
		return;
	}
	bool nonblocking = is_nonblocking(s->fd);
	size_t before = queued(s->fd), told = 0;
	tell("%zu are there", before);
	FILE *f = file_of(d, s, once_in(d, 3) ? "r+" : "r", buffer);
	for (int i = 0, turns = 1 + (int)dice(d, 6); i < turns; i++) {
		/* What the stream has taken is not known: no more than is told. */
		size_t left = before - told, len = 1 + dice(d, 300);
		if (left < 3 && !nonblocking)
			break;
		if (len > left && !nonblocking)
			len = left;
		switch (dice(d, 4)) {
		case 0: {
			int c = getc(f);
			tell("getc = %d", c);
			told += c != EOF;
			if (c != EOF && once_in(d, 2)) {
				tell("ungetc = %d", ungetc(c ^ 1, f));
				tell("getc = %d", getc(f));
			}
			break;
		}
		case 1: {
			/* No line may be longer than that. */
			memset(line, 0, sizeof line);
			char *r = fgets(line, (int)(len > 1 ? len : 2), f);
			size_t n = strlen(line);
			size_t most = len > 1 ? len - 1 : 1;
			/* A zero is in it: how long it is shows where the end was put. */
			tell("fgets %s: %08x", r ? "some" : "none", checksum(line, most));
			told += !r ? 0 : n < most && memchr(line, '\n', n) ? n : most;
			break;
		}
		default: {
			size_t n = fread(bytes, 1, len, f);
			tell("fread(%zu) = %zu: %08x, %s%s", len, n, checksum(bytes, n),
			     feof(f) ? "EOF" : "", ferror(f) ? "ERR" : "");
			told += n;
			if (n < len)
				clearerr(f);
		}
		}
	}
	size_t after = queued(s->fd);
	tell("fclose(%d) = %d, took %zu", s->fd, fclose(f), before - after);
	was_received(s, (ssize_t)(before - after));
}

static void op_file_write(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	char buffer[1024];
	if (!s || room_to_send(s, true) < 6000) {
		tell("nothing");
		return;
	}
	FILE *f = file_of(d, s, once_in(d, 3) ? "r+" : once_in(d, 2) ? "a" : "w", buffer);
	size_t sum = 0;
	for (int i = 0, turns = 1 + (int)dice(d, 8); i < turns; i++) {
		size_t len = dice(d, 500);
		for (size_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)(i == 2 ? '\n' : 1 + k % 250);
		bytes[len] = 0;
		switch (dice(d, 5)) {
		case 0:
			tell("putc = %d", putc('\n', f));
			sum++;
			break;
		case 1:
			tell("fputs = %s", fputs((char *)bytes, f) < 0 ? "EOF" : "some");
			sum += strlen((char *)bytes);
			break;
		case 2:
			tell("fprintf = %d",
			     fprintf(f, "%d %.*s\n", i, (int)(len / 2), (char *)bytes));
			sum += (size_t)snprintf(NULL, 0, "%d %.*s\n", i, (int)(len / 2),
						(char *)bytes);
			break;
		case 3:
			tell("fflush = %d", fflush(f));
			settle_publish();
			break;
		default:
			tell("fwrite(%zu) = %zu", len, fwrite(bytes, 1, len, f));
			sum += len;
		}
	}
	tell("fclose(%d) = %d after %zu", s->fd, fclose(f), sum);
	was_sent(s, (ssize_t)sum);
	settle();
	tell("came to %d: %zu", other->fd, queued(other->fd));
}

/* ---- files ---- */

static void op_file_to_two(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET), *t = any_of(d, SOCKET);
	size_t len = 100 + dice(d, 6000);
	if (!s || room_to_send(s, true) < 9000 || room_to_send(t, true) < 9000) {
		tell("nothing");
		return;
	}
	int file = out_of_the_way(memfd_create("differential", MFD_CLOEXEC));
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * 3 + perform_number);
	NEED(write(file, bytes, len) == (ssize_t)len && lseek(file, 0, SEEK_SET) == 0);
	for (int i = 0; i < 4; i++) {
		struct descriptor *to = once_in(d, 2) ? s : t;
		static const int64_t starts[] = {0, 50, 99, -1, 1ll << 40};
		bool with = once_in(d, 2);
		off_t at = once_in(d, 4) ? starts[dice(d, 5)]
					 : (off_t)dice(d, (unsigned)len);
		size_t ask = once_in(d, 6) ? 0 : 1 + dice(d, 2500);
		if (room_to_send(to, true) < 3000)
			continue;
		ssize_t n = sendfile(to->fd, file, with ? &at : NULL, ask);
		tell("(%d, %s, %zu of %zu) = %s, at %ld, file at %ld", to->fd,
		     with ? "at" : "NULL", ask, len, result(n), with ? (long)at : 0,
		     (long)lseek(file, 0, SEEK_CUR));
		was_sent(to, n);
		if (once_in(d, 4))
			NEED(lseek(file, (off_t)dice(d, (unsigned)len), SEEK_SET) >= 0);
	}
	NEED(close(file) == 0);
}

static void op_file_wrong(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	unsigned way = dice(d, 9);
	int p[2];
	if (!s || unread(s) || room_to_send(s, true) < 1000) {
		tell("nothing");
		return;
	}
	int file = out_of_the_way(memfd_create("differential", MFD_CLOEXEC));
	NEED(write(file, "something", 9) == 9 && pipe2(p, O_CLOEXEC) == 0);
	off_t at = 0;
	loff_t at2 = 0;
	ssize_t n;
	switch (way) {
	case 0:
		n = sendfile(file, s->fd, NULL, 10);
		break;
	case 1:
		n = sendfile(s->fd, s->fd, NULL, 10);
		break;
	case 2:
		n = sendfile(s->fd, p[0], NULL, 10);
		break;
	case 3:
		n = copy_file_range(file, &at2, s->fd, NULL, 9, 0);
		break;
	case 4:
		n = splice(s->fd, NULL, s->fd, NULL, 10, 0);
		break;
	case 5:
		n = splice(file, &at2, s->fd, NULL, 10, 0);
		break;
	case 6:
		n = tee(s->fd, p[1], 10, 0);
		break;
	case 7:
		n = vmsplice(s->fd, &(struct iovec){bytes, 10}, 1, 0);
		break;
	default:
		n = sendfile(s->fd, 150, &at, 10);
	}
	tell("%u(%d) = %s", way, s->fd, result(n));
	NEED(close(file) == 0 && close(p[0]) == 0 && close(p[1]) == 0);
}

/* The same bytes by tee to two pipes, and from these to two connections. */
static void op_tee(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET), *t = any_of(d, SOCKET);
	int p[2], q[2], on = 1;
	size_t len = 1 + dice(d, 3000);
	if (!s || unread(s) || unread(t) || room_to_send(s, true) < 9000 ||
	    room_to_send(t, true) < 9000) {
		tell("nothing");
		return;
	}
	NEED(pipe2(p, O_CLOEXEC) == 0 && pipe2(q, O_CLOEXEC) == 0);
	memset(bytes, 0x37, len);
	struct iovec v = {bytes, len};
	ssize_t n = vmsplice(p[1], &v, 1, 0), m;
	NEED(n == (ssize_t)len);
	m = tee(p[0], q[1], len, SPLICE_F_NONBLOCK);
	unsigned flags = once_in(d, 2) ? SPLICE_F_MORE : 0;
	ssize_t a = splice(p[0], NULL, s->fd, NULL, len, SPLICE_F_NONBLOCK | flags);
	const char *ra = result(a);
	was_sent(s, a);
	ssize_t b =
		splice(q[0], NULL, t->fd, NULL, len, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
	const char *rb = result(b);
	was_sent(t, b);
	if (flags)
		setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	tell("%zu: tee %zd, (%d, %u) = %s, (%d) = %s", len, m, s->fd, flags, ra, t->fd,
	     rb);
	NEED(close(p[0]) == 0 && close(p[1]) == 0 && close(q[0]) == 0 &&
	     close(q[1]) == 0);
}

/* ---- aio ---- */

static void op_aio(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	size_t len = 1 + dice(d, 400);
	if (!s || unread(s) || unread(other) || room_to_send(s, true) < 1000 ||
	    is_nonblocking(s->fd) || is_nonblocking(other->fd) ||
	    raw_option(other->fd, SOL_SOCKET, SO_RCVLOWAT) > 1 || !once_in(d, 2)) {
		tell("nothing");
		return;
	}
	uint8_t into[512] = {0};
	struct aiocb in = {.aio_fildes = other->fd,
			   .aio_buf = into,
			   .aio_nbytes = sizeof into},
		     out = {.aio_fildes = s->fd, .aio_buf = bytes, .aio_nbytes = len};
	const struct aiocb *list[] = {&in};
	bool first = once_in(d, 2);
	fill_bytes(s, bytes, len);
	if (first)
		NEED(aio_read(&in) == 0);
	NEED(aio_write(&out) == 0);
	const struct aiocb *wait[] = {&out};
	while (aio_error(&out) == EINPROGRESS)
		aio_suspend(wait, 1, NULL);
	was_sent(s, aio_return(&out));
	if (!first) {
		settle();
		NEED(aio_read(&in) == 0);
	}
	while (aio_error(&in) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	int err = aio_error(&in);
	ssize_t n = aio_return(&in);
	tell("(%d, %d, %zu) error %d, %zd: %08x", s->fd, other->fd, len, err, n,
	     checksum(into, sizeof into));
	was_received(other, n);
}

const struct op ops_file[] = {
	{"file-read", op_file_read, 8},
	{"file-write", op_file_write, 8},
	{"file-to-two", op_file_to_two, 5},
	{"file-wrong", op_file_wrong, 4},
	{"tee", op_tee, 3},
	{"aio", op_aio, 2},
	{NULL, NULL, 0},
};
