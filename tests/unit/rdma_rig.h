/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes on the fake interconnect, and numbered messages between them. */
#ifndef VD_TESTS_UNIT_RDMA_RIG_H
#define VD_TESTS_UNIT_RDMA_RIG_H

#include "rdma/link.h"
#include "support/fake.h"
#include "unit/test.h"

enum {
	RIG_SLOT = 128,
	RIG_SLOTS = 64,
	RIG_EVENTS = 5,
	RIG_POLLS = 200000, /* whatever is to happen has happened before */
};

/* One of the two. */
struct rig_end {
	struct link_context *context;
	struct link *link;
	uint8_t window[RIG_SLOT * RIG_SLOTS], source[RIG_SLOT * RIG_SLOTS];
	struct link_memory memory;
	uint64_t source_until
		[RIG_SLOTS];	  /* the write that reads this part of the source */
	uint32_t seed, sent, got; /* messages */
	bool up, closed, failed;
	uint32_t rooms, dones;
};

struct rig {
	struct fake_world *world;
	struct rig_end a, b;
};

static inline uint8_t rig_byte(uint32_t seed, uint32_t message, uint32_t i)
{
	return (uint8_t)(seed + message * 37 + i * 11 + (message >> 8));
}

static inline uint32_t rig_bytes(uint32_t message)
{
	return message * 29 % (RIG_SLOT + 1);
}

static inline int rig_open_end(struct rig *r, struct rig_end *e,
			       struct link_limits limits)
{
	CHECK_EQ(fake_open(r->world, &limits, &e->context), 0);
	return 0;
}

static inline struct rig *rig_create(uint64_t seed, struct link_limits limits)
{
	struct rig *r = calloc(1, sizeof(*r));

	REQUIRE(r);
	r->world = fake_world_create(seed);
	r->a.seed = (uint32_t)seed;
	r->b.seed = (uint32_t)seed + 100;
	rig_open_end(r, &r->a, limits);
	rig_open_end(r, &r->b, limits);
	return r;
}

/* Both links, connected: A is first. 0, or the first failure. */
static inline int rig_connect(struct rig *r)
{
	uint8_t hello[LINK_HELLO_BYTES];
	struct rig_end *ends[2] = {&r->a, &r->b};
	const char *why;
	int n;

	for (int i = 0; i < 2; i++) {
		struct rig_end *e = ends[i];

		n = link_create(e->context, e->window, sizeof(e->window), &e->link);
		if (n < 0)
			return n;
		n = link_register(e->link, e->source, sizeof(e->source), &e->memory);
		if (n < 0)
			return n;
	}
	n = link_hello(r->a.link, hello);
	if (n == 0)
		n = link_connect(r->b.link, hello, sizeof(hello), &why);
	if (n == 0)
		n = link_hello(r->b.link, hello);
	if (n == 0)
		n = link_connect(r->a.link, hello, sizeof(hello), &why);
	return n;
}

static inline void rig_destroy(struct rig *r)
{
	CHECK_EQ(fake_counts(r->world)->dry, 0);
	CHECK_EQ(fake_counts(r->world)->overrun, 0);
	for (int i = 0; i < 2; i++) {
		struct rig_end *e = i ? &r->b : &r->a;

		if (e->memory.handle)
			link_unregister(e->link, &e->memory);
		link_destroy(e->link);
	}
	link_context_destroy(r->a.context);
	link_context_destroy(r->b.context);
	fake_world_destroy(r->world);
	free(r);
}

/* The next message: 0 or link_post's result. Every third goes inline, if it is short. */
static inline int rig_send(struct rig_end *e)
{
	uint32_t n = e->sent, slot = n % RIG_SLOTS, bytes = rig_bytes(n);
	uint8_t *from = e->source + slot * RIG_SLOT;
	bool is_inline = n % 3 == 0 && bytes <= link_inline_max(e->link);
	struct link_write w = {
		.from = from,
		.bytes = bytes,
		.flags = LINK_IMMEDIATE,
		.memory = is_inline ? NULL : &e->memory,
		.at = slot * RIG_SLOT,
		.immediate = link_immediate(n % LINK_IDS, n, n * 7),
	};
	int r;

	if (link_completed(e->link) < e->source_until[slot]) {
		link_drain(e->link);
		return -EAGAIN;
	}
	for (uint32_t i = 0; i < bytes; i++)
		from[i] = rig_byte(e->seed, n, i);
	r = link_post(e->link, &w);
	if (r < 0)
		return r;
	e->sent++;
	e->source_until[slot] = is_inline ? 0 : link_posted(e->link);
	if (is_inline)
		memset(from, 0xee, bytes);
	return 0;
}

static inline void rig_take(struct rig_end *e, const struct rig_end *from, uint32_t word)
{
	uint32_t n = e->got++, wrong = 0;
	const uint8_t *at = e->window + n % RIG_SLOTS * RIG_SLOT;

	CHECK_EQ(link_immediate_id(word), n % LINK_IDS);
	CHECK_EQ(link_immediate_generation(word), n & 0xff);
	CHECK_EQ(link_immediate_flags(word), n * 7 & 0xff);
	for (uint32_t i = 0; i < rig_bytes(n); i++)
		wrong += at[i] != rig_byte(from->seed, n, i);
	CHECK_EQ(wrong, 0);
}

/* One poll; the number of its events. */
static inline int rig_poll(struct rig_end *e, const struct rig_end *from)
{
	struct link_event events[RIG_EVENTS];
	int n = link_poll(e->context, events, RIG_EVENTS);

	for (int i = 0; i < n; i++) {
		CHECK(events[i].link == e->link);
		CHECK(!e->failed);
		switch (events[i].type) {
		case LINK_EVENT_UP:
			CHECK(!e->up);
			e->up = true;
			break;
		case LINK_EVENT_IMMEDIATE:
			rig_take(e, from, events[i].immediate);
			break;
		case LINK_EVENT_ROOM:
			e->rooms++;
			break;
		case LINK_EVENT_DONE:
			e->dones++;
			break;
		case LINK_EVENT_READ:
			break;
		case LINK_EVENT_CLOSED:
			CHECK(!e->closed);
			e->closed = true;
			break;
		case LINK_EVENT_FAILED:
			e->failed = true;
			break;
		}
	}
	return n;
}

/* Until B may post. */
static inline void rig_up(struct rig *r)
{
	CHECK_EQ(rig_connect(r), 0);
	CHECK_EQ(link_state(r->a.link), LINK_UP);
	for (int i = 0; i < RIG_POLLS && !r->b.up; i++)
		rig_poll(&r->b, &r->a);
	REQUIRE(r->b.up);
}

#endif
