/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors from processes of other users: taken and closed so that nobody waits for their makers. */
#ifndef VD_RENDEZVOUS_STRANGER_H
#define VD_RENDEZVOUS_STRANGER_H

#include <stdbool.h>

#include "rendezvous/hello.h"

/*
 * To close a descriptor can take as long as its maker likes: a file of FUSE is flushed by a server, a TCP socket
 * lingers. The same holds of one that lies unread in the queue of a socket that we close. So nothing of that kind gets
 * a number in our table, and such a socket is closed by a process that ends: one that hangs there has neither our
 * memory nor our descriptors.
 */

/* As hello_receive, from a process of another user. -EAGAIN: no process can be had to look at it first. */
int stranger_hello(int sock, struct hello *h, int fds[SEGMENT_FDS]);
/* Closes an AF_UNIX socket that others may have sent to, be it connected or listening. */
void stranger_close(int sock);
/* So many of those processes hang that there may be no more: then nobody is to send us anything. It tries again with
 * what waits for a place. */
bool stranger_is_full(void);

#endif
