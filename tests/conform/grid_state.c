/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection comes into each state of the grids, and what can be asked of it then. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "conform/grid_state.h"

/* Only Viaduct has it, and only both.py's mode asks for it: all cases, not the grids alone. */
__attribute__((weak)) void viaduct_test_one_way(void);
__attribute__((weak)) unsigned viaduct_test_poll_sets(void);

__attribute__((constructor)) static void choose_mode(void)
{
	if (viaduct_test_one_way && getenv("CONFORM_ONE_WAY"))
		viaduct_test_one_way();
	if (viaduct_test_poll_sets && getenv("CONFORM_POLL_SETS"))
		viaduct_test_poll_sets();
}

/* Tells both.py how many polls there were in this mode. */
__attribute__((destructor)) static void tell_mode(void)
{
	const char *path = getenv("CONFORM_POLL_SETS");
	FILE *f = viaduct_test_poll_sets && path ? fopen(path, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%u\n", viaduct_test_poll_sets());
	fclose(f);
}

bool grid_visits(void)
{
	static unsigned points;
	const char *thin = getenv("GRID_THIN");

	return !thin || points++ % (unsigned)atoi(thin) == 0;
}

static void reset(int fd)
{
	struct linger now = {1, 0};
	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
	NEED(close(fd) == 0);
}

static void empty(struct pair *p, enum stage stage)
{
	(void)p, (void)stage;
}

static void ten(struct pair *p, enum stage stage)
{
	stage_send(p->c, p->s, stage, 10);
}

static void plenty(struct pair *p, enum stage stage)
{
	stage_send(p->c, p->s, stage, 300);
}

static void end(struct pair *p, enum stage stage)
{
	(void)stage;
	NEED(shutdown(p->c, SHUT_WR) == 0);
	wait_events(p->s, POLLRDHUP);
}

static void ten_end(struct pair *p, enum stage stage)
{
	ten(p, stage);
	end(p, stage);
}

static void end_read(struct pair *p, enum stage stage)
{
	char byte;
	end(p, stage);
	NEED(recv(p->s, &byte, 1, 0) == 0);
}

static void peer_closed(struct pair *p, enum stage stage)
{
	(void)stage;
	NEED(close(p->c) == 0);
	p->c = -1;
	wait_events(p->s, POLLRDHUP);
}

static void ten_closed(struct pair *p, enum stage stage)
{
	ten(p, stage);
	peer_closed(p, stage);
}

/* It answers what is sent to it with a reset. */
static void closed_noticed(struct pair *p, enum stage stage)
{
	peer_closed(p, stage);
	NEED(send(p->s, "?", 1, 0) == 1);
	wait_events(p->s, POLLHUP);
}

static void reset_pending(struct pair *p, enum stage stage)
{
	(void)stage;
	reset(p->c);
	p->c = -1;
	wait_events(p->s, POLLHUP);
}

static void ten_reset(struct pair *p, enum stage stage)
{
	ten(p, stage);
	reset_pending(p, stage);
}

static void reset_read(struct pair *p, enum stage stage)
{
	char byte;
	reset_pending(p, stage);
	NEED(recv(p->s, &byte, 1, 0) < 0 && errno == ECONNRESET);
}

/* Its close answers with a reset. */
static void closed_unread(struct pair *p, enum stage stage)
{
	(void)stage;
	send_pattern(p->s, 0, 10);
	wait_inq(p->c, 10);
	NEED(close(p->c) == 0);
	p->c = -1;
	wait_events(p->s, POLLHUP);
}

static void ten_closed_unread(struct pair *p, enum stage stage)
{
	ten(p, stage);
	closed_unread(p, stage);
}

static void shut_read(struct pair *p, enum stage stage)
{
	(void)stage;
	NEED(shutdown(p->s, SHUT_RD) == 0);
}

static void ten_shut_read(struct pair *p, enum stage stage)
{
	ten(p, stage);
	shut_read(p, stage);
}

/* Linux takes what comes after it all the same. */
static void shut_read_ten(struct pair *p, enum stage stage)
{
	shut_read(p, stage);
	ten(p, stage);
}

static void shut_write(struct pair *p, enum stage stage)
{
	(void)stage;
	NEED(shutdown(p->s, SHUT_WR) == 0);
	wait_events(p->c, POLLRDHUP);
}

static void ten_shut_write(struct pair *p, enum stage stage)
{
	ten(p, stage);
	shut_write(p, stage);
}

static void shut_both(struct pair *p, enum stage stage)
{
	(void)stage;
	NEED(shutdown(p->s, SHUT_RDWR) == 0);
	wait_events(p->c, POLLRDHUP);
}

static void ten_shut_both(struct pair *p, enum stage stage)
{
	ten(p, stage);
	shut_both(p, stage);
}

static void both_ends(struct pair *p, enum stage stage)
{
	shut_write(p, stage);
	end(p, stage);
	wait_events(p->s, POLLHUP);
}

static void urgent(struct pair *p, enum stage stage)
{
	ten(p, stage);
	NEED(send(p->c, "!", 1, MSG_OOB) == 1);
	wait_events(p->s, POLLPRI);
	send_pattern(p->c, 10, 10);
	wait_inq(p->s, 10);
}

/* What is on its way makes room when the answer comes. */
static void wait_answered(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	do
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	while (info.tcpi_unacked > 0 && usleep(1000) == 0);
}

static bool fill(int fd)
{
	static const char many[32768];
	bool some = false;
	for (size_t len = sizeof many; len > 0; len /= 8)
		while (send(fd, many, len, MSG_DONTWAIT) > 0)
			some = true;
	NEED(errno == EAGAIN);
	return some;
}

static void full(struct pair *p, enum stage stage)
{
	(void)stage;
	do
		wait_answered(p->s);
	while (fill(p->s));
}

static void unconnected(struct pair *p, enum stage stage)
{
	(void)stage;
	state_close(*p);
	p->c = -1;
	p->s = socket(AF_INET, SOCK_STREAM, 0);
	NEED(p->s >= 0);
}

static void listener(struct pair *p, enum stage stage)
{
	uint16_t port;
	(void)stage;
	state_close(*p);
	p->c = -1;
	p->s = listen_any(AF_INET, &port);
}

const struct grid_state grid_states[] = {
	{"empty", empty, 0, false, false, false},
	{"10 bytes", ten, 10, false, false, false},
	{"300 bytes", plenty, 300, false, false, false},
	{"end", end, 0, true, false, false},
	{"10 bytes, end", ten_end, 10, true, false, false},
	{"end read", end_read, 0, true, false, false},
	{"closed", peer_closed, 0, true, true, false},
	{"10 bytes, closed", ten_closed, 10, true, true, false},
	{"closed, noticed", closed_noticed, 0, true, true, false},
	{"reset", reset_pending, 0, true, true, false},
	{"10 bytes, reset", ten_reset, 10, true, true, false},
	{"reset read", reset_read, 0, true, true, false},
	{"closed with unread", closed_unread, 0, true, true, false},
	{"10 bytes, closed with unread", ten_closed_unread, 10, true, true, false},
	{"shut for reading", shut_read, 0, true, false, false},
	{"10 bytes, shut for reading", ten_shut_read, 10, true, false, false},
	{"shut for reading, 10 bytes", shut_read_ten, 10, true, false, false},
	{"shut for writing", shut_write, 0, false, true, false},
	{"10 bytes, shut for writing", ten_shut_write, 10, false, true, false},
	{"shut", shut_both, 0, true, true, false},
	{"10 bytes, shut", ten_shut_both, 10, true, true, false},
	{"both ends", both_ends, 0, true, true, false},
	{"10 bytes, urgent, 10 bytes", urgent, 10, false, false, false},
	{"unconnected", unconnected, 0, true, true, false},
	{"listening", listener, 0, true, true, false},
	{"full", full, 0, false, true, true},
};
const size_t grid_states_count = COUNT_OF(grid_states);

struct pair state_open(const struct grid_state *state, enum stage stage)
{
	/* Set at both ends, buffers do not grow: full stays full. */
	int on = 1, size = 20000;
	struct pair p = stage_pair(state->full ? size : 0);
	if (state->full)
		NEED(setsockopt(p.s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
	/* Small pieces that come by both ways must not wait for each other's answers. */
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	NEED(setsockopt(p.s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	if (state->enter != unconnected && state->enter != listener)
		stage_enter(p, stage);
	state->enter(&p, stage);
	return p;
}

void state_close(struct pair p)
{
	if (p.c >= 0)
		reset(p.c);
	if (p.s >= 0)
		reset(p.s);
}

size_t state_drain(int fd, size_t off, const char **how)
{
	uint8_t buf[512];
	size_t got = 0;
	ssize_t n;
	while ((n = recv(fd, buf, sizeof buf, MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < n; i++, got++)
			if (buf[i] != pattern(off + got))
				broken("wrong bytes are left");
	*how = n < 0 ? errno_name(errno) : "end";
	return got;
}

void say_rest(const struct grid_state *state, struct pair p, const char *what, size_t off)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
	const char *first, *then;
	char before[96];
	int queued = -1, error = -1;
	socklen_t len = sizeof error;
	NEED(poll(&pf, 1, 0) >= 0);
	strcpy(before, poll_names(pf.revents));
	if (ioctl(p.s, FIONREAD, &queued) < 0)
		queued = -errno;
	NEED(getsockopt(p.s, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	size_t left = state_drain(p.s, off, &first);
	/* Behind urgent data it goes on. */
	left += state_drain(p.s, off + left, &then);
	pf.revents = 0;
	NEED(poll(&pf, 1, 0) >= 0);
	say("%s; %s, queued %d, error %s, left %zu, %s, %s, %s", what, before, queued,
	    error ? errno_name(error) : "0", left, first, then, poll_names(pf.revents));
	if (!state->deaf) {
		send_pattern(p.s, 5, 20);
		recv_pattern(p.c, 5, 20);
	} else if (p.c >= 0 && !state->full) {
		NEED(state_drain(p.c, 0, &then) == 0);
	}
}
