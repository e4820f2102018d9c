/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files whose names others choose. */
#ifndef VD_BASE_REGULAR_H
#define VD_BASE_REGULAR_H

/*
 * Opens a regular file to read it. Nothing else is opened, since opening a device may have
 * effects and opening a FIFO may not end; nor a file of the kernel's own, as in /proc and /sys. A lease on the file does not make us wait. A
 * descriptor, or -errno: -ENOEXEC when it is no such file.
 */
int regular_open(const char *path);

#endif
