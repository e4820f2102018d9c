/* SPDX-License-Identifier: Apache-2.0 */
/* Options of TCP that Viaduct changes for a moment and puts back, while the program may set them. */
#ifndef VD_CONN_PUT_BACK_H
#define VD_CONN_PUT_BACK_H

#include <sys/socket.h>

#include "base/atomic.h"
#include "conn/sock.h"

/* TCP_NODELAY and TCP_NOTSENT_LOWAT, under tx_lock, and not before the slot is ATTACHED. */
static inline bool put_back_begins(struct sock *s)
{
	return load_relaxed(&s->slot->phase) >= SLOT_ATTACHED;
}

/* As setsockopt of one of these, but not between the change and its end, which would undo it. */
int put_back_set(struct sock *s, int fd, int name, const void *value, socklen_t len);

#endif
