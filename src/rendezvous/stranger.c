/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors from processes of other users: taken and closed so that nobody waits for their makers. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/put.h"
#include "base/real.h"
#include "rendezvous/stranger.h"

#define CLOSERS	      32
#define STUCK_MOST    256
#define BEGIN_MS      1000 /* for what takes microseconds, where there is a processor */
#define KERNEL_SIGSET 8
#define JUDGE_STACK   (16 << 10)
#define MEMORY_BLOCKS (WIRE_TOTAL_BYTES / 512)

/* Those that may not have ended yet. pid: 0 free; -1 being started. */
static struct closer {
	_Atomic pid_t pid;
	_Atomic uint32_t has_begun, may_end;
} closers[CLOSERS];
/* Sockets that wait for a place among them, each as its number and one. */
static _Atomic int stuck[STUCK_MOST];

/* Those that have ended are buried, and leave their places. */
static void bury(void)
{
	for (int i = 0; i < CLOSERS; i++) {
		pid_t pid = load_relaxed(&closers[i].pid);

		/* In a forked child it is no child of ours: an error. */
		if (pid > 0 &&
		    kernel_call4(SYS_wait4, pid, 0, WNOHANG | __WCLONE, 0) != 0)
			atomic_compare_exchange_strong(&closers[i].pid, &pid, 0);
	}
}

static struct closer *take_place(void)
{
	for (int i = 0; i < CLOSERS; i++) {
		pid_t none = 0;

		if (atomic_compare_exchange_strong(&closers[i].pid, &none, -1))
			return &closers[i];
	}
	return NULL;
}

/* No signal is delivered meanwhile, also to a process that is started: it has our memory. */
static uint64_t mask_signals(void)
{
	static const uint64_t all = ~(uint64_t)0;
	uint64_t mask = 0;

	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask,
		     KERNEL_SIGSET);
	return mask;
}

static void unmask_signals(uint64_t mask)
{
	kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, KERNEL_SIGSET);
}

/*
 * The process has a copy of the program's table, and waits until the program has closed the number. Then it ends:
 * the kernel first takes the memory from a process that ends, and then closes what it has, without waiting for a TCP
 * socket that lingers. It uses no stack, as it has none. No signal is delivered to it, and it sends none when it
 * ends: the program's own wait does not see it. With the thread that it comes from it is killed.
 */
static pid_t start_closer(struct closer *c)
{
	static const struct timespec most = {.tv_sec = 10};
	const long flags = CLONE_VM | CLONE_UNTRACED;
	register const struct timespec *r10 __asm__("r10") = NULL;
	register long r8 __asm__("r8") = 0;
	register _Atomic uint32_t *end __asm__("r12") = &c->may_end;
	register _Atomic uint32_t *begun __asm__("r13") = &c->has_begun;
	long result;

	__asm__ __volatile__(
		"syscall\n\t"
		"test %%rax, %%rax\n\t"
		"jnz 1f\n\t"
		"mov %[prctl], %%eax\n\t"
		"mov %[death], %%edi\n\t"
		"mov %[kill], %%esi\n\t"
		"syscall\n\t"
		"movl $1, (%%r13)\n\t"
		"mov %[futex], %%eax\n\t"
		"mov %%r13, %%rdi\n\t"
		"mov %[wake], %%esi\n\t"
		"mov $1, %%edx\n\t"
		"syscall\n\t"
		"lea %[most], %%r10\n\t"
		"2: cmpl $0, (%%r12)\n\t"
		"jne 3f\n\t"
		"mov %[futex], %%eax\n\t"
		"mov %%r12, %%rdi\n\t"
		"mov %[wait], %%esi\n\t"
		"xor %%edx, %%edx\n\t"
		"syscall\n\t"
		"cmp %[late], %%eax\n\t"
		"jne 2b\n\t"
		"3: mov %[exit], %%eax\n\t"
		"xor %%edi, %%edi\n\t"
		"syscall\n\t"
		"hlt\n"
		"1:"
		: "=a"(result), "+r"(r10)
		: "a"(SYS_clone), "D"(flags), "S"(0L), "d"(0L), "r"(r8), "r"(end),
		  "r"(begun), [most] "m"(most), [prctl] "i"(SYS_prctl),
		  [death] "i"(PR_SET_PDEATHSIG), [kill] "i"(SIGKILL),
		  [futex] "i"(SYS_futex), [wake] "i"(FUTEX_WAKE), [wait] "i"(FUTEX_WAIT),
		  [late] "i"(-ETIMEDOUT), [exit] "i"(SYS_exit)
		: "rcx", "r11", "cc", "memory");
	return (pid_t)result;
}

