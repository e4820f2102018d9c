/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command viaduct itself, and what lies beside it or is installed. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool/self.h"

static char self[PATH_MAX];

void self_is(const char *path)
{
	snprintf(self, sizeof(self), "%s", path);
}

const char *self_program(void)
{
	ssize_t n = self[0] ? 0 : readlink("/proc/self/exe", self, sizeof(self) - 1);

	return n < 0 ? "viaduct" : self;
}

bool self_lacks_proc(void)
{
	return access("/proc/self", F_OK) < 0;
}

void self_find(const char *beside, const char *installed, char *path, size_t size)
{
	const char *program = self_program(), *slash = strrchr(program, '/');

	if (slash &&
	    snprintf(path, size, "%.*s/%s", (int)(slash - program), program, beside) <
		    (int)size &&
	    access(path, R_OK) == 0)
		return;
	snprintf(path, size, "%s", installed);
}
