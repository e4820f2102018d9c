/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of pthread_atfork that use connections. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

enum phase { PREPARE, PARENT, CHILD };
static const char *const names[] = {"prepare", "in parent", "in child"};

static void (*handler)(enum phase phase);

static void in_phase(enum phase phase)
{
	if (handler)
		handler(phase);
}

static void prepare(void)
{
	in_phase(PREPARE);
}

static void in_parent(void)
{
	in_phase(PARENT);
}

static void in_child(void)
{
	in_phase(CHILD);
}

static struct pair kept, closed, placed;

static void echo(struct pair p)
{
	char buf[8] = "";

	send_all(p.c, "to serv", 8);
	recv_all(p.s, buf, 8);
	NEED(!strcmp(buf, "to serv"));
	send_all(p.s, "to clnt", 8);
	NEED(wait_events(p.c, POLLIN) == POLLIN);
	recv_all(p.c, buf, 8);
	NEED(!strcmp(buf, "to clnt"));
}

static void wait_for(struct pair p)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7};
	int epfd = epoll_create1(EPOLL_CLOEXEC);
	char b;

	NEED(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	send_all(p.c, "x", 1);
	NEED(epoll_wait(epfd, &ev, 1, -1) == 1 && ev.data.u32 == 7);
	recv_all(p.s, &b, 1);
	NEED(close(epfd) == 0);
}

static void prepare_pairs(void)
{
	NEED(pthread_atfork(prepare, in_parent, in_child) == 0);
	kept = pair_warm_open();
	closed = pair_warm_open();
	placed = pair_warm_open();
}

static void use(enum phase phase)
{
	struct pair made;

	/* Both processes use what was there before the fork, but not at the same time. */
	if (phase != CHILD) {
		echo(kept);
		wait_for(kept);
	}
	made = pair_warm_open();
	wait_for(made);
	NEED(dup2(made.c, made.s) == made.s);
	pair_close(made);
	if (phase == PARENT) {
		pair_close(closed);
		NEED(dup2(0, placed.c) == placed.c);
	}
	if (phase == CHILD)
		say_as("child");
	say("%s", names[phase]);
}

CASE(at_fork_uses, DIRECT)
{
	pid_t pid;

	prepare_pairs();
	handler = use;
	pid = fork();
	if (pid == 0) {
		echo(pair_warm_open());
		_exit(7);
	}
	say("child: %d", child_status(pid));
	handler = NULL;
	pair_warm(kept);
	pair_close(kept);
	say_result("placed", recv(placed.s, &(char){0}, 1, 0));
}

/* Forks, with the handler that is set, and uses the connection that is kept after each. */
static void fork_and_warm(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(7);
		say("child: %d", child_status(pid));
		pair_warm(kept);
	}
	handler = NULL;
}

static void place(enum phase phase)
{
	if (phase == PARENT)
		NEED(dup2(0, 200) == 200 && close(200) == 0);
}

/* What waits for the end of the fork alone: a number that is free. */
CASE(at_fork_places, DIRECT)
{
	prepare_pairs();
	handler = place;
	fork_and_warm(3);
	pair_close(pair_warm_open());
}

static volatile sig_atomic_t handled;

static void count_signal(int sig)
{
	(void)sig;
	handled++;
	echo(kept);
}

static void interrupt(enum phase phase)
{
	if (phase == CHILD) {
		pair_close(kept);
		kept = pair_warm_open();
		say_as("child");
	}
	if (phase == PARENT)
		pair_close(closed);
	handled = 0;
	NEED(raise(SIGUSR1) == 0);
	say("%s: %d", names[phase], (int)handled);
}

/* Signals come while the handlers run, and theirs may use connections, too. */
CASE(at_fork_signals, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	prepare_pairs();
	handler = interrupt;
	pid = fork();
	if (pid == 0)
		_exit(7);
	say("child: %d", child_status(pid));
	handler = NULL;
	pair_warm(kept);
}

static void signal_alone(enum phase phase)
{
	sigset_t blocked;

	if (phase == CHILD)
		say_as("child");
	handled = 0;
	NEED(raise(SIGUSR1) == 0);
	NEED(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0);
	say("%s: %d, blocked %d", names[phase], (int)handled,
	    sigismember(&blocked, SIGUSR1));
}

static void count_alone(int sig)
{
	(void)sig;
	handled++;
}

/* Signals that come while handlers run that use nothing. */
CASE(at_fork_signals_alone, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_alone};

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	prepare_pairs();
	handler = signal_alone;
	fork_and_warm(2);
}

static _Atomic bool is_stopped, may_go_on;

/* As a collector's handler stops its thread. */
static void stop_here(int sig)
{
	(void)sig;
	is_stopped = true;
	while (!may_go_on)
		usleep(1000);
}

/* Makes and moves sockets while that one is stopped. */
static void *work_meanwhile(void *arg)
{
	int fd;

	while (!is_stopped)
		usleep(1000);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	NEED(fd >= 0 && dup2(fd, 900) == 900);
	close(900);
	close(fd);
	may_go_on = true;
	return arg;
}

