/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has as many connections, links or addresses as it takes says so by the reason
 * `full`: more memory would not help. */
#include <arpa/inet.h>

#include "unit/test.h"

#include "unit/conn_pair.h"

__attribute__((constructor)) static void be_across(void)
{
	setenv("VD_TEST_REMOTE", "3", 0);
}

static struct name_end end_of(const char *address, uint16_t port)
{
	struct name_end e = {.addr = {[10] = 0xff, [11] = 0xff}, .port = htons(port)};

	REQUIRE(inet_pton(AF_INET, address, e.addr + 12) == 1);
	return e;
}

static const char here[] = "10.0.0.1", there[] = "10.0.0.2";

static int begin(const char *local, struct peer **out)
{
	const struct name_end ends[2] = {end_of(local, 4000), end_of(there, 5000)};

	return across_begin(&ends[0], &ends[1], ACROSS_ACCEPTED, out);
}

static void let_go(struct peer *a)
{
	struct across_guard g = across_enter();

	a->state = ACROSS_FREE;
	across_leave(g);
}

/* The first context has the address `here`. */
static void begin_world(void)
{
	struct across_guard g;

	across_world_begin();
	remote_register();
	g = across_enter();
	across_contexts[0].local = end_of(here, 1);
	across_leave(g);
}

STREAM_TEST(more_connections_than_there_are_places)
{
	static struct peer *a[ACROSS_CONNECTIONS];
	struct peer *more;

	begin_world();
	for (int i = 0; i < ACROSS_CONNECTIONS; i++)
		REQUIRE(begin(here, &a[i]) == 1);
	CHECK_EQ(begin(here, &more), -VD_REASON_FULL);
	let_go(a[7]);
	CHECK_EQ(begin(here, &a[7]), 1);
	for (int i = 0; i < ACROSS_CONNECTIONS; i++)
		let_go(a[i]);
}

/* Its peer is of a process that there is no link with yet. */
STREAM_TEST(more_links_than_there_are_places)
{
	struct across_link *links[ACROSS_LINKS], *link;
	int r, count = 0;
	struct across_guard g;
	struct peer *a;

	begin_world();
	REQUIRE(begin(here, &a) == 1);
	g = across_enter();
	while ((r = hub_create(&across_contexts[0], &link)) == 0)
		links[count++] = link;
	CHECK_EQ(r, -ENOSPC);
	CHECK(count > ACROSS_LINKS / 2);
	memset(a->process, 7, sizeof(a->process));
	a->state = ACROSS_KNOWN;
	across_leave(g);
	CHECK_EQ(across_step(a), -VD_REASON_FULL);
	g = across_enter();
	for (int i = 0; i < count; i++)
		hub_drop(links[i]);
	across_leave(g);
	let_go(a);
}

/* A connection with process `number` of that user and host. */
static struct peer *ask(const char *host, uint32_t uid, uint8_t number)
{
	const struct name_end ends[2] = {end_of(here, 4000), end_of(host, 5000)};
	struct across_guard g;
	struct peer *a;

	REQUIRE(across_begin(&ends[0], &ends[1], ACROSS_ACCEPTED, &a) == 1);
	g = across_enter();
	memset(a->process, number, sizeof(a->process));
	a->uid = uid;
	a->state = ACROSS_KNOWN;
	across_leave(g);
	return a;
}

/* As new_link does it. Whether there is a link for it. */
static bool takes_link(const char *host, uint32_t uid, uint8_t number)
{
	struct peer *a = ask(host, uid, number);
	struct across_guard g = across_enter();
	struct across_link *k;
	bool took = hub_has_share(a) && hub_create(&across_contexts[0], &k) == 0;

	if (took)
		hub_assign(k, a);
	across_leave(g);
	if (!took)
		CHECK_EQ(across_step(a), -VD_REASON_FULL);
	let_go(a);
	return took;
}

static int take_all(const char *host, uint32_t uid)
{
	int n = 0;

	while (n < ACROSS_LINKS && takes_link(host, uid, (uint8_t)n))
		n++;
	return n;
}

static void drop_links_with(const char *host)
{
	struct name_end e = end_of(host, 0);
	struct across_guard g = across_enter();

	for (int i = 0; i < ACROSS_LINKS; i++)
		if (memcmp(across_links[i].peer, e.addr, sizeof(e.addr)) == 0)
			hub_drop(&across_links[i]);
	across_leave(g);
}

/* Another user of that host, and one of another, still get theirs, and again after them. */
STREAM_TEST(a_user_with_many_processes_leaves_links_to_others)
{
	int one, other;

	begin_world();
	one = take_all(there, 1000);
	CHECK(one >= ACROSS_LINKS / 2 - 1);
	CHECK(one <= ACROSS_LINKS / 2);
	CHECK(takes_link(there, 1001, 1));
	CHECK(takes_link("10.0.0.3", 1000, 1));
	other = take_all("10.0.0.3", 1000);
	CHECK(other > 1);
	CHECK(takes_link(there, 1002, 1));
	CHECK(takes_link("10.0.0.4", 1000, 1));
	/* What one has given back is there for all. */
	drop_links_with(there);
	CHECK(takes_link("10.0.0.3", 1000, 100));
	drop_links_with("10.0.0.3");
	drop_links_with("10.0.0.4");
}

/* As one who has many user ids on his host. */
STREAM_TEST(a_host_with_many_users_leaves_links_to_others)
{
	int all = 0;

	begin_world();
	for (uint32_t uid = 1; uid < 200; uid++)
		all += take_all(there, uid);
	CHECK(all > ACROSS_LINKS / 2);
	for (uint32_t uid = 1; uid < 4; uid++)
		CHECK(takes_link("10.0.0.3", uid, 1));
	drop_links_with(there);
	drop_links_with("10.0.0.3");
}

static int none_here(const struct name_end *local, struct link_context **out,
		     const char **why)
{
	(void)local;
	(void)out;
	*why = "none";
	return -ENODEV;
}

/* An address without a device takes nobody's place; one that has a device does. */
STREAM_TEST(more_addresses_than_there_are_places)
{
	struct across_context spare[ACROSS_CONTEXTS];
	struct across_guard g;
	struct peer *a;

	begin_world();
	across_open_context = none_here;
	for (int i = 0; i < 6; i++)
		CHECK_EQ(begin((char[]){'1', '.', '1', '.', '1', '.', (char)('1' + i), 0},
			       &a),
			 -VD_REASON_NO_DEVICE);
	g = across_enter();
	memcpy(spare, across_contexts, sizeof(spare));
	for (int i = 2; i < ACROSS_CONTEXTS; i++) {
		across_contexts[i] = spare[1];
		across_contexts[i].local = end_of("10.0.1.1", (uint16_t)i);
	}
	across_leave(g);
	CHECK_EQ(begin("10.0.2.1", &a), -VD_REASON_FULL);
	g = across_enter();
	memcpy(across_contexts, spare, sizeof(spare));
	across_leave(g);
	across_open_context = NULL;
}
