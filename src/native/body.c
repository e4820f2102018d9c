/* SPDX-License-Identifier: Apache-2.0 */
/* Frames with bulk: puts, messages, and answers to gets. Their bytes go straight to their place. */
#include <string.h>

#include "base/copy.h"
#include "native/body.h"
#include "native/message.h"
#include "native/native.h"
#include "native/reach.h"

/* Where in the body we are. */
static uint32_t done(const vd_conn *c)
{
	return c->frame.len - c->body_left;
}

/* Under mu: NULL when nobody waits for it any more, as after the end of the connection. */
static struct asked *asked_for(vd_conn *c)
{
	struct asked *a = &c->asked[c->frame.token % FRAME_ASKED_MOST];

	return a->used && !a->done && a->token == c->frame.token ? a : NULL;
}

/*
 * Under mu: whose memory the next bytes of the body are for, where they go, and how many of them go
 * there in one piece. NULL when that has ended.
 */
static const void *owner(vd_conn *c, struct body_place *p)
{
	const struct frame *f = &c->frame;
	struct vd_region *x;
	bool known;

	*p = (struct body_place){.at = f->offset + done(c), .room = c->body_left};
	if (f->type == FRAME_ANSWER) {
		struct asked *a = asked_for(c);

		if (a)
			p->to = a->to + done(c);
		return a;
	}
	if (f->type == FRAME_MESSAGE) {
		p->to = message_target(c) + done(c);
		return c->inbox.mirror;
	}
	x = export_find(c, f->id, &known);
	if (x) {
		p->to = x->addr + p->at;
		p->detour = detour_place(x, p->at, &p->to, &p->room);
	}
	return x;
}

/* *out becomes the export, or NULL where it has ended. */
static int begin_put(vd_conn *c, const struct frame *f, struct vd_region **out)
{
	bool known;
	struct vd_region *x = export_find(c, f->id, &known);

	*out = x;
	if (!known || (f->flags & ~(FRAME_NOTE | FRAME_MORE)) ||
	    f->flags == (FRAME_NOTE | FRAME_MORE))
		return -EPROTO;
	/* The end of one that has ended is not known any more. */
	if (f->offset + f->len < f->offset)
		return -EPROTO;
	if (x && (!(x->rights & VD_WRITE) || !export_covers(x, f->offset, f->len)))
		return -EPROTO;
	if (c->in_put && (f->id != c->put_id || f->offset != c->put_next))
		return -EPROTO;
	/* Before its bytes, and so before all that is to come. */
	if (x && f->token)
		reach_void(x, f->token);
	if (!c->in_put)
		c->put_from = f->offset;
	c->put_id = f->id;
	c->put_next = f->offset + f->len;
	return 0;
}

static int begin_answer(vd_conn *c)
{
	const struct frame *f = &c->frame;
	struct asked *a = asked_for(c);

	if (!a || (f->flags & ~FRAME_STALE))
		return -EPROTO;
	return f->len == (f->flags & FRAME_STALE ? 0 : a->len) ? 0 : -EPROTO;
}

int body_begin(vd_conn *c)
{
	int r = peer_taken(c, &c->frame);
	struct vd_region *x;

	if (r < 0)
		return r;
	switch (c->frame.type) {
	case FRAME_PUT:
		return begin_put(c, &c->frame, &x);
	case FRAME_MESSAGE:
		return message_begin(c, &c->frame);
	default:
		return begin_answer(c);
	}
}

uint32_t body_land(vd_conn *c, const uint8_t *from, uint32_t len)
{
	const void *to_whom;
	struct body_place p;

	to_whom = owner(c, &p);
	len = len < p.room ? len : (uint32_t)p.room;
	if (to_whom && len > BODY_SHORT) {
		c->landing = to_whom;
		c->place = p;
		pthread_mutex_unlock(&c->mu);
		copy_bytes(p.to, from, len);
		pthread_mutex_lock(&c->mu);
		body_landed(c, len);
		return len;
	}
	if (to_whom)
		copy_bytes(p.to, from, len);
	if (to_whom && p.detour)
		detour_landed(p.detour, p.at, len);
	return len;
}

uint8_t *body_target(vd_conn *c, uint32_t *room)
{
	c->landing = owner(c, &c->place);
	*room = (uint32_t)c->place.room;
	return c->place.to;
}

void body_landed(vd_conn *c, uint32_t len)
{
	if (c->place.detour)
		detour_landed(c->place.detour, c->place.at, len);
	c->landing = NULL;
	conn_changed(c);
}

/* Under mu. */
static void answered(vd_conn *c)
{
	struct asked *a = asked_for(c);

	if (!a)
		return;
	a->done = true;
	a->result = c->frame.flags & FRAME_STALE ? -ESTALE : 0;
	conn_changed(c);
}

static int end_put(vd_conn *c, const struct frame *f, struct vd_region *x)
{
	c->in_put = f->flags & FRAME_MORE;
	return f->flags & FRAME_NOTE
		       ? event_note(c, x, f->tag, c->put_from, c->put_next - c->put_from)
		       : 0;
}

static void land_short(struct vd_region *x, uint64_t at, const uint8_t *from,
		       uint64_t len)
{
	while (len > 0) {
		uint8_t *to = x->addr + at;
		uint64_t room = len;
		struct vd_detour *d = detour_place(x, at, &to, &room);

		copy_bytes(to, from, room);
		if (d)
			detour_landed(d, at, room);
		at += room;
		from += room;
		len -= room;
	}
}

int body_short(vd_conn *c, const struct frame *f, const uint8_t *from)
{
	int r = peer_taken(c, f);
	struct vd_region *x;

	if (r == 0)
		r = begin_put(c, f, &x);
	if (r < 0)
		return r;
	if (x)
		land_short(x, f->offset, from, f->len);
	r = end_put(c, f, x);
	c->frames_come++;
	return r;
}

int body_end(vd_conn *c)
{
	const struct frame *f = &c->frame;
	bool known;
	int r = 0;

	if (f->type == FRAME_PUT) {
		r = end_put(c, f, export_find(c, f->id, &known));
	} else if (f->type == FRAME_MESSAGE) {
		message_end(c);
	} else {
		answered(c);
	}
	c->frames_come++;
	return r;
}
