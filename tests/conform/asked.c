/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes lie unread while the connection is asked back to TCP, and an end shuts down, or its process ends. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

enum { UNREAD = 101, PART = 40 };

struct asked {
	struct signal_pipe done, go;
	bool before, after; /* it asks before it shuts down, or after */
	bool sends, reads;
	bool duplicates; /* asks by a duplicate with the number 0 */
};

/* All of Viaduct's go, and what is unread is asked for. */
static void ask(int fd)
{
	struct rlimit was;
	NEED(getrlimit(RLIMIT_NOFILE, &was) == 0);
	set_limit(0);
	say_result("dup", dup(fd));
	NEED(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

/* ---- shut down both ways: what lies unread can still be read, but whatever is sent is answered by a reset ---- */

static void ask_as(const struct asked *a, int fd)
{
	if (a->duplicates)
		say_result("dup2", dup2(fd, 0));
	else
		ask(fd);
}

static void shut_both(int fd, void *arg)
{
	struct asked *a = arg;
	char buf[200];
	wait_inq(fd, UNREAD);
	if (a->before)
		ask_as(a, fd);
	NEED(shutdown(fd, SHUT_RDWR) == 0);
	if (a->after)
		ask_as(a, fd);
	signal_send(a->done);
	signal_wait(a->go);
	say_result("receive", recv(fd, buf, sizeof buf, 0));
	say_result("end", recv(fd, buf, sizeof buf, 0));
}

static void both_ways(bool before, bool after, bool duplicates)
{
	struct asked a = {.before = before, .after = after, .duplicates = duplicates};
	pid_t pid;
	char byte;
	a.done = signal_pipe();
	a.go = signal_pipe();
	int fd = peer_start(shut_both, &a, &pid);
	send_pattern(fd, 0, UNREAD);
	signal_wait(a.done);
	say("poll: %s", poll_names(wait_events(fd, POLLIN | POLLRDHUP)));
	say_result("receive", recv(fd, &byte, 1, 0));
	say("poll: %s", poll_names(wait_events(fd, POLLIN | POLLRDHUP)));
	signal_send(a.go);
	say("peer: %d", child_status(pid));
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	NEED(close(fd) == 0);
}

CASE(asked_shut_both, DIRECT)
{
	for (int i = 0; i < 2; i++) {
		both_ways(false, true, i);
		both_ways(true, false, i);
		both_ways(true, true, i);
	}
}

/* ---- the other end has asked, and a process ends with bytes unread ---- */

static void ends(int fd, void *arg)
{
	struct asked *a = arg;
	char buf[PART];
	wait_inq(fd, UNREAD);
	signal_wait(a->go);
	if (a->reads)
		NEED(recv(fd, buf, sizeof buf, 0) == sizeof buf);
	if (a->sends)
		send_pattern(fd, 0, 10);
	if (a->after)
		ask(fd);
}

static void end_of_asked(struct asked a)
{
	pid_t pid;
	char buf[200];
	a.done = signal_pipe();
	a.go = signal_pipe();
	int fd = peer_start(ends, &a, &pid);
	send_pattern(fd, 0, UNREAD);
	if (a.before)
		ask(fd);
	signal_send(a.go);
	say("peer: %d", child_status(pid));
	say("here %d, there %d, sends %d, reads %d", a.before, a.after, a.sends, a.reads);
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
	say_result("receive", recv(fd, buf, sizeof buf, MSG_DONTWAIT));
	say_result("and again", send(fd, "x", 1, MSG_NOSIGNAL));
	NEED(close(fd) == 0);
}

/* In a process of its own, in which nothing else has gone back to TCP for want of numbers. */
CASE(asked_then_ended, DIRECT)
{
	for (unsigned i = 0; i < 16; i++) {
		pid_t pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			end_of_asked((struct asked){.before = i & 1,
						    .after = i & 2,
						    .sends = i & 4,
						    .reads = i & 8});
			exit(0);
		}
		say("ended: %d", child_status(pid));
	}
}

/* ---- behind a filter of its own: told of in an array that is full ---- */

static void put_on(void)
{
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, all};
	NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	NEED(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void filtered(int fd, void *arg)
{
	struct epoll_event ev = {0};
	char buf[200];
	int ep = ep_open();
	(void)arg;
	ep_add(ep, fd, EPOLLIN | EPOLLOUT, 7);
	wait_inq(fd, UNREAD);
	put_on();
	say_result("wait", epoll_wait(ep, &ev, 1, 0));
	say("%s of %d", poll_names((int)ev.events), (int)ev.data.u64);
	say_result("receive", recv(fd, buf, sizeof buf, 0));
	say_result("wait", epoll_wait(ep, &ev, 1, 0));
	say("%s of %d", poll_names((int)ev.events), (int)ev.data.u64);
}

static void leaves_unread_to(void (*peer)(int fd, void *arg))
{
	pid_t pid;
	int fd = peer_start(peer, NULL, &pid);
	send_pattern(fd, 0, UNREAD);
	say("peer: %d", child_status(pid));
	NEED(close(fd) == 0);
}

CASE(asked_filtered_epoll, DIRECT)
{
	leaves_unread_to(filtered);
}

/* ---- and by an instance that is made there, or is changed ---- */

static void watches_since(int fd, void *arg)
{
	char buf[200];
	int before = ep_open(), other = ep_open(), ep;
	(void)arg;
	ep_add(before, fd, EPOLLOUT, 1);
	ep_add(other, fd, EPOLLIN, 2);
	wait_inq(fd, UNREAD);
	put_on();
	ep_mod(before, fd, EPOLLIN, 3);
	ep_show(before, 0);
	ep_mod(other, fd, EPOLLOUT, 4);
	ep_show(other, 0);
	NEED(ep_ctl(before, EPOLL_CTL_DEL, fd, 0, 0) == 0);
	ep_show(before, 0);
	close(before);
	ep = ep_open();
	ep_show(ep, 0);
	ep_add(ep, fd, EPOLLIN | EPOLLOUT | EPOLLET, 5);
	ep_show(ep, 0);
	ep_show(ep, 0);
	ep_mod(ep, fd, EPOLLIN | EPOLLONESHOT, 6);
	ep_show(ep, SOON);
	ep_show(ep, 0);
	ep_mod(ep, fd, EPOLLIN, 7);
	ep_show(ep, SOON);
	ep_show(ep, SOON);
	say_result("receive", recv(fd, buf, sizeof buf, 0));
	ep_show(ep, 0);
}

CASE(asked_filtered_since, DIRECT)
{
	leaves_unread_to(watches_since);
}

/* What a listener of MPTCP's accepts from a plain peer is TCP, and has none: 0 is as 1. */
CASE(lowat_of_mptcp, DIRECT)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), bytes = -1;
	struct pair p;
	if (listener < 0)
		skip("the kernel has no MPTCP");
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	NEED(bind(listener, (struct sockaddr *)&at, len) == 0 &&
	     listen(listener, 1) == 0 &&
	     getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	p.c = connect_to(AF_INET, ntohs(at.sin_port));
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	pair_warm(p);
	len = sizeof bytes;
	say_result("asked", getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &bytes, &len));
	say("%d", bytes);
	close(listener);
	pair_close(p);
}
