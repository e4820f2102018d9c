/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous as the connecting end goes through it: publish a name, collect the
 * offer. */
#include <errno.h>
#include <string.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "rendezvous/announce.h"
#include "rendezvous/diag.h"
#include "rendezvous/endpoint_pair.h"
#include "rendezvous/farbell.h"
#include "rendezvous/hello.h"
#include "rendezvous/ident.h"
#include "rendezvous/name.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/socket_cache.h"
#include "rendezvous/stranger.h"
#include "rendezvous/translation.h"

#define CONNECTOR_BACKLOG   4
#define CONNECTOR_STRANGERS 8 /* connections that one look turns away */

/* The peer's TCP socket is here, and is not our own. 1 or -reason. */
static int connector_find_peer(const struct party *p)
{
	const struct name_tuple *t = &p->tuple;
	struct diag_socket found;
	uint64_t own;
	int r = party_find(p, &found);

	if (r < 0)
		return party_errno(r);
	if (tcp_cookie(p->fd, &own) != 0)
		return -VD_REASON_KERNEL;
	if (r == 1)
		return found.cookie == own ? -VD_REASON_SELF : 1;
	/* A kernel that cannot look up answers as if there were nothing: it must at least
	 * know ourselves. */
	r = diag_lookup(p->netns, &t->client, &t->server, t->scope, &found);
	if (r == 0)
		log_debug("sock_diag does not know of our own socket (tcp_diag is "
			  "missing)");
	return r == 1 ? -VD_REASON_REMOTE_PEER : -VD_REASON_KERNEL;
}

/* The listener, or -reason. */
static int connector_listen(const struct party *p)
{
	struct sockaddr_un name;
	socklen_t len = name_address(&p->tuple, &name);
	int fd = kept_socket(AF_UNIX, SOCK_SEQPACKET, 0, p->netns);
	int err;

	if (fd < 0) {
		log_debug("no AF_UNIX socket: %s", strerror(-fd));
		return party_errno(fd);
	}
	if (REAL(bind)(fd, (struct sockaddr *)&name, len) == 0 &&
	    REAL(listen)(fd, CONNECTOR_BACKLOG) == 0)
		return fd;
	err = errno;
	fds_close(fd);
	return err == EADDRINUSE ? -VD_REASON_IDENTITY : -(int)segment_reason(err);
}

/* The peer is announced, and here. 1 or -reason. */
static int connector_look(const struct party *p)
{
	int r = announce_probe(p->accepted.server.port, p->netns);

	if (r <= 0)
		return r == 0 ? -VD_REASON_PLAIN_PEER : party_errno(r);
	return connector_find_peer(p);
}

/* There is nobody where the connection leads, as we see it. */
static bool connector_misses(int r)
{
	return r == -VD_REASON_PLAIN_PEER || r == -VD_REASON_REMOTE_PEER;
}

int meet_publish(int fd, int *name_fd)
{
	struct party p;
	int r = party_init(&p, fd, TCP_ROLE_CONNECTED);

	if (r <= 0)
		return r;
	if (name_end_equal(&p.tuple.client, &p.tuple.server))
		return party_result(&p, "publish", -VD_REASON_SELF);
	if (stranger_is_full())
		return party_result(&p, "publish", -VD_REASON_FULL);
	translation_find(&p);
	r = connector_look(&p);
	if (p.view == PARTY_UNKNOWN && connector_misses(r)) {
		enum meet_word word = translation_ask(&p, true);

		if (word == MEET_ASKED)
			return 0;
		if (word == MEET_TOLD)
			r = connector_look(&p);
	}
	/* Some acceptor here may know of connections to this port that are rewritten: ours may be one
	 * of them. Until one says so, this is asked again. */
	if (p.view == PARTY_UNKNOWN && connector_misses(r)) {
		r = announce_probe_rewritten(p.tuple.server.port, p.netns);
		if (r <= 0)
			return r == 0 ? 0 : party_result(&p, "publish", party_errno(r));
	}
	if (r > 0)
		r = connector_listen(&p);
	if (r < 0)
		return party_result(&p, "publish", r);
	*name_fd = r;
	return 1;
}

