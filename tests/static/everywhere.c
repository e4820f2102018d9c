/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives on a ring, each between two marks, with a handler that does so on another one, or what is below. For
 * inject.c, which sends the signal at each instruction between the marks.
 *
 * usage: everywhere BYTES WAY
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cancel_signal.h"
#include "edges.h"
#include "marks.h"

#define MOST 1024

#define AUTODISARM    ((int)(1u << 31)) /* SS_AUTODISARM */
#define OF_HANDLER    "of the handler"
#define HANDLER_BYTES 14

static struct pair {
	int client, server;
} outer, inner, spare;
static void (*does)(void);
static volatile int hits, sends;
static int set_flags;
static volatile pid_t child;
static volatile ssize_t got;
static char received[2 * MOST];
static int results[2], broken, looks_flags;
static volatile int looked;
static sigjmp_buf jump;

static long call(long nr, int fd, const void *at, size_t bytes)
{
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	register long r9 __asm__("r9") = 0;
	long result;

	__asm__ volatile("subq $128, %%rsp\n\t"
			 "call mark_begin\n\t"
			 "movq %[nr], %%rax\n\t"
			 "syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "movq %%rax, %%rbx\n\t"
			 "movq %%rax, %%rbx\n\t"
			 "call mark_end\n\t"
			 "subq $-128, %%rsp"
			 : "=&b"(result)
			 : [nr] "r"(nr), "D"((long)fd), "S"(at), "d"(bytes), "r"(r10),
			   "r"(r8), "r"(r9)
			 : "rax", "rcx", "r11", "memory", "cc");
	return result;
}

/* ---- what the handler does ---- */

static void uses_another(void)
{
	char from[100], to[100];

	memset(from, hits, sizeof(from));
	CHECK(write(inner.client, from, sizeof(from)) == sizeof(from));
	CHECK(recv(inner.server, to, sizeof(to), 0) == sizeof(to));
	CHECK(memcmp(from, to, sizeof(to)) == 0);
	CHECK(syscall(SYS_getppid) > 0);
}

/* So that the calls are not made by the quick way. */
static void uses_vectors(void)
{
	uses_another();
}

static void leaves(void)
{
	uses_another();
	siglongjmp(jump, 1);
}

/* The connection of the call that it interrupts. */
static void uses_the_same(void)
{
	if (sends)
		CHECK(write(outer.client, OF_HANDLER, HANDLER_BYTES) == HANDLER_BYTES);
	else
		got = recv(outer.server, received, sizeof(received), 0);
}

static void on_trap(int sig)
{
	(void)sig;
}

/* Both go on with the call. */
static void forks(void)
{
	const struct sigaction act = {.sa_handler = on_trap};

	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		sigaction(SIGTRAP, &act, NULL); /* the marks */
}

/* Its child ends amid a call of its. */
static void vforks(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		uses_another();
		syscall(SYS_exit, 0);
	}
	CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
	uses_another();
}

static void nests(void)
{
	static volatile int depth;

	uses_another();
	if (depth < 2) {
		depth++;
		raise(SIGUSR1);
		depth--;
	}
	uses_another();
}

/* Every other time one more waits for its end. */
static void comes_again(void)
{
	uses_another();
	if (hits % 2)
		CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1) == 0);
}

static void leaves_again(void)
{
	comes_again();
	if (hits % 2 == 0)
		siglongjmp(jump, 1);
}

/* As glibc's handler for a thread that is cancelled, where it does not cancel. */
static void comes_back(void)
{
}

static void closes(void)
{
	CHECK(close(sends ? outer.client : outer.server) == 0);
}

static void replaces(void)
{
	if (sends)
		CHECK(dup2(inner.client, outer.client) == outer.client);
	else
		CHECK(dup2(inner.server, outer.server) == outer.server);
}

static void handler(int sig)
{
	(void)sig;
	hits++;
	does();
}

/* ---- rounds ---- */

