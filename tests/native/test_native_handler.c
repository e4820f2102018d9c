/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers that vd_wait calls for notifications, and what may happen meanwhile. */
#include "unit/cancelled.h"
#include "native/rig.h"

struct seen {
	vd_region *x;
	vd_remote *back;
	uint32_t tags[64], count;
	struct vd_event last;
};

static void note(const struct vd_event *event, void *arg)
{
	struct seen *s = arg;

	CHECK(event->where == s->x);
	s->tags[s->count++ % 64] = event->tag;
	s->last = *event;
}

struct pair {
	struct rig r;
	uint8_t box[64];
	vd_region *x;
	vd_remote *h;
};

/* The accepted end exports to the other. */
static struct pair *pair_open(void)
{
	struct pair *p = calloc(1, sizeof(*p));

	REQUIRE(p);
	p->r = rig_open();
	REQUIRE(vd_export(p->r.b, "box", p->box, sizeof(p->box), VD_WRITE, p, &p->x) ==
		0);
	REQUIRE(vd_import(p->r.a, "box", RIG_MS, &p->h) == 0);
	return p;
}

static void pair_close(struct pair *p)
{
	rig_close(&p->r);
	free(p);
}

static void ring(struct pair *p, uint32_t tag)
{
	REQUIRE(vd_put(p->h, tag % 64, &(uint8_t){(uint8_t)tag}, 1, tag, VD_NOTIFY) == 0);
}

/* ---- what is called, and what returned ---- */

NATIVE_TEST(events_keep_their_order)
{
	struct pair *p = pair_open();
	struct seen s = {.x = p->x};
	struct vd_event ev[4];
	uint8_t other[8];
	vd_region *y;
	vd_remote *g;

	REQUIRE(vd_export(p->r.b, "other", other, sizeof(other), VD_WRITE, NULL, &y) ==
		0);
	REQUIRE(vd_import(p->r.a, "other", RIG_MS, &g) == 0);
	CHECK_EQ(vd_on_notify(p->x, note, &s), 0);
	ring(p, 1);
	REQUIRE(vd_put(g, 0, "x", 1, 2, VD_NOTIFY) == 0);
	REQUIRE(vd_put(g, 0, "x", 1, 3, VD_NOTIFY) == 0);
	ring(p, 4);
	REQUIRE(vd_put(g, 0, "x", 1, 5, VD_NOTIFY) == 0);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_wait(p->r.b, ev, 4, RIG_MS), 2);
	CHECK(ev[0].tag == 2 && ev[1].tag == 3 && ev[0].where == y);
	CHECK_EQ(s.count, 1);
	CHECK_EQ(s.tags[0], 1);
	CHECK(s.last.user == p && s.last.offset == 1 && s.last.len == 1);
	CHECK_EQ(p->box[1], 1);
	CHECK_EQ(vd_wait(p->r.b, ev, 4, RIG_MS), 1);
	CHECK_EQ(ev[0].tag, 5);
	CHECK_EQ(s.count, 2);
	CHECK_EQ(s.tags[1], 4);
	CHECK_EQ(vd_wait(p->r.b, ev, 4, 0), -ETIMEDOUT);
	pair_close(p);
}

NATIVE_TEST(given_later_and_taken_away)
{
	struct pair *p = pair_open();
	struct seen s = {.x = p->x}, t = {.x = p->x};
	struct vd_event ev[4];

	ring(p, 1);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_on_notify(p->x, note, &s), 0);
	CHECK_EQ(vd_on_notify(p->x, note, &t), 0);
	CHECK_EQ(vd_wait(p->r.b, ev, 4, 0), -ETIMEDOUT);
	CHECK_EQ(s.count, 0);
	CHECK_EQ(t.count, 1);
	ring(p, 2);
	CHECK_EQ(vd_on_notify(p->x, NULL, NULL), 0);
	CHECK_EQ(rig_event(p->r.b).tag, 2);
	CHECK_EQ(vd_on_notify(p->x, note, &s), 0);
	ring(p, 3);
	vd_close(p->r.a);
	CHECK_EQ(rig_event(p->r.b).kind, VD_EVENT_END);
	CHECK_EQ(s.count, 1);
	CHECK_EQ(vd_wait(p->r.b, ev, 4, 0), -EPIPE);
	vd_close(p->r.b);
	free(p);
}

