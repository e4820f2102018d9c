/* SPDX-License-Identifier: Apache-2.0 */
/* The reader: takes bytes from the stream, and has each frame carried out in its turn. */
#include <string.h>

#include "native/body.h"
#include "native/message.h"
#include "native/native.h"

/* From so many bytes of a body on, they are received to where they belong. */
#define DIRECT_LEAST 2048u
/* So many bytes are received to the buffer at a time: the rest of a longer body is not copied twice. */
#define AHEAD_BYTES 2048u

static bool has_body(uint8_t type)
{
	return type == FRAME_PUT || type == FRAME_ANSWER || type == FRAME_MESSAGE;
}

/* Under mu, as the next. */
static int body_step(vd_conn *c)
{
	uint32_t there = c->in_end - c->in_at;
	uint32_t len = there < c->body_left ? there : c->body_left;

	len = body_land(c, c->in + c->in_at, len);
	c->in_at += len;
	c->body_left -= len;
	return c->body_left == 0 ? body_end(c) : 0;
}

static bool is_welcome(const vd_conn *c, const struct frame *f)
{
	return f->type > 0 && f->type < FRAME_TYPES && f->zero == 0 &&
	       c->greeted == (f->type != FRAME_HELLO) &&
	       (has_body(f->type) || f->len <= FRAME_SHORT_MOST);
}

/* Begins the next frame. 1 done, 0 more of it has to come, -errno. */
static int frame_step(vd_conn *c)
{
	uint32_t there = c->in_end - c->in_at;
	const uint8_t *at = c->in + c->in_at;
	struct frame f;
	int r;

	if (there < FRAME_BYTES)
		return 0;
	memcpy(&f, at, sizeof(f));
	/* What was told before that was sent comes first. */
	if (!is_welcome(c, &f) || message_drain(c) < 0)
		return -EPROTO;
	if (f.type == FRAME_PUT && f.token == 0 && f.len <= BODY_SHORT &&
	    there >= FRAME_BYTES + f.len) {
		c->in_at += FRAME_BYTES + f.len;
		r = body_short(c, &f, at + FRAME_BYTES);
		return r < 0 ? r : 1;
	}
	if (has_body(f.type)) {
		c->in_at += FRAME_BYTES;
		c->frame = f;
		c->body_left = f.len;
		r = body_begin(c);
		if (r == 0 && f.len == 0)
			r = body_end(c);
		return r < 0 ? r : 1;
	}
	if (there < FRAME_BYTES + f.len)
		return 0;
	c->in_at += FRAME_BYTES + f.len;
	r = peer_frame(c, &f, at + FRAME_BYTES);
	c->frames_come += f.type != FRAME_HELLO;
	return r < 0 ? r : 1;
}

/* Under mu: what has come, as far as it is complete. */
static int carry_out(vd_conn *c)
{
	int r = 1;

	while (r > 0 && c->in_at < c->in_end)
		r = c->body_left > 0 ? (body_step(c) < 0 ? -EPROTO : 1) : frame_step(c);
	if (c->in_at > 0) {
		if (c->in_end > c->in_at)
			memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
		c->in_end -= c->in_at;
		c->in_at = 0;
	}
	return r < 0 ? r : message_drain(c);
}

/* The rest of a body goes to its place, and what comes behind it into the buffer. -EAGAIN also
 * where the place is gone. */
static ssize_t receive_direct(vd_conn *c, int flags)
{
	struct iovec iov[2] = {{0}, {c->in, AHEAD_BYTES}};
	uint32_t room, len;
	ssize_t n;

	pthread_mutex_lock(&c->mu);
	iov[0].iov_base = body_target(c, &room);
	pthread_mutex_unlock(&c->mu);
	iov[0].iov_len = room;
	if (!iov[0].iov_base)
		return -EAGAIN;
	/* Not waiting: whoever ends an export waits for us. But a message's place is ours. */
	if (c->frame.type == FRAME_MESSAGE && !flags)
		n = door->recv(c->fd, iov, 1, MSG_WAITALL);
	else
		n = door->recv(c->fd, iov, 2, MSG_DONTWAIT);
	len = n <= 0 ? 0 : (size_t)n < room ? (uint32_t)n : room;
	pthread_mutex_lock(&c->mu);
	body_landed(c, len);
	if (n > 0) {
		c->body_left -= len;
		c->in_end = (uint32_t)((size_t)n - len);
		if (c->body_left == 0 && body_end(c) < 0)
			n = -EPROTO;
	}
	pthread_mutex_unlock(&c->mu);
	return n;
}

static ssize_t receive(vd_conn *c, int flags)
{
	struct iovec iov = {c->in + c->in_end, IN_BYTES - c->in_end};
	ssize_t n = -EAGAIN;

	if (iov.iov_len > AHEAD_BYTES)
		iov.iov_len = AHEAD_BYTES;

	if (c->body_left >= DIRECT_LEAST && c->in_end == 0) {
		n = receive_direct(c, flags);
		if (n != -EAGAIN)
			return n;
	}
	n = door->recv(c->fd, &iov, 1, flags);
	if (n > 0)
		c->in_end += (uint32_t)n;
	return n;
}

int read_some(vd_conn *c, int flags)
{
	ssize_t n = receive(c, flags);
	int r = n < 0 ? (int)n : 0;

	pthread_mutex_lock(&c->mu);
	if (r == -EAGAIN || r == -EINTR)
		return r;
	if (n > 0)
		r = carry_out(c);
	else if (r != -EPROTO)
		r = c->bye_sent ? -EPIPE : -ECONNRESET; /* that is how BYE is answered */
	if (r < 0) {
		pthread_mutex_unlock(&c->mu);
		conn_over(c, r);
		pthread_mutex_lock(&c->mu);
	}
	return r;
}
