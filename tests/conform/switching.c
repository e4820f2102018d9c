/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded before Viaduct: every few calls that move bytes switch their connection down. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVERY 5

__attribute__((weak)) void viaduct_test_bounce(int fd);

static _Atomic unsigned calls;

static void *next_of(_Atomic(void *) *kept, const char *name)
{
	void *f = atomic_load_explicit(kept, memory_order_relaxed);
	if (!f) {
		f = dlsym(RTLD_NEXT, name);
		atomic_store_explicit(kept, f, memory_order_relaxed);
	}
	return f;
}

static void turn(int fd)
{
	if (viaduct_test_bounce && (calls++ + 1) % EVERY == 0)
		viaduct_test_bounce(fd);
}

/* The function behind a name, after a turn. */
#define NEXT(type, name)                                                                 \
	static _Atomic(void *) kept;                                                     \
	type f;                                                                          \
	*(void **)&f = next_of(&kept, #name);                                            \
	turn(fd)

typedef ssize_t (*read_fn)(int, void *, size_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*recv_fn)(int, void *, size_t, int);
typedef ssize_t (*send_fn)(int, const void *, size_t, int);

__attribute__((visibility("default"))) ssize_t read(int fd, void *buf, size_t len)
{
	NEXT(read_fn, read);
	return f(fd, buf, len);
}

__attribute__((visibility("default"))) ssize_t write(int fd, const void *buf, size_t len)
{
	NEXT(write_fn, write);
	return f(fd, buf, len);
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t len,
						    int flags)
{
	NEXT(recv_fn, recv);
	return f(fd, buf, len, flags);
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *buf, size_t len,
						    int flags)
{
	NEXT(send_fn, send);
	return f(fd, buf, len, flags);
}
