/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the hello of a link, byte by byte, and believes nothing in it. */
#include <errno.h>
#include <string.h>

#include "rdma/hello.h"
#include "rdma/link.h"

/*
 * Big endian: magic 4, version 2, bytes 2, features 4, fabric 1, mtu 1, lid 2, qpn 4, psn 4,
 * gid 16, window 8, window_bytes 8, key 4, credits 4, nonce 8, echo 8.
 */
enum {
	HELLO_MAGIC = 0x56444c4b,
	HELLO_VERSION = 1,
	HELLO_HEAD_BYTES = 8,
	NUMBER_MAX = (1 << 24) - 1, /* of queue pairs and packets */
	LID_MAX = 0xbfff,	    /* those above are of groups */
};
#define WINDOW_MAX (UINT64_C(1) << 47)

static uint8_t *put(uint8_t *to, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		to[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
	return to + bytes;
}

static uint64_t get(const uint8_t **from, unsigned bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *(*from)++;
	return value;
}

void link_hello_put(uint8_t *to, const struct link_address *a)
{
	to = put(to, HELLO_MAGIC, 4);
	to = put(to, HELLO_VERSION, 2);
	to = put(to, LINK_HELLO_BYTES, 2);
	to = put(to, 0, 4);
	to = put(to, a->fabric, 1);
	to = put(to, a->mtu, 1);
	to = put(to, a->lid, 2);
	to = put(to, a->qpn, 4);
	to = put(to, a->psn, 4);
	memcpy(to, a->gid, sizeof(a->gid));
	to = put(to + sizeof(a->gid), a->window, 8);
	to = put(to, a->window_bytes, 8);
	to = put(to, a->key, 4);
	to = put(to, a->credits, 4);
	to = put(to, a->nonce, 8);
	put(to, a->echo, 8);
}

/* NULL, or what is wrong. */
static const char *gid_wrong(const struct link_address *a)
{
	static const uint8_t none[sizeof(a->gid)];

	if (a->fabric == FABRIC_FAKE)
		return NULL;
	if (memcmp(a->gid, none, sizeof(none)) == 0 || a->gid[0] == 0xff)
		return "the hello's GID is not that of a port";
	if (a->fabric == FABRIC_ROCE2)
		return a->lid ? "the hello has a LID, which RoCE has not" : NULL;
	return a->lid == 0 || a->lid > LID_MAX ? "the hello's LID is not that of a port"
					       : NULL;
}

static const char *values_wrong(const struct link_address *a)
{
	if (a->mtu < 1 || a->mtu > 5)
		return "the hello's MTU is none of those that there are";
	if (a->qpn < 2 || a->qpn > NUMBER_MAX)
		return "the hello's queue pair number is out of range";
	if (a->psn > NUMBER_MAX)
		return "the hello's packet number is out of range";
	if (a->window_bytes == 0 || a->window_bytes > WINDOW_MAX ||
	    a->window + a->window_bytes < a->window)
		return "the hello's window is no range of memory";
	if (a->credits < LINK_CREDITS_MIN || a->credits > LINK_CREDITS_MAX)
		return "the hello's credits are out of range";
	if (a->nonce == 0)
		return "the hello has no nonce";
	return gid_wrong(a);
}

static void get_values(const uint8_t *from, struct link_address *a)
{
	memset(a, 0, sizeof(*a));
	a->fabric = (uint8_t)get(&from, 1);
	a->mtu = (uint8_t)get(&from, 1);
	a->lid = (uint16_t)get(&from, 2);
	a->qpn = (uint32_t)get(&from, 4);
	a->psn = (uint32_t)get(&from, 4);
	memcpy(a->gid, from, sizeof(a->gid));
	from += sizeof(a->gid);
	a->window = get(&from, 8);
	a->window_bytes = get(&from, 8);
	a->key = (uint32_t)get(&from, 4);
	a->credits = (uint32_t)get(&from, 4);
	a->nonce = get(&from, 8);
	a->echo = get(&from, 8);
}

static int refuse(int error, const char *sentence, const char **why)
{
	*why = sentence;
	return error;
}

int link_hello_get(const uint8_t *from, size_t bytes, struct link_address *out,
		   const char **why)
{
	struct link_address a;
	const char *wrong;
	uint64_t version;

	/* What another version's looks like is known only this far. */
	if (bytes < HELLO_HEAD_BYTES || get(&from, 4) != HELLO_MAGIC)
		return refuse(-EPROTO, "this is no hello of a link", why);
	version = get(&from, 2);
	if (version != HELLO_VERSION)
		return refuse(-EPROTONOSUPPORT, "the hello is of another version", why);
	if (bytes != LINK_HELLO_BYTES || get(&from, 2) != LINK_HELLO_BYTES)
		return refuse(-EPROTO, "the hello has another length", why);
	if (get(&from, 4) != 0)
		return refuse(-EPROTONOSUPPORT, "the hello asks for an unknown feature",
			      why);
	get_values(from, &a);
	if (a.fabric < FABRIC_ROCE2 || a.fabric > FABRIC_FAKE)
		return refuse(-EPROTONOSUPPORT, "the hello is of an unknown interconnect",
			      why);
	wrong = values_wrong(&a);
	if (wrong)
		return refuse(-EPROTO, wrong, why);
	*out = a;
	return 0;
}

bool link_hello_is_at(const uint8_t hello[LINK_HELLO_BYTES], const uint8_t address[16])
{
	static const uint8_t none[16];
	struct link_address a;
	const char *why;

	/* link_connect will say what is wrong with it. */
	if (link_hello_get(hello, LINK_HELLO_BYTES, &a, &why) < 0 ||
	    a.fabric == FABRIC_INFINIBAND)
		return true;
	if (a.fabric == FABRIC_FAKE && memcmp(a.gid, none, sizeof(none)) == 0)
		return true;
	return memcmp(a.gid, address, sizeof(a.gid)) == 0;
}
