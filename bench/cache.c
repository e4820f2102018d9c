/* SPDX-License-Identifier: Apache-2.0 */
/* What a registration of the program's memory costs: found, made, and exchanged for an old one. */
/*
 * As table 1 of VMMC-2. `fake` is on the in-process interconnect, so it has the library's own work
 * alone; `verbs ADDRESS` is with the RDMA device of that address, which pins pages. Medians of rounds
 * of `TURNS` uses, in nanoseconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "rdma/verbs.h"
#include "remote/parts.h"
#include "remote/remote.h"
#include "support/fake.h"

enum { PAGE = 4096, ROUNDS = 21, TURNS = 200, MOST = 16, APART = 17 };
static const size_t sizes[] = {1, 4, 16};
static uint8_t *area;
static int rounds = ROUNDS;

#define NEED(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "cache: line %d\n", __LINE__);                   \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double v[ROUNDS])
{
	qsort(v, (size_t)rounds, sizeof(*v), compare);
	return v[rounds / 2];
}

/* What may be locked where a system says nothing of it. Half of that is for the cache. */
#define LOCKABLE (8u << 20)

static void limit_lockable(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_max >= LOCKABLE);
	limit.rlim_cur = LOCKABLE;
	NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

/* So many of that size are kept, and then there is room for no more. */
static int most(size_t pages)
{
	int fit = (int)(LOCKABLE / 2 / (pages * PAGE));

	return fit < CACHE_ENTRIES ? fit : CACHE_ENTRIES;
}

/* Number n of those that lie apart from each other. */
static uint8_t *piece(int n)
{
	return area + (size_t)n * APART * PAGE;
}

static void use(struct across_link *k, int n, size_t pages, struct across_span *s)
{
	struct cache_entry *e;

	NEED(cache_hold(k, CACHE_SOURCE, s, piece(n), pages * PAGE, &e) == 0);
	cache_release(e);
}

/* The next piece to be used, of so many; the steps reach all of them, in no order of addresses. */
static int next(int *at, int count)
{
	*at = (*at + 389) % count;
	return *at;
}

/* One use, where so many pieces are kept, and every one is found. */
static double hit(struct across_link *k, size_t pages, int kept)
{
	struct across_span s = {.hits = 0};
	double v[ROUNDS];
	int at = 0;

	for (int i = 0; i < kept; i++)
		use(k, i, pages, &s);
	s = (struct across_span){.hits = 0};
	for (int r = 0; r < rounds; r++) {
		double began = now_ns();

		for (int i = 0; i < TURNS; i++)
			use(k, next(&at, kept), pages, &s);
		v[r] = (now_ns() - began) / TURNS;
	}
	NEED(s.misses == 0 && s.hits == (uint32_t)(rounds * TURNS));
	cache_drop(NULL);
	return median(v);
}

/* One that is not found: with room for it, or none but in the place of the oldest. */
static double miss(struct across_link *k, size_t pages, bool is_full)
{
	struct across_span s = {.hits = 0}, other = {.hits = 0};
	int kept = most(pages), first = is_full ? kept : 0,
	    turns = kept < TURNS ? kept : TURNS;
	double v[ROUNDS];

	for (int r = 0; r < rounds; r++) {
		double began;

		/* None of the others is there then. */
		cache_drop(NULL);
		for (int i = 0; i < first; i++)
			use(k, i, pages, &other);
		began = now_ns();
		for (int i = 0; i < turns; i++)
			use(k, first + i, pages, &s);
		v[r] = (now_ns() - began) / turns;
	}
	NEED(s.hits == 0 && (s.evictions > 0) == is_full);
	cache_drop(NULL);
	return median(v);
}

static struct across_link *open_fake(void)
{
	const struct link_limits limits = {.links = ACROSS_LINKS + ACROSS_BULKS,
					   .credits = ACROSS_CREDITS,
					   .sends = ACROSS_SENDS,
					   .watch_ms = 50};
	struct across_link *k;

	NEED(fake_open(fake_world_create(1), &limits, &across_contexts[0].context) == 0);
	NEED(hub_create(&across_contexts[0], &k) == 0);
	return k;
}

static struct across_link *open_verbs(const char *address)
{
	const struct link_limits limits = {.links = ACROSS_LINKS + ACROSS_BULKS,
					   .credits = ACROSS_CREDITS,
					   .sends = ACROSS_SENDS,
					   .watch_ms = 50};
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct across_link *k;
	const char *why = "";
	int r;

	/* A device that is software takes its time, in a virtual machine all the more. */
	rounds = 3;
	NEED(inet_pton(AF_INET, address, &at.sin_addr) == 1);
	r = link_verbs_open((struct sockaddr *)&at, &limits, &across_contexts[0].context,
			    &why);
	if (r < 0) {
		fprintf(stderr, "cache: %s: %s\n", why ? why : "verbs", strerror(-r));
		exit(1);
	}
	NEED(hub_create(&across_contexts[0], &k) == 0);
	return k;
}

int main(int argc, char **argv)
{
	size_t bytes = (size_t)(CACHE_ENTRIES + TURNS) * APART * PAGE;
	struct across_guard g;
	struct across_link *k;

	if (argc < 2 || (strcmp(argv[1], "verbs") == 0) != (argc == 3))
		return 2;
	area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	NEED(area != MAP_FAILED);
	for (int i = 0; i < CACHE_ENTRIES + TURNS; i++)
		memset(piece(i), 1, MOST * PAGE);
	g = across_enter();
	k = argc == 3 ? open_verbs(argv[2]) : open_fake();
	limit_lockable();
	printf("%-7s %8s %12s %12s %12s %12s\n", "pages", "kept", "hit, of 1",
	       "hit, of all", "miss", "exchanged");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		printf("%-7zu %8d %9.0f ns %9.0f ns %9.0f ns %9.0f ns\n", sizes[i],
		       most(sizes[i]), hit(k, sizes[i], 1),
		       hit(k, sizes[i], most(sizes[i])), miss(k, sizes[i], false),
		       miss(k, sizes[i], true));
	across_leave(g);
	return 0;
}
