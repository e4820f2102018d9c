/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked statically: signals, threads and processes in ways that are seldom, by names. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

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

/* musl's programs that cancel threads are left. */
static sem_t never;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int cleaned;

static void clean(int *arg)
{
	cleaned += *arg;
	pthread_mutex_unlock(&held);
}

static void *waits(void *arg)
{
	__attribute__((cleanup(clean))) int by = 1;

	pthread_mutex_lock(&held);
	sem_wait(&never);
	return arg;
}

static void t_cancel(void)
{
	pthread_t t;
	void *result;

	sem_init(&never, 0, 0);
	CHECK(pthread_create(&t, NULL, waits, NULL) == 0);
	while (pthread_mutex_trylock(&held) == 0)
		pthread_mutex_unlock(&held);
	usleep(20000);
	CHECK(pthread_cancel(t) == 0 && pthread_join(t, &result) == 0);
	printf("cancelled: %d, cleaned: %d, lock: %d\n", result == PTHREAD_CANCELED,
	       cleaned, pthread_mutex_trylock(&held));
}
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

static void t_bad_pointers(void)
{
	static char *volatile bad = (char *)8;
	long a = syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8), error = errno;
	long b = syscall(SYS_rt_sigaction, SIGUSR1, NULL, bad, 8);

	printf("rt_sigaction: %ld %ld, %ld %d\n", a, error, b, errno);
}

/* ---- children ---- */

static int status_of(long child)
{
	int status = -1;

	CHECK(child > 0);
	while (waitpid((pid_t)child, &status, 0) < 0)
		CHECK(errno == EINTR);
	return status;
}

static void t_fork_number(void)
{
	long child = syscall(SYS_fork);

	if (child == 0)
		_exit(3);
	printf("fork by its number: %x\n", status_of(child));
}

static char stack[65536] __attribute__((aligned(64)));

static void in_child(void)
{
	_exit(5);
}

/* clone3 whose child begins on a stack of its own. */
static long clone3_on(uint64_t flags)
{
	/* The kernel's struct clone_args, of which musl has no header. */
	const struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack,
			stack_size, tls;
	} a = {.flags = flags,
	       .exit_signal = SIGCHLD,
	       .stack = (uint64_t)(uintptr_t)stack,
	       .stack_size = sizeof(stack)};
	long result;

	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "call *%[f]\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone3), "D"(&a),
			   "S"(sizeof(a)), [f] "r"(in_child)
			 : "rcx", "r11", "memory");
	return result;
}

static void t_clone3_stack(void)
{
	printf("clone3, a stack: %x\n", status_of(clone3_on(0)));
	printf("clone3, our memory: %x\n", status_of(clone3_on(CLONE_VM)));
	printf("clone3, as vfork: %x\n", status_of(clone3_on(CLONE_VM | CLONE_VFORK)));
}

static int ends(void *arg)
{
	(void)arg;
	return 7;
}

static void *makes_child(void *arg)
{
	pid_t child = clone(ends, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD,
			    NULL);

	printf("a child whose function returns: %x\n", status_of(child));
	return arg;
}

/* Where the number of threads cannot be known. */
static void t_no_proc(void)
{
	pthread_t t;
	void *result;

	/* Without the right to it there is a /proc, and the rest is the same. */
	if (geteuid() == 0 || unshare(CLONE_NEWUSER) == 0)
		(void)!chroot("/usr");
	makes_child(NULL);
	CHECK(pthread_create(&t, NULL, makes_child, stack) == 0);
	CHECK(pthread_join(t, &result) == 0 && result == stack);
}

static volatile int hits;

static void hit(int sig)
{
	(void)sig;
	hits++;
}

static int strays(void *arg)
{
	(void)arg;
	kill(getpid(), SIGUSR1);
	return hits;
}

static int is_killed(void *arg)
{
	(void)arg;
	kill(getpid(), SIGTERM);
	return 1;
}

static void t_stray(void)
{
	static struct {
		char before[4096], stack[8192];
	} m __attribute__((aligned(64)));
	int dirty = 0;

	set(SIGUSR1, hit, 0);
	memset(m.before, 7, sizeof(m.before));
	printf("a child in our memory: %x\n",
	       status_of(clone(ends, m.stack + 256, CLONE_VM | SIGCHLD, NULL)));
	for (size_t i = 0; i < sizeof(m.before); i++)
		dirty += m.before[i] != 7;
	printf("written below its stack: %d\n", dirty);
	printf("its handler: %x\n",
	       status_of(clone(strays, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL)));
	printf("killed: %x\n", status_of(clone(is_killed, stack + sizeof(stack),
					       CLONE_VM | SIGCHLD, NULL)));
}

static int reads_null(void *arg)
{
	return *(volatile int *)arg;
}

static void t_stray_fault(void)
{
	printf("a fault: %x\n", status_of(clone(reads_null, stack + sizeof(stack),
						CLONE_VM | SIGCHLD, NULL)) &
					0x7f);
}

static struct {
	int client, server;
} ends_of;

