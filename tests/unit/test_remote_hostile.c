/* SPDX-License-Identifier: Apache-2.0 */
/* A peer on another host that writes whatever it likes to its window of ours, whenever it likes: its
 * own connection may end, and nothing else. */
#include "unit/test.h"

#include "unit/conn_pair.h"

enum { ROUNDS = 250, ACTS = 24, CALLS = 4 };
static uint64_t seed;

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
}

static uint32_t pick(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static void fill(void *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)pick(256);
}

/* Mostly a value that might be right. */
static uint64_t position(uint64_t right)
{
	switch (pick(8)) {
	case 0:
		return (uint64_t)pick(1u << 30) << pick(34);
	case 1:
		return right - pick(4000);
	case 2:
		return right + ACROSS_PLACE_BYTES;
	default:
		return right + pick(5000);
	}
}

/* In a place, or past it. */
static uint32_t offset(void)
{
	static const uint32_t most[] = {ACROSS_PLACE_BYTES + 10, 1u << 30};

	return pick(10) ? pick(4000) : most[pick(2)] - pick(20);
}

/* ---- what the peer does, under the lock ---- */

static void write_at(struct across_link *k, uint64_t at, uint32_t bytes,
		     uint32_t immediate, uint32_t flags)
{
	const struct link_write w = {.from = k->staging + place_offset(0),
				     .bytes = bytes,
				     .memory = &k->memory,
				     .flags = flags,
				     .at = at,
				     .immediate = immediate};

	fill(k->staging + place_offset(0), bytes);
	link_post(k->link, &w);
}

static void anywhere(struct peer *a)
{
	uint32_t bytes = 1 + pick(2000);

	write_at(a->link, pick(ACROSS_WINDOW_BYTES - bytes), bytes, 0, 0);
}

/* What it has heard of ours, and what we read of it. */
static void over_what_is_told(struct peer *a)
{
	uint32_t bytes = 1 + pick(128);

	write_at(a->link,
		 ACROSS_TOLD_AT + pick(ACROSS_PLACES_AT - ACROSS_TOLD_AT - bytes), bytes,
		 0, 0);
}

static void bytes_untold(struct peer *a)
{
	uint64_t at = place_offset(a->peer_place) + pick(ACROSS_PLACE_BYTES - 3000);

	write_at(a->link, at, pick(3000),
		 link_immediate(a->peer_place, a->peer_generation + !pick(20), pick(256)),
		 LINK_IMMEDIATE);
}

/* As a sender would, but perhaps to an area that a place has not. */
static void move(struct note_words *w, uint64_t at)
{
	uint32_t i = ++w->turn_seq % WIRE_TURNS;

	w->turn_at[i] = at;
	w->turn_area[i] = pick(pick(10) ? 2 : 5);
}

static struct note_words words(const struct peer *a)
{
	struct note_words w = a->sent;

	w.produced = position(w.produced);
	w.consumed = pick(2) ? w.consumed : position(w.consumed);
	w.up_at = pick(4) ? w.up_at : position(w.up_at);
	w.down_at = pick(4) ? w.down_at : position(w.produced);
	w.held_at = position(w.produced);
	w.held_ms = pick(3);
	if (pick(2)) {
		move(&w, a->sent.produced);
	} else if (!pick(4)) {
		fill(w.turn_at, sizeof(w.turn_at));
		w.turn_seq += pick(3);
	}
	w.up_epoch += !pick(6);
	w.down_epoch += !pick(6);
	w.ready_epoch += !pick(6);
	w.fin = !pick(6);
	w.want_down = pick(10) ? 0 : pick(8);
	w.closed = !pick(10);
	w.rx_bound = pick(3) ? 0 : pick(100000);
	return w;
}

static void fill_note(const struct peer *a, struct note *n)
{
	switch (n->kind) {
	case NOTE_SHORT:
		n->words.produced = position(a->sent.produced);
		n->words.consumed = position(a->sent.consumed);
		break;
	case NOTE_OFFER:
	case NOTE_VERDICT:
		fill(&n->offer, sizeof(n->offer));
		n->offer.number = pick(4);
		n->offer.position = position(a->sent.consumed);
		n->offer.bytes = pick(1u << 20);
		n->offer.least = pick(100);
		break;
	case NOTE_BULK:
		fill(&n->bulk, sizeof(n->bulk));
		n->bulk.what = pick(5);
		n->bulk.turn = pick(3);
		break;
	default:
		n->words = words(a);
	}
}

