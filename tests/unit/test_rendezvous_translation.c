/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous where the kernel rewrites addresses: who asks conntrack, and who is believed. */
#include <sys/prctl.h>

#include "rendezvous/ident.h"
#include "unit/rendezvous_rewritten.h"

/* Both ends may ask: each connection meets its own other end. */
static void check_crossed(int family, const char *text)
{
	struct crossed x;

	crossed_open(&x, family, text);
	crossed_meet(&x);
	crossed_close(&x);
}

/* Neither may: both connections stay on TCP. */
static void check_crossed_unasked(int family, const char *text)
{
	int name = -1, direct_name = -1;
	struct meet_segment s;
	struct crossed x;

	crossed_open(&x, family, text);
	permit(false);
	CHECK_EQ(meet_publish(x.direct, &direct_name), 1);
	CHECK_EQ(meet_publish(x.redirected, &name), 0);
	CHECK_EQ(meet_offer(x.its_server, NULL, &s), 0);
	CHECK_EQ(meet_offer(x.direct_server, NULL, &s), 0);
	CHECK_EQ(meet_missing_reason(x.its_server, TCP_ROLE_ACCEPTED), VD_REASON_NAT);
	CHECK_EQ(meet_missing_reason(x.direct_server, TCP_ROLE_ACCEPTED),
		 VD_REASON_PLAIN_PEER);
	permit(true);
	fds_close(direct_name);
	crossed_close(&x);
}

NETNS_TEST(redirect_crosses_two_connections)
{
	enter_netns();
	need(shell(redirect));
	check_crossed(AF_INET, "127.0.0.1");
}

NETNS_TEST(redirect_crosses_two_connections_ipv6)
{
	enter_netns();
	need(shell(redirect));
	check_crossed(AF_INET6, "::1");
}

NETNS_TEST(redirect_crosses_two_mapped_connections)
{
	enter_netns();
	need(shell(redirect));
	check_crossed(AF_INET6, "::ffff:127.0.0.1");
}

NETNS_TEST(crossed_and_nobody_may_ask)
{
	enter_netns();
	need(shell(redirect));
	check_crossed_unasked(AF_INET, "127.0.0.1");
	check_crossed_unasked(AF_INET6, "::1");
}

/* ---- one end may ask ---- */

static void check_led_by_connector(int family, const char *text)
{
	struct meet_segment c, s;
	struct led l;
	int name = -1;

	led_open(&l, family, text, 0);
	CHECK_EQ(meet_publish(l.client, &name), 1);
	permit(false);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
	permit(true);
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 1);
	permit(false);
	CHECK_EQ(meet_attached(l.server, &s), 1);
	permit(true);
	check_shared(&c, &s);
	led_close(&l);
}

static void check_led_by_acceptor(int family, const char *text)
{
	struct meet_segment c, s;
	struct led l;
	int name = -1;

	led_open(&l, family, text, 0);
	permit(false);
	CHECK_EQ(meet_publish(l.client, &name), 0);
	CHECK(!meet_may_publish(l.client));
	permit(true);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 0);
	permit(false);
	CHECK(meet_may_publish(l.client));
	CHECK_EQ(meet_publish(l.client, &name), 1);
	permit(true);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
	permit(false);
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 1);
	permit(true);
	CHECK_EQ(meet_attached(l.server, &s), 1);
	check_shared(&c, &s);
	led_close(&l);
	meet_give_back();
}

NETNS_TEST(connector_alone_may_ask)
{
	enter_netns();
	need(shell(redirect));
	check_led_by_connector(AF_INET, "127.0.0.1");
	check_led_by_connector(AF_INET6, "::1");
	check_led_by_connector(AF_INET6, "::ffff:127.0.0.1");
}

NETNS_TEST(acceptor_alone_may_ask)
{
	enter_netns();
	need(shell(redirect));
	check_led_by_acceptor(AF_INET, "127.0.0.1");
	check_led_by_acceptor(AF_INET6, "::1");
	check_led_by_acceptor(AF_INET6, "::ffff:127.0.0.1");
}

/* The hint of an acceptor that may ask brings together two ends that may not: they find each other,
 * by a guess, and go no further. */
NETNS_TEST(a_guess_is_not_enough)
{
	struct meet_segment c, s;
	struct led l;
	int name = -1;

	enter_netns();
	need(shell(redirect));
	led_open(&l, AF_INET, "127.0.0.1", 0);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 0);
	permit(false);
	CHECK_EQ(meet_publish(l.client, &name), 1);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 0);
	CHECK_EQ(meet_attached(l.server, &s), 0);
	CHECK_EQ(meet_abandon(&s), 1);
	permit(true);
	fds_close(name);
	led_close(&l);
}

