/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the tables that Viaduct processes expose, and finds the slot of a connection. */
#include "base/atomic.h"
#include "tool/observe/table.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"
#include "conn/table.h"
#include "tool/observe/file.h"

/* The library makes no more, and a table that claims so would take our memory. */
enum { COUNT_TRIES = 8, SLOTS_MAX = 65536, NUMBERS_MAX = 1 << 20 };

/* The first words of struct slot_table. */
struct head {
	uint64_t magic;
	uint32_t layout, table_bytes, slot_bytes, slot_count, process_bytes,
		process_count, sheet_bytes, sheet_count;
};
static_assert(offsetof(struct head, slot_count) ==
			      offsetof(struct slot_table, slot_count) &&
		      offsetof(struct head, process_count) ==
			      offsetof(struct slot_table, process_count) &&
		      offsetof(struct head, sheet_count) ==
			      offsetof(struct slot_table, sheet_count),
	      "the same words");

static bool fits(const struct head *h, uint64_t bytes)
{
	uint64_t behind = bytes - sizeof(struct slot_table);

	return bytes >= sizeof(struct slot_table) && h->magic == TABLE_MAGIC &&
	       h->layout == TABLE_LAYOUT && h->table_bytes == sizeof(struct slot_table) &&
	       h->slot_bytes == sizeof(struct slot) &&
	       h->process_bytes == sizeof(struct table_process) &&
	       h->process_count == TABLE_PROCESSES && h->slot_count <= SLOTS_MAX &&
	       h->sheet_bytes == sizeof(struct call_sheet) &&
	       h->sheet_count <= TABLE_SHEETS &&
	       behind / sizeof(struct slot) >= h->slot_count &&
	       (h->sheet_count == 0 ||
		bytes >= table_sheets_end(h->slot_count, h->sheet_count));
}

/* Sets f->table, or returns why not; neither while the process begins. Memory that could
 * shrink would end us by SIGBUS. */
static const char *map_table(const struct observe_file *file, struct observe_family *f)
{
	struct head head = {0};
	size_t bytes;
	void *map;

	f->table = NULL;
	/* It is being made. */
	if (file->size == 0 || !observe_file_is_sealed(file))
		return NULL;
	/* Judged is a copy: its maker can write to the table at any moment. */
	if (pread(file->fd, &head, sizeof(head), 0) < 0)
		return "its table cannot be read";
	/* The last word that its maker writes. */
	if (file->size >= sizeof(struct slot_table) && head.magic == 0)
		return NULL;
	if (!fits(&head, file->size))
		return "it runs another version of Viaduct than this command";
	bytes = head.sheet_count ? table_sheets_end(head.slot_count, head.sheet_count)
				 : sizeof(struct slot_table) +
					   head.slot_count * sizeof(struct slot);
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file->fd, 0);
	if (map == MAP_FAILED)
		return "its table cannot be mapped";
	f->inode = file->inode;
	f->uid = file->uid;
	f->table = map;
	f->bytes = bytes;
	f->slots = head.slot_count;
	f->sheets = head.sheet_count;
	return NULL;
}

/* The slots from here on were never used. */
static uint32_t slots_end(const struct observe_family *f)
{
	uint32_t fresh = atomic_load(&f->table->fresh);

	return fresh < f->slots ? fresh : f->slots;
}

static uint64_t cookie_of(const struct slot *sl)
{
	return load_relaxed(&sl->cookie);
}

static int fd_of(const struct slot *sl)
{
	return load_relaxed(&sl->fd);
}

static uint64_t fd_key(int fd)
{
	return (uint32_t)fd;
}