static long make(int other, const void *from, void *to, size_t bytes)
{
	struct iovec piece = {sends ? (void *)from : to, bytes};

	if (does == uses_vectors)
		return sends ? call(SYS_writev, outer.client, &piece, 1)
			     : call(SYS_readv, outer.server, &piece, 1);
	return sends ? call(other ? SYS_write : SYS_sendto, outer.client, from, bytes)
		     : call(other ? SYS_read : SYS_recvfrom, outer.server, to, bytes);
}

/* All that is there; blocks for nothing. */
static size_t drain(int fd, char *to, size_t room)
{
	size_t n = 0;
	ssize_t r;

	while (n < room && (r = recv(fd, to + n, room - n, MSG_DONTWAIT)) > 0)
		n += (size_t)r;
	return n;
}

/* A call that was left has been made, or has not. */
static void rounds_that_are_left(size_t bytes, const char *from, char *to, int other)
{
	int before = hits;
	size_t n;

	sends = 1;
	if (!sigsetjmp(jump, 1))
		CHECK(make(other, from, to, bytes) == (long)bytes);
	n = drain(outer.server, to, MOST);
	CHECK(n == bytes ? memcmp(from, to, bytes) == 0 : n == 0 && hits > before);
	CHECK(send(outer.client, from, bytes, 0) == (ssize_t)bytes);
	sends = 0;
	if (!sigsetjmp(jump, 1))
		CHECK(make(other, from, to, bytes) == (long)bytes);
	n = drain(outer.server, to, MOST);
	CHECK(n == bytes ? memcmp(from, to, bytes) == 0 : n == 0);
}

static void rounds_through(size_t bytes, const char *from, char *to, int other)
{
	stack_t now;

	sends = 1;
	CHECK(make(other, from, to, bytes) == (long)bytes);
	sends = 0;
	CHECK(make(other, from, to, bytes) == (long)bytes);
	CHECK(memcmp(from, to, bytes) == 0);
	CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == set_flags);
}

/* Where that one runs. */
static void looks(int sig)
{
	stack_t now;

	(void)sig;
	CHECK(sigaltstack(NULL, &now) == 0);
	looked = now.ss_flags;
}

/* The signal comes at its end. */
static void ends(int sig)
{
	(void)sig;
	uses_another();
	mark_begin();
}

/* A handler that has interrupted a call, and behind it, the next ones. */
static void rounds_at_end(size_t bytes, const char *from, char *to, int other)
{
	int before = hits;

	(void)bytes;
	(void)to;
	(void)other;
	if (!sigsetjmp(jump, 1))
		CHECK(write(broken, from, 1) == -1 && errno == EPIPE);
	else
		CHECK(hits > before);
	mark_end();
	uses_another();
	CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2) == 0);
	CHECK(looked == looks_flags);
}

/* What the handler sends comes before or behind the call's, and one of both receives all. */
static void rounds_on_the_same(size_t bytes, const char *from, char *to, int other)
{
	char all[2 * MOST];
	int before = hits;
	size_t n;
	long r;

	sends = 1;
	CHECK(make(other, from, to, bytes) == (long)bytes);
	n = drain(outer.server, all, sizeof(all));
	CHECK(n == bytes + (hits > before ? HANDLER_BYTES : 0));
	CHECK(memcmp(all, from, bytes) == 0 ||
	      (memcmp(all, OF_HANDLER, HANDLER_BYTES) == 0 &&
	       memcmp(all + HANDLER_BYTES, from, bytes) == 0));
	CHECK(send(outer.client, from, bytes, 0) == (ssize_t)bytes);
	sends = 0;
	got = 0;
	r = make(other, from, to, bytes);
	CHECK(r == (long)bytes ? got <= 0 : r == -EAGAIN && got == (ssize_t)bytes);
	CHECK(memcmp(r > 0 ? to : received, from, bytes) == 0);
}

/* The child's end: its result. */
static long of_child(void)
{
	long r = 0;
	int status;

	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(results[0], &r, sizeof(r)) == sizeof(r));
	child = 0;
	return r;
}

