/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread that polls many sockets keeps from one call to the next. */
#ifndef VD_READINESS_POLLSET_H
#define VD_READINESS_POLLSET_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "base/sigsafe.h"
#include "readiness/look.h"

/*
 * The direct sockets of a large set are registered in an epoll instance of Viaduct's own, which
 * belongs to the thread: then a call looks in memory only at those with which something happens,
 * and the kernel has one descriptor in place of two for each. The set is compared with that of
 * the call before; what has changed in it is registered anew when enough calls have paid for
 * that. All others are the `rest`, which is polled as ever, with the instance beside.
 */
struct pollset {
	struct instance *in; /* NULL: none, or no more */
	int epfd;
	pid_t owner;
	bool busy; /* in a call: a handler of this thread's does without */
	bool stale; /* during the call a socket of it has gone back to TCP, or it all has ended */
	uint32_t reverts; /* of the instance, when the set was compared */
	bool asleep;	  /* counted among the instance's sleepers */
	uint32_t sleep;	  /* what instance_sleep returned */
	uint64_t credit;
	bool small; /* the instance was made for a small set, and goes when that pays no more */
	nfds_t n, room;
	struct pollset_entry
		*entry; /* n, and the beginning of the block with the others */
	uint32_t *rest; /* places of those that are not in the instance */
	nfds_t nrest;
	struct pollfd *sub; /* nrest, and the instance */
	uint32_t *sub_accept;
	struct epoll_event *found; /* of the last look: data is the place */
	int nfound;
	const struct pollfd *fds; /* of the call */
	const uint32_t *accept;
};

/* Smaller sets, and fewer direct sockets, are looked at one by one. */
#define POLLSET_LEAST 64
/* But for those of so many while calls sleep: a look at a set that is kept costs more than at its
 * sockets one by one, a sleep less. */
#define POLLSET_SMALL 4

/* Larger sets are worth a look in any case. */
extern nfds_t pollset_over;
/* This thread keeps small sets as well. */
bool pollset_is_sleepy(void);
/* Whether such a set is to be kept by this thread. */
static inline bool pollset_is_wanted(nfds_t n)
{
	return n > pollset_over || (n >= POLLSET_SMALL && pollset_is_sleepy());
}
/* A call of this thread's with direct sockets among n is over. */
void pollset_count(bool slept);
static inline void pollset_note(nfds_t n, bool slept)
{
	/* Sleeps on fewer are not what a small set is kept for. */
	if (n <= POLLSET_LEAST && (n >= POLLSET_SMALL || slept))
		pollset_count(slept && n >= POLLSET_SMALL);
}
/* For tests: registers whatever can be from now on. Returns how often a set was taken so since. */
uint32_t pollset_eagerly(void);
/* For tests: how many entries this thread keeps. 0: no set is kept. */
nfds_t pollset_kept(void);
/* The key by which a thread's ends with it. Once. Where the program has many keys by then nothing is kept. */
void pollset_init(void);
/*
 * The thread's own, brought to these n entries, and with revents cleared. NULL when it is not
 * worth it, or not possible. Else to be given to pollset_leave.
 */
struct pollset *pollset_take(struct pollfd *fds, const uint32_t *accept, nfds_t n);
void pollset_leave(struct pollset *ps);
/* The rest, and the instance as the last, in sub. Returns how many. */
nfds_t pollset_rest(struct pollset *ps);
/* What a wait for these has come to, and the last look, go to revents. Returns how many entries
 * have something. */
int pollset_answer(struct pollset *ps, struct pollfd *fds);
/* Its instance keeps telling what nobody has asked for: this thread begins with another. */
void pollset_give_up(void);

/* How many have something, as of now, in memory: of those that have lately been busy. */
int pollset_look(struct pollset *ps);
/* What the kernel, or a doorbell, speaks of by now is in the next look. False when it is nothing. */
bool pollset_hear(struct pollset *ps);
/* How many there are by now. */
int pollset_found(struct pollset *ps);
void pollset_crowd(struct pollset *ps, struct look_crowd *c);
/* Before a sleep: all are armed. Look again after that. */
void pollset_lie_down(struct pollset *ps);
/* How long the sleep may last at most. */
uint64_t pollset_nap_ns(struct pollset *ps);
/* After it; nothing when the thread did not lie down. */
void pollset_wake(struct pollset *ps);

#endif
