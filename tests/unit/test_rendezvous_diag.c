/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of a TCP socket, where somebody else may ask by the same socket of ours. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>

#include "rendezvous/diag.h"
#include "unit/test.h"

enum { SEQUENCE = 77 };

struct pair {
	int listener, connected, udp, nl;
	struct sockaddr_in own, peer;
};

static struct name_end end_of(const struct sockaddr_in *a)
{
	struct name_end e = {.addr = {[10] = 0xff, 0xff}, .port = a->sin_port};

	memcpy(e.addr + 12, &a->sin_addr, 4);
	return e;
}

/* A connection, and a UDP socket with the same two ends. */
static struct pair open_pair(void)
{
	struct pair p = {.listener = socket(AF_INET, SOCK_STREAM, 0),
			 .connected = socket(AF_INET, SOCK_STREAM, 0),
			 .udp = socket(AF_INET, SOCK_DGRAM, 0),
			 .nl = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG),
			 .peer = {.sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof(p.peer);

	REQUIRE(bind(p.listener, (struct sockaddr *)&p.peer, size) == 0);
	REQUIRE(listen(p.listener, 1) == 0);
	REQUIRE(getsockname(p.listener, (struct sockaddr *)&p.peer, &size) == 0);
	REQUIRE(connect(p.connected, (struct sockaddr *)&p.peer, size) == 0);
	REQUIRE(getsockname(p.connected, (struct sockaddr *)&p.own, &size) == 0);
	REQUIRE(bind(p.udp, (struct sockaddr *)&p.own, size) == 0);
	REQUIRE(connect(p.udp, (struct sockaddr *)&p.peer, size) == 0);
	REQUIRE(p.nl >= 0);
	return p;
}

static void close_pair(const struct pair *p)
{
	close(p->listener);
	close(p->connected);
	close(p->udp);
	close(p->nl);
}

/* As the library asks, but of any protocol. Of UDP the kernel takes the ends the other way round. */
static void ask(const struct pair *p, uint8_t protocol)
{
	const struct sockaddr_in *own = protocol == IPPROTO_UDP ? &p->peer : &p->own;
	const struct sockaddr_in *peer = protocol == IPPROTO_UDP ? &p->own : &p->peer;
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} q = {.head = {.nlmsg_len = sizeof(q),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST,
			.nlmsg_seq = SEQUENCE}};

	q.body.sdiag_family = AF_INET;
	q.body.sdiag_protocol = protocol;
	q.body.idiag_ext = 1u << (INET_DIAG_INFO - 1) | 1u << (INET_DIAG_CONG - 1);
	q.body.idiag_states = ~0u;
	q.body.id.idiag_sport = own->sin_port;
	q.body.id.idiag_dport = peer->sin_port;
	q.body.id.idiag_src[0] = own->sin_addr.s_addr;
	q.body.id.idiag_dst[0] = peer->sin_addr.s_addr;
	q.body.id.idiag_cookie[0] = q.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	REQUIRE(send(p->nl, &q, sizeof(q), 0) == sizeof(q));
}

TEST(a_connection_is_found)
{
	struct pair p = open_pair();
	struct name_end own = end_of(&p.own), peer = end_of(&p.peer);
	struct diag_socket found;

	CHECK_EQ(diag_lookup_on(p.nl, &own, &peer, &found), 1);
	CHECK_EQ(found.uid, getuid());
	CHECK(found.inode != 0);
	ask(&p, IPPROTO_TCP);
	CHECK_EQ(diag_hear(p.nl, SEQUENCE, &own, &peer, true, &found), 1);
	close_pair(&p);
}

TEST(a_udp_socket_with_the_same_ends_is_no_connection)
{
	struct pair p = open_pair();
	struct name_end own = end_of(&p.own), peer = end_of(&p.peer);
	struct diag_socket found;
	int r;

	ask(&p, IPPROTO_UDP);
	r = diag_hear(p.nl, SEQUENCE, &own, &peer, false, &found);
	if (r != 1) {
		close_pair(&p);
		SKIP("this kernel does not tell of UDP sockets");
	}
	ask(&p, IPPROTO_UDP);
	CHECK_EQ(diag_hear(p.nl, SEQUENCE, &own, &peer, true, &found), -EPROTO);
	close_pair(&p);
}
