/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's instance would hand over next: our tags are taken out, the rest stays. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/scratch.h"
#include "readiness/epoll.h"

#define SIFT_EVENTS (SCRATCH_BYTES / sizeof(struct epoll_event))

/*
 * A look takes out of the kernel's queue what it is told. What is level-triggered is put there again by
 * the kernel itself, in its order. What is not, or is for once, would be lost, unless it is a tag of ours.
 * So the instance may hold no other such registration, whoever has made it: its listing in /proc says so.
 * Nor may there be more than one look takes, which would change their order.
 * Threads of ours that make one while we ask take the instance's lock before, to say so (`edges`); other
 * processes might, where the process has forked (`forked`), as long as one of them is there.
 */
void instance_note_own(struct instance *in, const struct epoll_event *ev)
{
	if (!(ev->events & (EPOLLET | EPOLLONESHOT)) || load_relaxed(&in->edges))
		return;
	instance_lock(in);
	instance_note_unseen(in);
	instance_unlock(in);
}

static bool is_plain(const char *line)
{
	uint64_t data;
	uint32_t events;
	int fd;

	return sscanf(line, "tfd: %d events: %" SCNx32 " data: %" SCNx64, &fd, &events,
		      &data) != 3 ||
	       !(events & (EPOLLET | EPOLLONESHOT)) || tag_collides(data);
}

/* Of the lines in text: false where one is not plain, or is one too many. What is left of the last one is
 * moved to its begin. */
static bool are_plain(char *text, size_t *len, size_t *lines)
{
	char *line = text, *end;

	text[*len] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		if (!is_plain(line) || ++*lines == SIFT_EVENTS)
			return false;
		line = end + 1;
	}
	*len -= (size_t)(line - text);
	memmove(text, line, *len);
	return true;
}

/* Also in a handler, and on a short stack. */
static bool holds_no_edge(int epfd)
{
	char path[40], text[512];
	size_t len = 0, lines = 0;
	bool plain = true;
	ssize_t n = 1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	low_begin();
	fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
	while (fd >= 0 && n > 0 && plain) {
		n = kernel_read(fd, text + len, sizeof(text) - 1 - len);
		len += n > 0 ? (size_t)n : 0;
		plain = n >= 0 && are_plain(text, &len, &lines) && len < sizeof(text) - 1;
	}
	if (fd >= 0)
		kernel_close(fd);
	low_end();
	return fd >= 0 && plain;
}

bool instance_may_sift(struct instance *in)
{
	return !load_relaxed(&in->edges) && !in->no_upgrade &&
	       in->owner == epoll_self() &&
	       !(in->forked &&
		 slot_table_has_others_since(in->first_fork, in->forking)) &&
	       holds_no_edge(instance_fd(in));
}

static void hear(struct instance *in, const struct epoll_event *ev)
{
	bool bell;

	if (ev->data.u64 == tag_of_shared())
		sock_hear_shared_bell();
	else if (tag_reg(ev->data.u64, &bell))
		tag_heard(in, ev);
}

bool instance_sift(struct instance *in)
{
	struct epoll_event *ev = scratch_take(SCRATCH_BYTES);
	int n;

	if (!ev)
		return false;
	n = kernel_epoll_look(instance_fd(in), ev, (int)SIFT_EVENTS);
	for (int i = 0; i < n; i++)
		hear(in, &ev[i]);
	scratch_give(ev, SCRATCH_BYTES);
	return n < (int)SIFT_EVENTS;
}
