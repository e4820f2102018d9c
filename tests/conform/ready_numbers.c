/* SPDX-License-Identifier: Apache-2.0 */
/* Epoll knows a descriptor by its open file and its number: duplicates, closed and made again. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

/* Numbers that nothing else has. */
#define AT(i) (60 + (i))

static void ctl_show(const char *what, int ep, int op, int fd, uint64_t data)
{
	say_result(what, ep_ctl(ep, op, fd, EPOLLIN, data));
}

static void del(int ep, int fd)
{
	ctl_show("del", ep, EPOLL_CTL_DEL, fd, 0);
}

static void add(int ep, int fd, uint64_t data)
{
	ctl_show("add", ep, EPOLL_CTL_ADD, fd, data);
}

static void mod(int ep, int fd, uint64_t data)
{
	ctl_show("mod", ep, EPOLL_CTL_MOD, fd, data);
}

/* How a number comes: each way that there is. */
static void make(int how, int from, int to)
{
	if (how == 0)
		NEED(dup2(from, to) == to);
	else if (how == 1)
		NEED(dup3(from, to, O_CLOEXEC) == to);
	else if (how == 2)
		NEED(fcntl(from, F_DUPFD, to) == to);
	else
		NEED(fcntl(from, F_DUPFD_CLOEXEC, to) == to);
}

static void made_again(int how)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	make(how, p.s, AT(0));
	add(ep, AT(0), 1);
	close(AT(0));
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	ep_show(ep, 0);
	add(ep, AT(0), 2);
	mod(ep, AT(0), 2);
	del(ep, AT(0));
	make(how, p.s, AT(0));
	add(ep, AT(0), 2);
	mod(ep, AT(0), 3);
	ep_show(ep, 0);
	del(ep, AT(0));
	del(ep, AT(0));
	add(ep, AT(0), 4);
	ep_show(ep, 0);
	del(ep, AT(0));
	close(AT(0));
	make(how, p.s, AT(0));
	del(ep, AT(0));
	mod(ep, AT(0), 5);
	add(ep, AT(0), 5);
	ep_show(ep, 0);
	close(AT(0));
	close(ep);
	pair_close(p);
}

CASE(number_dup2, DIRECT)
{
	made_again(0);
}

CASE(number_dup3, DIRECT)
{
	made_again(1);
}

CASE(number_dupfd, DIRECT)
{
	made_again(2);
}

CASE(number_dupfd_cloexec, DIRECT)
{
	made_again(3);
}

/* The number goes to another connection, and comes back. */
CASE(number_of_another, DIRECT)
{
	struct pair one = pair_warm_open(), other = pair_warm_open();
	int ep = ep_open();

	send_all(one.c, "x", 1);
	wait_inq(one.s, 1);
	NEED(dup2(one.s, AT(0)) == AT(0));
	add(ep, AT(0), 1);
	ep_show(ep, 0);
	NEED(dup2(other.s, AT(0)) == AT(0));
	ep_show(ep, 0);
	del(ep, AT(0));
	mod(ep, AT(0), 2);
	add(ep, AT(0), 2);
	ep_show(ep, 0);
	send_all(other.c, "x", 1);
	wait_inq(other.s, 1);
	ep_show(ep, 0);
	NEED(dup2(one.s, AT(0)) == AT(0));
	ep_show(ep, 0);
	mod(ep, AT(0), 3);
	ep_show(ep, 0);
	del(ep, AT(0));
	ep_show(ep, 0);
	del(ep, AT(0));
	NEED(dup2(other.s, AT(0)) == AT(0));
	del(ep, AT(0));
	ep_show(ep, 0);
	close(AT(0));
	close(ep);
	pair_close(one);
	pair_close(other);
}

/* A registration that is deleted, and whose number moves before it is added again. */
CASE(number_deleted_meanwhile, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	NEED(dup2(p.s, AT(0)) == AT(0));
	NEED(dup2(p.s, AT(1)) == AT(1));
	add(ep, AT(0), 1);
	close(AT(0));
	NEED(dup2(p.s, AT(0)) == AT(0));
	del(ep, AT(0));
	close(AT(1));
	add(ep, AT(0), 2);
	send_all(p.c, "x", 1);
	wait_inq(p.s, 1);
	ep_show(ep, 0);
	ep_show(ep, 0);
	close(p.s);
	ep_show(ep, 0);
	close(AT(0));
	ep_show(ep, 0);
	close(p.c);
	close(ep);
}

