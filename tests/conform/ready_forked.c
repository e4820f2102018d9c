/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of a process whose epoll instances are themselves waited for. */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

static void poll_show(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	int rc = poll(&p, 1, 0);

	say("poll: %d %s", rc, poll_names(p.revents));
}

/* A fork where the connection has left the instance, or shared memory, since the last look. */
static void forked_after(void (*leave)(struct pair *p))
{
	struct pair p = pair_warm_open(), other = pair_warm_open();
	int in = ep_open(), out = ep_open();
	pid_t child;

	ep_add(in, p.s, EPOLLIN, 1);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN, 2);
	ep_show(out, 0);
	leave(&p);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(3);
	say("child: %d", child_status(child));
	poll_show(in);
	ep_show(out, 0);
	ep_add(in, other.s, EPOLLIN, 3);
	send_pattern(other.c, 0, 10);
	ep_show(out, SOON);
	ep_show(in, SOON);
	close(in);
	close(out);
	close(p.c);
	close(p.s);
	pair_close(other);
}

static void leave_closed(struct pair *p)
{
	NEED(close(p->s) == 0);
	p->s = -1;
}

static void leave_urgent(struct pair *p)
{
	char byte;

	NEED(send(p->c, "!", 1, MSG_OOB) == 1);
	NEED(send(p->s, "!", 1, MSG_OOB) == 1);
	NEED(recv(p->s, &byte, 1, MSG_DONTWAIT) < 0);
	NEED(recv(p->c, &byte, 1, MSG_DONTWAIT) < 0);
}

CASE(nested_forked_after_a_close, ANYWAY)
{
	forked_after(leave_closed);
}

CASE(nested_forked_after_urgent_bytes, ANYWAY)
{
	forked_after(leave_urgent);
}

/* ---- what comes after a fork is told ---- */

static void forked_told(uint32_t events, uint32_t outer, size_t unread, bool pending)
{
	struct pair p = pair_warm_open(), other = pair_warm_open();
	int in = ep_open(), out = ep_open(), pipe_fds[2];
	pid_t child;
	char byte;

	NEED(pipe(pipe_fds) == 0 && write(pipe_fds[1], "x", 1) == 1);
	send_pattern(p.c, 0, unread);
	wait_inq(p.s, (int)unread);
	ep_add(in, p.s, events | EPOLLET, 1 | MAY_REPEAT);
	ep_show(in, 0);
	ep_add(out, in, EPOLLIN | outer, 2 | MAY_REPEAT);
	ep_show(out, 0);
	say_result("recv", recv(p.c, &byte, 1, MSG_DONTWAIT));
	ep_show(out, 0);
	if (pending) {
		ep_add(in, other.s, EPOLLOUT | EPOLLET, 3);
		ep_add(in, pipe_fds[0], EPOLLIN | EPOLLET, 4);
	}
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(3);
	say("child: %d", child_status(child));
	ep_show(out, 0);
	ep_show(in, 0);
	ep_show(out, 0);
	send_pattern(p.c, unread, 10);
	wait_inq(p.s, (int)unread + 10);
	ep_show(out, SOON);
	ep_show(in, 0);
	ep_show(out, 0);
	ep_show(in, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(in);
	close(out);
	pair_close(p);
	pair_close(other);
}

CASE(nested_forked_told, ANYWAY)
{
	forked_told(EPOLLIN, 0, 100, false);
	forked_told(EPOLLIN | EPOLLRDHUP, EPOLLET, 100, false);
	forked_told(EPOLLIN | EPOLLOUT, 0, 100, false);
	forked_told(EPOLLIN | EPOLLOUT, 0, 0, false);
}

CASE(nested_forked_pending, ANYWAY)
{
	forked_told(EPOLLIN, 0, 100, true);
	forked_told(EPOLLIN | EPOLLOUT, 0, 100, true);
}

/* ---- what a child changes is changed ---- */

/* While the parent sleeps on it: then that has what comes after the change. */
static void child_changes(bool nested, uint32_t events, uint32_t then)
{
	struct pair p = pair_warm_open();
	int in = ep_open(), out = ep_open();
	pid_t child, parent = getpid();

	ep_add(in, p.s, events, 1);
	if (nested)
		ep_add(out, in, EPOLLIN, 2);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		say_as("child");
		wait_asleep(parent, parent);
		say_result("mod", ep_ctl(in, EPOLL_CTL_MOD, p.s, then, 3));
		wait_asleep(parent, parent);
		send_pattern(p.c, 0, 10);
		_exit(3);
	}
	ep_show(nested ? out : in, SOON);
	say("child: %d", child_status(child));
	ep_show(in, 0);
	recv_pattern(p.s, 0, 10);
	ep_show(in, 0);
	send_pattern(p.c, 10, 10);
	wait_inq(p.s, 10);
	ep_show(in, 0);
	close(in);
	close(out);
	pair_close(p);
}

