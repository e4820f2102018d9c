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
 *
 * On one host, between processes of one user, the mirror is not used: the receiver maps the arena. As
 * soon as the sender sees such a path it takes an arena of memory that can be lent, and says OFFER. The
 * descriptor is brought as that of an export (map.c), for reading only: MAP, MAPPED. The receiver has it
 * mapped, and says so in RELEASED; what is committed from then on has no payload. Its bytes are written
 * before the frame is sent, and read after that has come. If a step fails the mirror is used on.
 * The receiver unmaps it in vd_close, whatever has become of the peer.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/reason.h"
#include "native/native.h"

#define ROUND (FRAME_ARENA / FRAME_GRANULE)

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

/* Takes no memory before it is written to. NULL: there is none. */
static uint8_t *arena_create(void)
{
	void *at = mmap(NULL, FRAME_ARENA, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void arena_destroy(uint8_t *arena)
{
	if (arena)
		munmap(arena, FRAME_ARENA);
}

void message_init(vd_conn *c)
{
	c->inbox.listener = -1;
}

void message_finish(vd_conn *c)
{
	memory_unuse(c->outbox.memory);
	if (c->outbox.memory)
		vd_free(c->outbox.arena);
	else
		arena_destroy(c->outbox.arena);
	arena_destroy(c->inbox.mirror);
	arena_destroy(c->inbox.map);
	if (c->inbox.listener >= 0)
		door->close(c->inbox.listener);
	free(c->inbox.queue);
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

/* Under mu, which it gives up meanwhile. The peer has what was sent before in its mirror. */
static int offer(vd_conn *c)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = FRAME_OFFER};
	uint32_t reason;
	void *at;
	int r = 0;

	if (o->is_offered || door->path(c->fd, &reason) != DOOR_SHM ||
	    !door->is_own(c->fd))
		return 0;
	o->is_offered = true;
	pthread_mutex_unlock(&c->mu);
	if (vd_alloc(FRAME_ARENA, &at) == 0) {
		pthread_mutex_lock(&c->mu);
		arena_destroy(o->arena);
		o->arena = at;
		o->memory = memory_use(at, FRAME_ARENA);
		pthread_mutex_unlock(&c->mu);
		r = send_frame(c, &f, NULL);
	}
	pthread_mutex_lock(&c->mu);
	return r;
}

/* Under mu, which it gives up meanwhile: n granules for the only caller. */
static int find_room(vd_conn *c, uint32_t n)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = FRAME_WAITS};
	int r = offer(c);

	if (r < 0)
		return r;
	if (!o->arena)
		o->arena = arena_create();
	if (!o->arena)
		return -ENOMEM;
	if (!has_room(c, &n)) {
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
		*memory = place_of(o->arena, o->at);
	}
	pthread_mutex_unlock(&c->mu);
	return r;
}

/* Under mu: the reservation becomes a message of so many bytes, with the peer from now on. */
static struct frame leave(struct outbox *o, uint32_t len)
{
	struct frame f = {.type = FRAME_MESSAGE,
			  .flags = o->is_mapped ? FRAME_WHOLE : 0,
			  .id = o->at,
			  .tag = len,
			  .len = o->is_mapped ? 0 : len};

	o->head = o->at + granules(len);
	return f;
}

NATIVE int vd_commit(vd_conn *c, size_t len)
{
	struct outbox *o = &c->outbox;
	struct frame f = {.type = 0};
	bool is_done, is_due;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	if (!o->is_reserved || len > o->room) {
		pthread_mutex_unlock(&c->mu);
		return -EINVAL;
	}
	o->is_reserved = false;
	r = c->error;
	is_done = r < 0 || len == 0;
	if (!is_done) {
		f = leave(o, (uint32_t)len);
		is_done = f.len <= SEND_AT_ONCE &&
			  send_at_once(c, &f, place_of(o->arena, o->at));
	}
	o->is_busy = !is_done;
	is_due = send_is_due(c);
	pthread_mutex_unlock(&c->mu);
	if (is_done) {
		if (is_due)
			send_owed(c);
		return r;
	}
	r = send_frame(c, &f, place_of(o->arena, o->at));
	pthread_mutex_lock(&c->mu);
	o->is_busy = false;
	pthread_mutex_unlock(&c->mu);
	return r;
}

