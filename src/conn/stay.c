/* SPDX-License-Identifier: Apache-2.0 */
/* A splice holds its connection while it waits for a pipe. */
#include <errno.h>

#include "base/sigsafe.h"
#include "conn/conn.h"
#include "conn/stay.h"

static void leave(void *arg)
{
	struct stay *y = arg;
	y->held = false;
	if (y->forks == sock_forks)
		sock_unhold(y->s);
}

void stay_begin(struct stay *y, struct sock *s, int fd)
{
	*y = (struct stay){.s = s, .fd = fd};
	if (!sock_is_direct(s))
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
