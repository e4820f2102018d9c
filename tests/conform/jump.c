/* SPDX-License-Identifier: Apache-2.0 */
/* Signal handlers that leave a waiting call by siglongjmp: afterwards nobody waits there. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

#define STORM_JUMPS 1000

static sigjmp_buf away;
static volatile sig_atomic_t may_jump;

static void jump(int sig)
{
	(void)sig;
	if (!may_jump)
		return;
	may_jump = 0;
	siglongjmp(away, 1);
}

static void wait_recv(int fd)
{
	char byte;

	recv(fd, &byte, 1, 0);
}

static void wait_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	poll(&p, 1, -1);
}

static void wait_select(int fd)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	select(fd + 1, &set, NULL, NULL, NULL);
}

static int epfd = -1;

static void wait_epoll(int fd)
{
	struct epoll_event ev;

	(void)fd;
	epoll_wait(epfd, &ev, 1, -1);
}

static void epoll_open(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};

	epfd = epoll_create1(EPOLL_CLOEXEC);
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
}

static void read_to_end(int fd, void *arg)
{
	int error = 0;

	(void)arg;
	recv_to_end(fd, &error);
	say_as("peer");
	say("the end: %d", error);
}

/* The close that follows is one, and ends the connection. */
static void jump_once(void (*wait)(int fd))
{
	const struct itimerval soon = {.it_value.tv_usec = 20000};
	pid_t pid;
	int fd = peer_start(read_to_end, NULL, &pid);

	epoll_open(fd);
	signal(SIGALRM, jump);
	if (sigsetjmp(away, 1) == 0) {
		may_jump = 1;
		setitimer(ITIMER_REAL, &soon, NULL);
		wait(fd);
		say("not reached");
	}
	send_pattern(fd, 0, 100);
	close(fd);
	say("peer: status %d", child_status(pid));
}

CASE(jump_out_of_poll, DIRECT)
{
	jump_once(wait_poll);
}

CASE(jump_out_of_select, DIRECT)
{
	jump_once(wait_select);
}

CASE(jump_out_of_epoll, DIRECT)
{
	jump_once(wait_epoll);
}

/* Each out of the first call behind the one before. */
CASE(jump_in_a_row, DIRECT)
{
	const struct itimerval soon = {.it_value.tv_usec = 2000};
	static volatile int jumps;
	struct pair p = pair_warm_open();

	epoll_open(p.s);
	signal(SIGALRM, jump);
	for (jumps = 0; jumps < 40; jumps++)
		if (sigsetjmp(away, 1) == 0) {
			may_jump = 1;
			setitimer(ITIMER_REAL, &soon, NULL);
			(jumps % 2 ? wait_recv : wait_epoll)(p.s);
			say("not reached");
		}
	send_pattern(p.c, 0, 100);
	recv_pattern(p.s, 0, 100);
	pair_close(p);
}

static volatile sig_atomic_t came;

static void come(int sig)
{
	(void)sig;
	came++;
}

/* What the call has held is given back once, though a signal comes before the next call. */
CASE(jump_and_signal, DIRECT)
{
	const struct itimerval soon = {.it_value.tv_usec = 2000};
	static volatile int jumps;
	struct pair p = pair_warm_open();
	sigset_t none;

	epoll_open(p.s);
	sigemptyset(&none);
	signal(SIGALRM, jump);
	signal(SIGUSR1, come);
	for (jumps = 0; jumps < 10; jumps++)
		if (sigsetjmp(away, 0) == 0) {
			may_jump = 1;
			setitimer(ITIMER_REAL, &soon, NULL);
			wait_epoll(p.s);
			say("not reached");
		} else {
			syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
			sigprocmask(SIG_SETMASK, &none, NULL);
		}
	say("signals: %d", (int)came);
	send_pattern(p.c, 0, 100);
	recv_pattern(p.s, 0, 100);
	pair_close(p);
}

static void echo(int fd, void *arg)
{
	char buf[64];
	ssize_t n;

	(void)arg;
	while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
		if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
			break;
}

static void talk(int fd, void (*wait)(int fd))
{
	char buf[64];

	for (;;) {
		send(fd, "x", 1, MSG_DONTWAIT);
		wait(fd);
		recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	}
}

/* From wherever the call is at that moment, a thousand times. */
static void jump_storm(void (*wait)(int fd))
{
	const struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	static volatile int jumps;
	pid_t pid;
	int fd = peer_start(echo, NULL, &pid);

	epoll_open(fd);
	signal(SIGALRM, jump);
	setitimer(ITIMER_REAL, &every, NULL);
	while (jumps < STORM_JUMPS) {
		if (sigsetjmp(away, 1) == 0) {
			may_jump = 1;
			talk(fd, wait);
		}
		jumps = jumps + 1;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	close(fd);
	say("peer: status %d", child_status(pid));
}

CASE(jump_storm_recv, DIRECT)
{
	jump_storm(wait_recv);
}

CASE(jump_storm_poll, DIRECT)
{
	jump_storm(wait_poll);
}

CASE(jump_storm_select, DIRECT)
{
	jump_storm(wait_select);
}

CASE(jump_storm_epoll, DIRECT)
{
	jump_storm(wait_epoll);
}
