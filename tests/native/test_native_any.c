/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that waits for several connections. */
#include "native/rig.h"

#define PAIRS 20

/* Of each pair this process has both ends; events come to `b`. */
struct pair {
	struct rig r;
	uint64_t box;
	vd_region *x;
	vd_remote *h;
};

struct pairs {
	struct pair of[PAIRS];
	vd_conn *b[PAIRS];
	int count;
};

static void pairs_open(struct pairs *p, int count)
{
	memset(p, 0, sizeof(*p));
	p->count = count;
	for (int i = 0; i < count; i++) {
		struct pair *q = &p->of[i];

		q->r = rig_open();
		p->b[i] = q->r.b;
		REQUIRE(vd_export(q->r.b, "box", &q->box, 8, VD_WRITE, q, &q->x) == 0);
		REQUIRE(vd_import(q->r.a, "box", RIG_MS, &q->h) == 0);
	}
}

static void pairs_close(struct pairs *p)
{
	for (int i = 0; i < p->count; i++)
		rig_close(&p->of[i].r);
}

static void ring_pair(struct pairs *p, int i, uint32_t tag)
{
	uint64_t word = tag;

	REQUIRE(vd_put(p->of[i].h, 0, &word, 8, tag, VD_NOTIFY) == 0);
}

static int wait_for(struct pairs *p, struct vd_event *ev, int *which)
{
	return vd_wait_any(p->b, p->count, ev, 1, RIG_MS, which);
}

NATIVE_TEST(an_event_of_any)
{
	static struct pairs p;
	struct vd_event ev[4];
	int which = -1;

	pairs_open(&p, 5);
	CHECK_EQ(vd_wait_any(p.b, 5, ev, 1, 0, &which), -ETIMEDOUT);
	CHECK_EQ(vd_wait_any(p.b, 5, ev, 1, 20, &which), -ETIMEDOUT);
	CHECK_EQ(which, -1);
	for (uint32_t i = 0; i < 500; i++) {
		int at = (int)(i * 7 % 5);

		ring_pair(&p, at, i);
		REQUIRE(wait_for(&p, ev, &which) == 1);
		REQUIRE(which == at && ev[0].kind == VD_EVENT_NOTIFY && ev[0].tag == i);
		REQUIRE(ev[0].user == &p.of[at] && p.of[at].box == i);
	}
	/* Several of one connection come together, those of two do not. */
	for (uint32_t i = 0; i < 3; i++)
		ring_pair(&p, 2, i);
	ring_pair(&p, 4, 9);
	REQUIRE(vd_flush(p.of[2].r.a) == 0 && vd_flush(p.of[4].r.a) == 0);
	for (int seen = 0; seen < 4;) {
		int n = vd_wait_any(p.b, 5, ev, 4, RIG_MS, &which);

		REQUIRE(n > 0 && (which == 2 || which == 4));
		for (int k = 0; k < n; k++)
			CHECK_EQ(ev[k].user == &p.of[which], true);
		seen += n;
	}
	rig_check_path(p.b[0]);
	pairs_close(&p);
}

NATIVE_TEST(wrong_arguments)
{
	static struct pairs p;
	vd_conn *none[2] = {NULL, NULL};
	struct vd_event ev;
	int which;

	pairs_open(&p, 1);
	CHECK_EQ(vd_wait_any(p.b, 0, &ev, 1, 0, &which), -EINVAL);
	CHECK_EQ(vd_wait_any(p.b, -1, &ev, 1, 0, &which), -EINVAL);
	CHECK_EQ(vd_wait_any(p.b, 1, &ev, 0, 0, &which), -EINVAL);
	CHECK_EQ(vd_wait_any(none, 2, &ev, 1, -1, &which), -EPIPE);
	/* The same one twice. */
	none[0] = none[1] = p.b[0];
	CHECK_EQ(vd_wait_any(none, 2, &ev, 1, 20, &which), -ETIMEDOUT);
	ring_pair(&p, 0, 3);
	CHECK_EQ(vd_wait_any(none, 2, &ev, 1, RIG_MS, &which), 1);
	CHECK_EQ(ev.tag, 3);
	pairs_close(&p);
}

