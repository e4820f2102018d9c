/* SPDX-License-Identifier: Apache-2.0 */
/* What the other end takes for the addresses of our connection, where the kernel rewrites them. */
#include <string.h>

#include "base/atomic.h"
#include "rendezvous/conntrack.h"
#include "rendezvous/ident.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/translation.h"

bool translation_is_there(const struct party *p)
{
	return !name_end_equal(&p->dialled.client, &p->accepted.client) ||
	       !name_end_equal(&p->dialled.server, &p->accepted.server);
}

void translation_find(struct party *p)
{
	bool connected = p->role == TCP_ROLE_CONNECTED;
	struct name_end dialled;
	int r;

	/* One call, and no more where the kernel does not track this connection. An entry has no
	 * interface, so that link-local addresses may stand for several connections. */
	if (p->tuple.scope != 0 || ident_dialled(p->fd, &p->tuple, &dialled) != 1)
		return;
	r = conntrack_ask(p->netns, &p->tuple, p->role,
			  connected ? &p->accepted : &p->dialled);
	if (r == 1) {
		p->view = PARTY_SHOWN;
		return;
	}
	p->may_be_told = r < 0;
	if (connected) {
		p->view = PARTY_UNKNOWN;
	} else if (!name_end_equal(&dialled, &p->tuple.server)) {
		p->dialled.server = dialled;
		p->view = PARTY_GUESSED;
	}
}

enum meet_word (*meet_tell)(int fd, const struct name_tuple *own, enum tcp_role role,
			    uint64_t netns, bool ask, struct meet_told *out);

/* Some answer was to come: most processes never ask. */
static _Atomic bool has_asked;

enum meet_word translation_ask(struct party *p, bool ask)
{
	struct meet_told told;
	enum meet_word word =
		p->may_be_told && meet_tell
			? meet_tell(p->fd, &p->tuple, p->role, p->netns, ask, &told)
			: MEET_UNTOLD;

	if (word == MEET_ASKED)
		store_relaxed(&has_asked, true);
	if (word != MEET_TOLD)
		return word;
	*(p->role == TCP_ROLE_CONNECTED ? &p->accepted : &p->dialled) = told.tuple;
	p->peer_cookie = told.cookie;
	p->may_be_told = false;
	p->view = PARTY_SHOWN;
	return word;
}

bool translation_is_asked(void)
{
	return load_relaxed(&has_asked);
}

bool meet_is_asked(int fd, enum tcp_role role)
{
	struct meet_told told;
	struct party p;

	return load_relaxed(&has_asked) && party_init(&p, fd, role) == 1 &&
	       meet_tell(fd, &p.tuple, role, p.netns, false, &told) == MEET_ASKED;
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
	if (r == 0) {
		translation_find(&p);
		if (translation_ask(&p, true) == MEET_ASKED)
			return 0;
		r = translation_is_there(&p) ? party_find(&p, &found) : 0;
	}
	return r < 0 ? 0 : r == 0;
}

enum vd_reason meet_missing_reason(int fd, enum tcp_role role)
{
	struct party p;

	if (party_init(&p, fd, role) <= 0)
		return VD_REASON_PLAIN_PEER;
	translation_find(&p);
	translation_ask(&p, false);
	return p.view == PARTY_GUESSED ? VD_REASON_NAT : VD_REASON_PLAIN_PEER;
}
