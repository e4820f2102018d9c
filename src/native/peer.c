/* SPDX-License-Identifier: Apache-2.0 */
/* What the peer says in frames without bulk: each is checked, and noted for those who wait. */
#include <string.h>

#include "base/reason.h"
#include "native/body.h"
#include "native/message.h"
#include "native/native.h"
#include "native/reach.h"

int peer_took(vd_conn *c, uint32_t taken)
{
	if (taken - c->notes_spent > c->notes_sent - c->notes_spent)
		return -EPROTO;
	c->notes_spent = taken;
	conn_changed(c);
	return 0;
}

static int hello(vd_conn *c, const struct frame *f)
{
	c->greeted = true;
	return f->offset == FRAME_MAGIC && f->id == FRAME_PROTOCOL && f->len == 0
		       ? 0
		       : -EPROTO;
}

static int export(vd_conn *c, const struct frame *f, const uint8_t *name)
{
	struct peer_export *p = &c->peer_exports[f->id & FRAME_ID_PLACE];

	if (p->alive || p->is_lent || p->owes_return || (f->flags & ~FRAME_WHOLE) ||
	    f->id >> FRAME_ID_SHIFT <= p->id >> FRAME_ID_SHIFT || f->offset == 0 ||
	    f->token > 7 || f->tag == 0 || (f->tag & ~(VD_READ | VD_WRITE)) ||
	    f->len == 0 || f->len > VD_NAME_MAX || memchr(name, 0, f->len))
		return -EPROTO;
	p->id = f->id;
	p->rights = f->tag;
	p->len = f->offset;
	p->skew = f->token;
	p->key_number = 0;
	p->reach_at = 0;
	memcpy(p->name, name, f->len);
	p->name[f->len] = '\0';
	p->alive = true;
	p->is_whole = f->flags & FRAME_WHOLE;
	p->reason = p->is_whole ? VD_REASON_NONE : VD_REASON_PRIVATE;
	conn_changed(c);
	return 0;
}

static int unexport(vd_conn *c, const struct frame *f)
{
	struct peer_export *p = &c->peer_exports[f->id & FRAME_ID_PLACE];

	if (!p->alive || p->id != f->id || f->len)
		return -EPROTO;
	p->alive = false;
	map_ended(c, p);
	conn_changed(c);
	return 0;
}

/* ---- memory that both ends map ---- */

static int map(vd_conn *c, const struct frame *f, const uint8_t *random)
{
	bool known;
	struct vd_region *x = export_find(c, f->id, &known);

	if (!known || f->len != FRAME_NAME_BYTES || c->owed.mapped_id ||
	    (x && (!x->memory || x->is_lent)))
		return -EPROTO;
	c->owed.mapped_reason = x ? map_lend(c, x, random) : VD_REASON_ENDED;
	c->owed.mapped_id = f->id;
	return 0;
}

static int mapped(vd_conn *c, const struct frame *f)
{
	struct peer_export *p = &c->peer_exports[f->id & FRAME_ID_PLACE];

	if (c->map_id == 0 || f->id != c->map_id || f->len)
		return -EPROTO;
	c->map_id = 0;
	c->map_reason = f->tag;
	if (f->tag == VD_REASON_NONE) {
		p->is_lent = true;
		if (!p->alive)
			map_ended(c, p);
	}
	conn_changed(c);
	return 0;
}

static int unmapped(vd_conn *c, const struct frame *f)
{
	uint32_t place = f->id & FRAME_ID_PLACE;
	struct vd_region *x = c->lent[place];
	bool known;

	export_find(c, f->id, &known);
	if (!known || !c->is_held[place] || f->len ||
	    c->uses[place] != f->id >> FRAME_ID_SHIFT || c->exports[place])
		return -EPROTO;
	c->is_held[place] = false;
	if (x)
		x->is_returned = true;
	conn_changed(c);
	return 0;
}

int peer_placed(vd_conn *c, uint32_t id, uint32_t tag, uint64_t offset, uint64_t len)
{
	bool known;
	struct vd_region *x = export_find(c, id, &known);

	if (!known)
		return -EPROTO;
	if (x && ((!x->is_lent && !x->was_reached) || !(x->rights & VD_WRITE) ||
		  !export_covers(x, offset, len)))
		return -EPROTO;
	return event_note(c, x, tag, offset, len);
}

