/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls in a handler that has interrupted the program's heap: see heap_held.c. */
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

#define PIECES 100
#define PIECE  100

static struct pair at;
static void (*calls)(void);

static void handle(int sig)
{
	(void)sig;
	calls();
}

/* In heap_held.so: this thread's next call of the heap is interrupted by the signal. */
typedef void heap_interrupt(int sig);

/* The lines are made before or after: a line may want the heap, too. */
static void in_the_heap(void (*function)(void))
{
	struct sigaction action = {.sa_handler = handle};
	heap_interrupt *interrupt;
	void *volatile memory;

	*(void **)&interrupt = dlsym(RTLD_DEFAULT, "heap_interrupt");
	if (!interrupt)
		skip("needs heap_held.so preloaded");
	calls = function;
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	interrupt(SIGUSR1);
	memory = malloc(1);
	free(memory);
}

/* What the calls have said, by turns. */
static struct {
	long result[32];
	int count;
} told;

static void tell(long result)
{
	if (told.count < 32)
		told.result[told.count++] = result < 0 ? -errno : result;
}

static void say_told(const char *what)
{
	for (int i = 0; i < told.count; i++)
		say("%s %d: %ld", what, i, told.result[i]);
	told.count = 0;
}

/* ---- poll and select ---- */

#define MOST 1000

static struct pollfd polled[MOST];

static void fill(int fd)
{
	for (int i = 0; i < MOST; i++)
		polled[i] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void poll_sizes(void)
{
	static const nfds_t sizes[] = {1, 16, 17, 60, 100, 600, MOST};
	struct timespec soon = {0, 1000000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		tell(poll(polled, sizes[i], 0));
		tell(poll(polled, sizes[i], 1));
	}
	tell(ppoll(polled, 100, &soon, NULL));
}

CASE(heap_poll, DIRECT)
{
	at = pair_warm_open();
	fill(at.s);
	in_the_heap(poll_sizes);
	say_told("nothing");
	send_all(at.c, "x", 1);
	wait_events(at.s, POLLIN);
	in_the_heap(poll_sizes);
	say_told("a byte");
	pair_close(at);
}

/* Only Viaduct has these: sets are kept with few descriptors, too; and how many entries this thread's has, or 0. */
__attribute__((weak)) unsigned viaduct_test_poll_sets(void);
__attribute__((weak)) unsigned viaduct_test_poll_set(void);

#define SMALL	    8
#define LARGE	    100
#define CONNECTIONS 10
#define MANY_FDS    4096 /* with fewer no thread keeps a set */
#define MOST_TRIES  2000

static bool is_kept(nfds_t n)
{
	return !viaduct_test_poll_set || viaduct_test_poll_set() == n;
}

/* Until the thread keeps the set. One of few it keeps once enough calls have slept. */
static void poll_until_kept(nfds_t n, int timeout)
{
	for (int i = 0; i < MOST_TRIES && (i == 0 || !is_kept(n)); i++)
		poll(polled, n, timeout);
	tell(poll(polled, n, timeout));
	tell(is_kept(n));
}

static void poll_small(void)
{
	poll_until_kept(SMALL, 1);
}

static void poll_large(void)
{
	poll_until_kept(LARGE, 0);
	/* Each of them stands there three times: this one is not kept. */
	tell(poll(polled, 3 * LARGE, 1));
	poll_until_kept(LARGE, 0);
}

static void poll_both(void)
{
	poll_small();
	poll_large();
}

static void poll_in_thread(void *arg)
{
	(void)arg;
	in_the_heap(poll_both);
}

static void allow_sets(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_cur < MANY_FDS && limit.rlim_max >= MANY_FDS)
		set_limit(MANY_FDS);
	else if (limit.rlim_cur < MANY_FDS && viaduct_test_poll_sets)
		viaduct_test_poll_sets();
}

