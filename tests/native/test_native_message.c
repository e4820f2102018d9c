/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in place: whole, once, in order, also with puts; and what ends them. */
#include "native/rig.h"

static void send_one(vd_conn *c, size_t len, uint64_t at)
{
	void *p;

	REQUIRE(vd_reserve(c, len, &p) == 0);
	rig_fill(p, len, at);
	REQUIRE(vd_commit(c, len) == 0);
}

static void check_one(vd_conn *c, size_t len, uint64_t at)
{
	const void *p;
	size_t n;

	REQUIRE(vd_peek(c, &p, &n, RIG_MS) == 0);
	REQUIRE(n == len);
	REQUIRE(rig_is(p, n, at));
}

static void take_one(vd_conn *c, size_t len, uint64_t at)
{
	check_one(c, len, at);
	REQUIRE(vd_release(c) == 0);
}

static uint32_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

/* Of all sizes, most of them small. */
static size_t some_size(uint64_t *state)
{
	static const uint32_t most[] = {1, 100, 3000, 70000, VD_MESSAGE_MAX};
	uint32_t kind = next(state) % 64;

	return 1 + next(state) % most[kind == 0 ? 4 : kind < 8 ? 3 : kind % 3];
}

NATIVE_TEST(one_message_and_wrong_calls)
{
	struct rig r = rig_open();
	const void *got = &r;
	void *p, *q = &r;
	size_t len = 7;

	CHECK_EQ(vd_reserve(r.a, 0, &q), -EINVAL);
	CHECK_EQ(vd_reserve(r.a, VD_MESSAGE_MAX + 1, &q), -EMSGSIZE);
	CHECK_EQ(vd_commit(r.a, 1), -EINVAL);
	CHECK_EQ(vd_release(r.b), -EINVAL);
	CHECK_EQ(vd_peek(r.b, &got, &len, 0), -ETIMEDOUT);
	CHECK_EQ(vd_peek(r.b, &got, &len, 20), -ETIMEDOUT);
	CHECK(q == &r && got == &r && len == 7);
	REQUIRE(vd_reserve(r.a, 100, &p) == 0);
	CHECK_EQ(vd_reserve(r.a, 100, &q), -EBUSY);
	memcpy(p, "hello", 6);
	CHECK_EQ(vd_commit(r.a, 101), -EINVAL);
	CHECK_EQ(vd_commit(r.a, 6), 0);
	CHECK_EQ(vd_commit(r.a, 6), -EINVAL);
	/* One that is not sent. */
	REQUIRE(vd_reserve(r.a, 100, &p) == 0);
	CHECK_EQ(vd_commit(r.a, 0), 0);
	send_one(r.a, 3, 5);
	CHECK_EQ(vd_peek(r.b, &got, &len, RIG_MS), 0);
	CHECK_EQ(len, 6);
	CHECK_STR((const char *)got, "hello");
	CHECK_EQ(vd_peek(r.b, &got, &len, 0), -EBUSY);
	CHECK_EQ(vd_release(r.b), 0);
	CHECK_EQ(vd_release(r.b), -EINVAL);
	take_one(r.b, 3, 5);
	CHECK_EQ(vd_peek(r.b, &got, &len, 0), -ETIMEDOUT);
	rig_check_path(r.a);
	rig_close(&r);
}

/* Where it can be, what the receiver sees of a short one is the sender's memory. Else it is a copy. */
NATIVE_TEST(messages_in_place)
{
	struct rig r = rig_open();
	bool is_place = false, is_seen;

	for (uint32_t i = 0; i < 1000 || (rig_path() == VD_PATH_SHM && !is_place); i++) {
		size_t len = 1 + i * 7919 % (i % 3 ? 8192 : 100000);
		const void *got;
		size_t n;
		uint8_t *p;
		void *to;

		REQUIRE(vd_reserve(r.a, len, &to) == 0);
		p = to;
		rig_fill(p, len, i);
		REQUIRE(vd_commit(r.a, len) == 0);
		REQUIRE(vd_peek(r.b, &got, &n, RIG_MS) == 0);
		REQUIRE(n == len && rig_is(got, n, i));
		p[len - 1] ^= 1;
		is_seen = ((const uint8_t *)got)[len - 1] == p[len - 1];
		REQUIRE(!is_seen || len <= 8192);
		REQUIRE(is_seen || !is_place || len > 8192);
		is_place |= is_seen;
		p[len - 1] ^= 1;
		REQUIRE(rig_is(got, n, i));
		REQUIRE(vd_release(r.b) == 0);
	}
	CHECK_EQ(is_place, rig_path() == VD_PATH_SHM);
	rig_close(&r);
}

