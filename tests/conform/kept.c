/* SPDX-License-Identifier: Apache-2.0 */
/* An error that waits on a connection is told by the next call that asks for one, also by a send of no bytes. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

/* ---- sends of no bytes ---- */

enum empty {
	WRITE,
	SEND,
	SENDTO,
	SENDMSG,
	SENDMSG_PIECE,
	SENDMMSG,
	/* These do not look at the connection. */
	WRITEV,
	READ,
	SENDMMSG_NONE,
	EMPTIES
};

static ssize_t empty_call(enum empty call, int fd)
{
	struct iovec piece = {bulk_room(), 0};
	struct mmsghdr none = {0};
	struct msghdr of_piece = {.msg_iov = &piece, .msg_iovlen = 1};
	switch (call) {
	case WRITE:
		return write(fd, "", 0);
	case SEND:
		return send(fd, "", 0, 0);
	case SENDTO:
		return sendto(fd, "", 0, MSG_DONTWAIT, NULL, 0);
	case SENDMSG:
		return sendmsg(fd, &none.msg_hdr, 0);
	case SENDMSG_PIECE:
		return sendmsg(fd, &of_piece, 0);
	case SENDMMSG:
		return sendmmsg(fd, &none, 1, 0);
	case WRITEV:
		return writev(fd, &piece, 1);
	case READ:
		return read(fd, bulk_room(), 0);
	default:
		return sendmmsg(fd, &none, 0, 0);
	}
}

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
	(void)signal;
	pipes = pipes + 1;
}

static void say_pipes(void)
{
	say("%d signals", (int)pipes);
	pipes = 0;
}

/* ---- of a peer that was killed with bytes unread ---- */

static void unread_peer(int fd, void *arg)
{
	wait_inq(fd, 6);
	signal_send(*(struct signal_pipe *)arg);
	for (;;)
		pause();
}

/* Without a look at its readiness, by which the error could become known. */
static void wait_gone(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof info;
	do
		NEED(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
	while (info.tcpi_state == TCP_ESTABLISHED);
}

static void killed(enum empty call, bool looked)
{
	struct signal_pipe there = signal_pipe();
	const int on = 1;
	pid_t pid;
	int fd = peer_start(unread_peer, &there, &pid), error = 0;
	socklen_t len = sizeof error;
	say("to %d, looked %d", call, looked);
	NEED(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	send_all(fd, "abcdef", 6);
	signal_wait(there);
	NEED(kill(pid, SIGKILL) == 0 && child_status(pid) == 128 + SIGKILL);
	wait_gone(fd);
	if (looked)
		wait_events(fd, POLLRDHUP);
	say_result("empty", empty_call(call, fd));
	say_result("once more", empty_call(call, fd));
	say_pipes();
	say_result("recv", recv(fd, bulk_room(), 4, MSG_DONTWAIT));
	NEED(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	say("SO_ERROR: %s", errno_name(error));
	NEED(close(fd) == 0 && close(there.fd[0]) == 0 && close(there.fd[1]) == 0);
}

CASE(kept_reset_told_to_nothing_sent, STAYS)
{
	NEED(signal(SIGPIPE, on_pipe) != SIG_ERR);
	for (int call = 0; call < EMPTIES; call++) {
		killed((enum empty)call, false);
		killed((enum empty)call, true);
	}
}

/* ---- of what a call has met that has sent something: nobody is told ---- */

enum giver { SENDFILE, SPLICE, GIVERS };

/* More than one send takes of a pipe, and more than there is room for. */
enum { PIPE_BYTES = 1 << 20, FEW_BYTES = 1 << 14 };

struct sends {
	enum giver giver;
	int fd, file, pipe;
	bool some;
};

/* The second piece, or what a large pipe holds besides, meets the error. */
static void send_some(void *arg)
{
	struct sends *s = arg;
	ssize_t n;
	if (s->giver == SENDFILE)
		n = sendfile(s->fd, s->file, NULL, BULK_ROOM);
	else
		n = splice(s->pipe, NULL, s->fd, NULL, PIPE_BYTES, 0);
	s->some = n > 0;
}

static void sends_open(struct sends *s)
{
	s->file = memfd_create("file", MFD_CLOEXEC);
	NEED(s->file >= 0 && ftruncate(s->file, BULK_ROOM) == 0);
	if (s->giver != SPLICE)
		return;
	const int few = FEW_BYTES;
	int ends[2];
	NEED(setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
	NEED(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES);
	NEED(write(ends[1], bulk_room(), PIPE_BYTES) == PIPE_BYTES);
	NEED(close(ends[1]) == 0);
	s->pipe = ends[0];
}

static void sends_close(struct sends *s)
{
	NEED(close(s->fd) == 0 && close(s->file) == 0);
	NEED(s->giver != SPLICE || close(s->pipe) == 0);
}

/* `urgent`: what follows went over TCP, while a part lies unread in shared memory. */
static void sleep_in(struct sends *s, struct worker *sender, bool urgent)
{
	say("by %d, urgent: %d", s->giver, urgent);
	send_all(s->fd, "abcd", 4);
	if (urgent)
		NEED(send(s->fd, "!", 1, MSG_OOB) == 1);
	worker_start(sender, send_some, s);
	wait_asleep(getpid(), sender->tid);
}

static void say_after(struct sends *s, struct worker *sender)
{
	int error = 0;
	socklen_t len = sizeof error;
	worker_join(sender);
	say("some: %d", s->some);
	say_result("recv", recv(s->fd, bulk_room(), 4, MSG_DONTWAIT));
	say_result("send", send(s->fd, "efgh", 4, MSG_NOSIGNAL));
	NEED(getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	say("SO_ERROR: %s", errno_name(error));
	say("poll: %s", poll_names(wait_events(s->fd, POLLIN | POLLOUT)));
}

static void lazy_peer(int fd, void *arg)
{
	(void)fd;
	(void)arg;
	for (;;)
		pause();
}

CASE(kept_swallowed_killed, DIRECT)
{
	NEED(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	for (int i = 0; i < 2 * GIVERS; i++) {
		struct sends s = {.giver = (enum giver)(i / 2)};
		struct worker sender;
		pid_t pid;
		s.fd = peer_start(lazy_peer, NULL, &pid);
		sends_open(&s);
		sleep_in(&s, &sender, i % 2);
		NEED(kill(pid, SIGKILL) == 0 && child_status(pid) == 128 + SIGKILL);
		say_after(&s, &sender);
		sends_close(&s);
	}
}

CASE(kept_swallowed_closed, DIRECT)
{
	NEED(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	for (int i = 0; i < 4 * GIVERS; i++) {
		struct sends s = {.giver = (enum giver)(i / 4)};
		struct worker sender;
		struct pair p = pair_warm_open();
		s.fd = i & 2 ? p.s : p.c;
		sends_open(&s);
		sleep_in(&s, &sender, i & 1);
		NEED(close(i & 2 ? p.c : p.s) == 0);
		say_after(&s, &sender);
		sends_close(&s);
	}
}
