/* SPDX-License-Identifier: Apache-2.0 */
/* Bad pointers give EFAULT, and faults of the program's own stay its own. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

static char *bad; /* the first byte that is not there */
static char text[4096];

static void make_bad(void)
{
	char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(map != MAP_FAILED);
	NEED(mprotect(map + (1 << 19), 1 << 19, PROT_NONE) == 0);
	bad = map + (1 << 19);
}

static void bad_buffers(struct pair p)
{
	struct iovec vector = {bad, 100};
	struct msghdr msg = {.msg_iov = &vector, .msg_iovlen = 1};
	char *wild = (char *)0xdeadbeefdeadbeef;
	say_result("write", write(p.c, bad, 100));
	say_result("send", send(p.c, bad, 3000, 0));
	say_result("send null", send(p.c, NULL, 10, 0));
	say_result("send wild", send(p.c, wild, 100, 0));
	say_result("send wild", send(p.c, wild, 2000, 0));
	say_result("writev", writev(p.c, &vector, 1));
	say_result("sendmsg", sendmsg(p.c, &msg, 0));
	say_result("nothing was sent", recv(p.s, text, 10, MSG_DONTWAIT));
	send_all(p.c, text, 1000);
	wait_inq(p.s, 1000);
	say_result("read", read(p.s, bad, 100));
	say_result("recv", recv(p.s, bad - 10, 1000, 0));
	say_result("recv null", recv(p.s, NULL, 10, 0));
	say_result("recv wild", recv(p.s, wild, 100, 0));
	say_result("readv", readv(p.s, &vector, 1));
	say_result("recvmsg", recvmsg(p.s, &msg, 0));
	say_result("peek", recv(p.s, bad, 10, MSG_PEEK));
	say_result("up to the edge", recv(p.s, bad - 10, 10, 0));
	say_result("all the rest is there", recv(p.s, text, sizeof text, 0));
}

static void bad_structures(int fd)
{
	struct iovec vector = {text, 10};
	struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}},
				 {.msg_hdr = {.msg_iov = (void *)bad, .msg_iovlen = 1}}};
	struct iovec *edge = (struct iovec *)(void *)bad - 1;
	struct msghdr msg = {.msg_iov = (void *)bad, .msg_iovlen = 1};
	void *nowhere = bad;
	off64_t *offset = nowhere;
	*edge = vector;
	say_result("readv", readv(fd, nowhere, 2));
	say_result("readv edge", readv(fd, edge, 2));
	say_result("readv many", readv(fd, edge, 100));
	say_result("writev", writev(fd, nowhere, 2));
	say_result("writev edge", writev(fd, edge, 2));
	say_result("writev many", writev(fd, edge, 100));
	say_result("preadv2", preadv2(fd, nowhere, 2, -1, 0));
	say_result("pwritev2", pwritev2(fd, nowhere, 2, -1, 0));
	say_result("recvmsg", recvmsg(fd, nowhere, MSG_DONTWAIT));
	say_result("recvmsg vector", recvmsg(fd, &msg, MSG_DONTWAIT));
	say_result("sendmsg", sendmsg(fd, nowhere, MSG_DONTWAIT));
	say_result("sendmsg vector", sendmsg(fd, &msg, MSG_DONTWAIT));
	say_result("recvmmsg", recvmmsg(fd, nowhere, 2, MSG_DONTWAIT, NULL));
	say_result("recvmmsg time", recvmmsg(fd, two, 2, MSG_DONTWAIT, nowhere));
	say_result("sendmmsg", sendmmsg(fd, nowhere, 2, MSG_DONTWAIT));
	say_result("sendmmsg second", sendmmsg(fd, two, 2, MSG_DONTWAIT));
	msg = (struct msghdr){.msg_iov = &vector,
			      .msg_iovlen = 1,
			      .msg_control = bad,
			      .msg_controllen = 32};
	say_result("sendmsg control", sendmsg(fd, &msg, MSG_DONTWAIT));
	say_result("sendfile no file", sendfile64(fd, -1, NULL, 10));
	say_result("sendfile offset", sendfile64(fd, 0, offset, 10));
}

