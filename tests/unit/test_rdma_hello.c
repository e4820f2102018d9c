/* SPDX-License-Identifier: Apache-2.0 */
/* Hellos of links: what is right comes back, what is wrong is refused with a sentence. */
#include <errno.h>

#include "rdma/hello.h"
#include "unit/rdma_rig.h"

static const struct link_address good = {
	.fabric = FABRIC_ROCE2,
	.mtu = 3,
	.qpn = 0x123456,
	.psn = 0xfedcba,
	.gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 7},
	.window = 0x7f0011223344,
	.window_bytes = 1 << 20,
	.key = 0xdeadbeef,
	.credits = 256,
	.nonce = 0x1122334455667788,
	.echo = 0x99aabbccddeeff00,
};

static int parse(struct link_address a, const char **why)
{
	uint8_t hello[LINK_HELLO_BYTES];
	struct link_address out;

	*why = NULL;
	link_hello_put(hello, &a);
	return link_hello_get(hello, sizeof(hello), &out, why);
}

static void is_wrong(struct link_address a, int error)
{
	const char *why;

	CHECK_EQ(parse(a, &why), error);
	CHECK(why != NULL);
}

#define WRONG(error, member, ...)                                                        \
	do {                                                                             \
		struct link_address a_ = good;                                           \
		a_.member = __VA_ARGS__;                                                 \
		is_wrong(a_, error);                                                     \
	} while (0)

TEST(a_hello_comes_back)
{
	struct link_address infiniband = good, out;
	uint8_t hello[LINK_HELLO_BYTES], again[LINK_HELLO_BYTES];
	const char *why;

	infiniband.fabric = FABRIC_INFINIBAND;
	infiniband.lid = 0xbfff;
	CHECK_EQ(parse(infiniband, &why), 0);
	link_hello_put(hello, &good);
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &out, &why), 0);
	link_hello_put(again, &out);
	CHECK(memcmp(hello, again, sizeof(hello)) == 0);
	CHECK_EQ(out.qpn, good.qpn);
	CHECK_EQ(out.psn, good.psn);
	CHECK_EQ(out.window, good.window);
	CHECK_EQ(out.window_bytes, good.window_bytes);
	CHECK_EQ(out.key, good.key);
	CHECK_EQ(out.nonce, good.nonce);
	CHECK_EQ(out.echo, good.echo);
}

TEST(each_value_has_its_range)
{
	WRONG(-EPROTONOSUPPORT, fabric, 0);
	WRONG(-EPROTONOSUPPORT, fabric, 4);
	WRONG(-EPROTO, mtu, 0);
	WRONG(-EPROTO, mtu, 6);
	WRONG(-EPROTO, lid, 1);
	WRONG(-EPROTO, fabric, FABRIC_INFINIBAND); /* without a LID */
	WRONG(-EPROTO, qpn, 0);
	WRONG(-EPROTO, qpn, 1);
	WRONG(-EPROTO, qpn, 1 << 24);
	WRONG(-EPROTO, psn, 1 << 24);
	WRONG(-EPROTO, gid[0], 0xff);
	WRONG(-EPROTO, window_bytes, 0);
	WRONG(-EPROTO, window_bytes, UINT64_MAX);
	WRONG(-EPROTO, window, UINT64_MAX - 5);
	WRONG(-EPROTO, credits, LINK_CREDITS_MIN - 1);
	WRONG(-EPROTO, credits, LINK_CREDITS_MAX + 1);
	WRONG(-EPROTO, nonce, 0);
	for (int fabric = FABRIC_ROCE2; fabric <= FABRIC_INFINIBAND; fabric++) {
		struct link_address a = good;

		a.fabric = (uint8_t)fabric;
		a.lid = fabric == FABRIC_INFINIBAND;
		memset(a.gid, 0, sizeof(a.gid));
		is_wrong(a, -EPROTO);
	}
}

TEST(each_length_but_one_is_wrong)
{
	uint8_t hello[2 * LINK_HELLO_BYTES] = {0};
	struct link_address out;
	const char *why;

	link_hello_put(hello, &good);
	for (size_t n = 0; n <= sizeof(hello); n++) {
		uint8_t *exact = malloc(n ? n : 1);

		why = NULL;
		memcpy(exact, hello, n);
		CHECK_EQ(link_hello_get(exact, n, &out, &why),
			 n == LINK_HELLO_BYTES ? 0 : -EPROTO);
		CHECK(n == LINK_HELLO_BYTES || why);
		free(exact);
	}
}

TEST(version_and_features)
{
	uint8_t hello[LINK_HELLO_BYTES];
	struct link_address out;
	const char *why;

	link_hello_put(hello, &good);
	hello[5]++;
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &out, &why), -EPROTONOSUPPORT);
	CHECK_STR(why, "the hello is of another version");
	/* Another version may have another length. */
	CHECK_EQ(link_hello_get(hello, 8, &out, &why), -EPROTONOSUPPORT);
	hello[5]--;
	hello[7]++;
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &out, &why), -EPROTO);
	hello[7]--;
	hello[11] = 1;
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &out, &why), -EPROTONOSUPPORT);
	hello[0] ^= 1;
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &out, &why), -EPROTO);
	CHECK_STR(why, "this is no hello of a link");
}

