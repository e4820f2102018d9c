/* SPDX-License-Identifier: Apache-2.0 */
/* A signal that a call's own mask blocks does not end it, whatever wakes it meanwhile. */
#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"
#include "conform/ready_epoll.h"

enum call { EPOLL, PPOLL, PSELECT };

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	(void)sig;
	handled = 1;
}

struct masked {
	struct pair p, other;
	int ep, channel[2];
	pid_t tid;
	enum call call;
};

/* The connection goes back to TCP for this, and its ends with it. */
static void pass(const struct masked *m, int fd)
{
	send_fd(m->channel[0], fd);
	close(receive_fd(m->channel[1]));
}

static void disturbs(void *arg)
{
	const struct masked *m = arg;

	wait_asleep(getpid(), m->tid);
	NEED(syscall(SYS_tgkill, getpid(), m->tid, SIGUSR1) == 0);
	usleep(5000);
	if (m->call == EPOLL)
		ep_add(m->ep, m->other.c, EPOLLIN, 5);
	else
		pass(m, m->call == PPOLL ? m->p.c : m->p.s);
	usleep(10000);
	send_pattern(m->p.s, 0, 1);
}

static int wait_masked(const struct masked *m, const sigset_t *mask)
{
	struct pollfd p = {.fd = m->p.c, .events = POLLIN};
	struct epoll_event ev;
	fd_set set;

	if (m->call == EPOLL)
		return epoll_pwait(m->ep, &ev, 1, -1, mask);
	if (m->call == PPOLL)
		return ppoll(&p, 1, NULL, mask);
	FD_ZERO(&set);
	FD_SET(m->p.c, &set);
	return pselect(m->p.c + 1, &set, NULL, NULL, NULL, mask);
}

static void masked(enum call call)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct masked m = {.call = call, .ep = ep_open(), .tid = gettid()};
	struct worker w;
	sigset_t mask;

	handled = 0;
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, m.channel) == 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	m.p = pair_warm_open();
	m.other = pair_warm_open();
	ep_add(m.ep, m.p.c, EPOLLIN, 1);
	worker_start(&w, disturbs, &m);
	say_result("wait", wait_masked(&m, &mask));
	say("handled after it: %d", handled);
	worker_join(&w);
	recv_pattern(m.p.c, 0, 1);
	close(m.ep);
	close(m.channel[0]);
	close(m.channel[1]);
	pair_close(m.p);
	pair_close(m.other);
}

CASE(masked_epoll_pwait, DIRECT)
{
	masked(EPOLL);
}

CASE(masked_ppoll, DIRECT)
{
	masked(PPOLL);
}

CASE(masked_pselect, DIRECT)
{
	masked(PSELECT);
}
