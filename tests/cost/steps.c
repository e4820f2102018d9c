/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the instructions of calls on an upgraded connection, one step at a time. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_TURNS 64
#define SKIP	   77
#define REPEATS	   5

struct ends {
	int c, s, listener;
	struct sockaddr_in to; /* it */
};

static char buf[65536];

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(2);
}

static void send_64(struct ends *e)
{
	need(send(e->c, buf, 64, 0) == 64, "send");
}

static void recv_64(struct ends *e)
{
	need(recv(e->s, buf, 64, 0) == 64, "recv");
}

static void write_64(struct ends *e)
{
	need(write(e->c, buf, 64) == 64, "write");
}

static void read_64(struct ends *e)
{
	need(read(e->s, buf, sizeof(buf)) == 64, "read");
}

static void poll_ready(struct ends *e)
{
	struct pollfd p = {.fd = e->s, .events = POLLIN};
	need(poll(&p, 1, -1) == 1, "poll");
}

static void poll_nothing(struct ends *e)
{
	struct pollfd p = {.fd = e->s, .events = POLLIN};
	need(poll(&p, 1, 0) == 0, "poll");
}

static void recv_nothing(struct ends *e)
{
	need(recv(e->s, buf, 64, MSG_DONTWAIT) < 0 && errno == EAGAIN, "recv");
}

/* As by libraries that make an epoll instance for each of their calls (Samba's). */
static void instance(struct ends *e)
{
	struct epoll_event in = {.events = EPOLLIN}, out;
	int ep = epoll_create1(EPOLL_CLOEXEC);

	need(epoll_ctl(ep, EPOLL_CTL_ADD, e->s, &in) == 0, "epoll_ctl");
	need(epoll_wait(ep, &out, 1, -1) == 1 && close(ep) == 0, "epoll_wait");
}

/* Both ends of a connection of one round trip, from the first call to the last. */
static void short_connection(struct ends *e)
{
	int one = 1, c = socket(AF_INET, SOCK_STREAM, 0), s;

	need(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "NODELAY");
	need(connect(c, (struct sockaddr *)&e->to, sizeof(e->to)) == 0, "connect");
	s = accept(e->listener, NULL, NULL);
	need(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "NODELAY");
	need(send(c, buf, 64, 0) == 64 && recv(s, buf, 64, 0) == 64, "there");
	need(send(s, buf, 64, 0) == 64 && recv(c, buf, 64, 0) == 64, "back");
	need(close(c) == 0, "close");
	need(recv(s, buf, 64, 0) == 0 && close(s) == 0, "end");
}

static void nothing(struct ends *e)
{
	(void)e;
}

