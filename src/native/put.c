/* SPDX-License-Identifier: Apache-2.0 */
/* What a program does with the peer's memory: put, flush, get and the atomics. */
#include <string.h>

#include "base/copy.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"
#include "native/reach.h"

/* Copied under mu; more without it. */
#define SHORT_COPY 512u

static bool has_credit(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->notes_sent - c->notes_spent < FRAME_CREDITS;
}

/* Under mu. */
static int get_credit(vd_remote *r, uint64_t offset, size_t len, bool lends)
{
	int error = 0;

	if (!has_credit(r->c, NULL)) {
		error = until_is(r->c, has_credit, NULL, lends ? 0 : UNTIL_EVER);
		/* It may have ended meanwhile. */
		if (error == 0)
			error = remote_check(r, offset, len, VD_WRITE);
	}
	if (error == 0) {
		r->c->notes_sent++;
		count(r->c, NATIVE_NOTES_SENT, 1);
	}
	return error == -ETIMEDOUT ? -EAGAIN : error;
}

/* Under mu. */
static int may_put(vd_remote *r, uint64_t offset, size_t len, unsigned flags)
{
	int error = remote_check(r, offset, len, VD_WRITE);
	bool lends = flags & VD_LEND;

	if (error == 0 && lends)
		error = lend_begin(r->c);
	if (error == 0 && (flags & VD_NOTIFY)) {
		error = get_credit(r, offset, len, lends);
		if (error < 0 && lends)
			lend_cancel(r->c);
	}
	return error;
}

/* ---- memory that is mapped here ---- */

/* Under mu, which it gives up for long copies. Returns whether the memory is mapped. */
static bool copy_mapped(vd_remote *r, uint64_t offset, void *dst, const void *src,
			size_t len)
{
	uint8_t *at = map_hold(r, offset);

	if (!at)
		return false;
	if (len > SHORT_COPY)
		pthread_mutex_unlock(&r->c->mu);
	copy_bytes(dst ? dst : at, dst ? at : src, len);
	if (len > SHORT_COPY)
		pthread_mutex_lock(&r->c->mu);
	map_release(r);
	r->c->is_placed |= !dst;
	return true;
}

/* A thread has kept memory that the peer wants back; or others have left to it what they owe. */
static void give_back_late(vd_conn *c, bool is_due)
{
	if (is_due)
		send_owed(c);
}

/* ---- put and flush over the stream ---- */

/* Under wr: in pieces, between which answers to the peer find room. The first one voids that key. */
static int put_pieces(vd_remote *r, uint64_t offset, const uint8_t *src, size_t len,
		      struct frame *last, uint32_t voids)
{
	int error;

	while (len > PIECE_BYTES) {
		struct frame f = {.type = FRAME_PUT,
				  .flags = FRAME_MORE,
				  .id = r->id,
				  .offset = offset,
				  .len = PIECE_BYTES,
				  .token = voids};

		error = send_held(r->c, &f, src);
		if (error < 0)
			return error;
		voids = 0;
		offset += PIECE_BYTES;
		src += PIECE_BYTES;
		len -= PIECE_BYTES;
	}
	last->offset = offset;
	last->len = (uint32_t)len;
	last->token = voids;
	return send_held(r->c, last, src);
}

/* All of it: by the device, or by frames. */
static int put_long(vd_remote *r, const void *src, size_t len, struct frame *f)
{
	const uint64_t placed = len;
	uint32_t voids;
	int error = 0;

	reach_prepare(r, len);
	send_begin(r->c);
	if (!reach_put(r, f->offset, src, len, &voids)) {
		error = put_pieces(r, f->offset, src, len, f, voids);
	} else if (f->flags & FRAME_NOTE) {
		f->type = FRAME_PLACED;
		f->flags = 0;
		f->len = sizeof(placed);
		error = send_held(r->c, f, &placed);
	}
	send_end(r->c);
	return error;
}