static long make_in_both(int other, const void *from, void *to, size_t bytes)
{
	pid_t self = getpid();
	long r = make(other, from, to, bytes);

	if (getpid() == self)
		return r;
	if (r > 0 && !sends)
		CHECK(memcmp(from, to, bytes) == 0);
	CHECK(write(results[1], &r, sizeof(r)) == sizeof(r));
	_exit(0);
}

/* Before the call both make it, behind it one has made it for both. */
static void rounds_in_both(size_t bytes, const char *from, char *to, int other)
{
	char all[2 * MOST];
	size_t n, times = 1;
	long r, r2;

	sends = 1;
	CHECK(make_in_both(other, from, to, bytes) == (long)bytes);
	if (child) {
		CHECK(of_child() == (long)bytes);
		times = 2;
	}
	n = drain(outer.server, all, sizeof(all));
	CHECK(n == bytes || n == times * bytes);
	CHECK(memcmp(all, from, bytes) == 0 && memcmp(all + n - bytes, from, bytes) == 0);
	CHECK(send(outer.client, from, bytes, 0) == (ssize_t)bytes);
	sends = 0;
	r = make_in_both(other, from, to, bytes);
	r2 = child ? of_child() : -EAGAIN;
	/* Behind the call, both have its result. */
	CHECK((r == (long)bytes || r2 == (long)bytes) && (r > 0 || r == -EAGAIN) &&
	      (r2 > 0 || r2 == -EAGAIN));
	CHECK(r < 0 || memcmp(from, to, bytes) == 0);
	CHECK(drain(outer.server, all, sizeof(all)) == 0);
}

/* With its number closed, or another connection's, all of it goes one way. */
static void rounds_elsewhere(size_t bytes, const char *from, char *to, int other)
{
	char here[2 * MOST], there[2 * MOST];
	size_t n, m;
	long r;

	sends = 1;
	r = make(other, from, to, bytes);
	CHECK(r == (long)bytes || r == -EBADF);
	CHECK(dup2(spare.client, outer.client) == outer.client);
	n = drain(outer.server, here, sizeof(here));
	m = drain(inner.server, there, sizeof(there));
	CHECK(n + m == (r > 0 ? bytes : 0) && (n == 0 || m == 0));
	CHECK(r < 0 || memcmp(n ? here : there, from, bytes) == 0);
	CHECK(send(outer.client, from, bytes, 0) == (ssize_t)bytes);
	CHECK(send(inner.client, OF_HANDLER, HANDLER_BYTES, 0) == HANDLER_BYTES);
	sends = 0;
	r = make(other, from, to, bytes);
	CHECK(r == (long)bytes || r == HANDLER_BYTES || r == -EBADF);
	CHECK(dup2(spare.server, outer.server) == outer.server);
	CHECK(r < 0 ||
	      memcmp(to, r == HANDLER_BYTES ? OF_HANDLER : from, (size_t)r) == 0);
	CHECK(drain(outer.server, here, sizeof(here)) == (r == (long)bytes ? 0 : bytes));
	CHECK(drain(inner.server, there, sizeof(there)) ==
	      (r == HANDLER_BYTES ? 0 : HANDLER_BYTES));
}

static const struct way {
	const char *name;
	void (*does)(void);
	void (*rounds)(size_t bytes, const char *from, char *to, int other);
	int on_alternate; /* or the stack's flags */
} ways[] = {
	{"own", uses_another, rounds_through, 0},
	{"vectors", uses_vectors, rounds_through, 0},
	{"alternate", uses_another, rounds_through, 1},
	{"disarms", uses_another, rounds_through, AUTODISARM},
	{"vforks", vforks, rounds_through, 0},
	{"nests", nests, rounds_through, 0},
	{"nests_alternate", nests, rounds_through, 1},
	{"nests_disarmed", nests, rounds_through, AUTODISARM},
	{"leaves", leaves, rounds_that_are_left, 0},
	{"leaves_alternate", leaves, rounds_that_are_left, 1},
	{"same", uses_the_same, rounds_on_the_same, 0},
	{"forks", forks, rounds_in_both, 0},
	{"comes_back", comes_back, rounds_through, 0},
	{"again", comes_again, rounds_through, 0},
	{"again_alternate", comes_again, rounds_through, 1},
	{"again_leaves", leaves_again, rounds_that_are_left, 0},
	{"again_leaves_alternate", leaves_again, rounds_that_are_left, 1},
	{"ends", uses_another, rounds_at_end, 0},
	{"ends_alternate", uses_another, rounds_at_end, 1},
	{"ends_disarmed", uses_another, rounds_at_end, AUTODISARM},
	{"ends_leaves", leaves, rounds_at_end, 0},
	{"ends_leaves_alternate", leaves, rounds_at_end, 1},
	{"ends_again", comes_again, rounds_at_end, 0},
	{"ends_again_leaves", leaves_again, rounds_at_end, 1},
	{"closes", closes, rounds_elsewhere, 0},
	{"replaces", replaces, rounds_elsewhere, 1},
	{NULL, NULL, NULL, 0},
};

