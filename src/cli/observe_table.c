/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the tables that Viaduct processes expose, and finds the slot of a connection. */
#include "cli/observe_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/kernel.h"
#include "stream/table.h"

/* The library makes no more, and a table that claims so would take our memory. */
enum { COUNT_TRIES = 8, SLOTS_MAX = 65536, NUMBERS_MAX = 1 << 20 };

static bool fits(const struct slot_table *t, size_t bytes)
{
	return bytes >= sizeof(*t) && t->magic == TABLE_MAGIC &&
	       t->layout == TABLE_LAYOUT && t->table_bytes == sizeof(*t) &&
	       t->slot_bytes == sizeof(struct slot) &&
	       t->process_bytes == sizeof(struct table_process) &&
	       t->process_count == TABLE_PROCESSES && t->slot_count <= SLOTS_MAX &&
	       (bytes - sizeof(*t)) / sizeof(struct slot) >= t->slot_count;
}

/* The last word that its maker writes. */
static bool is_empty(const struct slot_table *t, size_t bytes)
{
	return bytes >= sizeof(*t) && t->magic == 0;
}

/* Sets f->table, or returns why not; neither while the process begins. Memory that could
 * shrink would end us by SIGBUS. */
static const char *map_table(int fd, struct observe_family *f)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	void *map;

	f->table = NULL;
	/* It is being made. */
	if (fstat(fd, &st) != 0 || st.st_size == 0 || seals < 0 ||
	    !(seals & F_SEAL_SHRINK))
		return NULL;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return "its table cannot be mapped";
	if (is_empty(map, (size_t)st.st_size)) {
		munmap(map, (size_t)st.st_size);
		return NULL;
	}
	if (!fits(map, (size_t)st.st_size)) {
		munmap(map, (size_t)st.st_size);
		return "it runs another version of Viaduct than this command";
	}
	f->inode = st.st_ino;
	f->table = map;
	f->bytes = (size_t)st.st_size;
	return NULL;
}

static uint64_t cookie_of(const struct slot *sl)
{
	return atomic_load_explicit(&sl->cookie, memory_order_relaxed);
}

static int fd_of(const struct slot *sl)
{
	return atomic_load_explicit(&sl->fd, memory_order_relaxed);
}

static int compare_cookies(const void *a, const void *b)
{
	uint64_t x = cookie_of(*(const struct slot *const *)a);
	uint64_t y = cookie_of(*(const struct slot *const *)b);

	return x < y ? -1 : x > y;
}

static int compare_fds(const void *a, const void *b)
{
	int x = fd_of(*(const struct slot *const *)a);
	int y = fd_of(*(const struct slot *const *)b);

	return x < y ? -1 : x > y;
}

/* Words change while they are read: a search may then miss a slot, which shows as unknown. */
static bool sort_slots(struct observe_family *f)
{
	uint32_t end = atomic_load(&f->table->fresh);

	if (end > f->table->slot_count)
		end = f->table->slot_count;
	f->by_cookie = malloc((end + 1) * sizeof(struct slot *));
	f->by_fd = malloc((end + 1) * sizeof(struct slot *));
	if (!f->by_cookie || !f->by_fd)
		return false;
	for (uint32_t i = 0; i < end; i++) {
		const struct slot *sl = &f->table->slots[i];

		if (!atomic_load(&sl->used))
			continue;
		if (cookie_of(sl))
			f->by_cookie[f->cookies++] = sl;
		else
			f->by_fd[f->fds++] = sl;
	}
	qsort(f->by_cookie, f->cookies, sizeof(struct slot *), compare_cookies);
	qsort(f->by_fd, f->fds, sizeof(struct slot *), compare_fds);
	return true;
}

/* One that ends has no memory any more, and then its descriptors are root's. */
static bool has_ended(pid_t pid)
{
	char path[64], pages[64];

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	return !kernel_read_text(path, pages, sizeof(pages)) || atol(pages) == 0;
}

