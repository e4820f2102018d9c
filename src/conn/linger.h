/* SPDX-License-Identifier: Apache-2.0 */
/* What a program has set of SO_LINGER, while an exec under way has it set otherwise. */
#ifndef CONN_LINGER_H
#define CONN_LINGER_H

#include <stdbool.h>

struct sock;

/* Before an exec has it reset its connection. False: it does so anyway, or there is no room to keep what is set. */
bool linger_keep(struct sock *s, int fd);
/* There was nothing to execute, or it is closed before that, with all read. */
void linger_put_back(struct sock *s, int fd);
/* After the last one of an exec that failed. */
void linger_forget(void);

/* As in limbo_last_words, by looks alone: the process ends, and its other threads may
 * hold the locks. */
void linger_reset_unread(struct sock *s, int fd);
/* This process has said that it closes it. All who have it still may be about to close
 * it by an exec, where nobody speaks: the kernel is to reset it then. Whose exec fails
 * puts that back. */
void linger_leave_to_exec(struct sock *s, int fd);

#endif
