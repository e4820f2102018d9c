/* SPDX-License-Identifier: Apache-2.0 */
/* A call of several messages holds its connection. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/kernel.h"
#include "base/sigsafe.h"
#include "conn/conn.h"
#include "conn/stay.h"
#include "conn/switch.h"

static void leave(void *arg)
{
	struct stay *y = arg;
	y->held = false;
	if (y->forks == sock_forks)
		sock_unhold(y->s);
}

void stay_begin(struct stay *y, struct sock *s, int fd, unsigned count)
{
	*y = (struct stay){.s = s, .fd = fd, .handlers = crit_handlers()};
	if (count < 2 || !sock_is_direct(s))
		return;
	crit_enter();
	y->forks = sock_forks;
	y->held = sock_hold(s, fd);
	if (y->held)
		_pthread_cleanup_push(&y->leaving, leave, y);
	crit_leave();
}

int stay_number(struct stay *y)
{
	if (!y->held)
		return y->fd;
	struct wait w = wait_start(y->s, y->fd, 0);
	w.held = true;
	/* Under a lock, with which whoever takes the number away gives the duplicate. */
	lock_take(&y->s->slot->rx_lock);
	if (!fd_is(y->fd, y->s) && wait_finds(&w))
		y->fd = w.fd;
	lock_drop(&y->s->slot->rx_lock);
	return y->fd;
}

static bool is_on_tcp(struct sock *s)
{
	return gate_is_kernel(gate_state(&s->slot->gate_rx));
}

int stay_sleeps(struct stay *y, int flags)
{
	struct pollfd p = {.fd = y->fd, .events = POLLIN | POLLRDHUP};
	/* One wait for all the naps: they have one time, and come to be naps at all behind looks in vain. */
	struct wait w = wait_start(y->s, y->fd, EPOLLIN);
	int saved = errno, r = 0;
	/* What is queued may be enough for this call where it is too little for SO_RCVLOWAT. */
	if (y->s->left || (wait_begin(&w, flags) & MSG_DONTWAIT) || rx_is_queued(y->fd))
		return 0;
	w.some = true;
	w.handlers = y->handlers;
	while (r == 0 && is_on_tcp(y->s) && kernel_poll(&p, 1, 0) == 0) {
		r = wait_for(&w);
		w.fd = p.fd = stay_number(y);
	}
	wait_finish(&w);
	errno = saved;
	return r < 0 ? r : !is_on_tcp(y->s);
}

void stay_end(struct stay *y)
{
	int saved = errno;
	if (!y->held)
		return;
	crit_enter();
	_pthread_cleanup_pop(&y->leaving, 1);
	crit_leave();
	errno = saved;
}
