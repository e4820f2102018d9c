/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that lies: it speaks the frames itself. Nothing outside of an export changes, both ends are
 * told, and nothing hangs. */
#include <malloc.h>

#include "native/liar.h"

struct lie {
	const char *what;
	struct frame f;
	bool early; /* before HELLO */
};

/* The victim has one export, of 16 bytes. */
static const struct lie lies[] = {
	{"no hello", {.type = FRAME_FLUSH, .token = 1}, true},
	{"another magic", {.type = FRAME_HELLO, .id = FRAME_PROTOCOL, .offset = 5}, true},
	{"another protocol", {.type = FRAME_HELLO, .id = 9, .offset = FRAME_MAGIC}, true},
	{"hello twice",
	 {.type = FRAME_HELLO, .id = FRAME_PROTOCOL, .offset = FRAME_MAGIC},
	 false},
	{"no type", {.type = 0}, false},
	{"unknown type", {.type = FRAME_TYPES}, false},
	{"zero is not", {.type = FRAME_TAKEN, .zero = 1}, false},
	{"long short frame", {.type = FRAME_TAKEN, .len = 65}, false},
	{"no such export", {.type = FRAME_PUT, .id = 2 * ID, .len = 4}, false},
	{"no such place", {.type = FRAME_PUT, .id = ID + 1, .len = 4}, false},
	{"use 0", {.type = FRAME_PUT, .id = 0, .len = 4}, false},
	{"behind the end", {.type = FRAME_PUT, .id = ID, .offset = 13, .len = 4}, false},
	{"far behind", {.type = FRAME_PUT, .id = ID, .offset = ~0ull, .len = 4}, false},
	{"longer", {.type = FRAME_PUT, .id = ID, .len = 17}, false},
	{"longest", {.type = FRAME_PUT, .id = ID, .len = ~0u}, false},
	{"odd flags", {.type = FRAME_PUT, .flags = 4, .id = ID, .len = 4}, false},
	{"note and more", {.type = FRAME_PUT, .flags = 3, .id = ID, .len = 4}, false},
	{"not readable", {.type = FRAME_GET, .id = ID, .tag = 4}, false},
	{"not for atomics", {.type = FRAME_ADD, .id = ID, .len = 8}, false},
	{"too many taken", {.type = FRAME_TAKEN, .taken = 1}, false},
	{"taken in a put", {.type = FRAME_PUT, .id = ID, .len = 4, .taken = 9}, false},
	{"flush out of turn", {.type = FRAME_FLUSH, .token = 2}, false},
	{"never flushed", {.type = FRAME_FLUSHED, .token = 1}, false},
	{"never asked", {.type = FRAME_ANSWER, .token = 0, .len = 8}, false},
	{"export of nothing",
	 {.type = FRAME_EXPORT, .id = ID, .tag = 1, .len = 1},
	 false},
	{"export without name",
	 {.type = FRAME_EXPORT, .id = ID, .offset = 1, .tag = 1},
	 false},
	{"export with odd rights",
	 {.type = FRAME_EXPORT, .id = ID, .offset = 1, .tag = 5, .len = 1},
	 false},
	{"export with zero in its name",
	 {.type = FRAME_EXPORT, .id = ID, .offset = 1, .tag = 1, .len = 4},
	 false},
	{"export of use 0",
	 {.type = FRAME_EXPORT, .offset = 1, .tag = 1, .len = 1},
	 false},
	{"end of no export", {.type = FRAME_UNEXPORT, .id = ID}, false},
	{"memory that is not whole", {.type = FRAME_MAP, .id = ID, .len = 16}, false},
	{"memory of no export", {.type = FRAME_MAP, .id = 2 * ID, .len = 16}, false},
	{"short name of memory", {.type = FRAME_MAP, .id = ID, .len = 15}, false},
	{"memory never asked for", {.type = FRAME_MAPPED, .id = ID}, false},
	{"memory never lent", {.type = FRAME_UNMAPPED, .id = ID}, false},
	{"placed nowhere", {.type = FRAME_PLACED, .id = ID, .len = 8}, false},
	{"placed how many", {.type = FRAME_PLACED, .id = ID, .len = 4}, false},
	{"message of nothing", {.type = FRAME_MESSAGE}, false},
	{"message of another length", {.type = FRAME_MESSAGE, .tag = 4, .len = 5}, false},
	{"message longer than any",
	 {.type = FRAME_MESSAGE, .tag = FRAME_ARENA + 1, .len = FRAME_ARENA + 1},
	 false},
	{"longest message", {.type = FRAME_MESSAGE, .tag = ~0u, .len = ~0u}, false},
	{"message across the end",
	 {.type = FRAME_MESSAGE, .id = 1023, .tag = 1025, .len = 1025},
	 false},
	{"message a round away",
	 {.type = FRAME_MESSAGE, .id = 1024, .tag = 4, .len = 4},
	 false},
	{"message before the first",
	 {.type = FRAME_MESSAGE, .id = ~0u, .tag = 4, .len = 4},
	 false},
	{"message with odd flags",
	 {.type = FRAME_MESSAGE, .flags = 2, .tag = 4, .len = 4},
	 false},
	{"release in a message",
	 {.type = FRAME_MESSAGE, .tag = 4, .len = 4, .token = 1},
	 false},
	{"release of none", {.type = FRAME_RELEASED, .token = 1}, false},
	{"release of what was", {.type = FRAME_RELEASED, .token = ~0u}, false},
	{"long release", {.type = FRAME_RELEASED, .len = 1}, false},
	{"never offered", {.type = FRAME_RELEASED, .flags = FRAME_WHOLE}, false},
	{"message that is not mapped",
	 {.type = FRAME_MESSAGE, .flags = FRAME_WHOLE, .tag = 4},
	 false},
	{"messages' memory never offered", {.type = FRAME_MAP, .len = 16}, false},
	{"messages' memory never awaited", {.type = FRAME_MAPPED}, false},
	{"long offer", {.type = FRAME_OFFER, .len = 1}, false},
	{"long wait", {.type = FRAME_WAITS, .len = 1}, false},
};

