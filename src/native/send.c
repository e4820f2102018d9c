/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to the peer: those of callers, who wait, and those that are owed, for which nobody does. */
#include <string.h>

#include "base/copy.h"
#include "base/reason.h"
#include "native/native.h"
#include "native/reach.h"

bool send_is_due(const vd_conn *c)
{
	const struct owed *o = &c->owed;

	/* Nothing follows BYE, whatever the peer has asked before it saw that. */
	if (c->bye_sent)
		return load_relaxed(&c->rest_end) > 0;
	return o->flush || o->taken || o->released || o->offer || o->map || o->mapped ||
	       o->look || o->mapped_id || o->key_id || o->returns > 0 ||
	       o->wanted_count > 0 || o->bye || load_relaxed(&c->rest_end) > 0;
}

void send_stamp(vd_conn *c, struct frame *f)
{
	f->taken = c->notes_told = c->notes_taken;
	c->owed.taken = false;
	if (f->type == FRAME_MESSAGE || f->type == FRAME_RELEASED)
		message_stamp(c, f);
}

static void advance(struct iovec *iov, int count, size_t n)
{
	for (int i = 0; i < count; i++) {
		size_t step = n < iov[i].iov_len ? n : iov[i].iov_len;

		iov[i].iov_base = (uint8_t *)iov[i].iov_base + step;
		iov[i].iov_len -= step;
		n -= step;
	}
}

/* Under wr: all of it. The peer may wait for us to read before it does: somebody has to. */
static int push(vd_conn *c, struct iovec *iov, int count)
{
	int flags = MSG_DONTWAIT;
	size_t left = 0;
	ssize_t n;

	for (int i = 0; i < count; i++)
		left += iov[i].iov_len;
	while (left > 0) {
		n = door->send(c->fd, iov, count, flags | MSG_NOSIGNAL);
		if (n == -EAGAIN && flags) {
			flags = 0;
			pthread_mutex_lock(&c->mu);
			service_take(c);
			pthread_mutex_unlock(&c->mu);
		} else if (n < 0 && n != -EINTR && n != -EAGAIN) {
			return (int)n;
		}
		if (n > 0) {
			advance(iov, count, (size_t)n);
			left -= (size_t)n;
		}
	}
	return 0;
}

static bool is_over(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->error != 0;
}

/* So long the end is looked for in what the peer has said before. */
#define END_MS 200

/* The stream takes no more: what every call returns from now on. */
static int broken(vd_conn *c)
{
	int r;

	pthread_mutex_lock(&c->mu);
	until_is(c, is_over, NULL, until(END_MS));
	r = c->error;
	pthread_mutex_unlock(&c->mu);
	if (r == 0)
		conn_over(c, r = -ECONNRESET);
	return r;
}

