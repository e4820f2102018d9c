/* SPDX-License-Identifier: Apache-2.0 */
/* Frames to the peer: those of callers, who wait, and those that are owed, for which nobody does. */
#include <string.h>

#include "base/copy.h"
#include "base/reason.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"
#include "native/reach.h"

_Static_assert(offsetof(struct owed, flush_seq) - offsetof(struct owed, any) == 8,
	       "`any` is all of these words");

bool send_is_due(const vd_conn *c)
{
	const struct owed *o = &c->owed;

	/* Nothing follows BYE, whatever the peer has asked before it saw that. */
	if (c->bye_sent)
		return load_relaxed(&c->rest_end) > 0;
	/* Added up by bits: as a rule it is nothing. */
	if (o->any | o->gone_count | o->mapped_id | o->key_id | o->reach_id | o->returns |
	    o->wanted_count | o->ping | o->map_id | load_relaxed(&c->rest_end))
		return true;
	return lend_is_due(c) && !lend_is_far(c);
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
	ssize_t n = 0;

	for (int i = 0; i < count; i++)
		left += iov[i].iov_len;
	while (left > 0) {
		n = door->send(c->fd, iov, count, flags | MSG_NOSIGNAL);
		if (n == -EAGAIN && flags) {
			flags = 0;
			pthread_mutex_lock(&c->mu);
			service_take(c);
			c->is_blocked = true;
			pthread_mutex_unlock(&c->mu);
		} else if (n < 0 && n != -EINTR && n != -EAGAIN) {
			break;
		}
		if (n > 0) {
			advance(iov, count, (size_t)n);
			left -= (size_t)n;
		}
	}
	if (!flags) {
		pthread_mutex_lock(&c->mu);
		c->is_blocked = false;
		pthread_mutex_unlock(&c->mu);
	}
	return left == 0 ? 0 : (int)n;
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

/* Under wr: what is left to be sent of a frame. */
static void rest_iov(const vd_conn *c, struct iovec iov[2])
{
	iov[0] = (struct iovec){c->rest + c->rest_at,
				load_relaxed(&c->rest_end) - c->rest_at};
	iov[1] = c->piece;
}

/* Under wr: from now on the source is read, if it is a lent one. 0, or it has been given back: the error. */
static int rest_begin(vd_conn *c)
{
	int r = 0;

	if (!c->is_lent)
		return 0;
	pthread_mutex_lock(&c->mu);
	r = c->error;
	c->is_lending = r == 0;
	pthread_mutex_unlock(&c->mu);
	return r;
}

/* And no more: so many bytes have gone. */
static void rest_end(vd_conn *c, size_t n)
{
	struct iovec iov[2];
	bool is_done;

	rest_iov(c, iov);
	is_done = n == iov[0].iov_len + iov[1].iov_len;
	if (n < iov[0].iov_len) {
		c->rest_at += (uint32_t)n;
	} else {
		n -= iov[0].iov_len;
		c->rest_at = load_relaxed(&c->rest_end);
		c->piece.iov_base = (uint8_t *)c->piece.iov_base + n;
		c->piece.iov_len -= n;
	}
	if (is_done)
		store_relaxed(&c->rest_end, 0);
	if (!c->is_lent)
		return;
	pthread_mutex_lock(&c->mu);
	c->is_lending = false;
	if (is_done)
		lend_sent(c);
	if (c->error)
		lend_give_back(c);
	conn_changed(c);
	event_tell(c);
	pthread_mutex_unlock(&c->mu);
	if (is_done)
		c->is_lent = false;
}

static int push_rest(vd_conn *c)
{
	struct iovec iov[2];
	size_t len;
	int r;

	if (load_relaxed(&c->rest_end) == 0)
		return 0;
	r = rest_begin(c);
	if (r < 0)
		return r;
	rest_iov(c, iov);
	len = iov[0].iov_len + iov[1].iov_len;
	r = push(c, iov, 2);
	rest_end(c, r == 0 ? len : 0);
	return r;
}

static int push_frame(vd_conn *c, struct frame *f, const void *payload)
{
	struct iovec iov[2] = {{f, sizeof(*f)}, {(void *)payload, f->len}};

	return push(c, iov, f->len ? 2 : 1);
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

void send_gone(vd_conn *c, uint32_t id)
{
	struct owed *o = &c->owed;

	if (c->error)
		return;
	o->gone[(o->gone_first + o->gone_count++) % VD_EXPORTS_MAX] = id;
	/* Now: what a board tells from now on comes behind it. */
	count_frame(c);
}

/* Under mu: there is one. */
static struct frame next_gone(vd_conn *c)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = FRAME_UNEXPORT, .id = o->gone[o->gone_first]};

	o->gone_first = (o->gone_first + 1) % VD_EXPORTS_MAX;
	o->gone_count--;
	return f;
}

