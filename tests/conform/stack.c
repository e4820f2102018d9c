/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls on a stack of 4 KiB, as coroutines have them. */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "conform/cases.h"

#define STACK_BYTES 4096
#define GUARD_BYTES (1 << 20)
#define SOON	    20000

/* What one call works with, and what became of it. */
struct rig {
	struct pair p;
	pid_t self, peer;
	struct signal_pipe go;
	int pipe[2], epoll, file, listener;
	uint16_t port;
	struct pollfd many[100];
	char buf[512];
	long result;
};

typedef void stack_call(struct rig *r);

/* ---- the stack ---- */

static ucontext_t here, there;
static stack_call *call_now;
static struct rig *rig_now;
static uint8_t *stack_end;
static size_t stack_bytes = STACK_BYTES;

static void begin(void)
{
	call_now(rig_now);
}

/* What nobody may touch is below it, as much as a large frame could pass over. With CONFORM_STACK it is so large, and how much was used
 * is told. */
static void make_stack(void)
{
	const char *bytes = getenv("CONFORM_STACK");
	uint8_t *memory;

	if (bytes)
		stack_bytes = (size_t)atoi(bytes);
	memory = mmap(NULL, stack_bytes + GUARD_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED && mprotect(memory, GUARD_BYTES, PROT_NONE) == 0);
	stack_end = memory + GUARD_BYTES;
}

static void run(struct rig *r, const char *name, stack_call *call)
{
	if (!stack_end)
		make_stack();
	if (stack_bytes != STACK_BYTES)
		memset(stack_end, 0xa5, stack_bytes);
	NEED(getcontext(&there) == 0);
	there.uc_stack.ss_sp = stack_end;
	there.uc_stack.ss_size = stack_bytes;
	there.uc_link = &here;
	call_now = call;
	rig_now = r;
	makecontext(&there, begin, 0);
	NEED(swapcontext(&here, &there) == 0);
	say_result(name, r->result);
	if (stack_bytes != STACK_BYTES) {
		size_t free_bytes = 0;

		while (stack_end[free_bytes] == 0xa5)
			free_bytes++;
		fprintf(stderr, "%zu %s\n", stack_bytes - free_bytes, name);
	}
}

#define RUN(r, call) run(r, #call, call_##call)
#define CALL(name, expression)                                                           \
	static void call_##name(struct rig *r)                                           \
	{                                                                                \
		r->result = (expression);                                                \
	}

/* ---- the peer: answers once this end sleeps ---- */

static void answer(int fd, void *arg)
{
	struct rig *r = arg;
	static char much[1 << 20];
	char what;

	for (;;) {
		signal_wait(r->go);
		NEED(read(r->go.fd[0], &what, 1) == 1);
		if (what == 'q')
			break;
		wait_asleep(r->self, r->self);
		if (what == 'b')
			send_all(fd, "b", 1);
		else
			recv_all(fd, much, sizeof(much));
	}
}

static void tell(struct rig *r, char what)
{
	signal_send(r->go);
	NEED(write(r->go.fd[1], &what, 1) == 1);
}

static void rig_open(struct rig *r, bool warm)
{
	r->self = getpid();
	r->go = signal_pipe();
	r->p.s = (warm ? peer_start : peer_start_cold)(answer, r, &r->peer);
	NEED(pipe(r->pipe) == 0);
}

static void take(struct rig *r)
{
	r->result = recv(r->p.s, r->buf, 1, MSG_WAITALL);
	NEED(r->result == 1);
}

static void rig_close(struct rig *r)
{
	tell(r, 'q');
	say("status %d", child_status(r->peer));
}

/* ---- bytes ---- */

#define VECTOR(r)                                                                        \
	(struct iovec[2])                                                                \
	{                                                                                \
		{(r)->buf, 1},                                                           \
		{                                                                        \
			(r)->buf + 1, 1                                                  \
		}                                                                        \
	}
#define MESSAGE(r) (&(struct msghdr){.msg_iov = VECTOR(r), .msg_iovlen = 2})
#define MESSAGES(r)                                                                      \
	(&(struct mmsghdr){.msg_hdr = {.msg_iov = VECTOR(r), .msg_iovlen = 2}})

