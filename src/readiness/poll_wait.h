/* SPDX-License-Identifier: Apache-2.0 */
/* One call of poll or select: what its looks and its sleeps know in common. */
#ifndef VD_READINESS_POLL_WAIT_H
#define VD_READINESS_POLL_WAIT_H

#include "readiness/look.h"
#include "readiness/poll.h"
#include "readiness/pollset.h"

/* What this thread did to one entry before its sleep, to be undone after it. */
struct item {
	struct sock *s;	     /* NULL: a kernel descriptor */
	uint32_t armed;	     /* interest that was armed */
	uint32_t forks;	     /* sock_forks then */
	uint64_t mark;	     /* before the sleep: see sock_mark */
	bool direct;	     /* its readiness is ours */
	bool counted;	     /* sock_poll_enter succeeded */
	bool mute;	     /* holds only bits that do not count: left out of sleeps */
	bool heard;	     /* the sleep has told something of it */
	struct pollfd *bell; /* its doorbell among the descriptors slept on */
	struct pollfd *far;  /* and its far bell, if it has one */
};

struct poll_wait {
	struct pollfd *fds;
	const uint32_t *accept;
	nfds_t n;
	struct pollset *set; /* or NULL; its instance is the last entry */
	struct pollfd *k;    /* n entries like fds, then the doorbells */
	nfds_t nk;
	nfds_t most; /* that the limit of descriptors allows the sleep */
	nfds_t spare; /* entries from here on, that the program ignores, can be doorbells */
	struct item *item;
	bool bells;    /* there are some among the descriptors slept on */
	size_t bytes;  /* of the memory for these two; 0: it is on the stack */
	nfds_t direct; /* entries that the last look in memory was for */
	bool any_kernel;
	bool any_asked; /* what the kernel alone learns of direct sockets is asked for */
	bool leave_tcp; /* the kernel is not asked about direct sockets this time */
	uint32_t handlers; /* signal handlers run by this thread before the call */
	bool late;	   /* a sleep lasted until the deadline */
	bool slept, dozed; /* the last one did take place; one of them has */
	int result;	   /* of the last sleep */
};

static inline uint32_t poll_accepted(const struct poll_wait *w, nfds_t i)
{
	if (w->accept)
		return w->accept[i];
	return (uint16_t)w->fds[i].events | LOOK_ALWAYS | POLLNVAL;
}

static inline uint32_t poll_wanted(const struct poll_wait *w, nfds_t i)
{
	return (uint16_t)w->fds[i].events | LOOK_ALWAYS;
}

/* What the kernel is to be asked about a direct socket. */
static inline void poll_ask_tcp(struct pollfd *k, struct sock *s, uint32_t want)
{
	int events = look_kernel_interest(s, want);

	if (events < 0)
		k->fd = -1;
	else
		k->events = (short)events;
}

/* Looks at the direct sockets, in memory where that is enough. Returns those ready. */
int poll_look(struct poll_wait *w);
/* One sleep at most: w->slept, with the answers noted, and 0; or -errno. */
int poll_sleep(struct poll_wait *w, uint64_t deadline, const sigset_t *mask);

#endif
