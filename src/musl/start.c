/* SPDX-License-Identifier: Apache-2.0 */
/* No statically linked program is followed from here: the loader of such is a program of glibc. */
#include "preload/start.h"
#include "preload/start_exec.h"
#include "preload/static.h"

bool start_exec_stops;

void static_stand_down(void)
{
}

int start_join(const struct door_start *from)
{
	(void)from;
	return 0;
}

size_t start_exec_room(const char *path, enum start_exec_name name, char *const envp[])
{
	(void)path;
	(void)name;
	(void)envp;
	return 0;
}

bool start_exec_takes(const char *path, char *const envp[])
{
	(void)path;
	(void)envp;
	return false;
}

const char *start_exec_loader(const char *path, enum start_exec_name name,
			      char *const **envp, void *room, size_t size)
{
	(void)name;
	(void)envp;
	(void)room;
	(void)size;
	return path;
}
