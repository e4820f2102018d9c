/* SPDX-License-Identifier: Apache-2.0 */
/* File names from the settings, made good for the life of the process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/path.h"

int path_expand(const char *text, char *out, size_t size)
{
	size_t at = 0;

	if (text[0] != '/') {
		long len = kernel_call4(SYS_getcwd, (long)out, (long)size, 0, 0);

		if (len < 0)
			return len == -ERANGE ? -ENAMETOOLONG : (int)len;
		/* One that is not to be reached has a name of another kind. */
		if (out[0] != '/')
			return -ENOENT;
		at = strlen(out);
		if (at + 1 >= size)
			return -ENAMETOOLONG;
		if (out[at - 1] != '/')
			out[at++] = '/';
	}
	for (; *text; text++) {
		int n = 1;
		if (at + 1 >= size)
			return -ENAMETOOLONG;
		if (text[0] == '%' && text[1] == 'p') {
			n = snprintf(out + at, size - at, "%d", (int)kernel_getpid());
			text++;
		} else {
			out[at] = *text;
		}
		if ((size_t)n >= size - at)
			return -ENAMETOOLONG;
		at += (size_t)n;
	}
	out[at] = '\0';
	return 0;
}
