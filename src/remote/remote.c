/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that has met its peer: attached, pushed, ended. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/real.h"
#include "base/sections.h"
#include "remote/parts.h"

/* Nobody else tells a thread that drains what another has taken from the descriptor. */
#define DRAIN_NAP_MS 2
/* A peer that is stopped, with all credit in its hands, is not waited for any longer. */
#define FLUSH_MS 3000
/*
 * At the end of the process: what is under way is waited for until the link has failed, which is earlier
 * (link_watch.c). A peer on a host that is slow loses its bytes otherwise, which TCP would bring.
 */
#define DRAIN_MS 15000
/* What waits for the peer's program to give credit, which may never do so. */
#define DRAIN_OWED_MS 3000

uint8_t *across_in_data(struct peer *a)
{
	return a->link->window + place_offset(a->place);
}

/* At the same place in our own memory as in the peer's, of which it has told. */
uint8_t *across_out_data(struct peer *a)
{
	return a->link->staging + place_offset(a->place);
}

int across_descriptor(struct peer *a)
{
	struct across_guard g = across_enter();
	int fd = -EPIPE;

	if (a->link && a->link->link)
		fd = LOW_MADE(fds_adopt, kernel_dup(link_fd(a->link->context->context)));
	across_leave(g);
	return fd;
}

int across_shared_descriptor(struct peer *a)
{
	struct across_guard g = across_enter();
	int fd = a->link ? link_fd(a->link->context->context) : -1;

	across_leave(g);
	return fd;
}

void across_attach(struct peer *a, struct wire *wire, enum wire_direction out,
		   const struct across_owner *owner)
{
	struct across_guard g = across_enter();

	a->wire = wire;
	a->out = &wire->dir[out];
	a->in = &wire->dir[1 - out];
	a->owner = *owner;
	cache_tell = owner->pinned;
	ring_rx_init(&a->reader);
	ring_tx_init(&a->arrivals, 0);
	a->rung_rx = a->rung_tx = 0;
	note_apply_all(a);
	note_push(a);
	if (!a->link || a->link->failed)
		owner->lost(owner->owner);
	across_leave(g);
}

void across_nap(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	kernel_poll(&pfd, 1, DRAIN_NAP_MS);
}

/* The peer is to be rung each time: what it has armed is known on its host alone. */
static void ask_again(struct peer *a)
{
	uint32_t rx, tx;

	if (!a->wire)
		return;
	rx = load_relaxed(&a->out->rx_armed) + 1;
	tx = load_relaxed(&a->in->tx_armed) + 1;
	store_relaxed(&a->out->rx_armed, rx ? rx : 1);
	store_relaxed(&a->in->tx_armed, tx ? tx : 1);
	/* Before the look at what is to be told: who stores that looks at these after it. */
	fence_full();
}

/* The peer must hear of what is owed though nobody may poll here again. What waits for a verdict is
 * waited for elsewhere; and who has not been heard yet sends over TCP. */
static bool must_tell(const struct peer *a)
{
	const struct across_link *k = a->link;

	return a->untold && k && k->link && k->up && !k->failed && a->has_peer &&
	       a->said && !a->last_sent && a->grant.state != GRANT_USED &&
	       !a->grant.is_held;
}

/* Which connection's: the handle may be another's meanwhile. */
struct telling {
	const struct across_link *link;
	uint32_t place, generation;
};

static struct telling telling(const struct peer *a)
{
	return (struct telling){a->link, a->place, a->generation};
}

static bool is_telling(const struct peer *a, const struct telling *t)
{
	return a->link == t->link && a->place == t->place &&
	       a->generation == t->generation && must_tell(a);
}

/* Until all is told, by notes or aside: that waits for room in the queue, and for bytes that were
 * posted, and so for the devices alone. */
static void tell_surely(struct peer *a, struct telling t)
{
	uint64_t end_ms = clock_coarse_ms() + FLUSH_MS;
	struct across_guard g;
	bool done;
	int fd = -1;

	do {
		g = across_enter();
		hub_poll();
		if (is_telling(a, &t))
			note_push(a);
		done = !is_telling(a, &t);
		if (!done) {
			link_drain(a->link->link);
			fd = link_fd(a->link->context->context);
		}
		across_leave(g);
		if (!done)
			across_nap(fd);
	} while (!done && clock_coarse_ms() < end_ms);
}

/* Whoever only sends polls by this alone, before there is none: without credit it is told in a longer way. */
static bool wants_credit(const struct peer *a)
{
	const struct across_link *k = a->link;

	return k && k->link && k->up && link_credit(k->link) < ACROSS_CREDITS / 2;
}

void across_push(struct peer *a)
{
	struct across_guard g = across_enter();
	struct telling t;
	bool owes;

	ask_again(a);
	if (wants_credit(a))
		hub_poll();
	note_push(a);
	owes = must_tell(a);
	t = telling(a);
	across_leave(g);
	if (owes)
		tell_surely(a, t);
}

