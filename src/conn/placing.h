/* SPDX-License-Identifier: Apache-2.0 */
/* A dup2 over the number of a connection. */
#ifndef VD_CONN_PLACING_H
#define VD_CONN_PLACING_H

#include <stdbool.h>

/* The file of `from` is to come to a number: dup3 with these flags. `done`: the kernel has been asked, with this result. */
struct fd_placing {
	int from, flags, result;
	bool done;
};

/*
 * As fd_closing, before a dup2 to fd. Where the connection goes on by another number, or in another process, kernel and
 * table change here in one step: no other thread's call finds the number unknown while it is the connection's.
 */
void fd_closing_for(int fd, struct fd_placing *by);

#endif
