/* SPDX-License-Identifier: Apache-2.0 */
/* Puts between hosts that a device writes to the export's memory, past the stream; and gets. */
/*
 * Both ends: remote/reach.c says how bytes get there, and what can become of a put. Here:
 *
 * 1. The importer asks for an export's key (REACH) when it has a put or a get that is long enough, and goes on
 *    by frames until KEY has come. It has one question under way at a time, and none for an export whose key
 *    it has.
 * 2. The exporter's reader registers the memory and gives the key a number. It gives none while a
 *    redirection stands, and a redirection that begins while there is a key redirects nothing: what
 *    the device writes is seen by nobody. Memory of vd_alloc is claimed as if it were lent to a peer of
 *    the export's rights, so that it is never exchanged for a copy. With the key the device may do what the
 *    export's rights say.
 * 3. A put by the device holds wr, as one by frames does. Puts to that export that went by frames before it
 *    have landed then: else they are flushed first. It has landed itself when it returns, so what
 *    follows comes behind it. Its event is a PLACED. One whose source is lent returns when it is begun (lend.c): what
 *    follows waits in the queue until it has landed, but for others like it, whose order the device keeps.
 * 4. Where nobody knows what has become of it, the importer forgets the key and sends the bytes by frames, still
 *    under wr. The first of these names the number: the exporter voids that key before the bytes
 *    land, so nothing late lands on them or on what follows.
 * 5. The exporter voids a key by itself, without a word, when the connection ends, before its program hears
 *    of that; and the engine does so at a fork, and at a link's end. A put finds that out as in 4.
 * 6. After UNEXPORT the importer begins nothing by the key, and says UNMAPPED when its device has nothing under
 *    way for it: once for each export of which it was told a key. The exporter says of no key after UNEXPORT.
 *    vd_unexport waits for that, a bounded time, and voids the key in any case: so a device is caught in a
 *    put by a peer alone that is stopped, or lies. Until UNMAPPED has come the export's place is not used again.
 *
 * A get by the device takes turns with puts (wr). All puts of the connection, to whatever export, that went by
 * frames before the call have landed: else they are flushed first. Where it fails nothing comes late, so the
 * importer forgets the key, and asks for the bytes by frames: there it hears whether the export has ended.
 *
 * A peer that lies about a key can have its own put fail. A REACH while a key is in use replaces that. To register
 * memory takes long, and keeps every connection of the process waiting. So an export has a key made no more often
 * than twice as often as an importer asks; whoever asks sooner gets none, and the key that it has stays.
 */
#include <string.h>

#include "base/reason.h"
#include "native/lend.h"
#include "native/native.h"
#include "native/reach.h"

/* Pinned for one export, at most; registering takes about a tenth of a second then. */
#define REACH_MOST ((size_t)1 << 30)
int reach_again_ms = 1000;
/* Of one turn of a get. */
#define GET_MOST ((size_t)8 << 20)

/* ---- the exporter ---- */

void reach_close(struct vd_region *x)
{
	if (!x->is_reached)
		return;
	door->unreach(x->reach);
	memory_unclaim(x->claimed, x->rights & VD_WRITE);
	x->claimed = NULL;
	x->reach = 0;
	x->is_reached = false;
}

void reach_close_all(vd_conn *c)
{
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++) {
		if (c->exports[i])
			reach_close(c->exports[i]);
		/* Withdrawn, and its key not yet given back. */
		if (c->lent[i])
			reach_close(c->lent[i]);
	}
}

bool reach_told(vd_conn *c, uint32_t id)
{
	bool known;
	struct vd_region *x = export_find(c, id, &known);

	if (!x)
		return false;
	x->is_keyed = true;
	c->lent[id & FRAME_ID_PLACE] = x;
	c->is_held[id & FRAME_ID_PLACE] = true;
	return true;
}

void reach_withdraw(vd_conn *c, struct vd_region *x)
{
	if (c->owed.key_id == x->id)
		c->owed.key_reason = VD_REASON_ENDED;
	/* Nobody has been told of it, or nobody answers. */
	if (!x->is_keyed || c->error)
		reach_close(x);
}

