/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of processes and daemons, keys, rates, settings and what they allow. */
#include <arpa/inet.h>
#include <errno.h>
#include <sodium.h>
#include <sys/stat.h>

#include "daemon/bucket.h"
#include "daemon/keys.h"
#include "daemon/settings.h"
#include "daemon/wire.h"
#include "unit/test.h"

static struct name_end end_of(const char *addr, int port)
{
	struct name_end end = {.addr = {[10] = 0xff, [11] = 0xff},
			       .port = htons((uint16_t)port)};

	if (inet_pton(AF_INET, addr, end.addr + 12) != 1)
		REQUIRE(inet_pton(AF_INET6, addr, end.addr) == 1);
	return end;
}

/* ---- between a process and its daemon ---- */

static struct local_message a_message(enum local_type type)
{
	struct local_message m;

	memset(&m, 0, sizeof(m));
	m.version = LOCAL_PROTOCOL;
	m.type = (uint8_t)type;
	m.id = 77;
	if (type == LOCAL_PROBE) {
		m.local = end_of("10.0.0.1", 0);
		m.peer = end_of("10.0.0.2", 0);
	} else if (type != LOCAL_ANSWER && type != LOCAL_DONE && type != LOCAL_MET) {
		m.local = end_of("10.0.0.1", 1);
		m.peer = end_of("10.0.0.2", 2);
	}
	return m;
}

static size_t least_hello(int type)
{
	return type == LOCAL_PROBED	  ? sizeof(struct local_probed)
	       : type == LOCAL_MEET	  ? sizeof(struct local_meet)
	       : type == LOCAL_MET	  ? sizeof(struct local_met)
	       : type == LOCAL_TRANSLATE  ? sizeof(struct local_translate)
	       : type == LOCAL_TRANSLATED ? sizeof(struct local_translated)
					  : 0;
}

static enum local_status check(struct local_message m, size_t hello, bool from_process)
{
	return local_check(&m, LOCAL_HEAD_BYTES + hello, from_process);
}

TEST(each_side_has_its_messages)
{
	for (int type = 0; type < 256; type++) {
		struct local_message m = a_message((enum local_type)type);
		bool process = (type >= LOCAL_PUBLISH && type <= LOCAL_ANSWER) ||
			       type == LOCAL_PROBE || type == LOCAL_MEET ||
			       type == LOCAL_TRANSLATE;
		bool daemon = type == LOCAL_DONE || type == LOCAL_ASKED ||
			      type == LOCAL_PROBED || type == LOCAL_MET ||
			      type == LOCAL_TRANSLATED;
		size_t hello = least_hello(type);

		CHECK_EQ(check(m, hello, true), process ? LOCAL_OK : LOCAL_MALFORMED);
		CHECK_EQ(check(m, hello, false), daemon ? LOCAL_OK : LOCAL_MALFORMED);
	}
}

TEST(a_probe_is_about_addresses_alone)
{
	struct local_message m = a_message(LOCAL_PROBE);

	CHECK_EQ(check(m, 0, true), LOCAL_OK);
	CHECK_EQ(check(m, 1, true), LOCAL_MALFORMED);
	m.local.port = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_PROBE);
	m.peer.port = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_PROBE);
	m.status = LOCAL_REFUSED;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_PROBED);
	for (size_t n = 0; n < 20; n++)
		CHECK_EQ(check(m, n, false), n == 8 ? LOCAL_OK : LOCAL_MALFORMED);
	m.status = LOCAL_STATUS_COUNT;
	CHECK_EQ(check(m, 8, false), LOCAL_MALFORMED);
	m = a_message(LOCAL_PROBED);
	m.uid = 1;
	CHECK_EQ(check(m, 8, false), LOCAL_MALFORMED);
	for (uint32_t i = 0; i < LOCAL_CAUSE_COUNT + 3; i++)
		CHECK(*local_cause_text(i));
	CHECK_STR(local_cause_text(LOCAL_CAUSE_COUNT), local_cause_text(0));
}

