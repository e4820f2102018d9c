/* SPDX-License-Identifier: Apache-2.0 */
/* Between the kernel's addresses and those of the messages. */
#include <string.h>

#include "daemon/address.h"

socklen_t address_of_end(const struct name_end *end, union address *out)
{
	memset(out, 0, sizeof(*out));
	if (name_is_v4(end)) {
		out->in.sin_family = AF_INET;
		out->in.sin_port = end->port;
		memcpy(&out->in.sin_addr, end->addr + 12, 4);
		return sizeof(out->in);
	}
	out->in6.sin6_family = AF_INET6;
	out->in6.sin6_port = end->port;
	memcpy(&out->in6.sin6_addr, end->addr, 16);
	return sizeof(out->in6);
}

int address_ends(int fd, struct name_end *self, struct name_end *other)
{
	struct name_tuple t;
	int r = name_of_connection(fd, TCP_ROLE_CONNECTED, &t);

	if (r == 0) {
		*self = t.client;
		*other = t.server;
	}
	return r;
}
