/* SPDX-License-Identifier: Apache-2.0 */
/* The integrity test: splice between a connection and a pipe, and tee between pipes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "integrity.h"

static _Thread_local int ends[2][2] = {{-1, -1}, {-1, -1}};

static int *pipe_of_thread(struct half *h, int which)
{
	if (ends[which][0] < 0 && pipe2(ends[which], O_CLOEXEC) != 0)
		fail_at(h, "pipe: %s", strerror(errno));
	return ends[which];
}

void pipes_done(void)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 2; k++) {
			if (ends[i][k] >= 0)
				close(ends[i][k]);
			ends[i][k] = -1;
		}
}

/* All of what a pipe has, which is LEN. */
static void drain(struct half *h, int fd, uint8_t *to, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t r = read(fd, to + at, len - at);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			fail_at(h, "a pipe gave %zu of %zu: %zd, %s", at, len, r,
				strerror(errno));
		at += r;
	}
}

/* A copy of what lies in the first pipe, by way of the second one. */
static void tee_and_verify(struct half *h, size_t len)
{
	static _Thread_local uint8_t copy[PIPE_MOST];
	int *from = pipe_of_thread(h, 0), *to = pipe_of_thread(h, 1);
	ssize_t r = tee(from[0], to[1], len, 0);
	if (r < 0 && errno == EINTR)
		return;
	if (r <= 0 || (size_t)r > len)
		fail_at(h, "tee of %zu: %zd, %s", len, r, strerror(errno));
	drain(h, to[0], copy, r);
	verify(h, h->off, copy, r);
	count(COUNT_TEE);
}

ssize_t recv_splice(struct half *h, uint8_t *buf, size_t len)
{
	int *p = pipe_of_thread(h, 0);
	unsigned flags = chance(&h->rng, 2) ? SPLICE_F_MOVE : 0;
	if (!h->blocking && chance(&h->rng, 4))
		flags |= SPLICE_F_NONBLOCK;
	note(h, "splice %zu into a pipe, flags %#x", len, flags);
	ssize_t r = splice(h->fd, NULL, p[1], NULL, len, flags);
	if (r <= 0)
		return r;
	if ((size_t)r > len)
		fail_at(h, "splice of %zu returned %zd", len, r);
	count(COUNT_SPLICE_IN);
	if (chance(&h->rng, 3))
		tee_and_verify(h, r);
	drain(h, p[0], buf, r);
	verify(h, h->off, buf, r);
	return r;
}

/* What the connection does not take is thrown away, and sent again by another call. */
ssize_t send_splice(struct half *h, const uint8_t *buf, size_t len)
{
	static _Thread_local uint8_t rest[PIPE_MOST];
	int *p = pipe_of_thread(h, 0);
	size_t put = 0;
	while (put < len) {
		ssize_t r = write(p[1], buf + put, len - put);
		if (r < 0 && errno != EINTR)
			fail_at(h, "write to a pipe: %s", strerror(errno));
		put += r > 0 ? r : 0;
	}
	if (chance(&h->rng, 3))
		tee_and_verify(h, len);
	unsigned flags = chance(&h->rng, 2) ? SPLICE_F_MOVE : 0;
	note(h, "splice %zu out of a pipe, flags %#x", len, flags);
	ssize_t r = splice(p[0], NULL, h->fd, NULL, len, flags);
	int saved = errno;
	if (r > 0)
		count(COUNT_SPLICE_OUT);
	drain(h, p[0], rest, len - (r > 0 ? r : 0));
	errno = saved;
	return r;
}