/* One that always has events does not hide the others. */
NATIVE_TEST(each_has_its_turn)
{
	static struct pairs p;
	struct vd_event ev;
	int seen[4] = {0}, which;

	pairs_open(&p, 4);
	for (uint32_t i = 0; i < 200; i++)
		for (int k = 0; k < 4; k++)
			ring_pair(&p, k, i);
	for (int k = 0; k < 4; k++)
		REQUIRE(vd_flush(p.of[k].r.a) == 0);
	for (int i = 0; i < 200; i++) {
		REQUIRE(wait_for(&p, &ev, &which) == 1);
		seen[which]++;
	}
	for (int k = 0; k < 4; k++)
		CHECK(seen[k] >= 40);
	pairs_close(&p);
}

/* The end of each is an event; then it is passed over, and at last none is left. */
NATIVE_TEST(ends)
{
	static struct pairs p;
	struct vd_event ev;
	int which, ended[4] = {0};

	pairs_open(&p, 4);
	p.b[3] = NULL;
	for (int i = 0; i < 3; i++) {
		vd_close(p.of[i].r.a);
		REQUIRE(wait_for(&p, &ev, &which) == 1);
		CHECK_EQ(ev.kind, VD_EVENT_END);
		CHECK_EQ(ev.result, 0);
		CHECK_EQ(which, i);
		ended[which]++;
		CHECK_EQ(ended[which], 1);
		CHECK_EQ(vd_wait_any(p.b, 4, &ev, 1, 0, &which),
			 i < 2 ? -ETIMEDOUT : -EPIPE);
	}
	CHECK_EQ(wait_for(&p, &ev, &which), -EPIPE);
	vd_close(p.of[3].r.a);
	for (int i = 0; i < 4; i++)
		vd_close(p.of[i].r.b);
}

/* ---- processes ---- */

static void echo_peer(vd_conn *c)
{
	static uint8_t box[70000];
	struct vd_event ev = {0};
	vd_region *x;
	vd_remote *h;
	void *p;

	REQUIRE(vd_export(c, "there", box, sizeof(box), VD_WRITE, NULL, &x) == 0);
	REQUIRE(vd_import(c, "back", RIG_MS, &h) == 0);
	while (vd_wait(c, &ev, 1, -1) == 1 && ev.kind == VD_EVENT_NOTIFY) {
		REQUIRE(vd_put(h, 0, box, ev.len, ev.tag, VD_NOTIFY) == 0);
		if (ev.tag % 3)
			continue;
		REQUIRE(vd_reserve(c, 5000, &p) == 0);
		rig_fill(p, ev.tag % 5000 + 1, ev.tag);
		REQUIRE(vd_commit(c, ev.tag % 5000 + 1) == 0);
	}
	CHECK_EQ(ev.kind, VD_EVENT_END);
	vd_close(c);
}

#define CHILDREN 12
#define ROUNDS	 150u

struct client {
	struct rig_child child;
	uint8_t *back, src[70000];
	vd_region *x;
	vd_remote *h;
	uint32_t sent, events, messages;
};

static size_t size_of(uint32_t i)
{
	static const size_t sizes[] = {8, 64, 3000, 0, 69999};

	return sizes[i % 5];
}

static void client_send(struct client *k)
{
	size_t len = size_of(k->sent);

	rig_fill(k->src, len, k->sent);
	REQUIRE(vd_put(k->h, 0, k->src, len, k->sent++, VD_NOTIFY) == 0);
}

static void client_heard(struct client *k, const struct vd_event *ev)
{
	const void *p;
	size_t len;

	if (ev->kind == VD_EVENT_NOTIFY) {
		REQUIRE(ev->tag == k->events && ev->len == size_of(ev->tag));
		REQUIRE(rig_is(k->back, ev->len, ev->tag));
		k->events++;
		if (k->sent < ROUNDS)
			client_send(k);
		return;
	}
	REQUIRE(ev->kind == VD_EVENT_MESSAGE);
	REQUIRE(vd_peek(k->child.c, &p, &len, 0) == 0);
	REQUIRE(len == k->messages * 3 % 5000 + 1 && rig_is(p, len, k->messages * 3));
	REQUIRE(vd_release(k->child.c) == 0);
	k->messages++;
}