void reach_recall(vd_conn *c, struct vd_region *x)
{
	if (x->is_keyed && x->is_reached && !c->error && !c->peer_is_slow)
		c->peer_is_slow = map_await_return(c, x) == -ETIMEDOUT;
	reach_close(x);
	if (x->is_keyed && !x->is_lent && c->lent[x->id & FRAME_ID_PLACE] == x)
		c->lent[x->id & FRAME_ID_PLACE] = NULL;
	x->is_keyed = false;
}

void reach_void(struct vd_region *x, uint32_t number)
{
	if (x->key_number == number)
		reach_close(x);
}

/* Under mu, which it gives up: whoever ends the export waits. */
static int make(vd_conn *c, struct vd_region *x, struct door_key *key, uint64_t *id)
{
	int r;

	c->landing = x;
	pthread_mutex_unlock(&c->mu);
	r = door->reach(c->fd, x->addr, x->len, x->rights, key, id);
	pthread_mutex_lock(&c->mu);
	c->landing = NULL;
	conn_changed(c);
	if (r == 0 && c->error) {
		door->unreach(*id);
		r = -EPIPE;
	}
	return r;
}

/* An enum vd_reason. */
static uint32_t give(vd_conn *c, struct vd_region *x, struct frame_key *out)
{
	struct door_key key = {0};
	uint64_t id = 0;
	int r;

	if (until_left(x->key_at) > 0)
		return VD_REASON_FULL;
	reach_close(x);
	if (x->detours || x->len > REACH_MOST || x->is_lent ||
	    !memory_claim(x->addr, x->len, x->rights & VD_WRITE, &x->claimed))
		return VD_REASON_FULL;
	x->is_reached = true;
	x->key_at = until(reach_again_ms / 2);
	r = make(c, x, &key, &id);
	if (r < 0) {
		reach_close(x);
		return r == -EAGAIN ? VD_REASON_REMOTE_PEER : VD_REASON_MEMORY;
	}
	x->reach = id;
	x->was_reached = true;
	x->key_number++;
	*out = (struct frame_key){key.address, key.link, key.key, 0};
	return VD_REASON_NONE;
}

void reach_open(vd_conn *c, struct vd_region *x, uint32_t id)
{
	struct owed *o = &c->owed;

	o->key = (struct frame_key){0};
	o->key_reason = x && !c->error ? give(c, x, &o->key) : VD_REASON_ENDED;
	o->key_number = x ? x->key_number : 0;
	o->key_id = id;
}

/* ---- the importer ---- */

static struct peer_export *export_of(const vd_remote *r)
{
	struct peer_export *p = &r->c->peer_exports[r->id & FRAME_ID_PLACE];

	return p->alive && p->id == r->id ? p : NULL;
}

int reach_key(vd_conn *c, const struct frame *f, const uint8_t *payload)
{
	struct peer_export *p = &c->peer_exports[f->id & FRAME_ID_PLACE];
	struct frame_key k;

	if (c->reach_id == 0 || f->id != c->reach_id || f->len != sizeof(k) ||
	    (f->tag == VD_REASON_NONE && f->token == 0))
		return -EPROTO;
	c->reach_id = 0;
	if (!p->alive || p->id != f->id || f->tag != VD_REASON_NONE)
		return 0;
	memcpy(&k, payload, sizeof(k));
	p->is_lent = true;
	p->key = (struct door_key){k.address, k.link, k.key};
	p->key_number = f->token;
	p->reach_at = 0;
	return 0;
}

bool reach_is_long(const vd_remote *r, size_t len)
{
	uint32_t least = door->reach_least(r->c->fd);

	return least > 0 && len >= least;
}

/* Under mu: asks for it, which is owed then; or flushes, where not all puts up to *puts (NULL: to that export) have
 * landed. */
enum { PREPARED, ASKS, FLUSHES };
static int what_first(const vd_remote *r, const uint64_t *puts)
{
	struct peer_export *p = export_of(r);
	vd_conn *c = r->c;

	if (!p || c->error || until_left(p->reach_at) > 0)
		return PREPARED;
	if (p->key_number)
		return (puts ? *puts : p->put_at) > c->puts_flushed ? FLUSHES : PREPARED;
	if (c->reach_id)
		return PREPARED;
	p->reach_at = until(reach_again_ms);
	c->reach_id = c->owed.reach_id = r->id;
	return ASKS;
}

