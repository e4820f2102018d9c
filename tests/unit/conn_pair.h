/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the stream: both ends of one TCP connection over loopback in one process,
 * driven as the interposed calls drive them. */
#ifndef VD_TESTS_UNIT_CONN_PAIR_H
#define VD_TESTS_UNIT_CONN_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/fds.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "conn/report.h"
#include "rendezvous/rendezvous.h"
#include "support/stretch.h"
#include "unit/announced.h"
#include "unit/remote_pair.h"

#define PAIR_FN __attribute__((unused)) static

/* A test that hangs ends, and its children. It is the limit that the check gives a test: a busy machine and
 * ThreadSanitizer together make a minute's work of seconds. */
#ifndef PAIR_ALARM_S
#define PAIR_ALARM_S 960
#endif

__attribute__((constructor)) static void pair_settings(void)
{
	setenv("VIADUCT_UPGRADE_AFTER", "0", 1);
	signal(SIGPIPE, SIG_IGN);
	alarm(PAIR_ALARM_S);
}

/* Between two hosts words take their time; the tests mean what they have come to. */
#define AT_ONCE(call)		   (across_settle(), (call), across_settle())
#define sock_service(s, fd)	   AT_ONCE((sock_service)(s, fd))
#define sock_bounce(s, fd)	   AT_ONCE((sock_bounce)(s, fd))
#define sock_down(s, fd, reason)   AT_ONCE((sock_down)(s, fd, reason))
#define sock_refuse(s, fd, reason) AT_ONCE((sock_refuse)(s, fd, reason))
#define rx_open(s, fd)		   AT_ONCE((rx_open)(s, fd))

/* What a direction holds at most. */
PAIR_FN size_t pair_ring_bytes(void)
{
	return across_is_tested() ? ACROSS_PLACE_BYTES : WIRE_DIR_DATA_BYTES;
}

/* ---- what the hooks do, with -errno for errors ---- */

PAIR_FN ssize_t st_recvv(int fd, const struct iovec *iov, int count, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
	for (;;) {
		enum sock_way way = s ? rx_enter(s, fd) : SOCK_PLAIN;
		ssize_t n;
		if (way == SOCK_DIRECT) {
			n = rx_recv(s, fd, iov, count, flags);
			across_settle();
			if (n != SOCK_KERNEL)
				return n;
			s = fd_sock(fd); /* another may be there by now */
			continue;
		}
		across_settle();
		if (way == SOCK_COUNTED)
			crit_leave();
		n = recvmsg(fd, &msg, flags);
		int err = errno;
		if (way == SOCK_COUNTED)
			rx_leave(s, n);
		return n < 0 ? -err : n;
	}
}

PAIR_FN ssize_t st_sendv(int fd, const struct iovec *iov, int count, int flags)
{
	struct sock *s = fd_sock(fd);
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
	for (;;) {
		enum sock_way way = s ? tx_enter(s, fd) : SOCK_PLAIN;
		ssize_t n;
		if (way == SOCK_DIRECT) {
			n = tx_send(s, fd, iov, count, flags);
			across_settle();
			if (n != SOCK_KERNEL)
				return n;
			s = fd_sock(fd); /* another may be there by now */
			continue;
		}
		if (way == SOCK_COUNTED)
			crit_leave();
		n = sendmsg(fd, &msg, flags);
		int err = errno;
		if (way == SOCK_COUNTED)
			tx_leave(s, n);
		return n < 0 ? -err : n;
	}
}

PAIR_FN ssize_t st_recv(int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = {buf, len};
	return st_recvv(fd, &iov, 1, flags);
}

PAIR_FN ssize_t st_send(int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = {(void *)buf, len};
	return st_sendv(fd, &iov, 1, flags);
}

PAIR_FN void st_close(int fd)
{
	if (fd_closing(fd))
		close(fd);
	across_settle();
}

