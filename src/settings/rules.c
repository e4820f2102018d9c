/* SPDX-License-Identifier: Apache-2.0 */
/* Parses rules and matches connections against them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "settings/rules.h"

#define RULE_WORD_BYTES 80
#define RULE_UID_MAX	4294967294u /* the last number means that there is none */

struct rules_parser {
	const char *text, *at; /* at: the word in hand */
	bool numbered;	       /* false in a line of a file, which has its own number */
	unsigned number;       /* of the rule in hand, from 1 */
	char *message;
	size_t size;
};

static int rules_fail(struct rules_parser *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int rules_fail(struct rules_parser *p, const char *format, ...)
{
	va_list args;
	size_t at = (size_t)(p->at - p->text) + 1;
	int n;

	if (p->numbered)
		n = snprintf(p->message, p->size, "rule %u, character %zu: ", p->number,
			     at);
	else
		n = snprintf(p->message, p->size, "character %zu: ", at);

	if (n >= 0 && (size_t)n < p->size) {
		va_start(args, format);
		vsnprintf(p->message + n, p->size - (size_t)n, format, args);
		va_end(args);
	}
	return -EINVAL;
}

/* The next word up to a blank, a semicolon or the end. Its length, or -EINVAL. */
static int rules_word(struct rules_parser *p, char word[RULE_WORD_BYTES])
{
	size_t len;

	p->at += strspn(p->at, " \t");
	len = strcspn(p->at, " \t;");
	if (len >= RULE_WORD_BYTES)
		return rules_fail(p, "this word is longer than %d characters",
				  RULE_WORD_BYTES - 1);
	memcpy(word, p->at, len);
	word[len] = '\0';
	return (int)len;
}

/* Decimal digits only, so that neither a sign nor a blank slips through. */
static bool rules_number(const char **s, unsigned max, unsigned *value)
{
	uint64_t v = 0;
	const char *start = *s;

	for (; **s >= '0' && **s <= '9'; (*s)++) {
		v = v * 10 + (unsigned)(**s - '0');
		if (v > max)
			return false;
	}
	*value = (unsigned)v;
	return *s != start;
}

static bool rules_range(const char *value, unsigned max, unsigned *low, unsigned *high)
{
	bool good = rules_number(&value, max, low);

	*high = *low;
	if (good && *value == '-') {
		value++;
		good = rules_number(&value, max, high);
	}
	return good && !*value && *low <= *high;
}

static int rules_uid(struct rules_parser *p, struct rule *rule, const char *value)
{
	if (!rules_range(value, RULE_UID_MAX, &rule->uid_low, &rule->uid_high))
		return rules_fail(p, "uid= takes the number of a user, such as `id -u` "
				     "prints, or two with a - between them, the lower "
				     "first");
	rule->any_uid = false;
	return 0;
}

static int rules_port(struct rules_parser *p, struct rule *rule, const char *value)
{
	unsigned low = 0, high = 0;

	if (!rules_range(value, 65535, &low, &high))
		return rules_fail(p, "port= takes a number from 0 to 65535, or two with "
				     "a - between them, the lower first");
	rule->port_low = (uint16_t)low;
	rule->port_high = (uint16_t)high;
	return 0;
}

static int rules_addr(struct rules_parser *p, struct rule *rule, char *value)
{
	char *slash = strchr(value, '/');
	const char *bits = slash ? slash + 1 : NULL;
	unsigned max = 128, length;

	if (slash)
		*slash = '\0';
	memset(&rule->addr, 0, sizeof(rule->addr));
	if (inet_pton(AF_INET, value, &rule->addr.s6_addr[12]) == 1) {
		rule->addr.s6_addr[10] = rule->addr.s6_addr[11] = 0xff;
		max = 32;
	} else if (inet_pton(AF_INET6, value, &rule->addr) != 1) {
		return rules_fail(p,
				  "addr= takes an IPv4 or IPv6 address, "
				  "with /LENGTH after it if wanted; '%s' is neither",
				  value);
	}
	length = max;
	if (bits && (!rules_number(&bits, max, &length) || *bits))
		return rules_fail(p, "the prefix length must be from 0 to %u", max);
	rule->prefix_bits = length + 128 - max;
	rule->any_addr = false;
	return 0;
}

static int rules_role(struct rules_parser *p, struct rule *rule, const char *value)
{
	rule->any_role = false;
	if (!strcmp(value, "connect"))
		rule->role = CONFIG_CONNECT;
	else if (!strcmp(value, "accept"))
		rule->role = CONFIG_ACCEPT;
	else
		return rules_fail(p, "role= takes connect or accept, not '%s'", value);
	return 0;
}

static int rules_program(struct rules_parser *p, struct rule *rule, const char *value)
{
	if (!*value || strlen(value) >= RULE_PROGRAM_BYTES)
		return rules_fail(p, "program= takes a pattern of 1 to %d characters",
				  RULE_PROGRAM_BYTES - 1);
	if (strchr(value, '/'))
		return rules_fail(p, "program= takes a base name, without /");
	strcpy(rule->program, value);
	return 0;
}

static int rules_condition(struct rules_parser *p, struct rule *rule, char *word)
{
	char *equals = strchr(word, '=');

	if (equals) {
		char *value = equals + 1;
		*equals = '\0';
		if (!strcmp(word, "program"))
			return rules_program(p, rule, value);
		if (!strcmp(word, "port"))
			return rules_port(p, rule, value);
		if (!strcmp(word, "addr"))
			return rules_addr(p, rule, value);
		if (!strcmp(word, "role"))
			return rules_role(p, rule, value);
		if (!strcmp(word, "uid"))
			return rules_uid(p, rule, value);
	}
	return rules_fail(p,
			  "'%s' is not known here; after allow or deny come program=, "
			  "uid=, port=, addr= and role=",
			  word);
}

static int rules_one(struct rules_parser *p, struct rule *rule)
{
	char word[RULE_WORD_BYTES];
	int len = rules_word(p, word);

	if (len < 0)
		return len;
	*rule = (struct rule){.any_role = true,
			      .any_addr = true,
			      .any_uid = true,
			      .port_high = 65535,
			      .text = p->at};
	rule->allow = !strcmp(word, "allow");
	if (!rule->allow && strcmp(word, "deny") != 0)
		return rules_fail(p, "a rule begins with allow or deny, not '%s'", word);
	for (;;) {
		p->at += len;
		rule->length = (int)(p->at - rule->text);
		len = rules_word(p, word);
		if (len <= 0)
			return len;
		int err = rules_condition(p, rule, word);
		if (err)
			return err;
	}
}

static int rules_all(struct rules_parser *p, struct rules *rules)
{
	for (;;) {
		/* Empty rules are fine: a list may end with a semicolon. */
		p->at += strspn(p->at, " \t;");
		if (!*p->at)
			return 0;
		p->number++;
		if (rules->count == RULES_MAX) {
			rules_fail(p,
				   "more than %d rules: join some of them, by ranges of "
				   "ports or by networks",
				   RULES_MAX);
			return -ENOSPC;
		}
		int err = rules_one(p, &rules->rule[rules->count]);
		if (err)
			return err;
		rules->count++;
	}
}

int rules_parse(const char *text, struct rules *rules, char *message, size_t size)
{
	struct rules_parser p = {text, text, true, 0, message, size};

	rules->count = 0;
	return rules_all(&p, rules);
}

int rules_add(const char *text, struct rules *rules, char *message, size_t size)
{
	struct rules_parser p = {text, text, false, 0, message, size};
	unsigned before = rules->count;
	int err = rules_all(&p, rules);

	if (err)
		rules->count = before;
	return err;
}

bool rules_fit_program(const char *glob, const char *exe, const char *argv0)
{
	return fnmatch(glob, exe, 0) == 0 || fnmatch(glob, argv0, 0) == 0;
}

void rules_keep_program(struct rules *rules, const char *exe, const char *argv0)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < rules->count; i++) {
		const char *glob = rules->rule[i].program;
		if (!*glob || rules_fit_program(glob, exe, argv0))
			rules->rule[kept++] = rules->rule[i];
	}
	rules->count = kept;
}