void across_progress(void)
{
	struct across_guard g;

	/* Somebody else does it. */
	if (!across_try(&g))
		return;
	hub_poll();
	across_leave(g);
}

void across_catch_up(void)
{
	struct across_guard g = across_enter();

	hub_poll();
	across_leave(g);
}

void across_answer_locked(bool brief)
{
	for (int i = 0; i < ACROSS_CONTEXTS; i++) {
		struct link_context *c = across_contexts[i].context;

		if (!c)
			continue;
		link_answer(c, brief);
		link_arm(c);
	}
	hub_poll();
}

void across_answer(bool brief)
{
	struct across_guard g = across_enter();

	across_answer_locked(brief);
	across_leave(g);
}

/* 1 when all is in the peer's memory, 0 not yet, -EPIPE. */
static int drain_step(struct peer *a)
{
	int r;

	hub_poll();
	a->grant.is_held = false;
	note_push(a);
	if (!a->link || a->link->failed || !a->link->link)
		return -EPIPE;
	r = link_drain(a->link->link);
	if (r != 1 || !a->owes)
		return r;
	/* Without credit nothing is under way that could fail. */
	link_probe(a->link->link);
	return 0;
}

int across_flush(struct peer *a)
{
	uint64_t end_ms = clock_coarse_ms() + FLUSH_MS;

	for (;;) {
		struct across_guard g = across_enter();
		int fd = -1, r = drain_step(a);

		if (r == 0)
			fd = link_fd(a->link->context->context);
		across_leave(g);
		if (r != 0)
			return r < 0 ? r : 0;
		if (clock_coarse_ms() >= end_ms)
			return -ETIMEDOUT;
		across_nap(fd);
	}
}

bool across_is_over(struct peer *a)
{
	struct across_guard g = across_enter();
	bool over = a->last_came || !a->link || a->link->failed;

	across_leave(g);
	return over;
}

bool across_may_use(struct peer *a)
{
	struct across_guard g = across_enter();
	struct across_link *k = a->link;
	bool may = k && k->link && !k->failed && a->said && !a->last_came &&
		   link_completed(k->link) >= a->first_at;

	across_leave(g);
	return may;
}

void across_probe(struct peer *a)
{
	struct across_guard g = across_enter();

	if (a->link && a->link->up)
		link_probe(a->link->link);
	hub_poll();
	across_leave(g);
}

/* What is told from now on is what stands in a copy: the connection's memory goes. */
static void keep_words(struct peer *a)
{
	bool connector = a->wire && a->out == &a->wire->dir[WIRE_FROM_CONNECTOR];

	if (!a->wire)
		return;
	memcpy(&a->kept[connector], a->out, sizeof(a->kept[0]));
	memcpy(&a->kept[!connector], a->in, sizeof(a->kept[0]));
	a->out = &a->kept[connector];
	a->in = &a->kept[!connector];
}

static void end(struct peer *a)
{
	a->owner = (struct across_owner){0};
	a->grant.is_held = false;
	redirect_end(a);
	reach_end(a);
	keep_words(a);
	a->state = ACROSS_ENDED;
	if (a->request != 0 && a->link && !a->has_peer)
		return; /* the answer may still come: meet.c */
	note_push(a);
	hub_settle(a);
}

void across_end(struct peer *a)
{
	struct across_guard g = across_enter();

	struct telling t;
	bool owes;

	meet_end(a);
	end(a);
	owes = must_tell(a);
	t = telling(a);
	across_leave(g);
	if (owes)
		tell_surely(a, t);
}

/* What is not in the peers' memory yet. */
enum undrained { UNDRAINED_NOTHING, UNDRAINED_OWED, UNDRAINED_UNDER_WAY };

static enum undrained look_undrained(void)
{
	bool owed = false, under_way = false;

	hub_poll();
	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_link *k = &across_links[i];

		if (k->link && k->up && link_drain(k->link) == 0)
			under_way = true;
	}
	for (int i = 0; i < across_used && !under_way && !owed; i++) {
		struct peer *a = &across_pool[i];

		if (a->state == ACROSS_FREE || !a->link || !a->link->up)
			continue;
		if (a->owes)
			note_push(a);
		owed = a->owes;
	}
	if (under_way)
		return UNDRAINED_UNDER_WAY;
	return owed ? UNDRAINED_OWED : UNDRAINED_NOTHING;
}

FORK_CODE void across_drain(void)
{
	uint64_t begin_ms = clock_coarse_ms();

	if (!across_used) /* racy: who takes the first one now comes too late to be waited for */
		return;
	for (;;) {
		struct across_guard g = across_enter();
		enum undrained left = look_undrained();
		uint64_t most = left == UNDRAINED_OWED ? DRAIN_OWED_MS : DRAIN_MS;

		across_leave(g);
		if (left == UNDRAINED_NOTHING || clock_coarse_ms() - begin_ms >= most)
			return;
		across_nap(-1);
	}
}
