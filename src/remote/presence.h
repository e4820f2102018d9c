/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a socket of viaductd is there, without asking the kernel each time; and a line to it. */
#ifndef VD_REMOTE_PRESENCE_H
#define VD_REMOTE_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

/* From one look at the socket to the next, and from one try to reach the daemon. */
#define RETRY_MS 1000
/* So long after it was last seen a daemon may be one that is being started anew: it has removed the name, or has
 * not yet let everybody use it. A connection that did not wait then would be on TCP for good. */
#define GONE_MS 5000

/* All zero at first. */
struct presence {
	_Atomic uint64_t looked_ms;
	_Atomic uint64_t there_ms; /* when it was last seen */
};

/* From any thread, under a lock or not: of two at a time both may look. */
bool presence_look(struct presence *p, const char *path);

/* Not so soon after the last try, whose time *tried_ms is, or 0. Else this is one. */
bool presence_retry(uint64_t *tried_ms);
/* Connects an AF_UNIX socket to the daemon. 0, or -errno, which the log has: fd is still open. */
int presence_connect(int fd, const char *path);
/* A connection to it, a descriptor of ours; or -errno, -EAGAIN when it is not to be tried again yet. */
int presence_line(const char *path, uint64_t *tried_ms);

#endif
