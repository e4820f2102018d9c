/* SPDX-License-Identifier: Apache-2.0 */
/* As much as TCP takes without a reader, written by who does not block, and has something to read
 * himself: no wait for room may last until somebody reads. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"

enum { TOTAL = 600000, PIECE = 100000, MANY = 100, COLD = 300 };

struct writer {
	int fd, ep;
	uint8_t *all;
	size_t done;
};

/* Reads once everything has been written. */
static void read_late(int fd, void *arg)
{
	struct signal_pipe *written = arg;
	send_pattern(fd, 0, 1);
	signal_wait(*written);
	recv_pattern(fd, 0, TOTAL);
}

/* One send. */
static void write_some(struct writer *w, size_t most)
{
	size_t left = TOTAL - w->done;
	ssize_t n = send(w->fd, w->all + w->done, left < most ? left : most, 0);
	NEED(n > 0 || errno == EAGAIN);
	if (n > 0)
		w->done += (size_t)n;
}

static void write_by(void (*begin)(struct writer *), void (*wait)(struct writer *),
		     size_t most)
{
	struct signal_pipe written = signal_pipe();
	struct writer w = {.ep = -1, .all = malloc(TOTAL)};
	pid_t pid;
	for (size_t i = 0; i < TOTAL; i++)
		w.all[i] = pattern(i);
	w.fd = peer_start(read_late, &written, &pid);
	nonblock(w.fd, true);
	wait_inq(w.fd, 1);
	if (begin)
		begin(&w);
	while (w.done < TOTAL) {
		write_some(&w, most);
		if (w.done < TOTAL)
			wait(&w);
	}
	say("all written");
	recv_pattern(w.fd, 0, 1);
	signal_send(written);
	say("status %d", child_status(pid));
	close(w.fd);
	if (w.ep >= 0)
		close(w.ep);
	free(w.all);
}

/* ---- ways to wait ---- */

static void by_poll(struct writer *w)
{
	struct pollfd p = {.fd = w->fd, .events = POLLOUT};
	NEED(poll(&p, 1, -1) == 1 && p.revents == POLLOUT);
}

static void by_asking(struct writer *w)
{
	struct pollfd p = {.fd = w->fd, .events = POLLOUT};
	while (poll(&p, 1, 0) == 0)
		;
	NEED(p.revents == POLLOUT);
}

static void by_select(struct writer *w)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(w->fd, &set);
	NEED(select(w->fd + 1, NULL, &set, NULL, NULL) == 1);
}

/* Among so many that they are kept in an instance. */
static void by_large_poll(struct writer *w)
{
	static struct pollfd p[MANY];
	static struct pair others[MANY / 2];
	if (!p[0].fd) {
		for (int i = 0; i < MANY / 2; i++) {
			others[i] = pair_open();
			p[2 * i] = (struct pollfd){.fd = others[i].c, .events = POLLIN};
			p[2 * i + 1] =
				(struct pollfd){.fd = others[i].s, .events = POLLIN};
		}
		p[MANY / 2] = (struct pollfd){.fd = w->fd, .events = POLLOUT};
	}
	NEED(poll(p, MANY, -1) == 1 && p[MANY / 2].revents == POLLOUT);
}

static void instance(struct writer *w, uint32_t events)
{
	struct epoll_event ev = {.events = events};
	w->ep = epoll_create1(0);
	NEED(w->ep >= 0 && epoll_ctl(w->ep, EPOLL_CTL_ADD, w->fd, &ev) == 0);
	for (int i = 0; i < COLD; i++)
		epoll_wait(w->ep, &ev, 1, 0);
}

static void level(struct writer *w)
{
	instance(w, EPOLLRDHUP);
}

static void edge(struct writer *w)
{
	instance(w, EPOLLIN | EPOLLOUT | EPOLLET);
}

/* Asks for room only where there is something to send, as servers do. */
static void by_epoll(struct writer *w)
{
	struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLOUT};
	NEED(epoll_ctl(w->ep, EPOLL_CTL_MOD, w->fd, &ev) == 0);
	NEED(epoll_wait(w->ep, &ev, 1, -1) == 1 && ev.events == EPOLLOUT);
	ev.events = EPOLLRDHUP;
	NEED(epoll_ctl(w->ep, EPOLL_CTL_MOD, w->fd, &ev) == 0);
	for (int i = 0; i < COLD; i++)
		NEED(epoll_wait(w->ep, &ev, 1, 0) == 0);
}

static void by_edges(struct writer *w)
{
	struct epoll_event ev;
	NEED(epoll_wait(w->ep, &ev, 1, -1) == 1 && (ev.events & EPOLLOUT));
}

static void by_itself(struct writer *w)
{
	(void)w;
}

/* ---- all of it in one send, or what is left ---- */

CASE(room_by_poll, DIRECT)
{
	write_by(NULL, by_poll, TOTAL);
}

CASE(room_by_asking, DIRECT)
{
	write_by(NULL, by_asking, TOTAL);
}

CASE(room_by_select, DIRECT)
{
	write_by(NULL, by_select, TOTAL);
}

CASE(room_by_large_poll, DIRECT)
{
	write_by(NULL, by_large_poll, TOTAL);
}

CASE(room_by_epoll, DIRECT)
{
	write_by(level, by_epoll, TOTAL);
}

CASE(room_by_edges, DIRECT)
{
	write_by(edge, by_edges, TOTAL);
}

CASE(room_without_wait, DIRECT)
{
	write_by(NULL, by_itself, TOTAL);
}

/* ---- in pieces, each after a wait: most of them fit, and end no wait by themselves ---- */

CASE(room_for_pieces_by_poll, DIRECT)
{
	write_by(NULL, by_poll, PIECE);
}

CASE(room_for_pieces_by_asking, DIRECT)
{
	write_by(NULL, by_asking, PIECE);
}

CASE(room_for_pieces_by_select, DIRECT)
{
	write_by(NULL, by_select, PIECE);
}

CASE(room_for_pieces_by_epoll, DIRECT)
{
	write_by(level, by_epoll, PIECE);
}

enum { MESSAGE = 383, MESSAGES = 60000 };

static void send_messages(void *arg)
{
	const int *fd = arg;
	static const char message[MESSAGE];
	char taken;
	for (int i = 0; i < MESSAGES; i++) {
		send_all(*fd, message, MESSAGE);
		recv_all(*fd, &taken, 1);
	}
}

/* A small message is there as a whole, or not at all, for one who looks all the time. */
CASE(room_whole_messages, DIRECT)
{
	struct pair p = pair_warm_open();
	struct worker w;
	static char got[MESSAGE];
	int parts = 0;
	worker_start(&w, send_messages, &p.c);
	for (int i = 0; i < MESSAGES; i++) {
		ssize_t n;
		while ((n = recv(p.s, got, MESSAGE, MSG_DONTWAIT)) < 0)
			sched_yield();
		parts += n != MESSAGE;
		recv_all(p.s, got, (size_t)(MESSAGE - n));
		send_all(p.s, "t", 1);
	}
	worker_join(&w);
	say("in parts: %d", parts);
	pair_close(p);
}
