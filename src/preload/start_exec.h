/* SPDX-License-Identifier: Apache-2.0 */
/* Statically linked programs that this process executes. */
#ifndef VD_PRELOAD_START_EXEC_H
#define VD_PRELOAD_START_EXEC_H

#include <stdbool.h>
#include <stddef.h>

#include "preload/exec_room.h"

/* This process is the loader, has tried, and executes the program itself. */
extern bool start_exec_stops;

/* How a program is named. */
enum start_exec_name {
	START_EXEC_PATH,
	START_EXEC_SEARCH, /* as execvp has it */
	/* As the two, but the child may be in another folder: only what is absolute is looked at. */
	START_EXEC_PATH_OF_CHILD,
	START_EXEC_SEARCH_OF_CHILD,
};

/*
 * How much memory it takes to execute the loader in the place of the program; 0: it is executed itself.
 * Blocks on the disk only; no heap. Keeps errno.
 */
size_t start_exec_room(const char *path, enum start_exec_name name, char *const envp[]);
/*
 * That C program will be carried, as far as can be known: what is left for one that the loader refuses
 * would be lost. Looks through the file. No heap.
 */
bool start_exec_takes(const char *path, char *const envp[]);
/* What is to be executed, and its environment: in the `size` bytes of `room`, which point into *envp. */
const char *start_exec_loader(const char *path, enum start_exec_name name,
			      char *const **envp, void *room, size_t size);

/* In a function that says EXEC_ROOMS. Changes `path` and `envp`. */
#define START_EXEC(path, name, envp)                                                     \
	do {                                                                             \
		size_t room_ = start_exec_room(path, name, envp);                        \
		void *memory_ = room_ ? EXEC_ROOM(room_) : NULL;                         \
		if (memory_)                                                             \
			(path) = start_exec_loader(path, name, &(envp), memory_, room_); \
	} while (0)

#endif