/* Whatever comes: refused with a sentence, or the same values as bytes and as numbers. */
TEST(damaged_hellos)
{
	uint64_t random = 12345;
	uint32_t taken = 0, refused = 0;

	for (int round = 0; round < 200000; round++) {
		uint8_t hello[LINK_HELLO_BYTES], again[LINK_HELLO_BYTES];
		struct link_address out;
		const char *why = NULL;
		size_t bytes = sizeof(hello);
		int r;

		link_hello_put(hello, &good);
		for (int i = 0; i <= round % 4; i++) {
			random = random * 6364136223846793005 + 1442695040888963407;
			hello[(random >> 40) % sizeof(hello)] = (uint8_t)(random >> 33);
		}
		if (round % 16 == 0)
			bytes = (random >> 20) % sizeof(hello);
		r = link_hello_get(hello, bytes, &out, &why);
		CHECK(r == 0 || r == -EPROTO || r == -EPROTONOSUPPORT);
		CHECK((r == 0) == (why == NULL));
		taken += r == 0;
		refused += r < 0;
		if (r < 0)
			continue;
		link_hello_put(again, &out);
		CHECK(memcmp(hello, again, sizeof(hello)) == 0);
	}
	CHECK(taken > 1000 && refused > 1000);
}

static bool is_at(struct link_address a, const uint8_t address[16])
{
	uint8_t hello[LINK_HELLO_BYTES];

	link_hello_put(hello, &a);
	return link_hello_is_at(hello, address);
}

/* With RoCE a device is found by the address that its GID is; the others' addresses are others. */
TEST(hellos_lead_to_an_address)
{
	const uint8_t other[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 8};
	struct link_address a = good;

	CHECK(is_at(a, good.gid));
	CHECK(!is_at(a, other));
	a.fabric = FABRIC_INFINIBAND;
	a.lid = 1;
	CHECK(is_at(a, other));
}

static int connect_to(struct link *l, struct link_address a, const char **why)
{
	uint8_t hello[LINK_HELLO_BYTES];

	link_hello_put(hello, &a);
	return link_connect(l, hello, sizeof(hello), why);
}

/* A peer cannot have this host write to a third one by the link beside. */
TEST(a_link_beside_leads_to_the_same_host)
{
	struct rig *r = rig_create(4, (struct link_limits){.links = 3});
	uint8_t hello[LINK_HELLO_BYTES], window[64];
	struct link *beside[2];
	struct link_address a;
	const char *why;

	REQUIRE(rig_connect(r) == 0);
	CHECK_EQ(link_create_beside(r->a.link, window, sizeof(window), &beside[0]), 0);
	CHECK_EQ(link_create_beside(r->b.link, window, sizeof(window), &beside[1]), 0);
	CHECK_EQ(link_hello(beside[0], hello), 0);
	CHECK_EQ(link_hello_get(hello, sizeof(hello), &a, &why), 0);
	a.gid[0] ^= 1;
	CHECK_EQ(connect_to(beside[1], a, &why), -EPROTO);
	CHECK_STR(why, "the hello is not of the first link's host");
	a.gid[0] ^= 1;
	a.lid ^= 1;
	CHECK_EQ(connect_to(beside[1], a, &why), -EPROTO);
	a.lid ^= 1;
	CHECK_EQ(connect_to(beside[1], a, &why), 0);
	link_destroy(beside[0]);
	link_destroy(beside[1]);
	rig_destroy(r);
}

/* Those that are right in themselves, and not for this link. */
TEST(hellos_of_others)
{
	struct rig *r = rig_create(2, (struct link_limits){.links = 3});
	uint8_t hello[LINK_HELLO_BYTES], other[LINK_HELLO_BYTES];
	struct link_address a = good;
	struct link *second;
	const char *why;

	CHECK_EQ(link_create(r->b.context, r->b.window, 64, &second), 0);
	CHECK_EQ(connect_to(second, good, &why), -EPROTONOSUPPORT);
	CHECK_STR(why, "the hello is of another interconnect");
	a.fabric = FABRIC_FAKE;
	CHECK_EQ(connect_to(second, a, &why), -EPROTO);
	CHECK_STR(why, "the hello answers another link's");
	/* None of these has done the link any harm. */
	CHECK_EQ(link_create(r->a.context, r->a.window, 64, &r->a.link), 0);
	CHECK_EQ(link_hello(r->a.link, hello), 0);
	CHECK_EQ(link_connect(r->a.link, hello, sizeof(hello), &why), -EPROTO);
	CHECK_STR(why, "the hello is our own");
	CHECK_EQ(connect_to(r->a.link, a, &why), -EPROTO);
	CHECK_STR(why, "the hello does not answer ours");
	/* Two that are both first never wait for each other. */
	CHECK_EQ(link_create(r->b.context, r->b.window, 64, &r->b.link), 0);
	CHECK_EQ(link_hello(r->b.link, other), 0);
	CHECK_EQ(link_connect(r->a.link, other, sizeof(other), &why), -EPROTO);
	CHECK_EQ(link_connect(second, hello, sizeof(hello), &why), 0);
	CHECK_EQ(link_connect(second, hello, sizeof(hello), &why), -EISCONN);
	CHECK_EQ(link_hello(second, other), 0);
	CHECK_EQ(link_connect(r->a.link, other, sizeof(other), &why), 0);
	CHECK_EQ(link_state(r->a.link), LINK_UP);
	link_destroy(second);
	rig_destroy(r);
}
