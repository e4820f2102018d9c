/* SPDX-License-Identifier: Apache-2.0 */
/* The mappings of a unit test that it shares with other processes, and can write to. */
#ifndef VD_TESTS_UNIT_MAPPED_H
#define VD_TESTS_UNIT_MAPPED_H

#include "unit/test.h"

#define MAPPED_MOST 256

struct mapped {
	unsigned long from, to, offset, inode;
};

/* How many there are. */
static int list_writable(struct mapped *m)
{
	char line[512], flags[8];
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0;
	REQUIRE(f);
	while (fgets(line, sizeof(line), f)) {
		struct mapped *at = &m[n];
		REQUIRE(n < MAPPED_MOST);
		if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &at->from, &at->to, flags,
			   &at->offset, &at->inode) == 5 &&
		    flags[1] == 'w' && flags[3] == 's')
			n++;
	}
	fclose(f);
	return n;
}

#endif
