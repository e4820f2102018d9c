/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory of a family: made once, and an entry in it for each process. */
#include "stream/table.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pageable.h"
#include "base/place.h"
#include "base/quiet.h"
#include "base/real.h"
#include "base/self.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
/* The mapping that is there stays writable, here and in forks. */
#define TABLE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
/* Entries that are tried; with more processes than that the rest count for themselves. */
#define TABLE_TRIES 64

static _Atomic int table_fd = -1;
static struct table_process *here FORK_DATA;
static uint32_t number_here FORK_DATA;

/* A descriptor of the memory, or -errno. */
static int make_memory(const char *name, size_t size)
{
	int fd = memory_file(name), r;

	if (fd >= 0)
		fd = fds_adopt_apart(fd);
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

static void *map_shared(size_t size)
{
	int flags = MAP_SHARED | MAP_NORESERVE | MAP_ANONYMOUS;
	void *map;
	int fd = table_memory(TABLE_NAME, size, &map);

	if (fd >= 0) {
		atomic_store(&table_fd, fd);
		return map;
	}
	log_debug("connections cannot be listed from outside: %s", strerror(-fd));
	return pageable_map(NULL, size, flags, -1);
}

struct slot_table *table_map(uint32_t slot_count)
{
	size_t size =
		sizeof(struct slot_table) + (size_t)slot_count * sizeof(struct slot);
	struct slot_table *t = map_shared(size);

	if (t == MAP_FAILED)
		return NULL;
	t->layout = TABLE_LAYOUT;
	t->table_bytes = sizeof(*t);
	t->slot_bytes = sizeof(struct slot);
	t->slot_count = slot_count;
	t->process_bytes = sizeof(struct table_process);
	t->process_count = TABLE_PROCESSES;
	t->magic = TABLE_MAGIC;
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
	copy = REAL(fcntl64)(fd, F_DUPFD_CLOEXEC, 0);
	if (copy >= 0)
		copy = fds_adopt_apart(copy);
	/* Of two threads that want the number, one closes it. */
	if (atomic_compare_exchange_strong(&table_fd, &self, copy < 0 ? -1 : copy))
		fds_close_apart(fd);
	else if (copy >= 0)
		fds_close_apart(copy);
	return true;
}

static bool is_free(int32_t pid)
{
	return pid == 0 || (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH);
}

/* An entry with counts of 0, or NULL. */
static struct table_process *reserve(struct slot_table *t)
{
	uint32_t from =
		atomic_fetch_add_explicit(&t->next_process, 1, memory_order_relaxed);
	int saved = errno;

	for (uint32_t i = 0; i < TABLE_TRIES; i++) {
		struct table_process *p = &t->processes[(from + i) % TABLE_PROCESSES];
		int32_t pid = atomic_load(&p->pid);

		if (is_free(pid) &&
		    atomic_compare_exchange_strong(&p->pid, &pid, TABLE_RESERVED)) {
			memset(&p->counts, 0, sizeof(p->counts));
			atomic_store(&p->trace.session, TRACE_OFF);
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
}

void table_forked_parent(pid_t child)
{
	if (childs && child != 0)
		atomic_store(&childs->pid, child > 0 ? child : 0);
	childs = NULL;
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

int table_descriptor(void)
{
	return atomic_load(&table_fd);
}
