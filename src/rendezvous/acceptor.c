/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous as the accepting end goes through it: look for the name, offer a
 * segment, see whether it was taken. */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "rendezvous/announce.h"
#include "rendezvous/endpoint_pair.h"
#include "rendezvous/farbell.h"
#include "rendezvous/hello.h"
#include "rendezvous/ident.h"
#include "rendezvous/name.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/segment.h"
#include "rendezvous/socket_cache.h"
#include "rendezvous/stranger.h"
#include "rendezvous/translation.h"

#define ACCEPTOR_TRIES 4 /* connections that the connector may turn away as too early */

static struct kept acceptor_kept;

/*
 * A socket connected to the name; 0 when the name is not there; or -reason. Whoever has the name may
 * send, also a stranger, and a descriptor left in our queue can take as long to close as its sender
 * likes. We read nothing: so nobody may send, from before the beginning.
 */
static int acceptor_visit(const struct party *p)
{
	struct sockaddr_un name;
	socklen_t len = name_address(&p->dialled, &name);
	int fd = kept_take(&acceptor_kept, AF_UNIX, SOCK_SEQPACKET, 0, p->netns);

	if (fd < 0)
		return party_errno(fd);
	REAL(shutdown)(fd, SHUT_RD);
	if (kernel_connect(fd, (struct sockaddr *)&name, len) == 0)
		return fd;
	/* Refused, or its queue is full: the socket is as good as new. */
	kept_give(&acceptor_kept, fd);
	return 0;
}

/* What is offered, to the connector whose socket has that cookie. 1 or -reason. */
static int acceptor_describe(const struct party *p, uint64_t netns, uint64_t cookie,
			     struct hello *h)
{
	int r = p->view == PARTY_AS_SEEN ? ident_check_dialled(p->fd, &p->tuple) : 1;

	if (r <= 0)
		return r;
	hello_init(h);
	h->netns = netns;
	h->connector_cookie = cookie;
	h->client = p->dialled.client;
	h->server = p->dialled.server;
	h->seen_client = p->accepted.client;
	h->seen_server = p->accepted.server;
	h->is_shown = p->view == PARTY_SHOWN;
	if (tcp_cookie(p->fd, &h->acceptor_cookie) != 0)
		return -VD_REASON_KERNEL;
	return hello_counts(p->fd, p->role, &h->counts) == 0 ? 1 : -VD_REASON_IDENTITY;
}

/* Who is it, and may they share memory with us? 1, 0 (not yet) or -reason. With 1, and with the reason uid, h is
 * what the connector can know us by. */
static int acceptor_check(const struct party *p, int sock, struct hello *h)
{
	struct diag_socket connector;
	uid_t as;
	int r = ident_check(sock, p->role, p->netns, &p->dialled, &connector), described;

	/* It is the connector that makes sure then: connector_fits. */
	if (r > 0 && p->view == PARTY_GUESSED && !ident_is_believed(sock))
		r = -VD_REASON_NAT;
	if (r > 0 && !party_may_be(p, &connector))
		r = -VD_REASON_IDENTITY;
	/* It will find the same. */
	if (r > 0 && !ident_vouches(p->fd, &as))
		r = -VD_REASON_UID;
	if (r != 1 && r != -VD_REASON_UID)
		return r;
	described = acceptor_describe(p, p->netns, connector.cookie, h);
	return described <= 0 ? described : r;
}

/*
 * A connector that looked just now took us for somebody with nothing to say, and hung up:
 * then comes another visit, on which the hello follows at once. *sock changes. 1, 0 (try
 * later) or -reason.
 */
static int acceptor_send(const struct party *p, int *sock, const struct hello *h,
			 const struct meet_segment *seg)
{
	struct ucred first, now;
	uid_t as;
	int r = ident_peer(*sock, &first);

	ident_vouches(p->fd, &as);
	for (int i = 0; r == 0 && i < ACCEPTOR_TRIES; i++) {
		r = hello_send(*sock, h, seg, as);
		if (r == 0)
			return 1;
		if (r != -EPIPE && r != -ECONNRESET)
			return r == -EAGAIN ? 0 : -(int)segment_reason(-r);
		fds_close(*sock);
		*sock = acceptor_visit(p);
		if (*sock <= 0) {
			r = *sock;
			*sock = -1;
			return r;
		}
		r = ident_peer(*sock, &now);
		if (r == 0 && (now.uid != first.uid || now.pid != first.pid))
			return -VD_REASON_IDENTITY;
	}
	return r == 0 ? 0 : -VD_REASON_KERNEL;
}

/* Says why there is no memory. 1, 0 or -reason. */
static int acceptor_tell(const struct party *p, int *sock, struct hello *h,
			 enum vd_reason reason)
{
	h->declined = (uint16_t)reason;
	return acceptor_send(p, sock, h, NULL);
}

static int acceptor_offer(const struct party *p, int *sock, void *place,
			  struct meet_segment *out)
{
	struct meet_segment seg;
	struct hello h;
	int r = acceptor_check(p, *sock, &h);

	if (r == -VD_REASON_UID)
		acceptor_tell(p, sock, &h, VD_REASON_UID);
	if (r > 0)
		r = segment_create(!ident_is_own_user(*sock), p->netns, place, &seg);
	if (r <= 0)
		return r;
	if (seg.far_bell >= 0)
		h.acceptor_port = farbell_port(seg.far_bell);
	r = acceptor_send(p, sock, &h, &seg);
	if (r > 0)
		*out = seg;
	else
		meet_finish(&seg);
	return r;
}

/* A connector that may not ask conntrack does not know whom to look for: it is told that there is
 * somebody who knows. */