static void prepare(const vd_remote *r, const uint64_t *puts)
{
	int what;

	pthread_mutex_lock(&r->c->mu);
	what = what_first(r, puts);
	pthread_mutex_unlock(&r->c->mu);
	/* An error is the connection's, which the put or get finds, too. */
	if (what == ASKS)
		send_owed(r->c);
	else if (what == FLUSHES)
		flush_stream(r->c);
}

void reach_prepare(const vd_remote *r, size_t len)
{
	if (reach_is_long(r, len))
		prepare(r, NULL);
}

/* Under mu: it was not by the device. */
static void heed(struct peer_export *p, int result, uint32_t *voids)
{
	if (result == -EIO)
		*voids = p->key_number;
	if (result != -EAGAIN)
		p->key_number = 0;
	/* There may be no link beside yet. */
	p->reach_at = until(result == -EAGAIN ? reach_again_ms / 20 : reach_again_ms);
}

static struct door_span span_of(const void *at, size_t len)
{
	struct door_span s = {.at = (void *)(uintptr_t)at, .bytes = len};

	memory_around(at, len, &s.whole, &s.whole_bytes);
	return s;
}

/* Under mu. */
static void count_span(vd_conn *c, const struct door_span *s)
{
	count(c, NATIVE_HITS, s->hits);
	count(c, NATIVE_MISSES, s->misses);
	count(c, NATIVE_EVICTIONS, s->evictions);
	count(c, NATIVE_BROKEN, s->broken);
}

/* Under wr and mu: then map_release is to follow. NULL: it may not be now. */
static struct peer_export *begin(const vd_remote *r, const uint64_t *puts)
{
	struct peer_export *p = export_of(r);
	vd_conn *c = r->c;

	/* Another thread may have put by frames since it was flushed. */
	if (!p || c->error || c->is_closing || !p->key_number ||
	    (puts ? *puts : p->put_at) > c->puts_flushed || until_left(p->reach_at) > 0)
		return NULL;
	p->users++;
	return p;
}

/* Under wr. False: it is not there. *voids: the key that has to be void, so that nothing comes late. */
static bool move(const vd_remote *r, uint64_t offset, struct door_span *span,
		 const uint64_t *puts, uint32_t *voids)
{
	vd_conn *c = r->c;
	struct peer_export *p;
	struct door_key key;
	int result;

	pthread_mutex_lock(&c->mu);
	p = begin(r, puts);
	if (p)
		key = p->key;
	pthread_mutex_unlock(&c->mu);
	if (!p)
		return false;
	result = door->move(c->fd, &key, offset, span);
	pthread_mutex_lock(&c->mu);
	map_release(r);
	count_span(c, span);
	if (result != 0 && (p = export_of(r)))
		heed(p, result, voids);
	pthread_mutex_unlock(&c->mu);
	return result == 0;
}

bool reach_put(const vd_remote *r, uint64_t offset, const void *src, size_t len,
	       uint32_t *voids)
{
	struct door_span span;

	*voids = 0;
	if (!reach_is_long(r, len))
		return false;
	span = span_of(src, len);
	if (!move(r, offset, &span, NULL, voids))
		return false;
	pthread_mutex_lock(&r->c->mu);
	count(r->c, NATIVE_FAR_PUTS, 1);
	r->c->is_placed = true;
	pthread_mutex_unlock(&r->c->mu);
	return true;
}

