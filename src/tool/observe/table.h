/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that Viaduct processes expose, mapped to be read. */
#ifndef VD_TOOL_OBSERVE_TABLE_H
#define VD_TOOL_OBSERVE_TABLE_H

#include "conn/slot.h"
#include "tool/observe/parts.h"

struct table_process;

/* A slot, and what it was sorted by: the word in the slot may be another one by now. */
struct observe_key {
	uint64_t key;
	const struct slot *slot;
};

/*
 * One table, which a family of processes shares. They may write to it at any moment, and a
 * hostile one writes what it likes: a word that is judged is read once. Its head was judged as
 * a copy, so `slots` stands here, and the count in the table is not looked at again.
 */
struct observe_family {
	uint64_t inode;
	uid_t uid; /* who made it */
	const struct slot_table *table;
	size_t bytes;
	uint32_t slots, sheets; /* that are mapped */
	/* Of the slots in use: those with a cookie by cookie, the others by descriptor. */
	struct observe_key *by_cookie, *by_fd;
	size_t cookies, fds;
};

/* The family of a process with a table, mapped at the first call for it. NULL, with
 * p->trouble set unless the process begins or ends. Never more than `room` families. */
struct observe_family *observe_family(struct observe_family *families, size_t *count,
				      struct observe_process *p);
/*
 * The numbers that are the library's own in the process, as bits, NULL without memory or
 * table; for free(). dir: its folder of descriptors. *end: behind the last of them.
 */
uint64_t *observe_own_numbers(int dir, int table_fd, int32_t own_pid, int *end);
void observe_family_free(struct observe_family *f);
/* NULL when the process has no slot for it. */
const struct slot *observe_slot(const struct observe_family *f, uint64_t cookie, int fd,
				int32_t own_pid);
/* The counts of a process, with what is open; false when it has none. */
bool observe_counts(const struct observe_family *f, int32_t own_pid,
		    struct observe_counts *out);
/* Its entry, or NULL. */
const struct table_process *observe_entry(const struct observe_family *f,
					  int32_t own_pid);

/* ---- observe_calls.c ---- */

/* Adds the remote procedure calls that it has counted: struct observe_call. False without memory. */
bool observe_calls(const struct observe_process *p, struct observe_list *calls);

#endif
