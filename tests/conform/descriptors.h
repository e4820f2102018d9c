/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases about a program near its limit of descriptors share. */
#ifndef CONFORM_DESCRIPTORS_H
#define CONFORM_DESCRIPTORS_H

#define LIMIT  160
#define PAIRS  36 /* with the doorbells of all of them the limit would be passed */
#define UNREAD 5000

/* Ways to make descriptors: how many there are in *fds then, or -1. */
int make_dup(int *fds);
int make_socket(int *fds);
int make_pipe(int *fds);
/* Makes them until EMFILE, and says so. Returns how many there were, in *fds. */
int fill(int (*make)(int *fds), int *fds);
void empty(const int *fds, int count);

#endif