/* Under mu, after what could be done at once: its event, or it is queued; but a device is the caller's. */
static int lend(vd_conn *c, const struct frame *f, const void *src, size_t len,
		bool is_for_device, bool *is_done)
{
	int error = c->error; /* by now */

	if (error < 0) {
		*is_done = true;
	} else if (*is_done) {
		lend_done(c, f, len);
	} else if (f->type != FRAME_PUT || !is_for_device) {
		*is_done = true;
		error = lend_queue(c, f, src, len);
	}
	if (error < 0)
		lend_cancel(c);
	return error;
}

/* More than a device may be at: the caller waits for it. */
static int lend_longer(vd_remote *r, const void *src, size_t len, struct frame *f)
{
	const struct frame was = *f;
	int error = put_long(r, src, len, f);

	pthread_mutex_lock(&r->c->mu);
	if (error == 0)
		error = r->c->error;
	if (error == 0)
		lend_done(r->c, &was, len);
	else
		lend_cancel(r->c);
	pthread_mutex_unlock(&r->c->mu);
	send_owed(r->c);
	return error;
}

/* The device goes on with it; or it is queued. */
static int lend_long(vd_remote *r, const void *src, size_t len, struct frame *f)
{
	int error;

	if (len > DOOR_MOVE_BYTES)
		return lend_longer(r, src, len, f);
	if (reach_lend(r, f, src, len))
		return 0;
	pthread_mutex_lock(&r->c->mu);
	error = lend_queue(r->c, f, src, len);
	if (error < 0)
		lend_cancel(r->c);
	pthread_mutex_unlock(&r->c->mu);
	send_owed(r->c);
	return error;
}

/* Under mu: as far as that goes without waiting. It becomes a PLACED where the bytes are there. True: it is done. */
static bool put_at_once(vd_remote *r, struct frame *f, const void **src, size_t len,
			const uint64_t *placed)
{
	vd_conn *c = r->c;
	bool notifies = f->flags & FRAME_NOTE, is_done = len == 0 && !notifies;
	bool is_placed = map_is_there(r) && copy_mapped(r, f->offset, NULL, *src, len);

	count(c, NATIVE_PUTS, 1);
	count(c, NATIVE_PUT_BYTES, len);
	if (is_placed) {
		f->type = FRAME_PLACED;
		f->flags = 0;
		f->len = sizeof(*placed);
		*src = placed;
		is_done |= !notifies;
	}
	if (is_placed && !is_done)
		is_done = board_note(c, r->id, f->offset, len, f->tag);
	if (!is_done && (is_placed || len <= SEND_AT_ONCE))
		is_done = send_at_once(c, f, *src);
	if (is_placed && notifies)
		arena_want(c);
	return is_done;
}

NATIVE int vd_put(vd_remote *r, uint64_t offset, const void *src, size_t len,
		  uint32_t tag, unsigned flags)
{
	struct frame f = {.type = FRAME_PUT,
			  .flags = flags & VD_NOTIFY ? FRAME_NOTE : 0,
			  .id = r->id,
			  .offset = offset,
			  .tag = tag,
			  .len = (uint32_t)len};
	const uint64_t placed = len;
	int error = native_check(r->c);
	vd_conn *c = r->c;
	bool lends = flags & VD_LEND, is_done = false, is_due, is_for_device;

	if (error < 0)
		return error;
	if (flags & ~(VD_NOTIFY | VD_LEND))
		return -EINVAL;
	is_for_device = lends && reach_is_long(r, len);
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	error = may_put(r, offset, len, flags);
	if (error == 0)
		is_done = put_at_once(r, &f, &src, len, &placed);
	if (error == 0 && lends)
		error = lend(c, &f, src, len, is_for_device, &is_done);
	is_due = send_is_due(c);
	is_done |= error < 0;
	if (is_done && !is_due)
		conn_left(c);
	pthread_mutex_unlock(&c->mu);
	if (is_done && !is_due)
		return error;
	give_back_late(c, is_due);
	if (!is_done && f.type == FRAME_PLACED)
		error = send_frame(c, &f, src);
	else if (!is_done)
		error = lends ? lend_long(r, src, len, &f) : put_long(r, src, len, &f);
	conn_leave(c);
	return error;
}

