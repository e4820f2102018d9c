/* SPDX-License-Identifier: Apache-2.0 */
/* What other processes may see of this family of processes: its slots and its counts. */
#ifndef VD_CONN_TABLE_H
#define VD_CONN_TABLE_H

/*
 * The memory that a family of processes shares: its slots, and what each process has counted.
 *
 * It is a memfd that stays open in each of them, named TABLE_NAME and sealed against writing
 * from outside, so that whoever may look at /proc/PID/fd can map it and read along: nothing
 * that the processes do depends on who reads. It goes with the last of them.
 */
#include <errno.h>
#include <signal.h>
#include <stdalign.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/call_count.h"
#include "base/sections.h"
#include "conn/passed.h"
#include "conn/report.h"
#include "conn/slot.h"
#include "conn/trace_buffer.h"

#define TABLE_NAME  "viaduct-table"
#define TABLE_MAGIC 0x656c626174647631ull
/* To be raised when the meaning of a word changes; sizes are compared besides. */
#define TABLE_LAYOUT	13
#define TABLE_PROCESSES 512
#define TABLE_CROWD	512
#define TABLE_RESERVED	(-1)

struct table_process {
	/* As it has it itself; 0 nobody's, TABLE_RESERVED a child's to be. Those of the dead are
	 * left behind. */
	_Atomic int32_t pid;
	_Atomic uint32_t
		fork; /* number of the one that it came by, among all of the family */
	struct report counts;
	struct trace_answer trace; /* to `viaduct trace` */
	_Atomic uint32_t
		calls; /* 0, or 1 more than the number of the sheet that it has */
};

struct slot_table {
	uint64_t magic;
	uint32_t layout, table_bytes, slot_bytes, slot_count, process_bytes,
		process_count, sheet_bytes, sheet_count;
	_Atomic uint32_t next_process; /* where the search for a free entry begins */
	uint64_t trace_wish_at;	       /* address of struct trace_wish, in all of them */
	/* Free slots: index plus 1 in the low half, a tag against re-use in the high half. */
	alignas(64) _Atomic uint64_t free_head;
	alignas(64) _Atomic uint32_t fresh; /* slots never used begin here */
	/* At so many the dead are looked for before another is taken into use. */
	_Atomic uint32_t next_reclaim;
	_Atomic uint64_t sheets_taken; /* a bit for each that a process has */
	_Atomic uint32_t leavers; /* 1: a process has left, which can still write marks */
	/* 1: some process is not among those below, or its pid is another one here. */
	_Atomic uint32_t uncounted;
	_Atomic uint32_t
		waits_on_parents; /* how often a child has first waited on an epoll instance that it has by a fork */
	/* By port: how often the threshold of an upgrade has been doubled. */
	alignas(64) _Atomic uint8_t records[SLOT_RECORDS];
	struct earn_costs costs;
	_Atomic uint64_t crowd[TABLE_CROWD]; /* crowd.h */
	_Atomic uint32_t next_passed;
	struct passed_entry passed[PASSED_ENTRIES];
	alignas(64) struct table_process processes[TABLE_PROCESSES];
	alignas(64) struct slot slots[];
};

/*
 * Behind the slots, on pages of their own, are the sheets: struct call_sheet, with the calls of RPC that
 * a process has counted. A process takes one with its first call, and has it until another process gets
 * its entry. Nobody touches one that was never taken, so that it takes no memory. They are few, since a
 * program that limits its address space has all of them in it.
 */
#define TABLE_SHEETS 16u
#define TABLE_PAGE   4096u
static inline size_t table_sheets_at(uint32_t slot_count)
{
	size_t slots_end =
		sizeof(struct slot_table) + (size_t)slot_count * sizeof(struct slot);

	return (slots_end + TABLE_PAGE - 1) / TABLE_PAGE * TABLE_PAGE;
}
static inline size_t table_sheets_end(uint32_t slot_count, uint32_t sheet_count)
{
	return table_sheets_at(slot_count) +
	       (size_t)sheet_count * sizeof(struct call_sheet);
}
/* This process's, from now on; NULL when it has none, as long as others have all of them. */
struct call_sheet *table_call_sheet(void);

