/* SPDX-License-Identifier: Apache-2.0 */
/* The one message of the rendezvous: what the acceptor offers, and to whom. */
#ifndef VD_RENDEZVOUS_HELLO_H
#define VD_RENDEZVOUS_HELLO_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "base/reason.h"
#include "rendezvous/segment.h"
#include "ring/wire.h"

struct hello {
	uint64_t magic;
	uint32_t version;
	uint32_t hello_bytes; /* sizeof(struct hello) */
	uint32_t header_bytes, dir_bytes, area_bytes[WIRE_AREAS]; /* as in struct wire */
	uint32_t features;					  /* none so far: 0 */
	uint64_t total_bytes;
	uint64_t netns;		   /* SO_NETNS_COOKIE of the acceptor's TCP socket */
	uint64_t acceptor_cookie;  /* its SO_COOKIE */
	uint64_t connector_cookie; /* what the kernel told the acceptor of its TCP peer */
	struct wire_counts counts; /* of the acceptor's TCP socket */
	struct name_end client, server; /* as the connector's TCP socket has them */
	struct name_end seen_client, seen_server; /* as the acceptor's has them */
	uint32_t acceptor_port; /* of its far bell: the ends belong to two users; or 0 */
	/* 1: the acceptor knows from its kernel how the two belong together */
	uint16_t is_shown;
	uint16_t
		declined; /* 0; or why it stays on TCP: enum vd_reason. No memory comes */
};

static_assert(sizeof(struct hello) == 176, "hello layout");

/* Fills what does not depend on the connection. */
void hello_init(struct hello *h);
/* 1 when the layouts agree, else -VD_REASON_HELLO or -VD_REASON_VERSION. */
int hello_check(const struct hello *h);

/* Why the acceptor declines, of those that one end can tell the other; VD_REASON_NONE: it does not. */
enum vd_reason hello_declined(const struct hello *h);

/* seg: NULL where h declines. as: the user to be stated, as ident_vouches says. Sends h and those descriptors of seg that the other end gets. 0 or -errno (-EPIPE: the other end hung up). */
int hello_send(int sock, const struct hello *h, const struct meet_segment *seg, uid_t as);
/*
 * 1: *h (not yet checked) and fds are the caller's, -1 for those that do not come. 0: nothing there yet. -EPIPE: the
 * other end left without a word. -EPROTO: not a hello. -EMFILE: its descriptors did not
 * fit into our table. Other -errno.
 */
int hello_receive(int sock, struct hello *h, int fds[SEGMENT_FDS]);

/* Counts of our end, and whether those of the other end, taken earlier, fit to ours now, which
 * are *own then. 0 or -errno; 1 or 0. */
int hello_counts(int fd, enum tcp_role role, struct wire_counts *out);
bool hello_counts_fit(int fd, enum tcp_role role, const struct wire_counts *peer,
		      struct wire_counts *own);

#endif
