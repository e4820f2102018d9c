/* SPDX-License-Identifier: Apache-2.0 */
/* Puts whose source is lent: they are queued, and sent as the stream has room, without a thread that waits. */
/*
 * The queue goes out in its order, before every frame that a caller sends later: send_begin sees to that. It does
 * not wait for what others lend meanwhile. What the protocol owes may go between two frames of a put, but UNEXPORT, which comes before all. While there is a
 * queue nothing is told on the board, which might be ahead of it.
 *
 * Whoever has `wr` sends; one frame at a time, whose header is in `rest`, and whose payload is in the program's
 * memory (`piece`). `is_lending` says that a thread is in a send just now, which may read there. When the
 * connection ends the rest of the queue is given back with its error, as soon as no thread is. VD_EVENT_END
 * comes after that.
 *
 * An event is pushed for each, once. Where a thread sleeps for it as the reader, the peer is asked for a
 * FLUSHED, which wakes that thread: so a peer that is stopped may delay the event. So many may be under
 * way, or not taken by the program, that the ring of events has room.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "native/native.h"

int lend_begin(vd_conn *c)
{
	struct lent_queue *q = &c->lend;

	if (q->untaken == VD_LENT_MOST)
		return -EAGAIN;
	/* Before it costs anything that would have to be given back. */
	if (!q->items)
		q->items = malloc(VD_LENT_MOST * sizeof(*q->items));
	if (!q->items)
		return -ENOMEM;
	q->untaken++;
	return 0;
}

void lend_cancel(vd_conn *c)
{
	c->lend.untaken--;
}

static void done(vd_conn *c, const struct frame *f, uint64_t len, int result)
{
	const struct vd_event ev = {.kind = VD_EVENT_DONE,
				    .tag = f->tag,
				    .offset = f->offset,
				    .len = len,
				    .result = result};

	event_push(c, &ev);
	/* Whoever sleeps as the reader is waked by the peer alone: by its answer. */
	if (c->is_deaf && c->event_waits > 0 && !c->error)
		c->owed.ping = true;
}

void lend_done(vd_conn *c, const struct frame *f, uint64_t len)
{
	done(c, f, len, 0);
}

static struct lent *first(struct lent_queue *q)
{
	/* That number goes round in whole rings. */
	static_assert((UINT32_MAX + 1ull) % VD_LENT_MOST == 0, "places of lent puts");
	return &q->items[q->gone % VD_LENT_MOST];
}

int lend_queue(vd_conn *c, const struct frame *f, const void *src, uint64_t len)
{
	struct lent_queue *q = &c->lend;
	uint32_t count = load_relaxed(&q->count);
	struct lent *l;

	if (c->error)
		return c->error;
	l = &q->items[(q->gone + count) % VD_LENT_MOST];
	*l = (struct lent){.frame = *f, .src = src, .len = len};
	store_relaxed(&q->count, count + 1);
	return 0;
}

/* Under mu: the first has gone. */
static void retire(vd_conn *c, int result)
{
	struct lent_queue *q = &c->lend;
	const struct lent l = *first(q);

	q->gone++;
	store_relaxed(&q->count, load_relaxed(&q->count) - 1);
	done(c, &l.frame, l.len, result);
}

void lend_give_back(vd_conn *c)
{
	while (!c->is_lending && load_relaxed(&c->lend.count) > 0)
		retire(c, c->error);
}

/* How many bytes of it the next frame has. */
static uint32_t piece_of(const struct lent *l)
{
	uint64_t left = l->len - l->sent;

	return left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
}

struct frame lend_next(vd_conn *c, struct iovec *piece)
{
	struct lent *l = first(&c->lend);
	struct frame f = l->frame;

	if (f.type != FRAME_PUT) {
		*piece = (struct iovec){&l->len, f.len};
		return f;
	}
	f.offset += l->sent;
	f.len = piece_of(l);
	if (l->sent + f.len < l->len) {
		f.flags = FRAME_MORE;
		f.tag = 0;
	}
	*piece = (struct iovec){(uint8_t *)(uintptr_t)l->src + l->sent, f.len};
	return f;
}

void lend_sent(vd_conn *c)
{
	struct lent *l = first(&c->lend);

	l->sent += l->frame.type == FRAME_PUT ? piece_of(l) : l->len;
	if (l->sent == l->len)
		retire(c, 0);
}