struct observe_family *observe_family(struct observe_family *families, size_t *count,
				      struct observe_process *p)
{
	struct observe_family *f = &families[*count];
	char path[96];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)p->pid, p->table);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		/* It may have ended, or closed it and got the number for a socket. */
		if (errno != ENOENT && errno != ESRCH && errno != ENXIO &&
		    !has_ended(p->pid))
			p->trouble =
				p->gave_back
					? "it was short of descriptors, and gave back "
					  "the one that shows its table: ask as root"
					: "its table cannot be opened";
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	for (size_t i = 0; i < *count; i++)
		if (families[i].inode == st.st_ino) {
			close(fd);
			return &families[i];
		}
	*f = (struct observe_family){0};
	p->trouble = map_table(fd, f);
	close(fd);
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
	char name[16];
	int fd;

	*end = 0;
	snprintf(name, sizeof(name), "%d", table_fd);
	fd = own ? openat(dir, name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		map_table(fd, &f);
		close(fd);
	}
	if (!f.table)
		return own;
	for (uint32_t i = 0; i < atomic_load(&f.table->fresh) && i < f.table->slot_count;
	     i++) {
		const struct slot *sl = &f.table->slots[i];

		if (atomic_load(&sl->used) && is_holder(sl, own_pid))
			note_bells(sl, own, end);
	}
	munmap((void *)f.table, f.bytes);
	return own;
}

const struct slot *observe_slot(const struct observe_family *f, uint64_t cookie, int fd,
				int32_t own_pid)
{
	size_t low = 0, high = f->cookies;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (cookie_of(f->by_cookie[mid]) < cookie)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < f->cookies && cookie_of(f->by_cookie[low]) == cookie)
		return f->by_cookie[low];
	/* Nobody has asked for its cookie yet. */
	low = 0;
	high = f->fds;
	while (low < high) {
		size_t mid = (low + high) / 2;

		if (fd_of(f->by_fd[mid]) < fd)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < f->fds && fd_of(f->by_fd[low]) == fd; low++)
		if (holds(f->by_fd[low], own_pid))
			return f->by_fd[low];
	return NULL;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void read_entry(const struct report *c, struct observe_counts *out)
{
	*out = (struct observe_counts){
		get(&c->connections),	  get(&c->upgraded),	    get(&c->downgraded),
		get(&c->tx_direct_bytes), get(&c->rx_direct_bytes), get(&c->tx_tcp_bytes),
		get(&c->rx_tcp_bytes),	  get(&c->doorbells),	    get(&c->sleeps),
		get(&c->redirects),	  get(&c->zero_copies),	    {0}};
	for (uint32_t r = 0; r < VD_REASON_COUNT; r++)
		out->reasons[r] = get(&c->reasons[r]);
}

/* Its own entry counts these when it closes them. */
static void add_open(const struct slot *const *slots, size_t count, int32_t own_pid,
		     struct observe_counts *out)
{
	for (size_t i = 0; i < count; i++) {
		const struct slot *sl = slots[i];
		uint32_t reason = atomic_load(&sl->reason);

		if (!atomic_load(&sl->used) || !is_holder(sl, own_pid))
			continue;
		out->tx_direct_bytes += sl->tx.produced;
		out->rx_direct_bytes += sl->rx.consumed;
		if (reason != VD_REASON_NONE && reason < VD_REASON_COUNT)
			out->reasons[reason]++;
	}
}

bool observe_counts(const struct observe_family *f, int32_t own_pid,
		    struct observe_counts *out)
{
	const struct table_process *p = NULL;
	struct observe_counts before, after;

	for (uint32_t i = 0; !p && own_pid && i < TABLE_PROCESSES; i++)
		if (atomic_load(&f->table->processes[i].pid) == own_pid)
			p = &f->table->processes[i];
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
		    before.rx_direct_bytes == after.rx_direct_bytes)
			break;
	}
	return true;
}
