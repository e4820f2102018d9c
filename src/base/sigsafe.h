/* SPDX-License-Identifier: Apache-2.0 */
/* Sections that no handler of the program may enter, and copies that survive bad pointers.
 */
#ifndef VD_BASE_SIGSAFE_H
#define VD_BASE_SIGSAFE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

/*
 * A signal handler may use the very socket whose lock the thread that it interrupts holds.
 * So each lock is a critical section of its thread: a signal that arrives in one is sent
 * once more by the thread to itself, and stays blocked until the section ends.
 */
#define CRIT_TLS extern _Thread_local __attribute__((tls_model("initial-exec")))

CRIT_TLS uint32_t crit_depth;	    /* sections that this thread is in */
CRIT_TLS uint32_t crit_deferred;    /* what waits until the outermost one ends */
CRIT_TLS uint32_t crit_handled;	    /* handlers of the program run so far */
CRIT_TLS uint32_t crit_interrupted; /* those of them without SA_RESTART */

/*
 * This thread lends its memory to a child of vfork. That one may be killed amid a section, and what it has left here
 * would defer its parent's signals for ever. So the parent comes to crit_returned before any section of its own, or a
 * signal does first: while crit_lent is set, it is in no section but those that it was in before.
 */
CRIT_TLS bool crit_lent;
CRIT_TLS bool crit_has_lent; /* at any time */
/* From before the call until its parent has come to crit_came_back: a handler may run before there is a child. */
CRIT_TLS bool crit_comes_back;
void crit_lend(void);
/* A parent, or a child that has had one itself, is in the sections that crit_lend found. */
void crit_returned(bool is_child);
/* And the call is over. */
void crit_came_back(void);

void crit_release(void);
/* Called when this thread's outermost section has ended, where a handler could be: one at a time. */
void crit_at_end(void (*call)(void));

/* Only this thread's own handlers look: the compiler must keep the order, nobody else. */
static inline void crit_enter(void)
{
	crit_depth++;
	fence_compiler();
}

static inline void crit_leave(void)
{
	fence_compiler();
	crit_depth--;
	/* A signal before this line is deferred and seen below; one after it is not. */
	fence_compiler();
	if (__builtin_expect(crit_deferred != 0, 0) && crit_depth == 0)
		crit_release();
}

/*
 * Handlers that this thread has run, all of them and those without SA_RESTART: a call that
 * finds one of them changed since it began has been interrupted. Handlers that were
 * installed past Viaduct are not counted.
 */
static inline uint32_t crit_handlers(void)
{
	return crit_handled;
}

static inline uint32_t crit_interruptions(void)
{
	return crit_interrupted;
}

/* ---- for the handler that stands in for all of the program's ---- */

/* True when the signal was deferred: the caller returns at once. Never touches errno. */
bool crit_defer(int sig, siginfo_t *info, void *context);
/* True when a copy below has met a bad pointer: the caller returns, and the copy fails. */
bool crit_recover(int sig, const siginfo_t *info, void *context);
/* Sends a signal with all it says to this thread once more. */
void crit_requeue(int sig, siginfo_t *info);
/* SIGPIPE, as the kernel sends it to the thread that writes where nobody reads. */
void crit_send_sigpipe(void);
/* A handler of the program is about to run. */
void crit_note_handler(bool restarts);
/* A fault of the instruction at hand, rather than a signal that somebody has sent. */
bool crit_is_fault(int sig, const siginfo_t *info);

/* ---- copies from and to memory of the program ---- */

#define CRIT_PAGE_BYTES	 4096
#define CRIT_SHORT_BYTES 128
#define CRIT_LINE_BYTES	 64

/* With page tables of four levels no process can have memory behind it. */
#define CRIT_MEMORY_END 0x7ffffffff000ull
/* Nearly all memory: there is some of it, and every process could have it. */
static inline bool crit_is_near(const void *p, size_t len)
{
	uint64_t end = (uint64_t)p + len;

	return __builtin_expect(end > (uint64_t)p && end <= CRIT_MEMORY_END, 1);
}

/* Changes no vector register but XMM0 to 7. */
int crit_copy_short(void *to, const void *from, size_t len);
int crit_copy_long(void *to, const void *from, size_t len);
/* As crit_copy, by these alone. */
int crit_copy_plain(void *to, const void *from, size_t len);

/*
 * Returns 0, or -EFAULT when a part of the memory is not there; some of it may have been
 * copied then. Needs the handler above on SIGSEGV and SIGBUS, and these not blocked.
 */
static inline int crit_copy(void *to, const void *from, size_t len)
{
	if (__builtin_expect(len <= CRIT_SHORT_BYTES, 1))
		return crit_copy_short(to, from, len);
	return crit_copy_long(to, from, len);
}

/* The same, but past the caches: `to` is in none of them afterwards, as far as whole lines go. */
int crit_copy_past(void *to, const void *from, size_t len);

/* Whether a byte can be written, which keeps what it is, also where another thread writes it meanwhile. */
int crit_touch(void *p);

/*
 * Whether all of it can be read, at the time of asking: for arrays that are then read in
 * place, where the kernel would say EFAULT. A look at each page.
 */
static inline bool crit_readable(const void *p, size_t len)
{
	uint64_t word;
	const char *at = p, *last;

	if (len <= sizeof(word))
		return len == 0 || crit_copy(&word, at, len) == 0;
	last = at + len - sizeof(word);
	for (; last - at > CRIT_PAGE_BYTES; at += CRIT_PAGE_BYTES)
		if (crit_copy(&word, at, sizeof(word)) != 0)
			return false;
	return crit_copy(&word, at, sizeof(word)) == 0 &&
	       crit_copy(&word, last, sizeof(word)) == 0;
}

#endif
