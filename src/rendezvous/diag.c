/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel which socket of this network namespace has a given pair of addresses.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "rendezvous/diag.h"
#include "rendezvous/netlink.h"
#include "rendezvous/socket_cache.h"

struct diag_request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

union diag_reply {
	struct nlmsghdr head;
	char bytes[1024];
};

static struct kept diag_kept;
static _Atomic uint32_t diag_sequence;

static void diag_set_address(__be32 to[4], const struct name_end *end, int family)
{
	if (family == AF_INET)
		memcpy(to, end->addr + 12, 4);
	else
		memcpy(to, end->addr, 16);
}

/* Of a TCP socket alone the kernel tells both; what it tells of another protocol's looks like it else. */
#define DIAG_TCP_EXTRAS (1u << (INET_DIAG_INFO - 1) | 1u << (INET_DIAG_CONG - 1))
/* More than other protocols' have, and no more than those of old kernels. */
#define DIAG_TCP_INFO_LEAST 192u

/* The number of lo, by which what is on one host goes: so one that is bound to it is found, too, and one that is
 * bound to nothing by any number. */
#define LOOPBACK 1

static int diag_send(int nl, int family, const struct name_end *local,
		     const struct name_end *peer, uint32_t scope, uint32_t sequence,
		     unsigned extras)
{
	struct diag_request q;

	memset(&q, 0, sizeof(q));
	q.head.nlmsg_len = sizeof(q);
	q.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q.head.nlmsg_flags = NLM_F_REQUEST;
	q.head.nlmsg_seq = sequence;
	q.body.sdiag_family = (uint8_t)family;
	q.body.sdiag_protocol = IPPROTO_TCP;
	q.body.idiag_ext = (uint8_t)extras;
	q.body.idiag_states = ~0u;
	q.body.id.idiag_sport = local->port;
	q.body.id.idiag_dport = peer->port;
	diag_set_address(q.body.id.idiag_src, local, family);
	diag_set_address(q.body.id.idiag_dst, peer, family);
	q.body.id.idiag_if = scope ? scope : LOOPBACK;
	q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	/* The destination of an unconnected netlink socket is the kernel. */
	long n = kernel_call6(SYS_sendto, nl, (long)&q, sizeof(q), MSG_DONTWAIT, 0, 0);
	return n < 0 ? (int)n : 0;
}

static void diag_read_end(struct name_end *to, int family, const __be32 addr[4],
			  __be16 port)
{
	memset(to, 0, sizeof(*to));
	if (family == AF_INET) {
		to->addr[10] = to->addr[11] = 0xff;
		memcpy(to->addr + 12, addr, 4);
	} else {
		memcpy(to->addr, addr, 16);
	}
	to->port = port;
}

static bool diag_has_extras(const union diag_reply *reply)
{
	size_t left = reply->head.nlmsg_len - NLMSG_SPACE(sizeof(struct inet_diag_msg));
	const char *at = reply->bytes + NLMSG_SPACE(sizeof(struct inet_diag_msg));
	bool info = false, cong = false;

	if (reply->head.nlmsg_len < NLMSG_SPACE(sizeof(struct inet_diag_msg)))
		return false;
	while (left >= sizeof(struct nlattr)) {
		const struct nlattr *a = (const struct nlattr *)at;
		size_t size = NLA_ALIGN(a->nla_len);

		if (a->nla_len < sizeof(*a) || a->nla_len > left)
			break;
		info |= a->nla_type == INET_DIAG_INFO &&
			a->nla_len >= sizeof(*a) + DIAG_TCP_INFO_LEAST;
		cong |= a->nla_type == INET_DIAG_CONG;
		if (size >= left)
			break;
		at += size;
		left -= size;
	}
	return info && cong;
}

