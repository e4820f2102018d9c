/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that images get which do not know the ring: on TCP as long as one of these may have them. */
#ifndef VD_CONN_LOAN_H
#define VD_CONN_LOAN_H

#include "conn/sock.h"

/*
 * A token is a descriptor of the family's table that survives an exec, with a lock on a byte for each connection that is
 * lent with it. Each image that has inherited it keeps it for as long as it, or one that it starts, may have
 * one of these connections. The kernel drops the locks with the last descriptor. Tokens have these numbers.
 */
#define LOAN_FIRST 760
#define LOAN_MOST  8
/* A token, or -1. For a child of vfork as well. */
int loan_begin(void);
/* It is not inherited after all, or the child has it. */
void loan_end(int token);
/* fd is a token that this image has inherited. */
bool loan_is_token(int fd);

/* Lends what is meant, and can be: both directions are asked to go to TCP. True: there is one. `stays`: this image goes on. */
bool loan_each(int token, bool stays, bool (*is_meant)(struct sock *s, int fd));
/* As sock_down_wait, for one that is lent. */
ssize_t loan_wait(struct sock *s, int fd, int timeout_ms);
/* It is lent, with this token as well, and TCP has all of it. */
bool loan_is_done(int token, struct sock *s, int fd);
/* Before an operation on TCP of a connection that is lent: now and then, whether it is back. */
void loan_look(struct sock *s, int fd);

/* Keeps a connection that this image has inherited with a token on TCP for good, since nobody is to know any more who has
 * it: a filter of the socket, which lets all pass, tells those who have lent it. */
void loan_for_good(int fd);
/* fd is a TCP socket that may be lent to us, by what the kernel says. */
bool loan_may_be(int fd);

#endif
