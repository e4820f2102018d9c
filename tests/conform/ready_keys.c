/* SPDX-License-Identifier: Apache-2.0 */
/* What wakes an edge-triggered registration, by what it has asked for. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static const uint32_t masks[] = {
	EPOLLIN,
	EPOLLOUT,
	EPOLLRDHUP,
	EPOLLPRI,
	EPOLLRDNORM,
	EPOLLWRNORM,
	EPOLLIN | EPOLLOUT,
	EPOLLIN | EPOLLRDHUP,
	EPOLLOUT | EPOLLRDHUP,
	EPOLLWRNORM | EPOLLRDHUP,
	0,
};
#define MASKS (sizeof(masks) / sizeof(masks[0]))

/* One instance for each mask: what is told by one is not told by it alone. */
struct watchers {
	struct pair p;
	int ep[MASKS];
};

static struct watchers watch(void)
{
	struct watchers w = {.p = pair_warm_open()};

	for (size_t i = 0; i < MASKS; i++) {
		w.ep[i] = ep_open();
		ep_add(w.ep[i], w.p.s, masks[i] | EPOLLET, i);
		ep_drain(w.ep[i]);
	}
	return w;
}

static void show_all(struct watchers *w, const char *what)
{
	say("%s", what);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < MASKS; i++) {
			struct epoll_event ev[2];

			if (epoll_wait(w->ep[i], ev, 2, 0) > 0)
				say("%zu: %s edge", i, poll_names((int)ev[0].events));
		}
	}
}

static void unwatch(struct watchers *w)
{
	for (size_t i = 0; i < MASKS; i++)
		close(w->ep[i]);
	if (w->p.c >= 0)
		close(w->p.c);
	close(w->p.s);
}

CASE(key_of_bytes, DIRECT)
{
	struct watchers w = watch();

	send_pattern(w.p.c, 0, 100);
	wait_inq(w.p.s, 100);
	show_all(&w, "first");
	send_pattern(w.p.c, 100, 100);
	wait_inq(w.p.s, 200);
	show_all(&w, "second");
	recv_pattern(w.p.s, 0, 50);
	show_all(&w, "half read");
	recv_pattern(w.p.s, 50, 150);
	show_all(&w, "read");
	send_pattern(w.p.s, 0, 100);
	recv_pattern(w.p.c, 0, 100);
	show_all(&w, "answered");
	unwatch(&w);
}

static void set_option(struct watchers *w, int level, int name, int value,
		       const char *what)
{
	NEED(setsockopt(w->p.s, level, name, &value, sizeof(value)) == 0);
	show_all(w, what);
}

/* Whoever waits for room is told when its bound is set, also where there was room before. */
CASE(key_of_bounds, DIRECT)
{
	struct watchers w = watch();

	set_option(&w, SOL_SOCKET, SO_SNDBUF, 100000, "sent");
	set_option(&w, SOL_SOCKET, SO_SNDBUF, 50000, "less");
	set_option(&w, SOL_SOCKET, SO_RCVBUF, 100000, "received");
	set_option(&w, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 50000, "not sent");
	set_option(&w, SOL_SOCKET, SO_KEEPALIVE, 1, "another");
	NEED(shutdown(w.p.c, SHUT_WR) == 0);
	wait_events(w.p.s, POLLRDHUP);
	show_all(&w, "end");
	set_option(&w, SOL_SOCKET, SO_SNDBUF, 100000, "after it");
	NEED(shutdown(w.p.s, SHUT_WR) == 0);
	wait_events(w.p.s, POLLHUP);
	show_all(&w, "both ended");
	set_option(&w, SOL_SOCKET, SO_SNDBUF, 50000, "after both");
	unwatch(&w);
}

static bool is_in_state(int fd, int state)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	return info.tcpi_state == state;
}