NATIVE_TEST(in_a_loop_of_the_program)
{
	struct pair *p = pair_open();
	struct seen s = {.x = p->x};
	struct pollfd at = {.fd = vd_fd(p->r.b), .events = POLLIN};
	struct vd_event ev;

	CHECK_EQ(vd_on_notify(p->x, note, &s), 0);
	for (uint32_t i = 1; i <= 50; i++) {
		ring(p, i);
		CHECK_EQ(poll(&at, 1, RIG_MS), 1);
		CHECK_EQ(vd_wait(p->r.b, &ev, 1, 0), -ETIMEDOUT);
		CHECK_EQ(s.count, i);
		CHECK_EQ(poll(&at, 1, 0), 0);
	}
	rig_check_path(p->r.a);
	pair_close(p);
}

/* More come all the time: a wait that is over ends. */
static void *ring_for_ever(void *arg)
{
	struct pair *p = arg;

	while (vd_put(p->h, 0, "x", 1, 0, VD_NOTIFY) == 0)
		;
	return NULL;
}

static void count(const struct vd_event *event, void *arg)
{
	(void)event;
	++*(uint32_t *)arg;
}

NATIVE_TEST(time_passes_in_handlers)
{
	struct pair *p = pair_open();
	uint32_t n = 0;
	struct vd_event ev;
	pthread_t thread;

	CHECK_EQ(vd_on_notify(p->x, count, &n), 0);
	REQUIRE(pthread_create(&thread, NULL, ring_for_ever, p) == 0);
	CHECK_EQ(vd_wait(p->r.b, &ev, 1, 0), -ETIMEDOUT);
	CHECK_EQ(vd_wait(p->r.b, &ev, 1, 20), -ETIMEDOUT);
	while (n < 5000)
		CHECK_EQ(vd_wait(p->r.b, &ev, 1, 1), -ETIMEDOUT);
	CHECK_EQ(vd_unexport(p->x), 0);
	pthread_join(thread, NULL);
	pair_close(p);
}

/* ---- calls in a handler ---- */

struct calls {
	struct pair *p;
	vd_remote *back;
	uint32_t depth;
};

static void call_back(const struct vd_event *event, void *arg)
{
	struct calls *k = arg;
	struct vd_event ev;
	uint64_t word = 0;

	CHECK_EQ(vd_put(k->back, 0, &event->tag, 4, event->tag, VD_NOTIFY), 0);
	CHECK_EQ(vd_get(k->back, 8, &word, 8), 0);
	CHECK_EQ(word, 7);
	CHECK_EQ(vd_flush(k->p->r.b), 0);
	if (++k->depth < 3)
		CHECK_EQ(vd_wait(k->p->r.b, &ev, 1, 0), -ETIMEDOUT);
}

NATIVE_TEST(calls_of_a_handler)
{
	struct pair *p = pair_open();
	struct calls k = {.p = p};
	uint64_t words[2] = {0, 7};
	struct vd_event ev;
	vd_region *y;

	REQUIRE(vd_export(p->r.a, "back", words, sizeof(words), VD_READ | VD_WRITE, NULL,
			  &y) == 0);
	REQUIRE(vd_import(p->r.b, "back", RIG_MS, &k.back) == 0);
	CHECK_EQ(vd_on_notify(p->x, call_back, &k), 0);
	for (uint32_t i = 1; i <= 3; i++)
		ring(p, i);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_wait(p->r.b, &ev, 1, 0), -ETIMEDOUT);
	CHECK_EQ(k.depth, 3);
	for (uint32_t i = 1; i <= 3; i++)
		CHECK_EQ(rig_event(p->r.a).tag, i);
	pair_close(p);
}

struct mortal {
	struct pair *p;
	uint32_t *calls;
};

static void end_own_export(const struct vd_event *event, void *arg)
{
	struct mortal *m = arg;

	++*m->calls;
	CHECK_EQ(vd_on_notify(event->where, end_own_export, arg), 0);
	CHECK_EQ(vd_unexport(event->where), 0);
	free(m);
}

NATIVE_TEST(handler_ends_its_export)
{
	struct pair *p = pair_open();
	struct mortal *m = malloc(sizeof(*m));
	uint32_t calls = 0;
	struct vd_event ev;

	*m = (struct mortal){p, &calls};
	CHECK_EQ(vd_on_notify(p->x, end_own_export, m), 0);
	ring(p, 1);
	ring(p, 2);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_wait(p->r.b, &ev, 1, 0), -ETIMEDOUT);
	CHECK_EQ(calls, 1);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_put(p->h, 0, "x", 1, 3, VD_NOTIFY), -ESTALE);
	pair_close(p);
}

