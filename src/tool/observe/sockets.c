/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's list of the TCP sockets of a network namespace. */
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sched.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tool/observe/parts.h"

/* Those of the kernel's states that have, or had, a connection or listen; not TIME_WAIT. */
#define STATES (~((1u << 0) | (1u << 6)))

static void read_end(struct observe_end *to, int family, const __be32 addr[4],
		     __be16 port)
{
	memset(to, 0, sizeof(*to));
	if (family == AF_INET) {
		to->addr.s6_addr[10] = to->addr.s6_addr[11] = 0xff;
		memcpy(to->addr.s6_addr + 12, addr, 4);
	} else {
		memcpy(to->addr.s6_addr, addr, 16);
	}
	to->port = ntohs(port);
}

/* Older kernels have a shorter structure. */
static void read_info(struct observe_socket *s, const struct rtattr *a)
{
	struct tcp_info info;
	size_t len = RTA_PAYLOAD(a);

	memset(&info, 0, sizeof(info));
	memcpy(&info, RTA_DATA(a), len < sizeof(info) ? len : sizeof(info));
	s->bytes_acked = info.tcpi_bytes_acked;
	s->bytes_received = info.tcpi_bytes_received;
	s->segments_out = info.tcpi_data_segs_out;
	s->segments_in = info.tcpi_data_segs_in;
}

static int note_socket(struct observe_list *sockets, const struct nlmsghdr *h,
		       uint64_t netns)
{
	const struct inet_diag_msg *m = NLMSG_DATA(h);
	struct observe_socket *s = observe_add(sockets);
	int left = (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*m)));

	if (!s)
		return -ENOMEM;
	s->inode = m->idiag_inode;
	s->cookie = (uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
	s->netns = netns;
	s->state = m->idiag_state;
	s->unsent = m->idiag_wqueue;
	read_end(&s->local, m->idiag_family, m->id.idiag_src, m->id.idiag_sport);
	read_end(&s->peer, m->idiag_family, m->id.idiag_dst, m->id.idiag_dport);
	for (const struct rtattr *a = (const struct rtattr *)(m + 1); RTA_OK(a, left);
	     a = RTA_NEXT(a, left)) {
		if (a->rta_type == INET_DIAG_INFO)
			read_info(s, a);
		s->layered |= a->rta_type == INET_DIAG_ULP_INFO;
	}
	return 0;
}

/* 1 at the end of the list, 0, -errno. */
static int read_part(struct observe_list *sockets, const char *part, ssize_t n,
		     uint64_t netns)
{
	ssize_t len = n;
	int r = 0;

	for (const struct nlmsghdr *h = (const struct nlmsghdr *)part;
	     r == 0 && NLMSG_OK(h, len); h = NLMSG_NEXT(h, len)) {
		if (h->nlmsg_type == NLMSG_DONE)
			return 1;
		if (h->nlmsg_type == NLMSG_ERROR)
			return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
		if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
			r = note_socket(sockets, h, netns);
	}
	return r;
}

static int list_family(int nl, uint8_t family, struct observe_list *sockets,
		       uint64_t netns)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} q;
	alignas(8) char part[65536];
	int r = 0;

	memset(&q, 0, sizeof(q));
	q.head.nlmsg_len = sizeof(q);
	q.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	q.body.sdiag_family = family;
	q.body.sdiag_protocol = IPPROTO_TCP;
	q.body.idiag_states = STATES;
	q.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
	if (send(nl, &q, sizeof(q), 0) < 0)
		return -errno;
	while (r == 0) {
		ssize_t n = recv(nl, part, sizeof(part), 0);

		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? -errno : read_part(sockets, part, n, netns);
	}
	return r < 0 ? r : 0;
}

/* A netlink socket in the network namespace of that process. */
static int open_there(pid_t pid)
{
	char path[64];
	int there, here, nl = -1, saved;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	there = open(path, O_RDONLY | O_CLOEXEC);
	here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (there >= 0 && here >= 0 && setns(there, CLONE_NEWNET) == 0) {
		nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
		saved = errno;
		if (setns(here, CLONE_NEWNET) != 0)
			perror("viaduct: cannot return to the own network namespace");
		errno = saved;
	}
	saved = errno;
	if (there >= 0)
		close(there);
	if (here >= 0)
		close(here);
	errno = saved;
	return nl;
}

int observe_sockets(struct observe_list *sockets, pid_t pid, uint64_t netns)
{
	int nl = pid ? open_there(pid)
		     : socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int r = nl < 0 ? -errno : list_family(nl, AF_INET, sockets, netns);

	if (r == 0)
		r = list_family(nl, AF_INET6, sockets, netns);
	if (r == -ENOENT) /* this kernel has no IPv6 */
		r = 0;
	if (nl >= 0)
		close(nl);
	return r;
}