static int compare_keys(const void *a, const void *b)
{
	const struct observe_key *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Words change while they are read: a search may then miss a slot, which shows as unknown. */
static bool sort_slots(struct observe_family *f)
{
	uint32_t end = slots_end(f);

	f->by_cookie = malloc(((size_t)end + 1) * sizeof(*f->by_cookie));
	f->by_fd = malloc(((size_t)end + 1) * sizeof(*f->by_fd));
	if (!f->by_cookie || !f->by_fd)
		return false;
	for (uint32_t i = 0; i < end; i++) {
		const struct slot *sl = &f->table->slots[i];
		uint64_t cookie = cookie_of(sl);

		if (!atomic_load(&sl->used))
			continue;
		if (cookie)
			f->by_cookie[f->cookies++] = (struct observe_key){cookie, sl};
		else
			f->by_fd[f->fds++] = (struct observe_key){fd_key(fd_of(sl)), sl};
	}
	qsort(f->by_cookie, f->cookies, sizeof(*f->by_cookie), compare_keys);
	qsort(f->by_fd, f->fds, sizeof(*f->by_fd), compare_keys);
	return true;
}

/* One that ends has no memory any more, and then its descriptors are root's. */
static bool has_ended(pid_t pid)
{
	char path[64], pages[64];

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	return !kernel_read_text(path, pages, sizeof(pages)) || atol(pages) == 0;
}

/* Why a process does not show its table, or NULL: it may have ended, or closed it and got the
 * number for a socket. */
static const char *trouble_of(const struct observe_process *p, int error)
{
	if (error == -ENOENT || error == -ESRCH || error == -ENXIO || has_ended(p->pid))
		return NULL;
	if (error == -EWOULDBLOCK)
		return "its table is held by a lease";
	return p->gave_back ? "it was short of descriptors, and gave back the one that "
			      "shows its table: ask as root"
			    : "its table cannot be opened";
}

struct observe_family *observe_family(struct observe_family *families, size_t *count,
				      struct observe_process *p)
{
	struct observe_family *f = &families[*count];
	struct observe_file file;
	char path[96];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)p->pid, p->table);
	r = observe_file_open(path, O_RDONLY, &file);
	if (r < 0) {
		p->trouble = trouble_of(p, r);
		return NULL;
	}
	for (size_t i = 0; i < *count; i++)
		if (families[i].inode == file.inode) {
			close(file.fd);
			return &families[i];
		}
	*f = (struct observe_family){0};
	p->trouble = map_table(&file, f);
	close(file.fd);
	if (!f->table)
		return NULL;
	(*count)++;
	if (!sort_slots(f))
		p->trouble = "there is no memory to read its table";
	return f;
}

void observe_family_free(struct observe_family *f)
{
	free(f->by_cookie);
	free(f->by_fd);
	munmap((void *)f->table, f->bytes);
}

static bool is_holder(const struct slot *sl, int32_t pid)
{
	for (int i = 0; i < SLOT_HOLDERS; i++) {
		int32_t holder = atomic_load(&sl->holders[i]);

		if (holder == pid || holder == -pid)
			return true;
	}
	return false;
}

/* Or may be one. */
static bool holds(const struct slot *sl, int32_t pid)
{
	return atomic_load(&sl->crowded) || is_holder(sl, pid);
}

static void note_bells(const struct slot *sl, uint64_t *own, int *end)
{
	/* Those that are going may be the program's by now. */
	if (atomic_load(&sl->phase) >= SLOT_LEAVING)
		return;
	for (int i = 0; i < 3; i++) {
		int32_t fd = atomic_load(&sl->bells[i]);

		if (fd <= 2 || fd >= NUMBERS_MAX)
			continue;
		own[fd / 64] |= (uint64_t)1 << (fd % 64);
		if (fd >= *end)
			*end = fd + 1;
	}
}

uint64_t *observe_own_numbers(int dir, int table_fd, int32_t own_pid, int *end)
{
	struct observe_family f = {0};
	uint64_t *own = calloc(NUMBERS_MAX / 64, sizeof(*own));
	struct observe_file file;
	char name[16];
	uint32_t slots;

	*end = 0;
	snprintf(name, sizeof(name), "%d", table_fd);
	if (own && observe_file_open_at(dir, name, O_RDONLY, &file) == 0) {
		map_table(&file, &f);
		close(file.fd);
	}
	if (!f.table)
		return own;
	slots = slots_end(&f);
	for (uint32_t i = 0; i < slots; i++) {
		const struct slot *sl = &f.table->slots[i];

		if (atomic_load(&sl->used) && is_holder(sl, own_pid))
			note_bells(sl, own, end);
	}
	munmap((void *)f.table, f.bytes);
	return own;
}