/* Half of them by memory that both ends map: their events are told on boards. */
NATIVE_TEST(many_processes)
{
	static struct client clients[CHILDREN];
	vd_conn *conns[CHILDREN];
	uint32_t left = CHILDREN * (ROUNDS + (ROUNDS + 2) / 3);
	struct vd_event ev[3];
	int which;

	memset(clients, 0, sizeof(clients));
	for (int i = 0; i < CHILDREN; i++) {
		struct client *k = &clients[i];
		void *at = NULL;

		k->child = rig_spawn(echo_peer);
		conns[i] = k->child.c;
		if (i % 2)
			REQUIRE(vd_alloc(70000, &at) == 0);
		else
			at = calloc(1, 70000);
		k->back = at;
		REQUIRE(vd_export(conns[i], "back", at, 70000, VD_WRITE, k, &k->x) == 0);
		REQUIRE(vd_import(conns[i], "there", RIG_MS, &k->h) == 0);
		client_send(k);
	}
	while (left > 0) {
		int n = vd_wait_any(conns, CHILDREN, ev, 3, RIG_MS, &which);

		REQUIRE(n > 0);
		for (int i = 0; i < n; i++)
			client_heard(&clients[which], &ev[i]);
		left -= (uint32_t)n;
	}
	for (int i = 0; i < CHILDREN; i++) {
		CHECK_EQ(clients[i].events, ROUNDS);
		CHECK_EQ(clients[i].messages, (ROUNDS + 2) / 3);
		rig_check_path(conns[i]);
		vd_close(conns[i]);
		rig_reap(&clients[i].child, 0);
		if (i % 2)
			CHECK_EQ(vd_free(clients[i].back), 0);
		else
			free(clients[i].back);
	}
}

static void sleeping_peer(vd_conn *c)
{
	struct vd_event ev;

	vd_wait(c, &ev, 1, -1);
	vd_close(c);
}

NATIVE_TEST(one_is_killed)
{
	struct rig_child child[3];
	vd_conn *conns[3];
	struct vd_event ev;
	int which = -1, status;

	for (int i = 0; i < 3; i++) {
		child[i] = rig_spawn(sleeping_peer);
		conns[i] = child[i].c;
		REQUIRE(vd_flush(conns[i]) == 0);
	}
	kill(child[1].pid, SIGKILL);
	REQUIRE(vd_wait_any(conns, 3, &ev, 1, RIG_MS, &which) == 1);
	CHECK_EQ(which, 1);
	CHECK_EQ(ev.kind, VD_EVENT_END);
	CHECK_EQ(ev.result, -ECONNRESET);
	for (int i = 0; i < 3; i++) {
		vd_close(conns[i]);
		if (i != 1)
			rig_reap(&child[i], 0);
	}
	REQUIRE(waitpid(child[1].pid, &status, 0) == child[1].pid);
}

/* ---- threads ---- */

#define THREADS	 3
#define PER_PAIR 2000u

struct taker {
	struct pairs *p;
	_Atomic uint32_t *left;
	_Atomic uint64_t *sum;
};

static void *take_any(void *arg)
{
	struct taker *t = arg;
	struct vd_event ev[2];
	int which;

	while (atomic_load(t->left) > 0) {
		int n = vd_wait_any(t->p->b, t->p->count, ev, 2, 50, &which);

		if (n == -ETIMEDOUT)
			continue;
		REQUIRE(n > 0);
		for (int i = 0; i < n; i++) {
			REQUIRE(ev[i].user == &t->p->of[which]);
			atomic_fetch_add(t->sum, ev[i].tag);
		}
		atomic_fetch_sub(t->left, (uint32_t)n);
	}
	return NULL;
}

