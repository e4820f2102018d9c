/* SPDX-License-Identifier: Apache-2.0 */
/* The whole interface at random, between two processes, against a model of each byte. */
/*
 * Each round has a seed, from which all else follows but the order of threads. NATIVE_SEED says
 * where to begin, and NATIVE_ROUNDS or NATIVE_SECONDS how long to go on.
 *
 * The *driver* has some threads, the *lanes*, which share the connection. Each has boxes of its own in
 * the *owner's* memory, and knows what is in each byte of them. It puts, gets and adds there, and
 * gives the owner *orders* by notification: to end the export of a box and to make another one, to
 * begin a redirection or to end it, to sum up a box. It need not wait for an order to be carried out.
 * The owner obeys in several threads, by handlers for half of the lanes. Messages go to and fro
 * beside that. Now and then one of the two
 * processes is killed, or forks.
 */
#include <semaphore.h>
#include <time.h>

#include "native/random_messages.h"

/* ---- the owner ---- */

#define WORKERS 2

static uint64_t shared_word;

static void own(vd_conn *c)
{
	static struct desk desks[LANES_MOST];
	pthread_t threads[WORKERS], messages;
	vd_region *x, *slots;
	uint32_t open = 0;

	shared_word = 0;
	ok(vd_export(c, "word", &shared_word, 8, VD_READ | VD_WRITE, NULL, &x));
	memset(message_slots, 0, sizeof(message_slots));
	ok(vd_export(c, "slots", message_slots, sizeof(message_slots), VD_WRITE, NULL,
		     &slots));
	REQUIRE(pthread_create(&messages, NULL, own_messages, c) == 0);
	for (bool lives = true; lives && open < plan.lanes; open++)
		lives = desk_open(&desks[open], c, open);
	for (int i = 0; i < WORKERS; i++)
		REQUIRE(pthread_create(&threads[i], NULL, work, c) == 0);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(messages, NULL);
	vd_close(c);
	for (uint32_t i = 0; i < open; i++)
		desk_close(&desks[i]);
}

/* ---- the driver ---- */

#define LENT 4u

struct lane {
	vd_conn *c;
	uint32_t number;
	struct rng rng;
	vd_remote *bell, *word, *box[BOXES];
	struct answer answers[16];
	vd_region *answers_x;
	sem_t answered;
	uint32_t asked, orders;
	uint64_t added;
	uint8_t model[BOXES][BOX_BYTES], src[BOX_BYTES], dst[BOX_BYTES];
	uint8_t lent[LENT]
		    [BOX_BYTES]; /* sources, which are the library's while is_lent */
	_Atomic bool is_lent[LENT];
	uint8_t version;      /* of the last put to the last box */
	bool renewing[BOXES]; /* that was ordered, and not waited for */
};

static void note_answer(const struct vd_event *event, void *arg)
{
	(void)event;
	sem_post(&((struct lane *)arg)->answered);
}

/* Tells the owner, who answers it or not. */
static bool give_order(struct lane *l, uint32_t what, uint32_t box, bool waits)
{
	struct order order = {.what = what, .box = box};

	order.offset = next(&l->rng) % BOX_BYTES;
	order.len = 1 + next(&l->rng) % (BOX_BYTES - order.offset);
	order.answer = waits ? ++l->asked : 0;
	return ok(vd_put(l->bell, l->orders % 16 * sizeof(order), &order, sizeof(order),
			 l->orders, VD_NOTIFY)) &&
	       (l->orders++, true);
}

/* Until the owner has obeyed all so far. At most 15 more than it has may be under way. */
static bool ask(struct lane *l, uint32_t what, uint32_t box, struct answer *a)
{
	if (!give_order(l, what, box, true))
		return false;
	while (sem_wait(&l->answered) != 0)
		;
	*a = l->answers[l->asked % 16];
	if (a->number == l->asked)
		return true;
	REQUIRE(plan.kills); /* the pump says that it is over */
	return false;
}

static bool import_box(struct lane *l, uint32_t box)
{
	char name[32];

	return ok(vd_import(l->c, box_name(l->number, box, name), RIG_MS, &l->box[box]));
}

