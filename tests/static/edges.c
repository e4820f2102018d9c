/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked statically: signals, threads and processes in ways that are seldom, by names. */
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>

#include "cancel_signal.h"
#include "edges.h"

static sigjmp_buf jump;

void set(int sig, void (*handler)(int), int flags)
{
	const struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	CHECK(sigaction(sig, &act, NULL) == 0);
}

void fire(long us)
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

/* ---- what looks at the stack ---- */

/* musl has nothing that gcc's unwinder asks for. */
#ifdef __GLIBC__
static volatile int frames;

static _Unwind_Reason_Code count_frame(struct _Unwind_Context *context, void *arg)
{
	(void)context;
	(void)arg;
	frames++;
	return _URC_NO_REASON;
}

static void looks(int sig)
{
	(void)sig;
	frames = 0;
	_Unwind_Backtrace(count_frame, NULL);
	siglongjmp(jump, 1);
}

static volatile int *volatile nowhere;

static __attribute__((noinline)) int faults_below(int more)
{
	volatile int here = more;

	return (more ? faults_below(more - 1) : *nowhere) + here;
}

static void look(int flags)
{
	set(SIGSEGV, looks, flags);
	if (!sigsetjmp(jump, 1))
		faults_below(20);
	printf("all frames below a fault: %d\n", frames > 20);
	/* Something that gives the alternate stack back, see docs/static.md. */
	CHECK(write(STDOUT_FILENO, "", 0) == 0);
}

static void t_look(void)
{
	static char memory[65536];
	const stack_t s = {.ss_sp = memory, .ss_size = sizeof(memory)};

	CHECK(sigaltstack(&s, NULL) == 0);
	for (int i = 0; i < 3; i++)
		look(0);
	for (int i = 0; i < 3; i++)
		look(SA_ONSTACK);
}

/* Programs that cancel threads as musl's do, by a place in their code, are left. */
#if !__GLIBC_PREREQ(2, 41)
static sem_t never;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int cleaned, nothing[2];

static void clean(int *arg)
{
	cleaned += *arg;
	pthread_mutex_unlock(&held);
}

static void *waits(void *arg)
{
	__attribute__((cleanup(clean), unused)) int by = 1;
	struct pollfd p = {nothing[0], POLLIN, 0};
	char b;

	pthread_mutex_lock(&held);
	if (arg == &never)
		sem_wait(&never);
	else if (arg == nothing)
		CHECK(read(nothing[0], &b, 1) == 1);
	else
		poll(&p, 1, -1);
	return arg;
}

static void cancel_one(void *arg)
{
	pthread_t t;
	void *result;

	CHECK(pthread_create(&t, NULL, waits, arg) == 0);
	while (pthread_mutex_trylock(&held) == 0)
		pthread_mutex_unlock(&held);
	usleep(20000);
	CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
	printf("cancelled: %d, cleaned: %d, lock: %d\n", result == PTHREAD_CANCELED,
	       cleaned, pthread_mutex_trylock(&held));
	pthread_mutex_unlock(&held);
}

static void t_cancel(void)
{
	CHECK(pipe(nothing) == 0);
	sem_init(&never, 0, 0);
	for (int i = 0; i < 3; i++) {
		cancel_one(&never);
		cancel_one(nothing);
		cancel_one(&cleaned);
	}
}

static _Atomic int came, has_written;
static pid_t reader;

static void comes_back(int sig)
{
	(void)sig;
	came++;
}

/* Another one waits when it returns. */
static void comes_again(int sig)
{
	if (++came % 2)
		syscall(SYS_tgkill, getpid(), reader, sig);
}

static void *disturbs(void *arg)
{
	while (came < 5 || !has_written) {
		syscall(SYS_tgkill, getpid(), reader, 32);
		usleep(2000);
	}
	CHECK(write(nothing[1], "x", 1) == 1);
	return arg;
}

/* The C library's own signal, whose handler does not cancel. */
static void is_not_cancelled(void (*handler)(int))
{
	static char much[1 << 20];
	ssize_t n;
	pthread_t t;
	char b = 0;

	CHECK(pipe(nothing) == 0);
	set_cancel(handler);
	reader = (pid_t)syscall(SYS_gettid);
	CHECK(pthread_create(&t, NULL, disturbs, NULL) == 0);
	/* Made once more, it would wait for ever. */
	n = write(nothing[1], much, sizeof(much));
	CHECK(n > 0 && n < (ssize_t)sizeof(much));
	for (ssize_t done = 0; done < n;
	     done += read(nothing[0], much, (size_t)(n - done)))
		;
	has_written = 1;
	CHECK(read(nothing[0], &b, 1) == 1);
	CHECK(pthread_join(t, NULL) == 0);
	printf("read %c behind its handlers\n", b);
}

static void t_cancel_not(void)
{
	is_not_cancelled(comes_back);
}

static void t_cancel_not_twice(void)
{
	is_not_cancelled(comes_again);
}

static void comes_amid(int sig)
{
	(void)sig;
	CHECK(write(nothing[1], "", 0) == 0);
}

static void is_interrupted(int sig)
{
	(void)sig;
	came++;
	syscall(SYS_tgkill, getpid(), reader, SIGUSR1);
}

