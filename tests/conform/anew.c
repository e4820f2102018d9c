/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a signal handler changes what the call waits for that it has interrupted. With
 * SA_RESTART the call begins anew, with what its descriptor is by then. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "conform/cases.h"

enum act {
	CLOSES,
	SHUTS_READING,
	SHUTS_WRITING,
	SHUTS,
	NO_BLOCK,
	TIMED,
	REPLACES,
	DISSOLVES,
	BRINGS,
	ACTS
};

static const char *const act_names[] = {"closes",   "shuts reading", "shuts writing",
					"shuts",    "no block",	     "timed",
					"replaces", "dissolves",     "brings"};

static struct {
	struct pair p;
	enum act act;
	int null; /* another descriptor */
	volatile int handled;
} now;

static void set_timeouts(int fd)
{
	const struct timeval soon = {0, 1000};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
}

static void handle(int sig)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	int saved = errno;
	(void)sig;
	now.handled++;
	switch (now.act) {
	case CLOSES:
		close(now.p.c);
		break;
	case SHUTS_READING:
		shutdown(now.p.c, SHUT_RD);
		break;
	case SHUTS_WRITING:
		shutdown(now.p.c, SHUT_WR);
		break;
	case SHUTS:
		shutdown(now.p.c, SHUT_RDWR);
		break;
	case NO_BLOCK:
		fcntl(now.p.c, F_SETFL, O_RDWR | O_NONBLOCK);
		break;
	case TIMED:
		set_timeouts(now.p.c);
		break;
	case REPLACES:
		dup2(now.null, now.p.c);
		break;
	case DISSOLVES:
		connect(now.p.c, &nobody, sizeof nobody);
		break;
	default:
		NEED(write(now.p.s, "brought", 7) == 7);
		break;
	}
	errno = saved;
}

struct kicked {
	pthread_t thread;
	pid_t tid;
};

static void kick(void *arg)
{
	struct kicked *k = arg;
	wait_asleep(getpid(), k->tid);
	pthread_kill(k->thread, SIGUSR1);
}

static ssize_t call_recv(int fd)
{
	char buf[8];
	return recv(fd, buf, sizeof buf, 0);
}

static ssize_t call_peek(int fd)
{
	char buf[8];
	return recv(fd, buf, sizeof buf, MSG_PEEK);
}

static ssize_t call_recvmmsg(int fd)
{
	char buf[8];
	struct iovec iov = {buf, sizeof buf};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
	int n = recvmmsg(fd, &m, 1, 0, NULL);
	return n == 1 ? (ssize_t)m.msg_len : n;
}

static ssize_t call_read_by_number(int fd)
{
	char buf[8];
	return syscall(SYS_read, fd, buf, sizeof buf);
}

static ssize_t call_send(int fd)
{
	return send(fd, "more", 4, MSG_NOSIGNAL);
}

static void interrupt(ssize_t (*call)(int fd), enum act act, int flags)
{
	struct sigaction sa = {.sa_handler = handle, .sa_flags = flags};
	struct kicked me = {pthread_self(), gettid()};
	struct worker kicker;
	NEED(sigaction(SIGUSR1, &sa, NULL) == 0);
	now.p = pair_warm_open();
	now.act = act;
	now.handled = 0;
	now.null = open("/dev/null", O_RDWR);
	NEED(now.null >= 0);
	if (call == call_send)
		send_until_no_room(now.p.c);
	worker_start(&kicker, kick, &me);
	ssize_t n = call(now.p.c);
	say("%s%s: %zd %s, handled %d", act_names[act], flags ? ", restarts" : "", n,
	    n < 0 ? errno_name(errno) : "", now.handled);
	worker_join(&kicker);
	close(now.null);
	close(now.p.c);
	close(now.p.s);
}

/* `sleeps_on`: what leaves the call asleep for good where it begins anew. */
static void each_act(ssize_t (*call)(int fd), uint32_t sleeps_on)
{
	for (enum act act = 0; act < ACTS; act++) {
		interrupt(call, act, 0);
		if (!(sleeps_on & 1u << act))
			interrupt(call, act, SA_RESTART);
	}
}

CASE(anew_recv, DIRECT)
{
	each_act(call_recv, 1u << SHUTS_WRITING);
}

CASE(anew_peek, DIRECT)
{
	each_act(call_peek, 1u << SHUTS_WRITING);
}

CASE(anew_recvmmsg, DIRECT)
{
	each_act(call_recvmmsg, 1u << SHUTS_WRITING);
}

CASE(anew_read_by_number, DIRECT)
{
	each_act(call_read_by_number, 1u << SHUTS_WRITING);
}

CASE(anew_send, DIRECT)
{
	each_act(call_send, 1u << SHUTS_READING | 1u << BRINGS);
}
