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
 * caller's business, and comes after, by the first link, whose order has nothing to do with that of the link beside.
 *
 * Several may be under way for a connection. They are posted in the order of the calls: one that waits for room in the
 * queue keeps back those behind it. A queue pair carries its writes out in their order. Two to the same bytes are the
 * caller's to keep apart. One fence serves all puts before it that have none: there is none without one
 * for long, since whoever looks at any of them posts it. Where one of them is lost, so are all that
 * are under way then, and nothing begins before the caller has been told of each.
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
 * - The writer ends one of them (across_move_look), since its program wants the source back: the same.
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
/* Puts without one, behind one that is under way. A queue pair has one read under way: the next stops all behind it. */
#define FENCE_MOST 4

struct across_reach {
	uint64_t id;
	struct across_link *of; /* NULL: free */
	struct link_memory memory;
};

static struct across_reach reaches[ACROSS_REACHES];
static int used; /* one past the last that ever was */
static uint64_t last_id;
static struct across_move moves[ACROSS_MOVES];
static struct across_move *spare; /* the free ones below moves_used */
static int moves_used;

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
		if (across_pool[i].moves)
			bulk_give_up(across_pool[i].link);
	cache_drop(NULL);
}

void reach_forget(void)
{
	for (int i = 0; i < used; i++)
		reaches[i] = (struct across_reach){0};
	used = moves_used = 0;
	spare = NULL;
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

/* As far as there is room. 0, or -errno of a link that has failed. */
static int post_move(struct link *l, struct across_move *p)
{
	uint32_t most = link_write_max(l);

	most = most < POST_MOST ? most : POST_MOST;
	while (p->left > 0) {
		uint32_t n = p->left < most ? (uint32_t)p->left : most;
		int r = post_one(l, p, n);

		if (r < 0)
			return r == -EAGAIN ? 0 : r;
		p->own += n;
		p->far += n;
		p->left -= n;
		if (p->is_get && p->left == 0)
			p->last_at = link_posted(l);
	}
	return 0;
}

/* Behind the puts that are posted and have none. */
static int post_fence(struct link *l, const struct peer *a)
{
	const struct link_read fence = {.bytes = FENCE_BYTES};
	bool is_under_way = false;
	uint32_t bare = 0;
	int r;

	for (const struct across_move *p = a->moves; p; p = p->next) {
		bare += p->left == 0 && !p->last_at;
		is_under_way |= p->last_at > link_completed(l);
	}
	if (bare == 0 || (is_under_way && bare < FENCE_MOST))
		return 0;
	r = link_read(l, &fence);
	if (r < 0)
		return r == -EAGAIN ? 0 : r;
	for (struct across_move *p = a->moves; p && p->left == 0; p = p->next)
		if (!p->last_at)
			p->last_at = link_posted(l);
	return 0;
}

/* All that may go, in its order. 0, or -EIO: it never gets further. */
static int post(struct peer *a)
{
	struct link *l = a->link->bulk->link;
	bool goes_on = true;
	int r = 0;

	for (struct across_move *p = a->moves; p && goes_on && r == 0; p = p->next) {
		r = post_move(l, p);
		goes_on = p->left == 0;
	}
	if (r == 0)
		r = post_fence(l, a);
	return r < 0 ? -EIO : 0;
}

static struct across_move *take_move(void)
{
	struct across_move *p = spare;

	if (p)
		spare = p->next;
	else if (moves_used < ACROSS_MOVES)
		p = &moves[moves_used++];
	return p;
}

/* The device has done with this program's memory. */
static void release(struct peer *a, struct across_move *p)
{
	struct across_move **at = &a->moves;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	cache_release(p->held);
	p->id = 0;
	p->next = spare;
	spare = p;
}

static bool is_lost(const struct peer *a, const struct across_move *p)
{
	return !a->link->bulk || a->link->bulk->turn != p->turn;
}

/* Where the next one is to be linked; NULL: not now. Behind one that is lost nothing begins, which would come before
 * the bytes that are sent in its place. */
static struct across_move **last_of(struct peer *a)
{
	struct across_move **at = &a->moves;
	uint32_t count = 0;

	for (; *at; at = &(*at)->next)
		if (++count == ACROSS_MOVES_MOST || is_lost(a, *at))
			return NULL;
	return at;
}

static int may_begin(struct across_link *k, const struct across_key *key)
{
	if (k->token != key->token)
		return -ESTALE;
	return bulk_is_up(k) ? 0 : -EAGAIN;
}

static int begin(struct peer *a, const struct across_key *key, uint64_t offset,
		 struct across_span *span, uint64_t *id)
{
	struct across_link *k = a->link;
	struct across_move **at, *p;
	struct cache_entry *held;
	int r = may_begin(k, key);

	if (r < 0)
		return r;
	if (!(at = last_of(a)) ||
	    cache_hold(k, span->is_get ? CACHE_TARGET : CACHE_SOURCE, span, span->at,
		       span->bytes, &held) < 0)
		return -EAGAIN;
	p = take_move();
	if (!p) {
		cache_release(held);
		return -EAGAIN;
	}
	*p = (struct across_move){.id = ++last_id,
				  .held = held,
				  .turn = k->bulk->turn,
				  .key = key->key,
				  .own = span->at,
				  .left = span->bytes,
				  .far = key->address + offset,
				  .is_get = span->is_get,
				  .start = span->at,
				  .bytes = span->bytes};
	*at = p;
	*id = p->id;
	post(a);
	if (p->left < p->bytes)
		return 0;
	release(a, p);
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

int across_move_may(struct peer *a, const void *owner, const struct across_key *key)
{
	struct across_guard g = across_enter();
	int r = is_open(a, owner) ? may_begin(a->link, key) : -EAGAIN;

	across_leave(g);
	return r;
}

static struct across_move *find(const struct peer *a, uint64_t id)
{
	struct across_move *p = a->moves;

	while (p && p->id != id)
		p = p->next;
	return p;
}

static bool is_there(const struct peer *a, const struct across_move *p)
{
	return p->last_at && link_completed(a->link->bulk->link) >= p->last_at;
}

static int step(struct peer *a, uint64_t id)
{
	struct across_move *p = find(a, id);
	int r = 0;

	if (!p)
		return -EIO;
	if (is_lost(a, p)) {
		r = -EIO;
	} else if ((r = post(a)) < 0) {
		/* Nothing of what was posted goes on. */
		bulk_give_up(a->link);
	}
	if (r == 0)
		r = is_there(a, p);
	if (r == 1 && p->is_get && !cache_is_sound(p->held, p->start, p->bytes)) {
		cache_forget(p->start, p->bytes);
		r = -EFAULT;
	}
	if (r != 0)
		release(a, p);
	return r;
}

int across_move_look(struct peer *a, uint64_t id, bool ends)
{
	struct across_guard g;
	int r;

	across_progress();
	g = across_enter();
	r = step(a, id);
	if (r == 0 && ends) {
		bulk_give_up(a->link);
		r = step(a, id);
	}
	across_leave(g);
	return r;
}

/* Something has become of the first of them: of others nobody asks before that. */
static bool is_decided(struct peer *a)
{
	const struct across_move *p = a->moves;

	return !p || is_lost(a, p) || post(a) < 0 || is_there(a, p);
}

int across_move_descriptor(struct peer *a)
{
	struct across_guard g = across_enter();
	int fd = -1;

	across_answer_locked(true);
	if (!is_decided(a))
		fd = link_fd(a->link->context->context);
	across_leave(g);
	return fd;
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
	while (a->moves) {
		if (!is_lost(a, a->moves) && !is_there(a, a->moves))
			bulk_give_up(a->link);
		release(a, a->moves);
	}
}
