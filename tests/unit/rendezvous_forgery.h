/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the rendezvous: an offer that can be spoiled before it is sent. */
#ifndef VD_TESTS_UNIT_RENDEZVOUS_FORGERY_H
#define VD_TESTS_UNIT_RENDEZVOUS_FORGERY_H

#include "rendezvous/ident.h"
#include "unit/rendezvous_pair.h"

/* An offer as an honest acceptor makes it, to be spoiled before it is sent. */
struct forgery {
	struct pair pair;
	int name;
	struct hello hello;
	struct meet_segment seg;
};

PAIR_FN void forgery_begin(struct forgery *f)
{
	struct name_tuple t;

	f->name = -1;
	pair_open(&f->pair);
	pair_talk(&f->pair, 100);
	CHECK_EQ(meet_publish(f->pair.client, &f->name), 1);
	hello_init(&f->hello);
	REQUIRE(tcp_netns_cookie(f->pair.server, &f->hello.netns) == 0);
	REQUIRE(tcp_cookie(f->pair.server, &f->hello.acceptor_cookie) == 0);
	REQUIRE(tcp_cookie(f->pair.client, &f->hello.connector_cookie) == 0);
	REQUIRE(name_of_connection(f->pair.server, TCP_ROLE_ACCEPTED, &t) == 0);
	f->hello.client = f->hello.seen_client = t.client;
	f->hello.server = f->hello.seen_server = t.server;
	REQUIRE(hello_counts(f->pair.server, TCP_ROLE_ACCEPTED, &f->hello.counts) == 0);
	REQUIRE(segment_create(false, 0, NULL, &f->seg) == 1);
}

PAIR_FN void forgery_send(struct forgery *f)
{
	int sock = pair_visit(&f->pair);

	REQUIRE(sock >= 0);
	CHECK_EQ(hello_send(sock, &f->hello, &f->seg, IDENT_AS_IT_IS), 0);
	close(sock);
}

/* The connector's verdict; the program goes on as without Viaduct. */
PAIR_FN void forgery_end(struct forgery *f, int verdict)
{
	struct meet_segment c;
	uint8_t *place = pair_place();
	int r = meet_collect(f->pair.client, &f->name, place, &c);

	CHECK_EQ(r, verdict);
	CHECK_EQ(f->name, -1);
	if (r == 1) {
		CHECK((uint8_t *)c.wire == place);
		meet_finish(&c);
		CHECK_EQ(place[0], 0);
	}
	/* Whatever came, it is private memory again. */
	memset(f->seg.wire, 's', 64);
	CHECK(place[0] != 's');
	place[0] = place[WIRE_TOTAL_BYTES - 1] = 'q';
	CHECK(*(uint8_t *)f->seg.wire == 's');
	munmap(place, WIRE_TOTAL_BYTES);
	meet_finish(&f->seg);
	pair_talk(&f->pair, 10);
	pair_close(&f->pair);
}

#endif