bool meet_may_publish(int fd)
{
	struct name_tuple t;
	uint64_t netns;

	return translation_is_asked() ||
	       (name_of_connection(fd, TCP_ROLE_CONNECTED, &t) == 0 &&
		tcp_netns_cookie(fd, &netns) == 0 &&
		announce_probe_either(t.server.port, netns) != 0);
}

/*
 * The addresses of both ends are the two views of one connection: one of us has it from the kernel,
 * or they are the same. Who has let us believe the acceptor's word has seen to that: connector_hear.
 */
static bool connector_fits(const struct party *p, const struct hello *h)
{
	bool is_rewritten = !name_end_equal(&h->client, &h->seen_client) ||
			    !name_end_equal(&h->server, &h->seen_server);

	return name_end_equal(&h->client, &p->tuple.client) &&
	       name_end_equal(&h->server, &p->tuple.server) &&
	       name_end_equal(&h->seen_client, &p->accepted.client) &&
	       name_end_equal(&h->seen_server, &p->accepted.server) &&
	       (!is_rewritten || h->is_shown || p->view == PARTY_SHOWN);
}

/* 1 when the offer is for this very connection, else -reason. acceptor: cookie of its socket.
 * counts: of our end. */
static int connector_check(const struct party *p, uint64_t acceptor,
			   const struct hello *h, struct wire_counts *counts)
{
	uint64_t own;
	int r = hello_check(h);

	if (r < 0)
		return r;
	if (tcp_cookie(p->fd, &own) != 0)
		return -VD_REASON_KERNEL;
	if (!connector_fits(p, h) || h->connector_cookie != own ||
	    h->acceptor_cookie != acceptor || h->netns != p->netns)
		return -VD_REASON_IDENTITY;
	if (!hello_counts_fit(p->fd, p->role, &h->counts, counts))
		return -VD_REASON_IDENTITY;
	return h->declined ? -(int)hello_declined(h) : 1;
}

/* The last step: after it the acceptor may use the segment. 1 or -reason. */
static int connector_attach(const struct meet_segment *s,
			    const struct wire_counts *counts)
{
	struct wire *w = s->wire;
	uint32_t state = WIRE_OFFERED;

	__atomic_store_n(&w->connector_counts.acked, counts->acked, __ATOMIC_RELAXED);
	__atomic_store_n(&w->connector_counts.written, counts->written, __ATOMIC_RELAXED);
	__atomic_store_n(&w->connector_counts.received, counts->received,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&w->connector_port,
			 s->far_bell < 0 ? 0 : farbell_port(s->far_bell),
			 __ATOMIC_RELAXED);
	/* Release: whoever sees ATTACHED (acquire, in meet_attached) sees all of these. */
	return atomic_compare_exchange_strong_explicit(
		       &w->handshake, &state, WIRE_ATTACHED, memory_order_release,
		       memory_order_relaxed)
		       ? 1
		       : -VD_REASON_PEER_ASKED;
}

static int connector_take(const struct party *p, bool is_own,
			  const struct diag_socket *acceptor, const struct hello *h,
			  int fds[SEGMENT_FDS], void *place, struct meet_segment *out)
{
	struct wire_counts counts;
	struct meet_segment s;
	int r = connector_check(p, acceptor->cookie, h, &counts);

	/* A shared doorbell is not safe from another user: see farbell.h. An honest acceptor
	 * offers one all the same when our real or saved user id has let us be two users. */
	if (r == 1 && !h->acceptor_port && !is_own)
		r = -VD_REASON_UID;
	if (r < 0) {
		for (int i = 0; i < SEGMENT_FDS; i++)
			fds_close(fds[i]);
		return r;
	}
	r = segment_take(fds, h->acceptor_port, p->netns, place, &s);
	if (r < 0)
		return r;
	r = connector_attach(&s, &counts);
	if (r < 0)
		meet_finish(&s);
	else
		*out = s;
	return r;
}

/* Of a hello that did not come. -EAGAIN: no further process can be had to look at it. */
static int connector_failure(int r)
{
	if (r == -EAGAIN)
		return -VD_REASON_FULL;
	return r == -EPROTO ? -VD_REASON_HELLO : -(int)segment_reason(-r);
}

