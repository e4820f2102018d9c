/* SPDX-License-Identifier: Apache-2.0 */
/* The two addresses of a connection. */
#ifndef VD_BASE_ENDPOINT_H
#define VD_BASE_ENDPOINT_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/tcp.h"

/* IPv4 is kept as ::ffff:a.b.c.d, so that both ends write the same bytes whatever the
 * family of their sockets. Travels in the hello. */
struct name_end {
	uint8_t addr[16];
	uint16_t port; /* network order */
};

static_assert(sizeof(struct name_end) == 18, "travels in the hello");

/* Always the client (who connected) first, whoever asks. */
struct name_tuple {
	struct name_end client, server;
	uint32_t scope; /* interface of a link-local address, else 0; local knowledge */
};

#define NAME_TEXT_BYTES 120

/* Reads both addresses of a connected socket. 0 or -errno (-ENOTCONN: not yet, or no
 * more; -EAFNOSUPPORT: not an internet socket). */
int name_of_connection(int fd, enum tcp_role role, struct name_tuple *out);
bool name_is_v4(const struct name_end *end);
bool name_end_equal(const struct name_end *a, const struct name_end *b);
/* For the log: "client -> server". Returns buf. */
const char *name_text(const struct name_tuple *t, char buf[NAME_TEXT_BYTES]);

#endif
