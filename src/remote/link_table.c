/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and links of this process, and what comes on them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/pageable.h"
#include "rdma/verbs.h"
#include "remote/say.h"

/* A device that could not be opened is not looked for again before. */
#define DEVICE_RETRY_MS 60000
/* A link that has not come up by then never will. */
#define STALE_MS 10000

int (*across_open_context)(const struct name_end *local, struct link_context **out,
			   const char **why);

/* ---- contexts ---- */

/* "rxe0" of "rxe0, port 1, GID 1". */
static void name_device(struct across_context *c)
{
	char text[LEARNT_DEVICE + 64] = "of a test";

	if (!across_open_context)
		link_verbs_name(c->context, text, sizeof(text));
	snprintf(c->device, sizeof(c->device), "%.*s", (int)strcspn(text, ", "), text);
}

static int open_device(const struct name_end *local, struct link_context **out,
		       const char **why)
{
	struct link_limits limits = {.links = ACROSS_LINKS + ACROSS_BULKS,
				     .credits = ACROSS_CREDITS,
				     .sends = ACROSS_SENDS};
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} address = {0};

	if (across_open_context)
		return across_open_context(local, out, why);
	if (name_is_v4(local)) {
		address.in.sin_family = AF_INET;
		memcpy(&address.in.sin_addr, local->addr + 12, 4);
	} else {
		address.in6.sin6_family = AF_INET6;
		memcpy(&address.in6.sin6_addr, local->addr, 16);
	}
	return link_verbs_open(&address.any, &limits, out, why);
}

/* The address's own, or a free one, or one whose device could not be opened; else NULL. */
static struct across_context *place_for(const struct name_end *local)
{
	struct across_context *room = NULL, *failed = NULL;

	for (int i = 0; i < ACROSS_CONTEXTS; i++) {
		struct across_context *c = &across_contexts[i];

		if (!c->context && !c->failed)
			room = room ? room : c;
		else if (memcmp(c->local.addr, local->addr, sizeof(local->addr)) == 0)
			return c;
		else if (c->failed)
			failed = c;
	}
	return room ? room : failed;
}

int hub_context(const struct name_end *local, struct across_context **out)
{
	struct across_context *c = place_for(local);
	uint64_t now = clock_coarse_ms();
	const char *why = "there is none with this address";
	int r;

	*out = c;
	if (!c || c->context)
		return c ? 0 : -ENOSPC;
	if (c->failed && now - c->failed_ms < DEVICE_RETRY_MS)
		return -ENODEV;
	c->local = *local;
	r = open_device(local, &c->context, &why);
	/* From here on it is always armed: who answers it arms it again at once. */
	if (r == 0 && (r = link_arm(c->context)) < 0)
		link_context_destroy(c->context);
	c->failed = r < 0;
	c->failed_ms = now;
	if (r == 0)
		name_device(c);
	if (r < 0) {
		c->context = NULL;
		log_debug("no RDMA device: %s (%s)", why, strerror(-r));
	}
	return r < 0 ? -ENODEV : 0;
}

/* ---- links ---- */

/* A forked child does not have it: what the device writes is never in a copy, and a child that has
 * given up its rights cannot write there. */
static uint8_t *map_window(void)
{
	void *at =
		pageable_map(NULL, ACROSS_WINDOW_BYTES, MAP_SHARED | MAP_ANONYMOUS, -1);

	if (at == MAP_FAILED)
		return NULL;
	if (madvise(at, ACROSS_WINDOW_BYTES, MADV_DONTFORK) == 0)
		return at;
	pageable_unmap(at, ACROSS_WINDOW_BYTES);
	return NULL;
}

static void clear_link(struct across_link *k)
{
	if (k->window)
		pageable_unmap(k->window, ACROSS_WINDOW_BYTES);
	if (k->staging)
		pageable_unmap(k->staging, ACROSS_WINDOW_BYTES);
	memset(k, 0, sizeof(*k));
}

/* A link that the first end has never said a word on, and whose connections have ended. */
static void drop_stale(struct across_link *k)
{
	if (!k->link || k->up || k->failed || clock_coarse_ms() - k->made_ms < STALE_MS)
		return;
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (k->at[i] && k->at[i]->state != ACROSS_ENDED)
			return;
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (k->at[i])
			hub_give_place(k->at[i]);
	hub_drop(k);
}