/* Who has nothing to say is not waited for, so that nobody can keep the acceptor out; shutdown makes
 * sure that an acceptor which was about to speak notices, and comes again. 1, 0 or -reason. */
static int connector_receive(int visitor, bool may_stop_us, struct hello *h,
			     int fds[SEGMENT_FDS])
{
	int (*receive)(int, struct hello *, int[SEGMENT_FDS]) =
		may_stop_us ? hello_receive : stranger_hello;
	int r = receive(visitor, h, fds);

	if (r == 0) {
		REAL(shutdown)(visitor, SHUT_RDWR);
		r = receive(visitor, h, fds);
	}
	if (r == 1 || r == 0)
		return r;
	if (r == -EPIPE)
		return 0;
	return connector_failure(r);
}

/* The acceptor, which we believe, has asked the kernel how our connection is rewritten. Its socket is
 * looked for where it says. As ident_check. */
static int connector_follow(struct party *p, int visitor, const struct hello *h,
			    struct diag_socket *acceptor)
{
	int r = hello_check(h);

	if (r < 0)
		return r;
	if (!h->is_shown)
		return -VD_REASON_NAT;
	p->accepted.client = h->seen_client;
	p->accepted.server = h->seen_server;
	return ident_check(visitor, p->role, p->netns, &p->accepted, acceptor);
}

/* Its socket is another one than that which is where our connection leads, as we see it. */
static bool connector_is_led(const struct party *p, int visitor, const struct hello *h)
{
	return p->view == PARTY_UNKNOWN &&
	       (!name_end_equal(&h->seen_client, &p->accepted.client) ||
		!name_end_equal(&h->seen_server, &p->accepted.server)) &&
	       ident_is_believed(visitor);
}

/* Of what ident_check says: this visitor is none, and the next one may be the peer. */
static bool is_passed_over(int r)
{
	return r == 0 || r == -VD_REASON_UID || r == -VD_REASON_NAMESPACE ||
	       r == -VD_REASON_NAT;
}

/* One visitor. 1 or -reason settle the matter; 0: this one is turned away, the next may
 * be the right one. */
static int connector_hear(const struct party *p, int visitor, bool *may_stop_us,
			  void *place, struct meet_segment *out)
{
	struct diag_socket acceptor;
	struct party known = *p;
	int fds[SEGMENT_FDS];
	struct hello h;
	int r = ident_check(visitor, p->role, p->netns, &p->accepted, &acceptor);
	bool is_led = r == -VD_REASON_IDENTITY && p->view == PARTY_UNKNOWN,
	     is_own = ident_is_own_user(visitor);

	*may_stop_us = r == 1 && is_own; /* ident_may_stop_us, which was asked already */
	if (is_led)
		r = ident_is_believed(visitor) ? 1 : -VD_REASON_NAT;
	if (r < 0 && is_passed_over(r))
		out->turned_away =
			(enum vd_reason) - party_result(p, "turned a visitor away", r);
	if (is_passed_over(r))
		return 0;
	if (r < 0)
		return r;
	r = connector_receive(visitor, *may_stop_us, &h, fds);
	if (r <= 0)
		return r;
	if (is_led || connector_is_led(p, visitor, &h))
		r = connector_follow(&known, visitor, &h, &acceptor);
	if (r == 1 && !party_may_be(p, &acceptor))
		r = -VD_REASON_IDENTITY;
	if (r == 1)
		return connector_take(&known, is_own, &acceptor, &h, fds, place, out);
	for (int i = 0; i < SEGMENT_FDS; i++)
		fds_close(fds[i]);
	return is_passed_over(r) ? 0 : r;
}

/* Who may stop us anyway may be waited for. */
static void connector_part(int visitor, bool may_stop_us)
{
	if (may_stop_us)
		fds_close(visitor);
	else
		stranger_close(visitor);
}

static int connector_accept(int listener)
{
	return LOW_MADE(fds_raise, kernel_call4(SYS_accept4, listener, 0, 0,
						SOCK_CLOEXEC | SOCK_NONBLOCK));
}

