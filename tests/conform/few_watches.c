/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: the kernel takes few registrations, as by fs.epoll.max_user_watches. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#define SEEN __attribute__((visibility("default")))

/* So many of this process are left; below 0 they are not counted. */
SEEN _Atomic int conform_watches = -1;

typedef int ctl_call(int ep, int op, int fd, struct epoll_event *ev);

SEEN int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	static ctl_call *next;
	int change = op == EPOLL_CTL_ADD ? -1 : op == EPOLL_CTL_DEL ? 1 : 0;
	int rc;

	if (!next)
		next = (ctl_call *)dlsym(RTLD_NEXT, "epoll_ctl");
	if (atomic_load(&conform_watches) < 0)
		return next(ep, op, fd, ev);
	if (change < 0 && atomic_load(&conform_watches) == 0) {
		errno = ENOSPC;
		return -1;
	}
	rc = next(ep, op, fd, ev);
	if (rc == 0)
		atomic_fetch_add(&conform_watches, change);
	return rc;
}
