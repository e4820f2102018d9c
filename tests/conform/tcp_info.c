/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: TCP_INFO, by which programs find connections that are idle. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"

/* So long is idle; and less than that is not. A thread that is stopped in between makes what is
 * busy look idle: then once more. */
enum { IDLE_MS = 600, SHORT_MS = 300, TRIES = 20 };

static struct tcp_info info_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info;
}

static void idle(void)
{
	nanosleep(&(struct timespec){.tv_nsec = IDLE_MS * 1000000l}, NULL);
}

static void say_idle(const char *who, int fd)
{
	struct tcp_info info = info_of(fd);
	say("%s: sent %d, received %d, acknowledged %d", who,
	    info.tcpi_last_data_sent >= SHORT_MS, info.tcpi_last_data_recv >= SHORT_MS,
	    info.tcpi_last_ack_recv >= SHORT_MS);
}

static void one_to(int from, int to)
{
	send_pattern(from, 0, 10);
	recv_pattern(to, 0, 10);
}

/* Whether TCP_INFO sees it soon after it was sent. */
static void say_busy(struct pair p)
{
	bool sent = false, came = false, acked = false;
	for (int i = 0; i < TRIES && !(sent && came && acked); i++) {
		one_to(p.c, p.s);
		sent |= info_of(p.c).tcpi_last_data_sent < SHORT_MS;
		came |= info_of(p.s).tcpi_last_data_recv < SHORT_MS;
		one_to(p.s, p.c);
		acked |= info_of(p.c).tcpi_last_ack_recv < SHORT_MS;
	}
	say("seen: sent %d, received %d, acknowledged %d", sent, came, acked);
}

CASE(info_of_a_busy_connection, STAYS)
{
	struct pair p = pair_warm_open();
	for (int i = 0; i < 3; i++) {
		idle();
		say_busy(p);
	}
	pair_close(p);
}

CASE(info_of_an_idle_connection, STAYS)
{
	struct pair p = pair_warm_open();
	for (int i = 0; i < 2; i++) {
		idle();
		say_idle("connected", p.c);
		say_idle("accepted", p.s);
		say_busy(p);
	}
	idle();
	say_idle("connected", p.c);
	pair_close(p);
}

/* Nobody has asked while it was at work. */
CASE(info_after_much_work, STAYS)
{
	struct pair p = pair_warm_open();
	for (int i = 0; i < 3000; i++) {
		one_to(p.c, p.s);
		one_to(p.s, p.c);
	}
	say_busy(p);
	for (int i = 0; i < 3000; i++)
		one_to(p.c, p.s);
	idle();
	say_idle("connected", p.c);
	say_idle("accepted", p.s);
	pair_close(p);
}

/* Only one end sends: the other's times are the kernel's. */
CASE(info_one_way, STAYS)
{
	struct pair p = pair_warm_open();
	bool sent = false, came = false;
	idle();
	for (int i = 0; i < TRIES && !(sent && came); i++) {
		one_to(p.c, p.s);
		sent |= info_of(p.c).tcpi_last_data_sent < SHORT_MS;
		came |= info_of(p.s).tcpi_last_data_recv < SHORT_MS;
	}
	say("seen: sent %d, received %d", sent, came);
	say("nothing came back: %d %d", info_of(p.c).tcpi_last_data_recv >= SHORT_MS,
	    info_of(p.s).tcpi_last_data_sent >= SHORT_MS);
	pair_close(p);
}

static void peer_answers(int fd, void *arg)
{
	(void)arg;
	char buf[64];
	ssize_t n;
	warm_first(fd);
	while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
		send_all(fd, buf, (size_t)n);
}

/* Another process, slow exchanges, waits by epoll and poll. */
CASE(info_with_waits, STAYS)
{
	pid_t pid;
	int fd = peer_start(peer_answers, NULL, &pid), epoll = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	bool sent = false, came = false;
	warm_second(fd);
	NEED(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0);
	for (int i = 0; i < 10; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		send_pattern(fd, 0, 10);
		NEED(i % 2 ? epoll_wait(epoll, &e, 1, -1) == 1
			   : wait_events(fd, POLLIN) == POLLIN);
		recv_pattern(fd, 0, 10);
	}
	idle();
	say_idle("after waits", fd);
	for (int i = 0; i < TRIES && !(sent && came); i++) {
		send_pattern(fd, 0, 10);
		NEED(epoll_wait(epoll, &e, 1, -1) == 1);
		recv_pattern(fd, 0, 10);
		sent |= info_of(fd).tcpi_last_data_sent < SHORT_MS;
		came |= info_of(fd).tcpi_last_data_recv < SHORT_MS;
	}
	say("seen: sent %d, received %d", sent, came);
	close(epoll);
	close(fd);
	say("status %d", child_status(pid));
}

/* The kernel acknowledges a little later. */
static struct tcp_info settled(int fd, uint64_t acked)
{
	struct tcp_info info = info_of(fd);
	for (int i = 0; i < 600 && info.tcpi_bytes_acked < acked; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		info = info_of(fd);
	}
	return info;
}

