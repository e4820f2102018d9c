/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that can be mapped at both ends: vd_alloc, and who it is mapped at. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"
#include "native/native.h"

/*
 * A file of memory for each allocation, whose descriptor a peer may get. Its size is sealed: nobody can
 * take pages away that are mapped elsewhere.
 *
 * It is lent to one peer that may write, or to any number that only read. So when a peer that may
 * write does not let go of it, the memory under the program's address can be exchanged for a copy
 * of its own (memory_part), and no other peer is left behind with the old one.
 */
struct memory {
	struct memory *next;
	uint8_t *base;
	size_t len, asked; /* mapped, and asked for */
	int fd;		   /* -1: it has parted */
	uint32_t birth, exports, writers, readers;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *all;

/* ---- allocation ---- */

static int create(size_t len)
{
	int fd = memfd_create("viaduct-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) == 0 &&
	    door->fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	len = (size_t)errno;
	door->close(fd);
	return -(int)len;
}

static int map(struct memory *m)
{
	m->base = mmap(NULL, m->len, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->base == MAP_FAILED)
		return -errno;
	if (madvise(m->base, m->len, MADV_DONTFORK) == 0)
		return 0;
	munmap(m->base, m->len);
	return -ENOMEM;
}

NATIVE int vd_alloc(size_t len, void **out)
{
	NOT_CANCELLED;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct memory *m;
	int r = native_begin();

	if (r < 0)
		return r;
	if (len == 0 || len > SIZE_MAX / 2)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->asked = len;
	m->len = (len + page - 1) / page * page;
	m->birth = load_relaxed(native_birth);
	m->fd = r = create(m->len);
	if (r >= 0)
		r = map(m);
	if (r < 0) {
		if (m->fd >= 0)
			door->close(m->fd);
		free(m);
		return r;
	}
	pthread_mutex_lock(&lock);
	m->next = all;
	all = m;
	pthread_mutex_unlock(&lock);
	*out = m->base;
	return 0;
}

/* Under the lock. */
static struct memory **find(const void *base)
{
	struct memory **at = &all;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

NATIVE int vd_free(void *base)
{
	NOT_CANCELLED;
	struct memory **at, *m;
	int r = 0;

	if (!base)
		return 0;
	pthread_mutex_lock(&lock);
	at = find(base);
	m = *at;
	if (!m)
		r = -EINVAL;
	else if (m->birth != load_relaxed(native_birth))
		r = -ECHILD;
	else if (m->exports)
		r = -EBUSY;
	else
		*at = m->next;
	pthread_mutex_unlock(&lock);
	if (r < 0)
		return r;
	door->unregister(m->base, m->len);
	munmap(m->base, m->len);
	if (m->fd >= 0)
		door->close(m->fd);
	free(m);
	return 0;
}

NATIVE int vd_forget(const void *at, size_t len)
{
	NOT_CANCELLED;
	/* Without a connection in this process, nothing is registered; nor in a child of a bare fork,
	 * in which the engine may be anything. */
	if (load_relaxed(native_birth) != 0 && len > 0)
		door->unregister(at, len);
	return 0;
}

/* ---- for exports ---- */

struct memory *memory_use(const void *base, size_t len)
{
	struct memory *m;

	pthread_mutex_lock(&lock);
	m = *find(base);
	if (m && m->asked != len)
		m = NULL;
	if (m)
		m->exports++;
	pthread_mutex_unlock(&lock);
	return m;
}

void memory_unuse(struct memory *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&lock);
	m->exports--;
	pthread_mutex_unlock(&lock);
}

/* Another file description, which cannot be mapped for writing. */
static int read_only(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
}

int memory_lend(struct memory *m, bool writes)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	if (m->fd >= 0 && m->writers == 0 && (!writes || m->readers == 0))
		fd = writes ? door->fcntl(m->fd, F_DUPFD_CLOEXEC, 0) : read_only(m->fd);
	if (fd >= 0) {
		m->writers += writes;
		m->readers += !writes;
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

void memory_returned(struct memory *m, bool writes)
{
	pthread_mutex_lock(&lock);
	m->writers -= writes;
	m->readers -= !writes;
	pthread_mutex_unlock(&lock);
}

/* Under the lock: what of it is there. */
static struct memory *find_inside(const uint8_t *at, size_t len)
{
	struct memory *m = all;

	while (m && (at + len <= m->base || at >= m->base + m->len))
		m = m->next;
	return m;
}

bool memory_claim(const void *at, size_t len, bool writes, struct memory **out)
{
	const uint8_t *from = at;
	struct memory *m;
	bool is_free;

	pthread_mutex_lock(&lock);
	m = find_inside(from, len);
	/* Exchanged for a copy, it would be out of the device's sight; and of two only one is claimed. */
	is_free = !m || (m->writers == 0 && (!writes || m->readers == 0) &&
			 from >= m->base && from + len <= m->base + m->len);
	if (m && is_free) {
		m->writers += writes;
		m->readers += !writes;
		m->exports++;
	}
	pthread_mutex_unlock(&lock);
	*out = is_free ? m : NULL;
	return is_free;
}

void memory_around(const void *at, size_t len, const void **base, size_t *bytes)
{
	const uint8_t *from = at;
	struct memory *m;

	pthread_mutex_lock(&lock);
	m = find_inside(from, len);
	if (m && (from < m->base || from + len > m->base + m->len))
		m = NULL;
	*base = m ? m->base : NULL;
	*bytes = m ? m->len : 0;
	pthread_mutex_unlock(&lock);
}

void memory_unclaim(struct memory *m, bool writes)
{
	if (!m)
		return;
	memory_returned(m, writes);
	memory_unuse(m);
}

/* Each page becomes our own by a write that changes nothing, whoever else writes there. */
static void own_pages(struct memory *m)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (size_t at = 0; at < m->len; at += page) {
		_Atomic uint8_t *byte = (_Atomic uint8_t *)(m->base + at);
		uint8_t was = load_relaxed(byte);

		while (!atomic_compare_exchange_weak(byte, &was, was))
			;
	}
}

/*
 * The copy is the kernel's, of a page at a time when it is first written to. So what the program and other
 * peers' readers write meanwhile is not lost: before that step the copy has it, and after it the page is ours.
 */
int memory_part(struct memory *m)
{
	uint8_t *copy = mmap(NULL, m->len, PROT_READ | PROT_WRITE, MAP_PRIVATE, m->fd, 0);

	if (copy == MAP_FAILED)
		return -ENOMEM;
	door->unregister(m->base, m->len);
	/* In one step: the address is never without memory. */
	if (madvise(copy, m->len, MADV_DONTFORK) < 0 ||
	    mremap(copy, m->len, m->len, MREMAP_MAYMOVE | MREMAP_FIXED, m->base) ==
		    MAP_FAILED) {
		munmap(copy, m->len);
		return -ENOMEM;
	}
	own_pages(m);
	/* With pages that were the file's. */
	door->unregister(m->base, m->len);
	pthread_mutex_lock(&lock);
	door->close(m->fd);
	m->fd = -1;
	m->writers--;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- fork ---- */

void memory_forking(void)
{
	pthread_mutex_lock(&lock);
}

void memory_forked_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/* The kernel has not given it to the child. */
void memory_forked_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (struct memory *m = all; m; m = m->next)
		if (m->fd >= 0)
			door->close(m->fd);
	all = NULL;
}
