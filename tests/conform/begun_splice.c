/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the pipe of a splice, and what comes while it waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "call.h"

static int splice_pipe[2];

static void splice_run(void *arg)
{
	struct call *c = arg;
	c->result = splice(c->fd, NULL, splice_pipe[1], NULL, c->len, 0);
	c->error = errno;
}

/* Of the pipe, all that it takes; and so much out of it. */
static ssize_t pipe_fill(void)
{
	int room = fcntl(splice_pipe[1], F_GETPIPE_SZ);
	NEED(room > 0 && write(splice_pipe[1], bulk_room(), (size_t)room) == room);
	return room;
}

static void pipe_drain(ssize_t left)
{
	for (ssize_t n; left > 0; left -= n) {
		n = read(splice_pipe[0], bulk_room(), (size_t)left);
		NEED(n > 0);
	}
}

/* It sleeps for room: what is to be taken out for it. */
static ssize_t splice_into_full(struct pair p, struct call *c, struct worker *t)
{
	send_all(p.c, "abcd", 4);
	wait_inq(p.s, 4);
	ssize_t filled = pipe_fill();
	worker_start(t, splice_run, c);
	wait_crowd_asleep(&t->tid, 1);
	return filled;
}

/* Where it is full, and where nothing has come yet. */
static void splice_replaced(bool full)
{
	struct pair p = pair_warm_open();
	int other[2];
	struct call c = {.fd = p.s, .len = 4};
	char *bytes = bulk_room();
	ssize_t filled = 0, n;
	struct worker t;
	NEED(pipe(splice_pipe) == 0 && pipe2(other, O_NONBLOCK) == 0);
	if (full) {
		filled = splice_into_full(p, &c, &t);
	} else {
		worker_start(&t, splice_run, &c);
		wait_crowd_asleep(&t.tid, 1);
	}
	NEED(dup2(other[1], splice_pipe[1]) == splice_pipe[1]);
	if (!full)
		send_all(p.c, "abcd", 4);
	pipe_drain(filled);
	call_end(&t, &c);
	n = read(splice_pipe[0], bytes, 8);
	say("in the pipe: %.*s", (int)(n > 0 ? n : 0), bytes);
	say_result("then", read(splice_pipe[0], bytes, 8));
	say_result("in the other", read(other[0], bytes, 8));
	for (int i = 0; i < 2; i++) {
		close(splice_pipe[i]);
		close(other[i]);
	}
	pair_close(p);
}

static volatile sig_atomic_t handled;

static void note_signal(int sig)
{
	(void)sig;
	handled++;
}

/* While it waits for room in the pipe, a handler runs. */
static void splice_interrupted(int flags)
{
	struct sigaction act = {.sa_handler = note_signal, .sa_flags = flags};
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 4};
	struct worker t;
	handled = 0;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0);
	NEED(pipe(splice_pipe) == 0);
	ssize_t filled = splice_into_full(p, &c, &t);
	NEED(pthread_kill(t.thread, SIGUSR1) == 0);
	while (!handled)
		usleep(1000);
	wait_crowd_asleep(&t.tid, 1);
	pipe_drain(filled);
	call_end(&t, &c);
	close(splice_pipe[0]);
	close(splice_pipe[1]);
	pair_close(p);
}

CASE(begun_splice_interrupted, DIRECT)
{
	splice_interrupted(SA_RESTART);
	splice_interrupted(0);
}

/* A child that has closed the pipe, while another thread of its parent spliced, keeps nothing of it. */
CASE(begun_splice_forked, DIRECT)
{
	struct pair p = pair_warm_open();
	struct call c = {.fd = p.s, .len = 4};
	struct signal_pipe closed = signal_pipe(), go = signal_pipe();
	struct worker t;
	NEED(pipe(splice_pipe) == 0);
	ssize_t filled = splice_into_full(p, &c, &t);
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		close(splice_pipe[0]);
		close(splice_pipe[1]);
		/* It ends with its parent, too. */
		close(go.fd[1]);
		signal_send(closed);
		signal_wait(go);
		_exit(0);
	}
	signal_wait(closed);
	pipe_drain(filled);
	call_end(&t, &c);
	say_result("in the pipe", read(splice_pipe[0], bulk_room(), 8));
	close(splice_pipe[1]);
	/* While somebody may write to it there is no end: EAGAIN. */
	nonblock(splice_pipe[0], true);
	say_result("then", read(splice_pipe[0], bulk_room(), 8));
	signal_send(go);
	say("status %d", child_status(pid));
	close(splice_pipe[0]);
	pair_close(p);
}

CASE(begun_splice, DIRECT)
{
	splice_replaced(true);
	splice_replaced(false);
}