static void say_counts(struct pair p, const struct tcp_info *c, const struct tcp_info *s,
		       uint64_t bytes)
{
	struct tcp_info now = settled(p.c, c->tcpi_bytes_acked + bytes);
	struct tcp_info there = info_of(p.s);
	say("sent %llu, acknowledged %llu, received %llu",
	    (unsigned long long)(now.tcpi_bytes_sent - c->tcpi_bytes_sent),
	    (unsigned long long)(now.tcpi_bytes_acked - c->tcpi_bytes_acked),
	    (unsigned long long)(there.tcpi_bytes_received - s->tcpi_bytes_received));
	say("segments: %d %d %d %d %d", now.tcpi_data_segs_out > c->tcpi_data_segs_out,
	    there.tcpi_data_segs_in > s->tcpi_data_segs_in,
	    now.tcpi_segs_out > c->tcpi_segs_out, there.tcpi_segs_in > s->tcpi_segs_in,
	    now.tcpi_delivered > c->tcpi_delivered);
}

CASE(info_counts, STAYS)
{
	struct pair p = pair_warm_open();
	struct tcp_info c = settled(p.c, 0), s = info_of(p.s);
	const size_t lens[] = {1, 100, 20000};
	c = settled(p.c, c.tcpi_bytes_sent);
	for (int i = 0; i < 3; i++) {
		send_pattern(p.c, 0, lens[i]);
		/* Unread: the kernel has it. */
		wait_inq(p.s, (int)lens[i]);
		struct tcp_info before = info_of(p.s);
		say("unread %llu", (unsigned long long)(before.tcpi_bytes_received -
							s.tcpi_bytes_received));
		recv_pattern(p.s, 0, lens[i]);
		say_counts(p, &c, &s, lens[i] + (i > 0) + (i > 1) * 100);
	}
	pair_close(p);
}

/* Nothing is lost, and nothing comes twice, where the connection goes back to TCP. */
CASE(info_counts_go_on, DIRECT)
{
	struct pair p = pair_warm_open();
	struct tcp_info c = info_of(p.c), s;
	int two = 2, one = 1;
	c = settled(p.c, c.tcpi_bytes_sent);
	s = info_of(p.s);
	send_pattern(p.c, 0, 5000);
	recv_pattern(p.s, 0, 5000);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &two, sizeof two) == 0);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one) == 0);
	say_counts(p, &c, &s, 5000);
	for (int i = 0; i < 50; i++) {
		one_to(p.c, p.s);
		one_to(p.s, p.c);
	}
	say_counts(p, &c, &s, 5500);
	say_busy(p);
	idle();
	say_idle("connected", p.c);
	say_idle("accepted", p.s);
	pair_close(p);
}

static void ask_short(int fd, socklen_t len)
{
	unsigned char buf[1024];
	struct tcp_info full = info_of(fd);
	size_t at = offsetof(struct tcp_info, tcpi_bytes_received);
	socklen_t told = len;
	memset(buf, 0xaa, sizeof buf);
	int r = getsockopt(fd, IPPROTO_TCP, TCP_INFO, buf, &told);
	say_result("TCP_INFO", r);
	bool clean = true;
	for (size_t i = told; i < sizeof buf; i++)
		clean &= buf[i] == 0xaa;
	say("length %u: as told %d, rest untouched %d", len, told == len, clean);
	if (told <= at)
		return;
	size_t n = told - at < 8 ? told - at : 8;
	say("received: %d", memcmp(buf + at, &full.tcpi_bytes_received, n) == 0);
}

CASE(info_in_part, STAYS)
{
	struct pair p = pair_warm_open();
	const socklen_t lens[] = {0, 1, 3, 47, 60, 104, 129, 130, 135, 136, 200, 239};
	struct tcp_info info;
	socklen_t len = 4096, bad = (socklen_t)-1;
	char large[4096];
	send_pattern(p.c, 0, 1234);
	recv_pattern(p.s, 0, 1234);
	for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
		ask_short(p.s, lens[i]);
	say_result("large", getsockopt(p.s, IPPROTO_TCP, TCP_INFO, large, &len));
	say("length %u", len);
	memcpy(&info, large, sizeof info);
	say("the same: %d", info.tcpi_bytes_received == info_of(p.s).tcpi_bytes_received);
	say_result("negative", getsockopt(p.s, IPPROTO_TCP, TCP_INFO, large, &bad));
	len = sizeof info;
	say_result("nowhere", getsockopt(p.s, IPPROTO_TCP, TCP_INFO, (void *)16, &len));
	len = sizeof info;
	NEED(syscall(SYS_getsockopt, p.s, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	say("by syscall(): %d",
	    info.tcpi_bytes_received == info_of(p.s).tcpi_bytes_received);
	pair_close(p);
}

/* SK_MEMINFO_RMEM_ALLOC, and what is not sent yet. */
CASE(info_memory, STAYS)
{
	struct pair p = pair_warm_open();
	uint32_t info[16] = {0}, part[2] = {0};
	socklen_t len = sizeof info;
	send_pattern(p.c, 0, 3000);
	wait_inq(p.s, 3000);
	NEED(getsockopt(p.s, SOL_SOCKET, SO_MEMINFO, info, &len) == 0);
	say("length %u, holds bytes %d", len, info[0] >= 3000);
	len = 6;
	NEED(getsockopt(p.s, SOL_SOCKET, SO_MEMINFO, part, &len) == 0);
	say("length %u, the same %d", len, part[0] == info[0]);
	recv_pattern(p.s, 0, 3000);
	pair_close(p);
}
