/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that cannot be used, or not all of it, and what is asked after a call that was given it. */
#ifndef CONFORM_BAD_H
#define CONFORM_BAD_H

#include "conform/grid_state.h"

/*
 * NOTHING is NULL, LOW an address in no page, HIGH one that no process can have. NONE is a page
 * without access, READABLE one that cannot be written; CUT ends with its page amid the object,
 * FITS with the object.
 */
enum bad { NOTHING, LOW, HIGH, NONE, READABLE, CUT, FITS, BAD_COUNT };
extern const char *const bad_names[BAD_COUNT];

/* A place of this kind for `len` bytes, with those of `object` there as far as that can be. At
 * most BAD_PLACES stand at a time, none larger than a page. */
#define BAD_PLACES 4
void *bad_place(enum bad kind, const void *object, size_t len);
/* A word of what is at a place now: 0 where it cannot be read. */
unsigned bad_word(enum bad kind, const void *at);

/* One end of something that p.s is, and what it can be asked for. */
struct bad_state {
	const char *name;
	const char *grid; /* of grid_states; or NULL */
	struct pair (*open)(void);
};
extern const struct bad_state bad_states[];
extern const size_t bad_states_count;

struct bad_call {
	const char *name;
	/* What it returns; `extra` is for more to tell. */
	ssize_t (*run)(struct pair p, enum bad kind, char *extra);
	/* It may lead back to TCP, where a connection that was full has room again. */
	bool leaves;
};
/* Each call with each kind of memory in each state. */
void bad_sweep(const struct bad_call *calls, size_t count);
/* What is left at both ends of p, and that it still works. */
void bad_after(struct pair p, const char *what);

#endif