static const struct way *find_way(const char *name)
{
	const struct way *w = ways;

	while (w->name && strcmp(w->name, name) != 0)
		w++;
	CHECK(w->name);
	return w;
}

static void set_end(int flags)
{
	struct sigaction act = {.sa_handler = ends, .sa_flags = flags};
	int p[2];

	CHECK(sigaction(SIGPIPE, &act, NULL) == 0);
	act.sa_handler = looks;
	CHECK(sigaction(SIGUSR2, &act, NULL) == 0);
	CHECK(pipe(p) == 0 && close(p[0]) == 0);
	broken = p[1];
	raise(SIGUSR2);
	looks_flags = looked;
}

static void set_handler(const struct way *w)
{
	static char memory[65536];
	const stack_t s = {.ss_sp = memory,
			   .ss_size = sizeof(memory),
			   .ss_flags = w->on_alternate == 1 ? 0 : w->on_alternate};
	struct sigaction act = {.sa_handler = handler};

	stack_t was;

	does = w->does;
	if (w->on_alternate) {
		CHECK(sigaltstack(&s, NULL) == 0);
		act.sa_flags = SA_ONSTACK;
	}
	if (w->does == nests)
		act.sa_flags |= SA_NODEFER;
	CHECK(sigaltstack(NULL, &was) == 0);
	set_flags = was.ss_flags;
	CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
	if (does == comes_back)
		set_cancel(handler);
	if (w->rounds == rounds_at_end)
		set_end(act.sa_flags);
}

static void open_pair(struct pair *e)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	char b[8];

	CHECK(bind(l, (void *)&a, size) == 0 && listen(l, 4) == 0);
	CHECK(getsockname(l, (void *)&a, &size) == 0);
	e->client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(e->client, (void *)&a, size) == 0);
	e->server = accept(l, NULL, NULL);
	CHECK(e->server >= 0);
	for (int i = 0; i < 100; i++) {
		CHECK(send(e->client, "eight by", 8, 0) == 8);
		CHECK(recv(e->server, b, 8, 0) == 8);
		CHECK(send(e->server, "eight by", 8, 0) == 8);
		CHECK(recv(e->client, b, 8, 0) == 8);
	}
}

int main(int argc, char **argv)
{
	static char from[MOST], to[2 * MOST];
	size_t bytes = argc == 3 ? (size_t)atol(argv[1]) : 0;
	const struct way *w = find_way(argv[2]);

	CHECK(bytes > HANDLER_BYTES && bytes <= MOST && pipe(results) == 0);
	set_handler(w);
	open_pair(&outer);
	open_pair(&inner);
	spare.client = dup(outer.client);
	spare.server = dup(outer.server);
	if (w->rounds != rounds_through && w->rounds != rounds_that_are_left)
		fcntl(outer.server, F_SETFL, O_NONBLOCK);
	if (w->rounds == rounds_elsewhere)
		fcntl(inner.server, F_SETFL, O_NONBLOCK);
	raise(SIGSTOP);
	for (int i = 0;; i++) {
		memset(from, i, bytes);
		w->rounds(bytes, from, to, i & 1);
	}
}
