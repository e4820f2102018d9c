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
	p->dialled = p->accepted = p->tuple;
	p->view = PARTY_AS_SEEN;
	p->may_be_told = false;
	p->peer_cookie = 0;
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

bool party_may_be(const struct party *p, const struct diag_socket *found)
{
	return p->peer_cookie == 0 || found->cookie == p->peer_cookie;
}

int party_find(const struct party *p, struct diag_socket *out)
{
	bool connected = p->role == TCP_ROLE_CONNECTED;
	const struct name_tuple *t = connected ? &p->accepted : &p->dialled;
	int r = diag_lookup(p->netns, connected ? &t->server : &t->client,
			    connected ? &t->client : &t->server, t->scope, out);

	return r == 1 && !party_may_be(p, out) ? 0 : r;
}

int party_errno(int negative_errno)
{
	if (negative_errno == -ENONET)
		return -VD_REASON_REMOTE_PEER;
	return -(int)segment_reason(-negative_errno);
}
