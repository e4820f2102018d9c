/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a call of several messages goes on with its connection, whatever its number is by then. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "conform/call.h"

enum { MESSAGES = 3, SMALL = 100, LARGE = 10 << 20 };

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

static void send_many(void *arg)
{
	run_many(arg, true);
}

/* CLOSED: the connection has no number any more; OTHER: another one has it; SHUT: that of a duplicate is shut. */
enum change { CLOSED, OTHER, DUPLICATE, SHUT, CHANGES };

/* The number that is left of the connection, or -1. */
static int change_number(struct pair p, struct pair other, enum change change)
{
	int number = change == DUPLICATE || change == SHUT ? dup(p.s) : -1;
	NEED(change == OTHER ? dup2(other.s, p.s) == p.s : close(p.s) == 0);
	if (change == SHUT)
		NEED(shutdown(number, SHUT_RD) == 0);
	return number;
}

static void many_end(struct worker *t, struct many *m)
{
	worker_join(t);
	errno = m->error;
	say_result("call", m->result);
	for (int i = 0; i < m->result; i++)
		say("message of %u", m->moved[i]);
}

static void end_pairs(struct pair p, struct pair other, int number, enum change change)
{
	char byte;
	say_result("other", recv(other.c, &byte, 1, MSG_DONTWAIT));
	say_result("other's end", recv(other.s, &byte, 1, MSG_DONTWAIT));
	if (change == OTHER)
		NEED(close(p.s) == 0);
	if (number >= 0)
		NEED(close(number) == 0);
	close(p.c);
	pair_close(other);
}

CASE(stay_received, DIRECT)
{
	char from[SMALL] = {0};
	for (int change = 0; change < CHANGES; change++) {
		struct pair p = pair_warm_open(), other = pair_warm_open();
		struct many m = {.fd = p.s, .len = SMALL};
		struct worker t;
		worker_start(&t, receive_many, &m);
		wait_crowd_asleep(&t.tid, 1);
		int number = change_number(p, other, change);
		for (int i = 0; i < MESSAGES && change != SHUT; i++) {
			send_all(p.c, from, sizeof from);
			wait_crowd_asleep(&t.tid, 1);
		}
		many_end(&t, &m);
		end_pairs(p, other, number, change);
	}
}

CASE(stay_sent, DIRECT)
{
	for (int change = 0; change < SHUT; change++) {
		struct pair p = pair_warm_open(), other = pair_warm_open();
		struct many m = {.fd = p.s, .len = LARGE};
		struct worker t;
		worker_start(&t, send_many, &m);
		wait_crowd_asleep(&t.tid, 1);
		int number = change_number(p, other, change);
		read_bulk(p.c, (size_t)MESSAGES * LARGE);
		many_end(&t, &m);
		end_pairs(p, other, number, change);
	}
}

/* It goes back to TCP between the messages, when the number is another's already. */
CASE(stay_going, DIRECT)
{
	const int on = 1;
	struct pair p = pair_warm_open(), other = pair_warm_open();
	struct many m = {.fd = p.s, .len = LARGE};
	struct worker t;
	worker_start(&t, send_many, &m);
	wait_crowd_asleep(&t.tid, 1);
	int number = change_number(p, other, OTHER);
	recv_all(p.c, bulk_room() + (size_t)MESSAGES * LARGE, LARGE / 2);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	read_bulk(p.c, (size_t)MESSAGES * LARGE - LARGE / 2);
	many_end(&t, &m);
	end_pairs(p, other, number, OTHER);
}

enum { ROWS = 1000 };

struct row {
	int fd, result, flags;
	size_t len; /* of each message */
	volatile bool is_over;
};

static void send_row(void *arg)
{
	static struct mmsghdr msgs[ROWS];
	struct row *r = arg;
	struct iovec iov = {bulk_room(), r->len};
	for (int i = 0; i < ROWS; i++)
		msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
	r->result = sendmmsg(r->fd, msgs, ROWS, r->flags);
	r->is_over = true;
}