static void acceptor_call(const struct party *p)
{
	struct diag_socket connector;

	if (p->view == PARTY_SHOWN && translation_is_there(p) &&
	    party_find(p, &connector) == 1)
		announce_rewritten(p->dialled.server.port, p->netns);
}

/* Nothing shows that the connection is rewritten; but its client is not where we see it. */
static bool acceptor_misses(const struct party *p)
{
	struct diag_socket connector;

	return p->view == PARTY_AS_SEEN && p->may_be_told &&
	       party_find(p, &connector) == 0;
}

int meet_offer(int fd, void *place, struct meet_segment *out)
{
	struct party p;
	int sock, r = party_init(&p, fd, TCP_ROLE_ACCEPTED);

	if (r <= 0)
		return r;
	translation_find(&p);
	if (p.view == PARTY_GUESSED && translation_ask(&p, true) == MEET_ASKED)
		return 0;
	sock = acceptor_visit(&p);
	if (sock == 0 && acceptor_misses(&p) && translation_ask(&p, true) == MEET_TOLD)
		sock = acceptor_visit(&p);
	if (sock == 0) {
		acceptor_call(&p);
		return 0;
	}
	if (sock < 0)
		return party_result(&p, "offer", sock);
	r = acceptor_offer(&p, &sock, place, out);
	fds_close(sock);
	return party_result(&p, "offer", r);
}

int meet_decline(int fd, enum vd_reason reason)
{
	struct party p;
	struct hello h;
	int sock, r = party_init(&p, fd, TCP_ROLE_ACCEPTED);

	if (r <= 0)
		return r;
	translation_find(&p);
	sock = acceptor_visit(&p);
	if (sock <= 0)
		return sock;
	r = acceptor_check(&p, sock, &h);
	if (r == 1 || r == -VD_REASON_UID)
		r = acceptor_tell(&p, &sock, &h, reason);
	fds_close(sock);
	return party_result(&p, "decline", r);
}

void meet_near_drop(struct meet_near *near)
{
	if (near->line >= 0)
		stranger_close(near->line);
	fds_close(near->bell);
	near->line = near->bell = -1;
}

/* Nothing is left of `near` but where it fails, or the other end has gone. */
static int near_offer(const struct party *p, struct meet_near *near, void *place,
		      struct meet_segment *out)
{
	struct meet_segment seg;
	struct hello h;
	int r = acceptor_describe(p, near->netns, near->cookie, &h);

	if (r == 1)
		r = segment_with_bell(place, &seg);
	if (r < 0)
		return r;
	h.acceptor_port = 1; /* none, but no bell comes with the memory */
	r = hello_send(near->line, &h, &seg, IDENT_AS_IT_IS);
	fds_close(near->line);
	near->line = -1;
	if (r < 0) {
		meet_finish(&seg);
		return r == -EPIPE || r == -ECONNRESET ? 0 : -(int)segment_reason(-r);
	}
	seg.far_bell = near->bell;
	near->bell = -1;
	*out = seg;
	return 1;
}

int meet_near_offer(int fd, struct meet_near *near, void *place, struct meet_segment *out)
{
	struct party p;
	int r = party_init(&p, fd, TCP_ROLE_ACCEPTED);

	if (r <= 0)
		return r == 0 ? -VD_REASON_IDENTITY : r;
	return party_result(&p, "offer", near_offer(&p, near, place, out));
}

/* The connector has attached: its bell can be rung from now on. 1 or -reason. */
static int acceptor_connect_bell(const struct meet_segment *seg)
{
	/* Relaxed: read after the acquire of ATTACHED; once, for it may change again. */
	uint32_t port = __atomic_load_n(&seg->wire->connector_port, __ATOMIC_RELAXED);
	int r = seg->far_bell < 0 || farbell_is_pair(seg->far_bell)
			? 0
			: farbell_connect(seg->far_bell, port);

	if (r < 0)
		return r == -EPROTO ? -VD_REASON_CORRUPT : -(int)segment_reason(-r);
	return 1;
}

int meet_attached(int fd, struct meet_segment *seg)
{
	/* Acquire: pairs with the connector's release of ATTACHED; permits to read its
	 * counts. */
	uint32_t state = load_acquire(&seg->wire->handshake);
	const struct wire_counts *theirs = &seg->wire->connector_counts;
	struct wire_counts counts, own;
	struct party p;
	int r;

	if (state == WIRE_OFFERED)
		return 0;
	r = party_init(&p, fd, TCP_ROLE_ACCEPTED);
	if (r <= 0)
		return -VD_REASON_IDENTITY;
	if (state != WIRE_ATTACHED)
		return party_result(&p, "attach",
				    state == WIRE_ABANDONED ? -VD_REASON_PEER_ASKED
							    : -VD_REASON_CORRUPT);
	counts.acked = __atomic_load_n(&theirs->acked, __ATOMIC_RELAXED);
	counts.written = __atomic_load_n(&theirs->written, __ATOMIC_RELAXED);
	counts.received = __atomic_load_n(&theirs->received, __ATOMIC_RELAXED);
	if (!hello_counts_fit(fd, p.role, &counts, &own))
		return party_result(&p, "attach", -VD_REASON_IDENTITY);
	return party_result(&p, "attach", acceptor_connect_bell(seg));
}

int meet_abandon(struct meet_segment *seg)
{
	uint32_t state = WIRE_OFFERED;

	/* Relaxed: whoever loses reads nothing that the other wrote. */
	if (!atomic_compare_exchange_strong_explicit(&seg->wire->handshake, &state,
						     WIRE_ABANDONED, memory_order_relaxed,
						     memory_order_relaxed) &&
	    state == WIRE_ATTACHED)
		return 0;
	meet_finish(seg);
	return 1;
}