/* The handlers of both come again, and the mask is what it was. */
static void t_cancel_not_amid(void)
{
	sigset_t now;
	pthread_t t;
	char b = 0;

	CHECK(pipe(nothing) == 0);
	set(SIGUSR1, comes_amid, SA_RESTART);
	set_cancel(is_interrupted);
	has_written = 1;
	reader = (pid_t)syscall(SYS_gettid);
	CHECK(pthread_create(&t, NULL, disturbs, NULL) == 0);
	CHECK(read(nothing[0], &b, 1) == 1 && pthread_join(t, NULL) == 0);
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	printf("read %c, blocked: %d\n", b, sigismember(&now, SIGUSR1));
}
#else
/* In the place of the function that makes a program such a one. */
int __pthread_cancel(pthread_t thread);
int __pthread_cancel(pthread_t thread)
{
	(void)thread;
	return ENOSYS;
}
#endif
#endif

/* ---- the kernel's answers ---- */

static char first[65536], second[65536];
static const stack_t on_first = {.ss_sp = first,
				 .ss_size = sizeof(first),
				 .ss_flags = (int)(1u << 31)}; /* SS_AUTODISARM */
static int inner[2];

static const char *name_of(const void *at)
{
	return at == first ? "first" : at == second ? "second" : "none";
}

static void say_alternate(const char *where)
{
	stack_t s;

	CHECK(syscall(SYS_sigaltstack, NULL, &s) == 0);
	printf("%s: %s %x\n", where, name_of(s.ss_sp), (unsigned)s.ss_flags);
}

static void on_second(int sig)
{
	char here;

	(void)sig;
	printf("on the second: %d\n", &here > second && &here < second + sizeof(second));
	CHECK(write(inner[1], "x", 1) == 1);
}

static void gives_up(int sig)
{
	const stack_t s = {.ss_sp = second, .ss_size = sizeof(second)};
	char b;

	(void)sig;
	say_alternate("in the handler");
	CHECK(syscall(SYS_sigaltstack, &s, NULL) == 0);
	say_alternate("then");
	set(SIGALRM, on_second, SA_ONSTACK | SA_RESTART);
	fire(2000);
	CHECK(read(inner[0], &b, 1) == 1);
	say_alternate("at its end");
}

static void t_alternate(void)
{
	stack_t s = {.ss_sp = first, .ss_size = sizeof(first), .ss_flags = SS_ONSTACK};

	CHECK(pipe(inner) == 0);
	say_alternate("none");
	CHECK(syscall(SYS_sigaltstack, &s, NULL) == 0);
	say_alternate("set");
	CHECK(syscall(SYS_sigaltstack, &on_first, NULL) == 0);
	say_alternate("disarming");
	set(SIGUSR1, gives_up, SA_ONSTACK);
	raise(SIGUSR1);
	say_alternate("behind it");
	raise(SIGUSR1);
	s.ss_flags = SS_DISABLE;
	CHECK(syscall(SYS_sigaltstack, &s, NULL) == 0);
	say_alternate("disabled");
	s.ss_flags = 77;
	printf("%ld", syscall(SYS_sigaltstack, &s, NULL));
	printf(" %d\n", errno);
}

static void says_stack(int sig)
{
	char here;

	(void)sig;
	printf("on the first: %d\n", &here > first && &here < first + sizeof(first));
}

/* A stack that no handler has begun on stays where it is. */
static void t_alternate_no_memory(void)
{
	static char *volatile none = (char *)8;

	make_pair();
	CHECK(syscall(SYS_sigaltstack, &on_first, NULL) == 0);
	set(SIGUSR1, says_stack, SA_ONSTACK);
	for (size_t i = 1; i < 2000; i += 400) {
		CHECK(write(ends_of.client, first, i) == (ssize_t)i);
		CHECK(recv(ends_of.server, none, i, 0) == -1 && errno == EFAULT);
		say_alternate("behind a fault");
		raise(SIGUSR1);
		CHECK(recv(ends_of.server, second, i, 0) == (ssize_t)i);
	}
}

static void t_bad_pointers(void)
{
	static char *volatile bad = (char *)8;
	long a = syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8), error = errno;
	long b = syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8);

	printf("rt_sigaction: %ld %ld, %ld %d\n", a, error, b, errno);
}

static const struct edge_case cases[] = {
	{"leave", t_leave},
	{"leave_alternate", t_leave_alternate},
	{"leave_inner", t_leave_inner},
	{"nest", t_nest},
#ifdef __GLIBC__
	{"look", t_look},
#if !__GLIBC_PREREQ(2, 41)
	{"cancel", t_cancel},
	{"cancel_not", t_cancel_not},
	{"cancel_not_twice", t_cancel_not_twice},
	{"cancel_not_amid", t_cancel_not_amid},
#endif
#endif
	{"alternate", t_alternate},
	{"alternate_no_memory", t_alternate_no_memory},
	{"bad_pointers", t_bad_pointers},
	{NULL, NULL},
};

static void pick(const struct edge_case *c, const char *name)
{
	for (; c->name; c++)
		if (!name)
			puts(c->name);
		else if (strcmp(name, c->name) == 0)
			c->run();
}

/* Without a name: says them all. */
int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	pick(cases, argc < 2 ? NULL : argv[1]);
	pick(edges_process, argc < 2 ? NULL : argv[1]);
	pick(edges_begin, argc < 2 ? NULL : argv[1]);
	pick(edges_quick, argc < 2 ? NULL : argv[1]);
	pick(edges_stack, argc < 2 ? NULL : argv[1]);
	return 0;
}
