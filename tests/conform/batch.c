/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls of several messages. Fewer than there are is a legal answer. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/call.h"

enum { MESSAGES = 3, SMALL = 100 };

struct many {
	int fd;
	size_t len; /* of each message */
	unsigned moved[MESSAGES];
	int result, error;
};

static void many_make(struct many *m, struct mmsghdr *msgs, struct iovec *iov)
{
	memset(msgs, 0, MESSAGES * sizeof *msgs);
	for (int i = 0; i < MESSAGES; i++) {
		iov[i] = (struct iovec){bulk_room() + (size_t)i * m->len, m->len};
		msgs[i].msg_hdr.msg_iov = &iov[i];
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
}

static void run_many(struct many *m, bool sends)
{
	struct mmsghdr msgs[MESSAGES];
	struct iovec iov[MESSAGES];
	many_make(m, msgs, iov);
	m->result = sends ? sendmmsg(m->fd, msgs, MESSAGES, 0)
			  : recvmmsg(m->fd, msgs, MESSAGES, 0, NULL);
	m->error = errno;
	for (int i = 0; i < m->result; i++)
		m->moved[i] = msgs[i].msg_len;
}

static void receive_many(void *arg)
{
	run_many(arg, false);
}

/* The kernel judges the control data of each message. */
CASE(batch_control, DIRECT)
{
	struct pair p = pair_warm_open();
	struct cmsghdr odd = {
		.cmsg_len = sizeof odd, .cmsg_level = SOL_SOCKET, .cmsg_type = 9999};
	struct mmsghdr msgs[MESSAGES];
	struct iovec iov[MESSAGES];
	struct many m = {.len = SMALL};
	many_make(&m, msgs, iov);
	msgs[1].msg_hdr.msg_control = &odd;
	msgs[1].msg_hdr.msg_controllen = sizeof odd;
	say_result("call", sendmmsg(p.s, msgs, MESSAGES, 0));
	NEED(shutdown(p.s, SHUT_WR) == 0);
	say_result("bytes", recv(p.c, bulk_room(), BULK_ROOM, MSG_WAITALL));
	pair_close(p);
}

/* Each message is one call of the kernel's, whatever its pieces: it tells of each call once
 * what was not copied. */
CASE(batch_zerocopy, DIRECT)
{
	enum { PIECES = 3, PIECE = 8192 };
	const int on = 1;
	struct pair p = pair_warm_open();
	struct mmsghdr msgs[MESSAGES] = {0};
	struct iovec iov[PIECES];
	for (int i = 0; i < PIECES; i++)
		iov[i] = (struct iovec){bulk_room(), PIECE};
	for (int i = 0; i < MESSAGES; i++)
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = iov, .msg_iovlen = PIECES};
	NEED(setsockopt(p.s, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
	say_result("call", sendmmsg(p.s, msgs, MESSAGES, MSG_ZEROCOPY));
	for (int i = 0; i < MESSAGES; i++)
		say("message of %u", msgs[i].msg_len);
	pair_close(p);
}

/* A thread that is cancelled between two messages, and what it has held is let go. */
CASE(batch_cancelled, DIRECT)
{
	struct pair p = pair_warm_open();
	struct many m = {.fd = p.s, .len = SMALL};
	struct worker t;
	char byte;
	worker_start(&t, receive_many, &m);
	wait_crowd_asleep(&t.tid, 1);
	NEED(pthread_cancel(t.thread) == 0);
	worker_join(&t);
	NEED(close(p.s) == 0);
	say_result("end", recv(p.c, &byte, 1, 0));
	close(p.c);
}

/* ---- a signal ends a call behind its first message, on TCP ---- */

static int peer;

/* The peer asks for the upgrade meanwhile. */
static void on_alarm(int sig)
{
	char byte;
	(void)sig;
	for (int i = 0; i < 5; i++)
		if (recv(peer, &byte, 1, MSG_DONTWAIT) >= 0)
			abort();
}

static void alarm_in(int ms)
{
	const struct itimerval in = {.it_value = {.tv_usec = ms * 1000}};
	NEED(setitimer(ITIMER_REAL, &in, NULL) == 0);
}

static void *send_parts(void *arg)
{
	const struct pair *p = arg;
	char bytes[SMALL] = {0};
	send_all(p->c, bytes, sizeof bytes);
	usleep(100000);
	send_all(p->c, bytes, sizeof bytes);
	return NULL;
}

/* Linux leaves an error behind, which is none of the connection's: the program goes on. */
CASE(batch_interrupted_on_tcp, DIRECT)
{
	struct sigaction act = {.sa_handler = on_alarm};
	NEED(sigaction(SIGALRM, &act, NULL) == 0);
	/* At each of the steps of an upgrade. */
	for (int before = 0; before < 3; before++) {
		struct pair p = pair_open();
		struct many m = {.fd = p.s, .len = SMALL};
		char bytes[2 * SMALL] = {0};
		pthread_t sender;
		ssize_t n;
		for (int i = 0; i < before; i++) {
			send_all(p.c, "x", 1);
			recv_all(p.s, bytes, 1);
			send_all(p.s, "x", 1);
			recv_all(p.c, bytes, 1);
		}
		send_all(p.c, bytes, SMALL);
		wait_inq(p.s, SMALL);
		peer = p.c;
		alarm_in(20);
		receive_many(&m);
		alarm_in(0);
		say("%d message of %u", m.result, m.moved[0]);
		for (int i = 0; i < 3; i++)
			NEED(recv(p.s, bytes, 1, MSG_DONTWAIT) < 0);
		for (int i = 0; i < 60; i++) {
			send_all(p.c, "x", 1);
			while ((n = recv(p.s, bytes, 1, 0)) < 0)
				;
			NEED(n == 1);
			while ((n = send(p.s, "x", 1, 0)) < 0)
				;
			recv_all(p.c, bytes, 1);
		}
		NEED(pthread_create(&sender, NULL, send_parts, &p) == 0);
		say_result("all", recv(p.s, bytes, sizeof bytes, MSG_WAITALL));
		pthread_join(sender, NULL);
		pair_close(p);
	}
}
