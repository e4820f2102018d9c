/* SPDX-License-Identifier: Apache-2.0 */
/* An interconnect inside one process, for tests: what happens, and when, follows a seed. */
#ifndef VD_RDMA_FAKE_H
#define VD_RDMA_FAKE_H

#include "rdma/link.h"

/*
 * Loses nothing, as reliable queue pairs do. But nothing happens at once: bytes arrive late,
 * and those of later writes before those of earlier ones, up to an immediate's, which comes
 * after all bytes before it. Completions come in the order of each queue, and late. Writes to
 * a peer that is dead, halted, closed or not yet connected fail after some tries; an idle end
 * hears nothing of the other's death. Not thread-safe.
 */
struct fake_world;

struct fake_counts {
	uint32_t dry;	    /* immediates that found no receive: always a fault of ours */
	uint32_t overrun;   /* completions that found the queue full: the same */
	uint32_t too_early; /* bytes that arrived before those of an earlier write */
	uint32_t strays;    /* writes that arrived after their link was destroyed */
	/* Works whose own memory was not registered any more when their turn came: a fault of ours. */
	uint32_t unregistered;
};

struct fake_world *fake_world_create(uint64_t seed);
/* After all of its contexts. */
void fake_world_destroy(struct fake_world *w);
/* A process. */
int fake_open(struct fake_world *w, const struct link_limits *limits,
	      struct link_context **out);

/* Lets something happen, or nothing. A poll does the same some times before it looks. */
void fake_step(struct fake_world *w);
/* Nothing is under way, nor is anything to be heard: until somebody posts, nothing happens. */
bool fake_is_still(const struct fake_world *w);
const struct fake_counts *fake_counts(const struct fake_world *w);
/* What is written to the dead does not even fail. */
void fake_mute(struct fake_world *w);
/* What a link that is destroyed has posted may still arrive, while the other end is there. */
void fake_linger(struct fake_world *w, bool lingers);

/* Nothing reaches the link any more: what is written to it, and that its own writes have
 * arrived, as they do. */
void fake_deafen(struct link *l);
/* The process dies: of what it has posted, a part may still arrive. */
/* Its process is in no call: while that is so, polls find nothing. */
void fake_leave(struct link_context *c, bool absent);
void fake_die(struct link_context *c);
/* The nth call of it that could fail does, with -ENOMEM. */
void fake_inject(struct link_context *c, uint32_t nth);
/* Beside windows, no more bytes of it can be registered at a time: -ENOMEM. */
void fake_limit(struct link_context *c, uint64_t bytes);
/* So many are. */
uint64_t fake_registered(const struct link_context *c);
/* True once it has. */
bool fake_injected(const struct link_context *c);
/* The link's nth write from now on ends so, without having arrived; 0: none does. */
void fake_break(struct link *l, uint32_t nth, enum link_error error);

#endif
