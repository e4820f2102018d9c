/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory of a family: made once, and an entry in it for each process. */
#include "base/atomic.h"
#include "conn/table.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/memory.h"
#include "base/pageable.h"
#include "base/quiet.h"
#include "base/real.h"
#include "base/sections.h"
#include "base/self.h"
#include "conn/sheet.h"
#include "conn/trace.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
/* The mapping that is there stays writable, here and in forks. */
#define TABLE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
/* Entries that are tried; with more processes than that the rest count for themselves. */
#define TABLE_TRIES 64

struct trace_wish trace_wish FORK_DATA;

static _Atomic int table_fd = -1;
static struct table_process *here FORK_DATA;
static uint32_t number_here FORK_DATA;
bool table_shared FORK_DATA;
/* Nobody can map more of it for writing: not even who has a part of it mapped, by
 * remap_file_pages. */
static bool is_sealed;
/* What the table says can be written by others. */
static uint32_t slots_mapped, sheets_mapped;
static ino_t
	memory; /* of the table: who parts from descriptors may have another file there */
_Atomic bool table_private NEAR_DATA;

/* A descriptor of the memory, or -errno. */
static int make_memory(const char *name, size_t size)
{
	int fd = LOW_MADE(fds_adopt_apart, memory_file(name)), r;

	if (fd < 0)
		return fd;
	r = quiet_truncate(fd, (off_t)size);
	if (r < 0) {
		fds_close_apart(fd);
		return r;
	}
	return fd;
}

int table_memory(const char *name, size_t size, void **map)
{
	int fd = make_memory(name, size), flags = MAP_SHARED | MAP_NORESERVE, r;

	if (fd < 0)
		return fd;
	*map = pageable_map(NULL, size, flags, fd);
	if (*map != MAP_FAILED && REAL(fcntl64)(fd, F_ADD_SEALS, TABLE_SEALS) == 0)
		return fd;
	r = -errno;
	if (*map != MAP_FAILED)
		pageable_unmap(*map, size);
	fds_close_apart(fd);
	return r;
}

static ino_t memory_of(int fd)
{
	struct stat st;

	return fd >= 0 && kernel_fstat(fd, &st) == 0 ? st.st_ino : 0;
}

static void *map_shared(size_t size)
{
	int flags = MAP_SHARED | MAP_NORESERVE | MAP_ANONYMOUS;
	void *map;
	int fd = table_memory(TABLE_NAME, size, &map);

	if (fd >= 0) {
		atomic_store(&table_fd, fd);
		memory = memory_of(fd);
		is_sealed = true;
		return map;
	}
	log_debug("connections cannot be listed from outside: %s", strerror(-fd));
	return pageable_map(NULL, size, flags, -1);
}

static size_t in_pages(size_t bytes)
{
	return (bytes + TABLE_PAGE - 1) / TABLE_PAGE * TABLE_PAGE;
}

/* Up to the sheets. */
static size_t slots_end(void)
{
	return table_sheets_at(slots_mapped);
}

/* Up to the marks. */
static size_t sheets_end(void)
{
	return table_sheets_end(slots_mapped, sheets_mapped);
}

static size_t whole(void)
{
	return sheets_end() + in_pages(slots_mapped);
}

_Atomic uint8_t *table_marks(struct slot_table *t)
{
	return (_Atomic uint8_t *)((char *)t + sheets_end());
}

static void fill_head(struct slot_table *t)
{
	t->layout = TABLE_LAYOUT;
	t->table_bytes = sizeof(*t);
	t->slot_bytes = sizeof(struct slot);
	t->slot_count = slots_mapped;
	t->process_bytes = sizeof(struct table_process);
	t->process_count = TABLE_PROCESSES;
	t->sheet_bytes = sizeof(struct call_sheet);
	t->sheet_count = sheets_mapped;
	t->trace_wish_at = (uintptr_t)&trace_wish;
	t->magic = TABLE_MAGIC;
}