static void close_deep(const struct vd_event *event, void *arg)
{
	struct calls *k = arg;
	struct vd_event ev;

	(void)event;
	if (++k->depth < 3)
		CHECK_EQ(vd_wait(k->p->r.b, &ev, 1, RIG_MS), -EPIPE);
	else
		vd_close(k->p->r.b);
	CHECK_EQ(vd_put(k->back, 0, "x", 1, 0, 0), 0);
}

NATIVE_TEST(handler_closes_its_connection)
{
	struct pair *p = pair_open();
	struct calls k = {.p = p};
	uint8_t box[8] = "";
	struct vd_event ev;
	vd_region *y;

	REQUIRE(vd_export(p->r.a, "back", box, sizeof(box), VD_WRITE, NULL, &y) == 0);
	REQUIRE(vd_import(p->r.b, "back", RIG_MS, &k.back) == 0);
	CHECK_EQ(vd_on_notify(p->x, close_deep, &k), 0);
	for (uint32_t i = 1; i <= 4; i++)
		ring(p, i);
	REQUIRE(vd_flush(p->r.a) == 0);
	CHECK_EQ(vd_wait(p->r.b, &ev, 1, RIG_MS), -EPIPE);
	CHECK_EQ(k.depth, 3);
	CHECK_EQ(box[0], 'x');
	ev = rig_event(p->r.a);
	CHECK(ev.kind == VD_EVENT_END && ev.result == 0);
	vd_close(p->r.a);
	free(p);
}

static void fork_there(const struct vd_event *event, void *arg)
{
	(void)event;
	fflush(NULL);
	*(pid_t *)arg = fork();
}

NATIVE_TEST(handler_forks)
{
	struct pair *p = pair_open();
	struct vd_event ev;
	pid_t pid = -1;
	int status, r;

	CHECK_EQ(vd_on_notify(p->x, fork_there, &pid), 0);
	ring(p, 1);
	REQUIRE(vd_flush(p->r.a) == 0);
	r = vd_wait(p->r.b, &ev, 1, 0);
	if (pid == 0)
		_exit(r == -ECHILD ? 0 : 1);
	CHECK_EQ(r, -ETIMEDOUT);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	ring(p, 2);
	CHECK_EQ(vd_on_notify(p->x, NULL, NULL), 0);
	CHECK_EQ(rig_event(p->r.b).tag, 2);
	pair_close(p);
}

/* ---- threads ---- */

struct held {
	_Atomic bool inside, goes_on, left;
	vd_conn *c;
	int r;
};

static void stay(const struct vd_event *event, void *arg)
{
	struct held *h = arg;

	(void)event;
	atomic_store(&h->inside, true);
	while (!atomic_load(&h->goes_on))
		usleep(1000);
	atomic_store(&h->left, true);
}

static void *wait_once(void *arg)
{
	struct held *h = arg;
	struct vd_event ev;

	h->r = vd_wait(h->c, &ev, 1, -1);
	return NULL;
}

static void *let_go(void *arg)
{
	struct held *h = arg;

	usleep(30000);
	CHECK(!atomic_load(&h->left));
	atomic_store(&h->goes_on, true);
	return NULL;
}

enum { BY_UNEXPORT, BY_NULL, BY_CLOSE, BY_CANCEL, WAYS };

/* Whatever takes a handler away waits until it has returned. */
NATIVE_TEST(nobody_runs_it_afterwards)
{
	for (int way = 0; way < WAYS; way++) {
		struct pair *p = pair_open();
		struct held *h = calloc(1, sizeof(*h));
		pthread_t waits, goes;

		h->c = p->r.b;
		CHECK_EQ(vd_on_notify(p->x, stay, h), 0);
		REQUIRE(pthread_create(&waits, NULL, wait_once, h) == 0);
		ring(p, 1);
		while (!atomic_load(&h->inside))
			usleep(1000);
		if (way == BY_CANCEL)
			REQUIRE(pthread_cancel(waits) == 0);
		REQUIRE(pthread_create(&goes, NULL, let_go, h) == 0);
		if (way == BY_UNEXPORT || way == BY_CANCEL)
			CHECK_EQ(vd_unexport(p->x), 0);
		else if (way == BY_NULL)
			CHECK_EQ(vd_on_notify(p->x, NULL, NULL), 0);
		else
			vd_close(p->r.b);
		CHECK(atomic_load(&h->left));
		pthread_join(goes, NULL);
		vd_close(p->r.a);
		pthread_join(waits, NULL);
		if (way != BY_CANCEL)
			CHECK_EQ(h->r, 1);
		free(h);
		if (way != BY_CLOSE)
			vd_close(p->r.b);
		free(p);
	}
}

