/* SPDX-License-Identifier: Apache-2.0 */
/* Children, threads, memory and flags of a statically linked program, in ways that are seldom. */
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edges.h"

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

struct ends ends_of;

void make_pair(void)
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

/* ---- the ends of threads ---- */

static void *ends_without_its_memory(void *arg)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t *held = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(held != MAP_FAILED);
	if (arg) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
		CHECK(pthread_mutex_init(held, &attr) == 0 &&
		      pthread_mutex_lock(held) == 0);
	} else {
		syscall(SYS_set_tid_address, held);
	}
	munmap(held, 4096);
	is_over = 1;
	syscall(SYS_exit, 0);
	return NULL;
}

static void t_gone_memory(void)
{
	pthread_t thread;

	make_pair();
	for (long robust = 0; robust < 2; robust++) {
		is_over = 0;
		CHECK(pthread_create(&thread, NULL, ends_without_its_memory,
				     robust ? &is_over : NULL) == 0);
		while (!is_over)
			usleep(1000);
		usleep(50000); /* it may be amid its end; plainly nothing comes of it */
	}
	puts("lives");
}

static volatile sig_atomic_t handled;

static void count_signal(int sig)
{
	(void)sig;
	handled++;
}

/* Without the call by which a signal can be sent to its own thread once more. */
static void forbid_queueing(void)
{
	/* The kernel's struct sock_fprog and what it holds, of which musl has no header. */
	static const struct {
		uint16_t code;
		uint8_t if_so, if_not;
		uint32_t k;
	} code[] = {
		{0x20, 0, 0, 0}, /* the call's number */
		{0x15, 0, 1, SYS_rt_tgsigqueueinfo},
		{0x06, 0, 0, 0x80000000}, /* ends the process */
		{0x06, 0, 0, 0x7fff0000}, /* allows it */
	};
	const struct {
		uint16_t len;
		const void *code;
	} program = {sizeof(code) / sizeof(code[0]), code};
	enum { FILTER = 2 };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, FILTER, &program) == 0);
}

static void t_filter_signals(void)
{
	const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	long child;

	make_pair();
	child = fork();
	if (child == 0) {
		char b[64] = "";
		int p[2];

		CHECK(pipe(p) == 0);
		set(SIGALRM, count_signal, SA_RESTART);
		forbid_queueing();
		setitimer(ITIMER_REAL, &often, NULL);
		while (handled < 1000) {
			CHECK(write(p[1], b, sizeof(b)) == sizeof(b));
			CHECK(read(p[0], b, sizeof(b)) == sizeof(b));
		}
		setitimer(ITIMER_REAL, &never, NULL);
		_exit(0);
	}
	printf("behind a filter: %x\n", status_of(child));
}

#ifdef __GLIBC__ /* of musl's it is not the kernel that tells who joins */
static void *ends_behind_filter(void *arg)
{
	enum { STRICT = 1 };

	CHECK(prctl(PR_SET_SECCOMP, STRICT, 0, 0, 0) == 0);
	syscall(SYS_exit, 0);
	return arg;
}

static void t_filter_and_join(void)
{
	pthread_t thread;

	make_pair();
	CHECK(pthread_create(&thread, NULL, ends_behind_filter, NULL) == 0);
	printf("%d\n", pthread_join(thread, NULL));
}

#endif

/* ---- exec ---- */

static void t_exec_refused(void)
{
	const char *program = getenv("EDGES_REFUSED");
	char bytes[5000], number[16];

	CHECK(program);
	make_pair();
	memset(bytes, 1, sizeof(bytes));
	CHECK(write(ends_of.client, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
	CHECK(read(ends_of.server, bytes, 16) == 16);
	if (fork() == 0) { /* it answers who asks for what was unread */
		close(ends_of.server);
		usleep(300000);
		CHECK(write(ends_of.client, bytes, 300) == 300);
		exit(0);
	}
	close(ends_of.client);
	snprintf(number, sizeof(number), "%d", ends_of.server);
	execl(program, program, number, NULL);
	CHECK(!"executed");
}

const struct edge_case edges_process[] = {
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
	{"gone_memory", t_gone_memory},
	{"filter_signals", t_filter_signals},
#ifdef __GLIBC__
	{"filter_and_join", t_filter_and_join},
#endif
	{"exec_refused", t_exec_refused},
	{NULL, NULL},
};
