/* SPDX-License-Identifier: Apache-2.0 */
/* The native library in its process: finds the engine, and knows a fork. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "native/native.h"
#include "preload/hook.h"

/* A page that a forked child finds cleared. Before the first connection: this word. */
static const _Atomic uint32_t unborn;
const _Atomic uint32_t *native_birth = &unborn;

const struct door *door;

extern const struct door viaduct_door;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint32_t *page;
static uint32_t births;
static bool is_child; /* the handlers of a fork have run in it */
static bool own_engine;

static void forking(void)
{
	pthread_mutex_lock(&lock);
	service_forking();
	memory_forking();
}

static void forked_parent(void)
{
	memory_forked_parent();
	service_forked_parent();
	pthread_mutex_unlock(&lock);
}

static void forked_child(void)
{
	pthread_mutex_init(&lock, NULL);
	is_child = true;
	memory_forked_child();
	service_forked_child();
}

/* In a preloaded program its connections are to stand in that library's table. */
static const struct door *find_door(void)
{
	const struct door *d = dlsym(RTLD_DEFAULT, DOOR_NAME);

	if (d && d->version == DOOR_VERSION && d->bytes == sizeof(*d))
		return d;
	own_engine = true;
	hook_active = hook_begin(NULL);
	return &viaduct_door;
}

/* Under the lock. */
static int begin_once(void)
{
	void *map = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error = map == MAP_FAILED ? ENOMEM : 0;

	if (!error && madvise(map, sizeof(*page), MADV_WIPEONFORK) < 0)
		error = errno;
	/* The engine's handlers first: in a child they run before ours, which closes. */
	if (!error && !door)
		door = find_door();
	if (!error)
		error = pthread_atfork(forking, forked_parent, forked_child);
	if (error) {
		if (map != MAP_FAILED)
			munmap(map, sizeof(*page));
		return -error;
	}
	page = map;
	native_birth = page;
	return 0;
}

int native_begin(void)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!page)
		r = begin_once();
	else if (load_relaxed(page) == 0 && !is_child)
		r = -ECHILD; /* the engine was copied in the midst of something */
	if (r == 0 && load_relaxed(page) == 0)
		store_relaxed(page, ++births);
	pthread_mutex_unlock(&lock);
	return r;
}

__attribute__((destructor)) static void finish(void)
{
	if (own_engine && !hook_is_borrowed())
		hook_ends();
}
