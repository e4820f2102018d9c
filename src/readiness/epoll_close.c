/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the registrations of a socket whose descriptor is closed. */
#include <fcntl.h>

#include "base/kernel.h"
#include "base/real.h"
#include "readiness/epoll.h"

/* Another descriptor of this process that refers to the same socket, or -1. */
static int other_fd(struct sock *s, int not_this)
{
	for (int fd = 0; fd < fd_limit(); fd++)
		if (fd != not_this && fd_sock(fd) == s)
			return fd;
	return -1;
}

/* A poll holds what it waits for: the connection ends after it, see instance_let_close. */
static bool lingers(struct epoll_reg *r, int fd)
{
	struct instance *in = r->in;

	if (!in->polled || !r->converted || in->owner != epoll_self())
		return false;
	if (!r->lingers && !sock_hold(r->s, fd))
		return false;
	r->lingers = true;
	atomic_store(&in->lingering, true);
	return true;
}

/* The socket of one that did, or NULL. */
static struct sock *next_lingering(struct instance *in)
{
	struct epoll_reg *r = in->regs;
	struct sock *s;

	while (r && !r->lingers)
		r = r->next;
	if (!r)
		return NULL;
	s = r->s;
	r->orphan = true; /* the number may be another's by now */
	reg_disarm(r);
	reg_withdraw(r);
	reg_destroy(r);
	return s;
}

void instance_let_close(struct instance *in)
{
	struct sock *s;
	bool some;

	/* Who closed before the lock saw the call, and is seen here; after it nobody does. */
	instance_lock(in);
	in->polled = false;
	some = atomic_load(&in->lingering);
	atomic_store(&in->lingering, false);
	instance_unlock(in);
	while (some) {
		epoll_list_lock();
		instance_lock(in);
		s = next_lingering(in);
		instance_unlock(in);
		epoll_list_unlock();
		some = s;
		if (s)
			sock_unhold(s);
	}
}

/* Where another process has the socket as well, the registration is the kernel's again. */
static void give_up(struct epoll_reg *r, int fd)
{
	struct slot *sl = r->s->slot;
	bool shared = atomic_load(&sl->phase) >= SLOT_LEAVING || !slot_is_alone(sl);

	if (shared && !r->parked && r->orphan)
		reg_revert_orphan(r, fd);
	else if (shared && !r->parked)
		reg_revert(r);
	if (r->converted)
		reg_withdraw(r);
}

/* The kernel's key is the open file and the number: where both are there again, it is as well. */
void epoll_sock_duplicated(struct sock *s, int fd)
{
	for (struct epoll_reg *r = s->regs; r; r = r->next_of_sock) {
		instance_lock(r->in);
		if (r->fd == fd) {
			r->orphan = false;
			r->use_fd = fd;
		}
		instance_unlock(r->in);
	}
}

/* As in the kernel, a registration outlives its descriptor while the socket lives. */
void epoll_sock_closing(struct sock *s, int fd)
{
	struct epoll_reg *r, *next;
	int other = -1;

	if (atomic_load(&s->fds) > 1)
		other = other_fd(s, fd);
	for (r = s->regs; r; r = next) {
		struct instance *in = r->in;

		next = r->next_of_sock;
		instance_lock(in);
		if (other >= 0 && r->use_fd == fd && !r->parked) {
			r->use_fd = other;
			r->orphan |= r->fd == fd;
		} else if (other < 0 && !r->parked && lingers(r, fd)) {
			reg_chill(r);
		} else if (other < 0 || (r->parked && r->fd == fd)) {
			reg_disarm(r);
			/* A child's close leaves the parent's registration alone. */
			if (r->converted && in->owner == epoll_self())
				give_up(r, fd);
			/* The kernel goes on telling of it, as long as others have the socket. */
			if (!r->converted && sock_may_outlive(s))
				instance_mixed(in);
			reg_destroy(r);
		}
		instance_unlock(in);
	}
}