static void stop_in_parent(enum phase phase)
{
	if (phase == PARENT)
		NEED(raise(SIGUSR1) == 0);
}

/* A signal stops the thread there, and another thread makes sockets before it goes on. */
CASE(at_fork_stopped, DIRECT)
{
	const struct sigaction act = {.sa_handler = stop_here};
	pthread_t other;
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	prepare_pairs();
	handler = stop_in_parent;
	NEED(pthread_create(&other, NULL, work_meanwhile, NULL) == 0);
	pid = fork();
	if (pid == 0)
		_exit(7);
	pthread_join(other, NULL);
	say("child: %d", child_status(pid));
	handler = NULL;
	pair_warm(kept);
}

static pid_t first_process;

static void end_elsewhere(enum phase phase)
{
	if (phase == PARENT && getpid() != first_process)
		_exit(5);
}

/* A child of vfork, in its parent's memory, that ends in such a handler. */
CASE(at_fork_in_vfork, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	prepare_pairs();
	first_process = getpid();
	handler = end_elsewhere;
	for (int i = 0; i < 2; i++) {
		pid = vfork();
		if (pid == 0) {
			if (fork() == 0)
				_exit(0);
			_exit(6);
		}
		say("child: %d", child_status(pid));
		NEED(dup2(0, 200) == 200 && close(200) == 0);
		pair_close(pair_warm_open());
		handled = 0;
		NEED(raise(SIGUSR1) == 0);
		say("handled: %d", (int)handled);
	}
	handler = NULL;
	pair_warm(kept);
}

static volatile pid_t second_process;

static void end_in_third(enum phase phase)
{
	if (phase == PARENT && getpid() != first_process && getpid() != second_process)
		_exit(5);
}

static void vfork_in_second(enum phase phase)
{
	pid_t pid;

	if (phase != PARENT || getpid() != second_process)
		return;
	pid = vfork();
	if (pid == 0)
		_exit(0);
	NEED(child_status(pid) == 0);
}

/* In a child of vfork: so that its parent may go on, nothing but these. */
static _Noreturn void fork_and_count(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	if (child_status(pid) != 0)
		_exit(9);
	handled = 0;
	raise(SIGUSR1);
	_exit(handled);
}

/* A child of vfork has one itself, which ends in a handler of its fork; and one by a handler of its own fork. */
CASE(at_fork_in_vfork_twice, DIRECT)
{
	const struct sigaction act = {.sa_handler = count_signal};
	static volatile pid_t third;
	pid_t pid;

	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	prepare_pairs();
	first_process = getpid();
	handler = end_in_third;
	pid = vfork();
	if (pid == 0) {
		second_process = getpid();
		third = vfork();
		if (third == 0) {
			if (fork() == 0)
				_exit(0);
			_exit(6);
		}
		if (child_status(third) != 5)
			_exit(8);
		fork_and_count();
	}
	say("child: %d", child_status(pid));
	handler = vfork_in_second;
	pid = vfork();
	if (pid == 0) {
		second_process = getpid();
		fork_and_count();
	}
	say("child: %d", child_status(pid));
	handler = NULL;
	pair_warm(kept);
}

#ifdef __GLIBC__ /* musl holds a lock of its own while they run */
static void fork_once_more(enum phase phase)
{
	static int deep;
	pid_t pid;

	if (deep++ == 0) {
		pid = fork();
		if (pid == 0)
			_exit(0);
		NEED(child_status(pid) == 0);
		pid = _Fork();
		if (pid == 0)
			_exit(0);
		NEED(child_status(pid) == 0);
		pid = (pid_t)syscall(SYS_fork);
		if (pid == 0)
			_exit(0);
		NEED(child_status(pid) == 0);
		pair_close(pair_warm_open());
		if (phase == CHILD)
			say_as("child");
		say("%s", names[phase]);
	}
	deep--;
}

CASE(at_fork_forks, DIRECT)
{
	pid_t pid;

	prepare_pairs();
	handler = fork_once_more;
	pid = fork();
	if (pid == 0) {
		pair_close(pair_warm_open());
		_exit(7);
	}
	say("child: %d", child_status(pid));
	handler = NULL;
	pair_warm(kept);
}

static bool is_between;

static void fork_on(enum phase phase)
{
	static int deep;
	pid_t pid;

	if (phase == CHILD || deep++)
		return;
	pid = fork();
	if (pid == 0) {
		is_between = true;
		return;
	}
	NEED(child_status(pid) == 7);
}

/* A child of a handler's goes on as its parent would, behind the outer fork. */
CASE(at_fork_goes_on, DIRECT)
{
	prepare_pairs();
	handler = fork_on;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(7);
		NEED(child_status(pid) == 7);
		pair_close(pair_warm_open());
	}
	if (is_between)
		_exit(7);
	say("done");
}
#endif
