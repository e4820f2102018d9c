/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of registrations on the fake interconnect: what it finds, its bounds, refusals of the device,
 * and a program that does not say when its memory goes. */
#include "unit/test.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "unit/redirect_pair.h"

enum { PAGE = 4096, AREA_PAGES = 32, HOLDS = 6, TALLY = 2000 };

static struct across_link *one(const struct pair *p)
{
	return handle(p->a)->link;
}

static uint8_t *map_pages(size_t pages)
{
	uint8_t *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(at != MAP_FAILED);
	memset(at, 1, pages * PAGE);
	return at;
}

/* So little may be locked. */
static void allow(uint64_t bytes)
{
	struct rlimit limit;

	REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
	REQUIRE(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

static void set_mode(enum config_registration how)
{
	((struct config *)(uintptr_t)config_get())->registration = how;
}

/* Uses it, and lets go of it. True: a registration was found. */
static bool use(struct across_link *k, enum cache_kind kind, const void *at, size_t bytes)
{
	struct across_span s = {.hits = 0};
	struct cache_entry *e;

	REQUIRE(cache_hold(k, kind, &s, at, bytes, &e) == 0);
	REQUIRE(s.hits + s.misses == 1);
	cache_release(e);
	return s.hits;
}

STREAM_TEST(found_by_range)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k = one(&p), *other = handle(p.b)->link;
	uint8_t *at = map_pages(16);
	uint64_t before = fake_registered(k->context->context);

	CHECK(!use(k, CACHE_SOURCE, at + 100, 5 * PAGE));
	CHECK(use(k, CACHE_SOURCE, at + 100, 5 * PAGE));
	CHECK(use(k, CACHE_SOURCE, at, 1));
	CHECK(use(k, CACHE_SOURCE, at + 6 * PAGE - 1, 1));
	CHECK(!use(k, CACHE_SOURCE, at + 6 * PAGE - 1, 2));
	CHECK(!use(other, CACHE_SOURCE, at, 1));
	/* A source is no target; a target is a source. */
	CHECK(!use(k, CACHE_TARGET, at, 8 * PAGE));
	CHECK_EQ(cache_pinned(), 9 * PAGE);
	CHECK(use(k, CACHE_SOURCE, at + PAGE, 7 * PAGE));
	CHECK(use(k, CACHE_TARGET, at + PAGE, 7 * PAGE));
	/* A part that goes takes all of it with it. */
	cache_forget(at + 8 * PAGE, 100);
	cache_forget(at - PAGE, PAGE);
	CHECK(use(k, CACHE_TARGET, at, 8 * PAGE));
	cache_forget(at + 8 * PAGE - 1, 1);
	CHECK_EQ(cache_pinned(), PAGE); /* the other link's */
	CHECK_EQ(fake_registered(k->context->context), before);
	CHECK(!use(k, CACHE_TARGET, at, PAGE));
	cache_drop(other);
	CHECK_EQ(cache_pinned(), PAGE);
	cache_drop(k);
	CHECK_EQ(cache_pinned(), 0);
	across_leave(g);
	munmap(at, 16 * PAGE);
	pair_close(&p);
}

/* Memory that comes and goes as a whole is registered so; the rest of the program's is not. */
STREAM_TEST(wholes)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	uint8_t *at = map_pages(16);
	struct across_span s = {.whole = at + PAGE, .whole_bytes = 10 * PAGE};
	struct cache_entry *e;

	REQUIRE(cache_hold(one(&p), CACHE_SOURCE, &s, at + 2 * PAGE, 1, &e) == 0);
	cache_release(e);
	CHECK_EQ(cache_pinned(), 10 * PAGE);
	CHECK(use(one(&p), CACHE_SOURCE, at + PAGE, 10 * PAGE));
	CHECK(!use(one(&p), CACHE_SOURCE, at, 1));
	cache_drop(NULL);
	fake_limit(one(&p)->context->context,
		   fake_registered(one(&p)->context->context) + 3 * PAGE);
	REQUIRE(cache_hold(one(&p), CACHE_SOURCE, &s, at + 2 * PAGE, 1, &e) == 0);
	CHECK_EQ(cache_pinned(), PAGE);
	cache_release(e);
	fake_limit(one(&p)->context->context, 0);
	cache_drop(NULL);
	across_leave(g);
	munmap(at, 16 * PAGE);
	pair_close(&p);
}

/* ---- against a model ---- */

struct model {
	struct {
		uintptr_t start, end;
		uint32_t owner;
	} range[TALLY];
	uint32_t count;
};

static void model_drop(struct model *m, uint32_t n)
{
	m->range[n] = m->range[--m->count];
}

