/* SPDX-License-Identifier: Apache-2.0 */
/* The two addresses of a connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/kernel.h"
#include "base/endpoint.h"

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

union name_sockaddr {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static int name_set_end(const union name_sockaddr *from, struct name_end *end,
			uint32_t *scope)
{
	if (from->any.sa_family == AF_INET) {
		memcpy(end->addr, v4_prefix, sizeof(v4_prefix));
		memcpy(end->addr + sizeof(v4_prefix), &from->in.sin_addr, 4);
		end->port = from->in.sin_port;
		return 0;
	}
	if (from->any.sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	memcpy(end->addr, &from->in6.sin6_addr, 16);
	end->port = from->in6.sin6_port;
	if (from->in6.sin6_scope_id)
		*scope = from->in6.sin6_scope_id;
	return 0;
}

int name_of_connection(int fd, enum tcp_role role, struct name_tuple *out)
{
	union name_sockaddr local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	struct name_tuple t = {.scope = 0};
	bool client = role == TCP_ROLE_CONNECTED;
	int r;

	memset(&local, 0, sizeof(local));
	memset(&peer, 0, sizeof(peer));
	r = kernel_getpeername(fd, &peer.any, &peer_len);
	if (r == 0)
		r = kernel_getsockname(fd, &local.any, &local_len);
	if (r == 0)
		r = name_set_end(&local, client ? &t.client : &t.server, &t.scope);
	if (r == 0)
		r = name_set_end(&peer, client ? &t.server : &t.client, &t.scope);
	if (r == 0)
		*out = t;
	return r;
}

bool name_is_v4(const struct name_end *end)
{
	return memcmp(end->addr, v4_prefix, sizeof(v4_prefix)) == 0;
}

bool name_end_equal(const struct name_end *a, const struct name_end *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void name_end_text(const struct name_end *end, char *to, size_t size)
{
	char addr[INET6_ADDRSTRLEN] = "?";

	if (name_is_v4(end)) {
		inet_ntop(AF_INET, end->addr + sizeof(v4_prefix), addr, sizeof(addr));
		snprintf(to, size, "%s:%u", addr, ntohs(end->port));
	} else {
		inet_ntop(AF_INET6, end->addr, addr, sizeof(addr));
		snprintf(to, size, "[%s]:%u", addr, ntohs(end->port));
	}
}

const char *name_text(const struct name_tuple *t, char buf[NAME_TEXT_BYTES])
{
	char client[INET6_ADDRSTRLEN + 10], server[INET6_ADDRSTRLEN + 10];

	name_end_text(&t->client, client, sizeof(client));
	name_end_text(&t->server, server, sizeof(server));
	snprintf(buf, NAME_TEXT_BYTES, "%s -> %s", client, server);
	return buf;
}
