/* SPDX-License-Identifier: Apache-2.0 */
/* What is told in memory, on a board: notifications in their order with all else; and a peer that lies there, or
 * of what it has released. */
#include "native/board.h"
#include "native/rig.h"

static void send_byte(vd_conn *c, uint8_t byte)
{
	void *p;

	REQUIRE(vd_reserve(c, 1, &p) == 0);
	memset(p, byte, 1);
	REQUIRE(vd_commit(c, 1) == 0);
}

/* Looks at each, and answers: until the end, which it returns. */
static int answer_all(vd_conn *c)
{
	const void *p;
	uint8_t byte;
	size_t len;
	int r;

	while ((r = vd_peek(c, &p, &len, -1)) == 0) {
		REQUIRE(len == 1);
		byte = *(const uint8_t *)p;
		REQUIRE(byte > 0 && byte < 100);
		CHECK_EQ(vd_release(c), 0);
		send_byte(c, byte);
	}
	return r;
}

/* That of this end, which its library has put behind its arena: shared memory of ours that we may write
 * to. NULL: there is none yet. */
static struct board *board_here(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long from, to, found = 0;

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:viaduct-memory") && strstr(line, " rw-s ") &&
		    sscanf(line, "%lx-%lx", &from, &to) == 2 && to - from >= BOARD_ALL)
			found = from;
	fclose(maps);
	return found ? board_of((uint8_t *)found) : NULL; /* NOLINT */
}

/* The same, once messages are told there. The last one is released by then, and so are all. */
static struct board *board_in_use(vd_conn *c)
{
	struct board *b = NULL;
	const void *got;
	size_t len;

	do {
		send_byte(c, 7);
		REQUIRE(vd_peek(c, &got, &len, RIG_MS) == 0);
		REQUIRE(len == 1 && *(const uint8_t *)got == 7);
		CHECK_EQ(vd_release(c), 0);
		b = b ? b : board_here();
	} while (!b || !atomic_load(&b->entries[0].number));
	return b;
}

/* The first that tells nothing yet, and the one before it. */
static struct board_entry *next_entry(struct board *b, struct board_entry *last)
{
	struct board_entry *e = b->entries;

	while (atomic_load(&e[1].number))
		e++;
	*last = *e;
	return e + 1;
}

static const struct lie {
	const char *what;
	uint32_t at, len; /* the first behind the beginning of the next round */
	uint32_t token;	  /* more than the last one has said */
	uint32_t after;	  /* more frames than there were */
	bool is_none;	  /* nothing comes of it */
} lies[] = {
	{"of nothing", 0, 0, 0, 0, false},
	{"longer than any", 0, FRAME_ARENA + 1, 0, 0, false},
	{"longest", 0, ~0u, 0, 0, false},
	{"across the end", 1023, 1025, 0, 0, false},
	{"rounds away", 4096, 1, 0, 0, false},
	{"over one that was", 0u - 1024, 1, 0, 0, false},
	{"releases what was not sent", 0, 1, 5000, 0, false},
	{"behind frames that never come", 0, 1, 0, 1000, true},
};
static uint32_t lie;

static void tell_lie(vd_conn *c)
{
	struct board *b = board_in_use(c);
	struct board_entry last, *e = next_entry(b, &last);
	const struct lie *l = &lies[lie];

	e->at = (last.at + 1023) / 1024 * 1024 + l->at;
	e->len = l->len;
	e->token = last.token + l->token;
	e->after = last.after + l->after;
	atomic_store(&e->number, atomic_load(&last.number) + 1);
	CHECK_EQ(vd_flush(c), l->is_none ? 0 : -EPROTO);
	vd_close(c);
}