CALL(read, read(r->p.s, r->buf, 1))
CALL(readv, readv(r->p.s, VECTOR(r), 2))
CALL(recv, recv(r->p.s, r->buf, 1, 0))
CALL(recv_all, recv(r->p.s, r->buf, 1, MSG_WAITALL))
CALL(recv_peek, recv(r->p.s, r->buf, 2, MSG_PEEK))
CALL(recv_nothing, recv(r->p.s, r->buf, 1, MSG_DONTWAIT))
CALL(recvfrom, recvfrom(r->p.s, r->buf, 1, 0, NULL, NULL))
CALL(recvmsg, recvmsg(r->p.s, MESSAGE(r), 0))
CALL(recvmmsg, recvmmsg(r->p.s, MESSAGES(r), 1, 0, NULL))
CALL(write, write(r->p.s, r->buf, 1))
CALL(writev, writev(r->p.s, VECTOR(r), 2))
CALL(send, send(r->p.s, r->buf, 1, MSG_NOSIGNAL))
CALL(sendto, sendto(r->p.s, r->buf, 1, 0, NULL, 0))
CALL(sendmsg, sendmsg(r->p.s, MESSAGE(r), 0))
CALL(sendmmsg, sendmmsg(r->p.s, MESSAGES(r), 1, 0))
CALL(sendfile, sendfile(r->p.s, r->file, &(off_t){0}, 100))
CALL(splice, splice(r->p.s, NULL, r->pipe[1], NULL, 1, 0))

static char much[(1 << 20) + 4096];
CALL(write_much, write(r->p.s, much, (1 << 20) - 13 - 100))

CASE(stack_receives, DIRECT)
{
	static struct rig r;
	static const struct {
		const char *name;
		stack_call *call;
	} calls[] = {{"read", call_read},	  {"readv", call_readv},
		     {"recv", call_recv},	  {"recv_all", call_recv_all},
		     {"recvfrom", call_recvfrom}, {"recvmsg", call_recvmsg},
		     {"recvmmsg", call_recvmmsg}};

	rig_open(&r, true);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		tell(&r, 'b');
		run(&r, calls[i].name, calls[i].call); /* it sleeps */
		tell(&r, 'b');
		wait_events(r.p.s, POLLIN);
		run(&r, calls[i].name, calls[i].call);
	}
	RUN(&r, recv_nothing);
	tell(&r, 'b');
	RUN(&r, recv_peek);
	RUN(&r, recv);
	rig_close(&r);
	RUN(&r, recv_peek);
	RUN(&r, read);
}

CASE(stack_sends, DIRECT)
{
	static struct rig r;

	rig_open(&r, true);
	r.file = memfd_create("bytes", 0);
	NEED(ftruncate(r.file, 100) == 0);
	RUN(&r, write);
	RUN(&r, writev);
	RUN(&r, send);
	RUN(&r, sendto);
	RUN(&r, sendmsg);
	RUN(&r, sendmmsg);
	RUN(&r, sendfile);
	NEED(write(r.p.s, much, 4) == 4);
	tell(&r, 'r');
	RUN(&r, write_much); /* it sleeps */
	rig_close(&r);
	RUN(&r, send);
}

/* The way up, too. */
CASE(stack_first_calls, DIRECT)
{
	enum { TURNS = 64 };
	static struct rig r;

	r.p = pair_open();
	for (int i = 0; i < TURNS; i++) {
		RUN(&r, write);
		NEED(recv(r.p.c, r.buf, 1, 0) == 1);
		NEED(send(r.p.c, r.buf, 1, 0) == 1);
		RUN(&r, read);
		r.p = (struct pair){r.p.s, r.p.c};
	}
	pair_close(r.p);
}

/* With what a program has on such a stack, too. */
static void call_read_large(struct rig *r)
{
	char large[1024];

	r->result = read(r->p.s, large, sizeof(large));
	NEED(r->result == 1 && large[0] == r->buf[0]);
}

static void call_write_large(struct rig *r)
{
	char large[1024] = {r->buf[0]};

	r->result = write(r->p.s, large, 1);
}