static int connector_collect(const struct party *p, int listener, void *place,
			     struct meet_segment *out)
{
	int r = 0;

	for (int i = 0; r == 0 && i < CONNECTOR_STRANGERS; i++) {
		bool may_stop_us;
		int visitor;

		if (stranger_is_full())
			return -VD_REASON_FULL;
		visitor = connector_accept(listener);

		if (visitor < 0)
			return visitor == -EAGAIN || visitor == -ECONNABORTED ||
					       visitor == -EINTR
				       ? 0
				       : -(int)segment_reason(-visitor);
		r = connector_hear(p, visitor, &may_stop_us, place, out);
		connector_part(visitor, may_stop_us);
	}
	return r;
}

void meet_unpublish(int name_fd)
{
	struct pollfd visitors = {.fd = name_fd, .events = POLLIN};
	bool has_come;
	int visitor;

	if (name_fd < 0)
		return;
	/* From here on nobody connects. Mostly nobody has: then an accept that finds no number says so
	 * before it looks. */
	has_come = kernel_poll(&visitors, 1, 0) != 0;
	REAL(shutdown)(name_fd, SHUT_RDWR);
	do {
		visitor = stranger_is_full() ? -EMFILE : connector_accept(name_fd);
		if (visitor >= 0)
			connector_part(visitor, ident_may_stop_us(visitor));
	} while (visitor >= 0);
	if (has_come && (visitor == -EMFILE || visitor == -ENFILE || visitor == -ENOMEM))
		stranger_close(name_fd);
	else
		fds_close(name_fd);
}

int meet_collect(int fd, int *name_fd, void *place, struct meet_segment *out)
{
	/* A poll costs a tenth of an accept that finds nobody. */
	struct pollfd visitors = {.fd = *name_fd, .events = POLLIN};
	struct party p;
	int r, listener;

	if (kernel_poll(&visitors, 1, 0) == 0)
		return 0;
	r = party_init(&p, fd, TCP_ROLE_CONNECTED);
	if (r == 0) {
		r = -VD_REASON_IDENTITY; /* it was connected, and is no more: no names */
	} else if (r > 0) {
		struct diag_socket acceptor;

		translation_find(&p);
		/* The visitor can wait for viaductd, where we do not know where to look. */
		if (p.view == PARTY_UNKNOWN &&
		    translation_ask(&p, party_find(&p, &acceptor) == 0) == MEET_ASKED)
			return 0;
		r = party_result(&p, "collect",
				 connector_collect(&p, *name_fd, place, out));
	}
	if (r == 0)
		return 0;
	listener = *name_fd;
	*name_fd = -1;
	meet_unpublish(listener);
	return r;
}

/* What has come by the line. */
static int near_take(const struct party *p, struct meet_near *near, const struct hello *h,
		     int fds[SEGMENT_FDS], void *place, struct meet_segment *out)
{
	struct wire_counts counts;
	struct meet_segment s;
	int r = h->acceptor_port ? connector_check(p, near->cookie, h, &counts)
				 : -VD_REASON_HELLO;

	if (r == 1)
		r = segment_take_near(fds[SEGMENT_MEMFD], near->bell, place, &s);
	else
		for (int i = 0; i < SEGMENT_FDS; i++)
			fds_close(fds[i]);
	if (r < 0)
		return r;
	near->bell = -1;
	r = connector_attach(&s, &counts);
	if (r < 0)
		meet_finish(&s);
	else
		*out = s;
	return r;
}

int meet_near_collect(int fd, struct meet_near *near, void *place,
		      struct meet_segment *out)
{
	int fds[SEGMENT_FDS];
	struct party p;
	struct hello h;
	int r = party_init(&p, fd, TCP_ROLE_CONNECTED);

	if (r <= 0)
		return r == 0 ? -VD_REASON_IDENTITY : r;
	r = stranger_hello(near->line, &h, fds);
	if (r == 0)
		return 0;
	stranger_close(near->line);
	near->line = -1;
	if (r == 1)
		return party_result(&p, "collect",
				    near_take(&p, near, &h, fds, place, out));
	return r == -EPIPE ? 0 : connector_failure(r);
}