CASE(heap_poll_kept, DIRECT)
{
	struct pair p[CONNECTIONS];
	int number[LARGE];

	allow_sets();
	for (int i = 0; i < CONNECTIONS; i++)
		p[i] = pair_warm_open();
	for (int i = 0; i < LARGE; i++)
		NEED((number[i] = dup(p[i % CONNECTIONS].s)) >= 0);
	for (int i = 0; i < 3 * LARGE; i++)
		polled[i] = (struct pollfd){.fd = number[i % LARGE], .events = POLLIN};
	in_the_heap(poll_both);
	say_told("nothing");
	send_all(p[SMALL].c, "x", 1);
	wait_events(p[SMALL].s, POLLIN);
	in_the_heap(poll_large);
	say_told("a byte");
	for (int i = 0; i < 3; i++) {
		struct worker w;

		worker_start(&w, poll_in_thread, NULL);
		worker_join(&w);
		say_told("in a thread");
	}
	for (int i = 0; i < LARGE; i++)
		close(number[i]);
	for (int i = 0; i < CONNECTIONS; i++)
		pair_close(p[i]);
}

static int high[PIECES];

static void select_high(void)
{
	struct timeval soon = {0, 1000};
	struct timespec nothing = {0, 0};
	fd_set in, out;

	FD_ZERO(&in);
	for (int i = 0; i < PIECES; i++)
		FD_SET(high[i], &in);
	out = in;
	tell(select(FD_SETSIZE, &in, NULL, NULL, &soon));
	tell(pselect(FD_SETSIZE, NULL, &out, NULL, &nothing, NULL));
}

CASE(heap_select, DIRECT)
{
	at = pair_warm_open();
	for (int i = 0; i < PIECES; i++)
		NEED((high[i] = fcntl(at.s, F_DUPFD, 900)) >= 900);
	in_the_heap(select_high);
	say_told("select");
	for (int i = 0; i < PIECES; i++)
		close(high[i]);
	pair_close(at);
}

/* ---- epoll ---- */

static struct pair many[PIECES];

static void epoll_all(void)
{
	struct epoll_event ev[PIECES] = {0};
	int ep = epoll_create1(EPOLL_CLOEXEC), other = epoll_create(1);

	tell(ep >= 0 && other >= 0);
	for (int i = 0; i < PIECES; i++) {
		ev[0] = (struct epoll_event){.events = EPOLLIN, .data.u32 = (uint32_t)i};
		tell(epoll_ctl(ep, EPOLL_CTL_ADD, many[i].s, &ev[0]));
		ev[0].events |= EPOLLOUT | EPOLLET;
		tell(epoll_ctl(other, EPOLL_CTL_ADD, many[i].s, &ev[0]));
	}
	tell(epoll_wait(ep, ev, PIECES, 0));
	tell(epoll_wait(ep, ev, PIECES, 1));
	ev[0] = (struct epoll_event){.events = EPOLLOUT};
	tell(epoll_ctl(ep, EPOLL_CTL_MOD, many[3].s, &ev[0]));
	tell(epoll_wait(ep, ev, PIECES, -1));
	tell(epoll_wait(other, ev, PIECES, -1) > 0);
	tell(epoll_ctl(ep, EPOLL_CTL_DEL, many[3].s, NULL));
	tell(dup2(ep, other) == other);
	tell(epoll_wait(other, ev, 1, 0));
	tell(close(ep));
	tell(close(other));
}

CASE(heap_epoll, DIRECT)
{
	for (int i = 0; i < PIECES; i++)
		many[i] = pair_warm_open();
	in_the_heap(epoll_all);
	say_told("epoll");
	for (int i = 0; i < PIECES; i++)
		pair_close(many[i]);
}

/* ---- moving bytes ---- */

static char room[PIECES][PIECE];