static struct across_link *link_of(const struct link *l)
{
	for (int i = 0; i < ACROSS_LINKS; i++)
		if (across_links[i].link == l)
			return &across_links[i];
	return NULL;
}

/* Bytes that the peer has and has not read: their sender may wait for room, and nothing of ours is
 * under way. TCP would probe its window, too. */
static bool is_unread(const struct link *l)
{
	const struct across_link *k = link_of(l);

	for (int i = 0; k && i < ACROSS_PLACES; i++) {
		const struct peer *a = k->at[i];

		if (a && a->wire && a->state != ACROSS_ENDED && ring_unread(a->out))
			return true;
	}
	return false;
}

/* The kernel gives no other error for that than for a machine without memory. */
static bool is_locked_out(void)
{
	struct rlimit limit;
	uint64_t bytes = 0;

	for (int i = 0; i < ACROSS_LINKS; i++)
		if (across_links[i].window)
			bytes += 2 * ACROSS_WINDOW_BYTES;
	return kernel_getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < bytes;
}

/* Of each address the context has the device, here and at the peer: with several, the kernel's
 * choice of addresses is that of the way, and a connection that is on TCP takes no other. */
static bool goes_the_way(const struct across_link *k, const struct peer *a)
{
	return memcmp(k->context->local.addr, a->local.addr, sizeof(a->local.addr)) ==
		       0 &&
	       memcmp(k->peer, a->peer.addr, sizeof(k->peer)) == 0;
}

/*
 * Nobody has more links than are free at that moment, with any number of processes; nor has a host with
 * any number of users all but a few. Each of our addresses counts by itself. So somebody who has none gets
 * one, although others want all.
 */
bool hub_has_share(const struct peer *a)
{
	int users = 0, hosts = 0, free = 0;

	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_link *k = &across_links[i];

		drop_stale(k);
		free += !k->link;
		if (!k->link || !goes_the_way(k, a))
			continue;
		hosts++;
		users += k->uid == a->uid;
	}
	return users < free && hosts < ACROSS_HOST_SHARE * free;
}

static int make_link(struct across_context *c, struct across_link *k)
{
	int r = link_create(c->context, k->window, ACROSS_WINDOW_BYTES, &k->link);

	if (r == 0 &&
	    (r = link_share(k->link, k->staging, ACROSS_WINDOW_BYTES, &k->memory)) < 0) {
		link_destroy(k->link);
		k->link = NULL;
	}
	return r;
}

int hub_create(struct across_context *c, struct across_link **out)
{
	struct across_link *k = NULL;
	int r;

	for (int i = 0; i < ACROSS_LINKS && !k; i++) {
		drop_stale(&across_links[i]);
		if (!across_links[i].link)
			k = &across_links[i];
	}
	if (!k)
		return -ENOSPC;
	link_expect(c->context, is_unread);
	k->context = c;
	k->made_ms = clock_coarse_ms();
	k->window = map_window();
	k->staging = map_window();
	r = -ENOMEM;
	if (k->window && k->staging && say_random(&k->token, sizeof(k->token)) &&
	    say_random(k->ours, sizeof(k->ours)))
		do
			r = make_link(c, k);
		while (r == -ENOMEM && cache_give_up(2 * ACROSS_WINDOW_BYTES));
	if (r == -ENOMEM && is_locked_out())
		r = -EDQUOT;
	if (r < 0) {
		log_debug("no link: %s", strerror(-r));
		clear_link(k);
		return r;
	}
	*out = k;
	return 0;
}

void hub_drop(struct across_link *k)
{
	if (!k->link)
		return;
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (k->at[i] && k->at[i] != &across_lost)
			return;
	bulk_drop(k);
	reach_drop(k);
	cache_drop(k);
	link_unregister(k->link, &k->memory);
	link_destroy(k->link);
	clear_link(k);
}

/* Where there was no room. */
static void push_owed(struct across_link *k)
{
	bulk_push(k);
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (k->at[i] && k->at[i]->owes)
			note_push(k->at[i]);
	pull_go_on(k);
	pull_begin(k);
}

static bool has_place(const struct across_link *k)
{
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (!k->at[i])
			return true;
	return false;
}

/* The user and the addresses are vouched for. The process is as the peer says: that it is this one
 * must be proved before a place is used. */
bool hub_is_for(const struct across_link *k, const struct peer *a)
{
	return k->link && !k->failed && k->uid == a->uid &&
	       memcmp(k->process, a->process, sizeof(k->process)) == 0 &&
	       goes_the_way(k, a);
}

