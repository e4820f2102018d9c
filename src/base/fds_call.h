/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that one call has while it sleeps, so that nobody else closes what it works with. */
#ifndef VD_BASE_FDS_CALL_H
#define VD_BASE_FDS_CALL_H

/*
 * A duplicate of fd, or -EMFILE. Whoever forks meanwhile has it in the child as well, where nobody knows of it: the
 * child closes it, unless the call is the forking thread's own, which goes on there.
 */
int fds_call_take(int fd);
/* The same by fds_adopt_needed, for who outlives the caller: every child closes it. */
int fds_call_take_needed(int fd);
/* Closes it. A negative number is ignored. */
void fds_call_give(int number);

/* Around a fork, in the thread that forks. */
void fds_calls_forking(void);
void fds_calls_forked_child(void);

#endif
