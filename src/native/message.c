/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: one end writes them in place, the other looks at them in place. */
/*
 * Each end keeps its messages in an arena until the peer has released them. The peer has a mirror of
 * it, where their bytes are received to.
 *
 * A position counts granules of the arena, free running modulo 2^32; the arena holds those of one
 * round. A message begins at a granule and does not go across the arena's end. At the sender
 *
 *	freed ... head		lies with the peer; nobody writes there
 *	head (or further)	the reservation: the program writes there, without a lock
 *
 * `freed` comes from what the peer says, in RELEASED and in each MESSAGE, and never passes `head`. So a
 * place is used again only after the peer's program has given it back. The receiver checks the same:
 * a message that would lie over one that it still has breaks a rule.
 *
 * The receiver tells of what was released with its own next message, or when that is half the arena, or
 * when the sender waits for it: that one says WAITS first, once, with the position at which it
 * can go on. Either end may die at any step: the other has its own arena and its own mirror.
 */
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

#define ROUND (FRAME_ARENA / FRAME_GRANULE)

/* Longer messages go through the stream: both ends copy them at the same time, and lines that one end
 * writes and the other reads in turn are the slower way. */
#define BESIDE_MOST 8192u

_Static_assert(FRAME_ARENA == VD_MESSAGE_MAX, "any message fits");
_Static_assert(ROUND == MESSAGES_MOST, "each has a granule");

/* Of a message. */
static uint32_t granules(uint32_t len)
{
	return (len + FRAME_GRANULE - 1) / FRAME_GRANULE;
}

/* Position a is b or further. */
static bool has_reached(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

static uint8_t *place_of(uint8_t *arena, uint32_t at)
{
	return arena + (size_t)(at % ROUND) * FRAME_GRANULE;
}

/* ---- the sender ---- */

static bool is_empty(const struct outbox *o)
{
	return o->head == o->freed;
}

/* Under mu: where n granules would lie next. An empty arena is used from its beginning on, which is
 * still in the caches. */
static uint32_t next_place(const struct outbox *o, uint32_t n)
{
	uint32_t past = o->head % ROUND;

	return past && (is_empty(o) || past + n > ROUND) ? o->head - past + ROUND
							 : o->head;
}

static bool has_room(vd_conn *c, const void *arg)
{
	const struct outbox *o = &c->outbox;
	const uint32_t *n = arg;

	return is_empty(o) || next_place(o, *n) + *n - o->freed <= ROUND;
}

/* Under mu: what the peer may say at most. */
static uint32_t most_released(const struct outbox *o)
{
	/* A reservation may be told on the board before we have noted that. */
	return o->is_reserved ? o->at + granules(o->room) : o->head;
}

/* Under mu: so the board says, which a frame may overtake. 0 or -EPROTO. */
static int released_beside(vd_conn *c, uint32_t token)
{
	struct outbox *o = &c->outbox;
	uint32_t most = most_released(o);

	if (token != most && has_reached(token, most))
		return -EPROTO;
	if (token != o->freed && has_reached(token, o->freed)) {
		o->freed = token;
		conn_changed(c);
	}
	return 0;
}

/* Under mu, which it gives up meanwhile: n granules for the only caller. */
static int find_room(vd_conn *c, uint32_t n)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = FRAME_WAITS};
	int r = arena_offer(c);

	if (r < 0)
		return r;
	if (!o->arena)
		o->arena = arena_create();
	if (!o->arena)
		return -ENOMEM;
	if (!has_room(c, &n))
		c->inbox.is_wrong |= released_beside(c, board_released(c)) < 0;
	if (!has_room(c, &n) && !c->inbox.is_wrong) {
		f.id = next_place(o, n) + n - ROUND;
		if (has_reached(f.id, o->head))
			f.id = o->head;
		pthread_mutex_unlock(&c->mu);
		r = send_frame(c, &f, NULL);
		pthread_mutex_lock(&c->mu);
	}
	if (r == 0)
		r = until_is(c, has_room, &n, UNTIL_EVER);
	return r;
}

NATIVE int vd_reserve(vd_conn *c, size_t len, void **memory)
{
	struct outbox *o = &c->outbox;
	int r = native_check(c);

	if (r < 0)
		return r;
	if (len == 0 || len > VD_MESSAGE_MAX)
		return len ? -EMSGSIZE : -EINVAL;
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	r = c->error ? c->error : o->is_busy ? -EBUSY : 0;
	if (r == 0) {
		o->is_busy = true;
		r = find_room(c, granules((uint32_t)len));
		o->is_busy = o->is_reserved = r == 0;
	}
	if (r == 0) {
		o->at = next_place(o, granules((uint32_t)len));
		if (is_empty(o))
			o->head = o->freed = o->at;
		o->room = (uint32_t)len;
		o->is_beside = board_may_tell(c);
		*memory = place_of(o->arena, o->at);
	}
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	return r;
}

