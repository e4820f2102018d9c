/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: signals come while the heap's lock is held, and who then wants it is told. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

/* The C library's own. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);

static _Thread_local volatile int raises __attribute__((tls_model("initial-exec")));
static _Thread_local volatile bool holds __attribute__((tls_model("initial-exec")));

/* This thread's next call of the heap is interrupted by the signal. */
SEEN void heap_interrupt(int sig);
SEEN void heap_interrupt(int sig)
{
	raises = sig;
}

static void enter(void)
{
	static const char text[] = "the heap is entered in the middle of the heap\n";
	int sig = raises;

	if (holds) {
		/* The C library's would wait here for ever. */
		(void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
		_exit(3);
	}
	if (!sig)
		return;
	raises = 0;
	holds = true;
	syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), sig);
	holds = false;
}

SEEN void *malloc(size_t bytes)
{
	enter();
	return __libc_malloc(bytes);
}

SEEN void *calloc(size_t count, size_t bytes)
{
	enter();
	return __libc_calloc(count, bytes);
}

SEEN void *realloc(void *memory, size_t bytes)
{
	enter();
	return __libc_realloc(memory, bytes);
}

SEEN void free(void *memory)
{
	int saved = errno;

	enter();
	__libc_free(memory);
	errno = saved;
}