CASE(key_of_end, DIRECT)
{
	struct watchers w = watch();

	send_pattern(w.p.c, 0, 100);
	NEED(shutdown(w.p.c, SHUT_WR) == 0);
	wait_events(w.p.s, POLLRDHUP);
	show_all(&w, "end");
	say_result("after", send(w.p.c, "x", 1, MSG_NOSIGNAL));
	show_all(&w, "another send");
	recv_pattern(w.p.s, 0, 100);
	show_all(&w, "read");
	send_pattern(w.p.s, 0, 100);
	send_pattern(w.p.s, 100, 100);
	show_all(&w, "answered");
	recv_pattern(w.p.c, 0, 200);
	show_all(&w, "taken");
	NEED(shutdown(w.p.s, SHUT_WR) == 0);
	wait_events(w.p.s, POLLHUP);
	show_all(&w, "both ended");
	say_result("shutdown", shutdown(w.p.s, SHUT_WR));
	show_all(&w, "again");
	unwatch(&w);
}

CASE(key_of_own_end, DIRECT)
{
	struct watchers w = watch();

	NEED(shutdown(w.p.s, SHUT_RD) == 0);
	show_all(&w, "reading ended");
	send_pattern(w.p.c, 0, 100);
	wait_inq(w.p.s, 100);
	show_all(&w, "bytes");
	NEED(shutdown(w.p.s, SHUT_WR) == 0);
	wait_events(w.p.c, POLLRDHUP);
	show_all(&w, "writing ended");
	unwatch(&w);
}

/* The peer's end after an own shutdown: the level is as before, but it is an edge. */
static void end_after(int how, bool closes, int state)
{
	struct watchers w = watch();

	NEED(shutdown(w.p.s, how) == 0);
	if (how != SHUT_RD)
		wait_events(w.p.c, POLLRDHUP);
	while (how != SHUT_RD && !is_in_state(w.p.s, TCP_FIN_WAIT2))
		;
	show_all(&w, "own end");
	if (closes) {
		close(w.p.c);
		w.p.c = -1;
	} else {
		NEED(shutdown(w.p.c, SHUT_WR) == 0);
	}
	while (!is_in_state(w.p.s, state))
		;
	show_all(&w, "peer's end");
	unwatch(&w);
}

CASE(key_of_end_unread, DIRECT)
{
	end_after(SHUT_RD, false, TCP_CLOSE_WAIT);
	end_after(SHUT_RD, true, TCP_CLOSE_WAIT);
	end_after(SHUT_RDWR, false, TCP_CLOSE);
	end_after(SHUT_RDWR, true, TCP_CLOSE);
}

CASE(key_of_reset, DIRECT)
{
	struct linger now = {1, 0};
	struct watchers w = watch();
	char byte;

	NEED(setsockopt(w.p.c, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) == 0);
	close(w.p.c);
	w.p.c = -1;
	wait_events(w.p.s, POLLERR);
	show_all(&w, "reset");
	say_result("recv", recv(w.p.s, &byte, 1, 0));
	show_all(&w, "error taken");
	say_result("recv", recv(w.p.s, &byte, 1, 0));
	show_all(&w, "end read");
	unwatch(&w);
}

/* Bytes that meet an end which takes none reset the connection: one event for all that holds. */
CASE(key_of_reset_by_bytes, DIRECT)
{
	struct watchers w = watch();

	NEED(shutdown(w.p.s, SHUT_RDWR) == 0);
	wait_events(w.p.c, POLLRDHUP);
	/* Its acknowledgement may be delayed, and is a change of state. */
	usleep(200000);
	show_all(&w, "own end");
	send_pattern(w.p.c, 0, 10);
	wait_events(w.p.s, POLLERR);
	show_all(&w, "reset");
	unwatch(&w);
}

static void drain_all(struct watchers *w)
{
	for (size_t i = 0; i < MASKS; i++)
		ep_drain(w->ep[i]);
}

