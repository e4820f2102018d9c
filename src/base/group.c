/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of memory of control groups, where they are mounted as everywhere. */
#include "base/group.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/low.h"
#include "base/pages.h"

/* Version 1 says "none" by a number near the largest. */
#define NO_LIMIT (1ull << 60)

struct kind {
	const char *root, *file;
};

static const struct kind version1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes"};
static const struct kind version2 = {"/sys/fs/cgroup", "/memory.max"};

static uint64_t limit_at(const struct kind *kind, const char *name, size_t len)
{
	char path[PATH_MAX / 8], text[32];
	uint64_t limit;

	if (strlen(kind->root) + len + strlen(kind->file) >= sizeof(path))
		return UINT64_MAX;
	strcpy(path, kind->root);
	strncat(path, name, len);
	strcat(path, kind->file);
	if (!low_read_text(path, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	limit = strtoull(text, NULL, 10);
	return limit < NO_LIMIT ? limit : UINT64_MAX;
}

/* Also of those above: in a container all that can be seen may be the mount itself. */
static uint64_t limit_from(const struct kind *kind, const char *name, size_t len)
{
	uint64_t least = limit_at(kind, name, len);

	while (len > 0) {
		uint64_t limit;

		do
			len--;
		while (len > 0 && name[len] != '/');
		limit = limit_at(kind, name, len);
		if (limit < least)
			least = limit;
	}
	return least;
}

static bool has_memory(const char *controllers)
{
	const char *at = strstr(controllers, "memory");

	return at && (at[6] == '\0' || at[6] == ',');
}

/* A line of /proc/self/cgroup: a number, controllers, and a name. */
static uint64_t limit_of_line(char *line)
{
	char *controllers = strchr(line, ':');
	char *name = controllers ? strchr(++controllers, ':') : NULL;

	if (!name)
		return UINT64_MAX;
	*name++ = '\0';
	if (*controllers == '\0')
		return limit_from(&version2, name, strlen(name));
	return has_memory(controllers) ? limit_from(&version1, name, strlen(name))
				       : UINT64_MAX;
}

uint64_t group_memory_limit(void)
{
	char *text = pages_take(PAGES_LEAST), *rest = text, *line;
	uint64_t least = UINT64_MAX;

	if (text && low_read_text("/proc/self/cgroup", text, PAGES_LEAST))
		while ((line = strsep(&rest, "\n"))) {
			uint64_t limit = limit_of_line(line);

			if (limit < least)
				least = limit;
		}
	pages_give(text, PAGES_LEAST);
	return least;
}
