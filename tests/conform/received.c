/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: an accepted connection that a master passes on to a worker, which has it alone, or not. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/cases.h"

#define BYTES 100000

/* The worker's end of both channels: connections come by one, and words go back by the other. */
struct worker_process {
	pid_t pid;
	int channel;
	struct signal_pipe has_it, go_on;
};

static void client(int fd, void *arg)
{
	(void)arg;
	warm_second(fd);
	recv_pattern(fd, 0, BYTES);
	send_pattern(fd, 0, BYTES);
}

static void serve(int fd)
{
	warm_first(fd);
	send_pattern(fd, 0, BYTES);
	recv_pattern(fd, 0, BYTES);
	close(fd);
}

static struct worker_process worker_fork(void (*work)(struct worker_process *w))
{
	struct worker_process w = {.has_it = signal_pipe(), .go_on = signal_pipe()};
	int channel[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
	w.pid = fork();
	NEED(w.pid >= 0);
	if (w.pid == 0) {
		close(channel[0]);
		w.channel = channel[1];
		work(&w);
		_exit(0);
	}
	close(channel[1]);
	w.channel = channel[0];
	return w;
}

static void end(struct worker_process *w, pid_t peer)
{
	say("worker %d, client %d", child_status(w->pid), child_status(peer));
	close(w->channel);
}

/* ---- it has it alone ---- */

static void worker_plain(struct worker_process *w)
{
	int fd = receive_fd(w->channel);

	signal_send(w->has_it);
	serve(fd);
}

CASE(received_alone, STAYS)
{
	struct worker_process w = worker_fork(worker_plain);
	pid_t peer;
	int fd = peer_start_cold(client, NULL, &peer);

	send_fd(w.channel, fd);
	signal_wait(w.has_it);
	close(fd);
	end(&w, peer);
}

static void worker_late(struct worker_process *w)
{
	signal_wait(w->go_on);
	serve(receive_fd(w->channel));
}

CASE(received_closed_before, STAYS)
{
	struct worker_process w = worker_fork(worker_late);
	pid_t peer;
	int fd = peer_start_cold(client, NULL, &peer);

	send_fd(w.channel, fd);
	close(fd);
	signal_send(w.go_on);
	end(&w, peer);
}

static void worker_of_many(struct worker_process *w)
{
	for (int i = 0; i < 20; i++)
		serve(receive_fd(w->channel));
}

CASE(received_many, STAYS)
{
	struct worker_process w = worker_fork(worker_of_many);
	int failed = 0;

	for (int i = 0; i < 20; i++) {
		pid_t peer;
		int fd = peer_start_cold(client, NULL, &peer);

		send_fd(w.channel, fd);
		close(fd);
		failed += child_status(peer) != 0;
	}
	say("worker %d, failed %d", child_status(w.pid), failed);
}

/* ---- somebody else has it, too ---- */

/* Both read in turn, each what the other has left. */
static void client_of_two(int fd, void *arg)
{
	(void)arg;
	for (int i = 0; i < 200; i++) {
		char byte;

		send_all(fd, "x", 1);
		recv_all(fd, &byte, 1);
	}
}

static void echo_some(int fd, int count)
{
	for (int i = 0; i < count; i++) {
		char byte;

		recv_all(fd, &byte, 1);
		send_all(fd, &byte, 1);
	}
}

static void worker_in_turn(struct worker_process *w)
{
	int fd = receive_fd(w->channel);

	echo_some(fd, 100);
	signal_send(w->has_it);
	signal_wait(w->go_on);
	close(fd);
}

CASE(received_kept, ON_TCP)
{
	struct worker_process w = worker_fork(worker_in_turn);
	pid_t peer;
	int fd = peer_start_cold(client_of_two, NULL, &peer);

	send_fd(w.channel, fd);
	signal_wait(w.has_it);
	echo_some(fd, 100);
	close(fd);
	signal_send(w.go_on);
	end(&w, peer);
}

CASE(received_kept_by_dup, ON_TCP)
{
	struct worker_process w = worker_fork(worker_in_turn);
	pid_t peer;
	int fd = peer_start_cold(client_of_two, NULL, &peer), copy;

	send_fd(w.channel, fd);
	copy = dup(fd);
	close(fd);
	signal_wait(w.has_it);
	echo_some(copy, 100);
	close(copy);
	signal_send(w.go_on);
	end(&w, peer);
}

CASE(received_kept_by_child, ON_TCP)
{
	struct worker_process w = worker_fork(worker_in_turn);
	pid_t peer, child;
	int fd = peer_start_cold(client_of_two, NULL, &peer);

	send_fd(w.channel, fd);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		signal_wait(w.has_it);
		echo_some(fd, 100);
		signal_send(w.go_on);
		_exit(0);
	}
	close(fd);
	end(&w, peer);
	say("child %d", child_status(child));
}

CASE(received_twice, ON_TCP)
{
	struct worker_process w = worker_fork(worker_in_turn),
			      v = worker_fork(worker_in_turn);
	pid_t peer;
	int fd = peer_start_cold(client_of_two, NULL, &peer);

	send_fd(w.channel, fd);
	send_fd(v.channel, fd);
	close(fd);
	signal_send(w.go_on);
	signal_send(v.go_on);
	say("worker %d", child_status(v.pid));
	end(&w, peer);
}

static void worker_peeks(struct worker_process *w)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	int seen, fd;

	NEED(recvmsg(w->channel, &msg, MSG_PEEK) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&seen, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof seen);
	fd = receive_fd(w->channel);
	signal_send(w->has_it);
	echo_some(fd, 100);
	echo_some(seen, 100);
}

CASE(received_and_peeked, ON_TCP)
{
	struct worker_process w = worker_fork(worker_peeks);
	pid_t peer;
	int fd = peer_start_cold(client_of_two, NULL, &peer);

	send_fd(w.channel, fd);
	signal_wait(w.has_it);
	close(fd);
	end(&w, peer);
}

/* To the next one, by the channel of the master, who has closed it. */
static int back;

static void worker_hands_on(struct worker_process *w)
{
	int fd = receive_fd(w->channel);

	signal_wait(w->go_on);
	echo_some(fd, 100);
	send_fd(back, fd);
	close(fd);
}

static void worker_second(struct worker_process *w)
{
	echo_some(receive_fd(w->channel), 100);
}

CASE(received_and_passed_on, READY)
{
	struct worker_process second = worker_fork(worker_second), w;
	pid_t peer;
	int fd;

	back = second.channel;
	w = worker_fork(worker_hands_on);
	fd = peer_start_cold(client_of_two, NULL, &peer);
	send_fd(w.channel, fd);
	close(fd);
	signal_send(w.go_on);
	say("second %d", child_status(second.pid));
	end(&w, peer);
}