NATIVE_TEST(each_lie_on_the_board_is_caught)
{
	for (lie = 0; lie < sizeof(lies) / sizeof(lies[0]); lie++) {
		struct rig_child child;

		printf("lie: %s\n", lies[lie].what);
		child = rig_spawn(tell_lie);
		CHECK_EQ(answer_all(child.c), lies[lie].is_none ? -EPIPE : -EPROTO);
		vd_close(child.c);
		rig_reap(&child, 0);
	}
}

/* ---- what it has released ---- */

static void release_more(vd_conn *c)
{
	struct board *b = board_in_use(c);
	struct vd_event ev = {0};

	atomic_store(&b->released, 1u << 20);
	send_byte(c, 100);
	while (ev.kind != VD_EVENT_END)
		REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1);
	CHECK_EQ(ev.result, -EPROTO);
	vd_close(c);
}

NATIVE_TEST(nothing_is_written_over_for_a_lie)
{
	struct rig_child child = rig_spawn(release_more);
	const void *p;
	size_t len;
	int r = 0, sent = 0;
	void *to;

	for (uint8_t byte = 0; byte != 100;) {
		REQUIRE(vd_peek(child.c, &p, &len, RIG_MS) == 0);
		byte = *(const uint8_t *)p;
		CHECK_EQ(vd_release(child.c), 0);
		if (byte != 100)
			send_byte(child.c, byte);
	}
	/* The word is looked at when there is no room. */
	for (; r == 0 && sent <= 1024; sent++) {
		r = vd_reserve(child.c, 1, &to);
		if (r == 0)
			REQUIRE(vd_commit(child.c, 1) == 0);
	}
	CHECK_EQ(r, -EPROTO);
	CHECK(sent > 1000);
	CHECK_EQ(vd_peek(child.c, &p, &len, RIG_MS), -EPROTO);
	vd_close(child.c);
	rig_reap(&child, 0);
}

/* It says without end that it sleeps: frames, as many as there are messages. And that it does not. */
static void want_or_not(vd_conn *c)
{
	struct board *b = board_in_use(c);

	for (uint32_t i = 0; i < 2000; i++) {
		atomic_store(&b->wants, i % 7 == 0 ? ~0u : i % 2);
		board_in_use(c);
	}
	vd_close(c);
}

NATIVE_TEST(wants_that_nobody_has)
{
	struct rig_child child = rig_spawn(want_or_not);

	CHECK_EQ(answer_all(child.c), -EPIPE);
	vd_close(child.c);
	rig_reap(&child, 0);
}

/* ---- notifications ---- */

enum { SLOTS = 64, NOTES_IN_ORDER = 20000 };

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 16;
}

/* Number n goes by one of three ways: bytes and a notification in mapped memory, or over the stream, or a message. */
static void send_in_order(vd_conn *c)
{
	vd_remote *mapped, *stream;
	uint32_t chance = 1;
	void *to;

	REQUIRE(vd_import(c, "mapped", RIG_MS, &mapped) == 0);
	REQUIRE(vd_import(c, "stream", RIG_MS, &stream) == 0);
	CHECK_STR(vd_remote_reason(mapped), "none");
	for (uint64_t n = 0; n < NOTES_IN_ORDER; n++) {
		uint32_t way = next_random(&chance) % 4, at = (uint32_t)(n % SLOTS) * 8;

		if (way == 3) {
			REQUIRE(vd_reserve(c, 8, &to) == 0);
			/* While there is a reservation a notification goes by a frame, and comes before. */
			memcpy(to, &n, 8);
			if (next_random(&chance) % 4 == 0) {
				n++;
				memcpy(to, &n, 8);
				n--;
				REQUIRE(vd_put(mapped, at, &n, 8, (uint32_t)n,
					       VD_NOTIFY) == 0);
				n++;
			}
			REQUIRE(vd_commit(c, 8) == 0);
		} else {
			REQUIRE(vd_put(way == 2 ? stream : mapped, at, &n, 8, (uint32_t)n,
				       VD_NOTIFY) == 0);
		}
		if (next_random(&chance) % 1000 == 0)
			usleep(next_random(&chance) % 10000);
	}
	vd_close(c);
}

