/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the kernel's TCP: loopback, its counts, its names for sockets, and sock_diag. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/tcp.h"
#include "tool/doctor/doctor.h"

enum { LOOKUPS = 101, SENT = 5, READ = 2, PAIR_LIMIT_S = 1, SO_MEMINFO_WORDS = 9 };

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

/* Once known: no second's wait for each check that needs it. */
static bool no_loopback;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The name of the call that failed, with errno; NULL when there is a connection. */
static const char *connect_fault(int listener, int ends[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	/* Where a filter drops loopback's packets connect would wait for minutes. */
	struct timeval limit = {.tv_sec = PAIR_LIMIT_S};
	socklen_t len = sizeof(at);

	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (bind(listener, (struct sockaddr *)&at, len) != 0 || listen(listener, 1) != 0)
		return "listening on 127.0.0.1";
	if (getsockname(listener, (struct sockaddr *)&at, &len) != 0)
		return "getsockname";
	if (connect(ends[0], (struct sockaddr *)&at, len) != 0)
		return "connecting to 127.0.0.1";
	ends[1] = accept(listener, NULL, NULL);
	return ends[1] < 0 ? "accepting over 127.0.0.1" : NULL;
}

static void pair_close(int ends[2])
{
	int err = errno;

	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	errno = err;
}

/* Two ends of a connection over loopback: ends[0] has connected, ends[1] was accepted. */
static const char *pair_make(int ends[2])
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *fault = "making a TCP socket";

	ends[1] = -1;
	ends[0] = listener < 0 ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ends[0] >= 0)
		fault = connect_fault(listener, ends);
	if (fault)
		pair_close(ends);
	int err = errno == EINPROGRESS || errno == EAGAIN ? ETIMEDOUT : errno;
	if (listener >= 0)
		close(listener);
	errno = err;
	return fault;
}

void check_loopback(struct finding *f)
{
	uint64_t start = now_ns();
	int ends[2];
	const char *fault = pair_make(ends);
	int err = errno;

	no_loopback = fault != NULL;
	if (fault) {
		found(f, "%s failed: %s", fault, strerror(err));
		found_word(f, strerror(err));
		found_trouble(f, FINDING_PROBLEM,
			      "Programs of this host cannot reach each other by TCP.",
			      "Bring loopback up, `ip link set lo up`, and let its "
			      "packets pass the firewall.");
		return;
	}
	pair_close(ends);
	found_number(f, (double)(now_ns() - start) / 1e3, "us");
	found(f, "a TCP connection over 127.0.0.1 was made in %.0f us", f->number);
}

/* A connection for a check that needs one; false when it was told that there is none. */
static bool pair_for(struct finding *f, int ends[2])
{
	if (!no_loopback && !pair_make(ends))
		return true;
	no_loopback = true;
	found(f, "not tried, as there is no TCP connection over loopback");
	found_trouble(f, FINDING_PROBLEM, "Whether it works is not known.",
		      "Look at `loopback` above first.");
	return false;
}

bool loopback_for(struct finding *f)
{
	int ends[2];

	if (!pair_for(f, ends))
		return false;
	pair_close(ends);
	return true;
}

static const char *counts_fault(const int ends[2])
{
	struct pollfd p = {.fd = ends[1], .events = POLLIN};
	uint64_t written = 0, consumed = 0, received = 0;
	uint32_t memory[SO_MEMINFO_WORDS];
	socklen_t len = sizeof(memory);
	char bytes[] = "abcde";
	int r;

	if (send(ends[0], bytes, SENT, MSG_NOSIGNAL) != SENT ||
	    poll(&p, 1, PAIR_LIMIT_S * 1000) != 1 ||
	    recv(ends[1], bytes, READ, 0) != READ)
		return "sending over loopback";
	r = tcp_written(ends[0], TCP_ROLE_CONNECTED, &written);
	if (r == 0)
		r = tcp_consumed(ends[1], &consumed);
	if (r == 0)
		r = tcp_received(ends[1], &received);
	errno = -r;
	if (r < 0)
		return "asking how far a TCP stream is (TCP_INFO, SIOCINQ, SIOCOUTQ)";
	errno = ERANGE;
	if (written != SENT || consumed != READ || received != SENT)
		return "counting a TCP stream's bytes";
	if (getsockopt(ends[1], SOL_SOCKET, SO_MEMINFO, memory, &len) != 0)
		return "asking for a socket's memory (SO_MEMINFO)";
	return NULL;
}

