/* SPDX-License-Identifier: Apache-2.0 */
/* The rules: what is accepted, what is refused with which words, what matches. */
#include <arpa/inet.h>

#include "settings/rules.h"
#include "unit/child.h"

static char message[256];

static bool allows(const char *text, enum config_role role, const char *addr, int port)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port)};
	struct rules rules;

	REQUIRE(rules_parse(text, &rules, message, sizeof(message)) == 0);
	rules_keep_program(&rules, "python3.11", "app");
	if (inet_pton(AF_INET, addr, &in.sin_addr) == 1)
		return rules_allow(&rules, role, (struct sockaddr *)&in);
	REQUIRE(inet_pton(AF_INET6, addr, &in6.sin6_addr) == 1);
	return rules_allow(&rules, role, (struct sockaddr *)&in6);
}

#define ALLOWS(rules, addr, port) CHECK(allows(rules, CONFIG_CONNECT, addr, port))
#define DENIES(rules, addr, port) CHECK(!allows(rules, CONFIG_CONNECT, addr, port))

TEST(no_rule_allows)
{
	ALLOWS("", "127.0.0.1", 80);
	ALLOWS(" ; ;", "127.0.0.1", 80);
	DENIES("deny", "127.0.0.1", 80);
	DENIES("deny", "::1", 80);
}

TEST(first_match_wins)
{
	ALLOWS("allow port=80; deny", "127.0.0.1", 80);
	DENIES("allow port=80; deny", "127.0.0.1", 81);
	DENIES("deny;allow port=80;", "127.0.0.1", 80);
}

TEST(ports)
{
	DENIES("deny port=80-82", "127.0.0.1", 80);
	DENIES("deny port=80-82", "127.0.0.1", 82);
	ALLOWS("deny port=80-82", "127.0.0.1", 79);
	ALLOWS("deny port=80-82", "127.0.0.1", 83);
	DENIES("deny port=65535", "127.0.0.1", 65535);
	DENIES("deny port=0-65535", "127.0.0.1", 1);
}

TEST(ipv4_addresses)
{
	DENIES("deny addr=127.0.0.1", "127.0.0.1", 80);
	ALLOWS("deny addr=127.0.0.1", "127.0.0.2", 80);
	DENIES("deny addr=10.0.0.0/8", "10.255.1.2", 80);
	ALLOWS("deny addr=10.0.0.0/8", "11.0.0.1", 80);
	DENIES("deny addr=192.168.4.0/22", "192.168.7.255", 80);
	ALLOWS("deny addr=192.168.4.0/22", "192.168.8.0", 80);
	DENIES("deny addr=10.1.2.3/8", "10.9.9.9", 80); /* bits past the length */
	DENIES("deny addr=0.0.0.0/0", "8.8.8.8", 80);
	ALLOWS("deny addr=0.0.0.0/0", "2001:db8::1", 80);
}

TEST(ipv6_addresses)
{
	DENIES("deny addr=::1", "::1", 80);
	ALLOWS("deny addr=::1", "::2", 80);
	DENIES("deny addr=2001:db8::/33", "2001:db8:7fff::1", 80);
	ALLOWS("deny addr=2001:db8::/33", "2001:db8:8000::1", 80);
	DENIES("deny addr=::/0", "2001:db8::1", 80);
	ALLOWS("deny addr=::/0", "127.0.0.1", 80);
}

TEST(mapped_addresses_are_ipv4)
{
	DENIES("deny addr=10.0.0.0/8", "::ffff:10.1.1.1", 80);
	ALLOWS("deny addr=10.0.0.0/8", "::ffff:11.1.1.1", 80);
	DENIES("deny addr=::ffff:10.0.0.0/104", "10.1.1.1", 80);
	ALLOWS("deny addr=::/0", "::ffff:10.1.1.1", 80);
}

TEST(roles)
{
	CHECK(!allows("deny role=accept", CONFIG_ACCEPT, "::1", 80));
	CHECK(allows("deny role=accept", CONFIG_CONNECT, "::1", 80));
	CHECK(!allows("deny role=connect", CONFIG_CONNECT, "::1", 80));
	CHECK(allows("deny role=connect", CONFIG_ACCEPT, "::1", 80));
}

TEST(programs)
{
	DENIES("deny program=app", "::1", 80);
	DENIES("deny program=python*", "::1", 80);
	DENIES("deny program=[ab]pp", "::1", 80);
	ALLOWS("deny program=python", "::1", 80);
	ALLOWS("deny program=nginx", "::1", 80);
	ALLOWS("allow program=app port=80; deny", "::1", 80);
	DENIES("allow program=nginx; deny", "::1", 80);
}