/* Answers each from where it lies, and releases it before the answer or after it. */
static void echo(vd_conn *c)
{
	const void *p;
	size_t len;
	void *to;
	int r;

	for (int i = 0; (r = vd_peek(c, &p, &len, -1)) == 0; i++) {
		REQUIRE(vd_reserve(c, len, &to) == 0);
		memcpy(to, p, len);
		if (i % 2)
			CHECK_EQ(vd_release(c), 0);
		CHECK_EQ(vd_commit(c, len), 0);
		if (i % 2 == 0)
			CHECK_EQ(vd_release(c), 0);
	}
	CHECK_EQ(r, -EPIPE);
	vd_close(c);
}

NATIVE_TEST(echo_between_processes)
{
	struct rig_child child = rig_spawn(echo);
	uint64_t state = 4711;

	for (uint32_t i = 0; i < 3000; i++) {
		size_t len = i % 500 ? some_size(&state) : VD_MESSAGE_MAX;

		send_one(child.c, len, i);
		take_one(child.c, len, i);
	}
	rig_check_path(child.c);
	vd_close(child.c);
	rig_reap(&child, 0);
}

/* ---- many, one way ---- */

struct stream {
	vd_conn *c;
	uint64_t seed;
	uint32_t count;
	bool pauses; /* now and then, so that the other is ahead */
};

static void *send_stream(void *arg)
{
	struct stream *s = arg;
	uint64_t state = s->seed, pause = s->seed + 1;

	for (uint32_t i = 0; i < s->count; i++) {
		size_t len = some_size(&state), more = next(&state) % 5000;
		void *p;

		more = more < VD_MESSAGE_MAX - len ? more : 0;
		REQUIRE(vd_reserve(s->c, len + more, &p) == 0);
		rig_fill(p, len, i);
		if (next(&state) % 16 == 0) {
			REQUIRE(vd_commit(s->c, 0) == 0);
			REQUIRE(vd_reserve(s->c, len, &p) == 0);
			rig_fill(p, len, i);
		}
		REQUIRE(vd_commit(s->c, len) == 0);
		if (s->pauses && next(&pause) % 64 == 0)
			usleep(next(&pause) % 1000);
	}
	return NULL;
}

static void take_stream(struct stream *s)
{
	uint64_t state = s->seed, pause = s->seed + 2;

	for (uint32_t i = 0; i < s->count; i++) {
		size_t len = some_size(&state);

		next(&state);
		next(&state);
		check_one(s->c, len, i);
		if (s->pauses && next(&pause) % 64 == 0)
			usleep(next(&pause) % 1000);
		REQUIRE(vd_release(s->c) == 0);
	}
}

/* In both directions at the same time, at different speeds. */
NATIVE_TEST(streams_of_messages)
{
	for (int i = 0; i < 4; i++) {
		struct rig r = rig_open();
		struct stream there = {r.a, 77 + (uint64_t)i, 4000, i & 1},
			      back = {r.b, 177 + (uint64_t)i, 4000, i & 1};
		struct stream from_a = {r.b, there.seed, there.count, i & 2},
			      from_b = {r.a, back.seed, back.count, i & 2};
		pthread_t senders[2];

		REQUIRE(pthread_create(&senders[0], NULL, send_stream, &there) == 0);
		REQUIRE(pthread_create(&senders[1], NULL, send_stream, &back) == 0);
		take_stream(&from_a);
		take_stream(&from_b);
		pthread_join(senders[0], NULL);
		pthread_join(senders[1], NULL);
		rig_check_path(r.a);
		rig_close(&r);
	}
}

/* ---- room ---- */

struct reserve {
	vd_conn *c;
	size_t len;
	_Atomic bool done;
	int r;
};

static void *reserve_one(void *arg)
{
	struct reserve *w = arg;
	void *p;

	do
		w->r = vd_reserve(w->c, w->len, &p);
	while (w->r == -EBUSY);
	if (w->r == 0)
		w->r = vd_commit(w->c, w->len);
	atomic_store(&w->done, true);
	return NULL;
}

/* As much as there may be: the next one waits for just what it needs, however little that is of what
 * the peer would tell by itself. */
