/* SPDX-License-Identifier: Apache-2.0 */
/* What either end of a connection needs to know about itself before it meets the other.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/reason.h"
#include "rendezvous/diag.h"
#include "rendezvous/endpoint_pair.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/segment.h"

int party_init(struct party *p, int fd, enum tcp_role role)
{
	int r = name_of_connection(fd, role, &p->tuple);

	if (r == -ENOTCONN)
		return 0;
	if (r < 0)
		return -VD_REASON_PROTOCOL;
	p->fd = fd;
	p->role = role;
	if (tcp_netns_cookie(fd, &p->netns) != 0)
		return party_result(p, "network namespace", -VD_REASON_KERNEL);
	return 1;
}

int party_result(const struct party *p, const char *step, int result)
{
	char text[NAME_TEXT_BYTES];

	if (result < 0)
		log_debug("%s: %s: %s (%s)", name_text(&p->tuple, text), step,
			  reason_name((uint32_t)-result), reason_text((uint32_t)-result));
	return result;
}

int meet_is_remote(int fd, enum tcp_role role, struct name_end *local,
		   struct name_end *peer)
{
	struct diag_socket found;
	struct party p;
	int r = party_init(&p, fd, role);

	if (r <= 0)
		return r;
	*local = role == TCP_ROLE_CONNECTED ? p.tuple.client : p.tuple.server;
	*peer = role == TCP_ROLE_CONNECTED ? p.tuple.server : p.tuple.client;
	if (memcmp(local->addr, peer->addr, sizeof(local->addr)) == 0)
		return 0;
	r = diag_lookup(p.netns, peer, local, p.tuple.scope, &found);
	return r < 0 ? 0 : r == 0;
}

int party_errno(int negative_errno)
{
	if (negative_errno == -ENONET)
		return -VD_REASON_REMOTE_PEER;
	return -(int)segment_reason(-negative_errno);
}