TEST(a_translation_is_of_one_connection)
{
	const struct local_translate good = {.cookie = 5, .accepted = 1},
				     bad[] = {{5, 2, 0}, {5, 1, 1}};
	struct local_message m = a_message(LOCAL_TRANSLATE);

	memcpy(m.hello, &good, sizeof(good));
	for (size_t n = 0; n < 40; n++)
		CHECK_EQ(check(m, n, true),
			 n == sizeof(good) ? LOCAL_OK : LOCAL_MALFORMED);
	for (int i = 0; i < 2; i++) {
		memcpy(m.hello, &bad[i], sizeof(bad[i]));
		CHECK_EQ(check(m, sizeof(good), true), LOCAL_MALFORMED);
	}
	m = a_message(LOCAL_TRANSLATED);
	for (size_t n = 0; n < 20; n++)
		CHECK_EQ(check(m, n, false), n == 8 ? LOCAL_OK : LOCAL_MALFORMED);
	/* Why not: and then nothing else. */
	m.status = LOCAL_UNSEEN;
	CHECK_EQ(check(m, 8, false), LOCAL_MALFORMED);
	CHECK_EQ(check(m, 0, false), LOCAL_MALFORMED);
	memset(&m.local, 0, sizeof(m.local));
	memset(&m.peer, 0, sizeof(m.peer));
	CHECK_EQ(check(m, 0, false), LOCAL_OK);
	m.status = LOCAL_STATUS_COUNT;
	CHECK_EQ(check(m, 0, false), LOCAL_MALFORMED);
}

TEST(lengths_of_a_message)
{
	struct local_message m = a_message(LOCAL_ASK);

	CHECK_EQ(check(m, 1024, true), LOCAL_OK);
	CHECK_EQ(check(m, 1025, true), LOCAL_MALFORMED);
	for (size_t n = 0; n < LOCAL_HEAD_BYTES; n++)
		CHECK_EQ(local_check(&m, n, true), LOCAL_MALFORMED);
	CHECK_EQ(check(a_message(LOCAL_WITHDRAW), 1, true), LOCAL_MALFORMED);
	m.version++;
	CHECK_EQ(check(m, 0, true), LOCAL_VERSION);
}

TEST(what_is_not_used_is_zero)
{
	struct local_message m = a_message(LOCAL_ASK);

	m.zero = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_ASK);
	m.uid = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_PUBLISH);
	m.wait_ms = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_PUBLISH);
	m.status = LOCAL_REFUSED;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_ANSWER);
	m.status = LOCAL_REFUSED;
	CHECK_EQ(check(m, 0, true), LOCAL_OK);
	CHECK_EQ(check(m, 1, true), LOCAL_MALFORMED);
	m.status = LOCAL_GONE;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_ANSWER);
	m.peer.port = 1;
	CHECK_EQ(check(m, 0, true), LOCAL_MALFORMED);
	m = a_message(LOCAL_DONE);
	m.status = LOCAL_STATUS_COUNT;
	CHECK_EQ(check(m, 0, false), LOCAL_MALFORMED);
}

static bool fits(const char *a, const char *b)
{
	struct name_end x = end_of(a, 1), y = end_of(b, 1);

	return local_ends_fit(&x, &y) && local_ends_fit(&y, &x);
}

TEST(addresses_that_two_hosts_can_have)
{
	struct name_end no_port = end_of("10.0.0.1", 0), other = end_of("10.0.0.2", 1);

	CHECK(fits("10.0.0.1", "192.168.3.4"));
	CHECK(fits("2001:db8::1", "fd00::1"));
	CHECK(!fits("10.0.0.1", "10.0.0.1"));
	CHECK(!fits("10.0.0.1", "127.0.0.1"));
	CHECK(!fits("10.0.0.1", "0.0.0.0"));
	CHECK(!fits("10.0.0.1", "169.254.1.1"));
	CHECK(!fits("10.0.0.1", "224.0.0.1"));
	CHECK(!fits("10.0.0.1", "255.255.255.255"));
	CHECK(!fits("10.0.0.1", "fd00::1"));
	CHECK(!fits("fd00::1", "::1"));
	CHECK(!fits("fd00::1", "::"));
	CHECK(!fits("fd00::1", "fe80::1"));
	CHECK(!fits("fd00::1", "ff02::1"));
	CHECK(!local_ends_fit(&no_port, &other));
	CHECK(!local_ends_fit(&other, &no_port));
	CHECK(local_addresses_fit(&no_port, &other));
	CHECK(!local_addresses_fit(&other, &other));
}

/* ---- between two daemons ---- */

