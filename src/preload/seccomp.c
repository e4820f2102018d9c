/* SPDX-License-Identifier: Apache-2.0 */
/* What the program forbids itself, system calls above all: before that, Viaduct stands down. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/sigsafe.h"
#include "conn/report.h"
#include "preload/hook.h"
#include "preload/lent.h"
#include "preload/static.h"
#include "readiness/ready.h"

/*
 * Behind the filter the process may make the calls that its program makes, and none of ours: one
 * more may end it. So all its connections are TCP's for good before that, and no call of the
 * program's comes to us again: no socket is known, and nothing is said at the end. The filter may
 * be for all threads (SECCOMP_FILTER_FLAG_TSYNC); those that sleep in a ring are rung, and waited
 * for.
 */

/* How long threads of ours are waited for. */
#define LEAVE_NAPS   1000
#define LEAVE_NAP_NS 1000000

/* So libraries ask what the kernel knows: with a filter that is not there. */
static bool is_filter(const void *args)
{
	struct sock_fprog program;
	struct sock_filter first;

	return args && crit_copy(&program, args, sizeof(program)) == 0 &&
	       program.len > 0 && program.len <= BPF_MAXINSNS &&
	       crit_copy(&first, program.filter, sizeof(first)) == 0;
}

static bool any_thread_is_inside(void)
{
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (s &&
		    (atomic_load(&s->sleepers) > 0 || atomic_load(&s->bell_users) > 0))
			return true;
	}
	return false;
}

static void wait_for_threads(void)
{
	const struct timespec nap = {.tv_nsec = LEAVE_NAP_NS};

	for (int i = 0; i < LEAVE_NAPS && any_thread_is_inside(); i++)
		kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
}

/* True when all are the kernel's, but for what is kept. */
static bool leave_rings(void)
{
	bool all = true;

	hook_refuse_all(VD_REASON_SECCOMP);
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (s && sock_is_direct(s))
			all &= sock_abandon(s, fd);
	}
	return all;
}

static void stand_down(void)
{
	lent_unknown();
	int saved = errno;
	bool all;

	if (!hook_active || hook_is_borrowed())
		return;
	credentials_leave();
	all = leave_rings();
	if (!all)
		log_error("%s (%s): some connections cannot leave their rings",
			  reason_name(VD_REASON_SECCOMP), reason_text(VD_REASON_SECCOMP));
	wait_for_threads();
	hook_report();
	report_stop();
	static_stand_down();
	signal_stand_down();
	log_level_now = LOG_OFF;
	/* An image that is begun behind the filter need not be stopped by it, either. */
	setenv("VIADUCT", "off", 1);
	hook_active = false;
	all = ready_stand_down() && all;
	left_are_last = all;
	if (all && !left_any())
		fd_stand_down();
	errno = saved;
}

void seccomp_setting(unsigned long operation, unsigned long flags, const void *args)
{
	if (!hook_active)
		return;
	if (operation == SECCOMP_SET_MODE_STRICT
		    ? !flags && !args
		    : operation == SECCOMP_SET_MODE_FILTER && is_filter(args))
		stand_down();
}

static bool forbids(unsigned long option, unsigned long mode, const void *args)
{
	/* The processors' clock, which we read in nearly each call. */
	if (option == PR_SET_TSC)
		return mode == PR_TSC_SIGSEGV;
	return option == PR_SET_SECCOMP &&
	       (mode == SECCOMP_MODE_STRICT ||
		(mode == SECCOMP_MODE_FILTER && is_filter(args)));
}

void seccomp_prctl(unsigned long option, unsigned long mode, const void *args)
{
	if (hook_active && forbids(option, mode, args))
		stand_down();
}

HOOK int prctl(int option, ...)
{
	unsigned long a, b, c, d;
	va_list ap;

	va_start(ap, option);
	a = va_arg(ap, unsigned long);
	b = va_arg(ap, unsigned long);
	c = va_arg(ap, unsigned long);
	d = va_arg(ap, unsigned long);
	va_end(ap);
	seccomp_prctl((unsigned)option, a, (const void *)b);
	return REAL(prctl)(option, a, b, c, d);
}