/*
 * Behind the sheets, on pages of their own, a byte for each slot. These pages stay shared when a process
 * leaves the table: it can say there that somebody has a socket whom nobody counts, and nothing
 * else. See slot.left.
 */
_Atomic uint8_t *table_marks(struct slot_table *t);

/* Maps it, zeroed but for the head. Without a descriptor to spare it is not to be seen from
 * outside. NULL with errno. */
struct slot_table *table_map(uint32_t slot_count, uint32_t sheet_count);
/* Closes the descriptor: the program needs its number. False when it is closed already. */
bool table_give_back(void);
/* The program wants this very number: goes to another. False when it is not the table's. */
bool table_make_way(int fd);
/* The first process, which has made the table, counts in it. */
void table_count_here(struct slot_table *t);
/*
 * A fork: the parent finds the child's entry and puts its pid there, since each first look of
 * a child at shared memory is a page fault. One fork at a time. The parent gives 0 where it
 * does not know the pid: then it has the entry, and may tell when it does. The child is told whether it will;
 * -1 when there is no child.
 */
void table_forking(struct slot_table *t);
struct table_process *table_forked_parent(pid_t child);
void table_tell(struct table_process *p, pid_t child);
void table_forked_child(bool tells_pid);

/* It has ended, and nobody is about to use its entry; or it is nobody's pid. */
static inline bool table_process_is_gone(int32_t pid)
{
	return pid == 0 || (pid > 0 && kernel_kill(pid, 0) == -ESRCH);
}

/* True from the first fork on, in both: other processes may have this table. */
NEAR_EXTERN bool table_shared;
static inline bool table_is_shared(void)
{
	return table_shared;
}
/* One may, that lives: true in doubt. A look at each process that was ever counted. */
bool table_has_others(struct slot_table *t);
/* The same, of those that were forked from then on. With `forking` the child of the fork under way, which is not there
 * yet, is none. */
bool table_has_others_since(struct slot_table *t, uint32_t fork, bool forking);
/* The number of the fork under way, among all of the family. */
uint32_t table_fork_number(void);

/*
 * Leaving it, for a process with one thread, amid a critical section. First a new one is made, with
 * the head and the entry of this process in it. Then it takes the place of the old one, which goes
 * elsewhere, or NULL when that fails; nothing has changed then. At last the old one is unmapped.
 */
struct slot_table *table_leave_begin(struct slot_table *old);
struct slot_table *table_leave_swap(struct slot_table *old, struct slot_table *made);
void table_leave_end(struct slot_table *away);
/*
 * Leaving it amid threads: in its place comes a private copy of it, in one step. Threads go on in that,
 * as they were, with all that any process has written before; none is given out again, and children
 * get copies. What is returned is the old one, once more mapped elsewhere, until table_part_end; NULL: all
 * is as it was. `closes`: its descriptor is known to be the same for all threads.
 */
struct slot_table *table_part(struct slot_table *old);
void table_part_end(struct slot_table *away, bool closes);
NEAR_EXTERN _Atomic bool table_private; /* other threads look, amid the change */
static inline bool table_is_private(void)
{
	return load_relaxed(&table_private);
}

/*
 * The table that this process has left, which it can still read, and the marks there, which it can
 * write; NULL when there is none. `next`: the one that it is about to leave.
 */
const struct slot_table *table_former(void);
const struct slot_table *table_former_next(void);
_Atomic uint8_t *table_former_marks(void);
/* False: they cannot be kept without the rest of the memory, and are made before. */
bool table_can_mark(void);

/* The entry of this process, NULL when there is none, and its number; the memory's descriptor,
 * or -1. */
struct table_process *table_here(void);
uint32_t table_number_here(void);
int table_descriptor(void);
/* fd is memory such as a table's, of some family. */
bool table_is_memory(int fd);
/*
 * A memfd of this name, mapped, which others may read and not write. Its descriptor, which
 * fds_close_apart closes, or -errno.
 */
int table_memory(const char *name, size_t size, void **map);

#endif