void check_tcp_counts(struct finding *f)
{
	int ends[2];
	const char *fault;

	if (!pair_for(f, ends))
		return;
	fault = counts_fault(ends);
	if (fault)
		found_refused(f, fault, errno);
	else
		found(f, "the kernel told exactly how far a stream was");
	pair_close(ends);
}

void check_netns(struct finding *f)
{
	uint64_t tcp = 0, names = 0, socket_name = 0;
	int a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int b = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int r = a < 0 || b < 0 ? -errno : tcp_cookie(a, &socket_name);

	if (r == 0)
		r = tcp_netns_cookie(a, &tcp);
	if (r == 0)
		r = tcp_netns_cookie(b, &names);
	if (r == 0 && tcp != names)
		r = -EXDEV;
	if (r < 0) {
		found_refused(f,
			      "telling a socket's network namespace (SO_COOKIE, "
			      "SO_NETNS_COOKIE)",
			      -r);
	} else {
		found_number(f, (double)tcp, "");
		found(f, "sockets tell their network namespace: number %.0f", f->number);
	}
	if (a >= 0)
		close(a);
	if (b >= 0)
		close(b);
}

struct question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

static int question_fill(struct question *q, const int ends[2])
{
	struct sockaddr_in local = {0}, peer = {0};
	socklen_t len = sizeof(local), peer_len = sizeof(peer);

	if (getsockname(ends[1], (struct sockaddr *)&local, &len) != 0 ||
	    getpeername(ends[1], (struct sockaddr *)&peer, &peer_len) != 0)
		return -errno;
	memset(q, 0, sizeof(*q));
	q->head.nlmsg_len = sizeof(*q);
	q->head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	q->head.nlmsg_flags = NLM_F_REQUEST;
	q->body.sdiag_family = AF_INET;
	q->body.sdiag_protocol = IPPROTO_TCP;
	q->body.idiag_states = ~0u;
	q->body.id.idiag_sport = local.sin_port;
	q->body.id.idiag_dport = peer.sin_port;
	q->body.id.idiag_src[0] = local.sin_addr.s_addr;
	q->body.id.idiag_dst[0] = peer.sin_addr.s_addr;
	q->body.id.idiag_cookie[0] = q->body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	return 0;
}

/* 0 when the kernel finds the very socket; else -errno. */
static int ask(int nl, const struct question *q, uint64_t cookie)
{
	union {
		struct nlmsghdr head;
		char bytes[1024];
	} reply;
	const struct inet_diag_msg *m = NLMSG_DATA(&reply.head);
	const struct nlmsgerr *e = NLMSG_DATA(&reply.head);
	ssize_t n;

	if (send(nl, q, sizeof(*q), 0) != sizeof(*q))
		return -errno;
	n = recv(nl, &reply, sizeof(reply), MSG_DONTWAIT);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(*e)))
		return n < 0 ? -errno : -EPROTO;
	if (reply.head.nlmsg_type == NLMSG_ERROR)
		return e->error < 0 ? e->error : -EPROTO;
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(*m)) ||
	    ((uint64_t)m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0]) != cookie)
		return -EPROTO;
	return 0;
}

/* Median time of a look-up. 0 or -errno. */
static int lookup_time(int nl, const int ends[2], double *us)
{
	double took[LOOKUPS];
	struct question q;
	uint64_t cookie = 0;
	int r = question_fill(&q, ends);

	if (r == 0)
		r = tcp_cookie(ends[1], &cookie);
	for (int i = 0; r == 0 && i < LOOKUPS; i++) {
		uint64_t start = now_ns();

		r = ask(nl, &q, cookie);
		took[i] = (double)(now_ns() - start) / 1e3;
	}
	if (r == 0)
		*us = median_of(took, LOOKUPS);
	return r;
}

void check_sock_diag(struct finding *f)
{
	int ends[2], nl, r;
	double us = 0;

	if (!pair_for(f, ends))
		return;
	nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	r = nl < 0 ? -errno : lookup_time(nl, ends, &us);
	pair_close(ends);
	if (nl >= 0)
		close(nl);
	if (r == 0) {
		found_number(f, us, "us");
		found(f, "the kernel finds a TCP connection in %.1f us", us);
		return;
	}
	found_refused(f, "looking a TCP connection up (sock_diag)", -r);
	if (r == -ENOENT)
		found_trouble(f, FINDING_PROBLEM, "Every connection stays on TCP.",
			      "Load the kernel's module: `modprobe tcp_diag`.");
}