void hub_assign(struct across_link *k, const struct peer *a)
{
	memcpy(k->process, a->process, sizeof(k->process));
	memcpy(k->peer, a->peer.addr, sizeof(k->peer));
	k->uid = a->uid;
}

struct across_link *hub_find(const struct peer *a, bool *making)
{
	*making = false;
	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_link *k = &across_links[i];

		if (!hub_is_for(k, a) || (a->gone >> i & 1))
			continue;
		/* What the peer has heard aside, it says to nobody who sleeps. */
		if (!has_place(k))
			push_owed(k);
		if (!has_place(k))
			continue;
		if (k->up)
			return k;
		*making = true;
	}
	return NULL;
}

struct across_link *hub_find_token(const struct peer *a, uint64_t token)
{
	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_link *k = &across_links[i];

		if (hub_is_for(k, a) && k->token == token &&
		    link_state(k->link) != LINK_OPEN)
			return k;
	}
	return NULL;
}

bool hub_take_place(struct across_link *k, struct peer *a)
{
	int best = -1;

	/* The longest unused one. */
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (!k->at[i] && (best < 0 || k->used[i] < k->used[best]))
			best = i;
	if (best < 0)
		return false;
	k->at[best] = a;
	k->used[best] = ++k->uses;
	a->link = k;
	a->place = (uint32_t)best;
	a->generation = ++k->generation[best];
	a->in_doubt = false;
	a->has_peer = a->said = a->heard = a->owes = a->last_sent = a->last_came = false;
	a->untold = a->unasked = false;
	a->bare_at = a->pulled = 0;
	a->told.number = 0;
	memset(&a->sent, 0, sizeof(a->sent));
	memset(&a->came, 0, sizeof(a->came));
	memset(&a->offer, 0, sizeof(a->offer));
	memset(&a->grant, 0, sizeof(a->grant));
	memset(&a->lent, 0, sizeof(a->lent));
	a->moves = NULL;
	return true;
}

void hub_give_place(struct peer *a)
{
	struct across_link *k = a->link;

	if (k)
		k->at[a->place] = NULL;
	a->link = NULL;
	if (a->state == ACROSS_ENDED)
		a->state = ACROSS_FREE;
	if (k && k->failed)
		hub_drop(k);
}

/*
 * A connection of nobody's here keeps its place until the peer's last note has come, after which
 * it writes nothing there, and our own writes from its memory are complete. Where the link
 * has failed only link_destroy makes sure of that: the link goes when all have left it.
 */
void hub_settle(struct peer *a)
{
	struct across_link *k = a->link;

	if (a->state != ACROSS_ENDED || a == &across_lost)
		return;
	if (!k || k->failed ||
	    (a->last_sent && a->last_came && link_completed(k->link) >= a->last_at))
		hub_give_place(a);
}

/* ---- what comes ---- */

static void fail_link(struct across_link *k)
{
	struct peer *left[ACROSS_PLACES];

	log_debug("a link has ended: %s", link_error_text(link_error(k->link)));
	k->failed = true;
	k->up = false;
	bulk_drop(k);
	reach_drop(k);
	cache_drop(k);
	/* The link may go with the last of them: it is not looked at again. */
	memcpy(left, k->at, sizeof(left));
	for (int i = 0; i < ACROSS_PLACES; i++) {
		struct peer *a = left[i];

		if (!a)
			continue;
		if (a->state == ACROSS_ENDED)
			hub_settle(a);
		/* A peer of which no note has come has written nothing: across_may_use. */
		else if (a->owner.lost && a->heard && !a->last_came)
			a->owner.lost(a->owner.owner);
		else if (a->owner.ring)
			a->owner.ring(a->owner.owner);
	}
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (left[i] && left[i] != &across_lost)
			return;
	hub_drop(k);
}

void hub_wrong(struct across_link *k, const char *what)
{
	log_error("the peer of a link does not keep to the protocol: %s", what);
	link_abort(k->link);
}

