/* SPDX-License-Identifier: Apache-2.0 */
/* The doorbells between two users: who hears whom, and that nobody waits. */
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/epoll.h>

#include "rendezvous/farbell.h"
#include "unit/child.h"
#include "unit/rendezvous_forgery.h"
#include "unit/test.h"

enum { SOMEBODY = 12345, RINGS = 100 };

static uint64_t here(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t netns = 0;

	REQUIRE(fd >= 0 && tcp_netns_cookie(fd, &netns) == 0);
	close(fd);
	return netns;
}

static void bells_open(int bells[2])
{
	for (int i = 0; i < 2; i++) {
		bells[i] = farbell_create(here());
		REQUIRE(bells[i] >= 0 && fds_is_ours(bells[i]));
		CHECK(fcntl(bells[i], F_GETFD) & FD_CLOEXEC);
	}
	for (int i = 0; i < 2; i++)
		REQUIRE(farbell_connect(bells[i], farbell_port(bells[1 - i])) == 0);
}

static void bells_close(int bells[2])
{
	fds_close(bells[0]);
	fds_close(bells[1]);
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* As viaductd makes them for two network namespaces. */
static void near_bells_open(int bells[2])
{
	int fds[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds) == 0);
	for (int i = 0; i < 2; i++) {
		bells[i] = fds_adopt(fds[i]);
		REQUIRE(bells[i] >= 0);
	}
}

MEET_TEST(a_pair_rings_and_tells_of_the_end)
{
	int bells[2];

	near_bells_open(bells);
	for (int i = 0; i < 2; i++) {
		CHECK(farbell_is_pair(bells[i]));
		CHECK_EQ(farbell_port(bells[i]), 0);
		CHECK_EQ(farbell_answer(bells[1 - i]), 0);
		farbell_ring(bells[i]);
		CHECK(is_readable(bells[1 - i]) && !is_readable(bells[i]));
		CHECK_EQ(farbell_answer(bells[1 - i]), 1);
		CHECK(!is_readable(bells[1 - i]));
		CHECK(!farbell_is_over(bells[i]));
		CHECK_EQ(farbell_answer(bells[1 - i]), 1);
	}
	/* Nobody listens any more: a ring waits for nothing, and says so in the end. */
	for (int i = 0; i < RINGS * 100; i++)
		farbell_ring(bells[0]);
	CHECK_EQ(farbell_answer(bells[1]), FARBELL_MOST);
	fds_close(bells[1]);
	CHECK(farbell_is_over(bells[0]));
	CHECK(farbell_is_over(bells[0]));
	CHECK(!is_readable(bells[0]));
	fds_close(bells[0]);
}

MEET_TEST(a_netlink_bell_is_no_pair)
{
	int bells[2];

	bells_open(bells);
	CHECK(!farbell_is_pair(bells[0]));
	fds_close(bells[1]);
	CHECK(!farbell_is_over(bells[0]));
	fds_close(bells[0]);
}

MEET_TEST(each_rings_the_other)
{
	int bells[2];

	bells_open(bells);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(farbell_answer(bells[1 - i]), 0);
		farbell_ring(bells[i]);
		CHECK(is_readable(bells[1 - i]) && !is_readable(bells[i]));
		CHECK_EQ(farbell_answer(bells[1 - i]), 1);
		CHECK(!is_readable(bells[1 - i]));
	}
	bells_close(bells);
}

/* Ports below are what programs and the kernel choose by the number of a process. */
MEET_TEST(ports_keep_out_of_the_way)
{
	int bells[2];

	bells_open(bells);
	CHECK(farbell_port(bells[0]) > INT32_MAX && farbell_port(bells[1]) > INT32_MAX);
	CHECK_EQ(farbell_connect(bells[0], 0), -EPROTO);
	bells_close(bells);
}

/* Whatever the flags: a descriptor that was made blocking is no exception. */
MEET_TEST(a_full_bell_blocks_nobody)
{
	int bells[2], n;

	bells_open(bells);
	for (int i = 0; i < 2; i++)
		REQUIRE(fcntl(bells[i], F_SETFL, O_RDWR) == 0);
	for (int i = 0; i < RINGS; i++)
		farbell_ring(bells[0]);
	n = farbell_answer(bells[1]);
	CHECK(n > 0 && n < FARBELL_MOST);
	CHECK_EQ(farbell_answer(bells[1]), 0);
	farbell_ring(bells[0]);
	CHECK_EQ(farbell_answer(bells[1]), 1);
	bells_close(bells);
}

/* Once it was full and has been emptied, a ring is an edge again. */
MEET_TEST(an_answered_bell_makes_an_edge)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int bells[2], ep = epoll_create1(EPOLL_CLOEXEC);

	bells_open(bells);
	REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, bells[1], &e) == 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < RINGS; i++)
			farbell_ring(bells[0]);
		CHECK_EQ(epoll_wait(ep, &e, 1, 0), 1);
		CHECK_EQ(epoll_wait(ep, &e, 1, 0), 0);
		farbell_answer(bells[1]);
	}
	close(ep);
	bells_close(bells);
}