static bool model_finds(const struct model *m, uint32_t owner, uintptr_t at,
			uintptr_t end)
{
	for (uint32_t i = 0; i < m->count; i++)
		if ((m->range[i].owner == owner ||
		     (!(owner & 1) && m->range[i].owner == owner + 1)) &&
		    m->range[i].start <= at && m->range[i].end >= end)
			return true;
	return false;
}

static void model_add(struct model *m, uint32_t owner, uintptr_t start, uintptr_t end)
{
	for (uint32_t i = m->count; i-- > 0;)
		if ((m->range[i].owner | 1) == (owner | 1) &&
		    m->range[i].owner <= owner && m->range[i].start >= start &&
		    m->range[i].end <= end)
			model_drop(m, i);
	m->range[m->count].start = start;
	m->range[m->count].end = end;
	m->range[m->count++].owner = owner;
}

static void model_forget(struct model *m, uintptr_t start, uintptr_t end)
{
	for (uint32_t i = m->count; i-- > 0;)
		if (m->range[i].start < end && start < m->range[i].end)
			model_drop(m, i);
}

static uint32_t pick(uint32_t below)
{
	static _Thread_local uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % below;
}

/* It finds what a search through all would find, and nothing else; and what is held stays. */
STREAM_TEST(as_a_model)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k[2] = {one(&p), handle(p.b)->link};
	uint8_t *area = map_pages(AREA_PAGES);
	struct cache_entry *held[HOLDS] = {NULL};
	uint64_t before[2], sum = 0;
	static struct model m;
	uint32_t hits = 0;

	for (int i = 0; i < 2; i++)
		before[i] = fake_registered(k[i]->context->context);
	for (uint32_t i = 0; i < TALLY; i++) {
		uint32_t which = pick(2), kind = pick(2), slot = pick(HOLDS),
			 from = pick(AREA_PAGES * PAGE - 1),
			 len = 1 + pick(pick(4) ? 5 * PAGE : AREA_PAGES * PAGE);
		uintptr_t at = (uintptr_t)area + from;
		struct across_span s = {.hits = 0};
		bool known;

		len = len < AREA_PAGES * PAGE - from ? len : AREA_PAGES * PAGE - from;
		if (pick(40) == 0) {
			cache_forget((void *)at, len);
			model_forget(&m, at, at + len);
			continue;
		}
		known = model_finds(&m, which * 2 + kind, at, at + len);
		if (held[slot])
			cache_release(held[slot]);
		REQUIRE(cache_hold(k[which], (enum cache_kind)kind, &s, (void *)at, len,
				   &held[slot]) == 0);
		REQUIRE(s.hits == known && s.misses == !known && s.evictions == 0);
		REQUIRE(cache_memory(held[slot])->start <= at);
		REQUIRE(at + len - cache_memory(held[slot])->start <=
			cache_memory(held[slot])->bytes);
		hits += s.hits;
		if (!known)
			model_add(&m, which * 2 + kind, at & -(uintptr_t)PAGE,
				  (at + len + PAGE - 1) & -(uintptr_t)PAGE);
	}
	for (int i = 0; i < HOLDS; i++)
		if (held[i])
			cache_release(held[i]);
	for (uint32_t i = 0; i < m.count; i++)
		sum += m.range[i].end - m.range[i].start;
	CHECK_EQ(cache_pinned(), sum);
	CHECK_EQ(fake_registered(k[0]->context->context) - before[0] +
			 fake_registered(k[1]->context->context) - before[1],
		 sum);
	CHECK(hits > 100);
	cache_drop(NULL);
	across_leave(g);
	munmap(area, AREA_PAGES * PAGE);
	pair_close(&p);
}

/* ---- bounds ---- */

STREAM_TEST(what_may_be_locked)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k = one(&p);
	struct across_span s = {.hits = 0};
	struct cache_entry *e[3];
	uint8_t *at = map_pages(64);

	allow(16 * PAGE); /* half of it is for the cache */
	for (int i = 0; i < 8; i++)
		CHECK(!use(k, CACHE_SOURCE, at + 2 * i * PAGE, 1));
	CHECK(use(k, CACHE_SOURCE, at, 1));
	REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at + 2 * PAGE, 1, &e[0]) == 0);
	/* The third and the fourth are those that nobody has used for the longest time. */
	REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at + 40 * PAGE, 2 * PAGE, &e[1]) == 0);
	CHECK_EQ(s.evictions, 2);
	CHECK_EQ(cache_pinned(), 8 * PAGE);
	CHECK(use(k, CACHE_SOURCE, at, 1));
	CHECK(use(k, CACHE_SOURCE, at + 8 * PAGE, 1));
	/* More than there is room for, what is held included, is registered for its use alone. */
	REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at + 50 * PAGE, 6 * PAGE, &e[2]) == 0);
	CHECK_EQ(cache_pinned(), 9 * PAGE);
	cache_release(e[2]);
	CHECK_EQ(cache_pinned(), 3 * PAGE);
	cache_release(e[0]);
	cache_release(e[1]);
	CHECK(use(k, CACHE_SOURCE, at + 2 * PAGE, 1));
	allow(RLIM_INFINITY);
	cache_drop(NULL);
	across_leave(g);
	munmap(at, 64 * PAGE);
	pair_close(&p);
}

