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
 * A put that a device writes stands in the queue, too, as a *far* one (reach_lend). Any number of far ones in a row are at
 * the device at once, up to what it takes; it keeps their order. One is begun only while the bytes of none before it have to
 * go by frames: wr is held from that look until it stands in the queue. Nor while one is under way that has bytes of the
 * same place of the export: were both there and nobody knew it, then what is sent again of the first would be older
 * than what is there. What comes behind a far one waits in the queue until that is there, and so does every caller's
 * frame: so puts, gets, messages, events and flushes keep their places by what the queue does anyway. A caller gives
 * wr up while it waits for the device, but not its turn: no other caller sends meanwhile, nor begins a far one. When
 * the first one is far nothing can be sent of the queue, and send_is_due does not count it; what else is owed goes
 * on. BYE is not owed then: it waits for `users` (below).
 *
 * lend_look asks the device about the first one, under mu alone, in any thread. When it is there, it goes, or becomes a
 * PLACED, which is sent in its turn. When nobody knows what has become of it, it becomes a PUT, which is sent in its turn and
 * voids the key (reach.c, rule 4); those behind it are then lost, too, and follow one by one. The device
 * has nothing to do with the source then, in both cases. Until then the far one counts as a user of the peer's export
 * (`users`): UNMAPPED and BYE wait for it. When the connection ends the device is made to give it up before the source
 * is given back.
 *
 * Who looks: whoever waits for the connection (until_is, vd_wait_any), and sleeps on the device's descriptor meanwhile, not
 * in the stream; so does a caller that waits to send. And the service thread, each tick, while there is a far one. A reader that
 * sleeps when the first far one is begun is waked by the peer's FLUSHED, which is sooner than a tick, and looks from then on.
 *
 * An event is pushed for each, once. Where a thread sleeps for it as the reader, the peer is asked for a
 * FLUSHED, which wakes that thread: so a peer that is stopped may delay the event. So many may be under
 * way, or not taken by the program, that the ring of events has room.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "native/lend.h"
#include "native/native.h"
#include "native/reach.h"

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
	l->is_by_frames = f->type == FRAME_PUT;
	q->by_frames += l->is_by_frames;
	store_relaxed(&q->count, count + 1);
	return 0;
}

/* Under mu: the first has gone. */
static void retire(vd_conn *c, int result)
{
	struct lent_queue *q = &c->lend;
	const struct lent l = *first(q);

	q->gone++;
	q->by_frames -= l.is_by_frames;
	store_relaxed(&q->count, load_relaxed(&q->count) - 1);
	done(c, &l.frame, l.len, result);
}

/* ---- those that a device is at ---- */

static bool is_over(const struct lent *l, const struct frame *f, uint64_t len)
{
	return l->move && l->frame.id == f->id && l->frame.offset < f->offset + len &&
	       f->offset < l->frame.offset + l->len;
}

uint32_t lend_may_stay(const vd_conn *c, const struct frame *f, uint64_t len)
{
	const struct lent_queue *q = &c->lend;
	uint32_t count = load_relaxed(&q->count), n = 0;

	if (q->by_frames > 0)
		return 0;
	while (n < count && n < DOOR_MOVES_MOST - 1 &&
	       !is_over(&q->items[(q->gone + count - 1 - n) % VD_LENT_MOST], f, len))
		n++;
	return n;
}

void lend_to_device(vd_conn *c, const struct frame *f, const void *src, uint64_t len,
		    uint64_t move, uint32_t key_number)
{
	struct lent_queue *q = &c->lend;
	uint32_t count = load_relaxed(&q->count);

	q->items[(q->gone + count) % VD_LENT_MOST] =
		(struct lent){.frame = *f,
			      .src = src,
			      .len = len,
			      .move = move,
			      .key_number = key_number};
	store_relaxed(&q->count, count + 1);
	/* Else somebody looks at the device already, or has been asked to. */
	if (q->far++ > 0)
		return;
	if (c->is_deaf)
		c->owed.ping = true;
	service_looks();
}

/* Under mu: the device has done with the first one. Its event may still have to be sent; or all of it, by frames. */
static void landed(vd_conn *c, bool is_there)
{
	struct lent *l = first(&c->lend);

	l->move = 0;
	c->lend.far--;
	l->frame.token = reach_done(c, l->frame.id, l->key_number, is_there);
	if (!is_there) {
		l->is_by_frames = true;
		c->lend.by_frames++;
	} else if (l->frame.flags & FRAME_NOTE) {
		l->frame.type = FRAME_PLACED;
		l->frame.flags = 0;
		l->frame.len = sizeof(l->len);
	} else {
		retire(c, 0);
	}
	/* Whoever waits to send may. */
	conn_changed(c);
}

void lend_look_far(vd_conn *c)
{
	int r = 1;

	while (r != 0 && lend_is_far(c)) {
		r = door->look_at_move(c->fd, first(&c->lend)->move, false);
		if (r != 0)
			landed(c, r == 1);
	}
}

/* From now on no device reads there: a source is not given back before. What has arrived was sent. */
static bool end_far(vd_conn *c)
{
	uint32_t gone = c->lend.gone;

	landed(c, door->look_at_move(c->fd, first(&c->lend)->move, true) == 1);
	return c->lend.gone != gone;
}

void lend_give_back(vd_conn *c)
{
	while (!c->is_lending && load_relaxed(&c->lend.count) > 0)
		if (!lend_is_far(c) || !end_far(c))
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
	if (l->sent > 0)
		f.token = 0;
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
