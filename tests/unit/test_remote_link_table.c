/* SPDX-License-Identifier: Apache-2.0 */
/* One process with links to many: a completion queue for all, and a death that is one's own. */
#include <errno.h>
#include <poll.h>

#include "rdma/fabric.h"
#include "rdma/link.h"
#include "support/fake.h"
#include "unit/test.h"

enum { PEERS = 5, WORDS = 120, POLLS = 100000, SEEDS = 60 };

struct peer {
	struct link_context *context;
	struct link *link, *hub_link; /* its end, and the hub's */
	uint8_t window[64], hub_window[64];
	uint32_t said, heard; /* by the hub */
	bool failed;	      /* as the hub knows */
};

struct hub {
	struct fake_world *world;
	struct link_context *context;
	struct peer peers[PEERS];
};

static void join(struct hub *h, struct peer *p, struct link_limits limits)
{
	uint8_t hello[LINK_HELLO_BYTES];
	const char *why;

	limits.links = 1;
	CHECK_EQ(fake_open(h->world, &limits, &p->context), 0);
	CHECK_EQ(link_create(p->context, p->window, sizeof(p->window), &p->link), 0);
	CHECK_EQ(link_create(h->context, p->hub_window, 64, &p->hub_link), 0);
	CHECK_EQ(link_hello(p->link, hello), 0);
	CHECK_EQ(link_connect(p->hub_link, hello, sizeof(hello), &why), 0);
	CHECK_EQ(link_hello(p->hub_link, hello), 0);
	CHECK_EQ(link_connect(p->link, hello, sizeof(hello), &why), 0);
}

static struct peer *peer_of(struct hub *h, const struct link *l)
{
	for (int i = 0; i < PEERS; i++)
		if (h->peers[i].hub_link == l)
			return &h->peers[i];
	REQUIRE(!"an event of a link that is not there");
	return NULL;
}

static void hub_poll(struct hub *h)
{
	struct link_event e[3];
	int n = link_poll(h->context, e, 3);

	for (int i = 0; i < n; i++) {
		struct peer *p = peer_of(h, e[i].link);

		CHECK(!p->failed);
		if (e[i].type == LINK_EVENT_IMMEDIATE)
			CHECK_EQ(link_immediate_id(e[i].immediate), p->heard++);
		p->failed |= e[i].type == LINK_EVENT_FAILED;
	}
}

static void peer_step(struct peer *p)
{
	struct link_write w = {.flags = LINK_IMMEDIATE,
			       .immediate = link_immediate(p->said, 0, 0)};
	struct link_event e[4];

	if (p->said < WORDS && link_post(p->link, &w) == 0)
		p->said++;
	link_poll(p->context, e, 4);
}

TEST(links_of_one_process_do_not_disturb_each_other)
{
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		struct link_limits limits = {
			.links = PEERS, .credits = 4 + seed % 5, .sends = 4 + seed % 7};
		struct hub *h = calloc(1, sizeof(*h));
		struct peer *dies = &h->peers[seed % PEERS];
		uint32_t right = 0;

		h->world = fake_world_create(seed);
		CHECK_EQ(fake_open(h->world, &limits, &h->context), 0);
		for (int i = 0; i < PEERS; i++)
			join(h, &h->peers[i], limits);
		for (int n = 0; n < POLLS && (right < PEERS - 1 || !dies->failed); n++) {
			hub_poll(h);
			right = 0;
			for (int i = 0; i < PEERS; i++) {
				struct peer *p = &h->peers[i];

				if (p != dies || p->said < WORDS / 2)
					peer_step(p);
				right += p != dies && p->heard == WORDS;
			}
			if (dies->said == WORDS / 2) {
				fake_die(dies->context);
				dies->said = WORDS;
			}
			if (dies->said == WORDS && !dies->failed)
				link_probe(dies->hub_link);
		}
		CHECK_EQ(right, PEERS - 1);
		CHECK_EQ(link_error(dies->hub_link), LINK_PEER_DEAD);
		CHECK_EQ(fake_counts(h->world)->dry, 0);
		CHECK_EQ(fake_counts(h->world)->overrun, 0);
		for (int i = 0; i < PEERS; i++) {
			CHECK_EQ(h->peers[i].failed, &h->peers[i] == dies);
			link_destroy(h->peers[i].link);
			link_destroy(h->peers[i].hub_link);
			link_context_destroy(h->peers[i].context);
		}
		link_context_destroy(h->context);
		fake_world_destroy(h->world);
		free(h);
	}
}

static bool is_readable(struct link_context *c)
{
	struct pollfd p = {.fd = link_fd(c), .events = POLLIN};

	return poll(&p, 1, 1000) == 1;
}

/* Who leaves something for the next poll is woken for it, until one has found nothing. */
TEST(a_poll_that_ends_before_the_queue_does)
{
	const struct link_limits limits = {.links = 1, .credits = 8, .sends = 8};
	struct fake_world *world = fake_world_create(1);
	struct link_context *c;
	struct link_event e;

	REQUIRE(fake_open(world, &limits, &c) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(!poll(&(struct pollfd){.fd = link_fd(c), .events = POLLIN}, 1, 0));
		link_again(c);
		CHECK(is_readable(c));
		link_answer(c, false);
		link_again(c);
		CHECK(is_readable(c));
		CHECK_EQ(link_poll(c, &e, 1), 0);
	}
	/* The look at what is under way is still to come. */
	link_watch_begin(c);
	link_again(c);
	CHECK_EQ(link_poll(c, &e, 1), 0);
	CHECK(!poll(&(struct pollfd){.fd = link_fd(c), .events = POLLIN}, 1, 0));
	while (!is_readable(c))
		;
	link_context_destroy(c);
	fake_world_destroy(world);
}