/* Under mu. The peer may know of the message for a while, and be through with it. */
static void advance(vd_conn *c, uint32_t len, bool is_in_place)
{
	struct outbox *o = &c->outbox;

	count(c, NATIVE_MESSAGES, 1);
	count(c, NATIVE_MESSAGE_BYTES, len);
	count(c, NATIVE_IN_PLACE, is_in_place);
	o->head = o->at + granules(len);
	if (has_reached(o->freed, o->head))
		o->freed = o->head;
}

/* Under mu: the reservation becomes a message of so many bytes, with the peer from now on. */
static struct frame leave(vd_conn *c, uint32_t len)
{
	struct outbox *o = &c->outbox;
	bool is_whole = o->is_mapped && len <= BESIDE_MOST;
	struct frame f = {.type = FRAME_MESSAGE,
			  .flags = is_whole ? FRAME_WHOLE : 0,
			  .id = o->at,
			  .tag = len,
			  .len = is_whole ? 0 : len};

	advance(c, len, is_whole);
	return f;
}

NATIVE int vd_commit(vd_conn *c, size_t len)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = 0};
	bool is_done, is_due, is_told;
	int r = native_check(c);

	if (r < 0)
		return r;
	/* Not past puts that are queued: those of this thread are seen here. */
	is_told = o->is_reserved && o->is_beside && len > 0 && len <= o->room &&
		  len <= BESIDE_MOST && !lend_is_due(c);
	if (is_told)
		board_tell(c, (uint32_t)len);
	pthread_mutex_lock(&c->mu);
	if (!o->is_reserved || len > o->room) {
		pthread_mutex_unlock(&c->mu);
		return -EINVAL;
	}
	o->is_reserved = false;
	r = c->error;
	is_done = r < 0 || len == 0;
	if (!is_done && is_told) {
		advance(c, (uint32_t)len, true);
		board_told(c);
		is_done = true;
	}
	if (!is_done) {
		f = leave(c, (uint32_t)len);
		is_done = f.len <= SEND_AT_ONCE &&
			  send_at_once(c, &f, place_of(o->arena, o->at));
	}
	o->is_busy = !is_done;
	is_due = send_is_due(c);
	if (!is_done || is_due)
		conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	if (is_done && !is_due)
		return r;
	if (is_done)
		send_owed(c);
	else
		r = send_frame(c, &f, place_of(o->arena, o->at));
	pthread_mutex_lock(&c->mu);
	if (!is_done)
		o->is_busy = false;
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	return r;
}

int message_released(vd_conn *c, uint32_t token)
{
	struct outbox *o = &c->outbox;

	if (token - o->seen > most_released(o) - o->seen)
		return -EPROTO;
	o->seen = token;
	return released_beside(c, token);
}

/* ---- the receiver ---- */

/* For the next message, which is mapped, or has a payload. */
static int make_room(struct inbox *i, bool is_mapped)
{
	if (!i->queue)
		i->queue = calloc(MESSAGES_MOST, sizeof(*i->queue));
	if (!i->mirror && !is_mapped)
		i->mirror = arena_create();
	return i->queue && (i->mirror || is_mapped) ? 0 : -ENOMEM;
}

/* For a message of so many bytes at that position: 0, -EPROTO, -ENOMEM. */
static int check(vd_conn *c, uint32_t at, uint32_t len, bool is_mapped)
{
	struct inbox *i = &c->inbox;
	uint32_t n, oldest;

	if (len == 0 || len > FRAME_ARENA || (is_mapped && !i->map))
		return -EPROTO;
	n = granules(len);
	oldest = i->count ? i->queue[i->first].at : at;
	if (at - i->come >= ROUND || at % ROUND + n > ROUND || at + n - oldest > ROUND)
		return -EPROTO;
	return make_room(i, is_mapped);
}

static void add(vd_conn *c, uint32_t at, uint32_t len, bool is_mapped)
{
	struct inbox *i = &c->inbox;
	bool is_expected = i->count == 0 && i->is_busy && !i->is_held;

	i->queue[(i->first + i->count++) % MESSAGES_MOST] =
		(struct message){at, len, is_mapped};
	i->come = at + granules(len);
	count(c, NATIVE_MESSAGES_COME, 1);
	/* Whoever waits for it takes it: then there would be no event any more. */
	if (is_expected)
		conn_changed(c);
	else
		event_message(c, len);
}

int message_told(vd_conn *c, uint32_t at, uint32_t len, uint32_t token)
{
	int r = check(c, at, len, true);

	if (r == 0)
		r = released_beside(c, token);
	if (r == 0)
		add(c, at, len, true);
	return r;
}

int message_begin(vd_conn *c, const struct frame *f)
{
	bool is_mapped = f->flags & FRAME_WHOLE;

	if ((f->flags & ~FRAME_WHOLE) || f->len != (is_mapped ? 0 : f->tag) ||
	    message_released(c, f->token) < 0)
		return -EPROTO;
	return check(c, f->id, f->tag, is_mapped);
}

