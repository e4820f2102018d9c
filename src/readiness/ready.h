/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness over mixtures of descriptors: poll, select and epoll. */
#ifndef VD_READINESS_READY_H
#define VD_READINESS_READY_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

/*
 * Every call returns what the system call of the same name does: a count, 0 or -errno.
 * A timeout is relative, NULL waits for ever; a mask of NULL leaves the signal mask alone.
 * None of them may be called with a lock held.
 */

/* No instance is known to any call from now on. False: registrations are not the program's own yet,
 * and nothing has changed. */
bool ready_stand_down(void);

/* Once, before any other call here: from the library's constructor. */
void ready_init(void);

/* True when one of the descriptors is a socket of ours: cheaper than the call itself. */
bool ready_poll_concerns(struct pollfd *fds, nfds_t n);
int ready_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *mask);
/* The sets are changed as the kernel changes them: on success only. */
int ready_select(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout,
		 const sigset_t *mask);

/* kernel_fd is what epoll_create or epoll_create1 returned: a new instance, nothing else.
 * Returns kernel_fd, also when there is no memory: the instance then stays the kernel's. */
int ready_epoll_create(int kernel_fd);
/* Does the kernel's call too. */
int ready_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int ready_epoll_wait(int epfd, struct epoll_event *ev, int max,
		     const struct timespec *timeout, const sigset_t *mask);

/*
 * The same with a time in ms, for a caller that no handler leaves by a jump, and in no thread that is cancelled there; and for
 * instances alone where no registration is ours. `other`: it is another, and nothing was done.
 */
long ready_epoll_wait_alone(int epfd, struct epoll_event *ev, int max, int ms,
			    long other);

struct sock;
/* After that: whether s has a registration in epfd for bytes to read, and what it would tell. Once,
 * with `take`, where that is so for an edge. */
bool ready_left(int epfd, struct sock *s, struct epoll_event *ev, bool take);
/*
 * Before epfd is passed to a process that does not know our registrations: those of sockets
 * that have gone back to TCP are the program's own again, and `down` is to see to that. Nothing
 * when it is no instance.
 */
void ready_epoll_passing(int epfd, void (*down)(struct sock *s, int fd));

/*
 * Before the kernel closes fd, and before fd_closing: fd may be a registered socket or an
 * instance. A few nanoseconds when it is neither.
 */
void ready_closing(int fd);
/* After the kernel has made newfd a duplicate of oldfd (and ready_closing(newfd) before
 * it, where the number was in use). */
void ready_duplicated(int oldfd, int newfd);
/* Where epfd is an instance: another image gets it under a number that this process does not know. */
void ready_goes_along(int epfd);
/* Before the kernel is asked to tell of fd by a call that does not come by here again. */
void ready_watched(int fd);
/* Before an exec (for_good), or a child of libc's own: as for one that is passed, of all instances. */
void ready_leaving(bool for_good);
/* The exec has failed. */
void ready_staying(void);
/* Before a fork, after it in the parent, and in the child. */
void ready_forking(void);
void ready_forked_parent(void);
void ready_forked_child(void);

#endif