/* One set of addresses after another: each connection has them for its time. */
NETNS_TEST(same_addresses_again)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	struct meet_segment c, s;
	struct led l;

	enter_netns();
	need(shell(redirect));
	for (int i = 0; i < 20; i++) {
		int name = -1;

		led_open(&l, AF_INET, "127.0.0.1", 33333);
		CHECK_EQ(meet_publish(l.client, &name), 1);
		CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
		CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 1);
		CHECK_EQ(meet_attached(l.server, &s), 1);
		check_shared(&c, &s);
		/* Every other by a reset, without a FIN that the kernel's entry would wait for. */
		if (i % 2)
			setsockopt(l.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		led_close(&l);
	}
}

/* ---- the client's address is rewritten as well ---- */

/* Of two clients of port 80 the first is given the second's address, and has another server. */
static const char *const disguise =
	"nft 'add table ip t; add chain ip t o { type nat hook output priority -100; };"
	" add chain ip t p { type nat hook postrouting priority 100; };"
	" add rule ip t o tcp sport 30001 tcp dport 80 redirect to :8080;"
	" add rule ip t o tcp sport 30002 tcp dport 80 redirect to :8081;"
	" add rule ip t p tcp sport 30001 tcp dport 8080 snat to 127.0.0.1:30002' "
	"2>/dev/null";

struct disguised {
	struct led first, second;
};

