/* SPDX-License-Identifier: Apache-2.0 */
/* Signal handlers: the program's run through one of ours, which knows our locks. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "conn/peer.h"
#include "conn/report.h"
#include "preload/hook.h"
#include "preload/kernel_action.h"
#include "remote/remote.h"
#include "settings/config.h"

/*
 * The kernel calls `trampoline` with the program's own mask and flags; the table holds the
 * program's function. One word each, since handlers of all threads read it at any time:
 * the address, and above it what the trampoline has to know of the flags. An entry is
 * kept when the program goes back to SIG_DFL: a delivery may be on its way.
 */
static _Atomic uint64_t table[NSIG] FORK_DATA;
#define ADDRESS_BITS 57
#define HAS_RESTART  (1ull << 63)
#define HAS_RESET    (1ull << 62)
#define ADDED_INFO   (1ull << 61) /* SA_SIGINFO is ours, not the program's */
/* SIGSEGV and SIGBUS of a program that has no handler: there for our copies alone. */
#define GUARD 1ull
/* A signal that ends a program that has no handler: there for the report and the log alone. */
#define REPORTER 2ull

/* There is something to be written at an end by a signal. */
static _Atomic bool reports;

/* Guards the order of changes, and `hidden`. */
static struct lock table_lock FORK_DATA;
/* What the program has set in place of the guard or the reporter. */
static struct sigaction hidden[NSIG];

static bool is_function(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

static uint64_t entry_of(const struct sigaction *act)
{
	return (uint64_t)act->sa_sigaction |
	       (act->sa_flags & SA_RESTART ? HAS_RESTART : 0) |
	       (act->sa_flags & (int)SA_RESETHAND ? HAS_RESET : 0) |
	       (act->sa_flags & SA_SIGINFO ? 0 : ADDED_INFO);
}

static void (*function_of(uint64_t entry))(int, siginfo_t *, void *)
{
	return (void (*)(int, siginfo_t *, void *))(
		uintptr_t)(entry & ((1ull << ADDRESS_BITS) - 1));
}

static uint64_t entry_at(int sig)
{
	/* Relaxed: the word says all. */
	return load_relaxed(&table[sig]);
}

static void entry_set(int sig, uint64_t entry)
{
	store_relaxed(&table[sig], entry);
}

static void trampoline(int sig, siginfo_t *info, void *context);

/* What the kernel calls: that one, or what a program with a C library of its own needs in front. */
static void (*kernel_calls)(int, siginfo_t *, void *) = trampoline;
static bool has_kept; /* the signals that the host's C library keeps are the program's */
/* What handlers return to. */
static void *restorer;

/* As sigaction: glibc refuses two signals, which a C library of the program's own uses. */
static int set_real(int sig, const struct sigaction *act, struct sigaction *was)
{
	struct kernel_action to = {0}, from = {0};
	long r;

	if (!has_kept || (sig != 32 && sig != 33))
		return REAL(sigaction)(sig, act, was);
	if (act) {
		to.handler = act->sa_handler;
		to.flags =
			(uint64_t)(unsigned)act->sa_flags | 0x04000000; /* SA_RESTORER */
		to.restorer = restorer;
		memcpy(&to.mask, &act->sa_mask, sizeof(to.mask));
	}
	r = kernel_call4(SYS_rt_sigaction, sig, act ? (long)&to : 0, (long)&from,
			 sizeof(to.mask));
	if (r < 0)
		return (int)ret_errno(r);
	if (was) {
		was->sa_handler = from.handler;
		was->sa_flags = (int)(unsigned)from.flags;
		memcpy(&was->sa_mask, &from.mask, sizeof(from.mask));
	}
	return 0;
}

/* The kernel has taken an SA_RESETHAND handler away for a delivery that is yet to come. */
__attribute__((noinline)) static void put_back(int sig)
{
	struct sigaction act;

	if (!(entry_at(sig) & HAS_RESET) || set_real(sig, NULL, &act) != 0 ||
	    act.sa_handler != SIG_DFL)
		return;
	act.sa_sigaction = kernel_calls;
	set_real(sig, &act, NULL);
}

/* The default action: a fault happens again without us, a sent signal is sent again. */
__attribute__((noinline)) static void let_die(int sig, siginfo_t *info)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};

	set_real(sig, &none, NULL);
	if (!crit_is_fault(sig, info))
		crit_requeue(sig, info);
}

/* As the kernel would end it: here and now, whatever the mask is that the handler goes back to. */
static void die_of(int sig)
{
	const struct sigaction none = {.sa_handler = SIG_DFL};
	uint64_t bit = 1ull << (sig - 1);

	set_real(sig, &none, NULL);
	kernel_call4(SYS_tgkill, kernel_getpid(), kernel_gettid(), sig, 0);
	kernel_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&bit, 0, sizeof(bit));
}