static void *flush_all(void *arg)
{
	struct taker *t = arg;

	while (atomic_load(t->left) > 0)
		for (int i = 0; i < t->p->count; i++)
			REQUIRE(vd_flush(t->p->b[i]) == 0);
	return NULL;
}

/* Several threads wait for the same connections, others for one of them, or for an answer. Each event is given
 * once, and nobody is left asleep. */
NATIVE_TEST(threads_share_them)
{
	static struct pairs p;
	_Atomic uint32_t left = 4 * PER_PAIR;
	_Atomic uint64_t sum = 0;
	struct taker t = {&p, &left, &sum};
	pthread_t threads[THREADS + 1];

	pairs_open(&p, 4);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, take_any, &t) == 0);
	REQUIRE(pthread_create(&threads[THREADS], NULL, flush_all, &t) == 0);
	for (uint32_t i = 0; i < PER_PAIR; i++)
		for (int k = 0; k < 4; k++)
			ring_pair(&p, k, i);
	for (int i = 0; i <= THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(atomic_load(&left), 0);
	CHECK_EQ(atomic_load(&sum), 4ull * PER_PAIR * (PER_PAIR - 1) / 2);
	pairs_close(&p);
}

static void *wait_for_end(void *arg)
{
	struct pairs *p = arg;
	struct vd_event ev = {0};
	int which = -1;

	rig_call_begins();
	CHECK_EQ(wait_for(p, &ev, &which), 1);
	CHECK_EQ(ev.kind, VD_EVENT_END);
	return (void *)(intptr_t)which;
}

/* A close by another thread ends the wait, and waits for it. */
NATIVE_TEST(one_is_closed_meanwhile)
{
	static struct pairs p;
	pthread_t thread;
	void *which;

	pairs_open(&p, 3);
	for (int i = 0; i < 3; i++) {
		REQUIRE(pthread_create(&thread, NULL, wait_for_end, &p) == 0);
		rig_await_call();
		vd_close(p.b[i]);
		pthread_join(thread, &which);
		CHECK_EQ((int)(intptr_t)which, i);
		p.b[i] = NULL;
	}
	for (int i = 0; i < 3; i++)
		vd_close(p.of[i].r.a);
}

/* Of two that wait one takes the end of the first, the other is to have an event of the second. */
struct end_taker {
	struct pairs *p;
	bool closes;
	_Atomic bool is_taken; /* and closed, where it closes */
};

static void *take_an_end(void *arg)
{
	struct end_taker *t = arg;
	struct vd_event ev = {0};
	int which = -1;

	rig_call_begins();
	REQUIRE(wait_for(t->p, &ev, &which) == 1);
	if (ev.kind != VD_EVENT_END) {
		CHECK_EQ(ev.kind, VD_EVENT_NOTIFY);
		CHECK_EQ(ev.tag, 5);
		CHECK_EQ(which, 1);
		return NULL;
	}
	CHECK_EQ(which, 0);
	if (t->closes)
		vd_close(t->p->b[0]);
	CHECK_EQ(atomic_exchange(&t->is_taken, true), false);
	return NULL;
}

/* An end that another thread has taken: whoever still waits for the other connections is in the way of no close. */
NATIVE_TEST(one_is_closed_by_the_taker_of_its_end)
{
	static struct pairs p;

	for (int round = 0; round < 6; round++) {
		struct end_taker t = {.p = &p, .closes = round % 2};
		pthread_t threads[2];

		pairs_open(&p, 2);
		for (int i = 0; i < 2; i++) {
			REQUIRE(pthread_create(&threads[i], NULL, take_an_end, &t) == 0);
			rig_await_call();
		}
		/* It ends by its peer; or by a close, of which a waiter takes the end. */
		if (t.closes)
			vd_close(p.of[0].r.a);
		else
			vd_close(p.b[0]);
		while (!atomic_load(&t.is_taken))
			usleep(1000);
		ring_pair(&p, 1, 5);
		for (int i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		if (!t.closes)
			vd_close(p.of[0].r.a);
		rig_close(&p.of[1].r);
	}
}

/* The last one's end is taken by a third thread: none is left to wait for. */
static void *wait_for_none(void *arg)
{
	struct vd_event ev = {0};
	int which = -1, r;

	rig_call_begins();
	r = wait_for(arg, &ev, &which);
	CHECK(r == -EPIPE || (r == 1 && ev.kind == VD_EVENT_END));
	return (void *)(intptr_t)r;
}

NATIVE_TEST(the_last_end_is_anothers)
{
	static struct pairs p;
	pthread_t threads[2];
	void *r[2];

	pairs_open(&p, 1);
	for (int i = 0; i < 2; i++) {
		REQUIRE(pthread_create(&threads[i], NULL, wait_for_none, &p) == 0);
		rig_await_call();
	}
	vd_close(p.b[0]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], &r[i]);
	CHECK_EQ((intptr_t)r[0] + (intptr_t)r[1], 1 - EPIPE);
	vd_close(p.of[0].r.a);
}