static void nothing(int sig)
{
	(void)sig;
}

static void interrupt_row(struct worker *t, const struct row *r)
{
	alarm(20);
	while (!r->is_over) {
		NEED(pthread_kill(t->thread, SIGUSR1) == 0);
		usleep(1000);
	}
	alarm(0);
	worker_join(t);
	say("some: %d", r->result > 0 && r->result < ROWS);
}

/* A signal ends the call behind its first message, whatever the handler's flags are, also where the message at
 * hand has not begun. */
CASE(stay_interrupted, DIRECT)
{
	struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct pair p = pair_warm_open();
	struct row r = {.fd = p.s, .len = 16384};
	struct worker t;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	worker_start(&t, send_row, &r);
	wait_crowd_asleep(&t.tid, 1);
	interrupt_row(&t, &r);
	pair_close(p);
}

/* The same once the connection has gone to TCP for good amid the call. Each message is a packet of its own, so that the last
 * has sent nothing. */
CASE(stay_gone_interrupted, DIRECT)
{
	const int on = 1;
	struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	struct pair p = pair_warm_open();
	struct row r = {.fd = p.s, .len = 32768, .flags = MSG_EOR};
	struct worker t;
	char byte;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	worker_start(&t, send_row, &r);
	wait_crowd_asleep(&t.tid, 1);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	for (int i = 0; i < 2; i++) {
		recv_all(p.c, bulk_room(), 4 << 20);
		send_all(p.c, "x", 1);
		recv_all(p.s, &byte, 1);
	}
	recv_all(p.c, bulk_room(), 4 << 20);
	wait_crowd_asleep(&t.tid, 1);
	interrupt_row(&t, &r);
	pair_close(p);
}

static void is_over(struct worker *t, const volatile bool *over)
{
	alarm(20);
	while (!*over)
		usleep(1000);
	alarm(0);
	worker_join(t);
}

/* One signal is enough, also where it comes while the call moves bytes. */
CASE(stay_signalled, DIRECT)
{
	struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	for (int i = 0; i < 10; i++) {
		struct pair p = pair_warm_open();
		struct row r = {.fd = p.s, .len = 16384};
		struct worker t;
		char byte;
		worker_start(&t, send_row, &r);
		recv_all(p.c, &byte, 1);
		NEED(pthread_kill(t.thread, SIGUSR1) == 0);
		is_over(&t, &r.is_over);
		say("some: %d", r.result > 0 && r.result < ROWS);
		pair_close(p);
	}
}

struct receiver {
	struct many many;
	volatile bool is_over;
};

static void receive_to_end(void *arg)
{
	struct receiver *r = arg;
	receive_many(&r->many);
	r->is_over = true;
}

CASE(stay_signalled_receiver, DIRECT)
{
	struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
	char from[SMALL] = {0};
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	for (int i = 0; i < 10; i++) {
		struct pair p = pair_warm_open();
		struct receiver r = {.many = {.fd = p.s, .len = SMALL}};
		struct worker t;
		worker_start(&t, receive_to_end, &r);
		wait_crowd_asleep(&t.tid, 1);
		send_all(p.c, from, sizeof from);
		NEED(pthread_kill(t.thread, SIGUSR1) == 0);
		is_over(&t, &r.is_over);
		say("%d messages", r.many.result);
		pair_close(p);
	}
}

/* The kernel judges the control data of each message. */
CASE(stay_control, DIRECT)
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

/* Each message is one call of the kernel's, whatever its pieces: it tells of each call once what was not copied. */
CASE(stay_zerocopy, DIRECT)
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

