/* SPDX-License-Identifier: Apache-2.0 */
/* liburing's functions that set a ring up: its system calls go past the C library. */
#include <dlfcn.h>

#include "hook/hook.h"

struct io_uring;
struct io_uring_params;

/* The library's own, by a name that the program could call: it may be loaded late. */
#define SET_UP(name, params, ...)                                                        \
	int name params;                                                                 \
	HOOK int name params                                                             \
	{                                                                                \
		int(*next) params;                                                       \
                                                                                         \
		*(void **)&next = dlsym(RTLD_NEXT, #name);                               \
		if (!next)                                                               \
			return -ENOSYS;                                                  \
		/* Before the first entry: a ring may be told of any socket. */          \
		hook_refuse_all(VD_REASON_IO_URING);                                     \
		return next(__VA_ARGS__);                                                \
	}

SET_UP(io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags),
       entries, ring, flags)
SET_UP(io_uring_queue_init_params,
       (unsigned entries, struct io_uring *ring, struct io_uring_params *p), entries,
       ring, p)
SET_UP(io_uring_queue_init_mem,
       (unsigned entries, struct io_uring *ring, struct io_uring_params *p, void *buf,
	size_t size),
       entries, ring, p, buf, size)
SET_UP(io_uring_setup, (unsigned entries, struct io_uring_params *p), entries, p)