static void note(struct peer *a)
{
	struct note n = {.kind = (uint8_t)(1 + pick(NOTE_LOOK)),
			 .generation = (uint8_t)(a->peer_generation + !pick(30)),
			 .place = (uint8_t)(pick(30) ? a->peer_place : pick(256))};

	fill_note(a, &n);
	if (n.kind == NOTE_LONG) /* the next one goes on from there */
		a->sent = n.words;
	n.kind |= pick(8) ? 0 : NOTE_ASK;
	note_post(a->link, &n, sizeof(n), 0);
}

/* Told aside, with a check that is right, and an ask that has it read. */
static void told_aside(struct peer *a)
{
	struct told *at = (struct told *)(void *)(a->link->window + ACROSS_TOLD_AT);
	struct told t = {.number = 1 + pick(1000),
			 .sent = (uint32_t)link_immediates(a->link->link) + !pick(6),
			 .generation = a->peer_generation,
			 .key = a->link->memory.peer_key,
			 .base = (uintptr_t)a->link->staging + pick(100),
			 .from = position(a->sent.produced),
			 .pieces = pick(TOLD_PIECES + (pick(10) ? 0 : 5)),
			 .words = words(a)};
	struct note n = {.kind = NOTE_LOOK};

	for (int i = 0; i < TOLD_PIECES; i++) {
		t.piece[i].at = offset();
		t.piece[i].bytes = offset();
	}
	t.verdict.number = pick(3);
	t.verdict.position = position(a->sent.consumed);
	t.check = pick(8) ? aside_check(&t) : t.number;
	at[a->peer_place] = t;
	note_post(a->link, &n, offsetof(struct note, words), 0);
}

static void act(int fd)
{
	static void (*const acts[])(struct peer *) = {
		anywhere, over_what_is_told, bytes_untold, note, note, told_aside};
	struct peer *a = peer_of(fd_sock(fd));
	struct across_guard g = across_enter();

	if (a && a->link && !a->link->failed && a->link->up)
		acts[pick(6)](a);
	across_leave(g);
}

/* ---- one lie each, all else is right ---- */

static struct note next_note(const struct peer *a, enum note_kind kind)
{
	struct note n = {.kind = (uint8_t)kind,
			 .generation = a->peer_generation,
			 .place = (uint8_t)a->peer_place};

	n.words = a->sent;
	n.words.produced += 10;
	return n;
}

static void larger_area(struct peer *a, struct note *n)
{
	*n = next_note(a, NOTE_LONG);
	n->words.turn_at[++n->words.turn_seq % WIRE_TURNS] = a->sent.produced;
	n->words.turn_area[n->words.turn_seq % WIRE_TURNS] = ACROSS_AREA_LIMIT + 1;
}

static void another_place(struct peer *a, struct note *n)
{
	*n = next_note(a, NOTE_SHORT);
	n->place = ACROSS_PLACES;
}

static void another_generation(struct peer *a, struct note *n)
{
	*n = next_note(a, NOTE_SHORT);
	n->generation++;
}

static void another_number(struct peer *a, struct note *n)
{
	*n = next_note(a, NOTE_SHORT);
	a->link->notes_sent++;
}

STREAM_TEST(each_lie_of_a_note_fails_the_link)
{
	static void (*const lies[])(struct peer *, struct note *) = {
		larger_area, another_place, another_generation, another_number};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct pair p = pair_open_up();
		struct peer *a = peer_of(fd_sock(p.a));
		struct across_guard g;
		struct note n;
		char byte;

		put(p.a, 0, 100, 1);
		get(p.b, 0, 100, 1);
		g = across_enter();
		lies[i](a, &n);
		CHECK_EQ(note_post(a->link, &n, sizeof(n), 0), 0);
		across_leave(g);
		across_settle();
		CHECK_EQ(st_recv(p.b, &byte, 1, MSG_DONTWAIT), -ECONNRESET);
		st_close(p.b);
		st_close(p.a);
	}
}