/* The number is ours no more when it may end. Where it has begun, it dies with us. */
static void let_end(struct closer *c, int sock)
{
	const struct timespec most = {.tv_nsec = 10000000};

	fds_close(sock);
	store_release(&c->may_end, 1);
	kernel_call4(SYS_futex, (long)&c->may_end, FUTEX_WAKE, 1, 0);
	for (int i = 0; i < BEGIN_MS / 10 && !load_acquire(&c->has_begun); i++)
		kernel_call4(SYS_futex, (long)&c->has_begun, FUTEX_WAIT, 0, (long)&most);
}

/* Gives the socket to a process that ends. */
static bool is_given_away(int sock)
{
	struct closer *c = take_place();
	uint64_t mask;
	pid_t pid;

	if (!c)
		return false;
	store_relaxed(&c->has_begun, 0);
	store_relaxed(&c->may_end, 0);
	mask = mask_signals();
	pid = start_closer(c);
	unmask_signals(mask);
	if (pid > 0)
		let_end(c, sock);
	store_release(&c->pid, pid > 0 ? pid : 0);
	return pid > 0;
}

/* Tries again with those that wait. True when none is left. */
static bool retry(void)
{
	bool is_none = true;

	bury();
	for (int i = 0; i < STUCK_MOST; i++) {
		int sock = load_relaxed(&stuck[i]);

		if (!sock || !atomic_compare_exchange_strong(&stuck[i], &sock, 0) ||
		    is_given_away(sock - 1))
			continue;
		store_relaxed(&stuck[i], sock);
		is_none = false;
	}
	return is_none;
}

static void close_elsewhere(int sock)
{
	int none = 0;

	if (retry() && is_given_away(sock))
		return;
	for (int i = 0; i < STUCK_MOST; i++, none = 0)
		if (atomic_compare_exchange_strong(&stuck[i], &none, sock + 1))
			return;
	log_error("descriptors that other users have sent cannot be closed without "
		  "waiting for them: fd %d stays open",
		  sock);
}

bool stranger_is_full(void)
{
	int used = 0;

	if (!retry())
		return true;
	for (int i = 0; i < CLOSERS; i++)
		used += load_relaxed(&closers[i].pid) != 0;
	return used == CLOSERS;
}

/* How many descriptors lie in its queue, or in those of connections that nobody has accepted. */
static unsigned queued(int sock)
{
	static const char label[] = "\nscm_fds:";
	char path[40], text[1024];
	const char *at = NULL;

	put_number(put_text(path, "/proc/thread-self/fdinfo/"), sock);
	if (low_read_text(path, text, sizeof(text)))
		at = strstr(text, label);
	return at ? (unsigned)strtoul(at + sizeof(label) - 1, NULL, 10) : UINT_MAX;
}

/* Memory of the kernel's own, or an eventfd; the questions go to nobody else. */
static bool is_harmless(int fd)
{
	static const char eventfd[] = "anon_inode:[eventfd]";
	char path[40], name[sizeof(eventfd)];
	struct stat st;
	long n;

	if (REAL(fcntl64)(fd, F_GET_SEALS) >= 0)
		return kernel_fstat(fd, &st) == 0 &&
		       (uint64_t)st.st_blocks <= MEMORY_BLOCKS;
	put_number(put_text(path, "/proc/thread-self/fd/"), fd);
	n = kernel_call4(SYS_readlink, (long)path, (long)name, sizeof(name), 0);
	return n == sizeof(eventfd) - 1 && !memcmp(name, eventfd, (size_t)n);
}

struct question {
	int sock;
	unsigned count;
	bool is_harmless;
};