TEST(a_question_is_read_as_it_was_written)
{
	uint8_t hello[LOCAL_HELLO_MAX], bytes[WIRE_PLAIN_MAX];
	struct wire_question q = {.id = 0x01020304,
				  .uid = 1000,
				  .asker = end_of("10.0.0.1", 40000),
				  .holder = end_of("fd00::2", 80),
				  .hello = hello},
			     got;

	memset(hello, 7, sizeof(hello));
	for (q.hello_bytes = 0; q.hello_bytes <= sizeof(hello); q.hello_bytes += 512) {
		size_t n = wire_put_question(bytes, &q);

		CHECK_EQ(n, WIRE_QUESTION_BYTES + q.hello_bytes);
		CHECK_EQ(bytes[4], 1); /* big endian */
		CHECK_EQ(wire_get_question(bytes, n, &got), 0);
		CHECK(got.id == q.id && got.uid == q.uid &&
		      got.hello_bytes == q.hello_bytes &&
		      name_end_equal(&got.asker, &q.asker) &&
		      name_end_equal(&got.holder, &q.holder) &&
		      !memcmp(got.hello, hello, q.hello_bytes));
		for (size_t less = 0; less < n; less++)
			CHECK_EQ(wire_get_question(bytes, less, &got), -EPROTO);
		CHECK_EQ(wire_get_question(bytes, n + 1, &got), -EPROTO);
	}
	bytes[0] = 3;
	CHECK_EQ(wire_get_question(bytes, WIRE_PLAIN_MAX, &got), -EPROTO);
}

TEST(an_answer_has_a_status_that_travels)
{
	uint8_t bytes[WIRE_PLAIN_MAX];
	struct wire_answer a = {.id = 5,
				.uid = 6,
				.hello = bytes + 500,
				.hello_bytes = 9},
			   got;

	for (unsigned status = 0; status < 256; status++) {
		bool may = status == LOCAL_OK || status == LOCAL_RATE ||
			   status == LOCAL_FULL ||
			   (status >= LOCAL_NOBODY && status <= LOCAL_FOREIGN);

		a.status = (uint8_t)status;
		a.hello_bytes = status == LOCAL_OK ? 9 : 0;
		CHECK_EQ(wire_get_answer(bytes, wire_put_answer(bytes, &a), &got),
			 may ? 0 : -EPROTO);
		a.hello_bytes = 9;
		CHECK_EQ(wire_get_answer(bytes, wire_put_answer(bytes, &a), &got),
			 status == LOCAL_OK ? 0 : -EPROTO);
	}
}

/* ---- keys ---- */

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static int parse_keys(const char *text, struct keys *keys)
{
	char buffer[512], why[256];
	size_t n = strlen(text);

	REQUIRE(sodium_init() >= 0);
	memcpy(buffer, text, n + 1);
	for (char *c = buffer; *c; c++)
		if (*c == '\n')
			*c = '\0';
	return keys_parse(buffer, n + 1, keys, why, sizeof(why));
}