int send_held(vd_conn *c, struct frame *f, const void *payload)
{
	struct frame gone, *next;
	int r;

	do {
		pthread_mutex_lock(&c->mu);
		r = c->error;
		next = f;
		if (r == 0 && c->owed.gone_count > 0) {
			gone = next_gone(c);
			next = &gone;
		} else {
			if (f->type == FRAME_PUT)
				count_put(c, f);
			count_frame(c);
		}
		send_stamp(c, next);
		pthread_mutex_unlock(&c->mu);
		if (r < 0)
			return r;
		if (push_rest(c) < 0 || push_frame(c, next, payload) < 0)
			return broken(c);
	} while (next != f);
	return 0;
}

/* Whoever found wr taken has left what is owed to us. */
void send_end(vd_conn *c)
{
	int cancel = c->cancel;
	bool is_due;

	pthread_mutex_unlock(&c->wr);
	pthread_mutex_unlock(&c->turn);
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
	uint32_t told = c->notes_told;
	bool owes = c->owed.taken;
	ssize_t n = 0;
	int cancel;

	if (c->error || c->owed.gone_count > 0 || lend_is_due(c) ||
	    pthread_mutex_trylock(&c->wr) != 0)
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
	} else {
		/* Nobody was told: a device may do what this frame was for. */
		c->notes_told = told;
		c->owed.taken = owes;
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
	/* It may have ended since. */
	if (f.tag == VD_REASON_NONE && !reach_told(c, f.id)) {
		f.tag = VD_REASON_ENDED;
		o->key = (struct frame_key){0};
	}
	send_stamp(c, &f);
	memcpy(c->rest, &f, sizeof(f));
	memcpy(c->rest + sizeof(f), &o->key, sizeof(o->key));
	return sizeof(f) + sizeof(o->key);
}

/* Under mu: there is one. */
static uint32_t next_map(vd_conn *c)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = FRAME_MAP, .id = o->map_id, .len = FRAME_NAME_BYTES};

	o->map_id = 0;
	send_stamp(c, &f);
	memcpy(c->rest, &f, sizeof(f));
	memcpy(c->rest + sizeof(f), o->map_name, f.len);
	return sizeof(f) + f.len;
}

