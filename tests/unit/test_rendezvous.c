/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous between ends that mean well. */
#include <pthread.h>
#include <sys/eventfd.h>

#include "rendezvous/name.h"
#include "unit/rendezvous_pair.h"
#include "unit/test.h"

static void check_bell(int from, int to)
{
	uint64_t one = 1, got = 0;

	CHECK_EQ(read(to, &got, sizeof(got)), -1);
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(write(from, &one, sizeof(one)), sizeof(one));
	CHECK_EQ(read(to, &got, sizeof(got)), sizeof(got));
	CHECK_EQ(got, 1);
}

/* Both ends see the same memory, to its last byte, and ring each other's bell. */
static void check_joined(struct meet_segment *c, struct meet_segment *s)
{
	uint8_t *at_c = (uint8_t *)c->wire, *at_s = (uint8_t *)s->wire;

	CHECK(c->wire != s->wire);
	at_c[WIRE_TOTAL_BYTES - 1] = 0xa5;
	CHECK_EQ(at_s[WIRE_TOTAL_BYTES - 1], 0xa5);
	atomic_store(&s->wire->dir[WIRE_FROM_ACCEPTOR].produced, 7);
	CHECK_EQ(atomic_load(&c->wire->dir[WIRE_FROM_ACCEPTOR].produced), 7);
	check_bell(c->peer_bell, s->bell);
	check_bell(s->peer_bell, c->bell);
	CHECK(fds_is_ours(c->memfd) && fds_is_ours(c->bell) && fds_is_ours(c->peer_bell));
	CHECK(fds_is_ours(s->memfd) && fds_is_ours(s->bell) && fds_is_ours(s->peer_bell));
}

static void check_meeting(int server_family, const char *server_text, int client_family,
			  const char *client_text)
{
	struct meet_segment c, s;
	struct pair p;

	pair_open_as(&p, server_family, server_text, client_family, client_text);
	pair_talk(&p, 100);
	pair_meet(&p, &c, &s);
	check_joined(&c, &s);
	meet_finish(&c);
	meet_finish(&s);
	CHECK(!c.wire && c.bell == -1);
	pair_close(&p);
}