struct slot_table *table_map(uint32_t slot_count, uint32_t sheet_count)
{
	struct slot_table *t;

	slots_mapped = slot_count;
	sheets_mapped = sheet_count;
	sheets_begin(slots_end(), sheet_count);
	t = map_shared(whole());
	if (t == MAP_FAILED)
		return NULL;
	fill_head(t);
	return t;
}

bool table_give_back(void)
{
	int fd = atomic_exchange(&table_fd, -1);

	if (fd < 0)
		return false;
	fds_close_apart(fd);
	log_debug("a descriptor is short: connections can no longer be listed from "
		  "outside");
	return true;
}

bool table_make_way(int fd)
{
	int copy, self = fd;

	if (fd < 0 || atomic_load(&table_fd) != fd)
		return false;
	copy = LOW_MADE(fds_adopt_apart, kernel_dup(fd));
	/* Of two threads that want the number, one closes it. */
	if (atomic_compare_exchange_strong(&table_fd, &self, copy < 0 ? -1 : copy))
		fds_close_apart(fd);
	else if (copy >= 0)
		fds_close_apart(copy);
	return true;
}

/* As if nobody had counted there. */
static void clear_entry(struct slot_table *t, struct table_process *p)
{
	memset(&p->counts, 0, sizeof(p->counts));
	atomic_store(&p->trace.session, TRACE_OFF);
	sheet_give_back(t, p);
}

/* An entry with counts of 0, or NULL. */
static struct table_process *reserve(struct slot_table *t)
{
	uint32_t from = fetch_add_relaxed(&t->next_process, 1);
	int saved = errno;

	for (uint32_t i = 0; i < TABLE_TRIES; i++) {
		struct table_process *p = &t->processes[(from + i) % TABLE_PROCESSES];
		int32_t pid = atomic_load(&p->pid);

		if (table_process_is_gone(pid) &&
		    atomic_compare_exchange_strong(&p->pid, &pid, TABLE_RESERVED)) {
			clear_entry(t, p);
			store_relaxed(&p->fork, from);
			errno = saved;
			return p;
		}
	}
	errno = saved;
	return NULL;
}

static void settle_here(struct table_process *p, uint32_t number)
{
	here = p;
	number_here = number;
	if (p)
		report_count_in(&p->counts);
}

void table_count_here(struct slot_table *t)
{
	struct table_process *p = reserve(t);

	if (!p)
		return;
	atomic_store(&p->pid, self_pid());
	settle_here(p, (uint32_t)(p - t->processes));
}

static struct table_process *childs FORK_DATA; /* of the fork under way */
static uint32_t childs_number FORK_DATA;

void table_forking(struct slot_table *t)
{
	childs = reserve(t);
	childs_number = childs ? (uint32_t)(childs - t->processes) : 0;
	if (!childs)
		atomic_store(&t->uncounted, 1);
	if (!table_shared)
		table_shared = true;
}

/* Who has gone on to another image by exec has it no more. This process's own entry may never have been told its pid. */
static bool may_have_it(struct table_process *p)
{
	int32_t pid = atomic_load(&p->pid);

	if (pid == 0 || pid == self_pid() || p == here)
		return false;
	return pid == TABLE_RESERVED ||
	       (kernel_kill(pid, 0) != -ESRCH && self_shares_image(pid));
}

/* Of all, or of those that were forked from *fork on. */
static bool has_others(struct slot_table *t, const uint32_t *fork, bool forking)
{
	bool found = !here || atomic_load(&t->uncounted);
	int saved = errno;

	for (uint32_t i = 0; i < TABLE_PROCESSES && !found; i++) {
		struct table_process *p = &t->processes[i];

		if (fork && (int32_t)(load_relaxed(&p->fork) - *fork) < 0)
			continue;
		found = !(forking && p == childs) && may_have_it(p);
	}
	errno = saved;
	return found;
}

