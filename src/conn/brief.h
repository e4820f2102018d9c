/* SPDX-License-Identifier: Apache-2.0 */
/* A short look for bytes before a read that may not block says that there are none. */
#ifndef VD_CONN_BRIEF_H
#define VD_CONN_BRIEF_H

#include <stdbool.h>
#include <stddef.h>

struct sock;

/*
 * Before a read of so many bytes on a descriptor that does not block: stays a few microseconds where
 * nothing is there and an answer has come within such a time lately. Meanwhile the peer rings for
 * nobody. True: brief_end is to follow the read.
 */
bool brief_look(struct sock *s, size_t room);
/* The peer rings again for those who sleep. They are told of what the read has left. */
void brief_end(struct sock *s);

#endif
