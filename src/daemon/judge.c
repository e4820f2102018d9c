/* SPDX-License-Identifier: Apache-2.0 */
/* What the settings say about a user, a connection, a host. */
#include <arpa/inet.h>
#include <fnmatch.h>
#include <string.h>

#include "daemon/settings.h"

static bool net_has(const struct in6_addr *net, unsigned prefix_bits,
		    const uint8_t addr[16])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	unsigned bytes = prefix_bits / 8, rest = prefix_bits % 8;
	bool for_ipv4 = IN6_IS_ADDR_V4MAPPED(net) && prefix_bits >= 96;

	/* ::/0 means every IPv6 address, not every address. */
	if (for_ipv4 != !memcmp(addr, v4, sizeof(v4)) ||
	    memcmp(net->s6_addr, addr, bytes) != 0)
		return false;
	return !rest || ((net->s6_addr[bytes] ^ addr[bytes]) >> (8 - rest)) == 0;
}

static bool rule_has_address(const struct rule *rule, const uint8_t addr[16])
{
	return rule->any_addr || net_has(&rule->addr, rule->prefix_bits, addr);
}

static bool rule_has_port(const struct rule *rule, const struct name_end *end)
{
	uint16_t port = ntohs(end->port);

	return port >= rule->port_low && port <= rule->port_high;
}

#define NAME_MOST 15u /* bytes of a name that the kernel keeps */

static bool rule_has_program(const struct rule *rule, const struct settings_party *party)
{
	const char *glob = rule->program, *name = party->program;
	size_t plain = strcspn(glob, "*?[\\");

	if (!*glob)
		return true;
	if (!name)
		return !rule->allow;
	if (fnmatch(glob, name, 0) == 0)
		return true;
	if (strlen(name) < NAME_MOST ||
	    strncmp(glob, name, plain < NAME_MOST ? plain : NAME_MOST) != 0)
		return false;
	/* It may be longer: what lies behind that many bytes is in doubt. */
	return plain >= NAME_MOST || (glob[plain] && !rule->allow);
}

static bool rule_has_uid(const struct rule *rule, uint32_t uid)
{
	return rule->any_uid || (uid >= rule->uid_low && uid <= rule->uid_high);
}

static bool rule_has_every_port(const struct rule *rule)
{
	return rule->port_low == 0 && rule->port_high == 65535;
}

bool settings_allow(const struct settings *s, const struct settings_party *party,
		    const struct name_end *local, const struct name_end *peer)
{
	for (unsigned i = 0; i < s->rules.count; i++) {
		const struct rule *rule = &s->rules.rule[i];

		if (rule_has_uid(rule, party->uid) &&
		    rule_has_address(rule, peer->addr) &&
		    (rule_has_port(rule, local) || rule_has_port(rule, peer)) &&
		    rule_has_program(rule, party))
			return rule->allow;
	}
	return true;
}

bool settings_may_ask(const struct settings *s, const struct settings_party *party,
		      const uint8_t addr[16])
{
	for (unsigned i = 0; i < s->rules.count; i++) {
		const struct rule *rule = &s->rules.rule[i];

		if (rule_has_uid(rule, party->uid) && rule_has_address(rule, addr) &&
		    rule_has_program(rule, party) &&
		    (rule->allow || rule_has_every_port(rule)))
			return rule->allow;
	}
	return true;
}

bool settings_may_meet(const struct settings *s, const uint8_t addr[16])
{
	for (unsigned i = 0; i < s->peers; i++)
		if (!memcmp(&s->peer[i].daemon, addr, 16))
			return true;
	for (unsigned i = 0; i < s->rules.count; i++) {
		const struct rule *rule = &s->rules.rule[i];

		if (!rule_has_address(rule, addr))
			continue;
		if (rule->allow)
			return true;
		if (rule->any_uid && !*rule->program && rule_has_every_port(rule))
			return false;
	}
	return true;
}

bool settings_speaks_for(const struct settings *s, const uint8_t daemon[16],
			 const struct name_end *end)
{
	if (!memcmp(daemon, end->addr, sizeof(end->addr)))
		return true;
	for (unsigned i = 0; i < s->peers; i++)
		if (!memcmp(&s->peer[i].daemon, daemon, 16) &&
		    net_has(&s->peer[i].net, s->peer[i].prefix_bits, end->addr))
			return true;
	return false;
}

bool settings_daemon_of(const struct settings *s, const uint8_t addr[16],
			uint8_t daemon[16])
{
	for (unsigned i = 0; i < s->peers; i++) {
		if (!net_has(&s->peer[i].net, s->peer[i].prefix_bits, addr))
			continue;
		memcpy(daemon, &s->peer[i].daemon, 16);
		return memcmp(daemon, addr, 16) != 0;
	}
	memcpy(daemon, addr, 16);
	return false;
}