static void make_pair(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);
	const struct timeval wait = {5, 0};
	int l = socket(AF_INET, SOCK_STREAM, 0);
	char b[4];

	CHECK(bind(l, (void *)&a, size) == 0 && listen(l, 4) == 0);
	CHECK(getsockname(l, (void *)&a, &size) == 0);
	ends_of.client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends_of.client, (void *)&a, size) == 0);
	ends_of.server = accept(l, NULL, NULL);
	CHECK(ends_of.server >= 0);
	setsockopt(ends_of.server, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	setsockopt(ends_of.client, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	for (int i = 0; i < 4; i++) {
		CHECK(write(ends_of.client, "one", 3) == 3);
		CHECK(read(ends_of.server, b, 3) == 3);
		CHECK(write(ends_of.server, "two", 3) == 3);
		CHECK(read(ends_of.client, b, 3) == 3);
	}
}

static int answers(void *arg)
{
	char b[4];

	(void)arg;
	return read(ends_of.client, b, 4) != 4 || memcmp(b, "ping", 4) != 0 ||
	       write(ends_of.client, "pong", 4) != 4;
}

static void t_stray_io(void)
{
	char b[4] = "";

	make_pair();
	CHECK(write(ends_of.server, "ping", 4) == 4);
	printf("a child that answers: %x",
	       status_of(clone(answers, stack + sizeof(stack),
			       CLONE_VM | CLONE_FILES | SIGCHLD, NULL)));
	CHECK(read(ends_of.server, b, 4) == 4);
	printf(", %.4s\n", b);
}

/* ---- memory ---- */

static char *move_break(long by)
{
	long now = syscall(SYS_brk, 0);

	return (char *)(uintptr_t)syscall(SYS_brk, now + by);
}

static void t_break(void)
{
	char *end = move_break(0), *other;

	CHECK(move_break(1 << 20) == end + (1 << 20));
	memset(end, 5, 1 << 20);
	CHECK(move_break(-(1 << 20)) == end);
	CHECK(move_break(1 << 20) == end + (1 << 20));
	for (int i = 0; i < 1 << 20; i++)
		CHECK(end[i] == 0);
	end += 1 << 20;
	other = mmap(end + 65536, 4096, PROT_READ,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(other == end + 65536);
	puts(move_break(1 << 20) == end ? "stops at other memory" : "goes over it");
}

static _Atomic int is_over;

static void *moves_break(void *arg)
{
	while (!is_over) {
		move_break(65536);
		move_break(-65536);
	}
	return arg;
}

static void t_break_fork(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, moves_break, NULL) == 0);
	for (int i = 0; i < 60; i++) {
		long child = syscall(SYS_fork);

		if (child == 0) {
			alarm(20);
			move_break(4096);
			_exit(1);
		}
		CHECK(status_of(child) == 0x100);
	}
	is_over = 1;
	CHECK(pthread_join(t, NULL) == 0);
	puts("each child has moved its break");
}

static void t_little_memory(void)
{
	const struct rlimit limit = {1 << 30, 1 << 30};
	pthread_t t;

	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	CHECK(malloc(10 << 20));
	is_over = 1;
	CHECK(pthread_create(&t, NULL, moves_break, NULL) == 0 &&
	      pthread_join(t, NULL) == 0);
	puts("1 GB of address space is enough");
}

/* ---- ends of threads ---- */

static _Atomic uint32_t word;
static _Atomic int is_woken;

static void *waits_for_word(void *arg)
{
	const struct timespec most = {20, 0};

	is_woken = syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, &most) == 0 ? 1 : 2;
	return arg;
}

/* It ends between leaving its lock and waking whoever waits. */
static void *ends_amid(void *arg)
{
	static __thread struct {
		void *next;
		long offset;
		void *pending;
	} head;

	head.next = &head;
	head.pending = (void *)&word;
	CHECK(syscall(SYS_set_robust_list, &head, sizeof(head)) == 0);
	return arg;
}

static void t_robust(void)
{
	pthread_t waiter, t;

	CHECK(pthread_create(&waiter, NULL, waits_for_word, NULL) == 0);
	while (!is_woken) {
		CHECK(pthread_create(&t, NULL, ends_amid, NULL) == 0);
		CHECK(pthread_join(t, NULL) == 0);
	}
	CHECK(pthread_join(waiter, NULL) == 0);
	puts(is_woken == 1 ? "woken" : "not woken");
}

/* ---- the processor's flags ---- */

static long write_aligned(int fd, const char *from, size_t count)
{
	long result;

	/* AC: accesses that are not aligned fault. */
	__asm__ volatile("pushfq\n\t"
			 "orl $0x40000, (%%rsp)\n\t"
			 "popfq\n\t"
			 "syscall\n\t"
			 "pushfq\n\t"
			 "btl $18, (%%rsp)\n\t"
			 "jc 1f\n\t"
			 "movl $-4000, %%eax\n"
			 "1:\n\t"
			 "andl $~0x40000, (%%rsp)\n\t"
			 "popfq"
			 : "=a"(result)
			 : "0"((long)SYS_write), "D"(fd), "S"(from), "d"(count)
			 : "rcx", "r11", "memory", "cc");
	return result;
}

static void t_alignment(void)
{
	char b[16] = "", c[16] = "";

	make_pair();
	memcpy(b + 1, "unaligned", 9);
	printf("%ld", write_aligned(ends_of.client, b + 1, 9));
	CHECK(read(ends_of.server, c, 9) == 9);
	printf(" %s\n", c);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"leave", t_leave},
	{"leave_alternate", t_leave_alternate},
	{"leave_inner", t_leave_inner},
	{"nest", t_nest},
#ifdef __GLIBC__
	{"look", t_look},
	{"cancel", t_cancel},
#endif
	{"alternate", t_alternate},
	{"bad_pointers", t_bad_pointers},
	{"fork_number", t_fork_number},
	{"clone3_stack", t_clone3_stack},
	{"no_proc", t_no_proc},
	{"stray", t_stray},
	{"stray_fault", t_stray_fault},
	{"stray_io", t_stray_io},
	{"robust", t_robust},
	{"alignment", t_alignment},
	{"break", t_break},
	{"break_fork", t_break_fork},
	{"little_memory", t_little_memory},
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
