/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on options and flags of a socket, and its shutdown. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "differential.h"

struct option {
	int level, name;
	const char *text;
	int some[4]; /* values to set */
};

static const struct option settable[] = {
	{SOL_SOCKET, SO_RCVLOWAT, "RCVLOWAT", {1, 1, 50, 400}},
	{SOL_SOCKET, SO_KEEPALIVE, "KEEPALIVE", {0, 1, 7, 1}},
	{SOL_SOCKET, SO_OOBINLINE, "OOBINLINE", {0, 1, 0, 1}},
	{SOL_SOCKET, SO_PRIORITY, "PRIORITY", {0, 1, 6, 2}},
	{SOL_SOCKET, SO_SNDBUF, "SNDBUF", {100000, 200000, 150000, 120000}},
	{SOL_SOCKET, SO_RCVBUF, "RCVBUF", {100000, 200000, 150000, 120000}},
	{IPPROTO_TCP, TCP_QUICKACK, "QUICKACK", {0, 1, 1, 1}},
	{IPPROTO_TCP, TCP_KEEPIDLE, "KEEPIDLE", {100, 1000, -1, 0}},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, "USER_TIMEOUT", {0, 100000, 1000000, -1}},
	{IPPROTO_TCP, TCP_NODELAY, "NODELAY", {1, 1, 1, 7}},
	{IPPROTO_IP, IP_TOS, "TOS", {0, 8, 16, 8}},
};

static const struct option readable[] = {
	{SOL_SOCKET, SO_ERROR, "ERROR", {0}},
	{SOL_SOCKET, SO_ERROR, "ERROR", {0}},
	{SOL_SOCKET, SO_ERROR, "ERROR", {0}},
	{SOL_SOCKET, SO_TYPE, "TYPE", {0}},
	{SOL_SOCKET, SO_ACCEPTCONN, "ACCEPTCONN", {0}},
	{SOL_SOCKET, SO_RCVLOWAT, "RCVLOWAT", {0}},
	{SOL_SOCKET, SO_SNDLOWAT, "SNDLOWAT", {0}},
	{SOL_SOCKET, SO_KEEPALIVE, "KEEPALIVE", {0}},
	{SOL_SOCKET, SO_PEEK_OFF, "PEEK_OFF", {0}},
	{SOL_SOCKET, SO_OOBINLINE, "OOBINLINE", {0}},
	{SOL_SOCKET, SO_PROTOCOL, "PROTOCOL", {0}},
	{SOL_SOCKET, SO_BROADCAST, "BROADCAST", {0}},
	{IPPROTO_TCP, TCP_NODELAY, "NODELAY", {0}},
	{IPPROTO_TCP, TCP_CORK, "CORK", {0}},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, "USER_TIMEOUT", {0}},
	{IPPROTO_TCP, 999, "999", {0}},
	{SOL_SOCKET, 999, "999", {0}},
};

static struct descriptor *a_socket(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s)
		tell("nothing");
	return s;
}

static void op_set(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	const struct option *o = &settable[dice(d, sizeof settable / sizeof *settable)];
	int value = o->some[dice(d, 4)];
	socklen_t len = once_in(d, 20) ? 2 : sizeof value;
	if (!s)
		return;
	if (o->name == SO_RCVLOWAT && unread(s) && !pending())
		value = 1;
	int r = setsockopt(s->fd, o->level, o->name, &value, len);
	tell("(%d, %s, %d, of %u) = %s", s->fd, o->text, value, len, result(r));
}

static void op_get(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	const struct option *o = &readable[dice(d, sizeof readable / sizeof *readable)];
	int value = 0;
	socklen_t len = once_in(d, 10) ? 2 : sizeof value;
	if (!s)
		return;
	int r = getsockopt(s->fd, o->level, o->name, &value, &len);
	tell("(%d, %s) = %s: %d of %u", s->fd, o->text, result(r), value, len);
}

static void op_peek_off(struct dice *d)
{
	static const int some[] = {-1, 0, 0, 10, 300};
	struct descriptor *s = a_socket(d);
	int value = some[dice(d, 5)];
	if (!s || !pending())
		return;
	int r = setsockopt(s->fd, SOL_SOCKET, SO_PEEK_OFF, &value, sizeof value);
	tell("(%d, %d) = %s", s->fd, value, result(r));
	end_of(s)->peeks = value >= 0;
}

