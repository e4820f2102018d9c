/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in Go are not followed from here: not one that is linked with musl, nor one that is linked
 * statically, whose loader is a program of glibc. */
#include "preload/go.h"
#include "preload/go_exec.h"

bool go_exec_stops;

const char *go_join(uint64_t load_address)
{
	(void)load_address;
	return "it is linked with musl";
}

int go_static_join(const struct door_go *go)
{
	(void)go;
	return 0;
}

size_t go_exec_room(const char *path, enum go_exec_name name, char *const envp[])
{
	(void)path;
	(void)name;
	(void)envp;
	return 0;
}

const char *go_exec_loader(const char *path, enum go_exec_name name, char *const **envp,
			   void *room, size_t size)
{
	(void)name;
	(void)envp;
	(void)room;
	(void)size;
	return path;
}