STREAM_TEST(so_many_entries)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k = one(&p);
	uint8_t *at = map_pages(2 * CACHE_ENTRIES + 20);
	static struct cache_entry *e[CACHE_ENTRIES];
	struct across_span s = {.hits = 0};

	for (int i = 0; i < CACHE_ENTRIES; i++)
		CHECK(!use(k, CACHE_SOURCE, at + 2 * i * PAGE, 1));
	for (int i = 0; i < 10; i++)
		CHECK(!use(k, CACHE_SOURCE, at + 2 * (CACHE_ENTRIES + i) * PAGE, 1));
	CHECK_EQ(cache_pinned(), CACHE_ENTRIES * PAGE);
	CHECK(use(k, CACHE_SOURCE, at + 20 * PAGE, 1));
	CHECK(!use(k, CACHE_SOURCE, at, 1));
	cache_drop(NULL);
	for (int i = 0; i < CACHE_ENTRIES; i++)
		REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at + 2 * i * PAGE, 1, &e[i]) ==
			0);
	CHECK_EQ(cache_hold(k, CACHE_SOURCE, &s, at + PAGE, 1, &e[0]), -ENOSPC);
	for (int i = 0; i < CACHE_ENTRIES; i++)
		cache_release(e[i]);
	cache_drop(NULL);
	CHECK_EQ(cache_pinned(), 0);
	across_leave(g);
	munmap(at, (2 * CACHE_ENTRIES + 20) * PAGE);
	pair_close(&p);
}

/* ---- refusals ---- */

STREAM_TEST(refused)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k = one(&p), *mate;
	struct link_context *c = k->context->context;
	uint64_t before = fake_registered(c);
	struct across_span s = {.hits = 0};
	struct cache_entry *e[2];
	struct link_memory m;
	uint8_t *at = map_pages(64);

	fake_limit(c, before + 8 * PAGE);
	for (int i = 0; i < 8; i++)
		CHECK(!use(k, CACHE_SOURCE, at + 2 * i * PAGE, 1));
	REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at + 20 * PAGE, 3 * PAGE, &e[0]) == 0);
	CHECK_EQ(s.evictions, 3);
	CHECK(use(k, CACHE_SOURCE, at + 6 * PAGE, 1));
	/* Not enough even without all that is not in use: then none. */
	CHECK_EQ(cache_hold(k, CACHE_SOURCE, &s, at + 30 * PAGE, 6 * PAGE, &e[1]),
		 -ENOMEM);
	CHECK_EQ(cache_pinned(), 3 * PAGE);
	cache_release(e[0]);
	/* Somebody else's need comes first. */
	CHECK_EQ(cache_allow(k, at, 7 * PAGE, LINK_MAY_WRITE, &m), 0);
	CHECK_EQ(cache_pinned(), 0);
	link_unregister(k->link, &m);
	CHECK(!use(k, CACHE_SOURCE, at, 8 * PAGE));
	fake_limit(c, before + ACROSS_WINDOW_BYTES + PAGE);
	CHECK_EQ(hub_create(k->context, &mate), 0);
	CHECK_EQ(cache_pinned(), 0);
	hub_drop(mate);
	fake_limit(c, 0);
	CHECK_EQ(fake_registered(c), before);
	across_leave(g);
	munmap(at, 64 * PAGE);
	pair_close(&p);
}

/* ---- a program that says nothing ---- */