PAIR_FN int st_shutdown(int fd, int how)
{
	struct sock *s = fd_sock(fd);
	int r = s ? sock_shutdown(s, fd, how) : shutdown(fd, how) < 0 ? -errno : 0;
	across_settle();
	return r;
}

PAIR_FN uint32_t st_level(int fd)
{
	across_settle();
	return sock_level(fd_sock(fd), fd);
}

PAIR_FN void st_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	atomic_store(&fd_sock(fd)->slot->nonblock, 1);
	/* It is waited for by calls that come by here. */
	atomic_fetch_or(&fd_sock(fd)->slot->ever, EVER_WAITED);
}

PAIR_FN void st_timeout(int fd, int name, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	REQUIRE(timeout_set(fd_sock(fd), fd, name, &tv, sizeof(tv)) == 0);
}

PAIR_FN pid_t st_fork(void)
{
	fflush(NULL);
	sock_leave_links();
	sock_forking();
	fds_forking();
	pid_t pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		atomic_store(&test_failures, 0);
		alarm(PAIR_ALARM_S);
		lock_forked();
		report_forked();
		fds_forked_child();
		sock_forked_child(false);
		across_world = NULL; /* its contexts are gone here */
	} else {
		fds_forked_parent();
		sock_forked_parent(0);
	}
	return pid;
}

PAIR_FN void st_exit(void)
{
	fflush(NULL);
	_exit(atomic_load(&test_failures) ? 1 : 0);
}

PAIR_FN void st_reap(pid_t pid, int want)
{
	int status = -1;
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), want);
}

/* ---- pairs ---- */

struct pair {
	int a, b; /* connected, accepted */
};

PAIR_FN int pair_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0);
	return fd;
}

/* `before`: what the accepted end does until the connecting one makes its first step. */
PAIR_FN struct pair pair_open_with(void (*before)(int fd))
{
	struct sockaddr_in at;
	int announced, listener;
	struct pair p;
	if (!fd_table_size)
		REQUIRE(fd_table_init() == 0);
	listener = listen_announced(&announced, &at);
	p.a = pair_socket();
	REQUIRE(fd_open_socket(p.a, false));
	fd_connecting(fd_sock(p.a), p.a);
	REQUIRE(connect(p.a, (struct sockaddr *)&at, sizeof(at)) == 0);
	p.b = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(p.b >= 0);
	REQUIRE(fd_open_accepted(p.b, false));
	if (across_is_tested())
		across_meet(fd_sock(p.a), fd_sock(p.b));
	if (before)
		before(p.b);
	/* The hint has to be there until the connector has asked for it. */
	for (int i = 0; i < 4 && phase_of(fd_sock(p.a)->slot) == SLOT_EARNING; i++)
		meeting_step(fd_sock(p.a), p.a, true);
	meet_unannounce(announced);
	close(listener);
	return p;
}

PAIR_FN struct pair pair_open(void)
{
	return pair_open_with(NULL);
}

PAIR_FN bool pair_is_up(const struct pair *p)
{
	struct slot *a = fd_sock(p->a)->slot, *b = fd_sock(p->b)->slot;
	return gate_state(&a->gate_tx) == GATE_RING &&
	       gate_state(&a->gate_rx) == GATE_RING &&
	       gate_state(&b->gate_tx) == GATE_RING &&
	       gate_state(&b->gate_rx) == GATE_RING;
}

/* A forked child has not come to one of the ends yet, or was killed before it could. */
PAIR_FN bool pair_is_forking(const struct pair *p)
{
	return atomic_load(&fd_sock(p->a)->slot->forking) ||
	       atomic_load(&fd_sock(p->b)->slot->forking);
}

PAIR_FN void pair_ping(const struct pair *p)
{
	char byte = 'x';
	REQUIRE(st_send(p->a, &byte, 1, 0) == 1);
	REQUIRE(st_recv(p->b, &byte, 1, 0) == 1);
	REQUIRE(st_send(p->b, &byte, 1, 0) == 1);
	REQUIRE(st_recv(p->a, &byte, 1, 0) == 1);
}