/* Under mu: the next of what is owed, into `rest`. Its length, or 0. */
static uint32_t next_owed(vd_conn *c)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = 0};
	bool lends;

	if (c->error || c->bye_sent)
		return 0;
	lend_look(c);
	lends = lend_is_due(c) && !lend_is_far(c);
	if (o->gone_count > 0) {
		f = next_gone(c);
	} else if (lends && (c->lend.has_turn = !c->lend.has_turn)) {
		f = lend_next(c, &c->piece);
		c->is_lent = true;
		if (f.type == FRAME_PUT)
			count_put(c, &f);
	} else if (o->flush) {
		o->flush = false;
		f.type = FRAME_FLUSHED;
		f.token = o->flush_seq;
	} else if (o->mapped_id) {
		f.type = FRAME_MAPPED;
		f.id = o->mapped_id;
		f.tag = o->mapped_reason;
		o->mapped_id = 0;
	} else if (o->map_id) {
		return next_map(c);
	} else if (o->ping) {
		o->ping = false;
		f.type = FRAME_FLUSH;
		f.token = ++c->flush_sent;
	} else if (o->reach_id) {
		f.type = FRAME_REACH;
		f.id = o->reach_id;
		o->reach_id = 0;
	} else if (o->key_id) {
		return next_key(c);
	} else if (o->returns > 0) {
		f.type = FRAME_UNMAPPED;
		f.id = next_return(c);
	} else if (o->wanted_count > 0) {
		return answer_next(c, c->rest);
	} else if (o->offer || o->map || o->mapped || o->released || o->look) {
		return message_owed(c, c->rest);
	} else if (lends) {
		return next_owed(c); /* it has its turn now */
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

/* Under wr and mu: the next of what is owed begins. False: there is none. */
static bool begin_owed(vd_conn *c)
{
	bool is_counted = c->owed.gone_count > 0;
	uint32_t end = next_owed(c);

	if (end > 0 && !is_counted)
		count_frame(c);
	c->rest_at = 0;
	store_relaxed(&c->rest_end, end);
	return end > 0;
}

/* Under wr. 1 there is room for more, 0 all is sent, -EAGAIN, or the stream is broken. */
static int owed_step(vd_conn *c)
{
	struct iovec iov[2];
	bool has_some = load_relaxed(&c->rest_end) > 0;
	ssize_t n;
	int r;

	if (!has_some) {
		pthread_mutex_lock(&c->mu);
		has_some = begin_owed(c);
		pthread_mutex_unlock(&c->mu);
		if (!has_some)
			return 0;
	}
	r = rest_begin(c);
	if (r < 0)
		return r;
	rest_iov(c, iov);
	n = door->send(c->fd, iov, iov[1].iov_len ? 2 : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	rest_end(c, n > 0 ? (size_t)n : 0);
	return n >= 0 || n == -EINTR ? 1 : (int)n;
}

static bool device_is_done(vd_conn *c, const void *arg)
{
	const uint32_t *end = arg;

	return !lend_is_far(c) || (int32_t)(*end - c->lend.gone) <= 0 || c->error;
}

/* In its turn, under wr, which it gives up: until the first is no device's, or all up to this one have gone. As
 * elsewhere the caller reads meanwhile, and whoever reads answers. */
static void await_device(vd_conn *c, uint32_t end)
{
	pthread_mutex_unlock(&c->wr);
	/* What others have left. */
	send_owed(c);
	pthread_mutex_lock(&c->mu);
	until_is(c, device_is_done, &end, UNTIL_EVER);
	pthread_mutex_unlock(&c->mu);
	pthread_mutex_lock(&c->wr);
}

/* In its turn, under wr: what was lent so far goes, or a device has done with it, but for so many at most. An error
 * is the connection's. */
static void push_lent(vd_conn *c, uint32_t most)
{
	const struct lent_queue *q = &c->lend;
	bool is_due = true, is_counted = false, is_far = false;
	uint32_t end = 0;

	while (is_due) {
		pthread_mutex_lock(&c->mu);
		/* What others lend from now on is behind. */
		if (!is_counted)
			end = q->gone + load_relaxed(&q->count) - most;
		is_counted = true;
		lend_look(c);
		is_due = (int32_t)(end - q->gone) > 0 && !c->error && !c->bye_sent;
		if (is_due && load_relaxed(&c->rest_end) == 0)
			begin_owed(c);
		is_far = load_relaxed(&c->rest_end) == 0 && lend_is_far(c);
		pthread_mutex_unlock(&c->mu);
		if (is_due && is_far)
			await_device(c, end);
		else if (is_due && push_rest(c) < 0)
			broken(c);
	}
}

/* A frame is sent as a whole. */
static void lock_both(vd_conn *c)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&c->turn);
	pthread_mutex_lock(&c->wr);
	c->cancel = cancel;
}

void send_begin(vd_conn *c)
{
	lock_both(c);
	if (lend_is_due(c))
		push_lent(c, 0);
}

void send_begin_far(vd_conn *c, const struct frame *f, uint64_t len)
{
	uint32_t most;

	lock_both(c);
	pthread_mutex_lock(&c->mu);
	lend_look(c);
	most = lend_may_stay(c, f, len);
	pthread_mutex_unlock(&c->mu);
	if (lend_is_due(c))
		push_lent(c, most);
}

/* Frames in one call: others may lend as fast as they go. */
#define STEPS_MOST 1024

void send_owed(vd_conn *c)
{
	NOT_CANCELLED;
	bool is_due = true;
	int r = 1, steps = 0;

	while (is_due && r >= 0 && pthread_mutex_trylock(&c->wr) == 0) {
		for (; r > 0 && steps < STEPS_MOST; steps++)
			r = owed_step(c);
		/* The service thread goes on, as where the stream is full. */
		if (r > 0)
			r = -EAGAIN;
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