static int placed(vd_conn *c, const struct frame *f, const uint8_t *payload)
{
	uint64_t len;

	if (f->len != sizeof(len))
		return -EPROTO;
	memcpy(&len, payload, sizeof(len));
	return peer_placed(c, f->id, f->tag, f->offset, len);
}

static int reach(vd_conn *c, const struct frame *f)
{
	bool known;
	struct vd_region *x = export_find(c, f->id, &known);

	if (!known || f->len || c->owed.key_id)
		return -EPROTO;
	reach_open(c, x, f->id);
	return 0;
}

static int flush(vd_conn *c, const struct frame *f)
{
	if (f->token != c->owed.flush_seq + 1 || f->len)
		return -EPROTO;
	c->owed.flush_seq = f->token;
	c->owed.flush = true;
	return 0;
}

static int flushed(vd_conn *c, const struct frame *f)
{
	if (f->token - c->flush_done > c->flush_sent - c->flush_done || f->len)
		return -EPROTO;
	c->flush_done = f->token;
	conn_changed(c);
	return 0;
}

/* How many bytes of the export a get or an atomic concerns, and with how many operands. */
static uint32_t concerns(const struct frame *f, uint32_t *operands)
{
	*operands = f->type == FRAME_GET ? 0 : f->type == FRAME_ADD ? 8 : 16;
	return f->type == FRAME_GET ? f->tag : 8;
}

static int want(vd_conn *c, const struct frame *f, const uint8_t *operand)
{
	uint32_t rights = f->type == FRAME_GET ? VD_READ : VD_READ | VD_WRITE, operands,
		 bytes = concerns(f, &operands);
	struct owed *o = &c->owed;
	struct vd_region *x;
	struct wanted *w;
	bool known;

	x = export_find(c, f->id, &known);
	if (!known || o->wanted_count == FRAME_ASKED_MOST || f->len != operands ||
	    bytes == 0 || bytes > FRAME_GET_MOST)
		return -EPROTO;
	if (x && ((x->rights & rights) != rights || !export_covers(x, f->offset, bytes) ||
		  (operands && (uintptr_t)(x->addr + f->offset) % 8)))
		return -EPROTO;
	w = &o->wanted[(o->wanted_first + o->wanted_count++) % FRAME_ASKED_MOST];
	w->frame = *f;
	memcpy(w->operand, operand, operands);
	return 0;
}

/* Under mu. */
static int carry_out(vd_conn *c, const struct frame *f, const uint8_t *payload)
{
	switch (f->type) {
	case FRAME_HELLO:
		return hello(c, f);
	case FRAME_EXPORT:
		return export(c, f, payload);
	case FRAME_UNEXPORT:
		return unexport(c, f);
	case FRAME_MAP:
		return f->id ? map(c, f, payload) : message_frame(c, f, payload);
	case FRAME_MAPPED:
		return f->id ? mapped(c, f) : message_frame(c, f, payload);
	case FRAME_UNMAPPED:
		return unmapped(c, f);
	case FRAME_PLACED:
		return placed(c, f, payload);
	case FRAME_REACH:
		return reach(c, f);
	case FRAME_KEY:
		return reach_key(c, f, payload);
	case FRAME_FLUSH:
		return flush(c, f);
	case FRAME_FLUSHED:
		return flushed(c, f);
	case FRAME_GET:
	case FRAME_ADD:
	case FRAME_SWAP:
		return want(c, f, payload);
	case FRAME_RELEASED:
	case FRAME_WAITS:
	case FRAME_OFFER:
	case FRAME_LOOK:
		return message_frame(c, f, payload);
	case FRAME_BYE:
		c->peer_returned = true;
		return -EPIPE;
	case FRAME_WRONG:
		return -ECONNABORTED;
	default:
		return 0; /* TAKEN */
	}
}

int peer_frame(vd_conn *c, const struct frame *f, const uint8_t *payload)
{
	int r = peer_taken(c, f);

	return r < 0 ? r : carry_out(c, f, payload);
}