/* The number that has come. */
static uint64_t number_of(vd_conn *c, const struct vd_event *ev, const uint8_t *mapped,
			  const uint8_t *stream)
{
	const vd_region *const *boxes = ev->user;
	uint64_t n, there;
	const void *message;
	size_t len;

	if (ev->kind == VD_EVENT_MESSAGE) {
		REQUIRE(vd_peek(c, &message, &len, 0) == 0 && len == 8);
		memcpy(&n, message, 8);
		CHECK_EQ(vd_release(c), 0);
		return n;
	}
	REQUIRE(ev->kind == VD_EVENT_NOTIFY && ev->len == 8);
	memcpy(&there, (boxes ? mapped : stream) + ev->offset, 8);
	/* Its bytes, or those of a later put to the same place. */
	REQUIRE(there >= ev->tag && (there - ev->tag) % SLOTS == 0);
	return ev->tag;
}

NATIVE_TEST(notifications_and_messages_keep_their_order)
{
	struct rig_child child = rig_spawn(send_in_order);
	static uint8_t stream[SLOTS * 8];
	uint32_t chance = 2;
	struct vd_event ev[8];
	vd_region *x, *y;
	uint64_t n = 0;
	void *mapped;
	int got;

	REQUIRE(vd_alloc(SLOTS * 8, &mapped) == 0);
	REQUIRE(vd_export(child.c, "mapped", mapped, SLOTS * 8, VD_WRITE, mapped, &x) ==
		0);
	REQUIRE(vd_export(child.c, "stream", stream, sizeof(stream), VD_WRITE, NULL,
			  &y) == 0);
	for (ev[0].kind = VD_EVENT_NOTIFY; ev[0].kind != VD_EVENT_END;) {
		int most = next_random(&chance) % 2 ? 1 : 8;

		got = vd_wait(child.c, ev, most, next_random(&chance) % 8 ? RIG_MS : 0);
		if (got == -ETIMEDOUT)
			continue;
		REQUIRE(got > 0);
		for (int i = 0; i < got && ev[i].kind != VD_EVENT_END; i++)
			REQUIRE(number_of(child.c, &ev[i], mapped, stream) == n++);
		ev[0].kind = ev[got - 1].kind;
		/* The service thread reads meanwhile. */
		if (next_random(&chance) % 500 == 0)
			usleep(20000);
	}
	CHECK(n >= NOTES_IN_ORDER);
	vd_close(child.c);
	REQUIRE(vd_free(mapped) == 0);
	rig_reap(&child, 0);
}

static uint32_t notes_on(const struct board *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; b && i < BOARD_ENTRIES; i++)
		n += atomic_load(&b->entries[i].id) != 0;
	return n;
}

/* Until it has told some of them on its board, which it does while the other end looks there; then many more, and is
 * gone. */
