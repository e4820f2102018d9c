/* SPDX-License-Identifier: Apache-2.0 */
/* Who has which sheet of counted calls (RPC) in the table of a family. */
#ifndef VD_CONN_SHEET_H
#define VD_CONN_SHEET_H

#include "base/call_count.h"
#include "conn/table.h"

/*
 * A process has a sheet from its first call on. The bit in `sheets_taken` is raised first, by whoever takes
 * it, and then the number stands in the entry's `calls`. Both go when somebody else reserves the entry, or
 * reserves it for that alone, since its process has ended. Anybody with the table can write these words: each
 * is read once, and bounded.
 */

/* How many there are, and where they begin in the table. */
void sheets_begin(size_t at, uint32_t count);
/* The process's, or NULL. */
struct call_sheet *sheet_found(const struct slot_table *t, const struct table_process *p);
/* The same of this process, which takes one if it can. Many calls may go by in between two searches. */
struct call_sheet *sheet_of_process(struct slot_table *t, struct table_process *p);
/* For the one who has reserved the entry. */
void sheet_give_back(struct slot_table *t, struct table_process *p);
/* The only one of a new table has what was counted in the old one. */
void sheet_move(struct slot_table *t, struct table_process *p,
		const struct slot_table *old, const struct table_process *was);

#endif