CASE(stack_first_calls_large, DIRECT)
{
	enum { TURNS = 64 };
	static struct rig r;

	/* The loader finds a function at its first call, and needs much of a stack. */
	NEED(read(-1, r.buf, 1) < 0 && write(-1, r.buf, 1) < 0);
	r.p = pair_open();
	for (int i = 0; i < TURNS; i++) {
		RUN(&r, write_large);
		NEED(recv(r.p.c, r.buf, 1, 0) == 1);
		NEED(send(r.p.c, r.buf, 1, 0) == 1);
		RUN(&r, read_large);
		r.p = (struct pair){r.p.s, r.p.c};
	}
	pair_close(r.p);
}

/* ---- readiness ---- */

CALL(poll, poll(r->many, 1, SOON))
CALL(poll_now, poll(r->many, 1, 0))
CALL(poll_five, poll(r->many, 5, SOON))
CALL(poll_64, poll(r->many, 64, SOON))
CALL(poll_64_now, poll(r->many, 64, 0))
CALL(poll_100, poll(r->many, 100, SOON))
CALL(poll_100_now, poll(r->many, 100, 0))
CALL(ppoll, ppoll(r->many, 3, &(struct timespec){SOON / 1000, 0}, &(sigset_t){{0}}))

static fd_set one_of(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return set;
}

static fd_set all_of(const struct rig *r)
{
	fd_set set = one_of(r->p.s);

	for (int i = 0; i < 100; i++)
		if (r->many[i].fd >= 0)
			FD_SET(r->many[i].fd, &set);
	return set;
}

static fd_set set_now;
CALL(select, (set_now = one_of(r->p.s), select(r->p.s + 1, &set_now, NULL, NULL,
					       &(struct timeval){SOON / 1000, 0})))
CALL(select_all, (set_now = all_of(r), select(FD_SETSIZE, &set_now, NULL, NULL,
					      &(struct timeval){SOON / 1000, 0})))
CALL(pselect, (set_now = one_of(r->p.s),
	       pselect(r->p.s + 1, &set_now, NULL, NULL,
		       &(struct timespec){SOON / 1000, 0}, &(sigset_t){{0}})))

static void fill(struct rig *r)
{
	int other[2];

	for (int i = 0; i < 100; i++) {
		NEED(pipe(other) == 0);
		r->many[i] = (struct pollfd){.fd = other[0], .events = POLLIN};
	}
	r->many[0].fd = r->p.s;
}

CASE(stack_polls, DIRECT)
{
	static struct rig r;
	static const struct {
		const char *name;
		stack_call *call;
	} calls[] = {{"poll", call_poll},
		     {"poll five", call_poll_five},
		     {"poll 64", call_poll_64},
		     {"poll 100", call_poll_100},
		     {"ppoll", call_ppoll},
		     {"select", call_select},
		     {"select all", call_select_all},
		     {"pselect", call_pselect}};

	rig_open(&r, true);
	fill(&r);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		tell(&r, 'b');
		run(&r, calls[i].name, calls[i].call); /* it sleeps */
		run(&r, calls[i].name, calls[i].call);
		take(&r);
	}
	RUN(&r, poll_now);
	RUN(&r, poll_64_now);
	RUN(&r, poll_100_now);
	rig_close(&r);
	RUN(&r, poll);
	RUN(&r, select);
}

/* Enough for a set that is kept. */
CASE(stack_polls_many, DIRECT)
{
	enum { PAIRS = 66 };
	static struct pair pairs[PAIRS];
	static struct rig r;

	for (int i = 0; i < PAIRS; i++) {
		pairs[i] = pair_warm_open();
		r.many[i] = (struct pollfd){.fd = pairs[i].s, .events = POLLIN};
	}
	for (int i = PAIRS; i < 100; i++)
		r.many[i].fd = -1;
	r.p = pairs[0];
	for (int i = 0; i < 100; i++) {
		r.result = poll(r.many, PAIRS, 0);
		NEED(r.result == 0);
	}
	RUN(&r, poll_64_now);
	RUN(&r, poll_100_now);
	send_all(r.p.c, "x", 1);
	wait_events(r.p.s, POLLIN);
	RUN(&r, poll_100);
	RUN(&r, poll_100_now);
	RUN(&r, select_all);
}

