/* SPDX-License-Identifier: Apache-2.0 */
/* Receives and sends for a caller whose registers are not ours: statically linked programs. */
#ifndef VD_CONN_QUICK_H
#define VD_CONN_QUICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/general_regs.h"
#include "base/sigsafe.h"

struct sock;

/*
 * quick_recv and quick_send, and all that they come to, use no thread-local variable by FS: `struct quick` has the
 * addresses of those that they need. They change no vector register but XMM0 to 7, by the moves of
 * crit_copy_plain: no mask, and neither x87 nor MXCSR. So they are compiled without (base/general_regs.h), and call no
 * function of the C library, and of our own only those that wait for nobody. tests/static/quick.py looks at
 * what the compiler has made of it.
 *
 * All of it is one critical section, from quick_enter to quick_leave: no handler of the program finds it half done.
 * Where a signal is deferred meanwhile, or something is left to be done, the section goes on until quick_end,
 * which is called with FS and registers of ours.
 */
#if defined(__OPTIMIZE__) && GENERAL_REGS && !defined(__SANITIZE_THREAD__) &&            \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SSP_ALL__)
#define QUICK_IS_THERE 1
/* What that would compare is found by FS. */
#define QUICK_CODE __attribute__((no_stack_protector))
#else /* what the compiler adds may be anything */
#define QUICK_IS_THERE 0
#define QUICK_CODE
#endif

#define QUICK_RINGS_RX 1u
#define QUICK_RINGS_TX 2u
#define QUICK_IS_LATE  4u

struct quick {
	/* Of this thread. */
	uint32_t *depth, *deferred; /* see sigsafe.h */
	const bool *lent;
	const uint32_t *lock_tid, *wait_self;
	const uint32_t
		*cpu; /* in the kernel's words for this thread; NULL: it has none */
	/* What is left to quick_end, of a call that has moved something. */
	struct sock *sock;
	int fd;
	unsigned due; /* of the three below */
};

/* Of the calling thread. */
void quick_begin(struct quick *q);

static inline void quick_enter(const struct quick *q)
{
	++*q->depth;
	fence_compiler();
}

/* False: the section goes on, until quick_end. */
static inline bool quick_leave(const struct quick *q)
{
	if (q->due)
		return false;
	fence_compiler();
	--*q->depth;
	/* A signal before this line is deferred and seen below; one after it is not. */
	fence_compiler();
	if (__builtin_expect(*q->deferred == 0, 1) || *q->depth)
		return true;
	quick_enter(q);
	return false;
}

/* A count, of one piece; or 0: nothing was done. */
QUICK_CODE size_t quick_recv(int fd, void *buf, size_t len, struct quick *q);
QUICK_CODE size_t quick_send(int fd, const void *buf, size_t len, struct quick *q);
/* Ends the section. Signals that were deferred are delivered here, so that handlers of the program run. */
void quick_end(struct quick *q);

#endif
