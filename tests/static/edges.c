/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked statically: signals, threads and processes in ways that are seldom, by names. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(x)                                                                         \
	do {                                                                             \
		if (!(x)) {                                                              \
			printf("%s:%d: %s (errno %d)\n", __func__, __LINE__, #x, errno); \
			exit(9);                                                         \
		}                                                                        \
	} while (0)

static sigjmp_buf jump;

static void set(int sig, void (*handler)(int), int flags)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	CHECK(sigaction(sig, &act, NULL) == 0);
}

static void fire(long us)
{
	const struct itimerval v = {{0, 0}, {0, us}};

	setitimer(ITIMER_REAL, &v, NULL);
}

/* ---- handlers that leave ---- */

static void leaves(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

static int leave_reads(int times)
{
	volatile int left = 0;
	int p[2];
	char b;

	CHECK(pipe(p) == 0);
	for (volatile int i = 0; i < times; i++) {
		if (sigsetjmp(jump, 1)) {
			left++;
			continue;
		}
		fire(2000);
		CHECK(read(p[0], &b, 1) == 1);
	}
	close(p[0]);
	close(p[1]);
	return left;
}

static void t_leave(void)
{
	set(SIGALRM, leaves, 0);
	printf("left %d calls in a row\n", leave_reads(40));
}

static void t_leave_alternate(void)
{
	static char memory[65536];
	const stack_t s = {.ss_sp = memory, .ss_size = sizeof(memory)};

	CHECK(sigaltstack(&s, NULL) == 0);
	set(SIGALRM, leaves, SA_ONSTACK);
	printf("left %d calls for the alternate stack\n", leave_reads(40));
}

/* A handler on the alternate stack, whose own calls are left. */
static void leaves_own(int sig)
{
	(void)sig;
	set(SIGALRM, leaves, SA_NODEFER);
	printf("left %d calls of a handler\n", leave_reads(40));
}

static void t_leave_inner(void)
{
	static char memory[65536];
	const stack_t s = {.ss_sp = memory, .ss_size = sizeof(memory)};

	CHECK(sigaltstack(&s, NULL) == 0);
	set(SIGUSR1, leaves_own, SA_ONSTACK);
	raise(SIGUSR1);
	set(SIGUSR1, leaves_own, 0);
	raise(SIGUSR1);
	CHECK(kill(getpid(), SIGUSR1) == 0);
}

static int depth, deepest, empty[2];

static void nests(int sig)
{
	char b;

	(void)sig;
	if (deepest == 60)
		return;
	if (++depth > deepest)
		deepest = depth;
	CHECK(read(empty[0], &b, 1) == -1 && errno == EINTR);
	depth--;
}

static void t_nest(void)
{
	const struct itimerval v = {{0, 500}, {0, 500}};
	char b;

	CHECK(pipe(empty) == 0);
	set(SIGALRM, nests, SA_NODEFER);
	setitimer(ITIMER_REAL, &v, NULL);
	CHECK(read(empty[0], &b, 1) == -1 && errno == EINTR);
	fire(0);
	printf("%d handlers in one another\n", deepest);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"leave", t_leave},
	{"leave_alternate", t_leave_alternate},
	{"leave_inner", t_leave_inner},
	{"nest", t_nest},
};

/* Without a name: says them all. */
int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (argc < 2)
			puts(cases[i].name);
		else if (strcmp(argv[1], cases[i].name) == 0)
			cases[i].run();
	return 0;
}
