/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel how it rewrites the addresses of a connection, where it lets us. */
#include <errno.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "rendezvous/conntrack.h"
#include "rendezvous/netlink.h"
#include "rendezvous/socket_cache.h"

union conntrack_message {
	struct nlmsghdr head;
	char bytes[2048];
};

/* What an answer says: the packets of the one direction, and those of the other. */
struct conntrack_entry {
	struct name_end from, to;		/* as the client sends them */
	struct name_end answer_from, answer_to; /* as the server sends them */
	uint32_t status;
	uint8_t state;
	bool has_original, has_reply;
};

static struct kept conntrack_kept;
static _Atomic uint32_t conntrack_sequence;
/* The kernel lacks what answers: each question would have it look for a module. */
static _Atomic bool conntrack_is_missing;

/* ---- the question ---- */

static struct nlattr *put(union conntrack_message *m, unsigned type, const void *data,
			  size_t size)
{
	struct nlattr *a = (struct nlattr *)(m->bytes + m->head.nlmsg_len);

	a->nla_type = (uint16_t)type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	if (size > 0)
		memcpy((char *)a + NLA_HDRLEN, data, size);
	m->head.nlmsg_len += (uint32_t)NLA_ALIGN(a->nla_len);
	return a;
}

static void put_end(union conntrack_message *m, struct nlattr *nest)
{
	nest->nla_len = (uint16_t)(m->bytes + m->head.nlmsg_len - (char *)nest);
}

static void put_tuple(union conntrack_message *m, unsigned type,
		      const struct name_end *src, const struct name_end *dst, bool v4)
{
	const uint8_t tcp = IPPROTO_TCP;
	struct nlattr *tuple = put(m, type | NLA_F_NESTED, NULL, 0);
	struct nlattr *part = put(m, CTA_TUPLE_IP | NLA_F_NESTED, NULL, 0);

	if (v4) {
		put(m, CTA_IP_V4_SRC, src->addr + 12, 4);
		put(m, CTA_IP_V4_DST, dst->addr + 12, 4);
	} else {
		put(m, CTA_IP_V6_SRC, src->addr, 16);
		put(m, CTA_IP_V6_DST, dst->addr, 16);
	}
	put_end(m, part);
	part = put(m, CTA_TUPLE_PROTO | NLA_F_NESTED, NULL, 0);
	put(m, CTA_PROTO_NUM, &tcp, 1);
	put(m, CTA_PROTO_SRC_PORT, &src->port, 2);
	put(m, CTA_PROTO_DST_PORT, &dst->port, 2);
	put_end(m, part);
	put_end(m, tuple);
}

/* The sender's own packets are asked for, which the kernel finds in either direction. */
static int conntrack_send(int nl, const struct name_end *src, const struct name_end *dst,
			  bool v4, uint32_t sequence)
{
	struct nfgenmsg family = {.nfgen_family = v4 ? AF_INET : AF_INET6,
				  .version = NFNETLINK_V0};
	union conntrack_message q;
	long n;

	memset(&q, 0, sizeof(q));
	q.head.nlmsg_len = NLMSG_LENGTH(sizeof(family));
	q.head.nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;
	q.head.nlmsg_flags = NLM_F_REQUEST;
	q.head.nlmsg_seq = sequence;
	memcpy(NLMSG_DATA(&q.head), &family, sizeof(family));
	put_tuple(&q, CTA_TUPLE_ORIG, src, dst, v4);
	/* The destination of an unconnected netlink socket is the kernel. */
	n = kernel_call6(SYS_sendto, nl, (long)&q, q.head.nlmsg_len, MSG_DONTWAIT, 0, 0);
	return n < 0 ? (int)n : 0;
}

/* ---- the answer ---- */

/* The attributes of one level, of the types below `most`; others are passed over. */
static void split(const void *at, size_t left, const struct nlattr **out, unsigned most)
{
	const char *p = at;

	memset(out, 0, most * sizeof(*out));
	while (left >= sizeof(struct nlattr)) {
		const struct nlattr *a = (const struct nlattr *)p;
		size_t size = NLA_ALIGN(a->nla_len);
		unsigned type = a->nla_type & NLA_TYPE_MASK;

		if (a->nla_len < NLA_HDRLEN || a->nla_len > left)
			return;
		if (type < most)
			out[type] = a;
		if (size >= left)
			return;
		p += size;
		left -= size;
	}
}

static void split_nest(const struct nlattr *nest, const struct nlattr **out,
		       unsigned most)
{
	split((const char *)nest + NLA_HDRLEN, nest->nla_len - NLA_HDRLEN, out, most);
}

static bool get(const struct nlattr *a, void *to, size_t size)
{
	if (!a || a->nla_len != NLA_HDRLEN + size)
		return false;
	memcpy(to, (const char *)a + NLA_HDRLEN, size);
	return true;
}

static bool get_address(const struct nlattr *v4, const struct nlattr *v6,
			struct name_end *to)
{
	memset(to, 0, sizeof(*to));
	if (v6)
		return get(v6, to->addr, 16);
	to->addr[10] = to->addr[11] = 0xff;
	return get(v4, to->addr + 12, 4);
}

static bool get_tuple(const struct nlattr *tuple, struct name_end *src,
		      struct name_end *dst)
{
	const struct nlattr *parts[CTA_TUPLE_MAX + 1], *ip[CTA_IP_MAX + 1],
		*proto[CTA_PROTO_MAX + 1];
	uint8_t number;