CASE(forked_mod, ANYWAY)
{
	child_changes(false, EPOLLRDHUP, EPOLLIN);
	child_changes(false, EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLET);
	child_changes(false, EPOLLIN, EPOLLIN | EPOLLONESHOT);
}

CASE(forked_mod_of_a_watched_one, ANYWAY)
{
	child_changes(true, EPOLLRDHUP, EPOLLIN);
	child_changes(true, EPOLLRDHUP | EPOLLET, EPOLLIN | EPOLLET);
	child_changes(true, EPOLLIN, EPOLLIN | EPOLLONESHOT);
}

/* ---- another image has the instance under a number that this process never had ---- */

#define ITS_INSTANCE 900
#define ITS_COMMANDS 901
#define ITS_ANSWERS  902

/* In the image: registers something edge-triggered that is ready, and takes it away again. */
static void registers_and_takes_away(void)
{
	char byte;

	while (read(ITS_COMMANDS, &byte, 1) == 1) {
		int ready = eventfd(1, EFD_CLOEXEC);

		ep_add(ITS_INSTANCE, ready, EPOLLIN | EPOLLET, 2);
		if (write(ITS_ANSWERS, "", 1) != 1 || read(ITS_COMMANDS, &byte, 1) != 1)
			break;
		close(ready);
		if (write(ITS_ANSWERS, "", 1) != 1)
			break;
	}
	_exit(0);
}

