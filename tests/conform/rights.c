/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a process of a family gives up rights, and goes on with what it has. */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

#define NOBODY 65534
/* In the window of a fresh connection on Linux 6.1. */
#define UNREAD 60000

int capset(cap_user_header_t header, cap_user_data_t data);

/* ---- the calls ---- */

static int no_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	return capset(&head, data);
}

static int by_setuid(void)
{
	return setuid(NOBODY);
}

static int by_seteuid(void)
{
	return seteuid(NOBODY);
}

static int by_setreuid(void)
{
	return setreuid(NOBODY, NOBODY);
}

static int by_setresuid(void)
{
	return setresuid(NOBODY, NOBODY, NOBODY);
}

static int by_setgid(void)
{
	return setgid(NOBODY);
}

static int by_setegid(void)
{
	return setegid(NOBODY);
}

static int by_setregid(void)
{
	return setregid(NOBODY, NOBODY);
}

static int by_setresgid(void)
{
	return setresgid(NOBODY, NOBODY, NOBODY);
}

static int by_setgroups(void)
{
	return setgroups(0, NULL);
}

static int by_chroot(void)
{
	return chroot("/");
}

static int by_unshare(void)
{
	return unshare(CLONE_NEWNS);
}

static int by_setns(void)
{
	return setns(-1, CLONE_NEWNS);
}

static int by_bad_capset(void)
{
	return capset((cap_user_header_t)1, NULL);
}

static int by_syscall(void)
{
	return (int)syscall(SYS_setresuid, NOBODY, -1, NOBODY);
}

static int by_root_and_back(void)
{
	return seteuid(NOBODY) || seteuid(geteuid() == NOBODY ? 0 : geteuid());
}

static const struct {
	const char *name;
	int (*make)(void);
} calls[] = {{"setuid", by_setuid},	  {"seteuid", by_seteuid},
	     {"setreuid", by_setreuid},	  {"setresuid", by_setresuid},
	     {"setgid", by_setgid},	  {"setegid", by_setegid},
	     {"setregid", by_setregid},	  {"setresgid", by_setresgid},
	     {"setgroups", by_setgroups}, {"chroot", by_chroot},
	     {"unshare", by_unshare},	  {"setns", by_setns},
	     {"capset", no_capabilities}, {"bad capset", by_bad_capset},
	     {"syscall", by_syscall},	  {"and back", by_root_and_back}};

static void say_ids(void)
{
	uid_t u[3];
	gid_t g[3];
	getresuid(&u[0], &u[1], &u[2]);
	getresgid(&g[0], &g[1], &g[2]);
	say("users %d %d %d, groups %d %d %d", (int)u[0], (int)u[1], (int)u[2], (int)g[0],
	    (int)g[1], (int)g[2]);
}

static void echo_once(struct pair p)
{
	for (int i = 0; i < 3; i++) {
		send_pattern(p.c, 0, 5000);
		recv_pattern(p.s, 0, 5000);
		send_pattern(p.s, 0, 5000);
		recv_pattern(p.c, 0, 5000);
	}
}

/* Each has a connection of its own, one of its parent's that it uses, and makes another then. */
CASE(rights_by_each_call, DIRECT)
{
	struct pair parents = pair_open();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct pair own = pair_warm_open();
			errno = 0;
			say_result(calls[i].name, calls[i].make());
			say_ids();
			echo_once(own);
			echo_once(parents);
			echo_once(pair_open());
			pair_close(own);
			_exit(0);
		}
		say("status %d", child_status(pid));
	}
	echo_once(parents);
	pair_close(parents);
}

/* ---- a connection that its parent had ---- */

static void send_and_hear(int fd, void *arg)
{
	struct signal_pipe *sent = arg;
	int error;
	send_pattern(fd, 0, UNREAD);
	signal_send(*sent);
	recv_pattern(fd, 0, UNREAD);
	send_pattern(fd, UNREAD, UNREAD);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
	say("error %d", error);
}

static void serve(int fd)
{
	recv_pattern(fd, 0, UNREAD);
	send_pattern(fd, 0, UNREAD);
	recv_pattern(fd, UNREAD, UNREAD);
}

