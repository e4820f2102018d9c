/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a peer may write to for as long as it is exported, and the writes that go there. */
/*
 * A *reach* is memory of the owner's program that its peer's device may write to, or read. The *writer* has
 * been told the key, over the stream, and puts bytes there that no ring ever has.
 *
 * Who writes what. The writer's device alone writes there, from across_move_begin until
 * across_move_step says what has become of it: on the link beside (side_link.c), in the order of the bytes.
 * Behind them it reads 8 bytes of the owner's window (the *fence*): once these are here, the writes are
 * in the owner's memory, and its processor sees them. Nothing tells the owner of that. It is the
 * caller's business, and comes after.
 *
 * Who may void a key. The owner alone, at any moment, and without asking: across_unreach unregisters
 * the memory, and from there on its device refuses what comes, also what was under way. So does a
 * fork of the owner, whose pages would be the child's as well, and the end of the link.
 *
 * A put ends in one of three ways:
 *	there		the fence has come.
 *	not begun	nothing was posted. The key is as good as before.
 *	unknown		the link beside has failed, or was given up. Some bytes are there; others may
 *			still come, although the queue pair here is gone: a packet can wait in the
 *			network. So the writer gives the key up. It has the owner void it before it
 *			says anything more of this memory, and sends the bytes again by the stream.
 *
 * What happens, at any step of a put:
 * - The key is void, or never was one: the owner's device refuses the write. The link beside fails at
 *   both ends, unknown. The first link and its streams go on.
 * - Something else on the link beside fails it, an offer or another's put: unknown.
 * - The owner dies: nobody answers, and the device gives up in bounded time: unknown. The stream tells
 *   of the end.
 * - The writer dies: what its device had under way may land while the key is good. The owner voids
 *   it when the stream tells of the end, before its program hears.
 * - The first link fails: the link beside goes with it, and all keys of that link are void. Unknown.
 *   A key holds for the link whose token was told with it, and for no other.
 * - The writer's handle ends, or it forks: as if its link beside had failed.
 * - The peer lies: with a key it can write to that memory, as it may by the stream. The bounds are
 *   looked at by the owner's device.
 *
 * A *get* is the same the other way: the device reads the owner's memory into this program's. It needs no
 * fence, since it is here when it is complete; and nothing comes late, since what arrives for a queue pair
 * that is gone is dropped. So where it is unknown the bytes can be asked for by the stream at once, and the
 * owner need not hear of it. A void key ends it as it ends a put.
 *
 * The registration of this program's memory is held (cache.c) until the device has done with it, or never
 * gets to it: its queue pair is gone.
 */
#include <errno.h>

#include "remote/parts.h"

/* Of one write or read. */
#define POST_MOST   (1u << 20)
#define FENCE_BYTES 8

struct across_reach {
	uint64_t id;
	struct across_link *of; /* NULL: free */
	struct link_memory memory;
};

static struct across_reach reaches[ACROSS_REACHES];
static int used; /* one past the last that ever was */
static uint64_t last_id;

/* ---- the owner ---- */

static bool is_open(const struct peer *a, const void *owner)
{
	const struct across_link *k = a->link;

	return k && k->link && k->up && !k->failed && a->wire &&
	       a->state == ACROSS_OPEN && a->said && a->heard && !a->last_came &&
	       a->owner.owner == owner;
}

static struct across_reach *free_one(void)
{
	for (int i = 0; i < ACROSS_REACHES; i++)
		if (!reaches[i].of) {
			used = i < used ? used : i + 1;
			return &reaches[i];
		}
	return NULL;
}

static int reach(struct peer *a, void *start, size_t bytes, uint32_t may,
		 struct across_key *key, uint64_t *id)
{
	struct across_reach *r = free_one();
	int result;

	if (!r)
		return -ENOSPC;
	result = cache_allow(a->link, start, bytes,
			     (may & ACROSS_MAY_READ ? LINK_MAY_READ : 0) |
				     (may & ACROSS_MAY_WRITE ? LINK_MAY_WRITE : 0),
			     &r->memory);
	if (result < 0)
		return result;
	r->of = a->link;
	r->id = *id = ++last_id;
	*key = (struct across_key){.address = r->memory.start,
				   .token = a->link->token,
				   .key = r->memory.peer_key};
	return 0;
}

int across_reach(struct peer *a, const void *owner, void *start, size_t bytes,
		 uint32_t may, struct across_key *key, uint64_t *id)
{
	struct across_guard g = across_enter();
	int r = is_open(a, owner) ? reach(a, start, bytes, may, key, id) : -EAGAIN;

	across_leave(g);
	return r;
}

static void close_one(struct across_reach *r)
{
	link_unregister(r->of->link, &r->memory);
	*r = (struct across_reach){0};
}

void across_unreach(uint64_t id)
{
	struct across_guard g = across_enter();

	for (int i = 0; i < used; i++)
		if (reaches[i].of && reaches[i].id == id)
			close_one(&reaches[i]);
	across_leave(g);
}

void reach_drop(const struct across_link *k)
{
	for (int i = 0; i < used; i++)
		if (reaches[i].of && (!k || reaches[i].of == k))
			close_one(&reaches[i]);
}

/* Pages that a device may write to would be the child's as well: the parent's next write to one would
 * give it another, of which the device knows nothing. */
void reach_forking(void)
{
	reach_drop(NULL);
	/* Where nothing is pinned there is none, and no page of all this is to be touched. */
	for (int i = 0; cache_pinned() > 0 && i < ACROSS_CONNECTIONS; i++)
		if (across_pool[i].move.is_get)
			bulk_give_up(across_pool[i].link);
	cache_drop(NULL);
}

