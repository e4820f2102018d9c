/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and notifications that are told in memory: on the sender's board, which the receiver looks at. */
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

_Static_assert(BOARD_ENTRIES == MESSAGES_MOST + FRAME_CREDITS, "an entry for each");

static uint32_t get(const _Atomic uint32_t *word)
{
	return load_relaxed(word);
}

static void set(_Atomic uint32_t *word, uint32_t value)
{
	store_relaxed(word, value);
}

void board_begin(struct board *b)
{
	/* Before the peer has it. */
	set(&b->wants, 1);
}

/* ---- the sender, under mu ---- */

bool board_may_tell(const vd_conn *c)
{
	return c->outbox.is_mapped && c->inbox.board;
}

/* What an entry says. */
struct told {
	uint32_t at, len, token, id, tag;
};

/* The entry is the caller's alone. */
static void tell(vd_conn *c, const struct told *t)
{
	struct outbox *o = &c->outbox;
	struct board_entry *e = &o->board->entries[o->told % BOARD_ENTRIES];

	/* Relaxed, all: the number comes behind them. What calls of this thread have brought about is in the
	 * count and in the token. */
	set(&e->at, t->at);
	set(&e->len, t->len);
	set(&e->after, get(&c->frames_sent));
	set(&e->token, get(&c->inbox.released));
	set(&e->id, t->id);
	set(&e->tag, t->tag);
	/* Release: the bytes, and the entry, are there for whoever sees the number. */
	store_release(&e->number, o->told + 1);
}

/*
 * Before any lock is taken: an atomic step would wait until the message's bytes have left for the other
 * processor, and only then would the entry follow. Nobody else tells anything while there is a reservation.
 */
void board_tell(vd_conn *c, uint32_t len)
{
	const struct told t = {.at = c->outbox.at, .len = len};

	tell(c, &t);
}

void board_told(vd_conn *c)
{
	c->outbox.told++;
	/* Pairs with that of board_watch: the peer sees the number, or we see that it is to be waked. */
	fence_full();
	if (get(&c->inbox.board->wants))
		c->owed.look = true;
}

bool board_note(vd_conn *c, uint32_t id, uint64_t offset, uint64_t len, uint32_t tag)
{
	struct outbox *o = &c->outbox;
	const struct told t = {
		.at = (uint32_t)offset, .len = (uint32_t)len, .id = id, .tag = tag};

	if (!board_may_tell(c) || o->is_busy || c->error || lend_is_due(c) ||
	    offset > UINT32_MAX || len > UINT32_MAX ||
	    (o->told > 0 && get(&c->inbox.board->wants)))
		return false;
	tell(c, &t);
	board_told(c);
	return true;
}

uint32_t board_released(const vd_conn *c)
{
	/* Acquire: the peer looks at those messages no more. */
	return board_may_tell(c) ? load_acquire(&c->inbox.board->released)
				 : c->outbox.freed;
}

/* ---- the receiver, under mu ---- */

void board_release(vd_conn *c)
{
	/* Release: our loads of the messages come before the licence to overwrite them. */
	if (c->outbox.board)
		store_release(&c->outbox.board->released, get(&c->inbox.released));
}

static const struct board_entry *next_entry(const struct inbox *i)
{
	return &i->board->entries[i->told % BOARD_ENTRIES];
}

/* The next one is told there, and what comes before it has come. The peer may write to the entry
 * at any moment: it is read once. */
static bool take_entry(vd_conn *c, struct told *out)
{
	const struct board_entry *e = next_entry(&c->inbox);

	/* Acquire: pairs with the release in board_tell. */
	if (load_acquire(&e->number) != c->inbox.told + 1)
		return false;
	*out = (struct told){get(&e->at), get(&e->len), get(&e->token), get(&e->id),
			     get(&e->tag)};
	return (int32_t)(get(&e->after) - c->frames_come) <= 0;
}

static int carry_out(vd_conn *c, const struct told *t)
{
	return t->id ? peer_placed(c, t->id, t->tag, t->at, t->len)
		     : message_told(c, t->at, t->len, t->token);
}

int board_drain(vd_conn *c)
{
	struct inbox *i = &c->inbox;
	struct told t;

	while (i->board && !i->is_wrong && take_entry(c, &t)) {
		if (carry_out(c, &t) < 0)
			i->is_wrong = true;
		else
			i->told++;
	}
	return i->is_wrong ? -EPROTO : 0;
}

bool message_may_spin(const vd_conn *c)
{
	const struct inbox *i = &c->inbox;

	/* Something comes that way; somebody waits for it; and no descriptor is to show it. */
	return i->told > 0 && ((i->is_busy && !i->is_held) || c->event_waits > 0) &&
	       c->event_fd < 0 && !c->error && c->outbox.board;
}

const _Atomic uint32_t *board_hush(vd_conn *c, uint32_t *number)
{
	struct inbox *i = &c->inbox;

	if (!i->is_quiet) {
		i->is_quiet = true;
		/* Relaxed: a LOOK too many does no harm. */
		set(&c->outbox.board->wants, 0);
	}
	*number = i->told + 1;
	return &next_entry(i)->number;
}

void board_heard(vd_conn *c)
{
	struct inbox *i = &c->inbox;

	i->is_near = get(&next_entry(i)->number) == i->told + 1;
	message_drain(c);
}

bool message_spin(vd_conn *c)
{
	uint32_t number;
	const _Atomic uint32_t *word = board_hush(c, &number);
	bool has_some;

	pthread_mutex_unlock(&c->mu);
	has_some = door->await_words(&c->fd, &word, &number, 1) == 0;
	pthread_mutex_lock(&c->mu);
	board_heard(c);
	return has_some;
}

/* So often it is looked for before the library goes to all the trouble of a wait. */
#define GLANCES 64

/* Without mu: until the entry tells of that message, or not for long. Its bytes are asked for at once:
 * they are on their way while locks are taken. */
static void glance(const struct board_entry *e, uint32_t number, const uint8_t *arena)
{
	for (int k = 0; k < GLANCES; k++) {
		if (load_acquire(&e->number) == number) {
			if (!get(&e->id))
				__builtin_prefetch(arena +
						   (size_t)(get(&e->at) % MESSAGES_MOST) *
							   FRAME_GRANULE);
			break;
		}
		__builtin_ia32_pause();
	}
}

void board_look(vd_conn *c, bool (*is_there)(vd_conn *, const void *), int timeout_ms)
{
	struct inbox *i = &c->inbox;
	const struct board_entry *e;
	uint32_t number;

	message_drain(c);
	/* The service thread takes the connection back when there is no such call for a while: only then
	 * may we look without its knowing. */
	if (is_there(c, NULL) || timeout_ms == 0 || !i->is_quiet || !i->is_near ||
	    c->mode != CONN_CALLED || !message_may_spin(c))
		return;
	c->calls++;
	e = next_entry(i);
	number = i->told + 1;
	pthread_mutex_unlock(&c->mu);
	glance(e, number, i->map);
	pthread_mutex_lock(&c->mu);
	message_drain(c);
}

void board_watch(vd_conn *c)
{
	struct inbox *i = &c->inbox;

	if (i->is_quiet) {
		i->is_quiet = false;
		set(&c->outbox.board->wants, 1);
		/* Pairs with that of board_told. */
		fence_full();
	}
	message_drain(c);
}
