/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program that calls mark_begin and mark_end, and sends it a signal between these: behind the first instruction
 * in the first rounds, then one further, and so on, until they no longer lie so far apart.
 *
 * usage: inject SIGNAL MARK_BEGIN MARK_END PROGRAM...
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rounds with one distance: two calls, made in two ways each. */
#define ROUNDS 4
#define BREAK  0xcc

static pid_t program;
static int injected;
static unsigned long begin;
static long rounds, left, beyond;

static void trap_at(unsigned long at)
{
	long word = ptrace(PTRACE_PEEKTEXT, program, at, 0);

	if (ptrace(PTRACE_POKETEXT, program, at, (word & ~0xffl) | BREAK) != 0)
		exit(1);
}

static bool is_break(void)
{
	siginfo_t info;

	return ptrace(PTRACE_GETSIGINFO, program, 0, &info) == 0 &&
	       info.si_code == SI_KERNEL;
}

/* At a mark. */
static void mark(void)
{
	struct user_regs_struct regs;

	ptrace(PTRACE_GETREGS, program, 0, &regs);
	if (regs.rip == begin + 1) {
		left = ++rounds / ROUNDS + 1;
	} else {
		beyond = left > 0 ? beyond + 1 : 0;
		left = 0;
	}
}

/* The signal to go on with. */
static int trap(void)
{
	if (is_break())
		mark();
	else if (left > 0 && --left == 0)
		return injected;
	return 0;
}

/* What the program is to get of it, before it has begun. */
static int early(int sig, unsigned long end)
{
	if (sig == SIGSTOP) {
		trap_at(begin);
		trap_at(end);
	}
	return sig == SIGSTOP || sig == SIGTRAP ? 0 : sig;
}

static int run(unsigned long end)
{
	bool has_begun = false;
	int status, sig = 0;

	waitpid(program, &status, 0);
	while (beyond < 2 * ROUNDS) {
		if (ptrace(left > 0 ? PTRACE_SINGLESTEP : PTRACE_CONT, program, 0, sig) !=
			    0 ||
		    waitpid(program, &status, 0) != program)
			return 1;
		if (!WIFSTOPPED(status)) {
			printf("ends with %x, %ld instructions on\n", (unsigned)status,
			       rounds / ROUNDS);
			return 1;
		}
		sig = WSTOPSIG(status);
		if (!has_begun) {
			has_begun = sig == SIGSTOP;
			sig = early(sig, end);
		} else if (sig == SIGTRAP) {
			sig = trap();
		}
	}
	printf("%ld instructions\n", rounds / ROUNDS);
	return 0;
}

int main(int argc, char **argv)
{
	int result;

	if (argc < 5)
		return 2;
	injected = atoi(argv[1]);
	begin = strtoul(argv[2], NULL, 16);
	program = fork();
	if (program == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execvp(argv[4], argv + 4);
		_exit(127);
	}
	result = run(strtoul(argv[3], NULL, 16));
	kill(program, SIGKILL);
	return result;
}
