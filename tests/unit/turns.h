/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of two processes, one after the other. */
#ifndef VD_TESTS_UNIT_TURNS_H
#define VD_TESTS_UNIT_TURNS_H

#include <unistd.h>

#include "unit/test.h"

struct turns {
	int to_child[2], to_parent[2];
};

static struct turns turns_make(void)
{
	struct turns t;
	REQUIRE(pipe(t.to_child) == 0 && pipe(t.to_parent) == 0);
	return t;
}

static void turn_give(const int fd[2])
{
	REQUIRE(write(fd[1], "x", 1) == 1);
}

static void turn_take(const int fd[2])
{
	char byte;
	REQUIRE(read(fd[0], &byte, 1) == 1);
}

static void turns_end(const struct turns *t)
{
	for (int i = 0; i < 2; i++) {
		close(t->to_child[i]);
		close(t->to_parent[i]);
	}
}

#endif