CASE(rights_of_who_goes_on, DIRECT)
{
	struct signal_pipe sent = signal_pipe();
	pid_t peer, pid;
	int fd = peer_start(send_and_hear, &sent, &peer);
	signal_wait(sent);
	wait_inq(fd, UNREAD);
	pid = fork();
	if (pid == 0) {
		say_as("child");
		by_setresuid();
		serve(fd);
		_exit(0);
	}
	close(fd);
	say("child %d", child_status(pid));
	say("peer %d", child_status(peer));
}

/* It closes what it does not use before: that stays where it is. */
CASE(rights_of_who_has_closed, STAYS)
{
	struct signal_pipe sent = signal_pipe();
	pid_t peer, pid;
	int fd = peer_start(send_and_hear, &sent, &peer);
	signal_wait(sent);
	pid = fork();
	if (pid == 0) {
		close(fd);
		by_setresuid();
		_exit(0);
	}
	say("child %d", child_status(pid));
	serve(fd);
	close(fd);
	say("peer %d", child_status(peer));
}

/* ---- amid a call ---- */

static void give_up(int sig)
{
	(void)sig;
	by_setresuid();
}

static void on_signal(int flags)
{
	struct sigaction sa = {.sa_handler = give_up, .sa_flags = flags};
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
}

static void speak_at(int fd, void *arg)
{
	struct signal_pipe *go = arg;
	int error;
	signal_wait(*go);
	send_pattern(fd, 0, 100);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
}

static void amid_a_receive(bool parent_keeps_it)
{
	struct signal_pipe go = signal_pipe();
	pid_t peer, pid;
	int fd = peer_start(speak_at, &go, &peer);
	on_signal(SA_RESTART);
	pid = fork();
	if (pid == 0) {
		say_as("child");
		recv_pattern(fd, 0, 100);
		_exit(0);
	}
	if (!parent_keeps_it)
		close(fd);
	wait_asleep(pid, pid);
	kill(pid, SIGUSR1);
	wait_asleep(pid, pid);
	signal_send(go);
	say("child %d", child_status(pid));
	if (parent_keeps_it)
		close(fd);
	say("peer %d", child_status(peer));
}

CASE(rights_amid_a_receive, DIRECT)
{
	amid_a_receive(false);
}

CASE(rights_amid_a_receive_of_two, DIRECT)
{
	amid_a_receive(true);
}

static void amid_an_accept(uint16_t port, int listener)
{
	int fd;
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		fd = accept(listener, NULL, NULL);
		NEED(fd >= 0);
		warm_first(fd);
		say("served");
		_exit(0);
	}
	wait_asleep(pid, pid);
	kill(pid, SIGUSR1);
	wait_asleep(pid, pid);
	fd = connect_to(AF_INET, port);
	warm_second(fd);
	say("child %d", child_status(pid));
	close(fd);
}

CASE(rights_amid_an_accept, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	on_signal(SA_RESTART);
	for (int i = 0; i < 3; i++)
		amid_an_accept(port, listener);
	close(listener);
}

/* ---- what it does then ---- */

CASE(rights_then_events, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	pid_t pid = fork();
	if (pid == 0) {
		struct epoll_event ev = {.events = EPOLLIN};
		int epfd = epoll_create1(0), fd;
		say_as("child");
		NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &ev) == 0);
		by_setresuid();
		NEED(epoll_wait(epfd, &ev, 1, -1) == 1);
		fd = accept(listener, NULL, NULL);
		warm_first(fd);
		ev = (struct epoll_event){.events = EPOLLIN | EPOLLET};
		NEED(epoll_ctl(epfd, EPOLL_CTL_DEL, listener, NULL) == 0);
		NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
		for (int i = 0; i < 50; i++) {
			NEED(epoll_wait(epfd, &ev, 1, -1) == 1);
			recv_pattern(fd, 0, 100);
			send_pattern(fd, 0, 100);
		}
		_exit(0);
	}
	int fd = connect_to(AF_INET, port);
	close(listener);
	warm_second(fd);
	for (int i = 0; i < 50; i++) {
		send_pattern(fd, 0, 100);
		recv_pattern(fd, 0, 100);
	}
	close(fd);
	say("child %d", child_status(pid));
}

/* It forks, executes and passes on. */
static void goes_on(struct pair p, int channel)
{
	struct pair own = pair_warm_open();
	pid_t pid = fork();
	if (pid == 0) {
		say_as("grandchild");
		by_chroot();
		no_capabilities();
		echo_once(own);
		echo_once(p);
		_exit(0);
	}
	say("grandchild %d", child_status(pid));
	echo_once(own);
	send_fd(channel, own.c);
	send_fd(channel, own.s);
	send_fd(channel, p.c);
	send_fd(channel, p.s);
	if (dup2(p.s, 7) == 7 && dup2(p.c, 8) == 8)
		execl("/bin/sh", "sh", "-c", "echo hello >&7; head -n 1 <&8", NULL);
	_exit(9);
}