TEST(keys_have_an_id_and_64_digits)
{
	struct keys keys;

	CHECK_EQ(parse_keys("a=" DIGITS, &keys), 0);
	CHECK_EQ(keys.count, 1);
	CHECK_EQ(parse_keys("\n2026-11.x_Y-1234 =\t" DIGITS "\n\nb = " DIGITS, &keys), 0);
	CHECK_EQ(keys.count, 2);
	CHECK_STR(keys.key[1].id, "b");
	CHECK(memcmp(keys.key[0].part[0], keys.key[0].part[1], KEYS_KEY_BYTES) != 0);
	CHECK_EQ(parse_keys("", &keys), -EINVAL);
	CHECK_EQ(parse_keys("a " DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("= " DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("a = " DIGITS "0", &keys), -EINVAL);
	CHECK_EQ(parse_keys("a = 0" DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("a = x" DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("a = ", &keys), -EINVAL);
	CHECK_EQ(parse_keys("12345678901234567 = " DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("a = " DIGITS "\na = " DIGITS, &keys), -EINVAL);
	CHECK_EQ(parse_keys("a=" DIGITS "\nb=" DIGITS "\nc=" DIGITS, &keys), -EINVAL);
	CHECK_EQ(keys.count, 0);
}

TEST(a_new_key_is_one)
{
	char line[KEYS_LINE_BYTES], other[KEYS_LINE_BYTES];
	struct keys keys;

	REQUIRE(sodium_init() >= 0);
	CHECK_EQ(keys_new_line("2026-11.x_Y-1234", line), 0);
	CHECK_EQ(keys_new_line("2026-11.x_Y-1234", other), 0);
	CHECK(strcmp(line, other) != 0);
	CHECK_EQ(parse_keys(line, &keys), 0);
	CHECK_EQ(keys_new_line("", line), -EINVAL);
	CHECK_EQ(keys_new_line("a b", line), -EINVAL);
	CHECK_EQ(keys_new_line("12345678901234567", line), -EINVAL);
}

static int read_mode(const char *path, mode_t mode)
{
	struct keys keys;
	char why[256];

	REQUIRE(chmod(path, mode) == 0);
	return keys_read(path, &keys, why, sizeof(why));
}

TEST(nobody_else_may_read_the_keys)
{
	char path[] = "/tmp/relay-keys-XXXXXX";
	int fd = mkstemp(path);

	REQUIRE(sodium_init() >= 0 && fd >= 0);
	REQUIRE(write(fd, "a=" DIGITS "\n", 3 + 64) == 3 + 64);
	close(fd);
	CHECK_EQ(read_mode(path, 0600), 0);
	CHECK_EQ(read_mode(path, 0400), 0);
	CHECK_EQ(read_mode(path, 0604), -EINVAL);
	CHECK_EQ(read_mode(path, 0602), -EINVAL);
	CHECK_EQ(read_mode(path, 0620), -EINVAL);
	if (geteuid() == 0) {
		CHECK_EQ(read_mode(path, 0440), 0); /* of root's group */
		REQUIRE(chown(path, 0, 100) == 0);
		CHECK_EQ(read_mode(path, 0440), -EINVAL);
		REQUIRE(chown(path, 1234, 0) == 0);
		CHECK_EQ(read_mode(path, 0600), -EINVAL);
	}
	unlink(path);
	CHECK_EQ(keys_read("relative", &(struct keys){0}, (char[64]){""}, 64), -EINVAL);
}

/* ---- rates ---- */

static unsigned takes(struct buckets *b, uint32_t uid, uint64_t now, unsigned tries)
{
	unsigned got = 0;

	for (unsigned i = 0; i < tries; i++)
		got += bucket_take_uid(b, uid, now);
	return got;
}

TEST(a_rate_with_its_burst)
{
	static struct buckets b = {.per_second = 10};

	CHECK_EQ(takes(&b, 1, 1000, 100), 40);
	CHECK_EQ(takes(&b, 2, 1000, 100), 40);
	CHECK_EQ(takes(&b, 1, 1100, 100), 1);
	CHECK_EQ(takes(&b, 1, 1150, 100), 0); /* half a token, which is kept */
	CHECK_EQ(takes(&b, 1, 1200, 100), 1);
	CHECK_EQ(takes(&b, 1, 3200, 100), 20);
	CHECK_EQ(takes(&b, 1, 1u << 30, 100), 40);
}

TEST(many_users_share_what_the_table_has_not)
{
	static struct buckets b = {.per_second = 1};
	unsigned got = 0;

	for (uint32_t uid = 0; uid < 10000; uid++)
		got += takes(&b, uid, 1000, 1);
	CHECK_EQ(got, BUCKET_SLOTS + 4);
	/* Old ones are forgotten, and make place. */
	CHECK_EQ(takes(&b, 20000, 1000 + 4000, 10), 4);
}

TEST(subordinate_ids_leave_places)
{
	static struct buckets b = {.per_second = 1};

	for (uint32_t uid = 100000; uid < 165536; uid++)
		takes(&b, uid, 1000, 1);
	CHECK(!bucket_take_uid(&b, 165536, 1000));
	CHECK_EQ(takes(&b, 1000, 1000, 10), 4);
}

TEST(an_ipv6_network_is_one_host)
{
	static struct buckets b = {.per_second = 1};
	struct name_end end = end_of("fd00::1", 1), v4 = end_of("10.0.0.1", 1);
	unsigned got = 0;

	for (int i = 0; i < 100; i++) {
		end.addr[15] = (uint8_t)i;
		got += bucket_take_address(&b, end.addr, 1000);
	}
	CHECK_EQ(got, 4);
	end.addr[7] = 1;
	CHECK(bucket_take_address(&b, end.addr, 1000));
	for (int i = 0; i < 100; i++) {
		v4.addr[15] = (uint8_t)i;
		CHECK(bucket_take_address(&b, v4.addr, 1000));
	}
}

/* ---- settings ---- */

static char complaint[512];

static void complain(const char *place, const char *text)
{
	snprintf(complaint, sizeof(complaint), "%s: %s", place, text);
}

static struct settings settings;
static char text_of_settings[2048]; /* the rules point into it */

static unsigned parse(const char *text)
{
	size_t n = strlen(text) + 1;

	complaint[0] = '\0';
	memcpy(text_of_settings, text, n);
	for (char *c = text_of_settings; *c; c++)
		if (*c == '\n')
			*c = '\0';
	return settings_parse("f", text_of_settings, n, &settings, complain);
}

TEST(settings_are_read)
{
	CHECK_EQ(parse(""), 0);
	CHECK_STR(settings.log, "info:stderr");
	CHECK_EQ(settings.port, SETTINGS_PORT);
	CHECK_EQ(parse("port = 99\nsocket = /x/y\nnear-socket = /n\nkey-file=/k\nlog = "
		       "debug:/l\nlisten = "
		       "::1\n"
		       "listen = 10.0.0.1\nrate-uid = 5\nrate-peer = 6\n"
		       "peer = 10.0.0.2 for 192.168.0.0/16"),
		 0);
	CHECK(settings.port == 99 && settings.listens == 2 && settings.peers == 1 &&
	      settings.rate_uid == 5 && settings.rate_peer == 6);
	CHECK_STR(settings.socket, "/x/y");
	CHECK_STR(settings.key_file, "/k");
	CHECK_STR(settings.near, "/n");
	CHECK_STR(settings.log, "debug:/l");
	CHECK_EQ(settings.peer[0].prefix_bits, 96 + 16);
}

TEST(what_is_wrong_is_named)
{
	static const char *const bad[] = {
		"port = 0",
		"port = 65536",
		"port = 4294967297",
		"port = ",
		"socket = x",
		"log = loud",
		"log = info:x",
		"listen = ::1/64",
		"peer = 10.0.0.2",
		"peer = 10.0.0.2 for 10.0.0.0/33",
		"peer = 10.0.0.2 for 10.0.0.0/8 x",
		"peer =",
		"rate-uid = 0",
		"prot = 1",
		"allow role=connect",
		"deny addr=x",
		"permit",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_EQ(parse(bad[i]), 1);
		CHECK(!strncmp(complaint, "f:1: ", 5));
	}
	CHECK_EQ(parse("\nport = 1\n\nport = 2"), 1);
	CHECK(!strncmp(complaint, "f:4: ", 5));
}

static bool allows(const char *rules, uint32_t uid, const char *program, const char *peer,
		   int local_port, int peer_port)
{
	struct settings_party party = {.uid = uid, .program = program};
	struct name_end a =
		end_of(strchr(peer, ':') ? "fd00::1" : "10.0.0.1", local_port);
	struct name_end b = end_of(peer, peer_port);

	REQUIRE(parse(rules) == 0);
	return settings_allow(&settings, &party, &a, &b);
}

TEST(the_first_rule_that_fits)
{
	CHECK(allows("", 1, "x", "10.0.0.2", 1, 2));
	CHECK(!allows("deny", 1, "x", "10.0.0.2", 1, 2));
	CHECK(allows("allow uid=5-7; deny", 6, "x", "10.0.0.2", 1, 2));
	CHECK(!allows("allow uid=5-7; deny", 8, "x", "10.0.0.2", 1, 2));
	CHECK(allows("allow addr=10.0.0.0/8; deny", 1, "x", "10.0.0.2", 1, 2));
	CHECK(!allows("allow addr=10.0.0.0/8; deny", 1, "x", "11.0.0.2", 1, 2));
	CHECK(!allows("allow addr=10.0.0.0/8; deny", 1, "x", "fd00::2", 1, 2));
	CHECK(!allows("deny addr=::/0", 1, "x", "fd00::2", 1, 2));
	CHECK(allows("deny addr=::/0", 1, "x", "10.0.0.2", 1, 2));
	CHECK(!allows("deny port=80", 1, "x", "10.0.0.2", 80, 2));
	CHECK(!allows("deny port=80", 1, "x", "10.0.0.2", 2, 80));
	CHECK(allows("deny port=80", 1, "x", "10.0.0.2", 81, 79));
	CHECK(allows("allow program=redis-*\ndeny", 1, "redis-server", "10.0.0.2", 1, 2));
	CHECK(!allows("allow program=redis-*\ndeny", 1, "nginx", "10.0.0.2", 1, 2));
	CHECK(!allows("allow program=redis; deny", 1, "redis-server", "10.0.0.2", 1, 2));
	/* The kernel cuts names. */
	CHECK(allows("allow program=a-name-that-is-long; deny", 1, "a-name-that-is-",
		     "10.0.0.2", 1, 2));
	CHECK(!allows("allow program=a-name; deny", 1, "a-name-that-is-", "10.0.0.2", 1,
		      2));
	CHECK(!allows("deny program=a-name-that-is-long", 1, "a-name-that-is-",
		      "10.0.0.2", 1, 2));
	CHECK(!allows("deny program=a-name*long", 1, "a-name-that-is-", "10.0.0.2", 1,
		      2));
	CHECK(!allows("allow program=a-name*long; deny", 1, "a-name-that-is-", "10.0.0.2",
		      1, 2));
	CHECK(allows("deny program=b-name*long", 1, "a-name-that-is-", "10.0.0.2", 1, 2));
	/* A program that nobody knows is in doubt. */
	CHECK(!allows("allow program=*; deny", 1, NULL, "10.0.0.2", 1, 2));
	CHECK(!allows("deny program=x", 1, NULL, "10.0.0.2", 1, 2));
}

static bool may_ask(const char *rules, uint32_t uid, const char *program,
		    const char *peer)
{
	struct settings_party party = {.uid = uid, .program = program};
	struct name_end end = end_of(peer, 0);

	REQUIRE(parse(rules) == 0);
	return settings_may_ask(&settings, &party, end.addr);
}

/* Who may use some of the ports may ask whether there is a way. */
TEST(who_may_ask_about_a_host)
{
	CHECK(may_ask("", 1, "x", "10.0.0.2"));
	CHECK(!may_ask("deny", 1, "x", "10.0.0.2"));
	CHECK(may_ask("deny port=80", 1, "x", "10.0.0.2"));
	CHECK(may_ask("deny port=80; allow port=443; deny", 1, "x", "10.0.0.2"));
	CHECK(!may_ask("deny port=0-65535", 1, "x", "10.0.0.2"));
	CHECK(!may_ask("deny uid=1", 1, "x", "10.0.0.2"));
	CHECK(may_ask("deny uid=1", 2, "x", "10.0.0.2"));
	CHECK(!may_ask("allow uid=1 port=443; deny", 2, "x", "10.0.0.2"));
	CHECK(!may_ask("deny addr=10.0.0.0/8", 1, "x", "10.0.0.2"));
	CHECK(may_ask("deny addr=10.0.0.0/8", 1, "x", "fd00::2"));
	CHECK(!may_ask("allow program=redis-*; deny", 1, "viaduct", "10.0.0.2"));
	CHECK(!may_ask("allow program=viaduct; deny", 1, NULL, "10.0.0.2"));
	CHECK(!may_ask("deny program=x", 1, NULL, "10.0.0.2"));
}

TEST(who_speaks_for_whom)
{
	struct name_end own = end_of("10.0.0.2", 1), data = end_of("192.168.3.4", 1),
			other = end_of("192.168.9.4", 1), six = end_of("fd00::2", 1);
	uint8_t daemon[16];

	REQUIRE(parse("peer = 10.0.0.2 for 192.168.3.0/24\ndeny") == 0);
	CHECK(settings_speaks_for(&settings, own.addr, &own));
	CHECK(settings_speaks_for(&settings, own.addr, &data));
	CHECK(!settings_speaks_for(&settings, own.addr, &other));
	CHECK(!settings_speaks_for(&settings, data.addr, &own));
	CHECK(settings_daemon_of(&settings, data.addr, daemon));
	CHECK(!memcmp(daemon, own.addr, 16));
	CHECK(!settings_daemon_of(&settings, other.addr, daemon));
	CHECK(!memcmp(daemon, other.addr, 16));
	CHECK(settings_may_meet(&settings, own.addr));
	CHECK(!settings_may_meet(&settings, other.addr));
	REQUIRE(parse("deny addr=10.0.0.0/8 uid=5; allow addr=10.0.0.0/8; deny") == 0);
	CHECK(settings_may_meet(&settings, own.addr));
	CHECK(!settings_may_meet(&settings, six.addr));
}