/* One connection by several numbers, of which some are closed. */
CASE(number_each_tells, DIRECT)
{
	struct pair p = pair_warm_open();
	int ep = ep_open();

	for (int i = 0; i < 4; i++) {
		NEED(dup2(p.s, AT(i)) == AT(i));
		NEED(ep_ctl(ep, EPOLL_CTL_ADD, AT(i), EPOLLIN | (i & 1 ? EPOLLET : 0),
			    (uint64_t)i) == 0);
	}
	ep_show(ep, 0);
	for (int i = 0; i < 4; i++) {
		send_all(p.c, "x", 1);
		wait_inq(p.s, i + 1);
		ep_show(ep, 0);
		close(AT(i));
		ep_show(ep, 0);
		if (i & 1)
			NEED(dup2(p.s, AT(i - 1)) == AT(i - 1));
		for (int k = 0; k < 4; k++)
			mod(ep, AT(k), (uint64_t)(10 * i + k));
	}
	ep_show(ep, 0);
	close(p.s);
	ep_show(ep, 0);
	close(AT(0));
	ep_show(ep, 0);
	close(AT(2));
	ep_show(ep, 0);
	close(p.c);
	close(ep);
}

/* ---- a registration of a socket that lives on elsewhere is the kernel's, and told each time ---- */

static void told_on(bool by_message)
{
	struct pair kept = pair_open(), p = pair_warm_open();
	int ep = ep_open(), channel[2], got = -1;
	pid_t child = -1;

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	ep_add(ep, kept.s, EPOLLOUT, 1);
	if (by_message) {
		send_fd(channel[0], kept.s);
		got = receive_fd(channel[1]);
	} else {
		child = fork();
		NEED(child >= 0);
		if (child == 0) {
			char byte;

			close(channel[0]);
			_exit(read(channel[1], &byte, 1) == 0 ? 0 : 1);
		}
	}
	close(kept.s);
	close(channel[1]);
	ep_add(ep, p.s, EPOLLOUT, 2);
	for (int i = 0; i < 10; i++)
		ep_show(ep, 0);
	close(channel[0]);
	if (child > 0)
		say("child: %d", child_status(child));
	if (got >= 0)
		close(got);
	close(kept.c);
	close(ep);
	pair_close(p);
}

CASE(numbers_live_on, DIRECT)
{
	told_on(true);
	told_on(false);
}

struct number_wait {
	int ep, n;
	uint64_t data;
};

static void wait_by_number(void *arg)
{
	struct number_wait *w = arg;
	struct epoll_event ev[4] = {{0}};

	w->n = epoll_wait(w->ep, ev, 4, -1);
	w->data = ev[0].data.u64;
}

/* A wait is the instance's, whatever its number is by then. */
static void closed_amid_wait(bool known)
{
	struct pair p = pair_warm_open(), first = pair_warm_open();
	struct number_wait asked = {.ep = ep_open()};
	int ends[2], other;
	struct worker w;

	if (known)
		ep_add(asked.ep, first.s, EPOLLIN, 3);
	NEED(dup2(asked.ep, AT(0)) == AT(0));
	worker_start(&w, wait_by_number, &asked);
	wait_asleep(getpid(), w.tid);
	other = ep_open();
	NEED(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	ep_add(other, ends[0], EPOLLIN | EPOLLET, 1);
	NEED(dup2(other, asked.ep) == asked.ep);
	ep_add(AT(0), p.s, EPOLLIN, 2);
	send_all(p.c, "x", 1);
	worker_join(&w);
	say("told %d: %d", asked.n, (int)asked.data);
	ep_show(other, 0);
	close(other);
	close(asked.ep);
	close(AT(0));
	close(ends[0]);
	close(ends[1]);
	pair_close(first);
	pair_close(p);
}

CASE(number_closed_amid_wait, DIRECT)
{
	closed_amid_wait(false);
}

CASE(number_closed_amid_wait_known, DIRECT)
{
	closed_amid_wait(true);
}