static pid_t start_image(const char *name, int in, int commands, int answers, bool spawns)
{
	const int numbers[][2] = {
		{in, ITS_INSTANCE}, {commands, ITS_COMMANDS}, {answers, ITS_ANSWERS}};
	char *const argv[] = {"cases", (char *)name, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (!spawns) {
		pid = vfork();
		if (pid == 0) {
			for (int i = 0; i < 3; i++)
				dup2(numbers[i][0], numbers[i][1]);
			execv("/proc/self/exe", argv);
			_exit(99);
		}
		NEED(pid > 0);
		return pid;
	}
	NEED(posix_spawn_file_actions_init(&actions) == 0);
	for (int i = 0; i < 3; i++)
		NEED(posix_spawn_file_actions_adddup2(&actions, numbers[i][0],
						      numbers[i][1]) == 0);
	NEED(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Of what is told, that with this data is. */
static bool tells(int in, uint64_t data)
{
	struct epoll_event ev[4];
	bool found = false;
	int n;

	while ((n = epoll_wait(in, ev, 4, 0)) > 0)
		for (int i = 0; i < n; i++)
			found |= ev[i].data.u64 == data;
	return found;
}

struct image {
	int commands[2], answers[2];
};

static struct image image_pipes(void)
{
	struct image m;

	NEED(pipe2(m.commands, O_CLOEXEC) == 0 && pipe2(m.answers, O_CLOEXEC) == 0);
	return m;
}

/* It makes its registration while this process forks, and the instance's own come back to it. */
static void fork_beside(int in, const struct image *m, int rounds)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), lost = 0;
	char byte;

	for (int i = 0; i < rounds; i++) {
		struct pair p = {.c = connect_to(AF_INET, port)};

		/* Of one listener: a process announces 256, and what others take stays on TCP. */
		p.s = accept(listener, NULL, NULL);
		NEED(p.s >= 0);
		pair_warm(p);
		ep_add(in, p.s, EPOLLIN | EPOLLOUT | EPOLLET, 1);
		poll(&(struct pollfd){.fd = in, .events = POLLIN}, 1, 0);
		ep_drain(in);
		NEED(recv(p.c, &byte, 1, MSG_DONTWAIT) < 0);
		poll(&(struct pollfd){.fd = in, .events = POLLIN}, 1, 0);
		NEED(write(m->commands[1], "", 1) == 1);
		for (volatile int turns = i * 997 % 3000; turns; turns--)
			;
		a_child();
		NEED(read(m->answers[0], &byte, 1) == 1);
		lost += !tells(in, 2);
		NEED(write(m->commands[1], "", 1) == 1 &&
		     read(m->answers[0], &byte, 1) == 1);
		pair_close(p);
	}
	say("lost: %d of %d", lost, rounds);
	close(listener);
	close(m->commands[1]);
}

static void image_registers(const char *name, int rounds, bool spawns)
{
	int in = epoll_create1(EPOLL_CLOEXEC);
	struct image m;
	pid_t pid;

	if (fcntl(ITS_INSTANCE, F_GETFD) >= 0)
		registers_and_takes_away();
	NEED(in >= 0);
	m = image_pipes();
	ep_show(in, 0);
	pid = start_image(name, in, m.commands[0], m.answers[1], spawns);
	fork_beside(in, &m, rounds);
	NEED(child_status(pid) == 0);
}

CASE(image_registers_by_dup2, READY)
{
	image_registers("image_registers_by_dup2", 500, false);
}

CASE(image_registers_by_spawn, READY)
{
	image_registers("image_registers_by_spawn", 300, true);
}

/* ---- children of a process that has gone ---- */

/* It ends, and its child, which has waited for that, does what is to be done. */
static void parent_goes(pid_t parent, struct signal_pipe gone, struct signal_pipe over)
{
	NEED(child_status(parent) == 0);
	signal_send(gone);
	signal_wait(over);
}

static void add_own(int in, uint64_t data, struct pair *p)
{
	*p = pair_warm_open();
	ep_add(in, p->s, EPOLLIN, data);
}

/* Each of two registers a connection of its own in the instance that they have of it. */
CASE(instance_of_nobody_left, ANYWAY)
{
	struct signal_pipe gone = signal_pipe(), added = signal_pipe(),
			   sent = signal_pipe(), over = signal_pipe();
	pid_t parent = fork();
	struct pair p;

	NEED(parent >= 0);
	if (parent == 0) {
		int in = ep_open();

		ep_show(in, 0);
		if (fork() == 0) {
			signal_wait(added);
			ep_drain(in);
			add_own(in, 2, &p);
			send_pattern(p.c, 0, 7);
			signal_send(sent);
			signal_wait(added);
			_exit(0);
		}
		if (fork() == 0) {
			signal_wait(gone);
			ep_show(in, 0);
			add_own(in, 1, &p);
			signal_send(added);
			signal_wait(sent);
			ep_show(in, SOON);
			send_pattern(p.c, 0, 7);
			ep_show(in, SOON);
			signal_send(added);
			signal_send(over);
			_exit(0);
		}
		_exit(0);
	}
	parent_goes(parent, gone, over);
}

/* The process that has gone has started another image with it, behind the fork. */
CASE(image_of_the_gone_registers, READY)
{
	struct signal_pipe gone, over;
	struct image m;
	pid_t parent;

	if (fcntl(ITS_INSTANCE, F_GETFD) >= 0)
		registers_and_takes_away();
	gone = signal_pipe();
	over = signal_pipe();
	m = image_pipes();
	parent = fork();
	NEED(parent >= 0);
	if (parent == 0) {
		int in = ep_open();

		ep_show(in, 0);
		if (fork() == 0) {
			signal_wait(gone);
			fork_beside(in, &m, 500);
			signal_send(over);
			_exit(0);
		}
		start_image("image_of_the_gone_registers", in, m.commands[0],
			    m.answers[1], false);
		_exit(0);
	}
	parent_goes(parent, gone, over);
}
