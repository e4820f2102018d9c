/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake interconnect share. */
#ifndef VD_RDMA_FAKE_PARTS_H
#define VD_RDMA_FAKE_PARTS_H

#include "rdma/fabric.h"
#include "support/fake.h"

enum {
	INLINE_MAX = 64,
	WRITE_MAX = 1 << 20,
	TRIES = 12,	/* of a write to somebody who does not answer */
	LOOK_AHEAD = 4, /* writes whose bytes may overtake one another */
	STEPS_MAX = 6,	/* of a poll */
};

struct work {
	struct fabric_work w;
	uint8_t inline_bytes[INLINE_MAX];
	bool is_placed;
};

struct fake_link {
	struct link link;
	struct fake_link *next; /* of the world's */
	uint32_t peer_qpn;	/* 0: not connected */
	uint32_t receives;
	uint32_t first, count, delivered; /* of the works: a ring, by posting */
	uint32_t size, tries;
	uint32_t break_in;
	uint8_t break_error;
	bool is_halted, is_deaf;
	uint64_t receive_tag;
	struct work *works;
};

/* Memory that is registered, beside windows. */
struct offer {
	struct offer *next; /* of the world's */
	struct link *domain;
	struct fake_context *context;
	uint64_t start, bytes;
	uint32_t key, own_key; /* for the peer; for the own device */
	uint32_t may;	       /* enum link_may */
};

/* A write whose queue pair is gone, in the network: with its bytes. */
struct stray {
	struct stray *next;
	uint32_t from, to; /* queue pairs */
	struct fabric_work w;
	uint8_t bytes[];
};

struct fake_context {
	struct link_context context;
	struct fake_world *world;
	int bell; /* in the context's epoll instance */
	bool is_dead, is_armed, injected, is_absent;
	uint32_t inject_in;
	uint32_t still; /* works of a dead process that will arrive */
	uint64_t registered, limit;
	uint32_t first, count, size;
	struct fabric_done *queue;
};

struct fake_world {
	uint64_t random;
	uint32_t last_qpn, last_key;
	bool is_mute, lingers;
	struct stray *strays; /* the oldest first */
	struct fake_link *links;
	uint32_t links_count;
	struct offer *offers;
	struct fake_counts counts;
};

/* xorshift64* */
static inline uint32_t draw(struct fake_world *w, uint32_t below)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (uint32_t)((w->random * UINT64_C(2685821657736338717)) >> 33) % below;
}

static inline struct fake_context *context_of(const struct fake_link *l)
{
	return (struct fake_context *)l->link.context;
}

static inline struct work *work_at(struct fake_link *l, uint32_t n)
{
	return &l->works[(l->first + n) % l->size];
}

/* It may do that there. */
bool fake_allows(struct fake_link *peer, const struct fabric_work *w);
/* The bytes are there: an immediate is told. */
void fake_receive(struct fake_link *l, const struct fabric_work *w);

/* ---- fake_stray.c ---- */

/* The link is destroyed: of what it has sent, some may be on the way. */
void fake_leave_strays(struct fake_link *l);
/* The oldest one arrives. */
void fake_step_stray(struct fake_world *w);

#endif
