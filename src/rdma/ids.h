/* SPDX-License-Identifier: Apache-2.0 */
/* Connection ids of one end of a link, so that late writes never meet the next connection. */
#ifndef VD_RDMA_IDS_H
#define VD_RDMA_IDS_H

#include <stdint.h>

#include "rdma/link.h"

/*
 * Each end names its own connections; the other end puts these names into its immediates. An
 * id comes back only when both ends are through with it: ours has let it go, and the peer's
 * last immediate for it has been polled, after which it posts no write for it. Only then
 * may the connection's part of the window be given away, too. The generation tells an
 * immediate that comes in spite of that.
 */
struct ids;

enum ids_found {
	IDS_LIVE,
	IDS_LATE,    /* of a connection that has ended, here or as a whole */
	IDS_UNKNOWN, /* was never given out: the peer is wrong */
};

/* -ENOMEM. `count` at most LINK_IDS. */
int ids_create(uint32_t count, struct ids **out);
void ids_destroy(struct ids *s);

/* -ENOSPC: all are in use, or wait for the peer. `cookie` is given back by ids_find. */
int ids_take(struct ids *s, void *cookie, uint32_t *id, uint32_t *generation);
/* Whom an immediate is for; *cookie only of a live one. */
enum ids_found ids_find(const struct ids *s, uint32_t immediate, void **cookie);
/* Our side has ended. 1: the id is free again, and so is the connection's part of the window.
 * 0: the peer may still write. Once per ids_take. */
int ids_end_own(struct ids *s, uint32_t id);
/* This was the peer's last immediate for the connection. The same; -EPROTO: it cannot be, as
 * that connection has no peer any more, or never had one. */
int ids_end_peer(struct ids *s, uint32_t immediate);

#endif
