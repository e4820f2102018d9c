/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a socket of viaductd is there, without asking the kernel each time. */
#ifndef VD_REMOTE_PRESENCE_H
#define VD_REMOTE_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

/* From one look at the socket to the next, and from one try to reach the daemon. */
#define RETRY_MS 1000

/* All zero at first. */
struct presence {
	_Atomic uint64_t looked_ms;
	_Atomic bool is_there;
};

/* From any thread, under a lock or not: of two at a time both may look. */
bool presence_look(struct presence *p, const char *path);

#endif