uint8_t *message_target(vd_conn *c)
{
	return place_of(c->inbox.mirror, c->frame.id);
}

void message_end(vd_conn *c)
{
	const struct frame *f = &c->frame;

	add(c, f->id, f->tag, f->flags & FRAME_WHOLE);
}

static uint32_t released_to(const struct inbox *i)
{
	/* Relaxed: under mu. */
	return load_relaxed(&i->released);
}

/* Under mu: the sender has to hear of it. */
static bool ought_to_hear(const vd_conn *c)
{
	const struct inbox *i = &c->inbox;

	/* A peer that has our board looks there before it waits. */
	return (i->untold >= ROUND / 2 && !c->outbox.is_mapped) ||
	       (i->is_awaited && has_reached(released_to(i), i->awaited));
}

static int released(vd_conn *c, const struct frame *f)
{
	struct outbox *o = &c->outbox;

	if (f->flags & ~FRAME_WHOLE || (f->flags && (!o->is_brought || o->reason)))
		return -EPROTO;
	o->is_mapped |= f->flags == FRAME_WHOLE;
	return message_released(c, f->token);
}

int message_frame(vd_conn *c, const struct frame *f, const uint8_t *payload)
{
	struct inbox *i = &c->inbox;

	if (f->len != (f->type == FRAME_MAP ? FRAME_NAME_BYTES : 0))
		return -EPROTO;
	switch (f->type) {
	case FRAME_OFFER:
		return arena_offered(c);
	case FRAME_MAP:
		return arena_map(c, payload);
	case FRAME_MAPPED:
		return arena_mapped(c, f);
	case FRAME_RELEASED:
		return released(c, f);
	case FRAME_LOOK:
		return message_drain(c);
	default:
		i->is_awaited = true;
		i->awaited = f->id;
		c->owed.released |= ought_to_hear(c);
		return 0;
	}
}

uint32_t message_owed(vd_conn *c, uint8_t *to)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = FRAME_RELEASED};

	if (o->offer) {
		o->offer = false;
		f.type = FRAME_OFFER;
	} else if (o->map) {
		o->map = false;
		f.type = FRAME_MAP;
		f.len = FRAME_NAME_BYTES;
		memcpy(to + FRAME_BYTES, c->inbox.name, f.len);
	} else if (o->mapped) {
		o->mapped = false;
		f.type = FRAME_MAPPED;
		f.tag = c->outbox.reason;
	} else if (o->look && !o->released) {
		o->look = false;
		f.type = FRAME_LOOK;
	} else if (c->inbox.map) {
		f.flags = FRAME_WHOLE;
	}
	send_stamp(c, &f);
	memcpy(to, &f, sizeof(f));
	return FRAME_BYTES + f.len;
}

uint32_t message_token(vd_conn *c)
{
	struct inbox *i = &c->inbox;

	if (has_reached(released_to(i), i->awaited))
		i->is_awaited = false;
	i->untold = 0;
	c->owed.released = false;
	return released_to(i);
}

void message_stamp(vd_conn *c, struct frame *f)
{
	f->token = message_token(c);
}

static bool is_there(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->inbox.count > 0;
}

NATIVE int vd_peek(vd_conn *c, const void **message, size_t *len, int timeout_ms)
{
	struct inbox *i = &c->inbox;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	if (i->is_busy) {
		pthread_mutex_unlock(&c->mu);
		return -EBUSY;
	}
	conn_stay(c);
	i->is_busy = true;
	if (i->count == 0)
		board_glance(c, is_there, timeout_ms);
	/* A loop that asks only when vd_fd says so leaves the reading to the service. */
	if (i->count == 0 && timeout_ms == 0 && c->event_fd >= 0 && !c->error)
		r = -ETIMEDOUT;
	else
		r = until_is(c, is_there, NULL, until(timeout_ms));
	i->is_busy = i->is_held = r == 0;
	if (r == 0) {
		const struct message *m = &i->queue[i->first];

		event_drop_message(c, i->count);
		*message = place_of(m->is_mapped ? i->map : i->mirror, m->at);
		*len = m->len;
	}
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	return r;
}

NATIVE int vd_release(vd_conn *c)
{
	struct inbox *i = &c->inbox;
	const struct message *m;
	bool is_due;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	if (!i->is_held) {
		pthread_mutex_unlock(&c->mu);
		return -EINVAL;
	}
	m = &i->queue[i->first];
	store_relaxed(&i->released, m->at + granules(m->len));
	i->untold += granules(m->len);
	i->first = (i->first + 1) % MESSAGES_MOST;
	i->count--;
	i->is_busy = i->is_held = false;
	board_release(c);
	c->owed.released |= ought_to_hear(c);
	is_due = c->owed.released;
	if (is_due)
		conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	if (is_due) {
		send_owed(c);
		conn_leave(c);
	}
	return 0;
}
