/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: waits that the library does not see, as those of Rust's rustix and of Seastar; and programs that need none. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cases.h"

enum { WAIT_MS = 5000, TURNS = 200 };

static long past_us(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long r;
	__asm__ __volatile__("syscall"
			     : "=a"(r)
			     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return r;
}

/* Nothing has been waited for by the C library, also not by what the cases share. */
static struct pair pair_past(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct pair p = {.c = socket(AF_INET, SOCK_STREAM, 0)};
	NEED(bind(listener, (struct sockaddr *)&at, len) == 0 &&
	     listen(listener, 1) == 0 &&
	     getsockname(listener, (struct sockaddr *)&at, &len) == 0 &&
	     connect(p.c, (struct sockaddr *)&at, len) == 0);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	return p;
}

static struct pair pair_past_warm(void)
{
	struct pair p = pair_past();
	pair_warm(p);
	return p;
}

static int registered_past(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	int epfd = (int)past_us(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);
	NEED(epfd >= 0 &&
	     past_us(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, fd, (long)&ev, 0, 0) == 0);
	return epfd;
}

static long heard(int epfd, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	if (events & EPOLLONESHOT)
		past_us(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, fd, (long)&ev, 0, 0);
	return past_us(SYS_epoll_pwait, epfd, (long)&ev, 1, WAIT_MS, 0, 8);
}

static long polled(int fd, short events)
{
	struct pollfd p = {fd, events, 0};
	struct timespec end = {WAIT_MS / 1000, 0};
	return past_us(SYS_ppoll, (long)&p, 1, (long)&end, 0, 8, 0);
}

/* All that there is. With `once` one receive, which finds it all. */
static size_t take(int fd, bool once)
{
	char buf[64];
	size_t done = 0;
	ssize_t n;
	do {
		n = recv(fd, buf, sizeof(buf), 0);
		done += n > 0 ? (size_t)n : 0;
	} while (n > 0 && !once);
	NEED(n >= 0 || errno == EAGAIN);
	return done;
}

/* Questions, for each of which the server waits, past us, in an instance, or by a poll. */
static void answer(struct pair p, int epfd, uint32_t events, bool once)
{
	char buf[8];
	for (int i = 0; i < TURNS; i++) {
		send_all(p.c, "query", 5);
		long n = epfd < 0 ? polled(p.s, POLLIN) : heard(epfd, p.s, events);
		if (n != 1)
			say("turn %d: heard %ld", i, n);
		NEED(n == 1);
		NEED(take(p.s, once) == 5);
		send_all(p.s, "reply", 5);
		recv_all(p.c, buf, 5);
	}
	say("answered");
}

static void run_past(uint32_t events, bool once)
{
	struct pair p = pair_past();
	nonblock(p.s, true);
	int epfd = events ? registered_past(p.s, events) : -1;
	answer(p, epfd, events, once);
	pair_close(p);
}

CASE(unseen_level, ON_TCP)
{
	run_past(EPOLLIN, false);
}

CASE(unseen_level_once, ON_TCP)
{
	run_past(EPOLLIN, true);
}

CASE(unseen_edge, ON_TCP)
{
	run_past(EPOLLIN | EPOLLET, false);
}

CASE(unseen_oneshot, ON_TCP)
{
	run_past(EPOLLIN | EPOLLONESHOT, false);
}

CASE(unseen_poll, ON_TCP)
{
	run_past(0, false);
}

/* It has slept in receives, so it is in its ring, and is then waited for past us. */
static void run_late(uint32_t events)
{
	struct pair p = pair_past_warm();
	nonblock(p.s, true);
	NEED(take(p.s, false) == 0);
	answer(p, events ? registered_past(p.s, events) : -1, events, false);
	pair_close(p);
}

CASE(unseen_late_edge, ANYWAY)
{
	run_late(EPOLLIN | EPOLLET);
}

CASE(unseen_late_poll, ANYWAY)
{
	run_late(0);
}

/* Room in the ring is not waited for, either. */
CASE(unseen_room, ANYWAY)
{
	struct pair p = pair_past_warm();
	nonblock(p.s, true);
	int epfd = registered_past(p.s, EPOLLOUT | EPOLLET);
	NEED(heard(epfd, p.s, 0) == 1);
	size_t done = 0;
	ssize_t n;
	while ((n = send(p.s, bulk_room(), 1 << 20, 0)) > 0)
		done += (size_t)n;
	say_result("full", n);
	while (done > 0) {
		n = recv(p.c, bulk_room(), 1 << 20, 0);
		NEED(n > 0);
		done -= (size_t)n;
	}
	say("room: %ld", heard(epfd, p.s, 0));
	pair_close(p);
}

/* It looks again and again, and so waits for nothing. */
CASE(unseen_spins, DIRECT)
{
	struct pair p = pair_past();
	char buf[8];
	nonblock(p.s, true);
	for (int i = 0; i < TURNS; i++) {
		for (int looks = 0; i == 0 && looks < 1000; looks++)
			NEED(recv(p.s, buf, 5, 0) == -1 && errno == EAGAIN);
		send_all(p.c, "query", 5);
		NEED(take(p.s, true) == 5);
		send_all(p.s, "reply", 5);
		recv_all(p.c, buf, 5);
	}
	pair_close(p);
}

/* A wait that is seen, the first one late. */
CASE(unseen_then_not, DIRECT)
{
	struct pair p = pair_past();
	nonblock(p.s, true);
	int epfd = registered_past(p.s, EPOLLIN);
	answer(p, epfd, EPOLLIN, false);
	struct pollfd f = {p.s, POLLIN, 0};
	NEED(poll(&f, 1, 0) == 0);
	pair_warm(p);
	pair_warm(p);
	pair_close(p);
}

/* ---- the kernel's own asynchronous polls ---- */

static void watch(aio_context_t context, int fd)
{
	struct iocb block = {.aio_lio_opcode = IOCB_CMD_POLL,
			     .aio_fildes = (unsigned)fd,
			     .aio_buf = POLLIN};
	struct iocb *list[1] = {&block};
	say_result("submit", syscall(SYS_io_submit, context, 1, list));
}

static void say_told(aio_context_t context)
{
	struct timespec end = {WAIT_MS / 1000, 0};
	struct io_event ev = {0};
	long n = syscall(SYS_io_getevents, context, 1, 1, &ev, &end);
	say("told %ld %s", n, poll_names((int)ev.res & POLLIN));
}

/* Bytes that are there already, and bytes that come. */
CASE(unseen_aio_poll, ANYWAY)
{
	struct pair p = pair_past_warm();
	aio_context_t context = 0;
	char buf[8];
	NEED(syscall(SYS_io_setup, 8, &context) == 0);
	send_all(p.c, "query", 5);
	for (int i = 0; i < 3; i++) {
		watch(context, p.s);
		say_told(context);
		recv_all(p.s, buf, 5);
		watch(context, p.s);
		send_all(p.c, "query", 5);
		say_told(context);
	}
	NEED(syscall(SYS_io_destroy, context) == 0);
	pair_close(p);
}

/* libev has its epoll instance told of so. */
CASE(unseen_aio_poll_of_instance, ANYWAY)
{
	struct pair p = pair_past();
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	aio_context_t context = 0;
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	NEED(epoll_wait(epfd, &ev, 1, 0) == 0);
	pair_warm(p);
	NEED(syscall(SYS_io_setup, 8, &context) == 0);
	for (int i = 0; i < 3; i++) {
		char buf[8];
		watch(context, epfd);
		send_all(p.c, "query", 5);
		say_told(context);
		say("heard %d", epoll_wait(epfd, &ev, 1, 0));
		recv_all(p.s, buf, 5);
	}
	NEED(syscall(SYS_io_destroy, context) == 0);
	pair_close(p);
}