MEET_TEST(a_stranger_is_not_heard)
{
	int bells[2], stranger = farbell_create(here());

	bells_open(bells);
	REQUIRE(farbell_connect(stranger, farbell_port(bells[0])) == 0);
	farbell_ring(stranger);
	CHECK_EQ(farbell_answer(bells[0]), 0);
	fds_close(stranger);
	bells_close(bells);
}

MEET_TEST(the_other_end_is_gone)
{
	int bells[2];

	bells_open(bells);
	farbell_ring(bells[1]);
	fds_close(bells[1]);
	for (int i = 0; i < RINGS; i++)
		farbell_ring(bells[0]);
	CHECK_EQ(farbell_answer(bells[0]), 1);
	CHECK(!is_readable(bells[0])); /* nor is it said for ever */
	fds_close(bells[0]);
}

MEET_TEST(another_network_namespace)
{
	CHECK_EQ(farbell_create(here() + 1), -ENONET);
}

/* ---- the rendezvous of a process that is two users to itself ---- */

static void become_two(void)
{
	REQUIRE(setreuid((uid_t)-1, SOMEBODY) == 0);
}

#define AS_TWO_USERS(body)                                                               \
	do {                                                                             \
		if (geteuid() != 0)                                                      \
			SKIP("needs root");                                              \
		CHILD(body, NULL);                                                       \
	} while (0)

static void meet_far(void *arg)
{
	struct meet_segment c, s;
	struct pair p;

	(void)arg;
	become_two();
	pair_open(&p);
	pair_talk(&p, 100);
	pair_meet(&p, &c, &s);
	CHECK(c.peer_bell == -1 && s.peer_bell == -1);
	CHECK(c.bell >= 0 && s.bell >= 0 && c.bell != s.bell);
	farbell_ring(c.far_bell);
	CHECK_EQ(farbell_answer(s.far_bell), 1);
	farbell_ring(s.far_bell);
	CHECK_EQ(farbell_answer(c.far_bell), 1);
	meet_finish(&c);
	meet_finish(&s);
	CHECK(c.far_bell == -1 && s.far_bell == -1);
	pair_close(&p);
}

MEET_TEST(two_users_share_no_bell)
{
	AS_TWO_USERS(meet_far);
}

/* The acceptor of another user wants to share eventfds: it could stop us for ever. */
static void offer_near(void *arg)
{
	struct forgery f;

	(void)arg;
	become_two();
	forgery_begin(&f);
	forgery_send(&f);
	forgery_end(&f, -VD_REASON_UID);
}

MEET_TEST(shared_bells_of_another_user)
{
	AS_TWO_USERS(offer_near);
}

/* ---- lies about them ---- */

static void forge_far(struct forgery *f)
{
	forgery_begin(f);
	meet_finish(&f->seg);
	REQUIRE(segment_create(true, f->hello.netns, NULL, &f->seg) == 1);
	f->hello.acceptor_port = farbell_port(f->seg.far_bell);
}

MEET_TEST(a_far_bell_is_never_refused)
{
	struct forgery f;

	forge_far(&f);
	forgery_send(&f);
	forgery_end(&f, 1);
}

MEET_TEST(far_bell_of_nobody)
{
	struct meet_segment c;
	struct forgery f;

	forge_far(&f);
	f.hello.acceptor_port = UINT32_MAX;
	forgery_send(&f);
	REQUIRE(meet_collect(f.pair.client, &f.name, NULL, &c) == 1);
	for (int i = 0; i < RINGS; i++)
		farbell_ring(c.far_bell);
	CHECK_EQ(farbell_answer(f.seg.far_bell), 0);
	meet_finish(&c);
	meet_finish(&f.seg);
	pair_close(&f.pair);
}

/* A doorbell in the place of the memory, the one descriptor that comes. */
MEET_TEST(far_bell_without_memory)
{
	struct forgery f;
	int kept;

	forge_far(&f);
	kept = f.seg.memfd;
	f.seg.memfd = f.seg.bell;
	forgery_send(&f);
	f.seg.memfd = kept;
	forgery_end(&f, -VD_REASON_HELLO);
}

/* ---- the acceptor ---- */

static void check_named(uint32_t port, int attached)
{
	struct meet_segment c;
	struct forgery f;

	forge_far(&f);
	forgery_send(&f);
	REQUIRE(meet_collect(f.pair.client, &f.name, NULL, &c) == 1);
	__atomic_store_n(&c.wire->connector_port, port, __ATOMIC_RELAXED);
	CHECK_EQ(meet_attached(f.pair.server, &f.seg), attached);
	farbell_ring(f.seg.far_bell);
	meet_finish(&c);
	meet_finish(&f.seg);
	pair_talk(&f.pair, 10);
	pair_close(&f.pair);
}

MEET_TEST(connector_without_a_bell)
{
	check_named(0, -VD_REASON_CORRUPT);
}

MEET_TEST(connector_with_the_bell_of_nobody)
{
	check_named(UINT32_MAX, 1);
}