/* What the box is by now, byte for byte. */
static bool settle(struct lane *l, uint32_t box)
{
	struct answer a;

	if (!ask(l, ORDER_SUM, box, &a))
		return false;
	if (l->renewing[box]) {
		int r = vd_put(l->box[box], 0, "x", 1, 0, 0);

		if (r != -ESTALE && !ok(r))
			return false;
		REQUIRE(r == -ESTALE);
		vd_unimport(l->box[box]);
		if (!import_box(l, box))
			return false;
		memset(l->model[box], 0, BOX_BYTES);
		l->renewing[box] = false;
	}
	if (a.sum != sum_of(l->model[box]))
		fprintf(stderr, "seed %llu: box %u of lane %u\n",
			(unsigned long long)plan.seed, box, l->number);
	REQUIRE(a.sum == sum_of(l->model[box]));
	if (box == REDIRECTED) {
		make_old(l->model[box]);
		l->version = 0;
	}
	return true;
}

/* A source that the library does not have; LENT: none. */
static uint32_t free_source(struct lane *l)
{
	uint32_t i = 0;

	while (i < LENT && atomic_load(&l->is_lent[i]))
		i++;
	return i;
}

/* The pump has got the event. */
static void note_done(struct lane *lanes, const struct vd_event *ev)
{
	struct lane *l = &lanes[ev->tag / LENT];

	REQUIRE(ev->tag / LENT < plan.lanes && ev->len <= BOX_BYTES);
	REQUIRE(ev->result == 0 || (plan.kills && ev->result == -ECONNRESET));
	memset(l->lent[ev->tag % LENT], POISON, BOX_BYTES);
	REQUIRE(atomic_exchange(&l->is_lent[ev->tag % LENT], false));
}

static int put_bytes(struct lane *l, uint32_t box, uint32_t at, uint32_t len, bool lends)
{
	uint32_t i = lends ? free_source(l) : LENT;
	int r;

	if (i == LENT)
		return vd_put(l->box[box], at, l->src, len, 0, 0);
	memcpy(l->lent[i], l->src, len);
	atomic_store(&l->is_lent[i], true);
	r = vd_put(l->box[box], at, l->lent[i], len, l->number * LENT + i, VD_LEND);
	if (r < 0)
		atomic_store(&l->is_lent[i], false);
	return r;
}

static bool put_some(struct lane *l, uint32_t box)
{
	uint32_t at = next(&l->rng) % BOX_BYTES,
		 len = next(&l->rng) % (BOX_BYTES - at + 1);
	int r;

	if (next(&l->rng) % 2)
		len %= 100;
	if (box == REDIRECTED && l->version == OLD - 1 && !settle(l, box))
		return false;
	if (box == REDIRECTED)
		memset(l->src, ++l->version, len);
	else
		rig_fill(l->src, len, next(&l->rng));
	if (!l->renewing[box])
		memcpy(l->model[box] + at, l->src, len);
	r = put_bytes(l, box, at, len, next(&l->rng) % 3 == 0);
	return (r == -ESTALE && l->renewing[box]) || ok(r);
}

static bool get_some(struct lane *l, uint32_t box)
{
	uint32_t at = next(&l->rng) % BOX_BYTES,
		 len = next(&l->rng) % (BOX_BYTES - at + 1);
	int r = vd_get(l->box[box], at, l->dst, len);

	if (box == REDIRECTED)
		return r == -EACCES || ok(r == 0 ? -EILSEQ : r);
	if (r == -ESTALE && l->renewing[box])
		return true;
	if (!ok(r))
		return false;
	REQUIRE(l->renewing[box] || memcmp(l->dst, l->model[box] + at, len) == 0);
	return true;
}

static bool add_some(struct lane *l, uint32_t box)
{
	uint32_t at = next(&l->rng) % (BOX_BYTES / 8) * 8;
	uint64_t old, was, add = next(&l->rng);

	if (!ok(vd_fetch_add(l->word, 0, add, &old)))
		return false;
	l->added += add;
	if (box == REDIRECTED || l->renewing[box])
		return true;
	memcpy(&was, l->model[box] + at, 8);
	if (!ok(vd_fetch_add(l->box[box], at, add, &old)))
		return false;
	REQUIRE(old == was);
	was += add;
	if (!ok(vd_compare_swap(l->box[box], at, was - 1, 5, &old)))
		return false;
	REQUIRE(old == was);
	if (!ok(vd_compare_swap(l->box[box], at, was, ~was, &old)))
		return false;
	REQUIRE(old == was);
	was = ~was;
	memcpy(l->model[box] + at, &was, 8);
	return true;
}