/* While it sleeps for room, another connection is put at its number: it goes on with its own. */
CASE(begun_splice_renumbered, DIRECT)
{
	struct pair p = pair_warm_open(), q = pair_warm_open();
	struct call c = {.fd = p.s, .len = 4};
	char *bytes = bulk_room();
	struct worker t;
	ssize_t n;
	NEED(pipe2(splice_pipe, 0) == 0);
	send_all(q.c, "wxyz", 4);
	wait_inq(q.s, 4);
	ssize_t filled = splice_into_full(p, &c, &t);
	NEED(dup2(q.s, p.s) == p.s);
	pipe_drain(filled);
	call_end(&t, &c);
	nonblock(splice_pipe[0], true);
	n = read(splice_pipe[0], bytes, 8);
	say("in the pipe: %.*s", (int)(n > 0 ? n : 0), bytes);
	n = recv(p.s, bytes, 8, MSG_DONTWAIT);
	say("the other connection has: %.*s", (int)(n > 0 ? n : 0), bytes);
	close(splice_pipe[0]);
	close(splice_pipe[1]);
	pair_close(p);
	pair_close(q);
}

/* ---- a handler closes the connection from which a splice waits for bytes ---- */

static int to_close;

static void close_it(int sig)
{
	(void)sig;
	close(to_close);
	handled++;
}

/* It makes no call until then, so that what it sends goes by shared memory. */
static void send_late(int fd, void *arg)
{
	signal_wait(*(struct signal_pipe *)arg);
	send(fd, "abcd", 4, MSG_NOSIGNAL);
}

/* Behind a handler with SA_RESTART the kernel looks the number up once more. */
CASE(begun_splice_restarted, DIRECT)
{
	struct sigaction act = {.sa_handler = close_it, .sa_flags = SA_RESTART};
	struct signal_pipe go = signal_pipe();
	pid_t pid;
	struct call c = {.fd = peer_start(send_late, &go, &pid), .len = 4};
	struct worker t;
	to_close = c.fd;
	handled = 0;
	NEED(sigaction(SIGUSR1, &act, NULL) == 0 && pipe2(splice_pipe, 0) == 0);
	worker_start(&t, splice_run, &c);
	wait_crowd_asleep(&t.tid, 1);
	NEED(pthread_kill(t.thread, SIGUSR1) == 0);
	while (!handled)
		usleep(1000);
	signal_send(go);
	call_end(&t, &c);
	nonblock(splice_pipe[0], true);
	say_result("in the pipe", read(splice_pipe[0], bulk_room(), 8));
	say("status %d", child_status(pid));
	close(splice_pipe[0]);
	close(splice_pipe[1]);
}

/* ---- another writer takes the room for which the splice has waited ---- */

enum { PIECE = 4096, PIECES = 16, RACES = 30 };

static void splice_on(void *arg)
{
	int fd = *(int *)arg;
	while (splice(fd, NULL, splice_pipe[1], NULL, PIECE, 0) > 0)
		;
}

static void write_on(void *arg)
{
	static char other[PIECE];
	(void)arg;
	while (write(splice_pipe[1], other, PIECE) > 0)
		;
}

static size_t count_ours(const char *bytes, ssize_t n)
{
	size_t count = 0;
	for (ssize_t i = 0; i < n; i++)
		count += bytes[i] == 'x';
	return count;
}

/* How many bytes of the connection are left in all, when both have been cancelled in their sleep. */
static size_t splice_raced(int reads)
{
	static char bytes[PIECE * PIECES];
	struct pair p = pair_warm_open();
	struct worker ours, other;
	pid_t tids[2];
	size_t count = 0;
	ssize_t n;
	NEED(pipe(splice_pipe) == 0 &&
	     fcntl(splice_pipe[1], F_SETPIPE_SZ, PIECE) == PIECE);
	memset(bytes, 'x', sizeof(bytes));
	send_all(p.c, bytes, sizeof(bytes));
	wait_inq(p.s, sizeof(bytes));
	worker_start(&other, write_on, NULL);
	worker_start(&ours, splice_on, &p.s);
	tids[0] = ours.tid;
	tids[1] = other.tid;
	wait_crowd_asleep(tids, 2);
	for (int i = 0; i < reads; i++) {
		n = read(splice_pipe[0], bytes, PIECE);
		count += count_ours(bytes, n);
		if (i % 2)
			wait_crowd_asleep(tids, 2);
	}
	wait_crowd_asleep(tids, 2);
	NEED(pthread_cancel(ours.thread) == 0);
	worker_join(&ours);
	NEED(pthread_cancel(other.thread) == 0);
	worker_join(&other);
	nonblock(splice_pipe[0], true);
	while ((n = read(splice_pipe[0], bytes, sizeof(bytes))) > 0)
		count += count_ours(bytes, n);
	while ((n = recv(p.s, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		count += count_ours(bytes, n);
	close(splice_pipe[0]);
	close(splice_pipe[1]);
	pair_close(p);
	return count;
}

CASE(begun_splice_raced, DIRECT)
{
	int short_of = 0;
	for (int i = 0; i < RACES; i++)
		short_of += splice_raced(3 + i % 9) != PIECE * PIECES;
	say("short of bytes: %d", short_of);
}