/* The server's address in the rules' form; false for a family that TCP does not have. */
static bool rules_server(const struct sockaddr *sa, struct in6_addr *addr, uint16_t *port)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
		memset(addr, 0, 10);
		memset(addr->s6_addr + 10, 0xff, 2);
		memcpy(addr->s6_addr + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
		*addr = in6->sin6_addr;
		*port = ntohs(in6->sin6_port);
		return true;
	}
	return false;
}

/* Who runs it may change while it runs: a server gives its rights up, for example. */
static bool rules_uid_matches(const struct rule *rule)
{
	uid_t uid = rule->any_uid ? 0 : kernel_geteuid();

	return rule->any_uid || (uid >= rule->uid_low && uid <= rule->uid_high);
}

static bool rules_addr_matches(const struct rule *rule, const struct in6_addr *addr)
{
	unsigned bytes = rule->prefix_bits / 8, rest = rule->prefix_bits % 8;
	bool for_ipv4 = IN6_IS_ADDR_V4MAPPED(&rule->addr) && rule->prefix_bits >= 96;

	if (rule->any_addr)
		return true;
	/* ::/0 means every IPv6 address, not every address. */
	if (for_ipv4 != (bool)IN6_IS_ADDR_V4MAPPED(addr))
		return false;
	if (memcmp(rule->addr.s6_addr, addr->s6_addr, bytes) != 0)
		return false;
	return !rest ||
	       ((rule->addr.s6_addr[bytes] ^ addr->s6_addr[bytes]) >> (8 - rest)) == 0;
}

bool rules_deny_all(const struct rules *rules)
{
	const struct rule *r = rules->rule;

	return rules->count && !r->allow && r->any_role && r->any_addr && r->any_uid &&
	       r->port_low == 0 && r->port_high == 65535;
}

bool rules_allow(const struct rules *rules, enum config_role role,
		 const struct sockaddr *server)
{
	struct in6_addr addr;
	uint16_t port;

	if (!rules_server(server, &addr, &port))
		return false;
	for (unsigned i = 0; i < rules->count; i++) {
		const struct rule *rule = &rules->rule[i];
		if ((rule->any_role || rule->role == role) && port >= rule->port_low &&
		    port <= rule->port_high && rules_addr_matches(rule, &addr) &&
		    rules_uid_matches(rule))
			return rule->allow;
	}
	return true;
}