static bool is_flushed(vd_conn *c, const void *arg)
{
	const uint32_t *token = arg;

	return (int32_t)(c->flush_done - *token) >= 0;
}

int flush_stream(vd_conn *c)
{
	struct frame f = {.type = FRAME_FLUSH};
	uint64_t puts;
	int r;

	send_begin(c);
	pthread_mutex_lock(&c->mu);
	f.token = ++c->flush_sent;
	puts = c->puts_sent;
	pthread_mutex_unlock(&c->mu);
	r = send_held(c, &f, NULL);
	send_end(c);
	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	r = until_is(c, is_flushed, &f.token, UNTIL_EVER);
	if (r == 0 && puts > c->puts_flushed)
		c->puts_flushed = puts;
	pthread_mutex_unlock(&c->mu);
	return r;
}

int ping(vd_conn *c, int64_t deadline)
{
	uint32_t token;
	int r;

	pthread_mutex_lock(&c->mu);
	/* That of the next one, whoever sends it. */
	token = c->flush_sent + 1;
	c->owed.ping = true;
	pthread_mutex_unlock(&c->mu);
	send_owed(c);
	pthread_mutex_lock(&c->mu);
	r = until_is(c, is_flushed, &token, deadline);
	pthread_mutex_unlock(&c->mu);
	return r;
}

NATIVE int vd_flush(vd_conn *c)
{
	NOT_CANCELLED;
	int r = native_check(c);
	bool is_needed;

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	r = c->error;
	/* Without any put it asks the peer as well: that is a sign of life. */
	is_needed = r == 0 &&
		    (c->puts_flushed != c->puts_sent || !c->is_placed || lend_is_due(c));
	c->is_placed = false;
	if (is_needed)
		conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	if (is_needed) {
		r = flush_stream(c);
		conn_leave(c);
	}
	return r;
}

/* ---- get and the atomics: questions with an answer ---- */

static bool may_ask(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->asked_count < FRAME_ASKED_MOST &&
	       !c->asked[c->tokens % FRAME_ASKED_MOST].used;
}

static bool is_answered(vd_conn *c, const void *arg)
{
	const struct asked *a = arg;

	return a->done && c->landing != a;
}

/* Under mu: a place for the answer, of which the reader then knows. */
static int ask_begin(vd_remote *r, struct frame *f, uint32_t bytes, uint32_t rights,
		     void *to, struct asked **out)
{
	vd_conn *c = r->c;
	struct asked *a;
	int error = remote_check(r, f->offset, bytes, rights);

	if (error == 0)
		error = until_freed(c, may_ask, NULL, UNTIL_EVER);
	if (error < 0)
		return error;
	f->id = r->id;
	f->token = c->tokens++;
	c->asked_count++;
	a = &c->asked[f->token % FRAME_ASKED_MOST];
	*a = (struct asked){.used = true, .token = f->token, .to = to, .len = bytes};
	*out = a;
	return 0;
}

/* Under mu: the answer, or the connection's end, after which nothing is written to a->to. */
static int ask_end(vd_conn *c, struct asked *a)
{
	int error = until_is(c, is_answered, a, UNTIL_EVER);

	c->followers++;
	while (c->landing == a)
		pthread_cond_wait(&c->changed, &c->mu);
	c->followers--;
	if (error == 0)
		error = a->result;
	a->used = false;
	c->asked_count--;
	conn_changed(c);
	return error;
}

