/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the preloaded libraries and their module, and puts them into LD_PRELOAD, with what that takes. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/library.h"
#include "tool/self.h"

int library_find(char *path, size_t size)
{
	self_find(LIBRARY_GLIBC, VD_LIBDIR "/" LIBRARY_GLIBC, path, size);
	return access(path, R_OK) ? -ENOENT : 0;
}

int library_find_musl(char *path, size_t size)
{
	self_find(LIBRARY_MUSL, VD_LIBDIR "/" LIBRARY_MUSL, path, size);
	return access(path, R_OK) ? -ENOENT : 0;
}

bool library_is_named(const char *text)
{
	return strstr(text, LIBRARY_GLIBC) || strstr(text, LIBRARY_MUSL);
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

static int find_beside(const char *library, const char *name, char *path, size_t size)
{
	const char *slash = strrchr(library, '/');

	snprintf(path, size, "%.*s/%s", slash ? (int)(slash - library) : 1,
		 slash ? library : ".", name);
	return access(path, R_OK) ? -ENOENT : 0;
}

int library_find_rpc(const char *library, char *path, size_t size)
{
	return find_beside(library, LIBRARY_RPC, path, size);
}

int library_find_start(const char *library, char *path, size_t size)
{
	return find_beside(library, LIBRARY_START, path, size);
}

static bool is_listed(const char *path, const char *list)
{
	size_t len = strlen(path);

	for (; *list; list += strcspn(list, " :"), list += *list != 0)
		if (!strncmp(list, path, len) && strchr(" :", list[len]))
			return true;
	return false;
}

static int put_first(const char *path)
{
	const char *old = getenv("LD_PRELOAD");
	char *both;
	int rc;

	if (!old || !*old)
		return setenv("LD_PRELOAD", path, 1) ? -errno : 0;
	if (asprintf(&both, "%s:%s", path, old) < 0)
		return -ENOMEM;
	rc = setenv("LD_PRELOAD", both, 1) ? -errno : 0;
	free(both);
	return rc;
}

int library_preload(const char *path, const char *module)
{
	const char *old = getenv("LD_PRELOAD");
	size_t len = strlen(path);
	int rc;

	/* The loader splits at spaces and colons, and expands $ORIGIN and its like. */
	if (strpbrk(path, " \t\n:$"))
		return -EINVAL;
	rc = please_sanitizer();
	/* A run inside a run: they may be there already. */
	if (rc == 0 && module && !is_listed(module, old ? old : "")) {
		rc = put_first(module);
		old = NULL;
	}
	if (rc || (old && !strncmp(old, path, len) && strchr(" :", old[len])))
		return rc;
	return put_first(path);
}
