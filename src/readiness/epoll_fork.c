/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of epoll instances in a fork, and before an exec. */
#include <string.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/sections.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/* The child gets the records as they are between two changes of their lists. */
void ready_forking(void)
{
	epoll_list_lock();
	/* The child must find the kernel's registrations, which are its own as well. It may give them more, unseen. */
	epoll_return_all_forking();
}

void ready_leaving(bool for_good)
{
	epoll_list_lock();
	epoll_return_all();
	/* The next image, or a child's, may give them more. */
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		if (!in->fds || !instance_survives_exec(in))
			continue;
		instance_lock(in);
		instance_goes_on(in);
		if (for_good)
			instance_give_spent(in, true);
		instance_unlock(in);
	}
	epoll_list_unlock();
}

void ready_staying(void)
{
	epoll_list_lock();
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		if (!in->fds)
			continue;
		instance_lock(in);
		instance_take_spent(in);
		instance_unlock(in);
	}
	epoll_list_unlock();
}

void ready_forked_parent(void)
{
	epoll_list_unlock();
}

/* It belongs to a thread of the parent's. */
static void hidden_forked(struct instance *in)
{
	int fd = in->epfd;

	instance_forget(fd);
	fds_close(fd);
}

FORK_CODE void ready_forked_child(void)
{
	/* The parent's threads are not here, and neither are their sleeps and arms. */
	epoll_list_forked();
	store_relaxed(&epoll_outside, 0);
	for (struct instance *in = instance_next(NULL); in; in = instance_next(in)) {
		memset(&in->lock, 0, sizeof(in->lock));
		atomic_store(&in->sleepers, (atomic_load(&in->sleepers) >> 32 << 32) +
						    (in->blind ? 1 : 0));
		/* One of them may have been about to change the hot list. */
		in->nhot = 0;
		store_relaxed(&in->noted, false);
		for (struct epoll_reg *r = in->regs; r; r = r->next)
			r->hot_at = 0;
		for (struct epoll_reg *r = in->regs; r; r = r->next) {
			r->armed = 0;
			if (r->converted && !r->spent)
				reg_heat(r);
		}
		if (in->hidden)
			hidden_forked(in);
	}
}