/*
 * Before any critical section is asked for: without us the program would end at once, though
 * another process holds a lock. The first process of a pid namespace does not end at all.
 */
static __attribute__((noinline)) void report_and_die(int sig)
{
	if (kernel_getpid() == 1)
		return;
	/* Not in the memory of another process, as in a child of vfork. */
	if (!hook_is_borrowed() && self_pid() == kernel_getpid())
		report_write_dying();
	die_of(sig);
}

static void used_up(int sig, uint64_t entry);

void (*signal_pick(int sig, siginfo_t *info, void *context))(int, siginfo_t *, void *)
{
	uint64_t entry = entry_at(sig);

	if (__builtin_expect(crit_lent, 0) && !hook_is_borrowed())
		hook_vfork_returned(false);
	if (__builtin_expect(entry == REPORTER, 0)) {
		report_and_die(sig);
		return NULL;
	}
	if (crit_recover(sig, info, context) || crit_defer(sig, info, context)) {
		put_back(sig);
		return NULL;
	}
	lock_give_all_back();
	entry = entry_at(sig);
	if (entry == GUARD) {
		let_die(sig, info);
		return NULL;
	}
	/* It may read what a receive of this thread was given to fill, change what a send was given,
	 * or never return to either. */
	if (__builtin_expect(peer_offering != 0, 0))
		across_offer_end(false);
	if (__builtin_expect(peer_lending != 0, 0))
		across_lend_end();
	if (__builtin_expect(entry & HAS_RESET, 0))
		used_up(sig, entry);
	crit_note_handler(entry & HAS_RESTART);
	return function_of(entry);
}

void (*signal_pick_stray(int sig, siginfo_t *info))(int, siginfo_t *, void *)
{
	const struct kernel_action none = {.handler = SIG_DFL};
	uint64_t entry = entry_at(sig);

	if (entry != GUARD && entry != REPORTER)
		return function_of(entry);
	kernel_call4(SYS_rt_sigaction, sig, (long)&none, 0, sizeof(none.mask));
	if (!crit_is_fault(sig, info))
		crit_requeue(sig, info);
	return NULL;
}

/*
 * The last call is a jump, so that the handler finds the stack as the kernel made it. One
 * of a single argument finds that one where it expects it.
 */
static void trampoline(int sig, siginfo_t *info, void *context)
{
	void (*function)(int, siginfo_t *, void *) = signal_pick(sig, info, context);

	if (function)
		function(sig, info, context);
}

/* Makes of what the kernel has, or had while the table's entry was this, what the program would
 * see without us. */
static void translate(int sig, uint64_t entry, struct sigaction *act)
{
	if (act->sa_sigaction == kernel_calls) {
		if (entry == GUARD || entry == REPORTER) {
			*act = hidden[sig];
			return;
		}
		act->sa_sigaction = function_of(entry);
	} else if (act->sa_handler != SIG_DFL || !(entry & HAS_RESET)) {
		return; /* set without us, or past us */
	}
	if (entry & ADDED_INFO)
		act->sa_flags &= ~SA_SIGINFO;
}

/* As sigaction, past the table, for a program that is to see its own handlers. */
static int set_past_table(int sig, const struct sigaction *act, struct sigaction *was)
{
	int result = set_real(sig, act, was);

	if (result == 0)
		translate(sig, entry_at(sig), was);
	return result;
}

/* What a signal without a handler of the program's gets: GUARD, REPORTER, or 0, nothing. */
static uint64_t stand_in(int sig)
{
	if (sig == SIGSEGV || sig == SIGBUS)
		return GUARD;
	if (sig != SIGTERM && sig != SIGINT && sig != SIGHUP)
		return 0;
	return signal_has_last_words() && kernel_getpid() != 1 ? REPORTER : 0;
}

/* Nothing is lost where the signal is ignored: a fault ends the process anyway, and the others
 * do not end it. */