/* What it is told of it as another user is in no report of ours. */
CASE(rights_then_passed_on, ANYWAY)
{
	struct pair p = pair_open(), got;
	int channel[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		say_as("child");
		by_setresuid();
		goes_on(p, channel[1]);
	}
	for (int i = 0; i < 2; i++) {
		got.c = receive_fd(channel[0]);
		got.s = receive_fd(channel[0]);
		if (i == 0)
			echo_once(got);
		pair_close(got);
	}
	say("child %d", child_status(pid));
	echo_once(p);
	pair_close(p);
}

/* It begins with other rights than its parent's. */
CASE(rights_of_a_clone, DIRECT)
{
	struct pair own = pair_warm_open(), early = pair_open();
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_NEWNS, NULL, NULL, NULL, 0);
	if (pid == 0) {
		say_as("child");
		echo_once(own);
		echo_once(early);
		_exit(0);
	}
	if (pid < 0)
		skip("no new namespace is to be had");
	say("child %d", child_status(pid));
	echo_once(own);
	echo_once(early);
	pair_close(own);
	pair_close(early);
}

/* ---- with threads ---- */

static void sleep_in_it(void *arg)
{
	struct signal_pipe *end = arg;
	signal_wait(*end);
}

CASE(rights_with_threads, DIRECT)
{
	struct pair p = pair_warm_open();
	pid_t pid = fork();
	if (pid == 0) {
		struct signal_pipe end = signal_pipe();
		struct worker w;
		say_as("child");
		worker_start(&w, sleep_in_it, &end);
		say_result("setresuid", by_setresuid());
		echo_once(p);
		signal_send(end);
		worker_join(&w);
		_exit(0);
	}
	say("child %d", child_status(pid));
	echo_once(p);
	pair_close(p);
}

struct talker {
	struct pair p;
	int rounds;
	struct worker w;
};

static void talk(void *arg)
{
	struct talker *t = arg;
	for (int i = 0; i < t->rounds; i++)
		echo_once(t->p);
}

/* Two threads use connections of the process, and a third one makes and closes others. */
static void come_and_go(void *arg)
{
	struct talker *t = arg;
	for (int i = 0; i < t->rounds; i++) {
		struct pair p = pair_open();
		echo_once(p);
		pair_close(p);
	}
}

CASE(rights_amid_threads_at_work, DIRECT)
{
	struct pair parents = pair_warm_open();
	pid_t pid = fork();
	if (pid == 0) {
		struct talker t[3] = {{.p = pair_warm_open(), .rounds = 300},
				      {.p = pair_warm_open(), .rounds = 300},
				      {.rounds = 60}};
		say_as("child");
		for (int i = 0; i < 3; i++)
			worker_start(&t[i].w, i < 2 ? talk : come_and_go, &t[i]);
		say_result("setresuid", by_setresuid());
		echo_once(parents);
		pid = fork();
		if (pid == 0) {
			say_as("its child");
			echo_once(parents);
			echo_once(pair_open());
			_exit(0);
		}
		say("its child %d", child_status(pid));
		for (int i = 0; i < 3; i++)
			worker_join(&t[i].w);
		echo_once(t[0].p);
		echo_once(pair_open());
		_exit(0);
	}
	say("child %d", child_status(pid));
	echo_once(parents);
	pair_close(parents);
}

static void receive(void *arg)
{
	recv_pattern(*(int *)arg, 0, 100);
}

CASE(rights_amid_a_receive_of_a_thread, DIRECT)
{
	struct signal_pipe go = signal_pipe();
	pid_t peer, pid;
	int fd = peer_start(speak_at, &go, &peer);
	pid = fork();
	if (pid == 0) {
		struct worker w;
		say_as("child");
		worker_start(&w, receive, &fd);
		wait_asleep(getpid(), w.tid);
		by_setresuid();
		signal_send(go);
		worker_join(&w);
		_exit(0);
	}
	say("child %d", child_status(pid));
	close(fd);
	say("peer %d", child_status(peer));
}
