/* SPDX-License-Identifier: Apache-2.0 */
/* From one image of a process to the next: what lies unread in the ring, in memory that exec
 * leaves open. */
#ifndef VD_CONN_EXEC_CARRY_H
#define VD_CONN_EXEC_CARRY_H

#include "conn/sock.h"

/*
 * For a connection that was handed over, has bytes unread, and was not answered: puts them
 * into a memory descriptor that survives exec, and freezes them here. No heap, so that a
 * child of fork may call it; not for one of vfork. Returns the descriptor (fds_close it);
 * 0 when nothing is left to carry; or -errno, and nothing has changed.
 */
int carry_out(struct sock *s, int fd, uint64_t *cookie);
/* It is not handed over after all: what lies unread is for those who have the ring, and a reset's where they leave it. */
void sock_keep_over(struct sock *s, int fd);
/* exec has failed: this image reads on. */
void carry_undo(struct sock *s, int fd, int memfd);
/*
 * In the new image, before it runs: fd is the connection with that cookie, and memfd has its
 * bytes; it is closed. Returns 1 when the connection is ours, 0 when it is not the one that
 * was meant: then nothing was touched. What fails ends the connection with an error.
 */
int carry_in(int fd, int memfd, uint64_t cookie);

#endif
