/* SPDX-License-Identifier: Apache-2.0 */
/* Our variables survive the exec of a program that gives the next one an environment of its own making. */
#include "preload/exec_kept.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "preload/carry.h"
#include "preload/hook.h"

/*
 * A server that is replaced by a new image often clears the environment (nginx at USR2), and means none of
 * ours by that. Who means them takes them out by name, and leaves the others: so ours go along where fewer
 * than half of the others do that were there at the start. Where there were too few to tell, they go along
 * if that is how they came. What the start had is copied: programs write over it to change their titles.
 */

#define PRELOAD	    "LD_PRELOAD="
#define TEXT_BYTES  2048
#define KEPT_NOTE   "VIADUCT_KEPT=1"
#define KEPT_MOST   32
#define FEW	    4 /* others that tell nothing */
#define OTHERS_MOST 128

static struct {
	size_t kept, others;
	bool came_so;
	uint32_t other[OTHERS_MOST]; /* hashes of names */
	char *var[KEPT_MOST];
	char text[TEXT_BYTES];
} start;

static bool is_ours(const char *setting)
{
	return strncmp(setting, PRELOAD, sizeof(PRELOAD) - 1) == 0 ||
	       strncmp(setting, "VIADUCT=", 8) == 0 ||
	       strncmp(setting, "VIADUCT_", 8) == 0;
}

static uint32_t name_hash(const char *setting)
{
	uint32_t h = 5381;

	for (; *setting && *setting != '='; setting++)
		h = h * 33 + (unsigned char)*setting;
	return h;
}

void kept_init(void)
{
	bool is_listed = false;
	size_t at = 0;

	for (char **e = environ; e && *e; e++) {
		size_t len = strlen(*e) + 1;

		if (!is_ours(*e)) {
			if (start.others < OTHERS_MOST)
				start.other[start.others++] = name_hash(*e);
			continue;
		}
		if (strcmp(*e, KEPT_NOTE) == 0) {
			start.came_so = true;
			continue;
		}
		if (start.kept == KEPT_MOST || len > TEXT_BYTES - at) {
			is_listed = false;
			break;
		}
		if (**e == 'L')
			is_listed = carry_own_path() &&
				    carry_is_listed(*e + sizeof(PRELOAD) - 1);
		start.var[start.kept++] = memcpy(start.text + at, *e, len);
		at += len;
	}
	if (!is_listed)
		start.kept = 0;
}

static bool was_there(uint32_t name)
{
	for (size_t i = 0; i < start.others; i++)
		if (start.other[i] == name)
			return true;
	return false;
}

size_t kept_room(char *const envp[])
{
	size_t count = 0, others = 0;

	if (!hook_active || !envp || start.kept == 0)
		return 0;
	for (; envp[count]; count++) {
		if (is_ours(envp[count]))
			return 0;
		others += was_there(name_hash(envp[count]));
	}
	if (start.others < FEW ? !start.came_so : 2 * others >= start.others)
		return 0;
	return (count + start.kept + 2) * sizeof(char *);
}

char *const *kept_environment(char *const envp[], void *room)
{
	char **list = room;
	size_t n = 0;

	for (; *envp; envp++)
		list[n++] = *envp;
	for (size_t i = 0; i < start.kept; i++)
		list[n++] = start.var[i];
	list[n++] = KEPT_NOTE;
	list[n] = NULL;
	return list;
}
