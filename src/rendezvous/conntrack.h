/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel how it rewrites the addresses of a connection, where it lets us. */
#ifndef VD_RENDEZVOUS_CONNTRACK_H
#define VD_RENDEZVOUS_CONNTRACK_H

#include <stdint.h>

#include "base/endpoint.h"

/*
 * own: the connection as the socket of the end with that role has it. Writes the connection as the
 * other end's socket has it: the client is first in both. Returns 1; 0 when the connection is not
 * tracked, or not established; or -errno (-EPERM: we may not ask). netns: cookie of the namespace.
 * Does not block.
 */
int conntrack_ask(uint64_t netns, const struct name_tuple *own, enum tcp_role role,
		  struct name_tuple *other);

#endif
