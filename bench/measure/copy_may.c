/* SPDX-License-Identifier: Apache-2.0 */
/* Which copies are measured: where the machine allows them, and at which sizes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/bench.h"
#include "tool/first_line.h"

enum { CACHE_DEFAULT = 32 << 20, CACHE_MAX = 256 << 20, CACHES = 8 };

size_t bench_copy_cold_bytes(void)
{
	size_t largest = 0;
	char path[80], text[32];

	for (int i = 0; i < CACHES; i++) {
		size_t kib;
		snprintf(path, sizeof(path),
			 "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		if (!read_first_line(path, text, sizeof(text)))
			break;
		kib = strtoul(text, NULL, 10);
		if (kib << 10 > largest)
			largest = kib << 10;
	}
	if (!largest)
		largest = CACHE_DEFAULT;
	return 2 * (largest < CACHE_MAX ? largest : CACHE_MAX);
}

const size_t *bench_copy_sizes(bool quick, unsigned *count)
{
	static const size_t all[] = {4096,     16384,	 65536,	   256u << 10,
				     1u << 20, 4u << 20, 16u << 20};
	static const size_t few[] = {4096, 65536, 1u << 20, 16u << 20};

	*count = quick ? sizeof(few) / sizeof(few[0]) : sizeof(all) / sizeof(all[0]);
	return quick ? few : all;
}

int bench_copy_scope(void)
{
	char text[16];
	return read_first_line("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text))
		       ? atoi(text)
		       : 0;
}

/* The child's part; the same addresses as in the parent, since it is a fork. */
static int try_child(enum bench_copy way, pid_t parent, char *word, const int *pipes)
{
	struct iovec iov = {word, 1};
	char byte;

	if (read(pipes[0], &byte, 1) != 1)
		return EIO;
	/* Written to by the parent before that; or it is for us to read. */
	if (way == BENCH_COPY_READ && process_vm_readv(parent, &iov, 1, &iov, 1, 0) != 1)
		return errno;
	return *word == 'x' ? 0 : EIO;
}

static int try_parent(enum bench_copy way, pid_t child, char *word, const int *pipes)
{
	struct iovec iov = {word, 1};
	int status, err = 0;

	*word = 'x';
	prctl(PR_SET_PTRACER, child, 0, 0, 0);
	if (way == BENCH_COPY_WRITE && process_vm_writev(child, &iov, 1, &iov, 1, 0) != 1)
		err = errno;
	if (write(pipes[1], word, 1) != 1 || waitpid(child, &status, 0) != child)
		status = -1;
	prctl(PR_SET_PTRACER, 0, 0, 0, 0);
	if (!err)
		err = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
	return err;
}

/* An errno, or 0. */
static int try_copy(enum bench_copy way)
{
	static char word; /* in the child's memory its own */
	int pipes[2], err;
	pid_t parent = getpid(), child;

	word = 0;
	if (pipe(pipes) < 0)
		return errno;
	child = fork();
	if (child == 0) {
		close(pipes[1]); /* else it would wait for itself */
		_exit(try_child(way, parent, &word, pipes));
	}
	err = child < 0 ? errno : try_parent(way, child, &word, pipes);
	close(pipes[0]);
	close(pipes[1]);
	return err;
}

const char *bench_copy_forbidden(enum bench_copy way)
{
	static char text[BENCH_COPY_WAYS][160];
	static bool asked[BENCH_COPY_WAYS];
	int err;

	if (way < BENCH_COPY_WRITE || asked[way])
		return way < BENCH_COPY_WRITE || !text[way][0] ? NULL : text[way];
	asked[way] = true;
	err = try_copy(way);
	if (!err)
		return NULL;
	snprintf(text[way], sizeof(text[way]), "%s: %s",
		 way == BENCH_COPY_WRITE ? "process_vm_writev" : "process_vm_readv",
		 strerror(err));
	if (err == EPERM && bench_copy_scope() > 0)
		snprintf(text[way] + strlen(text[way]),
			 sizeof(text[way]) - strlen(text[way]),
			 " (kernel.yama.ptrace_scope is %d)", bench_copy_scope());
	else if (err == EPERM)
		strcat(text[way], " (a seccomp filter, or a security module)");
	return text[way];
}