STREAM_TEST(bytes_told_aside_lie_in_the_place)
{
	struct pair p = pair_open_up();
	struct peer *a = peer_of(fd_sock(p.a));
	struct told *at = (struct told *)(void *)(a->link->window + ACROSS_TOLD_AT);
	struct note look = {.kind = NOTE_LOOK};
	struct across_guard g = across_enter();
	struct told t = {.number = 1,
			 .sent = (uint32_t)link_immediates(a->link->link),
			 .generation = a->peer_generation,
			 .key = a->link->memory.peer_key,
			 .base = (uintptr_t)across_out_data(a),
			 .from = a->sent.produced,
			 .pieces = 1,
			 .piece = {{ACROSS_PLACE_BYTES - 9, 10}},
			 .words = a->sent};
	char byte;

	t.words.produced += 10;
	t.check = aside_check(&t);
	at[a->peer_place] = t;
	note_post(a->link, &look, offsetof(struct note, words), 0);
	across_leave(g);
	across_settle();
	CHECK_EQ(st_recv(p.b, &byte, 1, MSG_DONTWAIT), -ECONNRESET);
	st_close(p.b);
	st_close(p.a);
}

/* ---- a process of our own that shares the connection, and is as hostile ---- */

/* A connection, and the place behind its own in the first end's memory, which is nobody's. */
struct beside {
	struct pair p, before[ACROSS_PLACES];
	int count;	/* of those before, which have the places that will not do */
	struct peer *a; /* of p.a */
	uint8_t *sent, *window;
};

static bool has_beside(struct beside *b)
{
	b->p = pair_open_up();
	b->a = peer_of(fd_sock(b->p.a));
	return b->a->place + 1 < ACROSS_PLACES && !b->a->link->at[b->a->place + 1];
}

static struct beside beside_open(void)
{
	struct beside b = {.count = 0};

	while (!has_beside(&b)) {
		REQUIRE(b.count < ACROSS_PLACES);
		b.before[b.count++] = b.p;
	}
	put(b.p.a, 0, 100, 1);
	get(b.p.b, 0, 100, 1);
	put(b.p.b, 0, 100, 1);
	get(b.p.a, 0, 100, 1);
	b.sent = across_out_data(b.a) + ACROSS_PLACE_BYTES;
	b.window = across_in_data(b.a) + ACROSS_PLACE_BYTES;
	memset(b.sent, 'N', ACROSS_PLACE_BYTES);
	memset(b.window, 'N', ACROSS_PLACE_BYTES);
	return b;
}

static void beside_is_untouched(const struct beside *b)
{
	for (size_t i = 0; i < ACROSS_PLACE_BYTES; i++)
		REQUIRE(b->sent[i] == 'N' && b->window[i] == 'N');
}

static void beside_close(struct beside *b)
{
	CHECK(!b->a->link->failed);
	/* They may be somebody's next. */
	memset(b->sent, 0, ACROSS_PLACE_BYTES);
	memset(b->window, 0, ACROSS_PLACE_BYTES);
	st_close(b->p.a);
	st_close(b->p.b);
	while (b->count > 0)
		pair_close(&b->before[--b->count]);
}

static void say_largest(struct slot *sl)
{
	for (int i = 0; i < WIRE_TURNS; i++)
		sl->tx.area[i] = sl->rx.turn_area[i] = WIRE_AREAS - 1;
	sl->rx.area = WIRE_AREAS - 1;
}

/* Sends of all kinds, of which none may lie in another connection's place. */
STREAM_TEST(a_table_that_lies_of_the_area_is_not_written_by)
{
	static char bytes[20000];
	static const size_t sizes[] = {100, 20000, 3000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct beside b = beside_open();

		say_largest(fd_sock(b.p.a)->slot);
		memset(bytes, 'x', sizeof(bytes));
		st_send(b.p.a, bytes, sizes[i], MSG_DONTWAIT | MSG_NOSIGNAL);
		beside_is_untouched(&b);
		beside_close(&b);
	}
}