NATIVE_TEST(a_reservation_waits_for_room)
{
	static const struct {
		uint32_t count, release;
		size_t len, wants;
	} cases[] = {
		{1024, 1, 1, 1},
		{1024, 300, 1000, 300 << 10},
		{1024, 1024, 1, 1 << 20},
		{10, 1, 100 << 10, 100 << 10},
		{7, 4, 140 << 10, 500 << 10},
		{3, 3, 300 << 10, 800 << 10},
		{1, 1, VD_MESSAGE_MAX, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig r = rig_open();
		struct reserve w = {.c = r.a, .len = cases[i].wants, .r = -1};
		pthread_t thread;
		uint32_t k = 0;
		const void *got;
		size_t len;

		for (; k < cases[i].count; k++)
			send_one(r.a, cases[i].len, k);
		REQUIRE(pthread_create(&thread, NULL, reserve_one, &w) == 0);
		for (k = 0; k + 1 < cases[i].release; k++)
			take_one(r.b, cases[i].len, k);
		/* The peer has heard of these, and that is not enough. */
		for (int n = 0; n < 20; n++)
			REQUIRE(vd_flush(r.b) == 0 && vd_flush(r.a) == 0);
		CHECK(!atomic_load(&w.done));
		take_one(r.b, cases[i].len, k);
		pthread_join(thread, NULL);
		CHECK_EQ(w.r, 0);
		for (k++; k < cases[i].count; k++)
			take_one(r.b, cases[i].len, k);
		REQUIRE(vd_peek(r.b, &got, &len, RIG_MS) == 0);
		CHECK_EQ(len, cases[i].wants);
		rig_close(&r);
	}
}

/* ---- with puts ---- */

static void put_and_send(vd_conn *c)
{
	static uint8_t src[300000];
	vd_remote *own, *both;
	uint64_t state = 99;

	REQUIRE(vd_import(c, "own", RIG_MS, &own) == 0);
	REQUIRE(vd_import(c, "both", RIG_MS, &both) == 0);
	for (uint32_t i = 0; i < 300; i++) {
		size_t len = i % 3 ? next(&state) % 200 : next(&state) % sizeof(src);

		rig_fill(src, len, i);
		REQUIRE(vd_put(own, 0, src, len, 0, 0) == 0);
		REQUIRE(vd_put(both, 0, src, len, i, i % 2 ? VD_NOTIFY : 0) == 0);
		send_one(c, len + 1, i);
		take_one(c, 1, i);
	}
	vd_close(c);
}

NATIVE_TEST(messages_come_after_puts)
{
	struct rig_child child = rig_spawn(put_and_send);
	static uint8_t own[300000];
	vd_region *x, *y;
	void *both;

	REQUIRE(vd_alloc(sizeof(own), &both) == 0);
	REQUIRE(vd_export(child.c, "own", own, sizeof(own), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_export(child.c, "both", both, sizeof(own), VD_WRITE, NULL, &y) == 0);
	for (uint32_t i = 0; i < 300; i++) {
		struct vd_event ev;
		const void *p;
		size_t len;

		REQUIRE(vd_peek(child.c, &p, &len, RIG_MS) == 0);
		REQUIRE(rig_is(own, len - 1, i));
		REQUIRE(rig_is(both, len - 1, i));
		/* The event of the put came before; that of the message is none any more. */
		if (i % 2) {
			REQUIRE(vd_wait(child.c, &ev, 1, 0) == 1);
			REQUIRE(ev.kind == VD_EVENT_NOTIFY && ev.tag == i);
		}
		REQUIRE(vd_wait(child.c, &ev, 1, 0) == -ETIMEDOUT);
		REQUIRE(rig_is(p, len, i));
		REQUIRE(vd_release(child.c) == 0);
		send_one(child.c, 1, i);
	}
	rig_check_path(child.c);
	rig_reap(&child, 0);
	vd_close(child.c);
	CHECK_EQ(vd_free(both), 0);
}

/* ---- events ---- */

NATIVE_TEST(messages_are_events)
{
	struct rig r = rig_open();
	struct vd_event ev[8];
	struct pollfd p;
	char box[8];
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	p = (struct pollfd){.fd = vd_fd(r.b), .events = POLLIN};
	CHECK_EQ(poll(&p, 1, 0), 0);
	for (int i = 0; i < 500; i++) {
		REQUIRE(vd_put(h, 0, "1", 1, 1, VD_NOTIFY) == 0);
		send_one(r.a, 100, 1);
		REQUIRE(vd_put(h, 0, "2", 1, 2, VD_NOTIFY) == 0);
		send_one(r.a, 2000, 2);
		send_one(r.a, 3, 3);
		REQUIRE(vd_flush(r.a) == 0);
		REQUIRE(poll(&p, 1, RIG_MS) == 1);
		if (i % 3 == 0) {
			/* All at once, and then the messages. */
			REQUIRE(vd_wait(r.b, ev, 8, 0) == 5);
			REQUIRE(ev[0].tag == 1 && ev[2].tag == 2);
			REQUIRE(ev[1].kind == VD_EVENT_MESSAGE && ev[1].len == 100);
			REQUIRE(ev[3].kind == VD_EVENT_MESSAGE && ev[3].len == 2000);
			REQUIRE(ev[4].kind == VD_EVENT_MESSAGE && ev[4].len == 3);
			REQUIRE(!ev[1].where && !ev[1].user);
			REQUIRE(poll(&p, 1, 0) == 0);
			take_one(r.b, 100, 1);
			take_one(r.b, 2000, 2);
			take_one(r.b, 3, 3);
		} else if (i % 3 == 1) {
			/* The messages first: their events are gone. */
			take_one(r.b, 100, 1);
			take_one(r.b, 2000, 2);
			take_one(r.b, 3, 3);
			REQUIRE(poll(&p, 1, 0) == 1);
			REQUIRE(vd_wait(r.b, ev, 8, 0) == 2);
			REQUIRE(ev[0].tag == 1 && ev[1].tag == 2);
		} else {
			REQUIRE(vd_wait(r.b, ev, 2, 0) == 2);
			REQUIRE(ev[1].kind == VD_EVENT_MESSAGE && ev[1].len == 100);
			take_one(r.b, 100, 1);
			take_one(r.b, 2000, 2);
			REQUIRE(vd_wait(r.b, ev, 8, 0) == 2);
			REQUIRE(ev[0].tag == 2);
			REQUIRE(ev[1].kind == VD_EVENT_MESSAGE && ev[1].len == 3);
			take_one(r.b, 3, 3);
		}
		REQUIRE(poll(&p, 1, 0) == 0);
		REQUIRE(vd_wait(r.b, ev, 1, 0) == -ETIMEDOUT);
	}
	rig_close(&r);
}

/* As many notifications and messages as there may be, none of which is taken. */
NATIVE_TEST(as_many_events_as_there_may_be)
{
	struct rig r = rig_open();
	static struct vd_event ev[2048];
	char box[8];
	vd_region *x;
	vd_remote *h;

	REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 1024; i++) {
			REQUIRE(vd_put(h, 0, "", 0, i, VD_NOTIFY) == 0);
			send_one(r.a, 1 + i, i);
		}
		REQUIRE(vd_flush(r.a) == 0);
		if (round == 0) {
			REQUIRE(vd_wait(r.b, ev, 2048, RIG_MS) == 2048);
			for (uint32_t i = 0; i < 1024; i++)
				REQUIRE(ev[2 * i].tag == i && ev[2 * i + 1].len == 1 + i);
		} else if (round == 1) {
			/* Those of the export go, the others stay. */
			CHECK_EQ(vd_unexport(x), 0);
			REQUIRE(vd_wait(r.b, ev, 2048, RIG_MS) == 1024);
			REQUIRE(vd_export(r.b, "box", box, sizeof(box), VD_WRITE, NULL,
					  &x) == 0);
			vd_unimport(h);
			REQUIRE(vd_flush(r.b) == 0);
			REQUIRE(vd_import(r.a, "box", RIG_MS, &h) == 0);
		}
		for (uint32_t i = 0; i < 1024; i++)
			take_one(r.b, 1 + i, i);
		if (round == 2)
			REQUIRE(vd_wait(r.b, ev, 2048, RIG_MS) == 1024);
		CHECK_EQ(vd_wait(r.b, ev, 1, 0), -ETIMEDOUT);
	}
	rig_close(&r);
}

