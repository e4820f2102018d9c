/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the remote procedure calls that a process has counted out of its family's table. */
#include <stdlib.h>

#include "base/atomic.h"
#include "tool/observe/table.h"
#include "conn/table.h"

static uint64_t get(const _Atomic uint64_t *word)
{
	return load_relaxed(word);
}

/* Not more than there can be: whoever writes them may write anything. */
static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Behind the bucket in which 99 of 100 calls have been. */
static uint64_t p99_of(const uint64_t *buckets, uint64_t calls)
{
	uint64_t beyond = calls / 100, sum = 0;

	for (uint32_t i = CALL_BUCKETS; i-- > 0;) {
		sum = plus(sum, buckets[i]);
		if (sum > beyond)
			return call_bucket_end(i);
	}
	return 0;
}

static void read_row(const struct call_row *row, struct observe_call *call)
{
	uint64_t buckets[CALL_BUCKETS];

	call->ns = get(&row->ns);
	call->errors = get(&row->errors);
	for (uint32_t i = 0; i < CALL_BUCKETS; i++) {
		buckets[i] = get(&row->buckets[i]);
		call->calls = plus(call->calls, buckets[i]);
	}
	call->p99_ns = p99_of(buckets, call->calls);
}

static bool add_row(const struct call_row *row, const struct observe_call *call,
		    struct observe_list *calls)
{
	struct observe_call *added, read = *call;

	read_row(row, &read);
	if (read.calls == 0)
		return true;
	added = observe_add(calls);
	if (added)
		*added = read;
	return added;
}

static int compare_u32(uint32_t a, uint32_t b)
{
	return a < b ? -1 : a > b;
}

/* Those of one process: the others at the end. */
static int compare(const void *a, const void *b)
{
	const struct observe_call *x = a, *y = b;
	int c = compare_u32(x->is_other, y->is_other);

	if (c == 0)
		c = compare_u32(x->is_service, y->is_service);
	if (c == 0)
		c = compare_u32(x->program, y->program);
	if (c == 0)
		c = compare_u32(x->version, y->version);
	return c ? c : compare_u32(x->procedure, y->procedure);
}

static bool add_rows(const struct call_sheet *sheet, const struct observe_process *p,
		     struct observe_list *calls)
{
	bool well = true;

	for (uint32_t i = 0; i < CALL_ROWS && well; i++) {
		const struct call_row *row = &sheet->rows[i];
		struct observe_call call = {.process = p};

		/* Acquire: the key is complete. */
		if (load_acquire(&row->state) != CALL_ROW_USED)
			continue;
		call.is_service = atomic_load(&row->side) != CALL_CLIENT;
		call.program = atomic_load(&row->program);
		call.version = atomic_load(&row->version);
		call.procedure = atomic_load(&row->procedure);
		well = add_row(row, &call, calls);
	}
	for (uint32_t side = 0; side < CALL_SIDES && well; side++)
		well = add_row(&sheet->others[side],
			       &(struct observe_call){.process = p,
						      .is_service = side == CALL_SERVICE,
						      .is_other = true},
			       calls);
	return well;
}

bool observe_calls(const struct observe_process *p, struct observe_list *calls)
{
	const struct observe_family *f = p->family;
	const struct table_process *entry = f ? observe_entry(f, p->own_pid) : NULL;
	const struct call_sheet *sheet;
	size_t first = calls->count;
	uint32_t number = entry ? atomic_load(&entry->calls) - 1 : 0;

	if (!entry || number >= f->sheets)
		return true;
	sheet = (const void *)((const char *)f->table + table_sheets_at(f->slots));
	if (!add_rows(sheet + number, p, calls))
		return false;
	if (calls->count > first)
		qsort((struct observe_call *)calls->items + first, calls->count - first,
		      sizeof(struct observe_call), compare);
	return true;
}