STREAM_TEST(a_table_that_lies_of_the_area_is_not_read_by)
{
	/* Of two buffers: not the quick way. */
	static const struct {
		int flags, buffers;
	} calls[] = {{0, 1}, {0, 2}, {MSG_PEEK, 2}};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct beside b = beside_open();
		char bytes[200] = "";
		struct iovec iov[] = {{bytes, 100}, {bytes + 100, 100}};

		put(b.p.b, 100, 200, 1);
		say_largest(fd_sock(b.p.a)->slot);
		st_recvv(b.p.a, iov, calls[i].buffers, MSG_DONTWAIT | calls[i].flags);
		CHECK(!memmem(bytes, sizeof(bytes), "NNNNNNNN", 8));
		beside_close(&b);
	}
}

/* The words from which a peer is told of our bytes. */
STREAM_TEST(words_that_lie_of_the_area_tell_no_bytes_of_others)
{
	struct beside b = beside_open();
	struct wire_dir *out = b.a->out;
	const struct peer *peer = peer_of(fd_sock(b.p.b));
	const struct across_link *k = peer->link;
	uint8_t *theirs = k->window + place_offset(peer->place);
	uint32_t i = (atomic_load(&out->turn_seq) + 1) % WIRE_TURNS;

	atomic_store(&out->turn_at[i], atomic_load(&out->produced));
	atomic_store(&out->turn_area[i], WIRE_AREAS - 1);
	atomic_fetch_add(&out->turn_seq, 1);
	atomic_fetch_add(&out->produced, 50000);
	across_push(b.a);
	across_settle();
	/* What they get is of this connection, and nothing that would have them end the link. */
	CHECK(peer->place + 1 == ACROSS_PLACES || k->at[peer->place + 1] ||
	      !memmem(theirs + ACROSS_PLACE_BYTES, ACROSS_PLACE_BYTES, "NNNNNNNN", 8));
	CHECK(!memmem(theirs, ACROSS_PLACE_BYTES, "NNNNNNNN", 8));
	CHECK(!k->failed);
	beside_close(&b);
}

/* ---- what our program does meanwhile ---- */

static void call(int fd)
{
	char buf[4000];
	size_t bytes = 1 + pick(sizeof(buf));

	memset(buf, 'v', sizeof(buf));
	switch (pick(4)) {
	case 0:
		st_send(fd, buf, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 1:
		st_level(fd);
		break;
	default:
		CHECK(st_recv(fd, buf, bytes, MSG_DONTWAIT) <= (ssize_t)bytes);
	}
	/* A place has no more of them. */
	CHECK(fd_sock(fd)->slot->rx.area <= ACROSS_AREA_LIMIT);
}

/* True: it got through all of it. */
static bool round_of(uint64_t number)
{
	struct pair p = pair_open_up();
	bool lives;

	seed = number;
	for (uint64_t i = 0; i < 1 + number % ACTS; i++) {
		act(p.a);
		for (uint32_t n = pick(CALLS); n > 0; n--)
			call(p.b);
		across_settle();
	}
	lives = !(seen_of(fd_sock(p.b)->slot) & SEEN_BROKEN);
	/* Neither end waits for the other one. */
	st_close(p.b);
	st_close(p.a);
	return lives;
}

/* Eight connections of two others take all places of their link. */
STREAM_TEST(a_hostile_peer_harms_its_own_connection)
{
	struct pair others[ACROSS_PLACES];
	const struct across_link *k;
	int lived = 0;

	for (int i = 0; i < ACROSS_PLACES; i++)
		others[i] = pair_open_up();
	k = peer_of(fd_sock(others[0].b))->link;
	for (int i = 0; i < ACROSS_PLACES; i++)
		CHECK_EQ(peer_of(fd_sock(others[i].b))->link, k);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		lived += round_of(i);
		put(others[i % ACROSS_PLACES].a, i * 500, 500, 1);
		get(others[i % ACROSS_PLACES].b, i * 500, 500, 1);
	}
	/* Both have been tried. */
	CHECK(lived > 0 && lived < ROUNDS);
	for (int i = 0; i < ACROSS_PLACES; i++) {
		CHECK_EQ(gate_state(&fd_sock(others[i].b)->slot->gate_rx), GATE_RING);
		pair_close(&others[i]);
	}
}