static void move_vectors(void)
{
	struct iovec v[PIECES];
	struct msghdr m = {.msg_iov = v, .msg_iovlen = PIECES};

	for (int i = 0; i < PIECES; i++)
		v[i] = (struct iovec){room[i], PIECE};
	tell(writev(at.c, v, PIECES));
	tell(readv(at.s, v, PIECES));
	tell(sendmsg(at.c, &m, 0));
	tell(recvmsg(at.s, &m, 0));
	tell(write(at.c, room, 5000));
	tell(read(at.s, room, 5000));
	tell(send(at.c, room, 10, MSG_NOSIGNAL));
	tell(recv(at.s, room, sizeof(room), 0));
	tell(recv(at.s, room, sizeof(room), MSG_DONTWAIT));
}

CASE(heap_vectors, DIRECT)
{
	at = pair_warm_open();
	in_the_heap(move_vectors);
	say_told("moved");
	pair_close(at);
}

/* More pieces than a page of them, in calls that sleep. */
#define LONGEST 1000

static char large[LONGEST][1000];

static void write_long(void)
{
	static struct iovec v[LONGEST];

	for (int i = 0; i < LONGEST; i++)
		v[i] = (struct iovec){large[i], sizeof(large[i])};
	for (int i = 0; i < 12; i++)
		tell(writev(at.c, v, LONGEST));
}

static void read_all(int fd, void *arg)
{
	static char buf[65536];
	pid_t sleeper = *(pid_t *)arg;
	ssize_t n, sum = 0;

	wait_asleep(sleeper, sleeper);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		sum += n;
	say_result("read", sum);
}

CASE(heap_vectors_sleep, DIRECT)
{
	pid_t pid, self = getpid();

	at.c = peer_start(read_all, &self, &pid);
	in_the_heap(write_long);
	say_told("moved");
	close(at.c);
	say("status %d", child_status(pid));
}

/* ---- others ---- */

static int file;

static void use_others(void)
{
	struct aiocb cb = {.aio_fildes = file, .aio_buf = room, .aio_nbytes = 1};
	const struct aiocb *list[] = {&cb};
	int fd, one = 1, size = 0, fds[2];
	socklen_t len = sizeof(size);
	off_t offset = 0;

	tell(sendfile(at.c, file, &offset, 5000));
	tell(recv(at.s, room, 5000, MSG_WAITALL));
	tell(setsockopt(at.c, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	tell(getsockopt(at.c, SOL_SOCKET, SO_TYPE, &size, &len));
	tell(fcntl(at.c, F_SETFL, fcntl(at.c, F_GETFL)));
	tell(fd = dup(at.c));
	tell(close(fd));
	tell(aio_error(&cb));
	tell(aio_suspend(list, 1, NULL));
	tell(fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	tell(dup2(at.c, fd) == fd);
	tell(shutdown(fd, SHUT_WR));
	tell(close(fd));
	tell(pipe(fds));
	tell(close(fds[0]) + close(fds[1]));
	tell(recv(at.s, room, 1, 0));
}

CASE(heap_others, DIRECT)
{
	at = pair_warm_open();
	file = open("/proc/self/exe", O_RDONLY);
	NEED(file >= 0);
	in_the_heap(use_others);
	say_told("others");
	close(file);
	pair_close(at);
}

/* A connection from its begin to its end. */
static uint16_t port;
static int listener;

static void from_begin(void)
{
	char bytes[200] = "";
	struct pair p;

	for (int i = 0; i < 3; i++) {
		p.c = connect_to(AF_INET, port);
		p.s = accept(listener, NULL, NULL);
		tell(p.c >= 0 && p.s >= 0);
		for (int j = 0; j < 200; j++) {
			write(j % 2 ? p.c : p.s, bytes, sizeof(bytes));
			read(j % 2 ? p.s : p.c, bytes, sizeof(bytes));
		}
		tell(close(p.c));
		tell(read(p.s, bytes, 1));
		tell(close(p.s));
	}
}

CASE(heap_from_begin, DIRECT)
{
	listener = listen_any(AF_INET, &port);
	in_the_heap(from_begin);
	say_told("begun");
	close(listener);
}
