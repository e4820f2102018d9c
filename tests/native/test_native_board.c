/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that lies in memory: on the board where it tells its messages, and of what it has released. */
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
	unsigned long from, found = 0;

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:viaduct-memory") && strstr(line, " rw-s ") &&
		    sscanf(line, "%lx-", &from) == 1)
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