/* What a handler was given goes as soon as it is taken away. */
struct given {
	uint32_t mark;
	vd_remote *back;
};

static void use(const struct vd_event *event, void *arg)
{
	struct given *g = arg;

	CHECK_EQ(g->mark, 0x600d);
	if (event->tag % 64 == 0)
		CHECK_EQ(vd_put(g->back, 0, &g->mark, 4, 0, 0), 0);
	/* Another thread may do the same. */
	if (event->tag % 16 == 0)
		CHECK_EQ(vd_on_notify(event->where, NULL, NULL), 0);
}

static void *wait_all(void *arg)
{
	vd_conn *c = arg;
	struct vd_event ev[3];
	int n;

	do
		n = vd_wait(c, ev, 3, -1);
	while (n > 0 && ev[n - 1].kind == VD_EVENT_NOTIFY);
	return NULL;
}

static void *spray(void *arg)
{
	struct pair *p = arg;
	uint32_t tag = 0;

	while (vd_put(p->h, 0, "x", 1, tag++, VD_NOTIFY) == 0)
		;
	return NULL;
}

static struct given *give(struct pair *p, vd_remote *back)
{
	struct given *g = malloc(sizeof(*g));

	*g = (struct given){0x600d, back};
	CHECK_EQ(vd_on_notify(p->x, use, g), 0);
	return g;
}

static void ungive(struct given *g)
{
	g->mark = 0xbad;
	free(g);
}

NATIVE_TEST(handlers_come_and_go)
{
	struct pair *p = pair_open();
	uint8_t answer[4];
	pthread_t waits[3], sprays;
	vd_remote *back;
	vd_region *y;

	REQUIRE(vd_export(p->r.a, "back", answer, sizeof(answer), VD_WRITE, NULL, &y) ==
		0);
	REQUIRE(vd_import(p->r.b, "back", RIG_MS, &back) == 0);
	for (int i = 0; i < 3; i++)
		REQUIRE(pthread_create(&waits[i], NULL, wait_all, p->r.b) == 0);
	for (int round = 0; round < 30; round++) {
		struct given *g = give(p, back), *other;

		REQUIRE(pthread_create(&sprays, NULL, spray, p) == 0);
		for (int i = 0; i < 20; i++) {
			other = give(p, back);
			ungive(g);
			g = other;
			usleep(100);
		}
		CHECK_EQ(vd_unexport(p->x), 0);
		ungive(g);
		pthread_join(sprays, NULL);
		vd_unimport(p->h);
		REQUIRE(vd_export(p->r.b, "box", p->box, sizeof(p->box), VD_WRITE, p,
				  &p->x) == 0);
		REQUIRE(vd_import(p->r.a, "box", RIG_MS, &p->h) == 0);
	}
	rig_check_path(p->r.a);
	vd_close(p->r.a);
	for (int i = 0; i < 3; i++)
		pthread_join(waits[i], NULL);
	vd_close(p->r.b);
	free(p);
}

/* The close ends what a handler waits for, and waits for the thread. */
static void wait_in_there(const struct vd_event *event, void *arg)
{
	struct held *h = arg;
	struct vd_event ev;

	(void)event;
	atomic_store(&h->inside, true);
	h->r = vd_wait(h->c, &ev, 1, -1);
	usleep(10000);
	atomic_store(&h->left, true);
}

NATIVE_TEST(close_beside_handlers)
{
	for (int i = 0; i < 20; i++) {
		struct pair *p = pair_open();
		struct held *h = calloc(1, sizeof(*h)), *outer = calloc(1, sizeof(*h));
		pthread_t waits;

		h->c = outer->c = p->r.b;
		CHECK_EQ(vd_on_notify(p->x, wait_in_there, h), 0);
		REQUIRE(pthread_create(&waits, NULL, wait_once, outer) == 0);
		ring(p, 1);
		while (!atomic_load(&h->inside))
			usleep(1000);
		vd_close(p->r.b);
		CHECK(atomic_load(&h->left));
		pthread_join(waits, NULL);
		CHECK_EQ(h->r, 1);
		CHECK_EQ(outer->r, -EPIPE);
		vd_close(p->r.a);
		free(h);
		free(outer);
		free(p);
	}
}
