/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files that processes append lines to, at a name where somebody else may have put another. */
#ifndef VD_BASE_APPENDED_H
#define VD_BASE_APPENDED_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Opens the file to append to it, and makes it with this mode. It never waits for a FIFO's
 * reader. A file with other names besides is refused with -EMLINK, for one of them may be
 * somebody else's, and a block device with -EINVAL. A symbolic link is refused with -ELOOP,
 * unless links are allowed and it belongs to root (/dev/stderr) or to this user. A descriptor,
 * or -errno.
 */
int appended_open(const char *path, mode_t mode, bool links);

#endif
