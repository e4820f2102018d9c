/* SPDX-License-Identifier: Apache-2.0 */
/* The standard descriptors of a command: what it may find closed, and what it could not write. */
#ifndef VD_BASE_STANDARD_H
#define VD_BASE_STANDARD_H

/*
 * Gives each standard descriptor that is closed a file that fails as that does. The next file, or socket,
 * would get the number otherwise, and then what is printed.
 */
void standard_fill(void);

/* status, or 1 after a message where that is 0 and standard output is not all written. */
int standard_end(const char *who, int status);

#endif
