/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the loader's system calls in this thread: syscall user dispatch for its code alone. */
#include "preload/load_watch.h"

#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/real.h"

/* linux/prctl.h has these since Linux 5.11. */
#define DISPATCH      59
#define DISPATCH_OFF  0
#define DISPATCH_ON   1
#define USER_DISPATCH 2

/*
 * The kernel passes system calls of code below the loader: libc, this library, and what is loaded. The
 * loader's own come here as SIGSYS, and are made from here. Only the watching thread is concerned. There
 * was no other thread when it began, so that nobody else changes what is done at SIGSYS.
 */
static bool (*watch_seen)(void *arg, uintptr_t begin, size_t len);
static void *watch_arg;
static struct sigaction before;
static uint64_t mask_before;
/* Relaxed throughout: the signal is this thread's own call. */
static _Atomic bool is_on;

static long dispatch(long mode, unsigned long len)
{
	return kernel_call6(SYS_prctl, DISPATCH, mode, 0, (long)len, 0, 0);
}

static bool watching(void)
{
	return load_relaxed(&is_on);
}

static void stop(void)
{
	if (exchange_relaxed(&is_on, false))
		dispatch(DISPATCH_OFF, 0);
}

static void caught(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;

	/* A filter's, or a sent one: it ends the process, as it would have. */
	if (info->si_code != USER_DISPATCH) {
		REAL(sigaction)(sig, &before, NULL);
		kernel_call4(SYS_tgkill, kernel_getpid(),
			     kernel_call4(SYS_gettid, 0, 0, 0, 0), sig, 0);
		return;
	}
	if (watching() && info->si_syscall == SYS_mprotect && r[REG_RDX] == PROT_READ &&
	    !watch_seen(watch_arg, (uintptr_t)r[REG_RDI], (size_t)r[REG_RSI]))
		stop();
	r[REG_RAX] = kernel_call6(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX],
				  r[REG_R10], r[REG_R8], r[REG_R9]);
}

bool load_watch_begin(bool (*seen)(void *arg, uintptr_t begin, size_t len), void *arg)
{
	const uintptr_t loader = getauxval(AT_BASE);
	const uint64_t sigsys = 1ULL << (SIGSYS - 1);
	struct sigaction act = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};

	if (watching() || !__libc_single_threaded || (uintptr_t)caught >= loader ||
	    (uintptr_t)REAL(read) >= loader)
		return false;
	if (REAL(sigaction)(SIGSYS, NULL, &before) < 0 || before.sa_flags & SA_SIGINFO ||
	    before.sa_handler != SIG_DFL)
		return false;
	watch_seen = seen;
	watch_arg = arg;
	REAL(sigaction)(SIGSYS, &act, NULL);
	/* A blocked one would end the process. */
	kernel_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&sigsys, (long)&mask_before,
		     sizeof(sigsys));
	store_relaxed(&is_on, true);
	if (dispatch(DISPATCH_ON, loader) == 0)
		return true;
	store_relaxed(&is_on, false);
	load_watch_end();
	return false;
}

void load_watch_end(void)
{
	const uint64_t sigsys = 1ULL << (SIGSYS - 1);
	struct sigaction now;

	stop();
	/* Unless what was loaded has taken it. */
	if (REAL(sigaction)(SIGSYS, NULL, &now) == 0 && now.sa_sigaction == caught)
		REAL(sigaction)(SIGSYS, &before, NULL);
	if (mask_before & sigsys)
		kernel_call4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&sigsys, 0,
			     sizeof(sigsys));
}
