/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that the device takes out of the sender's program memory, and the ring never has. */
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/peer.h"
#include "remote/parts.h"

/*
 * docs/rdma.md, "Zero copy", has the rules. The ring gives room for them, and is to have them only
 * where it turns out that they must go by it. Until then the call that sends them has not returned.
 */
static _Thread_local struct peer *lender __attribute__((tls_model("initial-exec")));
static uint64_t last_id;

/* All that was ever sent is at the peer, which waits for what comes next. */
static bool may_lend(struct peer *a, const struct ring_tx *tx)
{
	const struct across_grant *g = &a->grant;

	return g->state == GRANT_OPEN && g->is_held && !a->lent.is_registered &&
	       a->link && !a->link->failed && a->wire && !redirect_comes_first(a) &&
	       bulk_is_up(a->link) && ring_rx_avail(&a->reader, a->out, SIZE_MAX) == 0 &&
	       a->reader.consumed == g->offer.position &&
	       a->reader.turn_passed == g->offer.turn &&
	       tx->produced == g->offer.position && tx->turn_seq == g->offer.turn;
}

static uint32_t how_many(const struct peer *a, struct ring_tx *tx, size_t bytes)
{
	const struct note_offer *o = &a->grant.offer;
	uint32_t most = link_write_max(a->link->bulk->link);
	int64_t room;

	if (bytes > o->bytes)
		bytes = o->bytes;
	if (bytes > most)
		bytes = most;
	room = ring_tx_room(tx, a->out, bytes);
	if (room < (int64_t)bytes)
		bytes = room < 0 ? 0 : (size_t)room;
	return bytes < o->least ? 0 : (uint32_t)bytes;
}

static bool post(struct peer *a, const void *from, uint32_t bytes)
{
	struct across_lent *l = &a->lent;

	if (cache_allow(a->link, (void *)(uintptr_t)from, bytes, 0, &l->memory) < 0)
		return false;
	if (!redirect_write(a, from, bytes, &l->memory, LINK_SIGNAL)) {
		link_unregister(a->link->link, &l->memory);
		return false;
	}
	l->is_registered = true;
	l->turn = a->link->bulk->turn;
	l->posted = link_posted(a->link->bulk->link);
	return true;
}

static uint32_t lend(struct peer *a, struct ring_tx *tx, const void *from, size_t bytes)
{
	struct across_lent *l = &a->lent;
	uint32_t n = may_lend(a, tx) ? how_many(a, tx, bytes) : 0;

	if (n == 0 || !post(a, from, n))
		return 0;
	ring_tx_commit(tx, a->out, n, false);
	ring_rx_avail(&a->reader, a->out, SIZE_MAX);
	l->from = from;
	l->id = peer_lending = ++last_id;
	lender = a;
	return n;
}

uint32_t across_lend(struct peer *a, struct ring_tx *tx, const void *from, size_t bytes)
{
	struct across_guard g = across_enter();
	uint32_t n = lend(a, tx, from, bytes);

	across_leave(g);
	return n;
}

/* The ring gets what it was to have. False: the memory has gone in the middle of the call, or a process
 * that shares the connection lies about the ring. */
static bool fill(struct peer *a)
{
	struct ring_span span;

	for (size_t done = 0; done < a->grant.bytes; done += span.len) {
		note_span(a, done, &span);
		if (span.len > a->grant.bytes - done)
			span.len = a->grant.bytes - done;
		if (span.len == 0 ||
		    crit_copy(span.data, a->lent.from + done, span.len) < 0)
			return false;
	}
	return true;
}

static bool is_read(const struct peer *a)
{
	const struct across_bulk *b = a->link->bulk;

	return !b || b->turn != a->lent.turn || link_completed(b->link) >= a->lent.posted;
}

void zerocopy_landed(struct peer *a)
{
	a->lent.from = NULL;
}

void zerocopy_end(struct peer *a)
{
	struct across_lent *l = &a->lent;

	if (!l->is_registered)
		return;
	if (!is_read(a))
		bulk_give_up(a->link);
	/* Whatever was posted has been read, or never is. */
	link_unregister(a->link->link, &l->memory);
	l->is_registered = false;
	/* Nothing else would be right: the ring has a hole, and nobody its bytes. */
	if (l->from && !fill(a))
		link_abort(a->link->link);
	l->from = NULL;
}

static bool is_mine(void)
{
	return lender && lender->lent.id == peer_lending;
}

bool zerocopy_is_read(struct peer *a)
{
	if (!a->lent.is_registered || a->lent.id != peer_lending)
		return true;
	if (a->link->failed || is_read(a))
		zerocopy_end(a);
	return !a->lent.is_registered;
}

void across_lend_end(void)
{
	struct across_guard g = across_enter();

	if (is_mine())
		zerocopy_end(lender);
	peer_lending = 0;
	lender = NULL;
	across_leave(g);
}

FORK_CODE void zerocopy_forked(void)
{
	if (lender == NULL && peer_lending == 0)
		return;
	lender = NULL;
	peer_lending = 0;
}