/* A second handle for the same, and the first goes. */
static bool import_again(struct lane *l, uint32_t box)
{
	vd_remote *was = l->box[box];

	if (l->renewing[box])
		return true;
	if (!import_box(l, box))
		return false;
	REQUIRE(vd_remote_size(l->box[box]) == BOX_BYTES);
	vd_unimport(was);
	return true;
}

static bool outside(struct lane *l, uint32_t box)
{
	int r;

	if (l->renewing[box])
		return true;
	r = vd_put(l->box[box], BOX_BYTES, "x", 1, 0, 0);
	return r == -ERANGE || ok(r == 0 ? -EILSEQ : r);
}

static void fork_once(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
}

/* What an option does that the rings do not know. Only the preloaded library sees it set. The
 * connection has the one socket that is connected. */
static void lower(void)
{
	const int on = 1;
	struct sockaddr_in at;

	for (int fd = 0; fd < 256; fd++) {
		socklen_t len = sizeof(at);

		if (getpeername(fd, (struct sockaddr *)&at, &len) == 0 &&
		    at.sin_family == AF_INET)
			REQUIRE(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on,
					   sizeof(on)) == 0);
	}
}

static bool step(struct lane *l)
{
	uint32_t box = next(&l->rng) % BOXES;

	switch (next(&l->rng) % 24) {
	case 0:
		if (l->renewing[box])
			return true;
		l->renewing[box] = true;
		return give_order(l, ORDER_RENEW, box, false);
	case 1:
	case 2:
		return settle(l, box);
	case 3:
		return ok(vd_flush(l->c));
	case 4:
	case 5:
	case 6:
		return get_some(l, box);
	case 7:
	case 8:
		return add_some(l, box);
	case 9:
	case 10:
		return give_order(l, ORDER_REDIRECT, REDIRECTED, false);
	case 11:
		return give_order(l, ORDER_REDIRECT_END, REDIRECTED, false);
	case 12:
		return import_again(l, box);
	case 13:
		if (plan.forks)
			fork_once();
		if (plan.lowers)
			lower();
		return outside(l, box);
	case 14:
	case 15:
		return put_some(l, REDIRECTED);
	default:
		return put_some(l, box);
	}
}

static bool lane_open(struct lane *l)
{
	char name[32];

	snprintf(name, sizeof(name), "answers of lane %u", l->number);
	if (!ok(vd_export(l->c, name, l->answers, sizeof(l->answers), VD_WRITE, l,
			  &l->answers_x)))
		return false;
	if (plan.handles || next(&l->rng) % 2)
		REQUIRE(vd_on_notify(l->answers_x, note_answer, l) == 0);
	snprintf(name, sizeof(name), "bell of lane %u", l->number);
	if (!ok(vd_import(l->c, name, RIG_MS, &l->bell)) ||
	    !ok(vd_import(l->c, "word", RIG_MS, &l->word)))
		return false;
	for (uint32_t i = 0; i < BOXES; i++)
		if (!import_box(l, i))
			return false;
	return true;
}

/* Each order has a place of its own until it was obeyed. */
static void *drive_lane(void *arg)
{
	struct lane *l = arg;
	bool lives = lane_open(l);

	for (uint32_t i = 0; lives && i < STEPS; i++) {
		lives = step(l);
		if (lives && i % 12 == 11)
			lives = settle(l, next(&l->rng) % BOXES);
	}
	for (uint32_t i = 0; lives && i < BOXES; i++)
		lives = settle(l, i);
	return lives ? l : NULL;
}

struct pump {
	vd_conn *c;
	struct lane *lanes;
	_Atomic bool stops;
};

/* Takes the events of all lanes. When it is over, nobody waits for an answer any more. */
static void *pump(void *arg)
{
	struct pump *p = arg;
	struct vd_event ev = {0};
	int r = 0;

	while (ev.kind != VD_EVENT_END && !atomic_load(&p->stops)) {
		/* The close comes amid a call: there is to be no time between two. */
		r = plan.handles ? vd_wait(p->c, &ev, 1, -1) : wait_event(p->c, &ev, 20);
		if (r == 1 && ev.kind == VD_EVENT_NOTIFY)
			note_answer(&ev, ev.user);
		if (r == 1 && ev.kind == VD_EVENT_DONE)
			note_done(p->lanes, &ev);
		REQUIRE(r == 1 || r == -ETIMEDOUT);
		REQUIRE(!plan.handles || ev.kind != VD_EVENT_NOTIFY);
	}
	for (uint32_t i = 0; i < plan.lanes; i++)
		for (uint32_t n = 0; n < 2 * STEPS; n++)
			sem_post(&p->lanes[i].answered);
	return NULL;
}

