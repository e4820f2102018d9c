/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that ask what is ready: poll, select and their kin. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

static const short masks[] = {POLLIN,
			      POLLIN,
			      POLLOUT,
			      POLLIN | POLLOUT,
			      0,
			      POLLPRI,
			      POLLRDHUP,
			      POLLIN | POLLRDHUP,
			      POLLRDNORM | POLLWRNORM,
			      POLLIN | POLLPRI,
			      POLLERR | POLLHUP,
			      POLLIN | POLLOUT | POLLRDHUP | POLLPRI};

static unsigned a_set(struct dice *d, struct pollfd *p, unsigned most)
{
	unsigned n = 1 + dice(d, most);
	for (unsigned i = 0; i < n; i++) {
		struct descriptor *s = pending() ? any_descriptor(d) : any_of(d, SOCKET);
		p[i] = (struct pollfd){s ? s->fd : -1, masks[dice(d, 12)], 0x55};
		switch (dice(d, 24)) {
		case 0:
			p[i].fd = -1;
			break;
		case 1:
			p[i].fd = -1 - p[i].fd;
			break;
		case 2:
			p[i].fd = 150; /* never open */
			break;
		}
	}
	return n;
}

static void tell_set(const struct pollfd *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		tell("  %d %s: %s", p[i].fd, events_of_poll((unsigned)p[i].events),
		     events_of_poll((unsigned)(unsigned short)p[i].revents));
}

static void op_poll(struct dice *d)
{
	struct pollfd p[12];
	unsigned n = a_set(d, p, once_in(d, 3) ? 12 : 3);
	int r;
	struct timespec none = {0, 0};
	sigset_t mask;
	sigemptyset(&mask);
	switch (dice(d, 3)) {
	case 0:
		r = ppoll(p, n, &none, once_in(d, 2) ? &mask : NULL);
		tell("ppoll(%u) = %s", n, result(r));
		break;
	default:
		r = poll(p, n, once_in(d, 10) ? 2 : 0);
		tell("poll(%u) = %s", n, result(r));
	}
	tell_set(p, n);
}

/* Without end, where something is known to be ready: what has a socket that is closed. */
static void op_poll_wait(struct dice *d)
{
	struct pollfd p[5];
	unsigned n = a_set(d, p, 4);
	p[n++] = (struct pollfd){150, POLLIN, 0};
	int r = poll(p, n, -1);
	tell("(%u) = %s", n, result(r));
	tell_set(p, n);
}

static void op_select(struct dice *d)
{
	fd_set in, out, except;
	int top = 0, asked[6], r;
	unsigned n = 1 + dice(d, 6), which = dice(d, 8);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	for (unsigned i = 0; i < n; i++) {
		struct descriptor *s = pending() ? any_descriptor(d) : any_of(d, SOCKET);
		asked[i] = s ? s->fd : 0;
		if (once_in(d, 60))
			asked[i] = 150;
		unsigned sets = dice(d, 8);
		if (sets & 1)
			FD_SET(asked[i], &in);
		if (sets & 2)
			FD_SET(asked[i], &out);
		if (sets & 4)
			FD_SET(asked[i], &except);
		if (asked[i] >= top)
			top = asked[i] + 1;
	}
	struct timeval none = {0, 0};
	struct timespec none2 = {0, 0};
	fd_set *i = which == 1 ? NULL : &in, *o = which == 2 ? NULL : &out,
	       *e = which == 3 ? NULL : &except;
	if (once_in(d, 3))
		r = pselect(top, i, o, e, &none2, NULL);
	else
		r = select(top, i, o, e, &none);
	tell("(%d) = %s", top, result(r));
	for (unsigned k = 0; k < n; k++)
		tell("  %d: %s%s%s", asked[k], FD_ISSET(asked[k], &in) ? "in " : "",
		     FD_ISSET(asked[k], &out) ? "out " : "",
		     FD_ISSET(asked[k], &except) ? "except" : "");
}

const struct op ops_poll[] = {
	{"poll", op_poll, 40},
	{"poll-wait", op_poll_wait, 4},
	{"select", op_select, 14},
	{NULL, NULL, 0},
};