void reach_forget(void)
{
	for (int i = 0; i < used; i++)
		reaches[i] = (struct across_reach){0};
	used = 0;
}

/* ---- the writer ---- */

static int post_one(struct link *l, const struct across_move *p, uint32_t bytes)
{
	const struct link_write w = {.from = p->own,
				     .bytes = bytes,
				     .flags = LINK_OFFERED,
				     .memory = cache_memory(p->held),
				     .at = p->far,
				     .key = p->key};
	const struct link_read r = {.memory = cache_memory(p->held),
				    .into = p->own,
				    .bytes = bytes,
				    .flags = LINK_OFFERED,
				    .from = p->far,
				    .key = p->key};

	return p->is_get ? link_read(l, &r) : link_post(l, &w);
}

/* As far as there is room; behind a put the fence. 0, or -EIO: it never gets further. */
static int post(struct peer *a)
{
	const struct link_read fence = {.bytes = FENCE_BYTES};
	struct across_move *p = &a->move;
	struct link *l = a->link->bulk->link;
	uint32_t most = link_write_max(l);
	int r = 0;

	most = most < POST_MOST ? most : POST_MOST;
	while (p->left > 0) {
		uint32_t n = p->left < most ? (uint32_t)p->left : most;

		r = post_one(l, p, n);
		if (r < 0)
			return r == -EAGAIN ? 0 : -EIO;
		p->is_begun = true;
		p->own += n;
		p->far += n;
		p->left -= n;
		if (p->is_get && p->left == 0)
			p->last_at = link_posted(l);
	}
	if (!p->last_at && (r = link_read(l, &fence)) == 0)
		p->last_at = link_posted(l);
	return r == 0 || r == -EAGAIN ? 0 : -EIO;
}

/* The device has done with this program's memory. */
static void release(struct peer *a)
{
	cache_release(a->move.held);
	a->move = (struct across_move){0};
}

static bool is_lost(const struct peer *a)
{
	return !a->link->bulk || a->link->bulk->turn != a->move.turn;
}

static int begin(struct peer *a, const struct across_key *key, uint64_t offset,
		 struct across_span *span, uint64_t *id)
{
	struct across_move *p = &a->move;
	struct across_link *k = a->link;

	if (k->token != key->token)
		return -ESTALE;
	if (p->id || !bulk_is_up(k) ||
	    cache_hold(k, span->is_get ? CACHE_TARGET : CACHE_SOURCE, span, span->at,
		       span->bytes, &p->held) < 0)
		return -EAGAIN;
	p->id = *id = ++last_id;
	p->turn = k->bulk->turn;
	p->is_get = span->is_get;
	p->own = p->start = span->at;
	p->left = p->bytes = span->bytes;
	p->far = key->address + offset;
	p->key = key->key;
	post(a);
	if (p->is_begun)
		return 0;
	release(a);
	return -EAGAIN;
}

int across_move_begin(struct peer *a, const void *owner, const struct across_key *key,
		      uint64_t offset, struct across_span *span, uint64_t *id)
{
	struct across_guard g = across_enter();
	int r = is_open(a, owner) ? begin(a, key, offset, span, id) : -EAGAIN;

	across_leave(g);
	return r;
}

static int step(struct peer *a, uint64_t id)
{
	struct across_move *p = &a->move;
	int r = 0;

	if (p->id != id)
		return -EIO;
	if (is_lost(a)) {
		r = -EIO;
	} else if ((r = post(a)) < 0) {
		/* Nothing of what was posted goes on. */
		bulk_give_up(a->link);
	}
	if (r == 0 && p->last_at && link_completed(a->link->bulk->link) >= p->last_at)
		r = 1;
	if (r == 1 && p->is_get && !cache_is_sound(p->held, p->start, p->bytes)) {
		cache_forget(p->start, p->bytes);
		r = -EFAULT;
	}
	if (r != 0)
		release(a);
	return r;
}

int across_move_step(struct peer *a, uint64_t id)
{
	struct across_guard g = across_enter();
	int fd = -1, r;

	across_answer_locked(true);
	r = step(a, id);
	if (r == 0)
		fd = link_fd(a->link->context->context);
	across_leave(g);
	if (r == 0)
		across_nap(fd);
	return r;
}

int across_move(struct peer *a, const void *owner, const struct across_key *key,
		uint64_t offset, struct across_span *span)
{
	struct across_span all = *span;
	int r = 0;

	for (size_t done = 0; done < all.bytes && r >= 0; done += span->bytes) {
		size_t left = all.bytes - done;
		uint64_t id;

		span->at = (uint8_t *)all.at + done;
		span->bytes = left < ACROSS_STEP_BYTES ? left : ACROSS_STEP_BYTES;
		r = across_move_begin(a, owner, key, offset + done, span, &id);
		while (r == 0)
			r = across_move_step(a, id);
	}
	span->at = all.at;
	span->bytes = all.bytes;
	span->broken += r == -EFAULT;
	return r == -EFAULT ? -EAGAIN : r < 0 ? r : 0;
}

void across_forget(const void *at, size_t bytes)
{
	struct across_guard g = across_enter();

	cache_forget(at, bytes);
	across_leave(g);
}

void reach_end(struct peer *a)
{
	if (!a->move.id)
		return;
	if (!is_lost(a))
		bulk_give_up(a->link);
	release(a);
}
