/* SPDX-License-Identifier: Apache-2.0 */
/* What both parts of a meeting between hosts do: refuse, leave a place, connect a link. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "remote/meet.h"
#include "remote/say.h"

void meet_refuse(struct peer *a, enum vd_reason reason, const char *why)
{
	log_debug("not across hosts: %s", why);
	a->refused = -(int)(a->keeps_tcp ? VD_REASON_SLOWER : reason);
}

enum vd_reason meet_reason(int r)
{
	switch (r) {
	case -ENODEV:
		return VD_REASON_NO_DEVICE;
	case -EDQUOT:
		return VD_REASON_LOCKED;
	case -EPROTO:
		return VD_REASON_HELLO;
	case -ENOSPC:
		return VD_REASON_FULL;
	default:
		return VD_REASON_MEMORY;
	}
}

void meet_leave_place(struct peer *a)
{
	struct across_link *k = a->link;

	if (!k)
		return;
	if (a->in_doubt && !a->last_came && !k->failed) {
		across_lost.state = ACROSS_ENDED;
		k->at[a->place] = &across_lost;
		a->link = NULL;
		if (a->state == ACROSS_ENDED)
			a->state = ACROSS_FREE;
		return;
	}
	hub_give_place(a);
	if (k->link && !k->up)
		hub_drop(k);
}

bool meet_connect_link(struct peer *a, struct across_link *k, const struct say *s)
{
	const char *why = "its hello is of another host";

	if (link_hello_is_at(s->hello, a->peer.addr) &&
	    link_connect(k->link, s->hello, sizeof(s->hello), &why) == 0 &&
	    link_peer_window(k->link) == ACROSS_WINDOW_BYTES) {
		memcpy(k->theirs, s->secret, sizeof(k->theirs));
		return true;
	}
	log_debug("a link does not come up: %s", why ? why : "refused");
	return false;
}