/* The first of those with a key of no less. */
static size_t search(const struct observe_key *keys, size_t count, uint64_t key)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (keys[mid].key < key)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct slot *observe_slot(const struct observe_family *f, uint64_t cookie, int fd,
				int32_t own_pid)
{
	size_t i = search(f->by_cookie, f->cookies, cookie);

	if (i < f->cookies && f->by_cookie[i].key == cookie)
		return f->by_cookie[i].slot;
	/* Nobody has asked for its cookie yet. */
	for (i = search(f->by_fd, f->fds, fd_key(fd));
	     i < f->fds && f->by_fd[i].key == fd_key(fd); i++)
		if (holds(f->by_fd[i].slot, own_pid))
			return f->by_fd[i].slot;
	return NULL;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
	return load_relaxed(counter);
}

static void read_entry(const struct report *c, struct observe_counts *out)
{
	*out = (struct observe_counts){.connections = get(&c->connections),
				       .upgraded = get(&c->upgraded),
				       .downgraded = get(&c->downgraded),
				       .tx_direct_bytes = get(&c->tx_direct_bytes),
				       .rx_direct_bytes = get(&c->rx_direct_bytes),
				       .tx_tcp_bytes = report_tcp_bytes(c, true),
				       .rx_tcp_bytes = report_tcp_bytes(c, false),
				       .tx_rdma_bytes = get(&c->tx_rdma_bytes),
				       .rx_rdma_bytes = get(&c->rx_rdma_bytes),
				       .doorbells = get(&c->doorbells),
				       .sleeps = get(&c->sleeps),
				       .redirects = get(&c->redirects),
				       .zero_copies = get(&c->zero_copies),
				       .pinned_bytes = get(&c->pinned_bytes)};
	for (uint32_t i = 0; i < NATIVE_COUNTS; i++)
		out->native[i] = get(&c->native[i]);
	for (uint32_t r = 0; r < VD_REASON_COUNT; r++)
		out->reasons[r] = get(&c->reasons[r]);
}

/* Its own entry counts these when it closes them. */
static void add_open(const struct observe_key *slots, size_t count, int32_t own_pid,
		     struct observe_counts *out)
{
	for (size_t i = 0; i < count; i++) {
		const struct slot *sl = slots[i].slot;
		uint32_t reason = atomic_load(&sl->reason);

		if (!atomic_load(&sl->used) || !is_holder(sl, own_pid))
			continue;
		out->tx_direct_bytes += sl->tx.produced;
		out->rx_direct_bytes += sl->rx.consumed;
		if (atomic_load(&sl->across)) {
			out->tx_rdma_bytes += sl->tx.produced;
			out->rx_rdma_bytes += sl->rx.consumed;
		}
		for (uint32_t n = 0; n < NATIVE_COUNTS; n++)
			out->native[n] += get(&sl->native_counts[n]);
		if (reason != VD_REASON_NONE && reason < VD_REASON_COUNT)
			out->reasons[reason]++;
	}
}

const struct table_process *observe_entry(const struct observe_family *f, int32_t own_pid)
{
	for (uint32_t i = 0; own_pid && i < TABLE_PROCESSES; i++)
		if (atomic_load(&f->table->processes[i].pid) == own_pid)
			return &f->table->processes[i];
	return NULL;
}

bool observe_counts(const struct observe_family *f, int32_t own_pid,
		    struct observe_counts *out)
{
	const struct table_process *p = observe_entry(f, own_pid);
	struct observe_counts before, after;

	if (!p)
		return false;
	/* What is closed meanwhile would count twice, or not at all. */
	for (int tries = 0; tries < COUNT_TRIES; tries++) {
		read_entry(&p->counts, &before);
		*out = before;
		add_open(f->by_cookie, f->cookies, own_pid, out);
		add_open(f->by_fd, f->fds, own_pid, out);
		read_entry(&p->counts, &after);
		if (before.tx_direct_bytes == after.tx_direct_bytes &&
		    before.rx_direct_bytes == after.rx_direct_bytes &&
		    !memcmp(before.native, after.native, sizeof(after.native)))
			break;
	}
	return true;
}