/* Until every byte of both directions goes through the rings. */
PAIR_FN void pair_up(const struct pair *p)
{
	struct slot *a = fd_sock(p->a)->slot, *b = fd_sock(p->b)->slot;
	for (int i = 0; i < 64 && !pair_is_up(p); i++) {
		pair_ping(p);
		across_settle();
	}
	if (!pair_is_up(p))
		fprintf(stderr, "phases %u and %u, reasons %s and %s\n",
			atomic_load(&a->phase), atomic_load(&b->phase),
			reason_name(atomic_load(&a->reason)),
			reason_name(atomic_load(&b->reason)));
	REQUIRE(pair_is_up(p));
	/* As if the two ends were different users'. */
	if (getenv("VD_TEST_FOREIGN")) {
		seen_add(a, SEEN_FOREIGN);
		seen_add(b, SEEN_FOREIGN);
	}
}

PAIR_FN struct pair pair_open_up(void)
{
	struct pair p = pair_open();
	pair_up(&p);
	return p;
}

PAIR_FN void pair_close(const struct pair *p)
{
	if (p->a >= 0)
		st_close(p->a);
	if (p->b >= 0)
		st_close(p->b);
}

/* A test of the stream: leaves no descriptors behind but those that are kept for good; of
 * the sockets kept for errands it depends on the last one whether they are there. */
#define STREAM_TEST(id)                                                                  \
	static void stream_test_##id(void);                                              \
	TEST(id)                                                                         \
	{                                                                                \
		struct pair warm_ = pair_open_up();                                      \
		pair_close(&warm_);                                                      \
		meet_give_back();                                                        \
		FDS_SETTLED();                                                           \
		stream_test_##id();                                                      \
		meet_give_back();                                                        \
	}                                                                                \
	static void stream_test_##id(void)

/* Until what `from` has sent over TCP, if anything, has arrived at `to`. */
PAIR_FN void pair_arrived(int from, int to)
{
	if (gate_state(&fd_sock(from)->slot->gate_tx) == GATE_RING)
		return;
	REQUIRE(poll(&(struct pollfd){.fd = to, .events = POLLIN}, 1, -1) == 1);
}

/* ---- a known stream ---- */

PAIR_FN uint8_t flow_byte(uint64_t at, uint8_t seed)
{
	return (uint8_t)(at * 131 + (at >> 8) * 17 + (at >> 16) * 29 + (at >> 24) + seed);
}

PAIR_FN void flow_fill(uint8_t *to, size_t len, uint64_t at, uint8_t seed)
{
	for (size_t i = 0, n; i < len; i += n) {
		const uint8_t *from =
			stretch(flow_byte(at + i, seed), at + i, len - i, &n);
		memcpy(to + i, from, n);
	}
}

PAIR_FN bool flow_is(const uint8_t *from, size_t len, uint64_t at, uint8_t seed)
{
	size_t i = 0;
	for (size_t n; i < len; i += n) {
		const uint8_t *want =
			stretch(flow_byte(at + i, seed), at + i, len - i, &n);
		if (memcmp(from + i, want, n) != 0)
			break;
	}
	for (; i < len; i++)
		if (from[i] != flow_byte(at + i, seed)) {
			fprintf(stderr, "byte %llu is %u, not %u\n",
				(unsigned long long)(at + i), from[i],
				flow_byte(at + i, seed));
			return false;
		}
	return true;
}

PAIR_FN uint64_t flow_random(uint64_t *state)
{
	uint64_t x = *state;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dull >> 16;
}

#define FLOW_MOST 65536u

/* One call each way: bytes of that stream, all of them. */
PAIR_FN void put(int fd, size_t from, size_t len, uint8_t seed)
{
	uint8_t buf[FLOW_MOST];
	flow_fill(buf, len, from, seed);
	CHECK_EQ(st_send(fd, buf, len, 0), len);
}

