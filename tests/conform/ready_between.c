/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases of what another thread does in the middle of a call: see between.c. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "conform/between.h"

#define MOMENTS 6
#define CALLS	8

/* A pipe, a connection, and another pipe, polled in that order. */
enum { PIPE, RING, LATER, ENDS };

/* Until the kernel has the end, which is asked past every library. */
static void wait_end(int fd)
{
	struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
	socklen_t len = sizeof(info);

	while (info.tcpi_state == TCP_ESTABLISHED)
		NEED(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len) ==
		     0);
}

static struct {
	int in[ENDS], out[ENDS];
	int first, second; /* of them, written to in turn */
	int ep;		   /* or -1: ppoll */
	int moment, now;
	_Atomic int turn, done;
	_Atomic bool over;
} chain;

static void in_turn(void *arg)
{
	(void)arg;
	for (int i = 1;; i++) {
		while (atomic_load(&chain.turn) < i && !atomic_load(&chain.over))
			sched_yield();
		if (atomic_load(&chain.turn) < i)
			return;
		NEED(write(chain.out[chain.first], "x", 1) == 1);
		/* TCP may be late. */
		wait_inq(chain.in[chain.first], 1);
		NEED(write(chain.out[chain.second], "x", 1) == 1);
		atomic_store(&chain.done, i);
	}
}

static void write_both(void)
{
	int i = atomic_fetch_add(&chain.turn, 1) + 1;

	while (atomic_load(&chain.done) < i)
		sched_yield();
}

static void at_moment(void)
{
	if (chain.now++ == chain.moment)
		write_both();
}

/* Returns a bit for each that is told. */
static unsigned ask_poll(void)
{
	const struct timespec zero = {0};
	struct pollfd f[ENDS];
	unsigned told = 0;

	for (int k = 0; k < ENDS; k++)
		f[k] = (struct pollfd){.fd = chain.in[k], .events = POLLIN};
	NEED(ppoll(f, ENDS, &zero, NULL) >= 0);
	for (int k = 0; k < ENDS; k++)
		told |= (unsigned)(f[k].revents != 0) << k;
	return told;
}

static unsigned ask_epoll(void)
{
	struct epoll_event ev[ENDS];
	int n = epoll_wait(chain.ep, ev, ENDS, 0);
	unsigned told = 0;

	NEED(n >= 0);
	for (int i = 0; i < n; i++)
		told |= 1u << ev[i].data.u32;
	return told;
}

/* How often the second was told without the first, which the kernel's poll looks at later. */
static int polls(between_call *between)
{
	int bad = 0;
	char byte;

	for (int i = 0; i < CALLS; i++) {
		unsigned told;

		NEED(between(at_moment) == 0);
		told = chain.ep < 0 ? ask_poll() : ask_epoll();
		between(NULL);
		bad += (told >> chain.second & 1) && !(told >> chain.first & 1);
	}
	NEED(chain.now > 0);
	if (chain.now <= chain.moment)
		write_both();
	NEED(read(chain.in[chain.first], &byte, 1) == 1);
	NEED(read(chain.in[chain.second], &byte, 1) == 1);
	return bad;
}

static void all_moments(between_call *between, int first, int second)
{
	chain.first = first;
	chain.second = second;
	for (chain.moment = 0; chain.moment < MOMENTS; chain.moment++) {
		chain.now = 0;
		say("%d, then %d, at moment %d: %d without the first", first, second,
		    chain.moment, polls(between));
	}
}

static void run_all(bool epoll)
{
	between_call *between = between_need();
	struct pair p;
	struct worker other;
	int early[2], later[2], on = 1;

	NEED(pipe(early) == 0 && pipe(later) == 0);
	p = pair_warm_open();
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	chain.in[PIPE] = early[0];
	chain.out[PIPE] = early[1];
	chain.in[RING] = p.s;
	chain.out[RING] = p.c;
	chain.in[LATER] = later[0];
	chain.out[LATER] = later[1];
	chain.ep = epoll ? epoll_create1(0) : -1;
	for (int k = 0; k < ENDS && epoll; k++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (uint32_t)k};

		NEED(epoll_ctl(chain.ep, EPOLL_CTL_ADD, chain.in[k], &ev) == 0);
	}
	worker_start(&other, in_turn, NULL);
	all_moments(between, RING, PIPE);
	all_moments(between, LATER, RING);
	atomic_store(&chain.over, true);
	worker_join(&other);
	pair_close(p);
}

CASE(between_poll, DIRECT)
{
	run_all(false);
}

CASE(between_epoll, DIRECT)
{
	run_all(true);
}

/* ---- a number that becomes another connection's ---- */

static struct {
	struct pair p; /* the other end has closed */
	int listener, moment, now;
	uint16_t port;
	_Atomic bool due, done;
} anew;

static void change_connection(void *arg)
{
	int number = anew.p.s;

	(void)arg;
	while (!atomic_load(&anew.due))
		sched_yield();
	NEED(close(number) == 0);
	anew.p.s = accept(anew.listener, NULL, NULL);
	NEED(anew.p.s == number);
	pair_warm(anew.p);
	atomic_store(&anew.done, true);
}

static void change_at_moment(void)
{
	if (anew.now++ != anew.moment)
		return;
	atomic_store(&anew.due, true);
	/* Not for ever: a question may be asked under a lock that the other thread needs. */
	for (int i = 0; i < 20000 && !atomic_load(&anew.done); i++)
		sched_yield();
}

/* The other end is killed: its kernel alone tells of that. With `reset`, over an unread byte. */
static struct pair killed_pair(bool reset)
{
	struct pair p = pair_warm_open();
	pid_t pid = fork();

	if (pid == 0) {
		close(p.s);
		pause();
		_exit(0);
	}
	NEED(close(p.c) == 0);
	if (reset)
		send_all(p.s, "x", 1);
	NEED(kill(pid, SIGKILL) == 0);
	child_status(pid);
	wait_end(p.s);
	return p;
}

/* Polled when the number was that of a connection with an end: the next one has none. */
static void changed_between(between_call *between, bool reset)
{
	const struct timespec zero = {0};
	struct worker other;
	int pipes[2];

	NEED(pipe(pipes) == 0);
	for (anew.moment = 0; anew.moment < MOMENTS; anew.moment++) {
		struct pollfd f[2] = {{.fd = pipes[0], .events = POLLIN}};
		struct pair p = killed_pair(reset);

		anew.p.c = connect_to(AF_INET, anew.port);
		anew.p.s = p.s;
		anew.now = 0;
		anew.due = anew.done = false;
		worker_start(&other, change_connection, NULL);
		f[1] = (struct pollfd){.fd = p.s, .events = POLLOUT | POLLRDHUP};
		NEED(between(change_at_moment) == 0);
		NEED(ppoll(f, 2, &zero, NULL) >= 0);
		between(NULL);
		NEED(anew.now > 0);
		atomic_store(&anew.due, true);
		worker_join(&other);
		p = anew.p;
		f[1].events = POLLIN | POLLOUT | POLLRDHUP;
		NEED(ppoll(f, 2, &zero, NULL) >= 0);
		say("moment %d: %s", anew.moment, poll_names(f[1].revents));
		send_all(p.c, "x", 1);
		say_result("recv", recv(p.s, &(char){0}, 1, 0));
		pair_close(p);
	}
	close(pipes[0]);
	close(pipes[1]);
}

CASE(between_connections, DIRECT)
{
	between_call *between = between_need();

	anew.listener = listen_any(AF_INET, &anew.port);
	changed_between(between, false);
	changed_between(between, true);
}