static void ping(vd_conn *c)
{
	struct vd_event ev = {0};
	vd_remote *there;
	vd_region *x;
	struct board *b = NULL;
	uint32_t n = 0;
	void *own;

	REQUIRE(vd_alloc(8, &own) == 0);
	REQUIRE(vd_export(c, "ping", own, 8, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(c, "pong", RIG_MS, &there) == 0);
	while (n % 1000 || notes_on(b) < 10) {
		if (n++ % 1000 == 0)
			b = board_here();
		REQUIRE(vd_put(there, 0, &n, 4, n, VD_NOTIFY) == 0);
		REQUIRE(vd_wait(c, &ev, 1, RIG_MS) == 1 && ev.kind == VD_EVENT_NOTIFY);
		REQUIRE(ev.tag == n && *(uint32_t *)own == n);
	}
	for (uint32_t i = 0; i < 50; i++)
		REQUIRE(vd_put(there, 0, &i, 4, ++n, VD_NOTIFY) == 0);
	_exit(atomic_load(&test_failures) ? 1 : 0);
}

NATIVE_TEST(notifications_go_past_the_stream)
{
	struct rig_child child = rig_spawn(ping);
	struct vd_event ev = {0};
	vd_remote *there;
	vd_region *x;
	uint32_t n = 0;
	void *own;

	REQUIRE(vd_alloc(8, &own) == 0);
	REQUIRE(vd_export(child.c, "pong", own, 8, VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(child.c, "ping", RIG_MS, &there) == 0);
	for (;;) {
		REQUIRE(vd_wait(child.c, &ev, 1, RIG_MS) == 1);
		if (ev.kind == VD_EVENT_END)
			break;
		/* None is left out, also when their sender is gone. */
		REQUIRE(ev.tag == ++n);
		if (vd_put(there, 0, own, 4, n, VD_NOTIFY) < 0)
			continue;
	}
	CHECK(n > 1000);
	vd_close(child.c);
	REQUIRE(vd_free(own) == 0);
	rig_reap(&child, 0);
}

static const struct note_lie {
	const char *what;
	uint32_t id, at, len, count;
} note_lies[] = {
	{"of an export that there never was", 500u << 10, 0, 1, 1},
	{"of one that is only read", (1u << 10) | 1, 0, 1, 1},
	{"of one that is not mapped", (1u << 10) | 2, 0, 1, 1},
	{"behind the end", 1u << 10, 64, 1, 1},
	{"over the end", 1u << 10, 1, 64, 1},
	{"of all memory", 1u << 10, 0, ~0u, 1},
	{"more than there is credit for", 1u << 10, 0, 1, FRAME_CREDITS + 1},
};

static void tell_note_lie(vd_conn *c)
{
	const struct note_lie *l = &note_lies[lie];
	vd_remote *box, *read;
	struct board *b;
	struct board_entry last;
	uint32_t first;

	REQUIRE(vd_import(c, "box", RIG_MS, &box) == 0);
	REQUIRE(vd_import(c, "read", RIG_MS, &read) == 0);
	b = board_in_use(c);
	first = (uint32_t)(next_entry(b, &last) - b->entries);
	for (uint32_t i = 0; i < l->count; i++) {
		struct board_entry *e = &b->entries[(first + i) % BOARD_ENTRIES];

		e->at = l->at;
		e->len = l->len;
		e->token = last.token;
		e->after = last.after;
		e->id = l->id;
		atomic_store(&e->number, last.number + 1 + i);
	}
	CHECK_EQ(vd_flush(c), -EPROTO);
	vd_close(c);
}

NATIVE_TEST(each_lie_about_a_notification_is_caught)
{
	static char own[64];
	vd_region *x, *y, *z;
	const void *p;
	void *at, *to;
	size_t len;
	int r;

	for (lie = 0; lie < sizeof(note_lies) / sizeof(note_lies[0]); lie++) {
		struct rig_child child;

		printf("lie: %s\n", note_lies[lie].what);
		child = rig_spawn(tell_note_lie);
		REQUIRE(vd_alloc(64, &at) == 0 && vd_alloc(64, &to) == 0);
		REQUIRE(vd_export(child.c, "box", at, 64, VD_WRITE, NULL, &x) == 0);
		REQUIRE(vd_export(child.c, "read", to, 64, VD_READ, NULL, &y) == 0);
		REQUIRE(vd_export(child.c, "own", own, 64, VD_WRITE, NULL, &z) == 0);
		/* Without ever taking an event. */
		while ((r = vd_peek(child.c, &p, &len, RIG_MS)) == 0) {
			CHECK_EQ(vd_release(child.c), 0);
			send_byte(child.c, 7);
		}
		CHECK_EQ(r, -EPROTO);
		vd_close(child.c);
		REQUIRE(vd_free(at) == 0 && vd_free(to) == 0);
		rig_reap(&child, 0);
	}
}
