/* SPDX-License-Identifier: Apache-2.0 */
/* Peers on other hosts, for the engine's start and its door. */
#ifndef VD_REMOTE_PEER_H
#define VD_REMOTE_PEER_H

#include "conn/peer.h"
#include "remote/remote.h"

/* Once, before there are connections: from then on conn asks viaductd as well. */
void remote_register(void);

/* As across_reach, across_move and across_redirect_least; -EAGAIN and 0 where the peer is on this host. */
int remote_reach(struct sock *s, void *at, size_t n, uint32_t may, struct across_key *k,
		 uint64_t *id);
int remote_move(struct sock *s, const struct across_key *k, uint64_t at,
		struct across_span *span);
int remote_move_begin(struct sock *s, const struct across_key *k, uint64_t at,
		      struct across_span *span, uint64_t *id);
int remote_move_may(struct sock *s, const struct across_key *key);
int remote_move_look(struct sock *s, uint64_t id, bool ends);
int remote_move_descriptor(struct sock *s);
uint32_t remote_redirect_least(struct sock *s);

#endif
