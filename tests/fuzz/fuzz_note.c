/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of what a hostile peer on another host writes to its window of ours, and tells us: notes,
 * bytes, offers and verdicts, words told aside: remote/note.c, link_table.c, pull.c, redirect.c, side_link.c,
 * outbox.c, on the fake interconnect. It knows what P's end knows, and P's library goes on beside it.
 * A connection of two others loses nothing; nobody writes beside what was offered to him.
 * Not reached: signals, forks, more than one thread (offers belong to one), and calls that wait for
 * the peer's device (across_flush, across_awaits). */
#include "conn/peer.h"
#include "fuzz/hosts.h"

enum { Q = 1, P = 2, THIRD = 3 };
enum { STEPS_MOST = 48, CHANGES_MOST = 10, ROOM = 40000, GUARD = 64 };
/* The first byte of an input: two others have a connection; P and Q have a link for offers. */
enum { OTHERS = 1, BULK = 2 };
static const char bytes[] = "these are others'";

enum step {
	NOTE,  /* P's end says: kind, then changes of the note */
	WRITE, /* and writes: where (3 bytes), how much, with which immediate (4 bytes) */
	BYTES, /* and writes bytes that tell of themselves */
	ASIDE, /* and tells aside: changes */
	TIME,  /* passes */
	PEER,  /* P's library says what is new */
	SEND,  /* Q sends, */
	TAKE,  /* takes, */
	OFFER, /* offers memory, */
	WITHDRAW,  /* ends that, */
	HOLD,	   /* waits to write where P has offered, and does so */
	PEER_HOLD, /* the same of P's library */
	MANY,	   /* Q sends that often */
	AWAY,	   /* P's process is in no call, or in one again */
	LEND,	   /* Q lends the device so much of its memory, */
	LENT,	   /* and takes it back */
	STEPS
};

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t seeds[][48] = {
		{0,   3, NOTE, NOTE_LONG, 0,	100, 0,	   TAKE, 50,   SEND,
		 200, 0, TIME, 20,	  PEER, 9,   TIME, 20,	 TAKE, 255},
		{OTHERS,     4, BYTES, 200, 1, TIME, 9,	   TAKE, 200,  NOTE,
		 NOTE_SHORT, 0, 9,     1,   8, 5,    TIME, 9,	 TAKE, 9},
		{0, 5,	  OFFER, 255,	   PEER, 100,  TIME, 90,   BYTES, 255,
		 3, TIME, 50,	 WITHDRAW, 1,	 TIME, 90,   SEND, 9,	  9},
		{0,    6,  NOTE, NOTE_OFFER,   0, 0, 1, 28,   1, TIME, 90, HOLD, 255, 9,
		 TIME, 90, NOTE, NOTE_VERDICT, 0, 0, 0, TIME, 30},
		{0, 7, ASIDE, 0, 1, TIME, 60, ASIDE, 1, 2, 3, 1, TIME, 60, TAKE, 9},
		{OTHERS, 8,    WRITE,	  0,	0,	    0, 60,   1,	 0,    0,
		 0,	 NOTE, NOTE_LAST, 0,	0,	    0, TIME, 50, TAKE, 1,
		 SEND,	 1,    1,	  NOTE, NOTE_SHORT, 0, 0,    0,	 TIME, 50},
		{0,  9,	   NOTE,      NOTE_BULK, 0, 0, 2, 8, 1,	 12, 1,	   TIME,
		 90, NOTE, NOTE_BULK, 0,	 0, 2, 8, 2, 12, 1,  TIME, 90},
		{BULK,	   10, OFFER, 255, TIME, 50, PEER_HOLD, 0, 20,	 TIME, 99,
		 WITHDRAW, 1,  TIME,  99,  PEER, 9,  TIME,	9, TAKE, 99},
		{BULK, 11, NOTE, NOTE_OFFER,   200, 1,	0, TIME, 99, HOLD, 0, 2,
		 TIME, 99, NOTE, NOTE_VERDICT, 0,   32, 0, TIME, 99, SEND, 9, 1},
		{0,  12,   AWAY, MANY,	255, MANY, 50,	 TIME, 99,   SEND, 0,
		 50, TIME, 50,	 ASIDE, 0,   0,	   TIME, 9,    AWAY, TIME, 255},
		{BULK, 13, OFFER, 100, TIME, 99, AWAY, MANY, 140, WITHDRAW, 1, TIME, 50,
		 AWAY, TIME, 200},
		{BULK, 14,   NOTE, NOTE_OFFER, 255,	     1, 0, TIME, 99,   LEND, 255,
		 20,   TIME, 99,   NOTE,       NOTE_VERDICT, 0, 0, 0,	 TIME, 30,   LENT,
		 SEND, 9,    1},
		{BULK, 15,   PEER, 9,	 TIME, 50,	     TAKE, 9,  NOTE, NOTE_OFFER,
		 200,  1,    0,	   TIME, 50,   LEND,	     100,  1,  SEND, 50,
		 0,    LENT, TIME, 99,	 NOTE, NOTE_VERDICT, 0,	   16, 0,    TIME,
		 9},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

static struct fuzz_bytes input;
static struct rig_end p, q, others[2];
static struct ring_tx q_tx;
static struct ring_rx q_rx;
static uint8_t room[GUARD + ROOM + GUARD];
static const uint8_t lent[ROOM];
static bool is_broken; /* of q: its ring lies */
static bool is_away;   /* of p */

static uint8_t next(void)
{
	return (uint8_t)fuzz_number(&input, 1);
}

/* ---- what P's process does to harm Q ---- */

static void change(void *at, size_t size)
{
	for (unsigned n = next() % CHANGES_MOST; n > 0; n--) {
		size_t offset = next() % size;

		((uint8_t *)at)[offset] = (uint8_t)(((uint8_t *)at)[offset] + next());
	}
}

static bool can_write(void)
{
	const struct across_link *k = p.a->link;

	return k && k->link && k->up && !k->failed;
}

/* It says the next thing, which is right but for the changes. */
static void note(void)
{
	struct note n = {.kind = next() % (NOTE_LOOK + 2),
			 .generation = p.a->peer_generation,
			 .place = (uint8_t)p.a->peer_place};
	uint32_t more = next() * 16u, consumed = next() * 16u;

	switch (n.kind) {
	case NOTE_OFFER:
		n.offer = (struct note_offer){.position = p.a->sent.consumed,
					      .address = (uintptr_t)p.a->link->window,
					      .key = p.a->link->memory.peer_key,
					      .number = 1,
					      .bytes = more,
					      .least = consumed};
		break;
	case NOTE_VERDICT:
		n.verdict.number = q.a->offer.number + more;
		n.verdict.position = p.a->sent.consumed + consumed;
		break;
	case NOTE_BULK:
		n.bulk.what = more / 16;
		n.bulk.turn = consumed / 16;
		break;
	default:
		n.words = p.a->sent;
		n.words.produced += more;
		n.words.consumed += consumed;
	}
	change(&n, sizeof(n));
	note_post(p.a->link, &n, sizeof(n), 0);
}

static void write_at(uint64_t at, uint32_t len, bool with, uint32_t immediate)
{
	const struct link_write w = {.from = p.a->link->staging + place_offset(0),
				     .bytes = len,
				     .memory = &p.a->link->memory,
				     .flags = with ? LINK_IMMEDIATE : 0,
				     .at = at,
				     .immediate = immediate};

	fuzz_take(&input, p.a->link->staging + place_offset(0), len < 32 ? len : 32);
	link_post(p.a->link->link, &w);
}

static void write_anywhere(void)
{
	uint64_t at = fuzz_number(&input, 3) % ACROSS_WINDOW_BYTES;
	uint32_t len = next(), immediate;

	if (len > ACROSS_WINDOW_BYTES - at)
		len = (uint32_t)(ACROSS_WINDOW_BYTES - at);
	immediate = (uint32_t)fuzz_number(&input, 4);
	write_at(at, len, immediate != 0, immediate);
}

static void write_bytes(void)
{
	uint32_t len = next() * 8u, flags = next();

	write_at(place_offset(p.a->peer_place), len, true,
		 link_immediate(p.a->peer_place, p.a->peer_generation, flags));
}

/* With a check that is right, mostly. */
static void tell_aside(void)
{
	struct told *at = (struct told *)(void *)(p.a->link->window + ACROSS_TOLD_AT);
	bool is_right = next() % 4 != 3;
	struct told t = {.number = p.a->link->told + 1 + next(),
			 .sent = (uint32_t)link_immediates(p.a->link->link),
			 .generation = p.a->peer_generation,
			 .key = p.a->link->memory.peer_key,
			 .base = (uintptr_t)across_out_data(p.a),
			 .from = p.a->sent.produced,
			 .pieces = 2,
			 .piece = {{0, 100}, {WIRE_AREA0_BYTES, 50}},
			 .words = p.a->sent};
	struct note n = {.kind = NOTE_LOOK};

	t.words.produced += 150;
	change(&t, sizeof(t));
	if (is_right)
		t.check = aside_check(&t);
	at[p.a->peer_place % ACROSS_PLACES] = t;
	note_post(p.a->link, &n, offsetof(struct note, words), 0);
}

/* ---- what P's library does, and Q's ---- */

static void push(struct rig_end *e)
{
	struct across_guard g = across_enter();

	note_push(e->a);
	across_leave(g);
}

static void put(struct rig_end *e, struct ring_tx *tx, size_t len)
{
	struct ring_span span;

	if (!e->a->link || !e->a->link->link)
		return;
	while (len > 0) {
		if (ring_tx_span(tx, e->a->out, across_out_data(e->a), len, &span) < 0 ||
		    (span.len == 0 && !ring_tx_grow(tx, e->a->out)))
			break;
		if (span.len > len)
			span.len = len;
		memset(span.data, 'v', span.len);
		ring_tx_commit(tx, e->a->out, span.len, false);
		len -= span.len;
	}
	push(e);
}

static void peer_sends(size_t len)
{
	struct ring_tx tx;

	/* Its library has no more of it than the first area. */
	ring_tx_init(&tx, 0);
	tx.produced = tx.pushed = p.a->out->produced;
	tx.credit = p.a->out->consumed;
	put(&p, &tx, len);
}

static void take(size_t len)
{
	const uint8_t *data;
	int64_t avail;

	if (is_broken || !q.a->link || !q.a->link->link)
		return;
	data = across_in_data(q.a);
	avail = ring_rx_avail(&q_rx, q.a->in, len);
	is_broken = avail < 0;
	for (size_t done = 0; (int64_t)done < avail && done < len;) {
		struct ring_span span;

		ring_rx_span(&q_rx, (uint8_t *)(uintptr_t)data, 0, &span);
		FUZZ_CHECK(span.len > 0 && q_rx.area <= ACROSS_AREA_LIMIT);
		FUZZ_CHECK(span.data >= data &&
			   span.data + span.len <= data + ACROSS_PLACE_BYTES);
		if (span.len > len - done)
			span.len = len - done;
		ring_rx_commit(&q_rx, q.a->in, span.len);
		done += span.len;
	}
	push(&q);
}

static void offer(size_t len)
{
	const struct across_room r = {.start = room + GUARD,
				      .bytes = (uint32_t)(len * ROOM / 255),
				      .least = 1,
				      .position = q_rx.consumed,
				      .turn = q_rx.turn_passed};

	if (!peer_offering && len > 0)
		across_offer(q.a, &r);
}

static void withdraw(bool takes)
{
	uint32_t landed = peer_offering ? across_offer_end(takes) : 0;

	FUZZ_CHECK(landed <= ROOM);
	if (landed) {
		q_rx.seen = q_rx.consumed;
		ring_rx_bypass(&q_rx, landed);
	}
	for (size_t i = 0; i < GUARD; i++)
		FUZZ_CHECK(room[i] == 'g' && room[GUARD + ROOM + i] == 'g');
}

/* As across_release does it, but for the wait. */
static void release(struct rig_end *e)
{
	struct across_guard g = across_enter();

	e->a->grant.is_ready = e->a->grant.is_held;
	e->a->grant.is_held = false;
	note_push(e->a);
	e->a->grant.is_ready = false;
	across_leave(g);
}

static void lend(size_t len)
{
	uint32_t n;

	across_hold(q.a);
	n = across_lend(q.a, &q_tx, lent, len);
	FUZZ_CHECK(n <= len && n <= q.a->grant.offer.bytes);
	release(&q);
}

static void take_back(void)
{
	across_lend_end();
	FUZZ_CHECK(!q.a->lent.is_registered && !peer_lending);
}

static void many(unsigned times)
{
	while (times-- > 0)
		put(&q, &q_tx, 170);
}

static void leave_or_come(void)
{
	is_away = !is_away;
	fake_leave(across_contexts[P - 1].context, is_away);
}

static void pass_time(unsigned steps)
{
	struct across_guard g = across_enter();

	rig_pass_time(steps);
	across_leave(g);
}

static void attack(enum step s)
{
	struct across_guard g = across_enter();

	if (!can_write())
		;
	else if (s == NOTE)
		note();
	else if (s == WRITE)
		write_anywhere();
	else if (s == BYTES)
		write_bytes();
	else
		tell_aside();
	across_leave(g);
}

static void step(void)
{
	enum step s = next() % STEPS;

	switch (s) {
	case NOTE:
	case WRITE:
	case BYTES:
	case ASIDE:
		attack(s);
		break;
	case TIME:
		pass_time(next());
		break;
	case PEER:
		peer_sends(next() * 16u);
		break;
	case SEND:
		put(&q, &q_tx, fuzz_number(&input, 2));
		break;
	case TAKE:
		take(next() * 64u);
		break;
	case OFFER:
		offer(next());
		break;
	case WITHDRAW:
		withdraw(next() % 2);
		break;
	case HOLD:
		across_hold(q.a);
		put(&q, &q_tx, fuzz_number(&input, 2) % 20000);
		release(&q);
		break;
	case PEER_HOLD:
		across_hold(p.a);
		peer_sends(fuzz_number(&input, 2) % 16000);
		release(&p);
		break;
	case MANY:
		many(next());
		break;
	case LEND:
		lend(fuzz_number(&input, 2) % ROOM);
		break;
	case LENT:
		take_back();
		break;
	default:
		leave_or_come();
	}
}

/* ---- all together ---- */

static void join(struct rig_end *connected, uint8_t from, struct rig_end *accepted,
		 uint8_t to)
{
	struct name_end at_to = rig_at(to, 5432), at_from = rig_at(from, 1000);

	rig_open(connected, ACROSS_CONNECTED, at_from, at_to);
	rig_open(accepted, ACROSS_ACCEPTED, at_to, at_from);
	rig_meet(connected, accepted);
	FUZZ_CHECK(connected->result == 1 && accepted->result == 1);
}

/* The link beside theirs, for redirected bytes. */
static void bring_bulk_up(void)
{
	bool is_up = false;

	for (int i = 0; i < 20 && !is_up; i++) {
		struct across_guard g = across_enter();

		bool theirs = bulk_is_up(q.a->link);
		is_up = bulk_is_up(p.a->link) && theirs; /* both are looked at */
		across_leave(g);
		rig_steps();
	}
	FUZZ_CHECK(is_up);
}

/* P dies: its library would wait for an answer to what was never said. */
static void finish(void)
{
	struct across_guard g = across_enter();

	if (p.a->link && p.a->link->link)
		link_abort(p.a->link->link);
	across_leave(g);
	rig_steps();
	withdraw(true);
	take_back();
	rig_close(&q);
	rig_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool with_others;
	uint8_t flags;

	input = (struct fuzz_bytes){data, size};
	flags = next();
	with_others = flags & OTHERS;
	bulk_retry_ms = 0;
	hosts_begin(next());
	join(&p, P, &q, Q);
	if (with_others)
		join(&others[0], THIRD, &others[1], Q);
	ring_tx_init(&q_tx, ACROSS_AREA_LIMIT);
	ring_rx_init(&q_rx);
	is_broken = is_away = false;
	memset(room, 'g', sizeof(room));
	if (flags & BULK)
		bring_bulk_up();
	for (int i = 0; i < STEPS_MOST && input.left > 0; i++)
		step();
	if (is_away)
		leave_or_come();
	rig_steps();
	if (with_others) {
		rig_put(&others[0], bytes);
		FUZZ_CHECK(rig_has(&others[1], bytes) && !others[1].lost);
	}
	finish();
	if (with_others) {
		rig_close(&others[0]);
		rig_close(&others[1]);
	}
	hosts_end();
	return 0;
}
