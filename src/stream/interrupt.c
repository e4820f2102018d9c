/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a sleep before its time: signals, as the kernel has it for a call on a socket. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include "base/await.h"
#include "base/brittle.h"
#include "base/real.h"
#include "stream/conn.h"

/* Raised by what a thread does itself: never the reason of an interrupted sleep. */
static bool is_synchronous(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE ||
	       sig == SIGTRAP || sig == SIGSYS || sig == SIGABRT;
}

/* What the kernel would do after a signal handler has interrupted a blocking call. */
static bool handlers_restart(void)
{
	struct sigaction act;
	for (int sig = 1; sig < NSIG; sig++) {
		if (is_synchronous(sig) || REAL(sigaction)(sig, NULL, &act) < 0)
			continue;
		bool caught = (act.sa_flags & SA_SIGINFO) ||
			      (act.sa_handler != SIG_DFL && act.sa_handler != SIG_IGN);
		if (caught && !(act.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

/*
 * The kernel does not begin a call anew that has a timeout, or has moved bytes: any signal ends it,
 * and so does SIGCONT after a stop, with no handler at all.
 */
static bool is_brittle(const struct wait *w)
{
	return w->some || w->timeout_ns != TIMEOUT_NEVER;
}

bool wait_is_interrupted(struct wait *w)
{
	if (is_brittle(w))
		return crit_handlers() != w->handlers;
	/* What the call has been begun anew after does not end it later. */
	w->handlers = crit_handlers();
	return crit_interruptions() != w->interruptions;
}

bool wait_goes_on(struct wait *w)
{
	bool handled = crit_handlers() != w->handlers;
	if (wait_is_interrupted(w) ||
	    is_brittle(w)) /* what has come meanwhile is worth more */
		return w->rounds <= VAIN_ROUNDS && wait_hint(w->s, w->interest);
	/* A handler that was installed past us can only be guessed about. */
	return handled || handlers_restart();
}

int wait_in_kernel(struct wait *w, struct pollfd *fds, nfds_t n, int64_t ns)
{
	if (is_brittle(w))
		return brittle_poll(fds, n, ns);
	struct timespec left = {ns / 1000000000, ns % 1000000000};
	return await_poll(fds, n, ns != INT64_MAX ? &left : NULL, NULL);
}