/* The kernel falls back to listeners and to sockets that are over: those do not count. */
static int diag_read(const union diag_reply *reply, const struct name_end *local,
		     const struct name_end *peer, struct diag_socket *out)
{
	const struct inet_diag_msg *m = NLMSG_DATA(&reply->head);
	struct name_end src, dst;

	if (reply->head.nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *e = NLMSG_DATA(&reply->head);
		if (reply->head.nlmsg_len < NLMSG_LENGTH(sizeof(*e)))
			return -EPROTO;
		return e->error == -ENOENT ? 0 : e->error < 0 ? e->error : -EPROTO;
	}
	if (reply->head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    reply->head.nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return -EPROTO;
	diag_read_end(&src, m->idiag_family, m->id.idiag_src, m->id.idiag_sport);
	diag_read_end(&dst, m->idiag_family, m->id.idiag_dst, m->id.idiag_dport);
	if (!name_end_equal(&src, local) || !name_end_equal(&dst, peer) ||
	    m->idiag_state == TCP_LISTEN || m->idiag_state == TCP_TIME_WAIT ||
	    m->idiag_state == TCP_CLOSE)
		return 0;
	out->cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
	out->uid = m->idiag_uid;
	out->inode = m->idiag_inode;
	out->state = m->idiag_state;
	return 1;
}

int diag_hear(int nl, uint32_t sequence, const struct name_end *local,
	      const struct name_end *peer, bool extras, struct diag_socket *out)
{
	union diag_reply reply;
	int r = netlink_receive(nl, sequence, &reply.head, sizeof(reply));

	if (r == 0)
		r = diag_read(&reply, local, peer, out);
	return r == 1 && extras && !diag_has_extras(&reply) ? -EPROTO : r;
}

static int diag_ask(int nl, int family, const struct name_end *local,
		    const struct name_end *peer, uint32_t scope, uint32_t sequence,
		    unsigned extras, struct diag_socket *out)
{
	int r = diag_send(nl, family, local, peer, scope, sequence, extras);

	return r < 0 ? r : diag_hear(nl, sequence, local, peer, extras, out);
}

static int diag_ask_both(int nl, const struct name_end *local,
			 const struct name_end *peer, uint32_t scope, uint32_t sequence,
			 unsigned extras, struct diag_socket *out)
{
	bool v4 = name_is_v4(local) && name_is_v4(peer);
	int r = diag_ask(nl, v4 ? AF_INET : AF_INET6, local, peer, scope, sequence,
			 extras, out);

	/* An IPv4 look-up also finds sockets that speak IPv4 through AF_INET6; a kernel
	 * where it does not has them under the other family. */
	if (r == 0 && v4)
		r = diag_ask(nl, AF_INET6, local, peer, scope, sequence + 1, extras, out);
	return r;
}

int diag_lookup_on(int nl, const struct name_end *local, const struct name_end *peer,
		   struct diag_socket *out)
{
	uint32_t sequence;
	long n = kernel_call4(SYS_getrandom, (long)&sequence, sizeof(sequence),
			      GRND_NONBLOCK, 0);

	/* An answer to a question of before must not be taken for one to ours. */
	if (n != sizeof(sequence))
		return n < 0 ? (int)n : -EAGAIN;
	/* Whose socket this is may ask, too, of another protocol, with that sequence number. */
	return diag_ask_both(nl, local, peer, 0, sequence, DIAG_TCP_EXTRAS, out);
}

int diag_lookup(uint64_t netns, const struct name_end *local, const struct name_end *peer,
		uint32_t scope, struct diag_socket *out)
{
	int nl, r;

	nl = kept_take(&diag_kept, AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG, netns);
	if (nl < 0) {
		log_debug("no socket to ask for sockets (AF_NETLINK, sock_diag): %s",
			  strerror(-nl));
		return nl;
	}
	r = diag_ask_both(nl, local, peer, scope, fetch_add_relaxed(&diag_sequence, 2), 0,
			  out);
	kept_give(&diag_kept, nl);
	if (r < 0)
		log_debug("sock_diag does not answer: %s", strerror(-r));
	return r;
}

static int diag_unix_send(int nl, uint32_t inode, uint32_t sequence)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req body;
	} q;

	memset(&q, 0, sizeof(q));
	q.head.nlmsg_len = sizeof(q);
	q.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q.head.nlmsg_flags = NLM_F_REQUEST;
	q.head.nlmsg_seq = sequence;
	q.body.sdiag_family = AF_UNIX;
	q.body.udiag_states = ~0u;
	q.body.udiag_ino = inode;
	q.body.udiag_show = UDIAG_SHOW_PEER;
	q.body.udiag_cookie[0] = q.body.udiag_cookie[1] = INET_DIAG_NOCOOKIE;
	long n = kernel_call6(SYS_sendto, nl, (long)&q, sizeof(q), MSG_DONTWAIT, 0, 0);
	return n < 0 ? (int)n : 0;
}

/* What is asked for alone is there, and first. */
static int diag_unix_read(const union diag_reply *reply, uint32_t inode, uint32_t *peer)
{
	const struct unix_diag_msg *m = NLMSG_DATA(&reply->head);
	const struct nlattr *a =
		(const void *)(reply->bytes + NLMSG_SPACE(sizeof(struct unix_diag_msg)));

	if (reply->head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    reply->head.nlmsg_len <
		    NLMSG_SPACE(sizeof(*m)) + NLA_HDRLEN + sizeof(*peer) ||
	    m->udiag_ino != inode || a->nla_type != UNIX_DIAG_PEER)
		return 0;
	memcpy(peer, (const char *)a + NLA_HDRLEN, sizeof(*peer));
	return 1;
}

int diag_unix_peer(uint64_t netns, uint32_t inode, uint32_t *peer)
{
	uint32_t sequence = fetch_add_relaxed(&diag_sequence, 1);
	union diag_reply reply;
	int nl = kept_take(&diag_kept, AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG, netns), r;

	if (nl < 0)
		return nl;
	r = diag_unix_send(nl, inode, sequence);
	if (r == 0)
		r = netlink_receive(nl, sequence, &reply.head, sizeof(reply));
	kept_give(&diag_kept, nl);
	return r < 0 ? r : diag_unix_read(&reply, inode, peer);
}
