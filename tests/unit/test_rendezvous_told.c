/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous where the kernel rewrites addresses, neither end may ask, and viaductd tells both. */
#include "unit/rendezvous_rewritten.h"

/* What it has been told: by the descriptor of who asks. */
static struct {
	int fd;
	enum meet_word word;
	struct meet_told told;
} words[4];

static enum meet_word say_word(int fd, const struct name_tuple *own, enum tcp_role role,
			       uint64_t netns, bool ask, struct meet_told *out)
{
	(void)own;
	(void)role;
	(void)netns;
	(void)ask;
	for (int i = 0; i < 4; i++)
		if (words[i].fd == fd) {
			*out = words[i].told;
			return words[i].word;
		}
	return MEET_UNTOLD;
}

/* fd is told that other, whose role is the other one, is its other end. */
static void tell(int i, int fd, enum meet_word word, int other, enum tcp_role role)
{
	words[i].fd = fd;
	words[i].word = word;
	REQUIRE(name_of_connection(other, role, &words[i].told.tuple) == 0);
	REQUIRE(tcp_cookie(other, &words[i].told.cookie) == 0);
	meet_tell = say_word;
}

static void check_told(int family, const char *text)
{
	struct meet_segment c, s;
	struct led l;
	int name = -1;

	led_open(&l, family, text, 0);
	permit(false);
	tell(0, l.client, MEET_ASKED, l.server, TCP_ROLE_ACCEPTED);
	tell(1, l.server, MEET_ASKED, l.client, TCP_ROLE_CONNECTED);
	CHECK_EQ(meet_publish(l.client, &name), 0);
	CHECK_EQ(meet_is_asked(l.client, TCP_ROLE_CONNECTED), true);
	words[0].word = MEET_TOLD;
	CHECK_EQ(meet_publish(l.client, &name), 1);
	CHECK_EQ(meet_offer(l.server, NULL, &s), 0);
	words[1].word = MEET_TOLD;
	CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
	/* Somebody has forgotten it meanwhile: it is asked again, and the visitor waits. */
	words[0].word = MEET_ASKED;
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 0);
	words[0].word = MEET_TOLD;
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), 1);
	CHECK_EQ(meet_attached(l.server, &s), 1);
	check_shared(&c, &s);
	permit(true);
	led_close(&l);
}

NETNS_TEST(neither_may_ask_and_both_are_told)
{
	enter_netns();
	need(shell(redirect));
	check_told(AF_INET, "127.0.0.1");
	check_told(AF_INET6, "::1");
	check_told(AF_INET6, "::ffff:127.0.0.1");
}

/* The addresses lead to a socket that is not the one that was told: another connection's, of later. */
NETNS_TEST(what_was_told_is_about_one_socket)
{
	struct meet_segment c, s;
	struct led l;
	int name = -1;

	enter_netns();
	need(shell(redirect));
	led_open(&l, AF_INET, "127.0.0.1", 0);
	permit(false);
	tell(0, l.client, MEET_TOLD, l.server, TCP_ROLE_ACCEPTED);
	tell(1, l.server, MEET_TOLD, l.client, TCP_ROLE_CONNECTED);
	words[0].told.cookie++;
	CHECK_EQ(meet_publish(l.client, &name), -VD_REASON_REMOTE_PEER);
	words[0].told.cookie--;
	CHECK_EQ(meet_publish(l.client, &name), 1);
	words[1].told.cookie++;
	CHECK_EQ(meet_offer(l.server, NULL, &s), -VD_REASON_IDENTITY);
	words[1].told.cookie--;
	CHECK_EQ(meet_offer(l.server, NULL, &s), 1);
	words[0].told.cookie++;
	CHECK_EQ(meet_collect(l.client, &name, NULL, &c), -VD_REASON_IDENTITY);
	CHECK_EQ(meet_attached(l.server, &s), 0);
	CHECK_EQ(meet_abandon(&s), 1);
	permit(true);
	led_close(&l);
}

static void check_crossed_told(int family, const char *text)
{
	struct crossed x;

	crossed_open(&x, family, text);
	permit(false);
	tell(0, x.redirected, MEET_TOLD, x.its_server, TCP_ROLE_ACCEPTED);
	tell(1, x.its_server, MEET_TOLD, x.redirected, TCP_ROLE_CONNECTED);
	tell(2, x.direct, MEET_TOLD, x.direct_server, TCP_ROLE_ACCEPTED);
	tell(3, x.direct_server, MEET_TOLD, x.direct, TCP_ROLE_CONNECTED);
	crossed_meet(&x);
	permit(true);
	crossed_close(&x);
}

NETNS_TEST(crossed_and_all_are_told)
{
	enter_netns();
	need(shell(redirect));
	check_crossed_told(AF_INET, "127.0.0.1");
	check_crossed_told(AF_INET6, "::1");
}