/* What is counted, and what puts things right around it. */
static const struct {
	const char *name;
	void (*before)(struct ends *e), (*call)(struct ends *e), (*after)(struct ends *e);
} calls[] = {
	{"nothing", nothing, nothing, nothing},
	{"send-64", nothing, send_64, recv_64},
	{"recv-64", send_64, recv_64, nothing},
	{"write-64", nothing, write_64, read_64},
	{"read-64", write_64, read_64, nothing},
	{"recv-nothing", nothing, recv_nothing, nothing},
	{"poll-ready", send_64, poll_ready, recv_64},
	{"poll-nothing", nothing, poll_nothing, nothing},
	{"instance", send_64, instance, recv_64},
	{"connection", nothing, short_connection, nothing}, /* the longest by far: last */
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static struct ends connect_pair(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(in);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct ends e = {.c = socket(AF_INET, SOCK_STREAM, 0), .listener = listener};

	need(bind(listener, (struct sockaddr *)&in, len) == 0, "bind");
	need(listen(listener, 1) == 0, "listen");
	need(getsockname(listener, (struct sockaddr *)&in, &len) == 0, "getsockname");
	need(connect(e.c, (struct sockaddr *)&in, len) == 0, "connect");
	e.s = accept(listener, NULL, NULL);
	need(e.s >= 0, "accept");
	e.to = in;
	setsockopt(e.c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return e;
}

static void warm(struct ends *e)
{
	for (int i = 0; i < WARM_TURNS; i++) {
		send_64(e);
		recv_64(e);
		need(send(e->s, buf, 64, 0) == 64, "send");
		need(recv(e->c, buf, 64, 0) == 64, "recv");
	}
}

/* The tracer counts from one SIGTRAP to the next. */
static void mark(void)
{
	__asm__ volatile("int3");
}

static int traced(int count)
{
	struct ends e = connect_pair();
	warm(&e);
	need(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "PR_SET_PDEATHSIG");
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
		perror("PTRACE_TRACEME");
		return SKIP;
	}
	for (int i = 0; i < count; i++) {
		for (int n = 0; n < REPEATS; n++) {
			calls[i].before(&e);
			mark();
			calls[i].call(&e);
			mark();
			calls[i].after(&e);
		}
	}
	return 0;
}

/* Waits for the next stop; ends with the child's status when it has ended. */
static void wait_stop(pid_t pid, int *sig)
{
	int status;
	need(waitpid(pid, &status, 0) == pid, "waitpid");
	if (!WIFSTOPPED(status)) {
		if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
			exit(SKIP);
		fprintf(stderr, "steps: the traced process ended with status %#x\n",
			status);
		exit(2);
	}
	*sig = WSTOPSIG(status);
}

/* int3 leaves the instruction pointer behind itself. */
static int at_mark(pid_t pid)
{
	siginfo_t info;
	need(ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) == 0, "PTRACE_GETSIGINFO");
	return info.si_code == SI_KERNEL;
}

static void run_to_mark(pid_t pid, int started)
{
	int sig = 0;
	if (started)
		need(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0, "PTRACE_CONT");
	for (wait_stop(pid, &sig); sig != SIGTRAP; wait_stop(pid, &sig))
		need(ptrace(PTRACE_CONT, pid, NULL, (long)sig) == 0, "PTRACE_CONT");
}

static unsigned long steps_to_mark(pid_t pid)
{
	unsigned long steps = 0;
	int sig;
	for (;;) {
		need(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0,
		     "PTRACE_SINGLESTEP");
		wait_stop(pid, &sig);
		if (sig == SIGTRAP && at_mark(pid))
			return steps;
		steps++;
	}
}

/* The instructions of a program that does nothing, with what is preloaded into it, or not. */
static unsigned long steps_of_start(int preloaded)
{
	unsigned long steps = 0;
	int status = 0;
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0) {
		if (!preloaded)
			unsetenv("LD_PRELOAD");
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(SKIP);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	for (;; steps++) {
		need(waitpid(pid, &status, 0) == pid, "waitpid");
		if (!WIFSTOPPED(status))
			break;
		need(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0,
		     "PTRACE_SINGLESTEP");
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP)
		exit(SKIP);
	need(status == 0, "/bin/true");
	return steps;
}

/* usage: steps [start|connection]: the calls, and one of what takes long */
int main(int argc, char **argv)
{
	const char *more = argc > 1 ? argv[1] : "";
	int has_connection = strstr(more, "connection") != NULL;
	int count = has_connection ? CALLS : CALLS - 1;
	if (!strncmp(more, "traced", 6))
		return traced(count);
	if (!strcmp(more, "start"))
		printf("start %lu\n", steps_of_start(1) - steps_of_start(0));
	fflush(stdout);
	pid_t pid = fork();
	need(pid >= 0, "fork");
	/* As most programs are: without relatives that it shares memory with. */
	if (pid == 0) {
		execl("/proc/self/exe", "steps",
		      has_connection ? "traced connection" : "traced", (char *)NULL);
		_exit(1);
	}
	for (int i = 0; i < count; i++) {
		unsigned long least = ~0ul;
		for (int n = 0; n < REPEATS; n++) {
			run_to_mark(pid, i + n > 0);
			unsigned long steps = steps_to_mark(pid);
			least = steps < least ? steps : least;
		}
		printf("%s %lu\n", calls[i].name, least);
	}
	int status;
	need(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0, "PTRACE_CONT");
	need(waitpid(pid, &status, 0) == pid && status == 0, "the traced process");
	return 0;
}
