/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which socket of this network namespace has a given pair of addresses.
 */
#ifndef VD_RENDEZVOUS_DIAG_H
#define VD_RENDEZVOUS_DIAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/endpoint.h"

struct diag_socket {
	uint64_t cookie; /* its SO_COOKIE */
	uint32_t uid;	 /* owner; says nothing while inode is 0 */
	uint32_t inode;	 /* 0: no descriptor (not accepted yet, or closed) */
	int state;	 /* TCP_ESTABLISHED and its kin */
};

/*
 * Exact look-up of the TCP socket whose own address is local and whose peer's is peer.
 * scope: interface of a link-local address, or 0. netns: cookie of the namespace to look
 * in. Returns 1 when found, 0 when there is none, or -errno. Does not block.
 */
int diag_lookup(uint64_t netns, const struct name_end *local, const struct name_end *peer,
		uint32_t scope, struct diag_socket *out);

/* The same over a NETLINK_SOCK_DIAG socket of that namespace which somebody else has made, and
 * may have, too: it can keep an answer from us, but not make one about a TCP socket that is not there. It
 * may ask of another protocol's, with our sequence number: so the answer must have what only TCP's have. */
int diag_lookup_on(int nl, const struct name_end *local, const struct name_end *peer,
		   struct diag_socket *out);
/* An answer that has come. -EPROTO with `extras`: it is not about a TCP socket. */
int diag_hear(int nl, uint32_t sequence, const struct name_end *local,
	      const struct name_end *peer, bool extras, struct diag_socket *out);

/* The inode of the AF_UNIX socket at the other end of that with this inode. As diag_lookup. */
int diag_unix_peer(uint64_t netns, uint32_t inode, uint32_t *peer);

#endif
