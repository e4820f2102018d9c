/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that this process has accepted, and passed on to another one. */
#ifndef VD_CONN_PASSED_H
#define VD_CONN_PASSED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/sections.h"

struct sock;

/*
 * Accepted connections that a process passes on in a message (SCM_RIGHTS), as the first process of Node's cluster does. Who
 * receives one may upgrade it once nobody else has it. The sender says so in its table, where the receiver looks.
 *
 * An entry is written by the sender's processes alone: PASSED_AWAY before the message is sent, PASSED_RELEASED when the kernel
 * has closed the socket there. It is taken back where somebody else may have the socket by then: on a fork, an exec or a
 * spawn, and where it is passed once more. So a connection without a released entry stays on TCP.
 */

/* In the low bits of passed_entry.word, below the connection's cookie. */
enum passed_state { PASSED_AWAY = 1, PASSED_RELEASED = 2 };
#define PASSED_SHIFT 2

struct passed_entry {
	/* Cookie and state, or 0: read in one piece. */
	_Atomic uint64_t word;
	/* The inode of the AF_UNIX socket that it was sent by; written while word is 0. */
	_Atomic uint64_t channel;
};

#define PASSED_ENTRIES 512u

static inline uint64_t passed_word(uint64_t cookie, enum passed_state state)
{
	return cookie << PASSED_SHIFT | state;
}

/* This process has passed some on since its last fork. */
NEAR_EXTERN _Atomic bool passed_some;

static inline bool passed_any(void)
{
	return __builtin_expect(load_relaxed(&passed_some), 0);
}

/* Before the message is sent by `channel`, and before sock_passed. */
void passed_begin(struct sock *s, int fd, int channel);
/* Another process may get what has been passed on. */
void passed_copied(void);
/* Before fd is closed: the cookie of one that was passed on and has no other number here, or 0. *generation is its sock's. */
uint64_t passed_closing(struct sock *s, int fd, uint32_t *generation);
/* The kernel has closed it. */
void passed_closed(struct sock *s, uint64_t cookie, uint32_t generation);

#endif