/* The connection goes to TCP for good amid the call, which sleeps on there: no processor is taken, and its time passes. */
static void sleep_gone(bool timed)
{
	const int on = 1;
	const struct timeval bound = {.tv_sec = 1};
	struct pair p = pair_warm_open();
	struct many m = {.fd = p.s, .len = SMALL};
	struct timespec cpu[2];
	struct worker t;
	clockid_t clock;
	char from[SMALL] = {0};
	if (timed)
		NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0);
	worker_start(&t, receive_many, &m);
	wait_crowd_asleep(&t.tid, 1);
	send_all(p.c, from, sizeof from);
	NEED(setsockopt(p.c, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	send_all(p.c, from, timed ? 1 : sizeof from);
	if (!timed) {
		NEED(pthread_getcpuclockid(t.thread, &clock) == 0);
		usleep(200000);
		NEED(clock_gettime(clock, &cpu[0]) == 0);
		usleep(500000);
		NEED(clock_gettime(clock, &cpu[1]) == 0);
		long us = (cpu[1].tv_sec - cpu[0].tv_sec) * 1000000 +
			  (cpu[1].tv_nsec - cpu[0].tv_nsec) / 1000;
		say("busy: %d", us > 100000);
		send_all(p.c, from, sizeof from);
	}
	alarm(20);
	many_end(&t, &m);
	alarm(0);
	pair_close(p);
}

CASE(stay_gone_asleep, DIRECT)
{
	sleep_gone(false);
}

CASE(stay_gone_late, DIRECT)
{
	sleep_gone(true);
}

/* A thread that is cancelled between two messages, and what it has held is let go. */
CASE(stay_cancelled, DIRECT)
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

static int put_from, put_over;

static void put_other(int sig)
{
	(void)sig;
	dup2(put_from, put_over);
}

/* The first message has sent nothing when a handler puts another connection at the number: that has all of them. */
CASE(stay_restarted, DIRECT)
{
	struct sigaction act = {.sa_handler = put_other, .sa_flags = SA_RESTART};
	struct pair p = pair_warm_open(), other = pair_warm_open();
	struct many m = {.fd = p.s, .len = SMALL};
	char bytes[MESSAGES * SMALL];
	struct worker t;
	put_from = other.s;
	put_over = p.s;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	send_until_no_room(p.s);
	worker_start(&t, send_many, &m);
	wait_crowd_asleep(&t.tid, 1);
	NEED(pthread_kill(t.thread, SIGUSR1) == 0);
	many_end(&t, &m);
	recv_all(other.c, bytes, sizeof bytes);
	end_pairs(p, other, -1, OTHER);
}

static void put_other_once(int sig)
{
	put_other(sig);
	put_from = put_over;
}

/* As much as a connection takes that nobody reads, but for so many. Sent in pieces: TCP takes less at once. */
static void send_most(int fd, size_t but)
{
	struct pair twin = pair_warm_open();
	size_t room = 0;
	ssize_t n;
	send_until_no_room(twin.s);
	NEED(shutdown(twin.s, SHUT_WR) == 0);
	while ((n = recv(twin.c, bulk_room(), 65536, 0)) > 0)
		room += (size_t)n;
	NEED(n == 0 && room > but);
	pair_close(twin);
	for (room -= but; room > 0; room -= (size_t)n) {
		n = send(fd, bulk_room(), room < 65536 ? room : 65536, MSG_DONTWAIT);
		if (n < 0) /* some of TCP's, by chance */
			break;
	}
}

/* The other one has room for one message, in the ring exactly. There, too, a signal ends the call behind that. */
CASE(stay_restarted_interrupted, DIRECT)
{
	struct sigaction act = {.sa_handler = put_other_once, .sa_flags = SA_RESTART};
	struct pair p = pair_warm_open(), other = pair_warm_open();
	struct row r = {.fd = p.s, .len = 1 << 20};
	struct worker t;
	put_from = other.s;
	put_over = p.s;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	send_most(other.s, r.len);
	send_until_no_room(p.s);
	worker_start(&t, send_row, &r);
	wait_crowd_asleep(&t.tid, 1);
	NEED(pthread_kill(t.thread, SIGUSR1) == 0);
	while (put_from != put_over)
		usleep(1000);
	wait_crowd_asleep(&t.tid, 1);
	interrupt_row(&t, &r);
	pair_close(other);
	pair_close(p);
}