static void take_note(struct across_link *k, uint32_t immediate)
{
	const uint8_t *place =
		k->window + k->notes_came % ACROSS_NOTES * ACROSS_NOTE_BYTES;
	struct note n;
	struct peer *a;

	/* A copy: the peer may write there while we look. */
	memcpy(&n, place, sizeof(n));
	if (n.number != (uint32_t)k->notes_came) {
		hub_wrong(k, "a note is not the next one");
		return;
	}
	k->notes_came++;
	if (n.kind & NOTE_ASK)
		pull_ask(k);
	n.kind &= (uint8_t)~NOTE_ASK;
	if (n.kind == NOTE_LOOK)
		return;
	if (n.kind == NOTE_BULK) {
		if (!bulk_take(k, &n.bulk))
			hub_wrong(k, "it names a link beside this one that cannot be");
		return;
	}
	if (n.place >= ACROSS_PLACES || link_immediate_id(immediate) != n.place ||
	    n.kind < NOTE_SHORT || n.kind > NOTE_VERDICT) {
		hub_wrong(k, "a note is for no connection");
		return;
	}
	a = k->at[n.place];
	if (a == &across_lost) {
		if (n.kind == NOTE_LAST)
			k->at[n.place] = NULL;
		return;
	}
	/* The place is not given out before the last note: there can be no late ones. */
	if (!a || a->generation != n.generation || a->last_came) {
		hub_wrong(k, "a note is for a connection that has ended");
		return;
	}
	if (n.kind == NOTE_OFFER || n.kind == NOTE_VERDICT) {
		if (!redirect_take(a, &n))
			hub_wrong(k, "an offer, or what became of one, that cannot be");
		return;
	}
	if (!note_take(a, &n)) {
		hub_wrong(k, "a ring that is larger than its memory");
		return;
	}
	hub_settle(a);
}

/* Bytes that need no note. */
static void take_bytes(struct across_link *k, const struct link_event *e)
{
	struct peer *a = k->at[tells_place(e->immediate)];

	if (a == &across_lost)
		return;
	if (!a || a->generation != link_immediate_generation(e->immediate) || !a->heard ||
	    a->last_came) {
		hub_wrong(k, "bytes are for no connection");
		return;
	}
	note_take_bytes(a, e->bytes, tells_consumed(e->immediate));
}

static void settle_places(struct across_link *k)
{
	for (int i = 0; i < ACROSS_PLACES && k->link; i++)
		if (k->at[i])
			hub_settle(k->at[i]);
}

/* The first end's READY has arrived, and what the peer's device has said to that. */
static void find_up(struct across_link *k)
{
	if (k->up || link_state(k->link) != LINK_UP || link_completed(k->link) == 0)
		return;
	k->up = true;
	push_owed(k);
}

void hub_connected(struct across_link *k)
{
	k->is_first = true;
	link_drain(k->link); /* LINK_EVENT_DONE follows */
	find_up(k);
}

static void take_event(const struct link_event *e)
{
	struct across_link *k = link_of(e->link);

	if (!k) {
		bulk_event(e);
		return;
	}
	switch (e->type) {
	case LINK_EVENT_UP:
		k->up = true;
		push_owed(k);
		break;
	case LINK_EVENT_IMMEDIATE:
		if (k->failed)
			break;
		k->immediates_came++;
		pull_came(k);
		if (link_immediate_flags(e->immediate) & TELLS_BYTES)
			take_bytes(k, e);
		else
			take_note(k, e->immediate);
		break;
	case LINK_EVENT_ROOM:
		push_owed(k);
		break;
	case LINK_EVENT_READ:
		if (!k->failed)
			pull_take(k);
		break;
	case LINK_EVENT_DONE:
		find_up(k);
		settle_places(k);
		break;
	case LINK_EVENT_CLOSED:
		/* Its process has ended. */
		k->up = false;
		link_abort(k->link);
		break;
	case LINK_EVENT_FAILED:
		fail_link(k);
		break;
	}
}

/* A peer can go on for ever: so a poll ends with what can have lain in the queue when it began, and the context's
 * descriptor tells of the rest. */
static void poll_context(struct link_context *c)
{
	struct link_event event[ACROSS_BATCH];
	uint32_t polls = 0;
	int n;

	do {
		n = link_poll(c, event, ACROSS_BATCH);
		for (int i = 0; i < n; i++)
			take_event(&event[i]);
		for (int i = 0; i < n; i++) {
			struct across_link *k = link_of(event[i].link);

			if (k && k->pull.must_look)
				pull_begin(k);
		}
	} while (n == ACROSS_BATCH && ++polls <= link_backlog(c) / ACROSS_BATCH);
	if (n == ACROSS_BATCH)
		link_again(c);
}

void hub_poll(void)
{
	for (int i = 0; i < ACROSS_CONTEXTS; i++)
		if (across_contexts[i].context)
			poll_context(across_contexts[i].context);
}
