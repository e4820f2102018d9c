/* SPDX-License-Identifier: Apache-2.0 */
/* Opens memory files of other processes, which may show us anything under their names. */
#ifndef VD_TOOL_OBSERVE_FILE_H
#define VD_TOOL_OBSERVE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct observe_file {
	int fd;
	uint64_t inode, size;
	uid_t uid; /* who made it */
};

/*
 * Opens the memory file (memfd) of another process by its name in /proc, with access O_RDONLY
 * or O_RDWR. A device, a FIFO, or a file of any other file system is not opened at all: opening
 * a device may have effects, and a file system in user space may never answer. A lease on the
 * file does not make us wait. 0, or -errno: -ENXIO when it is no memory file.
 */
int observe_file_open(const char *path, int access, struct observe_file *out);
/* The same, but opens nothing: out->fd is -1. */
int observe_file_look(const char *path, struct observe_file *out);
/* observe_file_open for a name in that folder. */
int observe_file_open_at(int dir, const char *name, int access, struct observe_file *out);
/* Its size can no longer shrink: so it can be mapped without fear of SIGBUS. */
bool observe_file_is_sealed(const struct observe_file *f);

#endif