static int guard(int sig)
{
	struct sigaction ours = {.sa_sigaction = kernel_calls,
				 .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
	uint64_t entry = stand_in(sig);
	int result;

	if (!entry)
		return 0;
	result = set_real(sig, NULL, &hidden[sig]);
	if (result != 0 || hidden[sig].sa_handler != SIG_DFL)
		return result;
	if (entry == REPORTER) { /* the others of these wait meanwhile */
		memset(&ours.sa_mask, 0xff, sizeof(ours.sa_mask));
	}
	entry_set(sig, entry);
	return set_real(sig, &ours, NULL);
}

/* An SA_RESETHAND handler is about to run: behind it the default action holds, with last words.
 * Node.js ends so: its handlers of SIGTERM and SIGINT raise the signal once more. */
static __attribute__((noinline)) void used_up(int sig, uint64_t entry)
{
	int saved = errno;

	/* In a process of its own in our memory the table speaks of the other one's settings. */
	if (stand_in(sig) != REPORTER || hook_is_borrowed() ||
	    self_pid() != kernel_getpid())
		return;
	lock_take(&table_lock);
	if (entry_at(sig) == entry && guard(sig) == 0 && entry_at(sig) == REPORTER &&
	    entry & ADDED_INFO)
		hidden[sig].sa_flags &= ~SA_SIGINFO;
	lock_drop(&table_lock);
	errno = saved;
}

/* The program's own settings again, where nothing of ours is to run in its place. */
void signal_stand_down(void)
{
	store_relaxed(&reports, false);
	for (int sig = 1; sig < NSIG; sig++) {
		uint64_t entry = entry_at(sig);

		if (entry == GUARD || entry == REPORTER)
			set_real(sig, &hidden[sig], NULL);
	}
}

bool signal_has_last_words(void)
{
	/* Relaxed: who still finds it set does what it would have done before. */
	return load_relaxed(&reports);
}

/* The kernel's list of settings is this process's: a child of vfork has its own. */
static void reporters_leave(void)
{
	struct sigaction now;

	for (int sig = 1; sig < NSIG; sig++)
		if (entry_at(sig) == REPORTER && set_real(sig, NULL, &now) == 0 &&
		    now.sa_sigaction == kernel_calls)
			set_real(sig, &hidden[sig], NULL);
}

void signal_no_last_words(void)
{
	int saved = errno;

	if (hook_is_borrowed())
		return;
	lock_take(&table_lock);
	store_relaxed(&reports, false);
	reporters_leave();
	lock_drop(&table_lock);
	errno = saved;
}

/* One call of the kernel, as without us: many servers set a dozen handlers in each child. */
static int install(int sig, const struct sigaction *act, struct sigaction *was)
{
	struct sigaction ours = *act;
	uint64_t before = entry_at(sig);
	int result;

	if (!is_function(act) || (uint64_t)act->sa_handler >> ADDRESS_BITS) {
		result = set_past_table(sig, act, was);
		if (result == 0)
			result = guard(sig);
		return result;
	}
	/* The table first: whoever is called by the kernel finds a function there. */
	entry_set(sig, entry_of(act));
	ours.sa_sigaction = kernel_calls;
	ours.sa_flags |= SA_SIGINFO;
	result = set_real(sig, &ours, was);
	if (result == 0)
		translate(sig, before, was);
	else
		entry_set(sig, before);
	return result;
}

/* What is set before the constructor has run is found there. The settings cannot be asked then:
 * a sanitizer's handlers are set before there is an environment, or a lock to be had. */
static bool tracks(int sig)
{
	return hook_active && sig > 0 && sig < NSIG;
}

static int change(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction set = {.sa_handler = SIG_DFL}, was;
	int result;

	if (act)
		set = *act; /* a bad pointer shows before the lock is taken */
	if (hook_is_borrowed()) {
		result = set_past_table(sig, act ? &set : NULL, &was);
	} else {
		lock_take(&table_lock);
		result = act ? install(sig, &set, &was) : set_past_table(sig, NULL, &was);
		lock_drop(&table_lock);
	}
	if (result == 0 && old)
		*old = was;
	return result;
}

HOOK int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	if (!tracks(sig))
		return set_real(sig, act, old);
	return change(sig, act, old);
}
HOOK_ALIAS(__sigaction, sigaction);

void signal_init(void)
{
	const struct config *config = config_get();
	struct sigaction act, was;

	store_relaxed(&reports, config->report || log_level_now >= LOG_INFO);
	/* Libraries that came before us may have set handlers. */
	lock_take(&table_lock);
	for (int sig = 1; sig < NSIG; sig++)
		if (set_real(sig, NULL, &act) == 0 && is_function(&act) &&
		    act.sa_sigaction != kernel_calls)
			install(sig, &act, &was);
	for (int sig = 1; sig < NSIG; sig++)
		if (entry_at(sig) == 0)
			guard(sig);
	lock_drop(&table_lock);
}

FORK_CODE void signal_forked_child(void)
{
	/* Its owner may be a thread that lives in the parent only. */
	store_relaxed(&table_lock.word, 0);
	/* The first process of a pid namespace is not even woken by a signal of default action. */
	if (signal_has_last_words() && kernel_getpid() == 1)
		reporters_leave();
}

/* ---- programs that make their system calls themselves ---- */

