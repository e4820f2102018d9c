/* SPDX-License-Identifier: Apache-2.0 */
/* The process's side of viaductd's local protocol, for whoever is to speak it. */
#ifndef VD_DAEMON_CLIENT_CALLER_H
#define VD_DAEMON_CLIENT_CALLER_H

#include "daemon_client/local.h"

/*
 * Nothing here blocks, allocates or sets errno. -EPIPE and -ECONNRESET from any of them:
 * the daemon has gone, and with it what was published; open anew, later.
 */

/* A descriptor, close-on-exec; or -errno (-ENOENT, -ECONNREFUSED: no daemon;
 * -EAGAIN: it is busy). */
int caller_open(const char *path);
/*
 * A PUBLISH, WITHDRAW or ASK about a connection, or an ANSWER, whose ends are NULL and whose
 * status is LOCAL_OK or LOCAL_REFUSED. 0 or -errno; -EAGAIN: the daemon is busy.
 */
int caller_say(int fd, enum local_type type, uint32_t id, const struct name_end *local,
	       const struct name_end *peer, enum local_status status, const void *hello,
	       size_t hello_bytes);
/* The bytes of the hello of a DONE or ASKED; -EAGAIN: nothing there; -EPROTO: no such
 * message. */
int caller_hear(int fd, struct local_message *m);

#endif
