/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a handler forks at any instruction of a call, and the child comes out of the call, too. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "cases.h"
#include "kernel_action.h"

#define TRAP_FLAG 0x100

void forked_restorer(void);
__asm__(".pushsection .text\n"
	".globl forked_restorer\n"
	".hidden forked_restorer\n"
	"forked_restorer:\n"
	"	mov $15, %eax\n"
	"	syscall\n"
	".popsection\n");

static struct {
	volatile bool steps; /* one instruction after the other */
	volatile long left;  /* so many, then the handler runs that forks */
	volatile pid_t forked;
} step;

static void on_step(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig;
	(void)info;
	if (step.steps && --step.left == 0) {
		step.steps = false;
		raise(SIGUSR1);
	}
	if (step.steps)
		regs[REG_EFL] |= TRAP_FLAG;
	else
		regs[REG_EFL] &= ~TRAP_FLAG;
}

/* Past every library: a handler that one of them knows of ends the waits that are to be stepped through. */
static void step_by(void (*handler)(int, siginfo_t *, void *))
{
	const struct kernel_action action = {.handler = handler,
					     .flags = SA_SIGINFO | SA_RESTART |
						      KERNEL_RESTORER,
					     .restorer = forked_restorer};
	register long size __asm__("r10") = sizeof(action.mask);
	long rc = SYS_rt_sigaction;

	__asm__ __volatile__("syscall"
			     : "+a"(rc)
			     : "D"(SIGTRAP), "S"(&action), "d"(NULL), "r"(size)
			     : "rcx", "r11", "memory");
	NEED(rc == 0);
}

static void fork_now(int sig)
{
	(void)sig;
	step.forked = fork();
}

/* What the calls have sent, or left, comes before it. */
static bool passes(int from, int to, char byte)
{
	char got = 0;

	if (send(from, &byte, 1, 0) != 1)
		return false;
	while (got != byte)
		if (recv(to, &got, 1, 0) != 1)
			return false;
	return true;
}

/* Back and forth, and then the end. */
static bool works(struct pair p)
{
	struct timeval limit = {.tv_sec = 3};
	char rest[8];
	ssize_t n;

	NEED(setsockopt(p.c, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	for (int i = 0; i < 10; i++)
		if (!passes(p.c, p.s, 'c') || !passes(p.s, p.c, 's'))
			return false;
	close(p.s);
	while ((n = recv(p.c, rest, sizeof(rest), 0)) > 0)
		;
	return n == 0;
}

/* Whether both processes go on, and the connection with who has it; also where the call was over before. */
static bool fork_after(struct pair p, long (*call)(int fd), bool child_stays)
{
	long result;
	bool well;
	int status;

	step.forked = -1;
	step.steps = true;
	raise(SIGTRAP);
	result = call(p.s);
	step.steps = false;
	if (step.forked == -1) {
		pair_close(p);
		return true;
	}
	well = result >= 0 || errno == EINTR || errno == EAGAIN;
	if (step.forked == 0) {
		if (child_stays)
			_exit(!well || !works(p));
		close(p.c);
		close(p.s);
		_exit(!well);
	}
	if (child_stays) {
		close(p.c);
		close(p.s);
	}
	alarm(20);
	status = child_status(step.forked);
	if (!child_stays) {
		well &= works(p);
		close(p.c);
	}
	alarm(0);
	return well && status == 0;
}

/* Of the call's instructions: what comes around the kernel's own call. */
#define LAST 60

static struct pair pair_for(bool has_byte)
{
	struct pair p = pair_open();

	if (has_byte) {
		send_all(p.c, "a", 1);
		wait_inq(p.s, 1);
	}
	return p;
}

static void fork_anywhere(const char *name, long (*call)(int fd), bool has_byte)
{
	struct sigaction usr = {.sa_handler = fork_now, .sa_flags = SA_RESTART};
	long after = LONG_MAX;

	step_by(on_step);
	NEED(sigaction(SIGUSR1, &usr, NULL) == 0);
	for (int i = 0; i < 2; i++) { /* the first finds its functions */
		step.left = LONG_MAX;
		NEED(fork_after(pair_for(has_byte), call, false));
		after = LONG_MAX - step.left;
	}
	for (int child_stays = 0; child_stays < 2; child_stays++) {
		long bad = 0;

		for (long n = after > LAST ? after - LAST : 1; n < after; n++) {
			struct pair p = pair_for(has_byte);

			step.left = n;
			bad += !fork_after(p, call, child_stays);
		}
		say("%s, %s: %ld bad", name, child_stays ? "child" : "parent", bad);
	}
}

static long call_send(int fd)
{
	return send(fd, "x", 1, 0);
}

static long call_recv(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

CASE(forked_anywhere_send, ANYWAY)
{
	fork_anywhere("send", call_send, false);
}

CASE(forked_anywhere_recv, ANYWAY)
{
	fork_anywhere("recv", call_recv, true);
}
