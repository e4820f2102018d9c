/* SPDX-License-Identifier: Apache-2.0 */
/* system, popen and their kin: libc starts a child inside them, past every symbol of ours. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

#include "preload/hook.h"

HOOK int system(const char *command)
{
	struct spawning w = {0};
	int r;

	if (command && !hook_spawning_shell(&w))
		return -1;
	r = REAL_LATE(system)(command);
	hook_spawned(&w);
	return r;
}

HOOK FILE *popen(const char *command, const char *mode)
{
	struct spawning w;
	FILE *f;

	if (!hook_spawning_shell(&w))
		return NULL;
	f = REAL_LATE(popen)(command, mode);
	hook_spawned(&w);
	return f;
}
HOOK_ALIAS(_IO_popen, popen);

static bool has_command(const char *words)
{
	while ((words = strpbrk(words, "`$"))) {
		if (*words == '`' || words[1] == '(')
			return true;
		words++;
	}
	return false;
}

/* A shell is started for each substitution of a command. */
HOOK int wordexp(const char *words, wordexp_t *to, int flags)
{
	struct spawning w = {0};
	int r;

	if (!(flags & WRDE_NOCMD) && words && has_command(words) &&
	    !hook_spawning_shell(&w))
		return WRDE_NOSPACE;
	r = REAL_LATE(wordexp)(words, to, flags);
	hook_spawned(&w);
	return r;
}
