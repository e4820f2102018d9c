/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: only one end has ever sent. It has shut down, and waits for the other,
 * which ends with bytes unread. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

#define PIECE  100
#define PIECES 100
/* In the window of a fresh connection on 6.1. */
#define UNREAD 30000

static void reader(int fd, void *arg)
{
	recv_pattern(fd, 0, PIECE * PIECES);
	signal_send(*(struct signal_pipe *)arg);
	pause();
}

static void sleep_in_recv(int fd)
{
	char byte;

	say_result("recv", recv(fd, &byte, 1, 0));
}

static void sleep_in_poll(int fd)
{
	struct pollfd p = {fd, POLLIN, 0};

	NEED(poll(&p, 1, -1) == 1);
	sleep_in_recv(fd);
}

struct killer {
	pid_t self, reader;
};

static void *kill_when_asleep(void *arg)
{
	const struct killer *k = arg;

	wait_asleep(k->self, k->self);
	NEED(kill(k->reader, SIGKILL) == 0);
	return NULL;
}

static void ends_unread(void (*wait)(int fd))
{
	struct signal_pipe read_all = signal_pipe();
	struct killer k = {.self = getpid()};
	pthread_t t;
	int fd = peer_start_cold(reader, &read_all, &k.reader);

	for (int i = 0; i < PIECES; i++) {
		send_pattern(fd, (uint64_t)i * PIECE, PIECE);
		usleep(200);
	}
	signal_wait(read_all);
	send_pattern(fd, PIECE * PIECES, UNREAD);
	NEED(shutdown(fd, SHUT_WR) == 0);
	NEED(pthread_create(&t, NULL, kill_when_asleep, &k) == 0);
	wait(fd);
	NEED(pthread_join(t, NULL) == 0);
	NEED(child_status(k.reader) == 128 + SIGKILL);
}

CASE(one_way_killed_recv, READY)
{
	ends_unread(sleep_in_recv);
}

CASE(one_way_killed_poll, READY)
{
	ends_unread(sleep_in_poll);
}