static struct epoll_event events[200];
CALL(epoll_wait, epoll_wait(r->epoll, events, 64, SOON))
CALL(epoll_wait_now, epoll_wait(r->epoll, events, 64, 0))
/* How many it tells is another matter. */
CALL(epoll_wait_many, epoll_wait(r->epoll, events, 200, 0) > 0)
CALL(epoll_pwait, epoll_pwait(r->epoll, events, 64, SOON, &(sigset_t){{0}}))
CALL(epoll_pwait2, epoll_pwait2(r->epoll, events, 64, NULL, NULL))
CALL(epoll_create1, r->epoll = epoll_create1(0))
CALL(epoll_add,
     epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->p.s, &(struct epoll_event){.events = EPOLLIN}))
CALL(epoll_mod, epoll_ctl(r->epoll, EPOLL_CTL_MOD, r->p.s,
			  &(struct epoll_event){.events = EPOLLIN | EPOLLRDHUP}))
CALL(epoll_del, epoll_ctl(r->epoll, EPOLL_CTL_DEL, r->p.s, NULL))

CASE(stack_epoll, DIRECT)
{
	static struct rig r;

	rig_open(&r, true);
	RUN(&r, epoll_create1);
	NEED(r.result >= 0);
	RUN(&r, epoll_add);
	tell(&r, 'b');
	RUN(&r, epoll_wait); /* it sleeps */
	RUN(&r, epoll_wait_now);
	take(&r);
	RUN(&r, epoll_mod);
	tell(&r, 'b');
	RUN(&r, epoll_pwait);
	take(&r);
	tell(&r, 'b');
	RUN(&r, epoll_pwait2);
	take(&r);
	RUN(&r, epoll_wait_now);
	rig_close(&r);
	RUN(&r, epoll_wait);
	RUN(&r, epoll_del);
}

/* With room for the events on the stack. */
#define CALL_LARGE(name, wait)                                                           \
	static void call_##name##_large(struct rig *r)                                   \
	{                                                                                \
		struct epoll_event ev[48];                                               \
                                                                                         \
		r->result = (wait);                                                      \
	}
CALL_LARGE(epoll_wait, epoll_wait(r->epoll, ev, 48, SOON))
CALL_LARGE(epoll_pwait, epoll_pwait(r->epoll, ev, 48, SOON, &(sigset_t){{0}}))
CALL_LARGE(epoll_pwait2, epoll_pwait2(r->epoll, ev, 48, NULL, NULL))
CALL_LARGE(by_number, syscall(SYS_epoll_wait, r->epoll, ev, 48, SOON))

CASE(stack_epoll_large, DIRECT)
{
	static struct rig r;
	static const struct {
		const char *name;
		stack_call *call;
	} calls[] = {{"epoll_wait", call_epoll_wait_large},
		     {"epoll_pwait", call_epoll_pwait_large},
		     {"epoll_pwait2", call_epoll_pwait2_large},
		     {"by its number", call_by_number_large}};

	rig_open(&r, true);
	r.epoll = epoll_create1(EPOLL_CLOEXEC);
	RUN(&r, epoll_add);
	/* The loader needs much of a stack to find them. */
	NEED(epoll_wait(-1, events, 1, 0) < 0 && epoll_pwait(-1, events, 1, 0, NULL) < 0);
	NEED(epoll_pwait2(-1, events, 1, NULL, NULL) < 0 && syscall(SYS_getpid) > 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		tell(&r, 'b');
		run(&r, calls[i].name, calls[i].call); /* it sleeps */
		for (int k = 0; k < 20; k++)
			run(&r, calls[i].name, calls[i].call);
		take(&r);
	}
	/* Beside what the kernel has. */
	for (int i = 0; i < 20; i++)
		NEED(epoll_ctl(r.epoll, EPOLL_CTL_ADD, fcntl(r.pipe[1], F_DUPFD, 100),
			       &(struct epoll_event){.events = EPOLLOUT}) == 0);
	tell(&r, 'b');
	wait_events(r.p.s, POLLIN);
	for (int k = 0; k < 40; k++)
		run(&r, calls[k % 4].name, calls[k % 4].call);
	take(&r);
	rig_close(&r);
}

