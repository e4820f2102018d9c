/* SPDX-License-Identifier: Apache-2.0 */
/* Records on a connection, encoded into one buffer and decoded out of another. */
#include "rpc/record.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "base/copy.h"
#include "rpc/engine.h"

#define LAST_FRAGMENT 0x80000000u
#define HEADER_BYTES  sizeof(uint32_t)
/* So much at once goes straight from, or to, the program's memory. */
#define DIRECT_BYTES 16384u
/* The length of a fragment has 31 bits. */
#define PIECE_MOST (1u << 30)

static bool fail(struct record *r, enum record_fault fault, int error)
{
	r->fault = fault;
	r->error = error;
	return false;
}

/* ---- out ---- */

/* All of it. What is interrupted before it has moved anything fails in a service, as write does. */
static bool send_all(struct record *r, struct iovec *iov, int count)
{
	while (count > 0) {
		ssize_t n = engine->send(r->fd, iov, count, 0);

		if (n == -EINTR && r->is_calls)
			continue;
		if (n < 0)
			return fail(r, RECORD_CANT_SEND, (int)-n);
		for (; count > 0 && (size_t)n >= iov->iov_len; iov++, count--)
			n -= (ssize_t)iov->iov_len;
		if (count > 0) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
	return true;
}

static void put_header(struct record *r, size_t len, bool last)
{
	uint32_t word = htonl((uint32_t)len | (last ? LAST_FRAGMENT : 0));

	memcpy(r->out + r->out_header, &word, sizeof(word));
}

static void begin_fragment(struct record *r)
{
	r->out_header = r->out_end;
	r->out_end += HEADER_BYTES;
}

/* The fragment at hand, with `extra` bytes from elsewhere behind those that are buffered. */
static bool flush(struct record *r, bool last, const char *extra, size_t len)
{
	struct iovec iov[2] = {{r->out, r->out_end}, {(char *)extra, len}};
	size_t whole = r->out_end - r->out_header - HEADER_BYTES + len;

	put_header(r, whole, last);
	/* Nothing of this record yet: what goes is the records before it. */
	if (whole == 0 && !last)
		iov[0].iov_len = r->out_header;
	/* What a failed send leaves behind is of no use to anybody: the stream is broken. */
	r->out_end = 0;
	begin_fragment(r);
	return send_all(r, iov, len ? 2 : 1);
}

static bool flush_part(struct record *r, const char *extra, size_t len)
{
	r->out_is_cut = true;
	return flush(r, false, extra, len);
}

/* So many bytes more, at least. */
static bool grow(struct record *r, size_t len)
{
	size_t size =
		r->out_size * 2 > r->out_end + len ? r->out_size * 2 : r->out_end + len;
	char *out = r->out_end + len < PIECE_MOST ? realloc(r->out, size) : NULL;

	if (!out)
		return false;
	r->out = out;
	r->out_size = size;
	return true;
}

/* The buffer is too short for len bytes. */
static bool make_room(struct record *r, size_t len)
{
	return r->out_is_kept ? grow(r, len) : flush_part(r, NULL, 0);
}

/* A record that fits into the buffer is one fragment, since there are services that take no other. */
static bool goes_directly(const struct record *r, size_t len)
{
	return len >= DIRECT_BYTES && !r->out_is_kept &&
	       (r->out_is_cut || len > r->out_size - r->out_end);
}

static bool_t put_bytes(XDR *xdrs, const char *from, u_int len)
{
	struct record *r = xdrs->x_private;

	/* A rest stays, since the last fragment must not be empty; of a length that leaves what
	 * follows aligned as it was. */
	while (goes_directly(r, len)) {
		u_int n = (len < PIECE_MOST ? len - 1 : PIECE_MOST) & ~3u;

		if (!flush_part(r, from, n))
			return FALSE;
		from += n;
		len -= n;
	}
	while (len > 0) {
		size_t room = r->out_size - r->out_end;
		size_t n = len < room ? len : room;

		if (n == 0) {
			if (!make_room(r, len))
				return FALSE;
			continue;
		}
		copy_bytes(r->out + r->out_end, from, n);
		r->out_end += n;
		from += n;
		len -= (u_int)n;
	}
	return TRUE;
}

static bool_t put_long(XDR *xdrs, const long *from)
{
	struct record *r = xdrs->x_private;
	uint32_t word = htonl((uint32_t)*from);

	if (r->out_size - r->out_end < sizeof(word) && !make_room(r, sizeof(word)))
		return FALSE;
	memcpy(r->out + r->out_end, &word, sizeof(word));
	r->out_end += sizeof(word);
	return TRUE;
}

bool record_end(struct record *r, bool now)
{
	if (now || r->out_is_cut || r->out_size - r->out_end <= HEADER_BYTES) {
		r->out_is_cut = false;
		return flush(r, true, NULL, 0);
	}
	put_header(r, r->out_end - r->out_header - HEADER_BYTES, true);
	begin_fragment(r);
	return true;
}

/* ---- in ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

/* Waits for some bytes. A service begins to wait anew after a signal, as libtirpc's. */
static bool receive(struct record *r, char *to, size_t len, size_t *got)
{
	bool ends = r->is_calls && r->timeout_ms > 0;
	int64_t end = ends ? now_ms() + r->timeout_ms : 0, left = r->timeout_ms;
	ssize_t n;

	while ((n = engine->recv_within(r->fd, to, len, (int)left)) == -EINTR)
		if (ends && (left = end - now_ms()) < 0)
			left = 0;
	if (n == -ETIME)
		return fail(r, RECORD_TIMED_OUT, 0);
	/* An end is an error wherever bytes are expected. */
	if (n <= 0)
		return fail(r, RECORD_CANT_RECV, n ? (int)-n : ECONNRESET);
	*got = (size_t)n;
	return true;
}

/* The buffer is empty. What comes is placed so that the words of a record are aligned. */
static bool fill(struct record *r)
{
	size_t at = r->in_taken & 3, got;

	if (!receive(r, r->in + at, r->in_size - at, &got))
		return false;
	r->in_at = at;
	r->in_end = at + got;
	return true;
}

static void take(struct record *r, char *to, size_t n)
{
	if (to)
		copy_bytes(to, r->in + r->in_at, n);
	r->in_at += n;
	r->in_taken += n;
}

/* To NULL: passes them. */
static bool get_raw(struct record *r, char *to, size_t len)
{
	while (len > 0) {
		size_t n = r->in_end - r->in_at;

		if (n == 0 && to && len >= DIRECT_BYTES) {
			if (!receive(r, to, len, &n))
				return false;
			r->in_taken += n;
		} else if (n == 0) {
			if (!fill(r))
				return false;
			continue;
		} else {
			n = n < len ? n : len;
			take(r, to, n);
		}
		to = to ? to + n : NULL;
		len -= n;
	}
	return true;
}

/* A fragment of no bytes that is not the last is refused: a peer could send them for ever. */
static bool next_fragment(struct record *r)
{
	uint32_t word;

	if (!get_raw(r, (char *)&word, sizeof(word)))
		return false;
	word = ntohl(word);
	r->in_is_last = word & LAST_FRAGMENT;
	if (word == 0)
		return false;
	r->in_left = word & ~LAST_FRAGMENT;
	return true;
}

static bool_t get_bytes(XDR *xdrs, char *to, u_int len)
{
	struct record *r = xdrs->x_private;

	while (len > 0) {
		uint32_t n = r->in_left < len ? r->in_left : len;

		if (n == 0) {
			if (r->in_is_last || !next_fragment(r))
				return FALSE;
			continue;
		}
		if (!get_raw(r, to, n))
			return FALSE;
		r->in_left -= n;
		to += n;
		len -= n;
	}
	return TRUE;
}

static bool_t get_long(XDR *xdrs, long *to)
{
	struct record *r = xdrs->x_private;
	uint32_t word;

	if (r->in_left >= sizeof(word) && r->in_end - r->in_at >= sizeof(word)) {
		take(r, (char *)&word, sizeof(word));
		r->in_left -= sizeof(word);
	} else if (!get_bytes(xdrs, (char *)&word, sizeof(word))) {
		return FALSE;
	}
	*to = (long)ntohl(word);
	return TRUE;
}

static bool pass_record(struct record *r)
{
	while (r->in_left > 0 || !r->in_is_last) {
		if (!get_raw(r, NULL, r->in_left))
			return false;
		r->in_left = 0;
		if (!r->in_is_last && !next_fragment(r))
			return false;
	}
	return true;
}

bool record_skip(struct record *r)
{
	if (!pass_record(r))
		return false;
	r->in_is_last = false;
	return true;
}

bool record_has_more(struct record *r)
{
	return pass_record(r) && r->in_at != r->in_end;
}

/* ---- the rest of what an XDR stream can do ---- */

static u_int get_position(XDR *xdrs)
{
	struct record *r = xdrs->x_private;

	switch (xdrs->x_op) {
	case XDR_ENCODE:
		return (u_int)(r->out_end - HEADER_BYTES);
	case XDR_DECODE:
		return (u_int)r->in_at;
	default:
		return (u_int)-1;
	}
}

/* Within the fragment at hand, as far as it is in a buffer. */
static bool_t set_position(XDR *xdrs, u_int position)
{
	struct record *r = xdrs->x_private;
	size_t at = (size_t)position + HEADER_BYTES;
	int64_t ahead = (int64_t)position - (int64_t)r->in_at;

	if (xdrs->x_op == XDR_ENCODE && at > r->out_header && at < r->out_size) {
		r->out_end = at;
		return TRUE;
	}
	if (xdrs->x_op == XDR_DECODE && position <= r->in_end && ahead < r->in_left &&
	    (uint64_t)-ahead <= r->in_taken) {
		r->in_at = position;
		r->in_taken += (uint64_t)ahead;
		r->in_left -= (uint32_t)ahead;
		return TRUE;
	}
	return FALSE;
}

static int32_t *get_inline(XDR *xdrs, u_int len)
{
	struct record *r = xdrs->x_private;
	char *at = NULL;

	if (xdrs->x_op == XDR_ENCODE && len <= r->out_size - r->out_end) {
		at = r->out + r->out_end;
		r->out_end += len;
	} else if (xdrs->x_op == XDR_DECODE && len <= r->in_left &&
		   len <= r->in_end - r->in_at) {
		at = r->in + r->in_at;
		r->in_left -= len;
		take(r, NULL, len);
	}
	return (int32_t *)(void *)at;
}

static void destroy(XDR *xdrs)
{
	(void)xdrs; /* the stream belongs to its handle */
}

static const struct xdr_ops ops = {
	.x_getlong = get_long,
	.x_putlong = put_long,
	.x_getbytes = get_bytes,
	.x_putbytes = put_bytes,
	.x_getpostn = get_position,
	.x_setpostn = set_position,
	.x_inline = get_inline,
	.x_destroy = destroy,
};

bool record_next_word(const XDR *xdrs, uint32_t *word)
{
	const struct record *r = xdrs->x_private;

	if (xdrs->x_ops != &ops || r->in_left < sizeof(*word) ||
	    r->in_end - r->in_at < sizeof(*word))
		return false;
	memcpy(word, r->in + r->in_at, sizeof(*word));
	*word = ntohl(*word);
	return true;
}

bool record_init(struct record *r, int fd, size_t out_bytes, size_t in_bytes)
{
	*r = (struct record){
		.fd = fd, .out_size = out_bytes, .in_size = in_bytes, .in_is_last = true};
	r->xdrs.x_ops = (struct xdr_ops *)&ops;
	r->xdrs.x_private = r;
	r->out = malloc(out_bytes);
	r->in = malloc(in_bytes);
	begin_fragment(r);
	if (r->out && r->in)
		return true;
	record_finish(r);
	return false;
}

void record_finish(struct record *r)
{
	free(r->out);
	free(r->in);
}
