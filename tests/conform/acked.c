/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: SIOCOUTQ and its kin, which programs read to learn that all has arrived. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "conform/cases.h"

static int queued(int fd, unsigned long request)
{
	int count = -1;
	NEED(ioctl(fd, request, &count) == 0);
	return count;
}

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Whether it comes to be 0; so long nothing acknowledges it only where nothing ever will. */
static bool is_over(int fd, unsigned long request)
{
	for (int i = 0; i < 600; i++) {
		if (queued(fd, request) == 0)
			return true;
		nap_ms(5);
	}
	return false;
}

static void is_acknowledged(int from, int to, size_t len)
{
	int by_number = -1;
	send_pattern(from, 0, len);
	say("%zu bytes: acknowledged %d, sent %d", len, is_over(from, SIOCOUTQ),
	    is_over(from, SIOCOUTQNSD));
	NEED(syscall(SYS_ioctl, from, TIOCOUTQ, &by_number) == 0);
	say("by syscall(): %d", by_number);
	say("unread: %d", queued(to, SIOCINQ));
	recv_pattern(to, 0, len);
	say("read: %d", queued(from, SIOCOUTQ));
}

/* The peer's program does not read: its kernel acknowledges all the same. */
CASE(acknowledged_unread, STAYS)
{
	struct pair p = pair_warm_open();
	const size_t lens[] = {1, 1000, 15000, 40000};
	for (size_t i = 0; i < 4; i++) {
		is_acknowledged(p.c, p.s, lens[i]);
		is_acknowledged(p.s, p.c, lens[i]);
	}
	pair_close(p);
}

static void peer_never_reads(int fd, void *arg)
{
	const struct signal_pipe *over = arg;
	warm_first(fd);
	signal_wait(*over);
}

CASE(acknowledged_unread_elsewhere, STAYS)
{
	struct signal_pipe over = signal_pipe();
	pid_t pid;
	int fd = peer_start(peer_never_reads, &over, &pid);
	warm_second(fd);
	for (int i = 0; i < 100; i++)
		send_pattern(fd, (uint64_t)i * 300, 300);
	say("acknowledged: %d", is_over(fd, SIOCOUTQ));
	signal_send(over);
	say("status %d", child_status(pid));
	close(fd);
}

static uint32_t not_sent(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info.tcpi_notsent_bytes;
}

/* More than the peer's kernel takes: the rest stays unsent until the peer reads. */
static void overfill(struct pair p)
{
	static const char piece[65536];
	size_t total = 0;
	ssize_t n;
	nonblock(p.c, true);
	while (total < 2000000 && (n = send(p.c, piece, sizeof piece, 0)) > 0)
		total += (size_t)n;
	nap_ms(50);
	say("much: %d, queued %d, unsent %d, in TCP_INFO %d", total > 100000,
	    queued(p.c, SIOCOUTQ) > 10000, queued(p.c, SIOCOUTQNSD) > 10000,
	    not_sent(p.c) > 10000);
	nonblock(p.c, false);
	while (total > 0) {
		char buf[65536];
		n = recv(p.s, buf, sizeof buf, 0);
		NEED(n > 0);
		total -= (size_t)n;
	}
	say("read: acknowledged %d, sent %d, in TCP_INFO %d", is_over(p.c, SIOCOUTQ),
	    is_over(p.c, SIOCOUTQNSD), not_sent(p.c));
}

CASE(acknowledged_in_part, DIRECT)
{
	struct pair p = pair_warm_open();
	overfill(p);
	pair_close(p);
}

CASE(acknowledged_in_small_part, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), bytes = 8192;
	NEED(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
	struct pair p = {.c = connect_to(AF_INET, port)};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	pair_warm(p);
	overfill(p);
	pair_close(p);
}

static void set_cork(int fd, int on)
{
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on) == 0);
}

/* For a fifth of a second: a test that was stopped just then tries again. */
CASE(acknowledged_not_while_corked, STAYS)
{
	struct pair p = pair_warm_open();
	int tries = 0, held = 0, unsent = 0;
	for (; tries < 50 && (held != 100 || unsent != 100); tries++) {
		set_cork(p.c, 1);
		send_pattern(p.c, 0, 100);
		unsent = queued(p.c, SIOCOUTQNSD);
		held = queued(p.c, SIOCOUTQ);
		set_cork(p.c, 0);
		recv_pattern(p.s, 0, 100);
	}
	say("corked: %d queued, %d unsent", held, unsent);
	say("acknowledged: %d", is_over(p.c, SIOCOUTQ));
	pair_close(p);
}

/* A close that lingers waits for the peer's kernel, not for its program. */
CASE(acknowledged_then_lingering, DIRECT)
{
	struct pair p = pair_warm_open();
	struct linger linger = {1, 60};
	int error;
	NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
	send_pattern(p.c, 0, 20000);
	say_result("close", close(p.c));
	say("got %lu", (unsigned long)recv_to_end(p.s, &error));
	say("error %d", error);
	close(p.s);
}

/* A program that wants little unsent is not to fill a large queue. */
static void say_bounded(struct pair p)
{
	static const char piece[4096];
	size_t total = 0;
	ssize_t n;
	pair_warm(p);
	nonblock(p.s, true);
	while (total < 1500000 && (n = send(p.s, piece, sizeof piece, 0)) > 0)
		total += (size_t)n;
	say("few: %d", total < 1000000);
	nonblock(p.s, false);
	for (char buf[65536]; total > 0; total -= (size_t)n) {
		n = recv(p.c, buf, sizeof buf, 0);
		NEED(n > 0);
	}
	pair_close(p);
}

CASE(bounded_unsent, DIRECT)
{
	struct pair p = pair_warm_open();
	int most = 10000;
	NEED(setsockopt(p.s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most) == 0);
	say_bounded(p);
}

CASE(inherited_bounded_unsent, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), most = 10000;
	NEED(setsockopt(listener, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most) ==
	     0);
	struct pair p = {.c = connect_to(AF_INET, port)};
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	say_bounded(p);
}