/* Neither what is read of them, nor a send that is refused, is an event. */
CASE(key_of_bytes_behind_own_end, DIRECT)
{
	struct watchers w = watch();
	char byte;

	NEED(shutdown(w.p.s, SHUT_WR) == 0);
	wait_events(w.p.c, POLLRDHUP);
	/* Its acknowledgement may be delayed, and is a change of state. */
	usleep(200000);
	drain_all(&w);
	send_pattern(w.p.c, 0, 100);
	wait_inq(w.p.s, 100);
	show_all(&w, "bytes");
	say_result("send", send(w.p.s, "x", 1, MSG_NOSIGNAL));
	show_all(&w, "refused");
	recv_pattern(w.p.s, 0, 50);
	show_all(&w, "half read");
	recv_pattern(w.p.s, 50, 50);
	show_all(&w, "read");
	NEED(shutdown(w.p.s, SHUT_RD) == 0);
	show_all(&w, "both ends");
	for (int i = 0; i < 3; i++) {
		say_result("recv", recv(w.p.s, &byte, 1, 0));
		show_all(&w, "end read");
	}
	unwatch(&w);
}

static void in_child(struct watchers *w, void (*act)(int fd))
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		act(w->p.s);
		_exit(0);
	}
	NEED(child_status(pid) == 0);
}

static void set_lowat(int fd)
{
	int bytes = 1;

	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0);
}

static void end_reading(int fd)
{
	NEED(shutdown(fd, SHUT_RD) == 0);
}

/* What a forked child does with the connection wakes the parent, too. */
CASE(key_of_child, DIRECT)
{
	struct watchers w = watch();

	send_pattern(w.p.c, 0, 1);
	wait_inq(w.p.s, 1);
	show_all(&w, "a byte");
	for (int i = 0; i < 2; i++) {
		in_child(&w, set_lowat);
		show_all(&w, "its mark");
	}
	for (int i = 0; i < 2; i++) {
		in_child(&w, end_reading);
		show_all(&w, "reading ended");
	}
	unwatch(&w);
}

/* What a second instance hears is no edge to the first. */
CASE(key_two_instances, DIRECT)
{
	struct pair p = pair_warm_open();
	int one = ep_open(), other = ep_open();

	ep_add(one, p.s, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
	ep_add(other, p.s, EPOLLIN | EPOLLET, 2);
	ep_drain(one);
	ep_drain(other);
	send_pattern(p.c, 0, 10);
	NEED(shutdown(p.c, SHUT_WR) == 0);
	wait_events(p.s, POLLRDHUP);
	for (int i = 0; i < 3; i++) {
		ep_show(one, 0);
		ep_show(other, 0);
	}
	ep_mod(other, p.s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 3);
	for (int i = 0; i < 3; i++) {
		ep_show(other, 0);
		ep_show(one, 0);
	}
	recv_pattern(p.s, 0, 10);
	ep_show(one, 0);
	ep_show(other, 0);
	close(one);
	close(other);
	pair_close(p);
}

/* ---- the least that is worth a wake-up ---- */

static void lowat(int fd, int bytes)
{
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0);
}

static void lowat_edges(uint32_t flags, bool unread)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	ep_add(ep, p.s, EPOLLIN | flags, 1);
	ep_drain(ep);
	if (unread) {
		send_pattern(p.c, 0, 100);
		wait_inq(p.s, 100);
		ep_show(ep, 0);
		ep_show(ep, 0);
		lowat(p.s, 50);
		ep_show(ep, 0);
		ep_show(ep, 0);
		recv_pattern(p.s, 0, 60);
		ep_show(ep, 0);
	} else {
		lowat(p.s, 50);
		ep_show(ep, 0);
		send_pattern(p.c, 60, 40);
		wait_inq(p.s, 40);
		ep_show(ep, 0);
	}
	for (int i = 0; i < 3; i++) {
		send_pattern(p.c, 100 + 30 * (uint64_t)i, 30);
		wait_inq(p.s, 40 + 30 * (i + 1));
		ep_show(ep, 0);
		ep_show(ep, 0);
	}
	lowat(p.s, 200);
	ep_show(ep, 0);
	lowat(p.s, 1);
	ep_show(ep, 0);
	ep_show(ep, 0);
	close(ep);
	pair_close(p);
}

CASE(lowat_edge, DIRECT)
{
	lowat_edges(EPOLLET, false);
}

CASE(lowat_edge_unread, DIRECT)
{
	lowat_edges(EPOLLET, true);
}

