/* SPDX-License-Identifier: Apache-2.0 */
/* A position in a caller's scatter list. */
#ifndef VD_RING_IOV_H
#define VD_RING_IOV_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/mechanism.h"
#include "base/sigsafe.h"

struct iov_cursor {
	const struct iovec *iov;
	int left;      /* elements from iov on */
	size_t offset; /* into the first */
};

static inline void iov_settle(struct iov_cursor *c)
{
	while (c->left > 0 && c->offset == c->iov->iov_len) {
		c->iov++;
		c->left--;
		c->offset = 0;
	}
}

static inline struct iov_cursor iov_start(const struct iovec *iov, int count)
{
	struct iov_cursor c = {iov, count, 0};
	iov_settle(&c);
	return c;
}

static inline bool iov_at_end(const struct iov_cursor *c)
{
	return c->left == 0;
}

/* Bytes in the current element. */
static inline size_t iov_room(const struct iov_cursor *c)
{
	return c->left == 0 ? 0 : c->iov->iov_len - c->offset;
}

/* The rest of the current element, at most cap bytes. */
static inline struct iovec iov_part(const struct iov_cursor *c, size_t cap)
{
	struct iovec part = {0};
	if (c->left > 0) {
		part.iov_base = (uint8_t *)c->iov->iov_base + c->offset;
		part.iov_len = iov_room(c) < cap ? iov_room(c) : cap;
	}
	return part;
}

/* So many elements are made at a time, on the stack. */
#define IOV_PARTS 16

/* The rest as elements of its own, at most cap bytes and `most` elements: how many. */
static inline size_t iov_parts(const struct iov_cursor *c, size_t cap,
			       struct iovec *parts, size_t most)
{
	size_t n = 0, offset = c->offset;
	for (int i = 0; i < c->left && n < most && cap > 0; i++) {
		size_t len = c->iov[i].iov_len - offset;
		parts[n].iov_base = (uint8_t *)c->iov[i].iov_base + offset;
		parts[n].iov_len = len < cap ? len : cap;
		cap -= parts[n++].iov_len;
		offset = 0;
	}
	return n;
}

static inline void iov_skip(struct iov_cursor *c, size_t n)
{
	while (n > 0 && c->left > 0) {
		size_t step = iov_room(c) < n ? iov_room(c) : n;
		c->offset += step;
		n -= step;
		iov_settle(c);
	}
}

/*
 * Copies up to len bytes to the elements; `discard` only counts them. -EFAULT when any of
 * the memory is not there: then nothing has moved, as with the kernel's own pieces.
 */
static inline ssize_t iov_fill(struct iov_cursor *c, const uint8_t *from, size_t len,
			       bool discard)
{
	struct iov_cursor at = *c;
	size_t done = 0;
	while (done < len && !iov_at_end(&at)) {
		size_t n = iov_room(&at) < len - done ? iov_room(&at) : len - done;
		uint8_t *to = (uint8_t *)at.iov->iov_base + at.offset;
		if (!discard && (LACKS(RECEIVE_COPY) ? mechanism_ends(to, from + done, n)
						     : crit_copy(to, from + done, n)) < 0)
			return -EFAULT;
		done += n;
		at.offset += n;
		iov_settle(&at);
	}
	*c = at;
	return (ssize_t)done;
}

/* Copies up to len bytes from the elements, `past` the caches or not. -EFAULT as above. */
static inline ssize_t iov_drain(struct iov_cursor *c, uint8_t *to, size_t len, bool past)
{
	struct iov_cursor at = *c;
	size_t done = 0;
	while (done < len && !iov_at_end(&at)) {
		size_t n = iov_room(&at) < len - done ? iov_room(&at) : len - done;
		const uint8_t *from = (const uint8_t *)at.iov->iov_base + at.offset;
		if ((past ? crit_copy_past(to + done, from, n)
			  : crit_copy(to + done, from, n)) < 0)
			return -EFAULT;
		done += n;
		at.offset += n;
		iov_settle(&at);
	}
	*c = at;
	return (ssize_t)done;
}

#endif
