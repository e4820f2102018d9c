/* SPDX-License-Identifier: Apache-2.0 */
/* What runs in the place of a statically linked program: a program of the C library, which
 * libviaduct-preload.so is preloaded into, and which becomes that program.
 *
 * The kernel has started it with the arguments and the environment of that program, and with one
 * variable more that names it. It maps that program where it wants to be, has the library lead its
 * system calls away, and jumps to its first instruction. Where that cannot be, it executes it: on TCP.
 *
 * A program with a C library of its own sets FS, and the library changes between the two. Go finds the
 * goroutine in the eight bytes below FS. There FS is always the C library's: those bytes are
 * thread-local data of this program, which the ABI puts there. Go sets FS for its first thread
 * (runtime.settls), which is left out, and for others in runtime.clone: the library makes them threads
 * of the C library instead.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/door.h"
#include "start/image.h"

/* This program has no other thread-local data: the last word is Go's. */
static _Thread_local uint64_t below_fs[8] __attribute__((aligned(64)));

static char program[PATH_MAX];

static int begin_thread(size_t stack_bytes, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r = pthread_attr_init(&attr);

	if (r)
		return r;
	__libc_single_threaded = false;
	pthread_attr_setstacksize(&attr, stack_bytes);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	return r;
}

static void *do_nothing(void *arg)
{
	return arg;
}

/*
 * With its first thread the C library takes a signal for itself, and from then on it counts on threads.
 * That is to be over when the program begins, which uses that signal for the same, and finds it as after exec.
 */
static bool count_on_threads(void)
{
	enum { SETXID = 33, MASK_BYTES = 8 };
	const struct {
		void *handler;
		uint64_t flags;
		void *restorer;
		uint64_t mask;
	} none = {.handler = SIG_DFL};
	pthread_t thread;

	if (pthread_create(&thread, NULL, do_nothing, NULL) != 0 ||
	    pthread_join(thread, NULL) != 0)
		return false;
	/* Until begin_thread, by which all others begin: the C library itself would never say so again. */
	__libc_single_threaded = true;
	return syscall(SYS_rt_sigaction, SETXID, &none, NULL, MASK_BYTES) == 0;
}

static const struct door *find_door(void)
{
	const struct door *door = dlsym(RTLD_DEFAULT, DOOR_NAME);

	return door && door->version == DOOR_VERSION && door->bytes == sizeof(*door)
		       ? door
		       : NULL;
}

/* Returns where that cannot be; the library, too, is to know that, since it sees the exec. */
static void become(const struct door *door, const char *path, int argc, char **argv)
{
	const struct door_start start = {.program = program,
					 .slot = &below_fs[7],
					 .map = image_map,
					 .unmap = image_unmap,
					 .begin_thread = begin_thread};
	bool is_ready = realpath(path, program) && count_on_threads();
	const char *slash = strrchr(path, '/');

	if (!door->start_join(is_ready ? &start : NULL))
		return;
	prctl(PR_SET_NAME, slash ? slash + 1 : path, 0, 0, 0);
	image_begin(path, argc, argv);
}

/* Past any library, which could start this one again. */
static void execute_alone(const char *path, char **argv)
{
	long result;

	__asm__ __volatile__("syscall"
			     : "=a"(result)
			     : "a"(SYS_execve), "D"(path), "S"(argv), "d"(environ)
			     : "rcx", "r11", "memory");
	errno = (int)-result;
}

int main(int argc, char **argv)
{
	/* It stays where the kernel has put it: it is told to the program, too. */
	const char *path = getenv(DOOR_START_PROGRAM);
	const struct door *door = find_door();

	if (!path) {
		fprintf(stderr, "%s: only `viaduct run` starts this\n",
			argc ? argv[0] : "viaduct-start");
		return 127;
	}
	if (door)
		become(door, path, argc, argv);
	unsetenv(DOOR_START_PROGRAM);
	if (door)
		execv(path, argv);
	else
		execute_alone(path, argv);
	fprintf(stderr, "viaduct: %s cannot be started: %s\n", path, strerror(errno));
	return 126;
}
