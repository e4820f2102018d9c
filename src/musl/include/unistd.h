/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with calls that it lacks. */
#ifndef VD_MUSL_UNISTD_H
#define VD_MUSL_UNISTD_H

#include_next <unistd.h>

int execveat(int dir, const char *path, char *const argv[], char *const envp[],
	     int flags);
int close_range(unsigned first, unsigned last, int flags);
void closefrom(int first);

#endif
