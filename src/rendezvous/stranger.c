/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors from processes of other users: taken and closed so that nobody waits for their makers. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

#define CLOSERS	      8
#define BEGIN_MS      1000 /* for what takes microseconds, where there is a processor */
#define FREE_LOOKS    1000
#define KERNEL_SIGSET 8
#define MEMORY_BLOCKS (WIRE_TOTAL_BYTES / 512)

/* Those that may not have ended yet. pid: 0 free; -1 being started. */
static struct closer {
	_Atomic pid_t pid;
	_Atomic uint32_t has_begun;
} closers[CLOSERS];
/* What none of them could be started for, and stays open. */
static _Atomic bool is_stuck;

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
	bury();
	for (int i = 0; i < CLOSERS; i++) {
		pid_t none = 0;

		if (atomic_compare_exchange_strong(&closers[i].pid, &none, -1))
			return &closers[i];
	}
	return NULL;
}

/*
 * The process uses no stack, as it has none, and no memory but one word. No signal is delivered to it, and
 * it sends none when it ends: the program's own wait does not see it. Killed with the thread that it comes
 * from, it does not linger on with the program's descriptors.
 */
static pid_t start_closer(int fd, _Atomic uint32_t *has_begun)
{
	const long flags = CLONE_VM | CLONE_FILES | CLONE_UNTRACED;
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register long number __asm__("r12") = fd;
	register void *word __asm__("r13") = has_begun;
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
		"mov %[close], %%eax\n\t"
		"mov %%r12, %%rdi\n\t"
		"syscall\n\t"
		"mov %[exit], %%eax\n\t"
		"xor %%edi, %%edi\n\t"
		"syscall\n\t"
		"hlt\n"
		"1:"
		: "=a"(result)
		: "a"(SYS_clone), "D"(flags), "S"(0L), "d"(0L), "r"(r10), "r"(r8),
		  "r"(number),
		  "r"(word), [prctl] "i"(SYS_prctl), [death] "i"(PR_SET_PDEATHSIG),
		  [kill] "i"(SIGKILL), [futex] "i"(SYS_futex), [wake] "i"(FUTEX_WAKE),
		  [close] "i"(SYS_close), [exit] "i"(SYS_exit)
		: "rcx", "r11", "cc", "memory");
	return (pid_t)result;
}

/* Until then the end of this thread would end it, with nothing done. And the number is to be free, or
 * another thread of ours could have it again before: the kernel frees it before it waits for anybody. */
static void await_begin(struct closer *c, int fd)
{
	const struct timespec most = {.tv_nsec = 10000000};

	for (int i = 0; i < BEGIN_MS / 10 && !load_acquire(&c->has_begun); i++)
		kernel_call4(SYS_futex, (long)&c->has_begun, FUTEX_WAIT, 0, (long)&most);
	for (int i = 0; i < FREE_LOOKS && REAL(fcntl64)(fd, F_GETFD) >= 0; i++)
		sched_yield();
}

/* Gives the descriptor to a process that closes it. */
static void close_elsewhere(int fd)
{
	static const uint64_t all = ~(uint64_t)0;
	uint64_t mask;
	struct closer *c = take_place();
	pid_t pid = -EAGAIN;

	fds_lost(fd);
	if (c) {
		store_relaxed(&c->has_begun, 0);
		kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask,
			     KERNEL_SIGSET);
		pid = start_closer(fd, &c->has_begun);
		kernel_call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0,
			     KERNEL_SIGSET);
		if (pid > 0)
			await_begin(c, fd);
		store_release(&c->pid, pid > 0 ? pid : 0);
	}
	if (pid > 0)
		return;
	if (!atomic_exchange(&is_stuck, true))
		log_error(
			"descriptors that other users have sent cannot be closed without "
			"waiting for them: no more meetings as the connecting end");
}

bool stranger_is_full(void)
{
	int used = 0;

	bury();
	for (int i = 0; i < CLOSERS; i++)
		used += load_relaxed(&closers[i].pid) != 0;
	return load_relaxed(&is_stuck) || used == CLOSERS;
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

static void close_received(int fd)
{
	if (is_harmless(fd))
		fds_close(fd);
	else
		close_elsewhere(fd);
}

static const struct hello_source stranger = {is_harmless, close_received};

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

/* What an honest peer has left lies there whenever a connection ends before its offer is read. */
static void drain(int sock)
{
	int fds[SEGMENT_FDS], r = -EPROTO;
	struct hello h;

	for (int i = 0; i < SEGMENT_FDS && (r == 1 || r == -EPROTO); i++) {
		r = hello_receive_from(sock, &h, fds, &stranger);
		for (int j = 0; r == 1 && j < SEGMENT_FDS; j++)
			if (fds[j] >= 0)
				close_received(fds[j]);
	}
}

void stranger_close(int sock)
{
	unsigned count;

	/* From here on nothing comes. */
	REAL(shutdown)(sock, SHUT_RDWR);
	count = queued(sock);
	if (count > 0 && count <= SEGMENT_FDS && is_room(sock)) {
		drain(sock);
		count = queued(sock);
	}
	if (count != 0)
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
	bool are_harmless = true;
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
	r = hello_receive_from(sock, h, fds, &stranger);
	if (r != 1)
		return r;
	for (int i = 0; i < SEGMENT_FDS; i++)
		are_harmless = are_harmless && (fds[i] < 0 || is_harmless(fds[i]));
	if (are_harmless)
		return 1;
	for (int i = 0; i < SEGMENT_FDS; i++)
		if (fds[i] >= 0)
			close_received(fds[i]);
	return -EPROTO;
}
