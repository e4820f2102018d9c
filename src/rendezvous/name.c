/* SPDX-License-Identifier: Apache-2.0 */
/* The abstract names of AF_UNIX sockets at which two ends on one host meet. */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/name.h"
#include "ring/wire.h"

static char *name_hex(char *to, const struct name_end *end)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *from = (const uint8_t *)end;

	for (size_t i = 0; i < sizeof(*end); i++) {
		*to++ = digits[from[i] >> 4];
		*to++ = digits[from[i] & 15];
	}
	return to;
}

socklen_t name_address(const struct name_tuple *t, struct sockaddr_un *out)
{
	char *at;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	at = out->sun_path + 1; /* a leading zero makes the name abstract */
	at += snprintf(at, 32, "viaduct.%u.link.", WIRE_VERSION);
	at = name_hex(at, &t->client);
	*at++ = '-';
	at = name_hex(at, &t->server);
	return (socklen_t)(at - (char *)out);
}

static socklen_t name_numbered(const char *prefix, uint16_t port, struct sockaddr_un *out)
{
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
				    "viaduct.%u.%s.%u", WIRE_VERSION, prefix,
				    ntohs(port)));
}

socklen_t name_port_address(uint16_t port, struct sockaddr_un *out)
{
	return name_numbered("port", port, out);
}

socklen_t name_rewritten_address(uint16_t port, struct sockaddr_un *out)
{
	return name_numbered("rewritten", port, out);
}
