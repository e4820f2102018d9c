/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a peer may write to for as long as it is exported, and the writes that go there. */
/*
 * A *reach* is memory of the owner's program that its peer's device may write to. The *writer* has
 * been told the key, over the stream, and puts bytes there that no ring ever has.
 *
 * Who writes what. The writer's device alone writes there, from across_put_begin until
 * across_put_step says what has become of it: on the link beside (side_link.c), in the order of the bytes.
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
 * The source is registered for the put alone. It is unregistered once the device has read it, or never
 * will: its queue pair is gone.
 */
#include <errno.h>

#include "remote/parts.h"

/* Registered at a time; a longer put is made in several. */
#define PUT_MOST (8u << 20)
/* Of one write. */
#define WRITE_MOST  (1u << 20)
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

static bool is_open(const struct across *a, const void *owner)
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

static int reach(struct across *a, void *start, size_t bytes, struct across_key *key,
		 uint64_t *id)
{
	struct across_reach *r = free_one();
	int result;

	if (!r)
		return -ENOSPC;
	result = link_offer(a->link->link, start, bytes, &r->memory);
	if (result < 0)
		return result;
	r->of = a->link;
	r->id = *id = ++last_id;
	*key = (struct across_key){.address = r->memory.start,
				   .token = a->link->token,
				   .key = r->memory.peer_key};
	return 0;
}

int across_reach(struct across *a, const void *owner, void *start, size_t bytes,
		 struct across_key *key, uint64_t *id)
{
	struct across_guard g = across_enter();
	int r = is_open(a, owner) ? reach(a, start, bytes, key, id) : -EAGAIN;

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

void reach_forget(void)
{
	for (int i = 0; i < used; i++)
		reaches[i] = (struct across_reach){0};
	used = 0;
}

/* ---- the writer ---- */

/* As far as there is room; the fence behind them. */
static void post(struct across *a)
{
	const struct link_read fence = {.bytes = FENCE_BYTES};
	struct across_put *p = &a->put;
	struct link *l = a->link->bulk->link;

	while (p->left > 0) {
		uint32_t most = link_write_max(l);
		struct link_write w = {.from = p->from,
				       .bytes = most < WRITE_MOST ? most : WRITE_MOST,
				       .flags = LINK_OFFERED,
				       .memory = &p->memory,
				       .at = p->at,
				       .key = p->key};

		if (w.bytes > p->left)
			w.bytes = (uint32_t)p->left;
		if (link_post(l, &w) < 0)
			return;
		p->is_begun = true;
		p->from += w.bytes;
		p->at += w.bytes;
		p->left -= w.bytes;
	}
	if (!p->fence_at && link_read(l, &fence) == 0)
		p->fence_at = link_posted(l);
}

/* Nothing is read from the source any more. */
static void release(struct across *a)
{
	link_unregister(a->link->link, &a->put.memory);
	a->put = (struct across_put){0};
}

static bool is_lost(const struct across *a)
{
	return !a->link->bulk || a->link->bulk->turn != a->put.turn;
}

int across_put_begin(struct across *a, const void *owner, const struct across_key *key,
		     uint64_t offset, const void *from, size_t bytes, uint64_t *id)
{
	struct across_guard g = across_enter();
	struct across_put *p = &a->put;
	struct across_link *k = a->link;
	int r = -EAGAIN;

	if (is_open(a, owner) && k->token != key->token)
		r = -ESTALE;
	else if (is_open(a, owner) && !p->id && bulk_is_up(k) &&
		 link_register(k->link, (void *)(uintptr_t)from, bytes, &p->memory) ==
			 0) {
		p->id = *id = ++last_id;
		p->turn = k->bulk->turn;
		p->from = from;
		p->left = bytes;
		p->at = key->address + offset;
		p->key = key->key;
		post(a);
		r = p->is_begun ? 0 : -EAGAIN;
		if (r < 0)
			release(a);
	}
	across_leave(g);
	return r;
}

static int step(struct across *a, uint64_t id)
{
	struct across_put *p = &a->put;
	int r = 0;

	if (p->id != id)
		return -EIO;
	if (is_lost(a))
		r = -EIO;
	else
		post(a);
	if (r == 0 && p->fence_at && link_completed(a->link->bulk->link) >= p->fence_at)
		r = 1;
	if (r != 0)
		release(a);
	return r;
}

int across_put_step(struct across *a, uint64_t id)
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

static int put(struct across *a, const void *owner, const struct across_key *key,
	       uint64_t offset, const void *from, size_t bytes)
{
	uint64_t id;
	int r = across_put_begin(a, owner, key, offset, from, bytes, &id);

	while (r == 0)
		r = across_put_step(a, id);
	return r < 0 ? r : 0;
}

int across_put(struct across *a, const void *owner, const struct across_key *key,
	       uint64_t offset, const void *from, size_t bytes)
{
	const uint8_t *at = from;
	int r = 0;

	while (bytes > 0 && r == 0) {
		size_t n = bytes < PUT_MOST ? bytes : PUT_MOST;

		r = put(a, owner, key, offset, at, n);
		at += n;
		offset += n;
		bytes -= n;
	}
	return r;
}

void reach_end(struct across *a)
{
	if (!a->put.id)
		return;
	if (!is_lost(a))
		bulk_give_up(a->link);
	release(a);
}
