/* SPDX-License-Identifier: Apache-2.0 */
/* Sheets for counted calls: few, given to the processes that make calls, taken back from the dead. */
#include "base/atomic.h"
#include "conn/sheet.h"

#include <errno.h>
#include <string.h>

/* After a search in vain so many calls go by before the next one. */
#define SEARCH_CALLS 4096u

static size_t first_at;
static uint32_t sheets;
static _Atomic uint32_t calls_to_wait;

void sheets_begin(size_t at, uint32_t count)
{
	first_at = at;
	sheets = count;
}

static struct call_sheet *sheet_of(const struct slot_table *t, uint32_t number)
{
	return (struct call_sheet *)((char *)t + first_at) + number;
}

static uint64_t bit_of(uint32_t number)
{
	return UINT64_C(1) << number;
}

struct call_sheet *sheet_found(const struct slot_table *t, const struct table_process *p)
{
	/* Acquire: the thread that has taken it has emptied it before. */
	uint32_t number = load_acquire(&p->calls) - 1;

	return number < sheets ? sheet_of(t, number) : NULL;
}

void sheet_give_back(struct slot_table *t, struct table_process *p)
{
	uint32_t number;

	if (!atomic_load(&p->calls))
		return;
	number = atomic_exchange(&p->calls, 0) - 1;
	if (number < sheets)
		atomic_fetch_and(&t->sheets_taken, ~bit_of(number));
}

/* The number of one that nobody has, emptied; `sheets` when there is none. */
static uint32_t take(struct slot_table *t)
{
	for (uint32_t i = 0; i < sheets; i++)
		if (!(atomic_fetch_or(&t->sheets_taken, bit_of(i)) & bit_of(i))) {
			memset(sheet_of(t, i), 0, sizeof(struct call_sheet));
			return i;
		}
	return sheets;
}

static void take_back_from_the_dead(struct slot_table *t)
{
	int saved = errno;

	for (uint32_t i = 0; i < TABLE_PROCESSES; i++) {
		struct table_process *p = &t->processes[i];
		int32_t pid = atomic_load(&p->pid);

		if (!atomic_load(&p->calls) || !table_process_is_gone(pid) ||
		    !atomic_compare_exchange_strong(&p->pid, &pid, TABLE_RESERVED))
			continue;
		sheet_give_back(t, p);
		atomic_store(&p->pid, 0);
	}
	errno = saved;
}

static bool has_to_wait(void)
{
	uint32_t left = atomic_load(&calls_to_wait);

	return left && atomic_compare_exchange_strong(&calls_to_wait, &left, left - 1);
}

static struct call_sheet *first_sheet(struct slot_table *t, struct table_process *p)
{
	uint32_t number, none = 0;

	if (has_to_wait())
		return NULL;
	number = take(t);
	if (number == sheets) {
		take_back_from_the_dead(t);
		number = take(t);
	}
	if (number == sheets) {
		atomic_store(&calls_to_wait, SEARCH_CALLS);
		return NULL;
	}
	if (atomic_compare_exchange_strong(&p->calls, &none, number + 1))
		return sheet_of(t, number);
	/* Another thread's is this process's. */
	atomic_fetch_and(&t->sheets_taken, ~bit_of(number));
	return sheet_found(t, p);
}

struct call_sheet *sheet_of_process(struct slot_table *t, struct table_process *p)
{
	struct call_sheet *sheet = sheet_found(t, p);

	return sheet || !sheets ? sheet : first_sheet(t, p);
}

void sheet_move(struct slot_table *t, struct table_process *p,
		const struct slot_table *old, const struct table_process *was)
{
	const struct call_sheet *sheet = sheet_found(old, was);

	if (!sheet)
		return;
	*sheet_of(t, 0) = *sheet;
	atomic_store(&t->sheets_taken, bit_of(0));
	atomic_store(&p->calls, 1);
}
