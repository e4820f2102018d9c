/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that sends, with each flag, in each state of the connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/grid_state.h"

#define UNKNOWN_FLAG 0x800000
#define MOST	     100

static uint8_t bytes[2 * MOST]; /* the pattern */
static int file = -1;		/* the same */
static volatile sig_atomic_t pipes;
static char extra[64]; /* what else the call has told */

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static ssize_t run_write(int fd, size_t len, int flags)
{
	(void)flags;
	return write(fd, bytes, len);
}

static ssize_t run_writev(int fd, size_t len, int flags)
{
	struct iovec iov[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
	(void)flags;
	return writev(fd, iov, 2);
}

static ssize_t run_send(int fd, size_t len, int flags)
{
	return send(fd, bytes, len, flags);
}

static ssize_t run_sendto(int fd, size_t len, int flags)
{
	return sendto(fd, bytes, len, flags, NULL, 0);
}

/* A connected TCP socket ignores the address, but not its length. */
static ssize_t run_sendto_name(int fd, size_t len, int flags)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
	return sendto(fd, bytes, len, flags, (struct sockaddr *)&to, sizeof to);
}

static ssize_t run_sendto_wrong(int fd, size_t len, int flags)
{
	struct sockaddr_storage to[2] = {{.ss_family = AF_INET}};
	return sendto(fd, bytes, len, flags, (struct sockaddr *)to, sizeof to);
}

static ssize_t run_sendmsg(int fd, size_t len, int flags)
{
	struct iovec iov[2] = {{bytes, len / 3}, {bytes + len / 3, len - len / 3}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	return sendmsg(fd, &msg, flags);
}

static ssize_t run_sendmmsg(int fd, size_t len, int flags)
{
	struct iovec iov[2] = {{bytes, len}, {bytes + len, len}};
	struct mmsghdr msgs[2] = {
		{.msg_len = 77, .msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
		{.msg_len = 77, .msg_hdr = {.msg_iov = iov + 1, .msg_iovlen = 1}}};
	int n = sendmmsg(fd, msgs, 2, flags);
	snprintf(extra, sizeof extra, " (%u, %u)", msgs[0].msg_len, msgs[1].msg_len);
	return n;
}

static ssize_t run_sendfile(int fd, size_t len, int flags)
{
	off_t at = 0;
	(void)flags;
	ssize_t n = sendfile(fd, file, &at, len);
	snprintf(extra, sizeof extra, " to %ld", (long)at);
	return n;
}

static const struct grid_call {
	const char *name;
	ssize_t (*run)(int fd, size_t len, int flags);
	bool bare; /* takes no flags */
} calls[] = {
	{"write", run_write, true},
	{"writev", run_writev, true},
	{"send", run_send, false},
	{"sendto", run_sendto, false},
	{"sendto a name", run_sendto_name, false},
	{"sendto a wrong name", run_sendto_wrong, false},
	{"sendmsg", run_sendmsg, false},
	{"sendmmsg", run_sendmmsg, false},
	{"sendfile", run_sendfile, true},
};

static const struct {
	const char *name;
	int flags;
} flag_sets[] = {
	{"0", 0},
	{"MORE", MSG_MORE},
	{"DONTWAIT", MSG_DONTWAIT},
	{"NOSIGNAL", MSG_NOSIGNAL},
	{"OOB", MSG_OOB},
	{"OOB NOSIGNAL", MSG_OOB | MSG_NOSIGNAL},
	{"EOR", MSG_EOR},
	{"CONFIRM", MSG_CONFIRM},
	{"DONTROUTE", MSG_DONTROUTE},
	{"WAITALL", MSG_WAITALL},
	{"unknown", UNKNOWN_FLAG},
};

static const size_t sizes[] = {0, 1, MOST};

/* What the other end gets, behind what lay there before. */
static void say_received(struct pair p, const char *what)
{
	const char *first, *then;
	char byte = '-';
	shutdown(p.s, SHUT_WR); /* sends out what is held back */
	wait_events(p.c, POLLRDHUP);
	size_t got = state_drain(p.c, 0, &first);
	ssize_t urgent = recv(p.c, &byte, 1, MSG_OOB);
	size_t more = state_drain(p.c, got, &then);
	say("%s; got %zu %s, %zu %s, urgent %zd", what, got, first, more, then, urgent);
}

/* With the reset, if the call has caused one. */
static void wait_answer(struct pair p, ssize_t n, int flags)
{
	if (n <= 0 || p.c >= 0)
		return;
	if (flags & MSG_MORE)
		shutdown(p.s, SHUT_WR);
	wait_events(p.s, 0);
}

static void visit(const struct grid_call *call, const struct grid_state *state,
		  size_t set, size_t len, bool nonblocking, enum stage stage)
{
	struct timeval tick = {0, 1};
	struct pair p = state_open(state, stage);
	struct pollfd pf = {p.s, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
	int error = -1, flags = flag_sets[set].flags;
	socklen_t error_len = sizeof error;
	char what[512];
	nonblock(p.s, nonblocking);
	if (state->full)
		NEED(setsockopt(p.s, SOL_SOCKET, SO_SNDTIMEO, &tick, sizeof tick) == 0);
	pipes = 0;
	extra[0] = '\0';
	errno = 0;
	ssize_t n = call->run(p.s, len, flags);
	int at = snprintf(what, sizeof what, "%s, %s, %s of %zu%s: %zd %s%s, SIGPIPE %d",
			  state->name, call->name, flag_sets[set].name, len,
			  nonblocking ? ", nonblocking" : "", n,
			  n < 0 ? errno_name(errno) : "", extra, (int)pipes);
	if (len > 0)
		wait_answer(p, n, flags);
	NEED(poll(&pf, 1, 0) >= 0);
	NEED(getsockopt(p.s, SOL_SOCKET, SO_ERROR, &error, &error_len) == 0);
	snprintf(what + at, sizeof what - (size_t)at, "; %s, error %s",
		 poll_names(pf.revents), error ? errno_name(error) : "0");
	if (p.c >= 0 && !state->full)
		say_received(p, what);
	else
		say("%s", what);
	state_close(p);
}

static void grid(enum stage stage, size_t first_size)
{
	alarm(GRID_SECONDS);
	NEED(signal(SIGPIPE, on_pipe) != SIG_ERR);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = pattern(i);
	file = memfd_create("case", 0);
	NEED(write(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
	for (size_t c = 0; c < COUNT_OF(calls); c++)
		for (size_t s = 0; s < grid_states_count; s++)
			for (size_t f = 0; f < (calls[c].bare ? 1 : COUNT_OF(flag_sets));
			     f++)
				for (size_t k = 2 * first_size; k < 2 * COUNT_OF(sizes);
				     k++) {
					/* Urgent data goes by TCP, which is not full then. */
					if (grid_states[s].full && f > 3)
						continue;
					if (grid_visits())
						visit(&calls[c], &grid_states[s], f,
						      sizes[k / 2], k % 2 == 1, stage);
				}
}

CASE(grid_send_cold, ANYWAY)
{
	grid(COLD, 2);
}

CASE(grid_send_warm, DIRECT)
{
	grid(WARM, 0);
}

CASE(grid_send_bounced, DIRECT)
{
	grid(BOUNCED, 1);
}

CASE(grid_send_one_way, DIRECT)
{
	grid(ONE_WAY, 2);
}

CASE(grid_send_other_way, DIRECT)
{
	grid(OTHER_WAY, 2);
}