CASE(lowat_level, DIRECT)
{
	lowat_edges(0, false);
}

/* ---- room for one ---- */

/* What only we are told does not take the place of what the program is. */
CASE(one_at_a_time, DIRECT)
{
	struct pair p[3];
	struct signal_pipe other = signal_pipe();
	struct epoll_event ev = {0};
	unsigned told = 0;
	int ep = ep_open();

	for (int i = 0; i < 3; i++) {
		p[i] = pair_warm_open();
		ep_add(ep, p[i].s, EPOLLIN, (uint64_t)i);
	}
	ep_add(ep, other.fd[0], EPOLLIN, 9);
	signal_send(other);
	for (int i = 0; i < 5; i++)
		say_result("one", epoll_wait(ep, &ev, 1, 0));
	signal_wait(other);
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < 3; k++) {
			send_all(p[k].c, "x", 1);
			wait_inq(p[k].s, 1);
		}
		signal_send(other);
		for (int k = 0; k < 12; k++) {
			say_result("one", epoll_wait(ep, &ev, 1, 0));
			told |= 1u << ev.data.u64;
		}
		say("%x", told);
		for (int k = 0; k < 3; k++)
			recv_all(p[k].s, &(char){0}, 1);
		say_result("one", epoll_wait(ep, &ev, 1, 0));
		signal_wait(other);
		say_result("none", epoll_wait(ep, &ev, 1, 0));
	}
	for (int i = 0; i < 3; i++)
		pair_close(p[i]);
	close(ep);
}

/* Bytes go one way, and the other way stays as it was at first. So many of ten are read each time, or none. */
static void one_way(uint32_t mask, bool is_accepted, unsigned reads)
{
	struct pair p = pair_open();
	int ep = ep_open(), end = is_accepted ? p.s : p.c,
	    other = is_accepted ? p.c : p.s;
	uint64_t taken = 0;

	ep_add(ep, end, mask | EPOLLET, 1 | MAY_REPEAT);
	ep_show(ep, 0);
	for (uint64_t at = 0; at < 400; at += 10) {
		send_pattern(other, at, 10);
		wait_inq(end, (int)(at + 10 - taken));
		ep_show(ep, 0);
		if (reads) {
			recv_pattern(end, taken, reads);
			taken += reads;
			ep_show(ep, 0);
		}
	}
	close(ep);
	pair_close(p);
}

CASE(key_of_bytes_one_way, READY)
{
	static const unsigned reads[] = {0, 10, 5};

	for (size_t i = 0; i < MASKS; i++)
		for (int j = 0; j < 6; j++) {
			say("%zu, %d", i, j);
			one_way(masks[i], j & 1, reads[j / 2]);
		}
}

/* Both ends are watched, and answer each other. */
static void in_turn(uint32_t mask, size_t len, bool together)
{
	struct pair p = pair_open();
	int ep[2] = {ep_open(), ep_open()}, fd[2] = {p.c, p.s};
	uint64_t at[2] = {0, 0};

	if (together) {
		close(ep[1]);
		ep[1] = ep[0];
	}
	for (int i = 0; i < 2; i++) {
		ep_add(ep[i], fd[i], mask | EPOLLET, (uint64_t)i | MAY_REPEAT);
		ep_show(ep[i], 0);
	}
	for (int i = 0; i < 80; i++) {
		int to = ~i & 1;

		send_pattern(fd[!to], at[to], len);
		wait_inq(fd[to], (int)len);
		ep_show(ep[to], 0);
		recv_pattern(fd[to], at[to], len);
		at[to] += len;
		ep_show(ep[to], 0);
		ep_show(ep[!to], 0);
	}
	close(ep[0]);
	if (!together)
		close(ep[1]);
	pair_close(p);
}

CASE(key_of_bytes_in_turn, DIRECT)
{
	static const size_t lens[] = {1, 100, 5000};

	for (size_t i = 0; i < MASKS; i++)
		for (size_t j = 0; j < 6; j++) {
			say("%zu, %zu", i, j);
			in_turn(masks[i], lens[j / 2], j & 1);
		}
}
