/* SPDX-License-Identifier: Apache-2.0 */
/* Between the kernel's addresses and those of the messages. */
#ifndef VD_DAEMON_ADDRESS_H
#define VD_DAEMON_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/endpoint.h"

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* Returns the length. */
socklen_t address_of_end(const struct name_end *end, union address *out);
/* Both ends of a connected socket: 0 or -errno. */
int address_ends(int fd, struct name_end *self, struct name_end *other);

#endif
