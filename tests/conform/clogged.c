/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the peer is killed while its FIN cannot come, behind bytes that nobody reads. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/call.h"
#include "conform/cases.h"

#define TURNS 64

struct doomed {
	struct signal_pipe read, go;
};

/* Has never sent before: its end has not opened that direction, so TCP has it all. */
static void clog_and_die(int fd, void *arg)
{
	static char junk[65536];
	struct doomed *d = arg;
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		recv_pattern(fd, turn * 1000, 1000);
		signal_send(d->read);
	}
	while (send(fd, junk, sizeof junk, MSG_DONTWAIT) > 0)
		;
	NEED(errno == EAGAIN);
	signal_send(d->read);
	signal_wait(d->go);
	raise(SIGKILL);
}

/* The other end reads no more, and has filled what TCP holds for us. */
static int clogged_start(struct doomed *d, pid_t *pid)
{
	*d = (struct doomed){signal_pipe(), signal_pipe()};
	int fd = peer_start_cold(clog_and_die, d, pid);
	for (uint64_t turn = 0; turn < TURNS; turn++) {
		send_pattern(fd, turn * 1000, 1000);
		signal_wait(d->read); /* so that what can be upgraded is */
	}
	signal_wait(d->read);
	return fd;
}

static int clogged_until_killed(void)
{
	struct doomed d;
	pid_t pid;
	int fd = clogged_start(&d, &pid);
	send_all(fd, "never read", 10);
	signal_send(d.go);
	say("status %d", child_status(pid));
	return fd;
}

static void say_sends(int fd)
{
	for (int i = 0; i < 2; i++)
		say_result("send", send(fd, "x", 1, MSG_NOSIGNAL));
}

CASE(clogged_death_polled, DIRECT)
{
	struct pair p = pair_warm_open(); /* shows that there is a direct path */
	int fd = clogged_until_killed();
	struct pollfd pfd = {fd, 0, 0};
	NEED(poll(&pfd, 1, -1) == 1);
	say("events: %s", poll_names(pfd.revents));
	pfd.events = POLLOUT | POLLRDHUP;
	NEED(poll(&pfd, 1, 0) == 1);
	say("events: %s", poll_names(pfd.revents));
	say_sends(fd);
	close(fd);
	pair_close(p);
}

CASE(clogged_death_epolled, DIRECT)
{
	struct pair p = pair_warm_open();
	int fd = clogged_until_killed(), ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLRDHUP};
	NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	NEED(epoll_wait(ep, &ev, 1, -1) == 1);
	say("events: %s", poll_names((int)ev.events));
	say_sends(fd);
	close(fd);
	close(ep);
	pair_close(p);
}

CASE(clogged_death_while_sending, DIRECT)
{
	struct pair p = pair_warm_open();
	struct doomed d;
	struct worker t;
	pid_t pid;
	struct call c = {clogged_start(&d, &pid), BULK_ROOM, MSG_NOSIGNAL, 0, 0};
	call_start(&t, call_send, &c);
	signal_send(d.go);
	say("status %d", child_status(pid));
	worker_join(&t);
	say("a part was sent: %d", c.result > 0);
	say_sends(c.fd);
	close(c.fd);
	pair_close(p);
}