/* ---- handlers ---- */

struct closing {
	struct pairs *p;
	int calls, closes; /* -1: none */
};

static void handle(const struct vd_event *event, void *arg)
{
	struct closing *k = arg;

	CHECK_EQ(event->kind, VD_EVENT_NOTIFY);
	k->calls++;
	if (k->closes < 0)
		return;
	vd_close(k->p->b[k->closes]);
	k->p->b[k->closes] = NULL;
}

/* A handler is called, and may close this connection, or another that is waited for. */
NATIVE_TEST(handlers)
{
	static struct pairs p;
	struct closing k = {&p, 0, -1};
	struct vd_event ev;
	int which;

	pairs_open(&p, 10);
	for (int i = 0; i < 10; i++)
		REQUIRE(vd_on_notify(p.of[i].x, handle, &k) == 0);
	for (uint32_t i = 0; i < 50; i++) {
		ring_pair(&p, (int)(i % 10), i);
		while (k.calls == (int)i)
			REQUIRE(wait_for(&p, &ev, &which) == 0);
	}
	for (int i = 0; i < 4; i++) {
		int was = k.calls;

		/* Its own; then another. */
		k.closes = i;
		ring_pair(&p, i % 2 ? 9 : i, 0);
		while (k.calls == was)
			REQUIRE(wait_for(&p, &ev, &which) == 0);
		k.closes = -1;
	}
	/* Those that are left. */
	ring_pair(&p, 8, 1);
	REQUIRE(wait_for(&p, &ev, &which) == 0);
	CHECK_EQ(vd_wait_any(p.b, 10, &ev, 1, 20, &which), -ETIMEDOUT);
	for (int i = 0; i < 10; i++) {
		vd_close(p.of[i].r.a);
		vd_close(p.b[i]);
	}
}

/* ---- beside vd_fd, and in a child ---- */

NATIVE_TEST(one_has_a_descriptor)
{
	static struct pairs p;
	struct pollfd f = {.events = POLLIN};
	struct vd_event ev;
	int which;

	pairs_open(&p, 3);
	f.fd = vd_fd(p.b[1]);
	REQUIRE(f.fd >= 0);
	for (uint32_t i = 0; i < 300; i++) {
		ring_pair(&p, (int)(i % 3), i);
		if (i % 3 == 1 && i % 2)
			REQUIRE(poll(&f, 1, RIG_MS) == 1);
		REQUIRE(wait_for(&p, &ev, &which) == 1);
		REQUIRE(which == (int)(i % 3) && ev.tag == i);
		REQUIRE(poll(&f, 1, 0) == 0);
	}
	pairs_close(&p);
}

NATIVE_TEST(a_child_has_none)
{
	static struct pairs p;
	struct vd_event ev;
	int which, status;
	pid_t pid;

	pairs_open(&p, 2);
	pid = fork();
	if (pid == 0)
		_exit(vd_wait_any(p.b, 2, &ev, 1, -1, &which) == -ECHILD ? 0 : 1);
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	ring_pair(&p, 1, 4);
	CHECK_EQ(wait_for(&p, &ev, &which), 1);
	pairs_close(&p);
}