/* Other memory at the same address: by a mapping, or since the pages were given back. */
static void exchange(uint8_t *at, size_t bytes, bool maps)
{
	if (maps)
		REQUIRE(mmap(at, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	else
		REQUIRE(madvise(at, bytes, MADV_DONTNEED) == 0);
}

static uint32_t broken(struct across_link *k, const uint8_t *at, size_t bytes)
{
	struct across_span s = {.hits = 0};
	struct cache_entry *e;

	REQUIRE(cache_hold(k, CACHE_SOURCE, &s, at, bytes, &e) == 0);
	REQUIRE(s.hits + s.misses == 1 && s.broken <= s.misses);
	cache_release(e);
	return s.broken;
}

STREAM_TEST(a_broken_contract)
{
	static const size_t sizes[] = {1, 2, 16, 17, 100, 250};
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	struct across_link *k = one(&p);

	set_mode(CONFIG_REGISTER_CHECK);
	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t pages = sizes[i / 2], bytes = pages * PAGE - 20;
		uint8_t *at = map_pages(pages);

		CHECK_EQ(broken(k, at + 10, bytes), 0);
		memset(at, 2, pages * PAGE); /* the same pages */
		CHECK_EQ(broken(k, at + 10, bytes), 0);
		exchange(at, pages * PAGE, i % 2);
		memset(at, 3, pages * PAGE);
		CHECK_EQ(broken(k, at + 10, bytes), 1);
		memset(at, 4, pages * PAGE);
		CHECK_EQ(broken(k, at + 10, bytes), 0);
		/* Who says so may do it. */
		cache_forget(at, pages * PAGE);
		exchange(at, pages * PAGE, i % 2);
		memset(at, 5, pages * PAGE);
		CHECK_EQ(broken(k, at + 10, bytes), 0);
		cache_forget(at, pages * PAGE);
		munmap(at, pages * PAGE);
	}
	CHECK_EQ(cache_pinned(), 0);
	set_mode(CONFIG_REGISTER_KEEP);
	across_leave(g);
	pair_close(&p);
}

STREAM_TEST(once)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	uint8_t *at = map_pages(4);

	set_mode(CONFIG_REGISTER_ONCE);
	CHECK(!use(one(&p), CACHE_SOURCE, at, PAGE));
	CHECK(!use(one(&p), CACHE_SOURCE, at, PAGE));
	CHECK_EQ(cache_pinned(), 0);
	set_mode(CONFIG_REGISTER_KEEP);
	across_leave(g);
	munmap(at, 4 * PAGE);
	pair_close(&p);
}

/* After a fork nothing is found, at either side. */
STREAM_TEST(a_fork)
{
	struct pair p = pair_open_up();
	struct across_guard g = across_enter();
	uint8_t *at = map_pages(4);
	pid_t pid;

	CHECK(!use(one(&p), CACHE_SOURCE, at, PAGE));
	across_leave(g);
	pid = st_fork();
	if (pid == 0) {
		CHECK_EQ(cache_pinned(), 0);
		across_forget(at, 4 * PAGE);
		st_exit();
	}
	st_reap(pid, 0);
	g = across_enter();
	CHECK_EQ(cache_pinned(), 0);
	CHECK(!use(one(&p), CACHE_SOURCE, at, PAGE));
	cache_drop(NULL);
	across_leave(g);
	munmap(at, 4 * PAGE);
	pair_close(&p);
}

/* ---- while devices are at work ---- */

enum { BYTES = 40000 };
static _Atomic bool is_over;

/* Evicts, forgets, and lets nearly nothing be kept. */
static void *harass(void *arg)
{
	uint8_t *from = arg;

	while (!atomic_load(&is_over)) {
		struct across_guard g = across_enter();

		if (pick(2))
			cache_give_up(PAGE);
		else
			cache_forget(from + pick(BYTES), 1);
		across_leave(g);
		usleep(20);
	}
	return NULL;
}

/* Whatever takes registrations out of the cache, none is taken from under the device. */
STREAM_TEST(never_in_flight)
{
	struct pair p = pair_open_up();
	static uint8_t from[BYTES], to[BYTES];
	struct across_key key;
	uint32_t done = 0, hits = 0;
	pthread_t thread;
	uint64_t id;

	bulk_retry_ms = 2;
	allow(64 * PAGE);
	REQUIRE(across_reach(handle(p.b), fd_sock(p.b), to, BYTES, ACROSS_MAY_WRITE, &key,
			     &id) == 0);
	REQUIRE(pthread_create(&thread, NULL, harass, from) == 0);
	while (done < 300) {
		uint32_t at = pick(BYTES / 2), len = 1 + pick(BYTES / 2);
		struct across_span s = {.at = from + at, .bytes = len};
		int r;

		flow_fill(from + at, len, done, 7);
		r = across_move(handle(p.a), fd_sock(p.a), &key, at, &s);
		REQUIRE(r == 0 || r == -EAGAIN);
		if (r < 0) /* the link beside takes a moment */
			across_settle();
		done += r == 0;
		hits += s.hits;
		REQUIRE(r < 0 || memcmp(from + at, to + at, len) == 0);
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	CHECK_EQ(fake_counts(across_world)->unregistered, 0);
	CHECK(hits > 0);
	across_unreach(id);
	across_forget(from, BYTES);
	allow(RLIM_INFINITY);
	pair_close(&p);
}
