/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection has for a pipe: taken only as far as the pipe has room. */
#ifndef VD_CONN_RX_GIVE_H
#define VD_CONN_RX_GIVE_H

#include "conn/sock.h"

/*
 * Gives the pipe `to` what is there, without waiting, and takes as much from the connection: as a receive says it with
 * MSG_DONTWAIT, or -EAGAIN and -EPIPE of the pipe. By a page that is the pipe's afterwards, and room for `len` bytes.
 */
ssize_t rx_give(struct sock *s, int fd, void *room, size_t len, int to);
/* Gives what was kept as shared memory was left, by calls that the program's filter lets
 * through: at most a page. */
ssize_t left_give(struct sock *s, size_t len, int to);

#endif
