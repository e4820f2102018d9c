/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the rendezvous where the kernel rewrites addresses: connections that are led elsewhere. */
#ifndef VD_TESTS_UNIT_RENDEZVOUS_REWRITTEN_H
#define VD_TESTS_UNIT_RENDEZVOUS_REWRITTEN_H

#include "unit/rendezvous_netns.h"

/*
 * One connection dials port 80 and is redirected to 8080; another dials 8080 itself, from
 * the same port. The kernel moves the second to another source port, so that the accepted
 * end of the first is the exact reverse of the client end of the second.
 */
struct crossed {
	int listener, announced;
	int redirected, its_server; /* the first */
	int direct, direct_server;  /* the second */
};

PAIR_FN void crossed_open(struct crossed *x, int family, const char *text)
{
	struct name_tuple dialled, accepted;
	uint16_t port;

	x->listener = pair_listen(family, text, 8080);
	x->announced = meet_announce(x->listener);
	x->redirected = pair_connect(family, text, 80, 0);
	x->its_server = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC);
	port = pair_local_port(x->redirected);
	x->direct = pair_connect(family, text, 8080, port);
	x->direct_server = accept4(x->listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(x->its_server >= 0 && x->direct_server >= 0);
	/* The trap is set as described, and everything but the dialled address agrees. */
	REQUIRE(name_of_connection(x->direct, TCP_ROLE_CONNECTED, &dialled) == 0);
	REQUIRE(name_of_connection(x->its_server, TCP_ROLE_ACCEPTED, &accepted) == 0);
	CHECK(name_end_equal(&dialled.client, &accepted.client));
	CHECK(name_end_equal(&dialled.server, &accepted.server));
}

PAIR_FN void crossed_close(struct crossed *x)
{
	close(x->redirected);
	close(x->its_server);
	close(x->direct);
	close(x->direct_server);
	close(x->listener);
	meet_unannounce(x->announced);
}

/* The two ends share memory: what one stores is the other's. */
PAIR_FN void check_shared(struct meet_segment *c, struct meet_segment *s)
{
	const size_t at = wire_area_offset(WIRE_FROM_CONNECTOR, 0);
	static uint8_t next;

	((uint8_t *)c->wire)[at] = ++next;
	CHECK_EQ(((uint8_t *)s->wire)[at], next);
	meet_finish(c);
	meet_finish(s);
}

/* Each of the two connections meets its own other end. */
PAIR_FN void crossed_meet(struct crossed *x)
{
	struct meet_segment c, s, direct_c, direct_s;
	int name = -1, direct_name = -1;

	CHECK_EQ(meet_publish(x->direct, &direct_name), 1);
	/* The wrong name is there, and the right one not yet. */
	CHECK_EQ(meet_offer(x->its_server, NULL, &s), 0);
	CHECK_EQ(meet_publish(x->redirected, &name), 1);
	CHECK_EQ(meet_offer(x->its_server, NULL, &s), 1);
	CHECK_EQ(meet_offer(x->direct_server, NULL, &direct_s), 1);
	CHECK_EQ(meet_collect(x->direct, &direct_name, NULL, &direct_c), 1);
	CHECK_EQ(meet_collect(x->redirected, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(x->its_server, &s), 1);
	CHECK_EQ(meet_attached(x->direct_server, &direct_s), 1);
	check_shared(&c, &s);
	check_shared(&direct_c, &direct_s);
}

struct led {
	int listener, announced, client, server;
};

PAIR_FN void led_open(struct led *l, int family, const char *text, int own_port)
{
	l->listener = pair_listen(family, text, 8080);
	l->announced = meet_announce(l->listener);
	l->client = pair_connect(family, text, 80, own_port);
	l->server = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(l->server >= 0);
}

PAIR_FN void led_close(struct led *l)
{
	close(l->client);
	close(l->server);
	close(l->listener);
	meet_unannounce(l->announced);
}

#endif