MEET_TEST(ipv4)
{
	check_meeting(AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
}

/* At addresses that the caller keeps: what was there is gone, and they stay mapped. */
MEET_TEST(at_places_of_the_callers)
{
	uint8_t *at_c = pair_place(), *at_s = pair_place();
	struct meet_segment c, s;
	struct pair p;
	int name = -1;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(meet_offer(p.server, at_s, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, at_c, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	CHECK((uint8_t *)c.wire == at_c && (uint8_t *)s.wire == at_s);
	CHECK_EQ(at_c[WIRE_TOTAL_BYTES - 1], 0);
	check_joined(&c, &s);
	meet_finish(&c);
	CHECK(!c.wire && at_c[0] == 0 && at_c[WIRE_TOTAL_BYTES - 1] == 0);
	at_c[WIRE_TOTAL_BYTES - 1] = 'c';
	CHECK_EQ(at_s[WIRE_TOTAL_BYTES - 1], 0xa5);
	meet_finish(&s);
	CHECK_EQ(at_s[WIRE_TOTAL_BYTES - 1], 0);
	munmap(at_c, WIRE_TOTAL_BYTES);
	munmap(at_s, WIRE_TOTAL_BYTES);
	pair_close(&p);
}

MEET_TEST(ipv6)
{
	check_meeting(AF_INET6, "::1", AF_INET6, "::1");
}

MEET_TEST(ipv4_client_of_an_ipv6_listener)
{
	check_meeting(AF_INET6, NULL, AF_INET, "127.0.0.1");
}

MEET_TEST(ipv6_client_of_an_ipv4_listener)
{
	check_meeting(AF_INET, "127.0.0.1", AF_INET6, "::ffff:127.0.0.1");
}

MEET_TEST(mapped_at_both_ends)
{
	check_meeting(AF_INET6, NULL, AF_INET6, "::ffff:127.0.0.1");
}

TEST(both_ends_write_one_name)
{
	struct name_tuple at_client, at_server;
	struct sockaddr_un a, b;
	struct pair p;
	char text[NAME_TEXT_BYTES], want[NAME_TEXT_BYTES];

	pair_open_as(&p, AF_INET6, NULL, AF_INET, "127.0.0.1");
	CHECK_EQ(name_of_connection(p.client, TCP_ROLE_CONNECTED, &at_client), 0);
	CHECK_EQ(name_of_connection(p.server, TCP_ROLE_ACCEPTED, &at_server), 0);
	CHECK_EQ(name_address(&at_client, &a), name_address(&at_server, &b));
	CHECK_EQ(memcmp(&a, &b, sizeof(a)), 0);
	snprintf(want, sizeof(want), "127.0.0.1:%u -> 127.0.0.1:%u",
		 pair_local_port(p.client), p.port);
	CHECK_STR(name_text(&at_server, text), want);
	pair_close(&p);
}

MEET_TEST(counts_hold_while_bytes_are_under_way)
{
	struct meet_segment c, s;
	struct pair p;
	char buf[300];
	int name = -1;

	memset(buf, 'x', sizeof(buf));
	pair_open(&p);
	pair_talk(&p, 64);
	CHECK_EQ(write(p.client, buf, 300), 300);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(write(p.server, buf, 200), 200);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(write(p.client, buf, 100), 100);
	CHECK_EQ(write(p.server, buf, 100), 100);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(write(p.server, buf, 10), 10);
	shutdown(p.client, SHUT_WR);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	CHECK_EQ(c.wire->connector_counts.written, 464);
	CHECK_EQ(c.wire->connector_counts.received, 332);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

MEET_TEST(plain_peer)
{
	struct meet_segment s;
	struct pair p;
	int name = -1;

	pair_open(&p);
	meet_unannounce(p.announced);
	p.announced = -1;
	CHECK_EQ(meet_publish(p.client, &name), -VD_REASON_PLAIN_PEER);
	CHECK_EQ(name, -1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 0);
	pair_close(&p);
}

MEET_TEST(not_connected_yet)
{
	struct meet_segment s;
	int name = -1, fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK_EQ(meet_publish(fd, &name), 0);
	CHECK_EQ(meet_offer(fd, NULL, &s), 0);
	CHECK_EQ(meet_announce(fd), -1);
	close(fd);
}

MEET_TEST(published_before_the_accept)
{
	struct meet_segment c, s;
	struct pair p;
	int name = -1;

	p.listener = pair_listen(AF_INET, "127.0.0.1", 0);
	p.announced = meet_announce(p.listener);
	p.port = pair_local_port(p.listener);
	p.client = pair_connect(AF_INET, "127.0.0.1", p.port, 0);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	p.server = accept4(p.listener, NULL, NULL, SOCK_CLOEXEC);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

MEET_TEST(self_connect)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), name = -1;
	union pair_addr a;
	socklen_t len = pair_address(&a, AF_INET, "127.0.0.1", 0);

	REQUIRE(bind(fd, &a.any, len) == 0);
	pair_address(&a, AF_INET, "127.0.0.1", pair_local_port(fd));
	REQUIRE(connect(fd, &a.any, len) == 0);
	CHECK_EQ(meet_publish(fd, &name), -VD_REASON_SELF);
	close(fd);
}

MEET_TEST(one_announcement_per_port)
{
	struct pair p;
	int again;

	pair_open(&p);
	CHECK_EQ(meet_announce(p.listener), -1);
	meet_unannounce(p.announced);
	again = meet_announce(p.listener);
	CHECK(again >= 0);
	p.announced = again;
	pair_close(&p);
}

MEET_TEST(nobody_can_write_to_an_announcement)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un name;
	struct pair p;
	socklen_t len;

	pair_open(&p);
	len = name_port_address(htons(p.port), &name);
	CHECK_EQ(sendto(fd, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&name, len), -1);
	CHECK_EQ(errno, EPIPE);
	close(fd);
	pair_close(&p);
}

MEET_TEST(one_name_per_connection)
{
	struct pair p;
	int name = -1, second = -1;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(meet_publish(p.client, &second), -VD_REASON_IDENTITY);
	CHECK_EQ(second, -1);
	fds_close(name);
	pair_close(&p);
}

MEET_TEST(abandoned_before_it_was_taken)
{
	struct meet_segment c, s;
	struct pair p;
	int name = -1;

	pair_open(&p);
	CHECK_EQ(meet_publish(p.client, &name), 1);
	CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
	CHECK_EQ(meet_abandon(&s), 1);
	CHECK(!s.wire);
	CHECK_EQ(meet_collect(p.client, &name, NULL, &c), -VD_REASON_PEER_ASKED);
	CHECK_EQ(name, -1);
	pair_close(&p);
}

MEET_TEST(taken_before_it_was_abandoned)
{
	struct meet_segment c, s;
	struct pair p;

	pair_open(&p);
	pair_meet(&p, &c, &s);
	CHECK_EQ(meet_abandon(&s), 0);
	CHECK_EQ(meet_attached(p.server, &s), 1);
	meet_finish(&c);
	meet_finish(&s);
	pair_close(&p);
}

struct collector {
	const struct pair *p;
	int name, result;
	struct meet_segment seg;
	pthread_barrier_t *start;
};

static void *collect_once(void *arg)
{
	struct collector *c = arg;

	pthread_barrier_wait(c->start);
	c->result = meet_collect(c->p->client, &c->name, NULL, &c->seg);
	return NULL;
}

MEET_TEST(abandon_races_with_collect)
{
	int taken = 0;

	for (int i = 0; i < 200; i++) {
		pthread_barrier_t start;
		struct collector c = {.name = -1, .start = &start};
		struct meet_segment s;
		struct pair p;
		pthread_t thread;
		int abandoned;

		pair_open(&p);
		c.p = &p;
		pthread_barrier_init(&start, NULL, 2);
		CHECK_EQ(meet_publish(p.client, &c.name), 1);
		CHECK_EQ(meet_offer(p.server, NULL, &s), 1);
		REQUIRE(pthread_create(&thread, NULL, collect_once, &c) == 0);
		pthread_barrier_wait(&start);
		abandoned = meet_abandon(&s);
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&start);
		/* Exactly one of them has won. */
		CHECK_EQ(c.result, abandoned ? -VD_REASON_PEER_ASKED : 1);
		if (!abandoned) {
			taken++;
			CHECK_EQ(meet_attached(p.server, &s), 1);
			meet_finish(&s);
			meet_finish(&c.seg);
		}
		pair_close(&p);
	}
	printf("     %d of 200 taken\n", taken);
}

static void *collect_until_done(void *arg)
{
	struct collector *c = arg;

	do
		c->result = meet_collect(c->p->client, &c->name, NULL, &c->seg);
	while (c->result == 0);
	return NULL;
}

/* A connector that looks all the time meets the acceptor between its connect and its
 * hello: the meeting must come about nevertheless. */
MEET_TEST(impatient_connector)
{
	for (int i = 0; i < 200; i++) {
		struct collector c = {.name = -1};
		struct meet_segment s;
		struct pair p;
		pthread_t thread;
		int offered;

		pair_open(&p);
		c.p = &p;
		CHECK_EQ(meet_publish(p.client, &c.name), 1);
		REQUIRE(pthread_create(&thread, NULL, collect_until_done, &c) == 0);
		do
			offered = meet_offer(p.server, NULL, &s);
		while (offered == 0);
		CHECK_EQ(offered, 1);
		pthread_join(thread, NULL);
		CHECK_EQ(c.result, 1);
		CHECK_EQ(meet_attached(p.server, &s), 1);
		meet_finish(&s);
		meet_finish(&c.seg);
		pair_close(&p);
	}
}

static void *meet_often(void *arg)
{
	(void)arg;
	for (int i = 0; i < 50; i++) {
		struct meet_segment c, s;
		struct pair p;

		pair_open(&p);
		pair_meet(&p, &c, &s);
		check_joined(&c, &s);
		meet_finish(&c);
		meet_finish(&s);
		pair_close(&p);
	}
	return NULL;
}

MEET_TEST(many_threads_meet_at_once)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		REQUIRE(pthread_create(&threads[i], NULL, meet_often, NULL) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void meet_in_child(void *arg)
{
	struct leftovers before, after;

	(void)arg;
	before = leftovers_settle();
	meet_often(NULL);
	after = leftovers_settle();
	CHECK_EQ(after.fds, before.fds);
	CHECK_EQ(after.maps, before.maps);
}

/* The kept sockets are the parent's too: parent and child use theirs at the same time. */
MEET_TEST(forked_child_meets)
{
	pid_t pid = child_start(meet_in_child, NULL);

	meet_often(NULL);
	CHECK_EQ(child_wait(pid), 0);
}
