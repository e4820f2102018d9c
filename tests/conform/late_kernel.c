/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: the kernel hears of an end, or is asked, later than memory. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

/* Microseconds before each shutdown and close of the process, and before each question. */
SEEN _Atomic unsigned conform_end_late, conform_ask_late;

typedef int end_call(int fd, int how);
typedef int ask_call(int ep, struct epoll_event *ev, int max, int ms);

/* The C library's own, which stands behind. */
static void *next_late(const char *name, _Atomic unsigned *late)
{
	unsigned us = atomic_load(late);

	if (us)
		usleep(us);
	return dlsym(RTLD_NEXT, name);
}

SEEN int shutdown(int fd, int how)
{
	return ((end_call *)next_late("shutdown", &conform_end_late))(fd, how);
}

SEEN int close(int fd)
{
	return ((int (*)(int))next_late("close", &conform_end_late))(fd);
}

SEEN int epoll_wait(int ep, struct epoll_event *ev, int max, int ms)
{
	return ((ask_call *)next_late("epoll_wait", &conform_ask_late))(ep, ev, max, ms);
}