/* ---- the end ---- */

static void *peek_one(void *arg)
{
	struct reserve *w = arg;
	const void *p;
	size_t len;

	do
		w->r = vd_peek(w->c, &p, &len, -1);
	while (w->r == -EBUSY);
	return NULL;
}

NATIVE_TEST(close_wakes_those_who_wait)
{
	struct rig r = rig_open();
	struct reserve w[2] = {{.c = r.a, .len = VD_MESSAGE_MAX}, {.c = r.a}};
	pthread_t threads[2];
	const void *p;
	size_t len;
	void *to;

	send_one(r.a, 5, 5);
	REQUIRE(pthread_create(&threads[0], NULL, reserve_one, &w[0]) == 0);
	REQUIRE(pthread_create(&threads[1], NULL, peek_one, &w[1]) == 0);
	while (vd_peek(r.a, &p, &len, 0) != -EBUSY)
		;
	while (vd_reserve(r.a, 1, &to) != -EBUSY)
		REQUIRE(vd_commit(r.a, 0) == 0);
	vd_close(r.b);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(w[i].r, -EPIPE);
	}
	CHECK_EQ(vd_peek(r.a, &p, &len, -1), -EPIPE);
	vd_close(r.a);
	/* And one that waits at the end that closes. */
	r = rig_open();
	w[1].c = r.a;
	REQUIRE(pthread_create(&threads[1], NULL, peek_one, &w[1]) == 0);
	while (vd_peek(r.a, &p, &len, 0) != -EBUSY)
		;
	vd_close(r.a);
	pthread_join(threads[1], NULL);
	CHECK(w[1].r == -EPIPE || w[1].r == -ECONNRESET);
	vd_close(r.b);
}