CASE(efault_buffers, DIRECT)
{
	struct pair p = pair_warm_open();
	make_bad();
	bad_buffers(p);
	pair_warm(p);
	pair_close(p);
}

/* The descriptor 0 of the tests is no file: what is to fail fails before it is read. */
CASE(efault_structures, DIRECT)
{
	struct pair p = pair_warm_open();
	make_bad();
	bad_structures(p.c);
	say_result("what was sent", recv(p.s, text, sizeof text, MSG_DONTWAIT));
	pair_warm(p);
	pair_close(p);
}

CASE(efault_cold, ANYWAY)
{
	struct pair p = pair_open();
	int both[2];
	make_bad();
	bad_structures(p.c);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
	bad_structures(both[0]);
	pair_close(p);
}

static sigjmp_buf away;
static void *_Atomic fault_at;
static _Atomic int fault_code;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	fault_at = info->si_addr;
	fault_code = info->si_code;
	siglongjmp(away, 1);
}

CASE(segv_handler, DIRECT)
{
	struct pair p = pair_warm_open();
	struct sigaction act = {.sa_sigaction = on_fault,
				.sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_size = 65536, .ss_sp = malloc(65536)};
	make_bad();
	NEED(sigaltstack(&stack, NULL) == 0);
	NEED(sigaction(SIGSEGV, &act, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		bad_buffers(p);
		if (sigsetjmp(away, 1) == 0)
			*(char *volatile)(bad + 5) = 1;
		say("fault at 5: %d, code %d", fault_at == bad + 5, fault_code);
	}
	pair_close(p);
}

/* Arrays that the kernel would find bad: one of them of a page that ends in the middle. */
CASE(bad_arrays, DIRECT)
{
	struct pair p = pair_warm_open();
	make_bad();
	struct pollfd *fds = (struct pollfd *)bad - 1;
	struct epoll_event in = {.events = EPOLLIN};
	void *volatile nowhere = NULL;
	int ep = epoll_create1(0);
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &in) == 0);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	*fds = (struct pollfd){.fd = p.s, .events = POLLIN};
	say_result("poll", poll((struct pollfd *)bad, 1, 0));
	say_result("poll of two", poll(fds, 2, 0));
	say_result("poll of one", poll(fds, 1, 0));
	say_result("poll null", poll(nowhere, 1, 0));
	say_result("poll nothing", poll((struct pollfd *)bad, 0, 0));
	say_result("ppoll", ppoll((struct pollfd *)bad, 1, NULL, NULL));
	say_result("select", select(p.s + 1, (fd_set *)bad, NULL, NULL, NULL));
	say_result("select", select(p.s + 1, NULL, NULL, (fd_set *)bad, NULL));
	say_result("select none",
		   select(0, (fd_set *)bad, NULL, NULL, &(struct timeval){0}));
	say_result("epoll_wait", epoll_wait(ep, (struct epoll_event *)bad, 1, 0));
	say_result("epoll_wait null", epoll_wait(ep, nowhere, 1, 0));
	say_result("epoll_wait", epoll_wait(ep, &in, 1, 0));
	close(ep);
	pair_close(p);
}

static void die_in_child(void (*how)(void))
{
	struct rlimit none = {0, 0};
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		how();
		_exit(0);
	}
	say("status %d", child_status(pid));
}

static void die_of_fault(void)
{
	*(char *volatile)bad = 1;
}

static void die_of_signal(void)
{
	raise(SIGSEGV);
}

static void die_ignoring(void)
{
	signal(SIGSEGV, SIG_IGN);
	raise(SIGSEGV);
	die_of_fault();
}

static void die_after_handler(void)
{
	struct sigaction act = {.sa_sigaction = on_fault,
				.sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
	sigaction(SIGSEGV, &act, NULL);
	if (sigsetjmp(away, 1) == 0)
		die_of_fault();
	die_of_fault();
}

static void die_of_bus(void)
{
	kill(getpid(), SIGBUS);
}

CASE(segv_default, ANYWAY)
{
	make_bad();
	die_in_child(die_of_fault);
	die_in_child(die_of_signal);
	die_in_child(die_ignoring);
	die_in_child(die_after_handler);
	die_in_child(die_of_bus);
}
