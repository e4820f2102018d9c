/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a sleep before its time: signals, as the kernel has it for a call on a socket. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include "base/await.h"
#include "base/brittle.h"
#include "base/real.h"
#include "conn/conn.h"

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

/*
 * A call that the kernel begins anew, it begins with the file that the descriptor is by then, and with
 * the settings of then: a handler with SA_RESTART may close the socket to end the call.
 */
int wait_interruption(const struct wait *w)
{
	if (crit_handlers() == w->handlers)
		return 0;
	return is_brittle(w) || crit_interruptions() != w->interruptions ? -EINTR
									 : SOCK_KERNEL;
}

/* The kernel had nothing to tell when the signal came: what is there by now the handler may have
 * brought. */
int wait_after_signal(const struct wait *w)
{
	int r = wait_interruption(w);
	if (r < 0)
		return r;
	/* A handler that was installed past us can only be guessed about. */
	return is_brittle(w) || !handlers_restart() ? -EINTR : SOCK_KERNEL;
}

int wait_in_kernel(struct wait *w, struct pollfd *fds, nfds_t n, int64_t ns)
{
	if (is_brittle(w))
		return brittle_poll(fds, n, ns, NULL, w->some);
	struct timespec left = {ns / 1000000000, ns % 1000000000};
	return await_poll(fds, n, ns != INT64_MAX ? &left : NULL, NULL);
}
