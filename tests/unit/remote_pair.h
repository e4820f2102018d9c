/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the stream: both ends in one process, as if they were on two hosts, over the
 * fake interconnect. With VD_TEST_REMOTE set to its seed. */
#ifndef VD_TESTS_UNIT_REMOTE_PAIR_H
#define VD_TESTS_UNIT_REMOTE_PAIR_H

#include <pthread.h>

#include "conn/conn.h"
#include "rdma/fabric.h"
#include "remote/parts.h"
#include "remote/peer.h"
#include "settings/config.h"
#include "support/fake.h"

/* Eleven times that without a completion: a link has failed. */
enum { ACROSS_WATCH_MS = 50 };

static struct fake_world *across_world;
/* Nothing is waited for beside what the calls do. */
static bool across_is_hasty;
/* No time passes for the interconnect but by polls, and where a test lets it. */
static _Atomic bool across_is_stopped;

static inline bool across_is_tested(void)
{
	return getenv("VD_TEST_REMOTE") != NULL;
}

/* Time passes for the interconnect. */
static void *across_pump(void *arg)
{
	(void)arg;
	for (;;) {
		struct across_guard g = across_enter();

		for (int i = 0; i < 32 && !across_is_stopped; i++)
			fake_step(across_world);
		across_leave(g);
		usleep(across_is_stopped ? 20000 : 20);
	}
	return NULL;
}

static inline void across_world_begin(void)
{
	const struct link_limits limits = {.links = ACROSS_LINKS + ACROSS_BULKS,
					   .credits = ACROSS_CREDITS,
					   .sends = ACROSS_SENDS,
					   .watch_ms = ACROSS_WATCH_MS};
	pthread_t pump;

	if (across_world)
		return;
	across_world = fake_world_create(strtoull(getenv("VD_TEST_REMOTE"), NULL, 10));
	for (int i = 0; i < 2; i++) {
		REQUIRE(fake_open(across_world, &limits, &across_contexts[i].context) ==
			0);
		across_contexts[i].local.port = (uint16_t)(i + 1);
		REQUIRE(link_arm(across_contexts[i].context) == 0);
	}
	REQUIRE(pthread_create(&pump, NULL, across_pump, NULL) == 0);
	pthread_detach(pump);
}

/* From its next write on, links of that context are given up after eleven times that without a completion. A test in
 * which none comes wants LINK_WATCH_MAX, since a busy machine makes seconds of a moment; then ACROSS_WATCH_MS again.
 * Under the lock. */
static inline void across_watch(struct link_context *c, uint32_t ms)
{
	c->limits.watch_ms = ms;
	c->is_watched = false;
}

/* Of both contexts, for what counts writes: a look at a link may write to the peer. Takes the lock. */
static inline void across_watch_all(uint32_t ms)
{
	struct across_guard g = across_enter();

	for (int i = 0; i < 2; i++)
		across_watch(across_contexts[i].context, ms);
	across_leave(g);
}

/* All that is under way arrives, and is carried out. */
static inline void across_settle(void)
{
	struct across_guard g;

	if (!across_world || across_is_hasty)
		return;
	g = across_enter();
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < 16; j++)
			fake_step(across_world);
		hub_poll();
	}
	across_leave(g);
}

/*
 * The end of `judge` gives up the link. The other one hears of it by what it writes from here on: what was under way may
 * be complete, and an end that has nothing under way hears nothing until TCP ends.
 */
static inline void across_given_up(struct peer *judge, struct peer *other)
{
	struct across_guard g;
	bool failed = false;

	while (!failed) {
		across_settle();
		g = across_enter();
		failed = judge->link->failed;
		across_leave(g);
	}
	across_probe(other);
}

/* Two links that are each other's ends. Under the lock. */
static inline void across_link_pair(struct across_link *k[2])
{
	uint8_t hello[LINK_HELLO_BYTES];
	const char *why;

	for (int i = 0; i < 2; i++)
		REQUIRE(hub_create(&across_contexts[i], &k[i]) == 0);
	REQUIRE(link_hello(k[0]->link, hello) == 0);
	REQUIRE(link_connect(k[1]->link, hello, sizeof(hello), &why) == 0);
	REQUIRE(link_hello(k[1]->link, hello) == 0);
	REQUIRE(link_connect(k[0]->link, hello, sizeof(hello), &why) == 0);
	hub_connected(k[0]);
	k[0]->token = k[1]->token;
}

static inline bool across_has_place(const struct across_link *k)
{
	for (int i = 0; i < ACROSS_PLACES; i++)
		if (!k->at[i])
			return true;
	return false;
}

static inline struct across_link *across_other(const struct across_link *k)
{
	for (int i = 0; i < ACROSS_LINKS; i++)
		if (&across_links[i] != k && across_links[i].link &&
		    across_links[i].token == k->token)
			return &across_links[i];
	return NULL;
}

static inline bool across_find_pair(struct across_link *k[2])
{
	for (int i = 0; i < ACROSS_LINKS; i++) {
		k[0] = &across_links[i];
		if (!k[0]->link || k[0]->failed || !across_has_place(k[0]) ||
		    k[0]->context != &across_contexts[0])
			continue;
		k[1] = across_other(k[0]);
		if (k[1] && !k[1]->failed && across_has_place(k[1]))
			return true;
	}
	return false;
}

/* Of no host is anything measured. */
static inline uint32_t across_least(void)
{
	uint32_t least = config_get()->redirect;

	return least == CONFIG_MEASURED ? 0 : least;
}

static inline struct peer *across_handle(enum across_role role)
{
	struct peer *a = across_take_handle();

	if (a)
		*a = (struct peer){.state = ACROSS_OPEN,
				   .role = role,
				   .redirect_least = across_least()};
	return a;
}

/* As if the two had met. */
static inline void across_meet(struct sock *connected, struct sock *accepted)
{
	struct sock *s[2] = {connected, accepted};
	struct peer *a[2];
	struct across_link *k[2];
	struct across_guard g;

	across_world_begin();
	remote_register();
	g = across_enter();
	if (!across_find_pair(k))
		across_link_pair(k);
	for (int i = 0; i < 2; i++) {
		a[i] = across_handle(i == 0 ? ACROSS_CONNECTED : ACROSS_ACCEPTED);
		REQUIRE(a[i] && hub_take_place(k[i], a[i]));
	}
	for (int i = 0; i < 2; i++) {
		a[i]->peer_place = a[1 - i]->place;
		a[i]->peer_generation = a[1 - i]->generation;
		a[i]->has_peer = true;
	}
	across_leave(g);
	for (int i = 0; i < 2; i++) {
		atomic_store(&s[i]->peer, a[i]);
		atomic_store(&s[i]->slot->phase, SLOT_MEETING);
	}
}

#endif
