/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that another process has accepted, and passed on to this one. */
#ifndef VD_CONN_RECEIVED_H
#define VD_CONN_RECEIVED_H

#include <stdbool.h>
#include <stdint.h>

struct slot;

/*
 * Connections that come in a message (SCM_RIGHTS) from a process under Viaduct that has accepted them, as to the workers of
 * Node's cluster. Each begins on TCP as any other, and earns its upgrade here; it goes on to the meeting once the sender's
 * table says that the sender has let go of it, and sent it to nobody else: passed.h.
 *
 * Looked at is one AF_UNIX socket, the first by which a connection comes: that of the worker and its master. What comes by
 * another one stays on TCP, and so does what comes from a process that is plain, another user's, or not to be seen.
 */

/* fd has come by `channel`; `peeked`: and will come once more. Keeps no errno. */
void received_open(int fd, int channel, bool peeked);
/* It did not come so, or nobody else has it: 1. Somebody may: 0. Nobody will ever know: -VD_REASON_ROLE. Under
 * ctl, when its cookie is known. */
int received_is_free(struct slot *sl);

#endif