bool table_has_others(struct slot_table *t)
{
	return has_others(t, NULL, false);
}

bool table_has_others_since(struct slot_table *t, uint32_t fork, bool forking)
{
	return has_others(t, &fork, forking);
}

uint32_t table_fork_number(void)
{
	return childs ? load_relaxed(&childs->fork) : 0;
}

struct table_process *table_forked_parent(pid_t child)
{
	struct table_process *p = childs;

	childs = NULL;
	if (!p || child == 0)
		return p;
	atomic_store(&p->pid, child > 0 ? child : 0);
	return NULL;
}

void table_tell(struct table_process *p, pid_t child)
{
	int32_t reserved = TABLE_RESERVED;

	/* Unless this process has another table by now. */
	if (p)
		atomic_compare_exchange_strong(&p->pid, &reserved, child);
}

FORK_CODE void table_forked_child(bool tells_pid)
{
	if (childs && tells_pid)
		atomic_store(&childs->pid, self_pid());
	settle_here(childs, childs_number);
	childs = NULL;
}

struct table_process *table_here(void)
{
	return here;
}

uint32_t table_number_here(void)
{
	return number_here;
}

static struct slot_table *table_of_here(void)
{
	return (struct slot_table *)(void *)((char *)(here - number_here) -
					     offsetof(struct slot_table, processes));
}

struct call_sheet *table_call_sheet(void)
{
	return here ? sheet_of_process(table_of_here(), here) : NULL;
}

int table_descriptor(void)
{
	return atomic_load(&table_fd);
}

bool table_is_memory(int fd)
{
	long seals = kernel_call4(SYS_fcntl, fd, F_GET_SEALS, 0, 0);

	/* The kernel may have added one against execution. */
	return seals > 0 && (seals & TABLE_SEALS) == TABLE_SEALS;
}

/* ---- leaving ---- */

static struct {
	const struct slot_table *table; /* can only be read */
	_Atomic uint8_t *marks;
} former;
/* While this process leaves: its new table's descriptor, and the old one to be read. */
static int made_fd = -1;
static const struct slot_table *next;

static const struct slot_table *map_to_read(void)
{
	int fd = table_descriptor();
	void *map = fd < 0 ? MAP_FAILED : pageable_map_read(slots_end(), fd);

	return map == MAP_FAILED ? NULL : map;
}

static void copy_head(struct slot_table *t, const struct slot_table *old)
{
	fill_head(t);
	memcpy((void *)t->records, (const void *)old->records, sizeof(t->records));
	store_relaxed(&t->costs.turn_ns, load_relaxed(&old->costs.turn_ns));
	store_relaxed(&t->costs.upgrade_ns, load_relaxed(&old->costs.upgrade_ns));
	if (!here)
		return;
	t->processes[number_here].counts = here->counts;
	sheet_move(t, &t->processes[number_here], old, here);
	atomic_store(&t->processes[number_here].pid, self_pid());
}

struct slot_table *table_leave_begin(struct slot_table *old)
{
	size_t size = whole();
	void *map;
	int flags = MAP_SHARED | MAP_NORESERVE | MAP_ANONYMOUS;

	made_fd = table_memory(TABLE_NAME, size, &map);
	if (made_fd < 0)
		map = pageable_map(NULL, size, flags, -1);
	if (map == MAP_FAILED)
		return NULL;
	copy_head(map, old);
	next = map_to_read();
	return map;
}

static void give_up_made(struct slot_table *made)
{
	pageable_unmap(made, whole());
	if (next)
		pageable_unmap((void *)next, slots_end());
	if (made_fd >= 0)
		fds_close_apart(made_fd);
	next = NULL;
	made_fd = -1;
}

struct slot_table *table_leave_swap(struct slot_table *old, struct slot_table *made)
{
	size_t size = whole();
	struct slot_table *away = pageable_move(old, size, NULL);