/* All the descriptors that lie there come with the first message, and are harmless. */
static bool are_harmless(int sock, unsigned count)
{
	union {
		char bytes[CMSG_SPACE(SEGMENT_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	ssize_t n = kernel_recvmsg(sock, &msg, MSG_PEEK | MSG_DONTWAIT);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
	    c->cmsg_len != CMSG_LEN(count * sizeof(int)))
		return false;
	for (unsigned i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		if (!is_harmless(fd))
			return false;
	}
	return true;
}

/* In a process of its own, which has a table of its own, and there nothing but the socket. */
static void judge(void *arg)
{
	struct question *q = arg;

	if ((q->sock > 0 && kernel_call4(SYS_close_range, 0, q->sock - 1, 0, 0) < 0) ||
	    kernel_call4(SYS_close_range, q->sock + 1, UINT_MAX, 0, 0) < 0)
		return;
	q->is_harmless = are_harmless(q->sock, q->count);
}

/* As vfork, on a stack of its own: this thread goes on when the process has let go of the memory. What it then
 * closes, it closes alone. */
static pid_t start_judge(struct question *q, char *stack_end)
{
	const long flags = CLONE_VM | CLONE_VFORK | CLONE_UNTRACED;
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register void (*run)(void *) __asm__("r12") = judge;
	register void *arg __asm__("r13") = q;
	long result;

	__asm__ __volatile__("syscall\n\t"
			     "test %%rax, %%rax\n\t"
			     "jnz 1f\n\t"
			     "xor %%ebp, %%ebp\n\t"
			     "mov %%r13, %%rdi\n\t"
			     "call *%%r12\n\t"
			     "mov %[exit], %%eax\n\t"
			     "xor %%edi, %%edi\n\t"
			     "syscall\n\t"
			     "hlt\n"
			     "1:"
			     : "=a"(result)
			     : "a"(SYS_clone), "D"(flags), "S"(stack_end), "d"(0L),
			       "r"(r10), "r"(r8), "r"(run), "r"(arg), [exit] "i"(SYS_exit)
			     : "rcx", "r11", "cc", "memory");
	return (pid_t)result;
}

/* 1: what lies there may have numbers of the program's; 0: it may not; or -errno. */
static int ask_judge(int sock, unsigned count)
{
	struct question q = {.sock = sock, .count = count};
	struct closer *c = (bury(), take_place());
	long stack = c ? kernel_call6(SYS_mmap, 0, JUDGE_STACK, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		       : -EAGAIN;
	pid_t pid = (pid_t)stack;

	if (stack > 0) {
		uint64_t mask = mask_signals();

		pid = start_judge(&q, (char *)stack + JUDGE_STACK);
		unmask_signals(mask);
		kernel_call4(SYS_munmap, stack, JUDGE_STACK, 0, 0);
	}
	if (c)
		store_release(&c->pid, pid > 0 ? pid : 0);
	return pid > 0 ? q.is_harmless : pid;
}

/* The kernel closes, in a receive, what finds no number. */
static bool is_room(int sock)
{
	int copies[SEGMENT_FDS], n = 0;

	low_begin();
	while (n < SEGMENT_FDS && (copies[n] = kernel_dup(sock)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		kernel_close(copies[i]);
	low_end();
	return n == SEGMENT_FDS;
}

void stranger_close(int sock)
{
	/* From here on nothing comes. */
	REAL(shutdown)(sock, SHUT_RDWR);
	if (queued(sock) != 0)
		close_elsewhere(sock);
	else
		fds_close(sock);
}

static bool is_there(int sock)
{
	char byte;

	return kernel_call6(SYS_recvfrom, sock, (long)&byte, 1, MSG_PEEK | MSG_DONTWAIT,
			    0, 0) != -EAGAIN;
}

int stranger_hello(int sock, struct hello *h, int fds[SEGMENT_FDS])
{
	unsigned count;
	int r;

	if (!is_there(sock))
		return 0;
	REAL(shutdown)(sock, SHUT_RD);
	count = queued(sock);
	if (count > SEGMENT_FDS)
		return -EPROTO;
	if (count > 0 && !is_room(sock))
		return -EMFILE;
	r = count > 0 ? ask_judge(sock, count) : 1;
	return r == 1 ? hello_receive(sock, h, fds) : r < 0 ? r : -EPROTO;
}