	if (!tuple)
		return false;
	split_nest(tuple, parts, CTA_TUPLE_MAX + 1);
	if (!parts[CTA_TUPLE_IP] || !parts[CTA_TUPLE_PROTO])
		return false;
	split_nest(parts[CTA_TUPLE_IP], ip, CTA_IP_MAX + 1);
	split_nest(parts[CTA_TUPLE_PROTO], proto, CTA_PROTO_MAX + 1);
	return get_address(ip[CTA_IP_V4_SRC], ip[CTA_IP_V6_SRC], src) &&
	       get_address(ip[CTA_IP_V4_DST], ip[CTA_IP_V6_DST], dst) &&
	       get(proto[CTA_PROTO_NUM], &number, 1) && number == IPPROTO_TCP &&
	       get(proto[CTA_PROTO_SRC_PORT], &src->port, 2) &&
	       get(proto[CTA_PROTO_DST_PORT], &dst->port, 2);
}

static uint8_t get_state(const struct nlattr *info)
{
	const struct nlattr *kinds[CTA_PROTOINFO_MAX + 1],
		*tcp[CTA_PROTOINFO_TCP_MAX + 1];
	uint8_t state = TCP_CONNTRACK_NONE;

	if (!info)
		return state;
	split_nest(info, kinds, CTA_PROTOINFO_MAX + 1);
	if (!kinds[CTA_PROTOINFO_TCP])
		return state;
	split_nest(kinds[CTA_PROTOINFO_TCP], tcp, CTA_PROTOINFO_TCP_MAX + 1);
	get(tcp[CTA_PROTOINFO_TCP_STATE], &state, 1);
	return state;
}

/* 1, 0: there is none, or -errno. */
static int conntrack_read(const union conntrack_message *reply, struct conntrack_entry *e)
{
	const size_t before = NLMSG_SPACE(sizeof(struct nfgenmsg));
	const struct nlattr *attrs[CTA_MAX + 1];

	if (reply->head.nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *error = NLMSG_DATA(&reply->head);
		if (reply->head.nlmsg_len < NLMSG_LENGTH(sizeof(*error)))
			return -EPROTO;
		return error->error == -ENOENT ? 0
		       : error->error < 0      ? error->error
					       : -EPROTO;
	}
	if (reply->head.nlmsg_type != (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW) ||
	    reply->head.nlmsg_len < before)
		return -EPROTO;
	split(reply->bytes + before, reply->head.nlmsg_len - before, attrs, CTA_MAX + 1);
	memset(e, 0, sizeof(*e));
	if (!get_tuple(attrs[CTA_TUPLE_ORIG], &e->from, &e->to) ||
	    !get_tuple(attrs[CTA_TUPLE_REPLY], &e->answer_from, &e->answer_to) ||
	    !get(attrs[CTA_STATUS], &e->status, sizeof(e->status)))
		return -EPROTO;
	e->status = ntohl(e->status);
	e->state = get_state(attrs[CTA_PROTOINFO]);
	return 1;
}

/* An entry that has not seen both ends agree says nothing about a connection that both have. */
static bool is_established(const struct conntrack_entry *e)
{
	return (e->status & IPS_ASSURED) && e->state == TCP_CONNTRACK_ESTABLISHED;
}

/* By an entry whose one direction is exactly what we send. */
static int conntrack_judge(const struct conntrack_entry *e, const struct name_tuple *own,
			   enum tcp_role role, struct name_tuple *other)
{
	*other = *own;
	if (!is_established(e))
		return 0;
	if (role == TCP_ROLE_CONNECTED) {
		if (!name_end_equal(&e->from, &own->client) ||
		    !name_end_equal(&e->to, &own->server))
			return 0;
		other->client = e->answer_to;
		other->server = e->answer_from;
		return 1;
	}
	if (!name_end_equal(&e->answer_from, &own->server) ||
	    !name_end_equal(&e->answer_to, &own->client))
		return 0;
	other->client = e->from;
	other->server = e->to;
	return 1;
}

int conntrack_ask(uint64_t netns, const struct name_tuple *own, enum tcp_role role,
		  struct name_tuple *other)
{
	bool connected = role == TCP_ROLE_CONNECTED;
	const struct name_end *src = connected ? &own->client : &own->server;
	const struct name_end *dst = connected ? &own->server : &own->client;
	uint32_t sequence = fetch_add_relaxed(&conntrack_sequence, 1);
	union conntrack_message reply;
	struct conntrack_entry e;
	int nl, r;

	/* Only root of the namespace is answered: most others are told so here, by one call. */
	if (load_relaxed(&conntrack_is_missing) || !netlink_may_administer(0))
		return -EPERM;
	nl = kept_take(&conntrack_kept, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, netns);
	if (nl == -EPROTONOSUPPORT)
		store_relaxed(&conntrack_is_missing, true);
	if (nl < 0)
		return nl;
	r = conntrack_send(nl, src, dst, name_is_v4(src) && name_is_v4(dst), sequence);
	if (r == 0)
		r = netlink_receive(nl, sequence, &reply.head, sizeof(reply));
	if (r == 0)
		r = conntrack_read(&reply, &e);
	if (r == -EINVAL)
		store_relaxed(&conntrack_is_missing, true);
	/* Who has opened it counts as well as who asks: we may not have been allowed to then. */
	if (r == -EPERM)
		fds_close(nl);
	else
		kept_give(&conntrack_kept, nl);
	if (r < 0 && r != -EPERM)
		log_debug("conntrack does not answer: %s", strerror(-r));
	return r == 1 ? conntrack_judge(&e, own, role, other) : r;
}