/* A fork amid the upgrade: the child has had the connection, too, which stays on TCP for that. All children have
 * gone, so this is not said later. */
static bool stays_on_tcp(vd_conn *c)
{
	return plan.forks && vd_path(c) == VD_PATH_TCP &&
	       strcmp(vd_reason(c), "shared") == 0;
}

static void drive(vd_conn *c)
{
	static struct lane lanes[LANES_MOST];
	struct pump p = {.c = c, .lanes = lanes};
	pthread_t threads[LANES_MOST], pumps, messages;
	uint64_t added = 0, word;
	void *done;
	bool lives = true;

	memset(lanes, 0, sizeof(lanes));
	for (uint32_t i = 0; i < plan.lanes; i++) {
		lanes[i].c = c;
		lanes[i].number = i;
		lanes[i].rng = rng_of(plan.seed, i);
		REQUIRE(sem_init(&lanes[i].answered, 0, 0) == 0);
	}
	REQUIRE(pthread_create(&pumps, NULL, pump, &p) == 0);
	/* With handlers alone the pump is to have no event but the end. */
	if (!plan.handles)
		REQUIRE(pthread_create(&messages, NULL, drive_messages, c) == 0);
	for (uint32_t i = 0; i < plan.lanes; i++)
		REQUIRE(pthread_create(&threads[i], NULL, drive_lane, &lanes[i]) == 0);
	for (uint32_t i = 0; i < plan.lanes; i++) {
		pthread_join(threads[i], &done);
		lives &= done != NULL;
		added += lanes[i].added;
	}
	if (!plan.handles) {
		pthread_join(messages, &done);
		lives &= done != NULL;
	}
	if (lives && ok(vd_get(lanes[0].word, 0, &word, 8)))
		REQUIRE(word == added);
	if (lives && !plan.kills && !plan.lowers && !stays_on_tcp(c))
		rig_check_path(c);
	/* No call may begin any more when this one does. */
	atomic_store(&p.stops, !plan.handles);
	if (!plan.handles)
		pthread_join(pumps, NULL);
	vd_close(c);
	if (plan.handles)
		pthread_join(pumps, NULL);
	for (uint32_t i = 0; i < plan.lanes; i++)
		sem_destroy(&lanes[i].answered);
}

/* ---- rounds ---- */

static void *kill_late(void *arg)
{
	struct rng r = rng_of(plan.seed, 62);

	usleep(next(&r) % 30000);
	kill(*(pid_t *)arg, SIGKILL);
	return NULL;
}

/* Where the peer is the program anew: before it begins. */
__attribute__((constructor(200))) static void inherit_plan(void)
{
	const char *seed = getenv("NATIVE_PLAN");

	if (seed)
		plan = plan_of(strtoull(seed, NULL, 10));
}

/* Either may be the one that is killed: the child. */
static void round_of(uint64_t seed)
{
	struct rng r = rng_of(seed, 61);
	bool drives = next(&r) % 2;
	struct rig_child child;
	pthread_t killer;
	char text[32];
	int status;

	plan = plan_of(seed);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	REQUIRE(setenv("NATIVE_PLAN", text, 1) == 0);
	child = rig_spawn(drives ? own : drive);
	if (plan.kills)
		REQUIRE(pthread_create(&killer, NULL, kill_late, &child.pid) == 0);
	if (drives)
		drive(child.c);
	else
		own(child.c);
	if (plan.kills)
		pthread_join(killer, NULL);
	REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
	/* It may have been done before. */
	REQUIRE(status == 0 ||
		(plan.kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

NATIVE_TEST(random)
{
	uint64_t seed = number_of("NATIVE_SEED", 1),
		 rounds = number_of("NATIVE_ROUNDS", 500),
		 seconds = number_of("NATIVE_SECONDS", 0);
	time_t end = time(NULL) + (time_t)seconds;

	for (uint64_t i = 0; seconds ? time(NULL) < end : i < rounds; i++) {
		printf("seed %llu\n", (unsigned long long)(seed + i));
		round_of(seed + i);
	}
}