/* What was sent before the end can be had after it. */
NATIVE_TEST(close_while_messages_are_held)
{
	struct rig r = rig_open();
	const void *p;
	size_t len;
	void *to;

	for (uint32_t i = 0; i < 20; i++)
		send_one(r.a, 1 + i * 2000, i);
	send_one(r.b, 100, 3);
	check_one(r.a, 100, 3);
	check_one(r.b, 1, 0);
	REQUIRE(vd_reserve(r.a, 1000, &to) == 0);
	REQUIRE(vd_reserve(r.b, 1000, &to) == 0);
	vd_close(r.a);
	CHECK_EQ(vd_flush(r.b), -EPIPE);
	memset(to, 1, 1000);
	CHECK_EQ(vd_commit(r.b, 1000), -EPIPE);
	CHECK_EQ(vd_commit(r.b, 1000), -EINVAL);
	CHECK_EQ(vd_reserve(r.b, 1000, &to), -EPIPE);
	CHECK_EQ(vd_release(r.b), 0);
	for (uint32_t i = 1; i < 20; i++)
		take_one(r.b, 1 + i * 2000, i);
	CHECK_EQ(vd_peek(r.b, &p, &len, 0), -EPIPE);
	vd_close(r.b);
}

static void send_then_hang(vd_conn *c)
{
	for (uint32_t i = 0; i < 20; i++)
		send_one(c, 1 + i * 5000, i);
	take_one(c, 1, 1);
	for (;;)
		pause();
}

NATIVE_TEST(peer_is_killed)
{
	for (int i = 0; i < 10; i++) {
		struct rig_child child = rig_spawn(send_then_hang);
		const void *p;
		size_t len;
		void *to;

		for (uint32_t k = 0; k < 5; k++)
			take_one(child.c, 1 + k * 5000, k);
		REQUIRE(vd_peek(child.c, &p, &len, RIG_MS) == 0);
		send_one(child.c, 1, 1);
		if (i % 2)
			rig_check_path(child.c);
		REQUIRE(vd_reserve(child.c, 100000, &to) == 0);
		kill(child.pid, SIGKILL);
		rig_reap(&child, 128 + SIGKILL);
		memset(to, 1, 100000);
		while (vd_flush(child.c) == 0)
			;
		CHECK_EQ(vd_commit(child.c, 100000), -ECONNRESET);
		CHECK(rig_is(p, 25001, 5));
		CHECK_EQ(vd_release(child.c), 0);
		/* Those that it had sent, as far as they have come; whole ones. */
		for (uint32_t k = 6; vd_peek(child.c, &p, &len, -1) == 0; k++) {
			REQUIRE(len == 1 + k * 5000 && rig_is(p, len, k));
			CHECK_EQ(vd_release(child.c), 0);
		}
		CHECK_EQ(vd_peek(child.c, &p, &len, -1), -ECONNRESET);
		vd_close(child.c);
	}
}

/* ---- fork ---- */

NATIVE_TEST(forked_child_has_none_of_it)
{
	struct rig r = rig_open();
	const void *p;
	size_t len;
	int status;
	pid_t pid;
	void *to;

	send_one(r.a, 100, 1);
	send_one(r.a, 100, 2);
	check_one(r.b, 100, 1);
	REQUIRE(vd_reserve(r.a, 100, &to) == 0);
	fflush(NULL);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		CHECK_EQ(vd_commit(r.a, 1), -ECHILD);
		CHECK_EQ(vd_reserve(r.b, 1, &to), -ECHILD);
		CHECK_EQ(vd_release(r.b), -ECHILD);
		CHECK_EQ(vd_peek(r.b, &p, &len, 0), -ECHILD);
		fflush(NULL);
		_exit(atomic_load(&test_failures) ? 1 : 0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	rig_fill(to, 100, 3);
	CHECK_EQ(vd_commit(r.a, 100), 0);
	CHECK_EQ(vd_release(r.b), 0);
	take_one(r.b, 100, 2);
	take_one(r.b, 100, 3);
	rig_close(&r);
}
