/* SPDX-License-Identifier: Apache-2.0 */
/* A receive that began in the ring goes on in the kernel, when the direction has gone back to TCP. */
#ifndef VD_CONN_RX_REST_H
#define VD_CONN_RX_REST_H

#include "conn/conn.h"
#include "ring/iov.h"

/*
 * A receive that began here goes on in the kernel: 0 when the gate has moved again, -ENODATA at
 * the end. It takes what is there, since in a sleep there it would go by what the socket is set to
 * now, and also, `amid` the call, take an error that is the next one's. From here on it holds the connection.
 */
ssize_t rx_rest_in_kernel(struct wait *w, struct iov_cursor *to, int flags, bool amid);
/*
 * The direction has gone back to TCP, and nothing has been moved: the call cannot begin anew there
 * with fd, which it was given. The number may be closed by now, or another's.
 */
static inline bool rx_rest_stays(const struct wait *w, int fd, int flags)
{
	return w->fd != fd || (w->deadline_ns && wait_is_our_own(w, flags));
}

/* What is there of it, for a receive that has taken some and waits no more. A count. */
ssize_t rx_rest_at_once(struct wait *w, struct iov_cursor *to, int flags);

/* Where another thread has set SO_RCVLOWAT since, it says when a sleep ends, and not, as to a new
 * call, how much is to be taken. */
bool rx_is_marked(const struct wait *w, int flags);
/* The same for such a call, which waits. 0: look again. */
ssize_t rx_rest_at_mark(struct wait *w, struct iov_cursor *to, int flags);

#endif
