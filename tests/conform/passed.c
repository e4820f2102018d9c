/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what another holder of a passed connection sets holds for this one, whose peer is silent. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

#define SHORT_US 50000

static void set_blocking(int fd, bool blocking)
{
	NEED(fcntl(fd, F_SETFL, blocking ? 0 : O_NONBLOCK) == 0);
}

static void set_timeout(int fd, int us)
{
	const struct timeval tv = {0, us};

	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
}

/* Makes no call on the connection before it is told to. */
static void still(int fd, void *arg)
{
	int error;

	signal_wait(*(struct signal_pipe *)arg);
	send_all(fd, "x", 1);
	say("more %lu", (unsigned long)recv_to_end(fd, &error));
}

/* Three steps, each when it is told, and then says so. */
static void holder(int channel, struct signal_pipe step, struct signal_pipe done)
{
	int fd = receive_fd(channel);

	say_as("child");
	signal_wait(step);
	set_blocking(fd, false);
	signal_send(done);
	signal_wait(step);
	set_timeout(fd, SHORT_US);
	signal_send(done);
	signal_wait(step);
	set_blocking(fd, true);
	set_timeout(fd, 0);
	signal_send(done);
	_exit(0);
}

CASE(passed_settings, DIRECT)
{
	struct signal_pipe go = signal_pipe(), step = signal_pipe(), done = signal_pipe();
	pid_t child, peer, later;
	int channel[2], fd;
	char byte = 0;

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		holder(channel[1], step, done);
	fd = peer_start(still, &go, &peer);
	send_fd(channel[0], fd);
	signal_send(step);
	signal_wait(done);
	say_result("not blocking", recv(fd, &byte, 1, MSG_PEEK));
	set_blocking(fd, true);
	signal_send(step);
	signal_wait(done);
	say_result("for a short time", recv(fd, &byte, 1, 0));
	set_blocking(fd, false);
	signal_send(step);
	signal_wait(done);
	later = fork();
	NEED(later >= 0);
	if (later == 0) {
		usleep(2 * SHORT_US);
		signal_send(go);
		_exit(0);
	}
	say_result("blocking", recv(fd, &byte, 1, 0));
	say("%c", byte);
	close(fd);
	say("status %d", child_status(child));
	say("status %d", child_status(later));
	say("status %d", child_status(peer));
}
