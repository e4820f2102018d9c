/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the first line of a file of /proc or /sys. */
#include <stdio.h>
#include <string.h>

#include "tool/first_line.h"

bool read_first_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	bool there = f && fgets(buf, (int)size, f);

	if (!there)
		buf[0] = 0;
	buf[strcspn(buf, "\n")] = 0;
	if (f)
		fclose(f);
	return there;
}
