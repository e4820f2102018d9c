/* SPDX-License-Identifier: Apache-2.0 */
/* Ends by a signal, in the way that its arguments name: by_signal MODE [SIGNAL]. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int sig = SIGTERM;

/* What a program can see of the signal's action. */
static void say(const char *when)
{
	struct sigaction act = {.sa_flags = -1};

	sigaction(sig, NULL, &act);
	printf("%s: %s flags %x mask %d\n", when,
	       act.sa_handler == SIG_DFL   ? "default"
	       : act.sa_handler == SIG_IGN ? "ignored"
					   : "handler",
	       (unsigned)act.sa_flags, sigismember(&act.sa_mask, SIGUSR1));
	fflush(stdout);
}

static void say_child(const char *what, pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	printf("%s: signal %d status %d\n", what,
	       WIFSIGNALED(status) ? WTERMSIG(status) : 0,
	       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	fflush(stdout);
}

static void on_signal(int s)
{
	(void)s;
	_exit(5);
}

static void returns(int s)
{
	(void)s;
}

/* As Node.js does: its handler is for once. */
static void raises(int s)
{
	say("in the handler");
	raise(s);
}

static void set_once(void (*handler)(int))
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND};

	sigaddset(&act.sa_mask, SIGUSR1);
	sigaction(sig, &act, NULL);
	say("set");
}

static void *spin(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* Blocked, but for the wait: the handler goes back to a mask that blocks it. */
static void wait_with_mask(void)
{
	sigset_t set, none;

	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), sig);
	printf("blocked\n");
	fflush(stdout);
	ppoll(NULL, 0, NULL, &none);
	printf("went on\n");
}

static void wait_for_it(void)
{
	sigset_t set;
	int got = 0;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), sig);
	sigwait(&set, &got);
	printf("sigwait got it: %d\n", got == sig);
}

static void in_a_child_of_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		kill(getpid(), sig);
		_exit(9);
	}
	say_child("vfork", pid);
	say("after");
}

static void in_a_child_of_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		say("child");
		kill(getpid(), sig);
		_exit(9);
	}
	say_child("fork", pid);
}

static int dies(void *arg)
{
	(void)arg;
	kill(getpid(), sig);
	return 9;
}

/* A process of its own, in our memory. */
static void in_a_child_of_clone(void)
{
	static char stack[1 << 16] __attribute__((aligned(64)));

	say_child("clone", clone(dies, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
	say("after");
}

static void by_exec(const char *self)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", sig);
	execl(self, self, "kill", number, (char *)NULL);
}

static void with_threads(void)
{
	pthread_t t;

	for (int i = 0; i < 4; i++)
		pthread_create(&t, NULL, spin, NULL);
	kill(getpid(), sig);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	struct sigaction act = {.sa_handler = SIG_DFL, .sa_flags = SA_NODEFER};

	sig = argc > 2 ? atoi(argv[2]) : sig;
	close(socket(AF_INET, SOCK_STREAM, 0));
	say("start");
	if (!strcmp(mode, "back")) { /* to the default, with flags of its own */
		signal(sig, on_signal);
		say("set");
		sigaddset(&act.sa_mask, SIGUSR1);
		sigaction(sig, &act, NULL);
		say("back");
	} else if (!strcmp(mode, "handler")) {
		signal(sig, on_signal);
	} else if (!strcmp(mode, "returns")) {
		signal(sig, returns);
	} else if (!strcmp(mode, "raises")) {
		set_once(raises);
	} else if (!strcmp(mode, "once")) {
		set_once(returns);
		kill(getpid(), sig);
		say("after");
		set_once(returns);
		kill(getpid(), sig);
	} else if (!strcmp(mode, "ignore")) {
		signal(sig, SIG_IGN);
	} else if (!strcmp(mode, "mask")) {
		wait_with_mask();
	} else if (!strcmp(mode, "sigwait")) {
		wait_for_it();
		return 0;
	} else if (!strcmp(mode, "vfork")) {
		in_a_child_of_vfork();
		return 0;
	} else if (!strcmp(mode, "clone")) {
		in_a_child_of_clone();
		return 0;
	} else if (!strcmp(mode, "fork")) {
		in_a_child_of_fork();
		return 0;
	} else if (!strcmp(mode, "exec")) {
		by_exec(argv[0]);
	} else if (!strcmp(mode, "threads")) {
		with_threads();
	} else if (!strcmp(mode, "wait")) {
		for (;;)
			pause();
	}
	kill(getpid(), sig);
	say("went on");
	return 0;
}