	if (away == MAP_FAILED) {
		give_up_made(made);
		return NULL;
	}
	if (pageable_move(made, size, old) != MAP_FAILED)
		return away;
	/* To where it came from: that takes no more than there was. */
	pageable_move(away, size, old);
	give_up_made(made);
	return NULL;
}

static void drop_former(void)
{
	if (former.table)
		pageable_unmap((void *)former.table, slots_end());
	if (former.marks)
		pageable_unmap((void *)former.marks, in_pages(slots_mapped));
}

bool table_can_mark(void)
{
	return is_sealed;
}

static void unmap_but_marks(struct slot_table *away)
{
	size_t size = whole();

	former.marks = is_sealed ? table_marks(away) : NULL;
	if (is_sealed)
		pageable_unmap_front(away, sheets_end(), size);
	else
		pageable_unmap(away, size);
}

void table_leave_end(struct slot_table *away)
{
	int fd = atomic_exchange(&table_fd, made_fd);

	drop_former();
	if (here)
		atomic_store(&away->processes[number_here].pid, 0);
	unmap_but_marks(away);
	former.table = next;
	next = NULL;
	is_sealed = made_fd >= 0;
	memory = memory_of(made_fd);
	made_fd = -1;
	if (fd >= 0)
		fds_close_apart(fd);
	table_shared = false;
}

/* ---- leaving it amid threads ---- */

/* What a thread writes is its own from the first store on. Until then it would see what others write:
 * so each page is stored to, and stays as it is. */
static void keep_pages(void *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += TABLE_PAGE) {
		_Atomic uint32_t *word = (_Atomic uint32_t *)(void *)((char *)from + at);
		uint32_t now = atomic_load(word);

		/* Stores, also where the word is another by now. */
		atomic_compare_exchange_strong(word, &now, now);
	}
}

static void keep_used_pages(struct slot_table *t)
{
	struct call_sheet *sheet;
	uint32_t used;

	keep_pages(t, sizeof(*t));
	used = atomic_load(&t->fresh);
	if (used > slots_mapped)
		used = slots_mapped;
	keep_pages(t, in_pages(sizeof(*t) + used * sizeof(t->slots[0])));
	keep_pages((void *)table_marks(t), in_pages(used));
	sheet = here ? sheet_found(t, here) : NULL;
	if (sheet)
		keep_pages(sheet, sizeof(*sheet));
}

struct slot_table *table_part(struct slot_table *old)
{
	size_t size = whole();
	int fd = table_descriptor();
	struct slot_table *away, *made;

	/* Without one there is no way to a private copy of what is shared. */
	if (fd < 0 || memory == 0 || memory_of(fd) != memory)
		return NULL;
	made = pageable_map(NULL, size, MAP_PRIVATE | MAP_NORESERVE, fd);
	if (made == MAP_FAILED)
		return NULL;
	away = pageable_again(old, size);
	if (away == MAP_FAILED) {
		pageable_unmap(made, size);
		return NULL;
	}
	/* First: no thread takes a slot of the copy. */
	atomic_store(&table_private, true);
	if (pageable_move(made, size, old) == MAP_FAILED) {
		atomic_store(&table_private, false);
		pageable_move(away, size, old);
		pageable_unmap(made, size);
		return NULL;
	}
	keep_used_pages(old);
	return away;
}

void table_part_end(struct slot_table *away, bool closes)
{
	int fd = atomic_exchange(&table_fd, -1);

	if (here)
		atomic_store(&away->processes[number_here].pid, 0);
	pageable_unmap(away, whole());
	table_shared = is_sealed = false;
	if (fd >= 0 && closes)
		fds_close_apart(fd);
}

const struct slot_table *table_former(void)
{
	return former.table;
}

const struct slot_table *table_former_next(void)
{
	return next;
}

_Atomic uint8_t *table_former_marks(void)
{
	return former.marks;
}
