/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a connection that the grids go through, as p.s sees them. */
#ifndef CONFORM_GRID_STATE_H
#define CONFORM_GRID_STATE_H

#include "conform/grid.h"

/* A grid takes longer than a case, where the machine is busy. */
#define GRID_SECONDS 200

struct grid_state {
	const char *name;
	/* p->c is -1 when the state closes it. */
	void (*enter)(struct pair *p, enum stage stage);
	size_t unread; /* bytes of the pattern that p->s can receive */
	bool ended;    /* behind these a receive does not wait */
	bool deaf;     /* p->s cannot send any more, or nobody would get it */
	bool full;     /* what p->s has sent lies unread, and there is no room for more */
};

extern const struct grid_state grid_states[];
extern const size_t grid_states_count;

/*
 * Whether to visit the next point: with GRID_THIN=N in the environment one of N. Where N has no factor
 * in common with what a grid's loops count to, each value of one loop meets each of another.
 */
bool grid_visits(void);

/* A connection in this state. */
struct pair state_open(const struct grid_state *state, enum stage stage);
/* With resets: thousands of connections leave no ports behind that must rest. */
void state_close(struct pair p);

/* Takes what is there, which must be the pattern from off on. *how: what ends it. */
size_t state_drain(int fd, size_t off, const char **how);
/* What is left to read and how that ends, what is pending, and what can still be sent. */
void say_rest(const struct grid_state *state, struct pair p, const char *what,
	      size_t off);

#endif
