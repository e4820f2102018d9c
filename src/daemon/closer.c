/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that may take long to close, for what strangers have sent by them, are closed by a child that ends. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"

/*
 * Descriptors that lie unread in a socket are let go when the socket is closed. If one is the last of a TCP
 * socket that lingers, whoever closes it waits. A process that ends does not: the kernel closes such a
 * socket at once then. So viaductd has a child from time to time that holds all it holds, closes its own
 * descriptors of these sockets, and only then lets the child end. If a driver makes even that one wait,
 * nobody waits for the child.
 */
#define GUARD_US 1000

static int sockets[RELAY_CLOSER_SOCKETS];
static pid_t children[RELAY_CLOSER_CHILDREN]; /* 0: free */
static uint64_t begun_ms;		      /* when the last one was made */

void closer_guard(bool on)
{
	struct itimerval every = {{0, on ? GUARD_US : 0}, {0, on ? GUARD_US : 0}};

	setitimer(ITIMER_REAL, &every, NULL);
}

static _Noreturn void child(struct relay *r, const int gate[2])
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	listen_leave(r);
	close(gate[1]);
	while (read(gate[0], &byte, sizeof(byte)) < 0 && errno == EINTR)
		;
	_exit(0);
}

/* Those that have ended leave their places. */
static void bury(struct relay *r)
{
	for (int i = 0; r->closers > 0 && i < RELAY_CLOSER_CHILDREN; i++)
		if (children[i] && waitpid(children[i], NULL, WNOHANG) != 0) {
			children[i] = 0;
			r->closers--;
		}
}

/* The descriptor at whose end it ends; or -1. */
static int begin_child(struct relay *r)
{
	pid_t *place = children;
	int gate[2];

	while (place < children + RELAY_CLOSER_CHILDREN && *place)
		place++;
	if (place == children + RELAY_CLOSER_CHILDREN ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0)
		return -1;
	*place = fork();
	if (*place == 0)
		child(r, gate);
	close(gate[0]);
	if (*place > 0) {
		r->closers++;
		begun_ms = r->now_ms;
		return gate[1];
	}
	*place = 0;
	close(gate[1]);
	return -1;
}

static void close_all(struct relay *r)
{
	int gate = begin_child(r);

	if (gate < 0 && r->unclosed < RELAY_CLOSER_SOCKETS)
		return;
	/* Without a child each may cost a moment. */
	if (gate < 0)
		closer_guard(true);
	while (r->unclosed > 0)
		close(sockets[--r->unclosed]);
	if (gate < 0)
		closer_guard(false);
	else
		close(gate);
}

/* Whoever comes and goes costs a fork now and then, not one each time. */
void closer_tick(struct relay *r)
{
	bury(r);
	if (r->unclosed > 0 && r->now_ms - begun_ms >= RELAY_CLOSER_MS)
		close_all(r);
}

void closer_take(struct relay *r, int fd)
{
	/* Its process sees the end at once, behind what it has not read; and can send no more. */
	shutdown(fd, SHUT_RDWR);
	sockets[r->unclosed++] = fd;
	if (r->unclosed < RELAY_CLOSER_SOCKETS)
		return;
	bury(r);
	close_all(r);
}
