/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the messages between a process and its daemon, and the addresses in them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "daemon_client/local.h"

static const struct name_end no_end;

static bool no_ends(const struct local_message *m)
{
	return name_end_equal(&m->local, &no_end) && name_end_equal(&m->peer, &no_end);
}

static bool translate_is_good(const struct local_message *m, size_t hello)
{
	struct local_translate t;

	if (hello != sizeof(t))
		return false;
	memcpy(&t, m->hello, sizeof(t));
	return t.accepted <= 1 && t.zero == 0;
}

static bool from_process_is_good(const struct local_message *m, size_t hello)
{
	if (m->uid != 0 || m->wait_ms != 0)
		return false;
	switch (m->type) {
	case LOCAL_PUBLISH:
	case LOCAL_ASK:
		return m->status == LOCAL_OK;
	case LOCAL_WITHDRAW:
		return m->status == LOCAL_OK && hello == 0;
	case LOCAL_PROBE:
		return m->status == LOCAL_OK && hello == 0 && m->local.port == 0 &&
		       m->peer.port == 0;
	case LOCAL_MEET:
		return m->status == LOCAL_OK && hello == sizeof(struct local_meet);
	case LOCAL_TRANSLATE:
		return m->status == LOCAL_OK && translate_is_good(m, hello);
	case LOCAL_ANSWER:
		return no_ends(m) && (m->status == LOCAL_OK ||
				      (m->status == LOCAL_REFUSED && hello == 0));
	default:
		return false;
	}
}

static bool from_daemon_is_good(const struct local_message *m, size_t hello)
{
	switch (m->type) {
	case LOCAL_DONE:
		return no_ends(m) && m->status < LOCAL_STATUS_COUNT &&
		       (m->status == LOCAL_OK || hello == 0);
	case LOCAL_ASKED:
		return m->status == LOCAL_OK && m->wait_ms == 0;
	case LOCAL_PROBED:
		return m->status < LOCAL_STATUS_COUNT && m->uid == 0 &&
		       hello == sizeof(struct local_probed);
	case LOCAL_MET:
		return no_ends(m) && m->status == LOCAL_OK && m->wait_ms == 0 &&
		       hello == sizeof(struct local_met);
	case LOCAL_TRANSLATED:
		if (m->status != LOCAL_OK)
			return m->status < LOCAL_STATUS_COUNT && m->uid == 0 &&
			       hello == 0 && no_ends(m);
		return m->uid == 0 && m->wait_ms == 0 &&
		       hello == sizeof(struct local_translated);
	default:
		return false;
	}
}

enum local_status local_check(const struct local_message *m, size_t bytes,
			      bool from_process)
{
	size_t hello;

	if (bytes < 1)
		return LOCAL_MALFORMED;
	if (m->version != LOCAL_PROTOCOL)
		return LOCAL_VERSION;
	if (bytes < LOCAL_HEAD_BYTES || bytes > sizeof(*m) || m->zero != 0)
		return LOCAL_MALFORMED;
	hello = bytes - LOCAL_HEAD_BYTES;
	return (from_process ? from_process_is_good(m, hello)
			     : from_daemon_is_good(m, hello))
		       ? LOCAL_OK
		       : LOCAL_MALFORMED;
}

const char *local_status_text(unsigned status)
{
	static const char *const texts[] = {
#define X(number, name, text) [number] = text,
		LOCAL_STATUS(X)
#undef X
	};

	return status < LOCAL_STATUS_COUNT ? texts[status] : "unknown status";
}

const char *local_cause_text(uint32_t cause)
{
	static const char *const texts[] = {
#define X(number, name, text) [number] = text,
		LOCAL_CAUSE(X)
#undef X
	};

	return texts[cause < LOCAL_CAUSE_COUNT ? cause : LOCAL_CAUSE_NONE];
}

bool local_status_travels(unsigned status)
{
	return status == LOCAL_OK || status == LOCAL_RATE || status == LOCAL_FULL ||
	       (status >= LOCAL_NOBODY && status <= LOCAL_FOREIGN);
}

static bool address_fits(const struct name_end *end)
{
	struct in6_addr a;

	memcpy(&a, end->addr, sizeof(a));
	if (name_is_v4(end)) {
		uint8_t first = end->addr[12];

		/* This network, loopback, link-local, multicast and beyond. */
		return first != 0 && first != 127 && first < 224 &&
		       !(first == 169 && end->addr[13] == 254);
	}
	return !IN6_IS_ADDR_UNSPECIFIED(&a) && !IN6_IS_ADDR_LOOPBACK(&a) &&
	       !IN6_IS_ADDR_LINKLOCAL(&a) && !IN6_IS_ADDR_MULTICAST(&a) &&
	       !IN6_IS_ADDR_V4COMPAT(&a);
}

bool local_addresses_fit(const struct name_end *local, const struct name_end *peer)
{
	return name_is_v4(local) == name_is_v4(peer) && address_fits(local) &&
	       address_fits(peer) &&
	       memcmp(local->addr, peer->addr, sizeof(local->addr)) != 0;
}

bool local_ends_fit(const struct name_end *local, const struct name_end *peer)
{
	return local->port != 0 && peer->port != 0 && local_addresses_fit(local, peer);
}

const char *local_end_text(const struct name_end *end, char buf[LOCAL_END_TEXT_BYTES])
{
	char addr[INET6_ADDRSTRLEN] = "?";
	bool v4 = name_is_v4(end);

	inet_ntop(v4 ? AF_INET : AF_INET6, end->addr + (v4 ? 12 : 0), addr, sizeof(addr));
	snprintf(buf, LOCAL_END_TEXT_BYTES, v4 ? "%s:%u" : "[%s]:%u", addr,
		 ntohs(end->port));
	return buf;
}