long kernel_action_change(long sig, long set, long old, long size)
{
	struct kernel_action from, to = {0};
	struct sigaction act = {.sa_handler = SIG_DFL}, was;
	int saved = errno;
	long r;

	if (size != sizeof(from.mask) || sig <= 0 || sig >= NSIG)
		return kernel_call4(SYS_rt_sigaction, sig, set, old, size);
	if (set) {
		if (crit_copy(&from, (const void *)set, sizeof(from)) != 0)
			return -EFAULT;
		act.sa_handler = from.handler;
		act.sa_flags = (int)from.flags;
		memcpy(&act.sa_mask, &from.mask, sizeof(from.mask));
	}
	r = change((int)sig, set ? &act : NULL, &was) == 0 ? 0 : -errno;
	errno = saved;
	if (r != 0 || !old)
		return r;
	to.handler = was.sa_handler;
	to.flags = (uint32_t)was.sa_flags;
	to.restorer = (void *)was.sa_restorer;
	memcpy(&to.mask, &was.sa_mask, sizeof(to.mask));
	return crit_copy((void *)old, &to, sizeof(to)) == 0 ? 0 : -EFAULT;
}

void signal_enter_by(void (*entry)(int, siginfo_t *, void *))
{
	struct kernel_action sample;
	struct sigaction act;

	lock_take(&table_lock);
	for (int sig = 1; sig < NSIG; sig++)
		if (REAL(sigaction)(sig, NULL, &act) == 0 &&
		    act.sa_sigaction == kernel_calls) {
			act.sa_sigaction = entry;
			REAL(sigaction)(sig, &act, NULL);
		}
	kernel_calls = entry;
	/* There is always one: SIGSEGV is guarded. */
	kernel_call4(SYS_rt_sigaction, SIGSEGV, 0, (long)&sample, sizeof(sample.mask));
	restorer = sample.restorer;
	has_kept = true;
	lock_drop(&table_lock);
}

/* ---- the older names: in libc they go past us ---- */

/* glibc's signal() blocks the signal while its handler runs, and heeds siginterrupt. musl's does neither. */
#ifdef __GLIBC__
#define SIGNAL_IS_BSD true
#else
#define SIGNAL_IS_BSD false
#endif

/* Signals for which siginterrupt has asked that signal() sets no SA_RESTART. */
static _Atomic uint64_t interrupting;

static bool is_valid(int sig)
{
	return sig > 0 && sig < NSIG && (sig < 32 || sig >= SIGRTMIN);
}

static sighandler_t set_handler(int sig, sighandler_t handler, bool masked, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags}, old;

	if ((handler == SIG_ERR && SIGNAL_IS_BSD) || !is_valid(sig)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (masked)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) == 0 ? old.sa_handler : SIG_ERR;
}

HOOK sighandler_t signal(int sig, sighandler_t handler)
{
	uint64_t bits = load_relaxed(&interrupting);
	bool restart = !SIGNAL_IS_BSD || !is_valid(sig) || !(bits & 1ull << (sig - 1));

	return set_handler(sig, handler, SIGNAL_IS_BSD, restart ? SA_RESTART : 0);
}
HOOK_ALIAS(bsd_signal, signal);
HOOK_ALIAS(ssignal, signal);

HOOK sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, false,
			   (int)SA_RESETHAND | SA_NODEFER | SA_INTERRUPT);
}
#ifdef __GLIBC__
HOOK_ALIAS(__sysv_signal, sysv_signal);
#else
HOOK_ALIAS(__sysv_signal, signal);
#endif

HOOK int sigignore(int sig)
{
	const struct sigaction act = {.sa_handler = SIG_IGN};

	return sigaction(sig, &act, NULL);
}

HOOK int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (sigaction(sig, NULL, &act) != 0)
		return -1;
	if (interrupt) {
		atomic_fetch_or(&interrupting, 1ull << (sig - 1));
		act.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~(1ull << (sig - 1)));
		act.sa_flags |= SA_RESTART;
	}
	return sigaction(sig, &act, NULL);
}

HOOK sighandler_t sigset(int sig, sighandler_t handler)
{
	struct sigaction act = {.sa_handler = handler}, old;
	sigset_t set, was;

	sigemptyset(&set);
	if (sigaddset(&set, sig) != 0)
		return SIG_ERR;
	if (handler == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &set, &was) != 0 ||
		    sigaction(sig, NULL, &old) != 0)
			return SIG_ERR;
		return sigismember(&was, sig) ? SIG_HOLD : old.sa_handler;
	}
	if (sigaction(sig, &act, &old) != 0 || sigprocmask(SIG_UNBLOCK, &set, &was) != 0)
		return SIG_ERR;
	return sigismember(&was, sig) ? SIG_HOLD : old.sa_handler;
}
