/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of files that may be hostile: these do not change or shrink while they are searched. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/regular.h"
#include "tool/explain/explain.h"

enum { BYTES_MOST = 512 << 20, BLOCK = 1 << 20 };

/* As many bytes as it had at first, or it has become shorter. */
static bool fill(int to, int from, off_t size)
{
	char *block = need(malloc(BLOCK));
	off_t at = 0;

	while (at < size) {
		size_t len = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
		ssize_t n = pread(from, block, len, at);

		if (n <= 0 || pwrite(to, block, (size_t)n, at) != n)
			break;
		at += n;
	}
	free(block);
	return at == size;
}

void copy_make(struct copy *c, const char *path)
{
	int from = regular_open(path);
	struct stat st;

	*c = (struct copy){.fd = -1};
	if (from < 0)
		return;
	if (fstat(from, &st) == 0 && st.st_size <= BYTES_MOST)
		c->fd = memory_file("viaduct-explain");
	if (c->fd >= 0 && fill(c->fd, from, st.st_size))
		snprintf(c->name, sizeof(c->name), "/proc/self/fd/%d", c->fd);
	close(from);
}

void copy_drop(struct copy *c)
{
	if (c->fd >= 0)
		close(c->fd);
}