/* More than the library hears from the kernel at once. */
CASE(stack_epoll_many, DIRECT)
{
	static struct rig r;

	rig_open(&r, true);
	r.epoll = epoll_create1(EPOLL_CLOEXEC);
	RUN(&r, epoll_add);
	for (int i = 0; i < 100; i++)
		NEED(epoll_ctl(r.epoll, EPOLL_CTL_ADD, fcntl(r.pipe[1], F_DUPFD, 100),
			       &(struct epoll_event){.events = EPOLLOUT,
						     .data.fd = 1000 + i}) == 0);
	RUN(&r, epoll_wait_many);
	RUN(&r, epoll_wait_many);
	tell(&r, 'b');
	wait_events(r.p.s, POLLIN);
	RUN(&r, epoll_wait_many);
	RUN(&r, epoll_wait_many);
	take(&r);
	rig_close(&r);
	RUN(&r, epoll_wait_many);
}

/* ---- the rest ---- */

CALL(ioctl, ioctl(r->p.s, FIONREAD, &(int){0}))
CALL(getsockopt, getsockopt(r->p.s, SOL_SOCKET, SO_ERROR, &(int){0}, &(socklen_t){4}))
CALL(setsockopt, setsockopt(r->p.s, SOL_SOCKET, SO_RCVBUF, &(int){70000}, 4))
CALL(fcntl, fcntl(r->p.s, F_SETFL, O_RDWR) | fcntl(r->p.s, F_GETFL))
CALL(dup, close(dup(r->p.s)))
CALL(dup2, dup2(r->p.s, r->pipe[0]) == r->pipe[0])
CALL(shutdown, shutdown(r->p.s, SHUT_WR))
CALL(close, close(r->p.s))
CALL(listen, (r->listener = listen_any(AF_INET, &r->port)) >= 0)
CALL(connect, (r->p.c = connect_to(AF_INET, r->port)) >= 0)
CALL(accept, (r->p.s = accept(r->listener, NULL, NULL)) >= 0)
CALL(splice_in, splice(r->pipe[0], NULL, r->p.c, NULL, 1, 0))

CASE(stack_rest, DIRECT)
{
	static struct rig r;

	rig_open(&r, true);
	RUN(&r, ioctl);
	RUN(&r, getsockopt);
	RUN(&r, setsockopt);
	RUN(&r, fcntl);
	RUN(&r, dup);
	NEED(write(r.pipe[1], "x", 1) == 1);
	RUN(&r, shutdown);
	rig_close(&r);
	RUN(&r, close);
	RUN(&r, listen);
	RUN(&r, connect);
	RUN(&r, accept);
	pair_warm(r.p);
	RUN(&r, dup2);
	RUN(&r, close);
	pair_close((struct pair){r.p.c, r.pipe[0]});
}

static char *const words[] = {"true", NULL};

CALL(popen, pclose(popen("true", "r")))
CALL(system, system("true"))
CALL(posix_spawn, posix_spawn(&r->peer, "/bin/true", NULL, NULL, words, environ))
CALL(execve, execve("/nowhere/at/all", words, environ))

/* With a connection that the program has. */
CASE(stack_exec, DIRECT)
{
	static struct rig r;

	r.p = pair_warm_open();
	RUN(&r, popen);
	RUN(&r, system);
	RUN(&r, posix_spawn);
	say("status %d", child_status(r.peer));
	RUN(&r, execve);
	pair_close(r.p);
}

CASE(stack_splice, DIRECT)
{
	static struct rig r;

	r.p = pair_warm_open();
	NEED(pipe(r.pipe) == 0);
	send_all(r.p.c, "abc", 3);
	wait_inq(r.p.s, 3);
	RUN(&r, splice);
	RUN(&r, splice);
	RUN(&r, splice_in);
	pair_close(r.p);
}

/* By the way out that the process has. */
static void leave(struct rig *r)
{
	(void)r;
	_exit(0);
}

CASE(stack_exit, DIRECT)
{
	static struct rig r;
	pid_t pid;

	r.p = pair_warm_open();
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		run(&r, "_exit", leave);
	say("status %d", child_status(pid));
	pair_close(r.p);
}