/* Times that are long enough to have no effect, and those that are no times. */
static void op_timeout(struct dice *d)
{
	static const struct timeval some[] = {{0, 0},	      {1000, 0},
					      {1000, 500000}, {0, 1000000},
					      {0, -1},	      {9223372036854775807, 0}};
	struct descriptor *s = a_socket(d);
	int name = once_in(d, 2) ? SO_RCVTIMEO : SO_SNDTIMEO;
	struct timeval t = some[dice(d, 6)], is = {7, 7};
	socklen_t len = sizeof is;
	if (!s)
		return;
	int r = setsockopt(s->fd, SOL_SOCKET, name, &t, sizeof t);
	tell("%s(%d, %ld.%06ld) = %s", name == SO_RCVTIMEO ? "RCV" : "SND", s->fd,
	     (long)t.tv_sec, (long)t.tv_usec, result(r));
	r = getsockopt(s->fd, SOL_SOCKET, name, &is, &len);
	tell("is %s: %ld.%06ld of %u", result(r), (long)is.tv_sec, (long)is.tv_usec, len);
}

static void op_nonblock(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	int on = once_in(d, 2), r;
	if (!s)
		return;
	if (once_in(d, 2)) {
		r = ioctl(s->fd, FIONBIO, &on);
		tell("FIONBIO(%d, %d) = %s", s->fd, on, result(r));
	} else {
		r = fcntl(s->fd, F_SETFL, on ? O_NONBLOCK : 0);
		tell("F_SETFL(%d, %d) = %s", s->fd, on, result(r));
	}
	r = fcntl(s->fd, F_GETFL);
	tell("F_GETFL(%d) = %#x", s->fd, (unsigned)r);
}

static void op_names(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	struct sockaddr_in a = {0};
	socklen_t len = sizeof a;
	if (!s)
		return;
	int r = getpeername(s->fd, (struct sockaddr *)&a, &len);
	tell("getpeername(%d) = %s: family %d of %u", s->fd, result(r), a.sin_family,
	     len);
	len = 4;
	r = getsockname(s->fd, (struct sockaddr *)&a, &len);
	tell("getsockname(%d) = %s: family %d of %u", s->fd, result(r), a.sin_family,
	     len);
}

static void op_shutdown(struct dice *d)
{
	static const int some[] = {SHUT_WR, SHUT_WR, SHUT_RD, SHUT_RDWR, 3, -1};
	static const char *const text[] = {"WR", "WR", "RD", "RDWR", "3", "-1"};
	struct descriptor *s = a_socket(d);
	unsigned how = dice(d, 6);
	if (!s)
		return;
	if (!once_in(d, 3)) {
		tell("not this time");
		return;
	}
	int r = shutdown(s->fd, some[how]);
	tell("(%d, %s) = %s", s->fd, text[how], result(r));
	if (r != 0)
		return;
	end_of(s)->shut_write |= some[how] != SHUT_RD;
	end_of(s)->shut_read |= some[how] != SHUT_WR;
}

static void op_dissolve(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	struct sockaddr a = {.sa_family = AF_UNSPEC};
	if (!s)
		return;
	if (!once_in(d, 8)) {
		tell("not this time");
		return;
	}
	bool was = end_of(s)->gone;
	int r = connect(s->fd, &a, sizeof a);
	tell("(%d) = %s", s->fd, result(r));
	if (r == 0 && !was) {
		end_of(s)->gone = true;
		peer_of(s)->gone = true;
	}
}

/*
 * An end stays corked, and what it sends is let go when the operation is over: else what is
 * readable would depend on time. TCP drops held bytes that a reset meets; Viaduct does not
 * (docs/contract.md).
 */
static void op_cork(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	int on = once_in(d, 3);
	if (!s) {
		tell("nothing");
		return;
	}
	int r = setsockopt(s->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
	tell("(%d, %d) = %s", s->fd, on, result(r));
	if (r == 0)
		end_of(s)->corked = on;
}

void held_let_go(void)
{
	int on = 1;
	for (int i = 0; i < descriptor_count; i++)
		if (descriptors[i].kind == SOCKET && end_of(&descriptors[i])->corked)
			setsockopt(descriptors[i].fd, IPPROTO_TCP, TCP_NODELAY, &on,
				   sizeof on);
}

const struct op ops_option[] = {
	{"setsockopt", op_set, 12},    {"getsockopt", op_get, 16},
	{"peek-off", op_peek_off, 2},  {"timeout", op_timeout, 4},
	{"nonblock", op_nonblock, 8},  {"names", op_names, 3},
	{"shutdown", op_shutdown, 10}, {"cork", op_cork, 6},
	{"dissolve", op_dissolve, 3},  {NULL, NULL, 0},
};