static void disguised_open(struct disguised *d)
{
	struct name_tuple dialled, accepted;

	led_open(&d->first, AF_INET, "127.0.0.1", 30001);
	d->second.listener = pair_listen(AF_INET, "127.0.0.1", 8081);
	d->second.announced = meet_announce(d->second.listener);
	d->second.client = pair_connect(AF_INET, "127.0.0.1", 80, 30002);
	d->second.server = accept4(d->second.listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(d->second.server >= 0);
	REQUIRE(name_of_connection(d->second.client, TCP_ROLE_CONNECTED, &dialled) == 0);
	REQUIRE(name_of_connection(d->first.server, TCP_ROLE_ACCEPTED, &accepted) == 0);
	CHECK(name_end_equal(&dialled.client, &accepted.client));
}

static void meet_all(const struct led *l, int name)
{
	struct meet_segment c, s;

	CHECK_EQ(meet_offer(l->server, NULL, &s), 1);
	CHECK_EQ(meet_collect(l->client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(l->server, &s), 1);
	check_shared(&c, &s);
}

NETNS_TEST(source_rewritten_too)
{
	struct disguised d;
	int first = -1, second = -1;
	struct meet_segment s;

	enter_netns();
	need(shell(disguise));
	disguised_open(&d);
	CHECK_EQ(meet_publish(d.second.client, &second), 1);
	CHECK_EQ(meet_offer(d.first.server, NULL, &s), 0);
	CHECK_EQ(meet_publish(d.first.client, &first), 1);
	meet_all(&d.first, first);
	meet_all(&d.second, second);
	led_close(&d.first);
	led_close(&d.second);
}

/* The acceptor may not ask, and its guess leads it to the second client, which may. No byte has gone
 * over either connection: all counts are equal. */
NETNS_TEST(wrong_guess_with_equal_counts)
{
	struct disguised d;
	struct meet_segment c, s;
	int second = -1;

	enter_netns();
	need(shell(disguise));
	disguised_open(&d);
	CHECK_EQ(meet_publish(d.second.client, &second), 1);
	permit(false);
	CHECK_EQ(meet_offer(d.first.server, NULL, &s), 1);
	permit(true);
	CHECK_EQ(meet_collect(d.second.client, &second, NULL, &c), -VD_REASON_IDENTITY);
	CHECK_EQ(meet_attached(d.first.server, &s), 0);
	CHECK_EQ(meet_abandon(&s), 1);
	led_close(&d.first);
	led_close(&d.second);
}

/* ---- who is believed ---- */

struct stranger {
	struct led led;
	int up[2], down[2];
};

static void ask_as_user(void *arg)
{
	struct stranger *a = arg;
	struct meet_segment s;
	char byte;

	close(a->down[1]);
	REQUIRE(setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
	/* The client is root's: root of our namespace is believed. */
	CHECK_EQ(meet_offer(a->led.server, NULL, &s), 1);
	CHECK(s.far_bell >= 0);
	close(a->up[1]);
	/* Nobody believes who has gone. */
	CHECK_EQ(read(a->down[0], &byte, 1), 0);
	meet_finish(&s);
}

NETNS_TEST(root_is_believed)
{
	struct meet_segment c;
	struct stranger a;
	int name = -1;
	pid_t pid;
	char byte;

	enter_netns();
	need(shell(redirect));
	REQUIRE(pipe(a.up) == 0 && pipe(a.down) == 0);
	led_open(&a.led, AF_INET, "127.0.0.1", 0);
	REQUIRE(fchown(a.led.server, 4321, 4321) == 0);
	CHECK_EQ(meet_publish(a.led.client, &name), 1);
	pid = child_start(ask_as_user, &a);
	close(a.up[1]);
	CHECK_EQ(read(a.up[0], &byte, 1), 0);
	CHECK_EQ(meet_collect(a.led.client, &name, NULL, &c), 1);
	close(a.down[1]);
	CHECK_EQ(child_wait(pid), 0);
	meet_finish(&c);
	close(a.up[0]);
	close(a.down[0]);
	led_close(&a.led);
}

static void publish_as_user(void *arg)
{
	struct stranger *x = arg;
	int name = -1;
	char byte;

	REQUIRE(setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
	CHECK_EQ(meet_publish(x->led.client, &name), 1); /* by the parent's hint */
	REQUIRE(write(x->up[1], "p", 1) == 1);
	REQUIRE(read(x->down[0], &byte, 1) == 1);
	fds_close(name);
}

/* An acceptor that may not ask does not take another user's word. */
NETNS_TEST(another_user_is_not_believed)
{
	struct meet_segment s;
	struct stranger x;
	char byte;
	pid_t pid;

	enter_netns();
	need(shell(redirect));
	REQUIRE(pipe2(x.up, O_CLOEXEC) == 0 && pipe2(x.down, O_CLOEXEC) == 0);
	led_open(&x.led, AF_INET, "127.0.0.1", 0);
	CHECK_EQ(meet_offer(x.led.server, NULL, &s), 0);
	REQUIRE(fchown(x.led.client, 4321, 4321) == 0);
	pid = child_start(publish_as_user, &x);
	REQUIRE(read(x.up[0], &byte, 1) == 1);
	permit(false);
	CHECK_EQ(meet_offer(x.led.server, NULL, &s), -VD_REASON_NAT);
	permit(true);
	/* One that may ask knows who it is. */
	CHECK_EQ(meet_offer(x.led.server, NULL, &s), 1);
	meet_finish(&s);
	REQUIRE(write(x.down[1], "q", 1) == 1);
	CHECK_EQ(child_wait(pid), 0);
	led_close(&x.led);
}

static void offer_as_user(void *arg)
{
	struct stranger *x = arg;
	struct meet_segment s;
	char byte;

	/* It keeps the right to ask, but is not root. */
	REQUIRE(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
	REQUIRE(setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
	permit(true);
	CHECK_EQ(meet_offer(x->led.server, NULL, &s), 0);
	REQUIRE(write(x->up[1], "h", 1) == 1);
	REQUIRE(read(x->down[0], &byte, 1) == 1);
	CHECK_EQ(meet_offer(x->led.server, NULL, &s), 1);
	REQUIRE(write(x->up[1], "o", 1) == 1);
	REQUIRE(read(x->down[0], &byte, 1) == 1);
	CHECK_EQ(meet_attached(x->led.server, &s), 0);
	meet_finish(&s);
}

/* Nor does a connector. */
NETNS_TEST(another_acceptor_is_not_believed)
{
	struct meet_segment c;
	struct stranger x;
	int name = -1;
	char byte;
	pid_t pid;

	enter_netns();
	need(shell(redirect));
	REQUIRE(pipe2(x.up, O_CLOEXEC) == 0 && pipe2(x.down, O_CLOEXEC) == 0);
	led_open(&x.led, AF_INET, "127.0.0.1", 0);
	REQUIRE(fchown(x.led.server, 4321, 4321) == 0);
	pid = child_start(offer_as_user, &x);
	REQUIRE(read(x.up[0], &byte, 1) == 1);
	permit(false);
	CHECK_EQ(meet_publish(x.led.client, &name), 1);
	REQUIRE(write(x.down[1], "v", 1) == 1);
	REQUIRE(read(x.up[0], &byte, 1) == 1);
	CHECK_EQ(meet_collect(x.led.client, &name, NULL, &c), 0);
	permit(true);
	REQUIRE(write(x.down[1], "q", 1) == 1);
	CHECK_EQ(child_wait(pid), 0);
	fds_close(name);
	led_close(&x.led);
}

static void believe_as_user(void *arg)
{
	REQUIRE(setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
	CHECK_EQ(ident_is_believed(*(int *)arg), 1);
}

static void doubt_as_user(void *arg)
{
	REQUIRE(setresgid(4321, 4321, 4321) == 0 && setresuid(4321, 4321, 4321) == 0);
	CHECK_EQ(ident_is_believed(*(int *)arg), 0);
}

/* Who cannot rewrite addresses has not been told of it: root in a container may be no more than that. */
NETNS_TEST(root_without_the_right_is_not_believed)
{
	int ends[2];

	enter_netns();
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK_EQ(child_wait(child_start(believe_as_user, &ends[0])), 0);
	permit(false);
	CHECK_EQ(child_wait(child_start(doubt_as_user, &ends[0])), 0);
	permit(true);
	close(ends[0]);
	close(ends[1]);
}