NATIVE_TEST(each_lie_is_caught)
{
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		static const uint8_t zeros[64];
		struct liar l = liar_open();
		uint8_t box[48];
		vd_region *x;

		printf("lie: %s\n", lies[i].what);
		memset(box, 7, sizeof(box));
		REQUIRE(vd_export(l.c, "box", box + 16, 16, VD_WRITE, NULL, &x) == 0);
		if (!lies[i].early)
			say_hello(&l);
		/* The header alone is enough to know. */
		say(&l, lies[i].f, lies[i].f.len <= 64 ? zeros : NULL);
		check_caught(&l);
		for (size_t k = 0; k < sizeof(box); k++)
			CHECK_EQ(box[k], 7);
	}
}

/* Frames of one put are about one export. Where that has ended nothing else bounds them. */
NATIVE_TEST(puts_that_change_their_export)
{
	const struct frame seconds[] = {
		{.type = FRAME_PUT, .flags = FRAME_NOTE, .id = ID + 1, .offset = 4},
		{.type = FRAME_PUT,
		 .flags = FRAME_NOTE,
		 .id = ID,
		 .offset = ~0ull - 3,
		 .len = 4},
		{.type = FRAME_PUT,
		 .flags = FRAME_MORE,
		 .id = ID,
		 .offset = ~0ull,
		 .len = 4},
	};

	for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
		struct frame first = {
			.type = FRAME_PUT, .flags = FRAME_MORE, .id = ID, .len = 4};
		struct liar l = liar_open();
		uint8_t box[16], other[16];
		vd_region *x, *y;

		REQUIRE(vd_export(l.c, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
		REQUIRE(vd_export(l.c, "other", other, 16, VD_WRITE, NULL, &y) == 0);
		say_hello(&l);
		CHECK_EQ(vd_unexport(x), 0);
		/* So that the second goes on where it ends, as far as that can be. */
		first.offset = seconds[i].offset - 4;
		say(&l, first, "put");
		say(&l, seconds[i], "put");
		check_caught(&l);
	}
}

NATIVE_TEST(more_notifications_than_there_may_be)
{
	struct liar l = liar_open();
	char box[8];
	vd_region *x;
	struct vd_event ev;

	REQUIRE(vd_export(l.c, "box", box, 8, VD_WRITE, NULL, &x) == 0);
	say_hello(&l);
	for (uint32_t i = 0; i < FRAME_CREDITS; i++)
		say(&l, (struct frame){.type = FRAME_PUT, .id = ID, .flags = FRAME_NOTE},
		    NULL);
	say(&l, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
	hear(&l, FRAME_FLUSHED);
	say(&l, (struct frame){.type = FRAME_PUT, .id = ID, .flags = FRAME_NOTE}, NULL);
	hear(&l, FRAME_WRONG);
	for (uint32_t i = 0; i < FRAME_CREDITS; i++)
		REQUIRE(vd_wait(l.c, &ev, 1, RIG_MS) == 1 && ev.kind == VD_EVENT_NOTIFY);
	CHECK_EQ(vd_wait(l.c, &ev, 1, RIG_MS), 1);
	CHECK_EQ(ev.result, -EPROTO);
	vd_close(l.c);
	close(l.fd);
}

NATIVE_TEST(more_questions_than_there_may_be)
{
	static uint8_t box[FRAME_GET_MOST];
	struct liar l = liar_open();
	struct vd_event ev;
	vd_region *x;
	int small = 4096, sent = 0;

	setsockopt(l.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	REQUIRE(vd_export(l.c, "box", box, sizeof(box), VD_READ, NULL, &x) == 0);
	say_hello(&l);
	/* It never reads an answer: what is owed to it stays within bounds. */
	for (; sent < 100000; sent++) {
		struct frame f = {.type = FRAME_GET, .id = ID, .tag = sizeof(box)};
		ssize_t n = 0;

		/* The victim's end need not come through: neither reads. */
		while (n == 0 && vd_wait(l.c, &ev, 1, 0) != 1) {
			n = send(l.fd, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n < 0 && errno == EAGAIN)
				n = usleep(1000);
		}
		if (n != sizeof(f))
			break;
	}
	CHECK(sent < 100000);
	vd_close(l.c);
	close(l.fd);
}

/* The next position is behind the last message; over one that has not been released it may not lie. */
NATIVE_TEST(messages_over_others)
{
	for (uint32_t lie = 0; lie < 3; lie++) {
		static uint8_t body[FRAME_ARENA];
		struct liar l = liar_open();
		struct frame f = {
			.type = FRAME_MESSAGE, .tag = 600 << 10, .len = 600 << 10};
		const void *p;
		size_t len;

		say_hello(&l);
		memset(body, 3, sizeof(body));
		say(&l, f, body);
		REQUIRE(vd_peek(l.c, &p, &len, RIG_MS) == 0 && len == f.len);
		f.tag = f.len = 500 << 10;
		/* Over its end, over its beginning in the next round, in no order. */
		f.id = lie == 0 ? 599 : lie == 1 ? 1024 : 300;
		memset(body, 4, sizeof(body));
		REQUIRE(send(l.fd, &f, sizeof(f), MSG_NOSIGNAL) == sizeof(f));
		send(l.fd, body, f.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		check_told(&l);
		for (size_t i = 0; i < len; i++)
			REQUIRE(((const uint8_t *)p)[i] == 3);
		liar_close(&l);
	}
}

/* As many as there may be, which nobody takes; and then one more. */
NATIVE_TEST(more_messages_than_there_may_be)
{
	struct liar l = liar_open();
	struct frame f = {.type = FRAME_MESSAGE, .tag = 1, .len = 1};
	const void *p;
	size_t len;

	say_hello(&l);
	for (; f.id < 1024; f.id++)
		say(&l, f, "m");
	say(&l, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
	hear(&l, FRAME_FLUSHED);
	say(&l, f, NULL);
	hear(&l, FRAME_WRONG);
	for (int i = 0; i < 1024; i++) {
		REQUIRE(vd_peek(l.c, &p, &len, RIG_MS) == 0);
		REQUIRE(len == 1 && *(const char *)p == 'm');
		REQUIRE(vd_release(l.c) == 0);
	}
	CHECK_EQ(vd_peek(l.c, &p, &len, RIG_MS), -EPROTO);
	liar_close(&l);
}

/* It asks without end what was released: that is one answer, however often, while that cannot be sent. */
NATIVE_TEST(waits_that_nobody_has)
{
	struct liar l = liar_open();

	say_hello(&l);
	for (uint32_t i = 0; i < 20000; i++)
		say(&l, (struct frame){.type = FRAME_WAITS, .id = i % 3 - 1}, NULL);
	say(&l, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
	hear(&l, FRAME_FLUSHED);
	liar_close(&l);
}

static void *close_it(void *arg)
{
	vd_close(arg);
	return NULL;
}

/* The close waits for whoever waits. */
NATIVE_TEST(close_amid_an_import)
{
	/* What is freed changes. */
	mallopt(M_PERTURB, 0x5a);
	for (int i = 0; i < 10; i++) {
		struct liar l = liar_open();
		struct import_call call = {.c = l.c};
		pthread_t thread;

		say_hello(&l);
		export_whole(&l, 4096);
		REQUIRE(pthread_create(&thread, NULL, import_it, &call) == 0);
		hear(&l, FRAME_MAP);
		vd_close(l.c);
		pthread_join(thread, NULL);
		CHECK_EQ(call.r, -EPIPE);
		close(l.fd);
	}
	mallopt(M_PERTURB, 0);
}

/* What it asks for after the last frame is not answered. */
NATIVE_TEST(questions_after_the_end)
{
	struct liar l = liar_open();
	pthread_t thread;

	say_hello(&l);
	REQUIRE(pthread_create(&thread, NULL, close_it, l.c) == 0);
	hear(&l, FRAME_BYE);
	say(&l, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
	say(&l, (struct frame){.type = FRAME_WAITS}, NULL);
	pthread_join(thread, NULL);
	close(l.fd);
}

/* A part of a message is none. */
NATIVE_TEST(half_a_message)
{
	static uint8_t body[100000];
	struct liar l = liar_open();
	const void *p;
	size_t len;

	say_hello(&l);
	say(&l, (struct frame){.type = FRAME_MESSAGE, .tag = 100000, .len = 100000},
	    NULL);
	REQUIRE(send(l.fd, body, 50000, MSG_NOSIGNAL) == 50000);
	CHECK_EQ(vd_peek(l.c, &p, &len, 20), -ETIMEDOUT);
	shutdown(l.fd, SHUT_WR);
	CHECK_EQ(vd_peek(l.c, &p, &len, RIG_MS), -ECONNRESET);
	liar_close(&l);
}

/* The rest of a put never comes. The export can end all the same. */
NATIVE_TEST(half_a_put)
{
	for (int late = 0; late < 2; late++) {
		static uint8_t box[100000], src[100000];
		struct liar l = liar_open();
		vd_region *x;

		memset(src, 9, sizeof(src));
		memset(box, 0, sizeof(box));
		REQUIRE(vd_export(l.c, "b", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
		say_hello(&l);
		say(&l, (struct frame){.type = FRAME_PUT, .id = ID, .len = sizeof(box)},
		    NULL);
		REQUIRE(send(l.fd, src, 50000, MSG_NOSIGNAL) == 50000);
		if (late)
			while (((volatile uint8_t *)box)[49999] != 9)
				;
		CHECK_EQ(vd_unexport(x), 0);
		memset(box, 1, sizeof(box));
		REQUIRE(send(l.fd, src, 50000, MSG_NOSIGNAL) == 50000);
		say(&l, (struct frame){.type = FRAME_FLUSH, .token = 1}, NULL);
		hear(&l, FRAME_FLUSHED);
		for (size_t i = 0; i < sizeof(box); i++)
			REQUIRE(box[i] == 1);
		vd_close(l.c);
		close(l.fd);
	}
}

/* Frames that name an export which has ended may have been on their way: they are no lie. */
NATIVE_TEST(late_frames_are_dropped)
{
	struct liar l = liar_open();
	uint8_t box[16] = {0};
	const uint64_t operands[2] = {0, 1};
	struct frame f;
	vd_region *x;

	REQUIRE(vd_export(l.c, "box", box, 16, VD_READ | VD_WRITE, NULL, &x) == 0);
	say_hello(&l);
	CHECK_EQ(vd_unexport(x), 0);
	say(&l,
	    (struct frame){.type = FRAME_PUT, .id = ID, .len = 8, .flags = FRAME_NOTE},
	    operands);
	say(&l, (struct frame){.type = FRAME_GET, .id = ID, .tag = 8, .token = 5}, NULL);
	f = hear(&l, FRAME_ANSWER);
	CHECK_EQ(f.token, 5);
	CHECK_EQ(f.flags, FRAME_STALE);
	say(&l, (struct frame){.type = FRAME_SWAP, .id = ID, .len = 16, .token = 6},
	    operands);
	f = hear(&l, FRAME_ANSWER);
	CHECK_EQ(f.token, 6);
	CHECK_EQ(f.flags, FRAME_STALE);
	CHECK_EQ(f.taken, 1);
	CHECK_EQ(box[0], 0);
	vd_close(l.c);
	close(l.fd);
}

/* A mad stream: it ends, whatever it was. */
NATIVE_TEST(random_frames)
{
	uint64_t state = 88172645463325252ull;

	for (int round = 0; round < 300; round++) {
		struct liar l = liar_open();
		uint8_t box[256];
		struct vd_event ev;
		vd_region *x;

		memset(box, 7, sizeof(box));
		REQUIRE(vd_export(l.c, "box", box + 64, 128, VD_WRITE | VD_READ, NULL,
				  &x) == 0);
		say_hello(&l);
		for (int i = 0; i < 20; i++) {
			struct frame f = {0};
			uint8_t body[64] = {0};
			uint8_t *at = (uint8_t *)&f;

			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			f = (struct frame){.type = state % FRAME_TYPES,
					   .id = ID,
					   .len = state >> 8 & 63,
					   .tag = state >> 14 & 63,
					   .offset = state >> 20 & 127};
			if (state >> 40 & 1)
				at[state >> 41 & 31] = (uint8_t)(state >> 48);
			if (send(l.fd, &f, sizeof(f), MSG_NOSIGNAL) < 0 ||
			    send(l.fd, body, sizeof(body) & state >> 56, MSG_NOSIGNAL) <
				    0)
				break;
		}
		shutdown(l.fd, SHUT_WR);
		while (vd_wait(l.c, &ev, 1, RIG_MS) == 1 && ev.kind != VD_EVENT_END)
			;
		CHECK_EQ(ev.kind, VD_EVENT_END);
		for (size_t i = 0; i < sizeof(box); i++)
			REQUIRE(box[i] == 7 || (i >= 64 && i < 192));
		vd_close(l.c);
		close(l.fd);
	}
}