/* One question, of at most FRAME_GET_MOST bytes. The caller stays. */
static int ask(vd_remote *r, struct frame *f, const void *operands, uint32_t bytes,
	       uint32_t rights, void *to)
{
	NOT_CANCELLED;
	vd_conn *c = r->c;
	struct asked *a;
	int error;

	pthread_mutex_lock(&c->mu);
	error = ask_begin(r, f, bytes, rights, to, &a);
	pthread_mutex_unlock(&c->mu);
	/* Where that fails the connection has ended, which ask_end finds, too. */
	if (error == 0) {
		send_frame(c, f, operands);
		pthread_mutex_lock(&c->mu);
		error = ask_end(c, a);
		pthread_mutex_unlock(&c->mu);
	}
	return error;
}

NATIVE int vd_get(vd_remote *r, uint64_t offset, void *dst, size_t len)
{
	vd_conn *c = r->c;
	uint8_t *to = dst;
	int error = native_check(c);
	bool is_done = false, is_due;

	if (error < 0)
		return error;
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	error = remote_check(r, offset, len, VD_READ);
	if (error == 0) {
		count(c, NATIVE_GETS, 1);
		count(c, NATIVE_GET_BYTES, len);
		is_done = copy_mapped(r, offset, dst, NULL, len);
	}
	is_due = c->owed.returns > 0;
	pthread_mutex_unlock(&c->mu);
	give_back_late(c, is_due);
	if (error == 0 && !is_done) {
		size_t n = reach_get(r, offset, dst, len);

		offset += n;
		to += n;
		len -= n;
	}
	while (error == 0 && !is_done && len > 0) {
		uint32_t n = len < FRAME_GET_MOST ? (uint32_t)len : FRAME_GET_MOST;
		struct frame f = {.type = FRAME_GET, .offset = offset, .tag = n};

		error = ask(r, &f, NULL, n, VD_READ, to);
		offset += n;
		to += n;
		len -= n;
	}
	conn_leave(c);
	return error;
}

/* Under mu. */
static bool atomic_mapped(vd_remote *r, const struct frame *f, const uint64_t *operands,
			  uint64_t *old)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)map_hold(r, f->offset);

	if (!word)
		return false;
	*old = operands[0];
	if (f->type == FRAME_ADD)
		*old = atomic_fetch_add(word, operands[0]);
	else
		atomic_compare_exchange_strong(word, old, operands[1]);
	map_release(r);
	return true;
}

static int atomic_at(vd_remote *r, struct frame *f, const uint64_t *operands,
		     uint64_t *old)
{
	uint64_t was = 0;
	int error = native_check(r->c);
	bool is_done = false, asks;
	vd_conn *c = r->c;

	if (error == 0 && (r->skew + f->offset) % 8)
		error = -EINVAL;
	if (error < 0)
		return error;
	pthread_mutex_lock(&c->mu);
	error = remote_check(r, f->offset, sizeof(was), VD_READ | VD_WRITE);
	if (error == 0) {
		count(c, NATIVE_ATOMICS, 1);
		is_done = atomic_mapped(r, f, operands, &was);
	}
	asks = error == 0 && !is_done;
	if (asks)
		conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	if (asks) {
		error = ask(r, f, operands, sizeof(was), VD_READ | VD_WRITE, &was);
		conn_leave(c);
	}
	if (error == 0 && old)
		*old = was;
	return error;
}

NATIVE int vd_fetch_add(vd_remote *r, uint64_t offset, uint64_t add, uint64_t *old)
{
	struct frame f = {.type = FRAME_ADD, .offset = offset, .len = sizeof(add)};

	return atomic_at(r, &f, &add, old);
}

NATIVE int vd_compare_swap(vd_remote *r, uint64_t offset, uint64_t expected,
			   uint64_t value, uint64_t *old)
{
	const uint64_t operands[2] = {expected, value};
	struct frame f = {.type = FRAME_SWAP, .offset = offset, .len = sizeof(operands)};

	return atomic_at(r, &f, operands, old);
}
