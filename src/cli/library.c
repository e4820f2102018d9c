/* SPDX-License-Identifier: Apache-2.0 */
/* Finds libviaduct-preload.so and puts it into LD_PRELOAD, with what that takes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/library.h"

static const char library_name[] = "libviaduct-preload.so";

int library_find(char *path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = 0;
		*strrchr(self, '/') = 0;
		snprintf(path, size, "%s/%s", self, library_name);
		if (access(path, R_OK) == 0)
			return 0;
	}
	snprintf(path, size, "%s/%s", VD_LIBDIR, library_name);
	return access(path, R_OK) ? -ENOENT : 0;
}

/* A program with AddressSanitizer's shared library does not start where another one is preloaded,
 * unless it is told to. */
static int please_sanitizer(void)
{
	static const char flag[] = "verify_asan_link_order";
	const char *old = getenv("ASAN_OPTIONS");
	char *all;
	int rc;

	if (old && strstr(old, flag))
		return 0;
	if (asprintf(&all, "%s%s%s=0", old ? old : "", old && *old ? ":" : "", flag) < 0)
		return -ENOMEM;
	rc = setenv("ASAN_OPTIONS", all, 1) ? -errno : 0;
	free(all);
	return rc;
}

int library_preload(const char *path)
{
	const char *old = getenv("LD_PRELOAD");
	size_t len = strlen(path);
	char *both;
	int rc;

	/* The loader splits at spaces and colons, and expands $ORIGIN and its like. */
	if (strpbrk(path, " \t\n:$"))
		return -EINVAL;
	rc = please_sanitizer();
	if (rc)
		return rc;
	if (!old || !*old)
		return setenv("LD_PRELOAD", path, 1) ? -errno : 0;
	/* A run inside a run: it is there already. */
	if (!strncmp(old, path, len) && strchr(" :", old[len]))
		return 0;
	if (asprintf(&both, "%s:%s", path, old) < 0)
		return -ENOMEM;
	rc = setenv("LD_PRELOAD", both, 1) ? -errno : 0;
	free(both);
	return rc;
}