static void as_user(void *arg)
{
	unsigned uid = *(unsigned *)arg;
	char text[64];

	if (uid != geteuid() && (geteuid() != 0 || seteuid(uid) != 0))
		return; /* only root can try that */
	snprintf(text, sizeof(text), "deny uid=%u", uid);
	DENIES(text, "::1", 80);
	snprintf(text, sizeof(text), "deny uid=%u-%u", uid ? uid - 1 : 0, uid + 1);
	DENIES(text, "::1", 80);
	snprintf(text, sizeof(text), "deny uid=%u", uid + 1);
	ALLOWS(text, "::1", 80);
	snprintf(text, sizeof(text), "deny uid=%u-4294967294", uid + 1);
	ALLOWS(text, "::1", 80);
	snprintf(text, sizeof(text), "deny uid=%u port=81", uid);
	ALLOWS(text, "::1", 80);
}

TEST(users)
{
	unsigned here = geteuid(), other = 65533;

	CHILD(as_user, &here);
	CHILD(as_user, &other);
}

/* A server that gives its rights up after its rules have been read. */
static void user_changes(void *arg)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
	struct rules rules;

	(void)arg;
	REQUIRE(rules_parse("deny uid=65533", &rules, message, sizeof(message)) == 0);
	CHECK(rules_allow(&rules, CONFIG_ACCEPT, (struct sockaddr *)&in));
	if (geteuid() == 0 && seteuid(65533) == 0)
		CHECK(!rules_allow(&rules, CONFIG_ACCEPT, (struct sockaddr *)&in));
}

TEST(the_user_counts_at_the_connection)
{
	CHILD(user_changes, NULL);
}

TEST(conditions_all_count)
{
	const char *rule = "deny program=app port=80 addr=::1 role=connect";

	DENIES(rule, "::1", 80);
	ALLOWS(rule, "::1", 81);
	ALLOWS(rule, "::2", 80);
	CHECK(allows(rule, CONFIG_ACCEPT, "::1", 80));
}

TEST(other_families_are_denied)
{
	struct rules rules = {.count = 0};
	struct sockaddr sa = {.sa_family = AF_UNIX};

	CHECK(!rules_allow(&rules, CONFIG_CONNECT, &sa));
}

static void refuse(const char *text, const char *want)
{
	strcpy(message, "?");
	CHECK(config_check_rules(text, message, sizeof(message)) < 0);
	if (!strstr(message, want))
		CHECK_STR(message, want);
}

TEST(refusals_name_place_and_cure)
{
	refuse("permit",
	       "rule 1, character 1: a rule begins with allow or deny, not 'permit'");
	refuse("deny; allow prot=80", "rule 2, character 13: ");
	refuse("deny prot", "'prot' is not known here");
	refuse("deny port=", "character 6: port= takes");
	refuse("deny port=65536", "port= takes");
	refuse("deny port=-1", "port= takes");
	refuse("deny port=+1", "port= takes");
	refuse("deny port=9-8", "lower first");
	refuse("deny port=8-", "port= takes");
	refuse("deny port=8x", "port= takes");
	refuse("deny port=99999999999999999999", "port= takes");
	refuse("deny addr=", "addr= takes");
	refuse("deny addr=10.0.0", "'10.0.0' is neither");
	refuse("deny addr=localhost", "is neither");
	refuse("deny addr=10.0.0.0/33", "from 0 to 32");
	refuse("deny addr=::/129", "from 0 to 128");
	refuse("deny addr=::/", "from 0 to 128");
	refuse("deny addr=::/x", "from 0 to 128");
	refuse("deny role=listen", "not 'listen'");
	refuse("deny uid=root", "number of a user");
	refuse("deny uid=4294967295", "number of a user");
	refuse("deny uid=9-8", "number of a user");
	refuse("deny program=", "1 to 63");
	refuse("deny program=/bin/sh", "base name");
}

TEST(limits)
{
	char text[RULES_MAX * 8 + 64] = "";
	char tiny[8];

	for (int i = 0; i < RULES_MAX; i++)
		strcat(text, "deny;");
	CHECK_EQ(config_check_rules(text, message, sizeof(message)), 0);
	strcat(text, "deny;");
	refuse(text, "rule 257, character 1281: more than 256 rules");
	memset(text, 'x', 200);
	text[200] = '\0';
	refuse(text, "longer than 79");
	CHECK(config_check_rules("bad", tiny, sizeof(tiny)) < 0);
	CHECK_STR(tiny, "rule 1,");
}