PAIR_FN void get(int fd, size_t from, size_t len, uint8_t seed)
{
	uint8_t buf[FLOW_MOST];
	CHECK_EQ(st_recv(fd, buf, len, MSG_WAITALL), len);
	CHECK(flow_is(buf, len, from, seed));
}

struct flow {
	int fd;
	uint64_t at, bytes; /* so far, and until `at` is so much */
	size_t most;	    /* bytes of one call; 0 for FLOW_MOST */
	uint8_t seed;
	pthread_t thread;
	ssize_t result; /* of the last call */
	_Atomic bool done;
};

PAIR_FN void *flow_send(void *arg)
{
	struct flow *f = arg;
	static _Thread_local uint8_t buf[FLOW_MOST];
	uint64_t state = 0x9e3779b9u + f->seed;
	while (f->at < f->bytes) {
		size_t most = f->most ? f->most : 1u << flow_random(&state) % 17;
		size_t len = flow_random(&state) % most + 1;
		if (len > f->bytes - f->at)
			len = (size_t)(f->bytes - f->at);
		flow_fill(buf, len, f->at, f->seed);
		f->result = st_send(f->fd, buf, len, 0);
		if (f->result <= 0)
			break;
		f->at += (uint64_t)f->result;
	}
	atomic_store(&f->done, true);
	return NULL;
}

PAIR_FN void *flow_recv(void *arg)
{
	struct flow *f = arg;
	static _Thread_local uint8_t buf[FLOW_MOST];
	uint64_t state = 0xc2b2ae35u + f->seed;
	while (f->at < f->bytes) {
		size_t most = f->most ? f->most : 1u << flow_random(&state) % 17;
		size_t len = flow_random(&state) % most + 1;
		f->result = st_recv(f->fd, buf, len, 0);
		if (f->result <= 0)
			break;
		REQUIRE(flow_is(buf, (size_t)f->result, f->at, f->seed));
		f->at += (uint64_t)f->result;
	}
	atomic_store(&f->done, true);
	return NULL;
}

PAIR_FN void flow_start(struct flow *f, void *(*fn)(void *))
{
	REQUIRE(pthread_create(&f->thread, NULL, fn, f) == 0);
}

PAIR_FN void flow_join(struct flow *f)
{
	REQUIRE(pthread_join(f->thread, NULL) == 0);
}

/* ---- a call that is expected to block ---- */

struct call {
	int fd, flags;
	void *buf;
	size_t len;
	ssize_t result;
	pthread_t thread;
	_Atomic pid_t tid;
	_Atomic bool done;
};

PAIR_FN void *call_recv(void *arg)
{
	struct call *c = arg;
	atomic_store(&c->tid, gettid());
	c->result = st_recv(c->fd, c->buf, c->len, c->flags);
	atomic_store(&c->done, true);
	return NULL;
}

PAIR_FN void *call_send(void *arg)
{
	struct call *c = arg;
	atomic_store(&c->tid, gettid());
	c->result = st_send(c->fd, c->buf, c->len, c->flags);
	atomic_store(&c->done, true);
	return NULL;
}

/* True while the thread sleeps in a system call. */
PAIR_FN bool call_sleeps(struct call *c)
{
	char path[64], text[256];
	pid_t tid = atomic_load(&c->tid);
	if (!tid)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	char *end = strrchr(text, ')');
	return end && end[2] == 'S';
}

/* Starts the call in a thread, and waits until it sleeps; or until it is over. */
PAIR_FN void call_start(struct call *c, void *(*fn)(void *))
{
	atomic_store(&c->tid, 0);
	atomic_store(&c->done, false);
	REQUIRE(pthread_create(&c->thread, NULL, fn, c) == 0);
	/* Three looks in a row: a short nap of a lock is not meant. */
	for (int seen = 0; seen < 3 && !atomic_load(&c->done);) {
		seen = call_sleeps(c) ? seen + 1 : 0;
		usleep(1000);
	}
}

PAIR_FN ssize_t call_end(struct call *c)
{
	REQUIRE(pthread_join(c->thread, NULL) == 0);
	return c->result;
}

#endif
