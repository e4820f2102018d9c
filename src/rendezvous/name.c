/* SPDX-License-Identifier: Apache-2.0 */
/* The abstract names of AF_UNIX sockets at which two ends on one host meet. */
#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include "base/put.h"
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
	at = put_text(put_number(put_text(at, "viaduct."), WIRE_VERSION), ".link.");
	at = name_hex(at, &t->client);
	*at++ = '-';
	at = name_hex(at, &t->server);
	return (socklen_t)(at - (char *)out);
}

static socklen_t name_numbered(const char *prefix, uint16_t port, struct sockaddr_un *out)
{
	char *at = out->sun_path + 1;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	at = put_text(put_number(put_text(at, "viaduct."), WIRE_VERSION), ".");
	at = put_number(put_text(put_text(at, prefix), "."), ntohs(port));
	return (socklen_t)(at - (char *)out);
}

socklen_t name_port_address(uint16_t port, struct sockaddr_un *out)
{
	return name_numbered("port", port, out);
}

socklen_t name_rewritten_address(uint16_t port, struct sockaddr_un *out)
{
	return name_numbered("rewritten", port, out);
}