int message_released(vd_conn *c, uint32_t token)
{
	struct outbox *o = &c->outbox;

	if (token - o->seen > o->head - o->seen)
		return -EPROTO;
	o->seen = token;
	if (token != o->freed && has_reached(token, o->freed)) {
		o->freed = token;
		conn_changed(c);
	}
	return 0;
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

int message_begin(vd_conn *c, const struct frame *f)
{
	struct inbox *i = &c->inbox;
	bool is_mapped = f->flags & FRAME_WHOLE;
	uint32_t n, oldest;

	if ((f->flags & ~FRAME_WHOLE) || f->tag == 0 || f->tag > FRAME_ARENA ||
	    (is_mapped && !i->map) || f->len != (is_mapped ? 0 : f->tag))
		return -EPROTO;
	n = granules(f->tag);
	oldest = i->count ? i->queue[i->first].at : f->id;
	if (f->id - i->come >= ROUND || f->id % ROUND + n > ROUND ||
	    f->id + n - oldest > ROUND || message_released(c, f->token) < 0)
		return -EPROTO;
	return make_room(i, is_mapped);
}

uint8_t *message_target(vd_conn *c)
{
	return place_of(c->inbox.mirror, c->frame.id);
}

void message_end(vd_conn *c)
{
	struct inbox *i = &c->inbox;
	const struct frame *f = &c->frame;

	i->queue[(i->first + i->count++) % MESSAGES_MOST] =
		(struct message){f->id, f->tag, f->flags & FRAME_WHOLE};
	i->come = f->id + granules(f->tag);
	event_message(c, f->tag);
}

/* Under mu: the sender has to hear of it. */
static bool ought_to_hear(const struct inbox *i)
{
	return i->untold >= ROUND / 2 ||
	       (i->is_awaited && has_reached(i->released, i->awaited));
}

/* The peer's memory can be had. */
static int offered(vd_conn *c)
{
	struct inbox *i = &c->inbox;
	uint32_t reason;

	if (i->is_offered)
		return -EPROTO;
	i->is_offered = true;
	if (door->path(c->fd, &reason) == DOOR_SHM && door->is_own(c->fd))
		i->listener = map_listen(i->name);
	c->owed.map = i->listener >= 0;
	return 0;
}

static int mapped(vd_conn *c, const struct frame *f)
{
	struct inbox *i = &c->inbox;

	if (i->listener < 0 || c->owed.map)
		return -EPROTO;
	if (f->tag == VD_REASON_NONE)
		i->map = map_take(i->listener, FRAME_ARENA, VD_READ);
	door->close(i->listener);
	i->listener = -1;
	c->owed.released |= i->map != NULL;
	return 0;
}

/* The peer awaits our memory. */
static int map(vd_conn *c, const uint8_t *random)
{
	struct outbox *o = &c->outbox;

	if (!o->memory || o->is_brought)
		return -EPROTO;
	o->is_brought = true;
	o->reason = map_bring(c, o->memory, false, random);
	c->owed.mapped = true;
	return 0;
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
		return offered(c);
	case FRAME_MAP:
		return map(c, payload);
	case FRAME_MAPPED:
		return mapped(c, f);
	case FRAME_RELEASED:
		return released(c, f);
	default:
		i->is_awaited = true;
		i->awaited = f->id;
		c->owed.released |= ought_to_hear(i);
		return 0;
	}
}

uint32_t message_owed(vd_conn *c, uint8_t *to)
{
	struct owed *o = &c->owed;
	struct frame f = {.type = FRAME_RELEASED};

	if (o->map) {
		o->map = false;
		f.type = FRAME_MAP;
		f.len = FRAME_NAME_BYTES;
		memcpy(to + FRAME_BYTES, c->inbox.name, f.len);
	} else if (o->mapped) {
		o->mapped = false;
		f.type = FRAME_MAPPED;
		f.tag = c->outbox.reason;
	} else if (c->inbox.map) {
		f.flags = FRAME_WHOLE;
	}
	send_stamp(c, &f);
	memcpy(to, &f, sizeof(f));
	return FRAME_BYTES + f.len;
}

void message_stamp(vd_conn *c, struct frame *f)
{
	struct inbox *i = &c->inbox;

	f->token = i->released;
	if (has_reached(i->released, i->awaited))
		i->is_awaited = false;
	i->untold = 0;
	c->owed.released = false;
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
	i->is_busy = true;
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
	i->released = m->at + granules(m->len);
	i->untold += granules(m->len);
	i->first = (i->first + 1) % MESSAGES_MOST;
	i->count--;
	i->is_busy = i->is_held = false;
	c->owed.released |= ought_to_hear(i);
	is_due = c->owed.released;
	pthread_mutex_unlock(&c->mu);
	if (is_due)
		send_owed(c);
	return 0;
}