/* Under wr and mu, which it gives up. */
static bool lend(const vd_remote *r, const struct frame *f, const void *src, size_t len)
{
	struct door_span span = span_of(src, len);
	struct peer_export *p;
	struct door_key key;
	vd_conn *c = r->c;
	uint32_t number, voids; /* nothing was posted then */
	uint64_t id;
	int result;

	/* Others may have lent since. */
	p = lend_may_stay(c, f, len) == load_relaxed(&c->lend.count) ? begin(r, NULL)
								     : NULL;
	if (!p)
		return false;
	key = p->key;
	number = p->key_number;
	pthread_mutex_unlock(&c->mu);
	result = door->begin_move(c->fd, &key, f->offset, &span, &id);
	pthread_mutex_lock(&c->mu);
	count_span(c, &span);
	/* The connection has ended meanwhile: the source is the caller's again. */
	if (result == 0 && c->error)
		result = door->look_at_move(c->fd, id, true) == 1 ? -EPIPE : -EIO;
	if (result == 0) {
		lend_to_device(c, f, src, len, id, number);
		return true;
	}
	map_release(r);
	if (!c->error && (p = export_of(r)))
		heed(p, result, &voids);
	return false;
}

/* What is to be waited for before one that is lent. False: whatever that is, it does not go by the device now; so it
 * is not waited for. */
static bool prepare_lend(const vd_remote *r)
{
	uint32_t voids; /* nothing is under way */
	bool may, waits = false;
	struct peer_export *p;
	struct door_key key;
	vd_conn *c = r->c;
	int what, result;

	pthread_mutex_lock(&c->mu);
	lend_look(c);
	what = what_first(r, NULL);
	p = export_of(r);
	may = p && p->key_number && !c->error && !c->is_closing &&
	      until_left(p->reach_at) == 0;
	if (may) {
		key = p->key;
		waits = c->lend.by_frames > 0 || what == FLUSHES;
	}
	pthread_mutex_unlock(&c->mu);
	if (what == ASKS)
		send_owed(c);
	if (!waits)
		return may;
	result = door->may_move(c->fd, &key);
	if (result == 0 && what == FLUSHES)
		flush_stream(c);
	pthread_mutex_lock(&c->mu);
	if (result < 0 && (p = export_of(r)))
		heed(p, result, &voids);
	pthread_mutex_unlock(&c->mu);
	return result == 0;
}

/* What is sent while it waits has to be flushed then; and others may put in between, but not for ever. */
#define LEND_TRIES 16

bool reach_lend(const vd_remote *r, const struct frame *f, const void *src, size_t len)
{
	bool is_lent = false;

	for (int n = 0; n < LEND_TRIES && !is_lent && prepare_lend(r); n++) {
		send_begin_far(r->c, f, len);
		pthread_mutex_lock(&r->c->mu);
		is_lent = lend(r, f, src, len);
		pthread_mutex_unlock(&r->c->mu);
		send_end(r->c);
	}
	return is_lent;
}

uint32_t reach_done(vd_conn *c, uint32_t id, uint32_t key_number, bool is_there)
{
	struct vd_remote r = {.c = c, .id = id};
	struct peer_export *p = export_of(&r);
	uint32_t voids = is_there ? 0 : key_number;

	if (is_there) {
		count(c, NATIVE_FAR_PUTS, 1);
		c->is_placed = true;
	} else if (p && p->key_number == key_number) {
		heed(p, -EIO, &voids);
	}
	map_release_id(c, id);
	return voids;
}

size_t reach_get(const vd_remote *r, uint64_t offset, void *dst, size_t len)
{
	size_t done = 0;
	bool is_here = reach_is_long(r, len);
	uint32_t voids; /* nothing comes late to this end */
	uint64_t puts;

	if (!is_here)
		return 0;
	/* Those that are queued are among its puts then, or there. */
	if (lend_is_due(r->c)) {
		send_begin(r->c);
		send_end(r->c);
	}
	pthread_mutex_lock(&r->c->mu);
	puts = r->c->puts_sent;
	pthread_mutex_unlock(&r->c->mu);
	prepare(r, &puts);
	while (is_here && done < len) {
		struct door_span span =
			span_of((uint8_t *)dst + done,
				len - done < GET_MOST ? len - done : GET_MOST);

		span.is_get = true;
		/* Others may put in between. */
		send_begin(r->c);
		is_here = move(r, offset + done, &span, &puts, &voids);
		send_end(r->c);
		done += is_here ? span.bytes : 0;
	}
	pthread_mutex_lock(&r->c->mu);
	count(r->c, NATIVE_FAR_GETS, done == len);
	pthread_mutex_unlock(&r->c->mu);
	return done;
}
