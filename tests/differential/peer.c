/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that have the other ends, and do what they are told, one thing at a time. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

enum request { PERFORM, CONNECT, LISTEN, ACCEPT, TAKE, LEAVE };

struct message {
	enum request what;
	unsigned number;
	uint16_t port;
	int end;
};

static struct {
	pid_t pid;
	int channel;
} peers[PEERS];
static pid_t first_pid;

pid_t peer_pid(int peer)
{
	return peer < 0 ? first_pid : peers[peer].pid;
}

static void send_message(int channel, const struct message *m)
{
	ssize_t n;
	do
		n = send(channel, m, sizeof *m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	NEED(n == sizeof *m);
}

/* Returns the descriptor that came with it, or -1. */
static int receive_message(int channel, struct message *m)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} c = {0};
	struct iovec v = {m, sizeof *m};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	int fd = -1;
	ssize_t n;
	do {
		h.msg_control = &c;
		h.msg_controllen = sizeof c;
		n = recvmsg(channel, &h, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		_exit(0);
	NEED(n == sizeof *m);
	if (h.msg_controllen >= CMSG_LEN(sizeof fd) && c.head.cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(&c.head), sizeof fd);
	return fd;
}

_Noreturn static void serve(int channel)
{
	static int listener = -1;
	for (;;) {
		struct message m, answer = {0};
		int fd = receive_message(channel, &m);
		switch (m.what) {
		case PERFORM:
			perform(m.number, 0);
			break;
		case CONNECT:
			fd = connect_here(m.port);
			end_prepare(fd);
			descriptor_add(fd, SOCKET, m.end);
			break;
		case LISTEN:
			listener = listen_here(&answer.port);
			break;
		case ACCEPT:
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			NEED(fd >= 0 && close(listener) == 0);
			end_prepare(fd);
			descriptor_add(fd, SOCKET, m.end);
			break;
		case TAKE:
			tell_begin(m.number, "take");
			tell("%d", fd);
			if (fd >= 0)
				descriptor_add(fd, SOCKET, m.end);
			break;
		case LEAVE:
			send_message(channel, &answer);
			exit(0);
		}
		settle_publish();
		send_message(channel, &answer);
	}
}

void peers_start(void)
{
	static const char *const names[PEERS] = {" b", " c"};
	first_pid = getpid();
	for (int i = 0; i < PEERS; i++) {
		int channel[2];
		NEED(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) == 0);
		channel[0] = out_of_the_way(channel[0]);
		channel[1] = out_of_the_way(channel[1]);
		peers[i].channel = channel[0];
		peers[i].pid = fork();
		NEED(peers[i].pid >= 0);
		if (peers[i].pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (int k = 0; k <= i; k++)
				close(peers[k].channel);
			tell_who(names[i]);
			serve(channel[1]);
		}
		NEED(close(channel[1]) == 0);
	}
}

static struct message ask(int peer, struct message m)
{
	struct message answer;
	send_message(peers[peer].channel, &m);
	receive_message(peers[peer].channel, &answer);
	return answer;
}

void peers_end(void)
{
	for (int i = 0; i < PEERS; i++) {
		int status = -1;
		ask(i, (struct message){.what = LEAVE});
		while (waitpid(peers[i].pid, &status, 0) < 0 && errno == EINTR)
			;
		tell("peer %d ends: %#x", i, (unsigned)status);
	}
}

void peer_perform(int peer, unsigned number)
{
	ask(peer, (struct message){.what = PERFORM, .number = number});
}

void peer_connect(int peer, struct dice *d)
{
	static int listener = -1;
	static uint16_t port;
	int end = shared->ends, fd;
	if (end + 2 > MOST_ENDS || descriptor_count > MOST_DESCRIPTORS - 12) {
		tell("enough");
		return;
	}
	int held = 0;
	for (int i = 0; i < end; i++)
		held += shared->end[i].holders;
	if (held > 2 * MOST_DESCRIPTORS / 3) {
		tell("enough in all");
		return;
	}
	shared->ends += 2;
	if (once_in(d, 2)) {
		if (listener < 0)
			listener = listen_here(&port);
		ask(peer,
		    (struct message){.what = CONNECT, .port = port, .end = end + 1});
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		NEED(fd >= 0);
	} else {
		struct message answer = ask(peer, (struct message){.what = LISTEN});
		fd = connect_here(answer.port);
		ask(peer, (struct message){.what = ACCEPT, .end = end + 1});
	}
	end_prepare(fd);
	descriptor_add(fd, SOCKET, end);
	tell("to peer %d = %d", peer, fd);
}

ssize_t peer_give(int peer, const struct descriptor *s)
{
	struct message m = {.what = TAKE, .number = perform_number, .end = s->end},
		       answer;
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} c = {0};
	struct iovec v = {&m, sizeof m};
	struct msghdr h = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &c,
			   .msg_controllen = sizeof c};
	c.head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&c.head), &s->fd, sizeof s->fd);
	ssize_t n = sendmsg(peers[peer].channel, &h, MSG_NOSIGNAL);
	if (n == sizeof m)
		receive_message(peers[peer].channel, &answer);
	return n;
}
