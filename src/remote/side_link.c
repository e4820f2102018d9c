/* SPDX-License-Identifier: Apache-2.0 */
/* The link beside a link, for redirected bytes: it may fail, and is made again. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/reason.h"
#include "remote/parts.h"

/* Nothing is ever written there. */
#define WINDOW_BYTES 4096
uint32_t bulk_retry_ms = 1000;

struct across_bulk across_bulks[ACROSS_BULKS];

static void destroy(struct across_bulk *b)
{
	link_destroy(b->link);
	if (b->window)
		munmap(b->window, WINDOW_BYTES);
	*b = (struct across_bulk){0};
}

static struct across_bulk *make(struct across_link *k, uint32_t turn)
{
	struct across_bulk *b = NULL;
	void *window;

	for (int i = 0; i < ACROSS_BULKS && !b; i++)
		if (!across_bulks[i].link)
			b = &across_bulks[i];
	if (!b) {
		log_debug("no link for redirected bytes: %s (%s)",
			  reason_name(VD_REASON_FULL), reason_text(VD_REASON_FULL));
		return NULL;
	}
	window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*b = (struct across_bulk){.of = k, .turn = turn};
	if (window == MAP_FAILED)
		return NULL;
	b->window = window;
	madvise(window, WINDOW_BYTES, MADV_DONTFORK); /* nothing is read there, either */
	if (link_create_beside(k->link, window, WINDOW_BYTES, &b->link) < 0) {
		destroy(b);
		return NULL;
	}
	k->bulk = b;
	k->bulk_turn = turn;
	return b;
}

static void due(struct across_link *k, enum note_bulk_what what)
{
	k->bulk_due |= 1u << what;
}

static void retire(struct across_link *k)
{
	if (!k->bulk)
		return;
	destroy(k->bulk);
	k->bulk = NULL;
	k->bulk_due &= ~(1u << BULK_HELLO);
	k->bulk_not_before_ms = clock_coarse_ms() + bulk_retry_ms;
	redirect_break(k);
}

/* The peer must hear of it: what it has offered may be waiting for what we have posted. */
static void fail(struct across_link *k)
{
	log_debug("a link for redirected bytes has ended: %s",
		  link_error_text(link_error(k->bulk->link)));
	k->gone_turn = k->bulk->turn;
	retire(k);
	due(k, BULK_GONE);
	bulk_push(k);
}

/* At the end that makes them. */
static void begin(struct across_link *k)
{
	if (!k->bulk && make(k, k->bulk_turn + 1))
		due(k, BULK_HELLO);
}

bool bulk_is_up(struct across_link *k)
{
	if (k->bulk || clock_coarse_ms() < k->bulk_not_before_ms)
		return k->bulk && k->bulk->up;
	k->bulk_not_before_ms = clock_coarse_ms() + bulk_retry_ms;
	if (k->is_first)
		begin(k);
	else
		due(k, BULK_WANTED);
	bulk_push(k);
	return false;
}

static bool say(struct across_link *k, enum note_bulk_what what)
{
	struct note n = {.kind = NOTE_BULK, .bulk.what = what};

	if (what == BULK_GONE)
		n.bulk.turn = k->gone_turn;
	if (what == BULK_HELLO) {
		n.bulk.turn = k->bulk->turn;
		if (link_hello(k->bulk->link, n.bulk.hello) < 0)
			return true; /* it has failed: an event will say so */
	}
	return note_post(k, &n, sizeof(n), 0) == 0;
}

void bulk_push(struct across_link *k)
{
	if (!k->up || k->failed)
		return;
	for (uint32_t what = BULK_WANTED; what <= BULK_GONE; what++)
		if ((k->bulk_due & 1u << what) && say(k, what))
			k->bulk_due &= ~(1u << what);
}

/* Of the peer's window: reach.c reads there. */
static bool connect_to(struct across_bulk *b, const struct note_bulk *n)
{
	const char *why;

	return link_connect(b->link, n->hello, sizeof(n->hello), &why) == 0 &&
	       link_peer_window(b->link) == WINDOW_BYTES;
}

static void take_answer(struct across_link *k, const struct note_bulk *n)
{
	struct across_bulk *b = k->bulk;

	if (!b || b->turn != n->turn || b->up)
		return; /* an old one's */
	b->up = connect_to(b, n);
	if (!b->up)
		fail(k);
}

/* An honest peer waits for longer (bulk_is_up), and this one's clock may be ahead. */
static bool comes_too_soon(struct across_link *k)
{
	uint64_t now = clock_coarse_ms();

	if (k->bulk_hello_ms && now - k->bulk_hello_ms < bulk_retry_ms / 2)
		return true;
	k->bulk_hello_ms = now;
	return false;
}

/* Each costs a queue pair: a peer gets no more of them than one in a while. */
static void take_hello(struct across_link *k, const struct note_bulk *n)
{
	retire(k);
	if (!comes_too_soon(k) && make(k, n->turn) && connect_to(k->bulk, n)) {
		due(k, BULK_HELLO);
	} else {
		retire(k);
		k->gone_turn = n->turn;
		due(k, BULK_GONE);
	}
	bulk_push(k);
}

bool bulk_take(struct across_link *k, const struct note_bulk *n)
{
	switch (n->what) {
	case BULK_WANTED:
		if (!k->is_first)
			return false;
		if (clock_coarse_ms() >= k->bulk_not_before_ms)
			begin(k);
		bulk_push(k);
		return true;
	case BULK_HELLO:
		if (k->is_first)
			take_answer(k, n);
		else
			take_hello(k, n);
		return true;
	case BULK_GONE:
		if (k->bulk && k->bulk->turn == n->turn)
			retire(k);
		return true;
	default:
		return false;
	}
}

static void take_bytes(struct across_link *k, const struct link_event *e)
{
	uint32_t place = link_immediate_id(e->immediate);
	struct peer *a = place < ACROSS_PLACES ? k->at[place] : NULL;

	/* Of one that has ended, or was withdrawn: the peer will hear, or has. */
	if (!a || a == &across_lost ||
	    a->generation != link_immediate_generation(e->immediate))
		return;
	if (!redirect_landed(a, link_immediate_flags(e->immediate), e->bytes))
		hub_wrong(k, "more bytes than were offered room");
}

void bulk_event(const struct link_event *e)
{
	struct across_bulk *b = NULL;

	for (int i = 0; i < ACROSS_BULKS && !b; i++)
		if (across_bulks[i].link == e->link)
			b = &across_bulks[i];
	if (!b)
		return;
	if (e->type == LINK_EVENT_UP)
		b->up = true;
	else if (e->type == LINK_EVENT_IMMEDIATE)
		take_bytes(b->of, e);
	else if (e->type == LINK_EVENT_FAILED || e->type == LINK_EVENT_CLOSED)
		fail(b->of);
}

void bulk_give_up(struct across_link *k)
{
	if (k->bulk)
		fail(k);
}

void bulk_drop(struct across_link *k)
{
	retire(k);
	k->bulk_due = 0;
}