void send_begin(vd_conn *c)
{
	int cancel;

	/* A frame is sent as a whole. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&c->wr);
	c->wr_cancel = cancel;
}

static int push_rest(vd_conn *c)
{
	uint32_t end = load_relaxed(&c->rest_end);
	struct iovec iov = {c->rest + c->rest_at, end - c->rest_at};
	int r = end > 0 ? push(c, &iov, 1) : 0;

	if (r == 0)
		store_relaxed(&c->rest_end, 0);
	return r;
}

/* Under wr and mu. */
static void count_put(vd_conn *c, const struct frame *f)
{
	c->peer_exports[f->id & FRAME_ID_PLACE].put_at = ++c->puts_sent;
}

/* Under wr and mu: it will come before what a board tells from now on. */
static void count_frame(vd_conn *c)
{
	/* Relaxed, and no step of one: mu is held. Whoever looks has called this, or need not know. */
	uint32_t n = load_relaxed(&c->frames_sent);

	store_relaxed(&c->frames_sent, n + 1);
}

int send_held(vd_conn *c, struct frame *f, const void *payload)
{
	struct iovec iov[2] = {{f, sizeof(*f)}, {(void *)payload, f->len}};
	int r;

	pthread_mutex_lock(&c->mu);
	r = c->error;
	if (f->type == FRAME_PUT)
		count_put(c, f);
	send_stamp(c, f);
	count_frame(c);
	pthread_mutex_unlock(&c->mu);
	if (r < 0)
		return r;
	if (push_rest(c) < 0 || push(c, iov, f->len ? 2 : 1) < 0)
		return broken(c);
	return 0;
}

/* Whoever found wr taken has left what is owed to us. */
void send_end(vd_conn *c)
{
	int cancel = c->wr_cancel;
	bool is_due;

	pthread_mutex_unlock(&c->wr);
	pthread_setcancelstate(cancel, NULL);
	pthread_mutex_lock(&c->mu);
	is_due = send_is_due(c);
	pthread_mutex_unlock(&c->mu);
	if (is_due)
		send_owed(c);
}

/* Under wr: what the stream has not taken of a frame goes on with what is owed. */
static void keep_rest(vd_conn *c, struct iovec *iov, size_t sent, size_t len)
{
	uint8_t *to = c->rest;

	advance(iov, 2, sent);
	for (int i = 0; i < 2; i++) {
		copy_bytes(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	c->rest_at = 0;
	store_relaxed(&c->rest_end, (uint32_t)(len - sent));
}

bool send_at_once(vd_conn *c, struct frame *f, const void *payload)
{
	struct iovec iov[2] = {{f, sizeof(*f)}, {(void *)payload, f->len}};
	size_t len = sizeof(*f) + f->len;
	ssize_t n = 0;
	int cancel;

	if (c->error || pthread_mutex_trylock(&c->wr) != 0)
		return false;
	if (load_relaxed(&c->rest_end) == 0) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		send_stamp(c, f);
		n = door->send(c->fd, iov, f->len ? 2 : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		pthread_setcancelstate(cancel, NULL);
	}
	if (n > 0) {
		count_frame(c);
		if (f->type == FRAME_PUT)
			count_put(c, f);
		if ((size_t)n < len)
			keep_rest(c, iov, (size_t)n, len);
	}
	pthread_mutex_unlock(&c->wr);
	return n > 0;
}

int send_frame(vd_conn *c, struct frame *f, const void *payload)
{
	int r;

	send_begin(c);
	r = send_held(c, f, payload);
	send_end(c);
	return r;
}

/* Under mu: there is one. */
static uint32_t next_return(vd_conn *c)
{
	struct peer_export *p = c->peer_exports;

	while (!p->owes_return)
		p++;
	p->owes_return = false;
	c->owed.returns--;
	return p->id;
}

/* Under mu: there is one. */
static uint32_t next_key(vd_conn *c)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = FRAME_KEY,
			  .id = o->key_id,
			  .tag = o->key_reason,
			  .token = o->key_number,
			  .len = sizeof(o->key)};

	o->key_id = 0;
	if (f.tag == VD_REASON_NONE)
		reach_told(c, f.id);
	send_stamp(c, &f);
	memcpy(c->rest, &f, sizeof(f));
	memcpy(c->rest + sizeof(f), &o->key, sizeof(o->key));
	return sizeof(f) + sizeof(o->key);
}

/* Under mu: the next of what is owed, into `rest`. Its length, or 0. */
static uint32_t next_owed(vd_conn *c)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = 0};

	if (c->error || c->bye_sent)
		return 0;
	if (o->flush) {
		o->flush = false;
		f.type = FRAME_FLUSHED;
		f.token = o->flush_seq;
	} else if (o->mapped_id) {
		f.type = FRAME_MAPPED;
		f.id = o->mapped_id;
		f.tag = o->mapped_reason;
		o->mapped_id = 0;
	} else if (o->key_id) {
		return next_key(c);
	} else if (o->returns > 0) {
		f.type = FRAME_UNMAPPED;
		f.id = next_return(c);
	} else if (o->wanted_count > 0) {
		return answer_next(c, c->rest);
	} else if (o->offer || o->map || o->mapped || o->released || o->look) {
		return message_owed(c, c->rest);
	} else if (o->bye) {
		c->bye_sent = true;
		f.type = FRAME_BYE;
	} else if (o->taken) {
		f.type = FRAME_TAKEN;
	} else {
		return 0;
	}
	send_stamp(c, &f);
	memcpy(c->rest, &f, sizeof(f));
	return sizeof(f);
}

/* Under wr. 1 there is room for more, 0 all is sent, -EAGAIN, or the stream is broken. */
static int owed_step(vd_conn *c)
{
	uint32_t end = load_relaxed(&c->rest_end);
	struct iovec iov;
	ssize_t n;

	if (end == 0) {
		pthread_mutex_lock(&c->mu);
		end = next_owed(c);
		if (end > 0)
			count_frame(c);
		pthread_mutex_unlock(&c->mu);
		c->rest_at = 0;
		store_relaxed(&c->rest_end, end);
		if (end == 0)
			return 0;
	}
	iov = (struct iovec){c->rest + c->rest_at, end - c->rest_at};
	n = door->send(c->fd, &iov, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return n == -EINTR ? 1 : (int)n;
	c->rest_at += (uint32_t)n;
	if (c->rest_at == end)
		store_relaxed(&c->rest_end, 0);
	return 1;
}

void send_owed(vd_conn *c)
{
	bool is_due = true;
	int r = 1;

	while (is_due && r >= 0 && pthread_mutex_trylock(&c->wr) == 0) {
		while (r > 0)
			r = owed_step(c);
		pthread_mutex_unlock(&c->wr);
		/* Others found it locked, and have left something. */
		pthread_mutex_lock(&c->mu);
		is_due = send_is_due(c) && !c->error;
		if (is_due && r == -EAGAIN)
			service_take(c);
		pthread_mutex_unlock(&c->mu);
		r = r < 0 ? r : 1;
	}
}
