/* SPDX-License-Identifier: Apache-2.0 */
/* Calls amid which another thread puts another file at their number. */
#include "unit/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "conn/rx_give.h"
#include "readiness/ready.h"
#include "ring/source.h"
#include "settings/config.h"
#include "unit/conn_pair.h"

struct receiver {
	int fd, flags;
	uint32_t stops_in;
	char got[8];
	ssize_t n;
	_Atomic int listener; /* -1: not yet, -2: there is none */
	bool is_joined;
	pthread_t thread;
};

/* This thread's calls of these two kinds are stopped before the kernel has looked at the number. */
static int stop_in_either(uint32_t call, uint32_t other_call)
{
	struct sock_filter ops[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other_call, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(ops) / sizeof(*ops), ops};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	return listener < 0 ? -2 : (int)listener;
}

static int stop_in(uint32_t call)
{
	return stop_in_either(call, call);
}

static void *receive(void *arg)
{
	struct receiver *r = arg;
	int listener = stop_in(r->stops_in);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		r->n = st_recv(r->fd, r->got, 5, r->flags);
	return NULL;
}

struct taker {
	int fd, other;
	_Atomic bool done;
	pthread_t thread;
};

static void *take_number(void *arg)
{
	struct taker *t = arg;
	st_close(t->fd);
	REQUIRE(dup2(t->other, t->fd) == t->fd);
	atomic_store(&t->done, true);
	return NULL;
}

static void call_stops(int listener, struct seccomp_notif *stopped)
{
	*stopped = (struct seccomp_notif){0};
	REQUIRE(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, stopped) == 0);
}

static void call_goes_on(int listener, const struct seccomp_notif *stopped)
{
	struct seccomp_notif_resp go_on = {.id = stopped->id,
					   .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
	REQUIRE(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on) == 0);
}

/* Meanwhile another thread takes the number, or waits for the lock to do so. */
static void take_stopped(int fd, struct lock *lock, int listener,
			 const struct seccomp_notif *stopped, int other)
{
	static struct taker t;
	t = (struct taker){.fd = fd, .other = other};
	REQUIRE(pthread_create(&t.thread, NULL, take_number, &t) == 0);
	while (!atomic_load(&t.done) && !(atomic_load(&lock->word) & LOCK_WAITERS))
		sched_yield();
	call_goes_on(listener, stopped);
	pthread_join(t.thread, NULL);
}

/* Amid its next such call. */
static void take_amid(struct receiver *r, struct sock *s, int listener, int other)
{
	struct seccomp_notif stopped;
	call_stops(listener, &stopped);
	take_stopped(r->fd, &s->slot->rx_lock, listener, &stopped, other);
}

static void wait_asleep(struct sock *s)
{
	while (atomic_load(&s->sleepers) == 0 || atomic_load(&s->slot->sleepers_rx) == 0)
		usleep(1000);
}

/* The connection goes down for good, while b's receive sleeps. */
static void go_down(struct pair *p)
{
	struct sock *a = fd_sock(p->a), *b = fd_sock(p->b);
	sock_down(a, p->a, VD_REASON_SIGIO);
	while (phase_of(a->slot) != SLOT_FINAL || phase_of(b->slot) != SLOT_FINAL) {
		sock_service(a, p->a);
		sock_service(b, p->b);
		usleep(1000);
	}
}

/* Whoever looks at it for the connection finds bytes. */
static struct pair other_file(void)
{
	int fds[2];
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	REQUIRE(write(fds[0], "wrong", 5) == 5);
	return (struct pair){fds[0], fds[1]};
}

/* Or -2. */
static int start_with(struct receiver *r, void *(*run)(void *))
{
	int listener;
	atomic_store(&r->listener, -1);
	REQUIRE(pthread_create(&r->thread, NULL, run, r) == 0);
	while ((listener = atomic_load(&r->listener)) == -1)
		usleep(1000);
	if (listener < 0)
		pthread_join(r->thread, NULL);
	return listener;
}

static int start(struct receiver *r)
{
	return start_with(r, receive);
}

/* Whatever else of the receive is stopped. */
static void go_on_to_the_end(struct receiver *r, int listener)
{
	struct pollfd stops = {.fd = listener, .events = POLLIN};
	struct seccomp_notif stopped;
	while (pthread_tryjoin_np(r->thread, NULL) != 0) {
		if (poll(&stops, 1, 1) != 1 || !(stops.revents & POLLIN))
			continue;
		call_stops(listener, &stopped);
		call_goes_on(listener, &stopped);
	}
	r->is_joined = true;
}

static void end(struct pair *p, struct receiver *r, int listener, struct pair *other)
{
	if (!r->is_joined)
		pthread_join(r->thread, NULL);
	CHECK_EQ(r->n, 5);
	CHECK(memcmp(r->got, "first", 5) == 0);
	close(listener);
	close(p->b);
	close(other->a);
	close(other->b);
	st_close(p->a);
}

STREAM_TEST(a_number_that_is_taken_amid_a_receive)
{
	struct pair p = pair_open_up();
	struct receiver r = {.fd = p.b, .flags = MSG_WAITALL, .stops_in = SYS_recvmsg};
	struct sock *b = fd_sock(p.b);
	struct pair other = other_file();
	int listener = start(&r);
	if (listener < 0)
		SKIP("no filter of system calls here");
	CHECK_EQ(st_send(p.a, "f", 1, 0), 1);
	while (ring_unread(b->in))
		usleep(1000);
	wait_asleep(b);
	go_down(&p);
	wait_asleep(b);
	CHECK_EQ(st_send(p.a, "irst", 4, 0), 4);
	take_amid(&r, b, listener, other.b);
	end(&p, &r, listener, &other);
}

/* The receive is about to sleep. */
STREAM_TEST(a_number_that_is_taken_before_a_sleep)
{
	struct pair p = pair_open_up();
	struct receiver r = {.fd = p.b, .flags = MSG_WAITALL, .stops_in = SYS_ppoll};
	struct sock *b = fd_sock(p.b);
	struct seccomp_notif stopped;
	struct pair other = other_file();
	int listener = start(&r);
	if (listener < 0)
		SKIP("no filter of system calls here");
	take_amid(&r, b, listener, other.b);
	/* It has found out, and sleeps again. */
	call_stops(listener, &stopped);
	call_goes_on(listener, &stopped);
	CHECK_EQ(st_send(p.a, "first", 5, 0), 5);
	end(&p, &r, listener, &other);
}

/* Nobody knows whether the number was the connection's when the kernel looked at it. */
static void *look(void *arg)
{
	struct receiver *r = arg;
	struct sock *s = fd_sock(r->fd);
	int listener = stop_in(r->stops_in);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		sock_look(s, r->fd);
	return NULL;
}

static void *poll_once(void *arg)
{
	struct receiver *r = arg;
	struct pollfd p = {.fd = r->fd, .events = POLLIN};
	int listener = stop_in(r->stops_in);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		ready_poll(&p, 1, NULL, NULL);
	return NULL;
}

static void take_amid_a_question(void *(*run)(void *), uint32_t call)
{
	struct pair p = pair_open_up();
	struct receiver r = {.fd = p.b, .stops_in = call};
	struct sock *b = fd_sock(p.b);
	struct pair other = other_file();
	int another = fcntl(p.b, F_DUPFD_CLOEXEC, 0), listener;
	fd_duplicated(p.b, another);
	close(other.a); /* so that this one has ended */
	listener = start_with(&r, run);
	if (listener < 0)
		SKIP("no filter of system calls here");
	take_amid(&r, b, listener, other.b);
	go_on_to_the_end(&r, listener);
	CHECK_EQ(seen_of(b->slot) & (SEEN_FIN | SEEN_HUP | SEEN_ERR), 0);
	close(listener);
	close(p.b);
	close(other.b);
	st_close(another);
	st_close(p.a);
}

STREAM_TEST(a_number_that_is_taken_amid_a_look)
{
	take_amid_a_question(look, SYS_poll);
}

STREAM_TEST(a_number_that_is_taken_amid_a_poll)
{
	take_amid_a_question(poll_once, SYS_ppoll);
}

/* It asks about TCP's state behind the question, too, since this end has shut down for reading. */
static void *look_twice(void *arg)
{
	struct receiver *r = arg;
	struct sock *s = fd_sock(r->fd);
	int listener = stop_in_either(SYS_poll, SYS_getsockopt);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		sock_look(s, r->fd);
	return NULL;
}

/* The number is another file's for the question alone. */
STREAM_TEST(a_number_that_comes_back_amid_a_look)
{
	struct pair p = pair_open_up();
	struct receiver r = {.fd = p.b};
	struct sock *b = fd_sock(p.b);
	struct pair other = other_file();
	int another = fcntl(p.b, F_DUPFD_CLOEXEC, 0), listener;
	struct seccomp_notif stopped;
	fd_duplicated(p.b, another);
	close(other.a);
	CHECK_EQ(st_shutdown(p.b, SHUT_RD), 0);
	listener = start_with(&r, look_twice);
	if (listener < 0)
		SKIP("no filter of system calls here");
	take_amid(&r, b, listener, other.b);
	call_stops(listener, &stopped);
	CHECK_EQ(stopped.data.nr, SYS_getsockopt);
	REQUIRE(dup2(another, p.b) == p.b);
	fd_duplicated(another, p.b);
	call_goes_on(listener, &stopped);
	go_on_to_the_end(&r, listener);
	CHECK_EQ(seen_of(b->slot) & (SEEN_FIN | SEEN_HUP | SEEN_ERR), 0);
	close(listener);
	close(other.b);
	st_close(another);
	st_close(p.b);
	st_close(p.a);
}

/* ---- a send ---- */

struct sender {
	int fd, flags;
	uint32_t stops_in;
	_Atomic int listener;
	ssize_t n;
	pthread_t thread;
};

static uint8_t *bulk(void)
{
	static uint8_t bytes[2 * WIRE_DIR_DATA_BYTES];
	return bytes;
}

static size_t bulk_bytes(void)
{
	return 2 * WIRE_DIR_DATA_BYTES;
}

static void *send_bulk(void *arg)
{
	struct sender *r = arg;
	int listener = stop_in(r->stops_in);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		r->n = st_send(r->fd, bulk(), bulk_bytes(), r->flags);
	return NULL;
}

/* It asks whether the connection has ended, and nothing else. The kernel tells of the call: ThreadSanitizer does not know. */
__attribute__((noinline, no_sanitize("thread"))) static bool
asks_for_the_end(const struct seccomp_notif *stopped)
{
	const struct pollfd *p = (const void *)(uintptr_t)stopped->data.args[0];
	return p->events == 0;
}

/* Until it goes on in the kernel. */
static void send_goes_down(struct pair *p, int listener, struct seccomp_notif *stopped)
{
	struct pollfd stops = {.fd = listener, .events = POLLIN};
	sock_down(fd_sock(p->a), p->a, VD_REASON_SIGIO);
	for (;;) {
		sock_service(fd_sock(p->a), p->a);
		if (poll(&stops, 1, 1) != 1)
			continue;
		call_stops(listener, stopped);
		if (asks_for_the_end(stopped))
			return;
		call_goes_on(listener, stopped);
	}
}

/* Until the thread that is stopped has ended. */
static void *let_go_on(void *arg)
{
	struct pollfd stops = {.fd = *(const int *)arg, .events = POLLIN};
	struct seccomp_notif stopped;
	while (poll(&stops, 1, -1) == 1 && (stops.revents & POLLIN)) {
		call_stops(stops.fd, &stopped);
		call_goes_on(stops.fd, &stopped);
	}
	return NULL;
}

STREAM_TEST(a_number_that_is_taken_amid_a_send)
{
	struct pair p = pair_open_up();
	struct sender r = {.fd = p.b, .stops_in = SYS_poll, .listener = -1};
	struct sock *b = fd_sock(p.b);
	struct pair other = other_file();
	struct seccomp_notif stopped;
	static uint8_t got[65536];
	size_t total = 0;
	pthread_t others;
	int listener;
	close(other.a); /* so that this one has ended */
	REQUIRE(pthread_create(&r.thread, NULL, send_bulk, &r) == 0);
	while ((listener = atomic_load(&r.listener)) == -1)
		usleep(1000);
	if (listener < 0) {
		pthread_join(r.thread, NULL);
		SKIP("no filter of system calls here");
	}
	while (atomic_load(&b->sleepers) == 0)
		usleep(1000);
	send_goes_down(&p, listener, &stopped);
	/* It asks before each piece. */
	REQUIRE(pthread_create(&others, NULL, let_go_on, &listener) == 0);
	take_stopped(p.b, &b->slot->tx_lock, listener, &stopped, other.b);
	for (ssize_t n; total < bulk_bytes(); total += (size_t)n) {
		n = st_recv(p.a, got, sizeof(got), 0);
		if (n <= 0)
			break;
	}
	pthread_join(r.thread, NULL);
	pthread_join(others, NULL);
	CHECK_EQ(total, bulk_bytes());
	CHECK_EQ(r.n, bulk_bytes());
	close(listener);
	close(p.b);
	close(other.b);
	st_close(p.a);
}

/* What is left of a send, when its direction is TCP's again, goes to no other connection that has the number by then. */
STREAM_TEST(the_rest_of_a_send_goes_to_no_other_connection)
{
	struct pair p = pair_open_up(), q = pair_open();
	struct sock *s = fd_sock(p.b);
	struct iovec iov = {"rest", 4};
	struct source src = {.from = iov_start(&iov, 1), .left = 4};
	struct wait w = wait_start(s, p.b, EPOLLOUT);
	ssize_t done = 100;
	char byte;
	sock_bounce(s, p.b);
	CHECK_EQ(gate_state(&s->slot->gate_tx), GATE_TCP);
	st_close(p.b);
	REQUIRE(dup2(q.b, p.b) == p.b);
	fd_duplicated(q.b, p.b);
	CHECK(tx_go_on_in_kernel(s, p.b, &w, &src, MSG_DONTWAIT, &done) <= 0);
	CHECK_EQ(done, 100);
	CHECK_EQ(st_recv(q.a, &byte, 1, MSG_DONTWAIT), -EAGAIN);
	wait_finish(&w);
	pair_close(&p);
	pair_close(&q);
}

/* The receiver is ready for the ring, and TCP has some bytes. */
static struct pair pair_ready(size_t tcp)
{
	struct pair p = pair_open();
	struct sock *a = fd_sock(p.a), *b = fd_sock(p.b);
	char got[16];
	uint8_t bytes[64];
	for (int i = 0; i < 64 && phase_of(a->slot) < SLOT_ATTACHED; i++) {
		CHECK_EQ(st_send(p.a, "x", 1, 0), 1);
		CHECK_EQ(st_recv(p.b, got, 1, 0), 1);
	}
	REQUIRE(phase_of(a->slot) == SLOT_ATTACHED && phase_of(b->slot) == SLOT_ATTACHED);
	REQUIRE(gate_state(&a->slot->gate_tx) == GATE_TCP);
	flow_fill(bytes, tcp, 0, 3);
	REQUIRE(send(p.a, bytes, tcp, 0) == (ssize_t)tcp);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
	rx_open(b, p.b);
	REQUIRE(gate_state(&b->slot->gate_rx) == GATE_READY);
	return p;
}

/* A thread that is in the kernel since another file had the number is counted nowhere, and
 * takes bytes before the mark. */
STREAM_TEST(bytes_that_an_uncounted_call_has_taken_are_not_waited_for)
{
	struct pair p = pair_ready(6);
	uint8_t got[16];
	CHECK_EQ(recv(p.b, got, 4, 0), 4);
	put(p.a, 6, 4, 3);
	CHECK_EQ(gate_state(&fd_sock(p.a)->slot->gate_tx), GATE_RING);
	CHECK_EQ(st_recv(p.b, got, 2, 0), 2);
	CHECK(flow_is(got, 2, 4, 3));
	CHECK_EQ(st_recv(p.b, got, sizeof(got), MSG_DONTWAIT), 4);
	CHECK(flow_is(got, 4, 6, 3));
	pair_close(&p);
}

/* ---- a pipe is given bytes of the connection ---- */

static void *give(void *arg)
{
	static char page[4096];
	struct receiver *r = arg;
	int listener = stop_in(SYS_vmsplice);
	atomic_store(&r->listener, listener);
	if (listener >= 0)
		r->n = rx_give(fd_sock(r->fd), r->fd, page, sizeof(page), r->flags);
	return NULL;
}

/* The peer answers between the look at the bytes and their end here. `flags` is the pipe. */
static void give_amid(struct pair *p, void (*answer)(struct pair *p), size_t begin)
{
	struct receiver r = {.fd = p->b};
	struct seccomp_notif stopped;
	uint8_t got[64];
	int ends[2], listener;
	REQUIRE(pipe(ends) == 0);
	r.flags = ends[1];
	listener = start_with(&r, give);
	if (listener < 0)
		SKIP("no filter of system calls here");
	call_stops(listener, &stopped);
	answer(p);
	call_goes_on(listener, &stopped);
	go_on_to_the_end(&r, listener);
	CHECK_EQ(r.n, begin);
	CHECK_EQ(read(ends[0], got, sizeof(got)), begin);
	CHECK(flow_is(got, begin, 0, 3));
	put(p->a, begin, 20, 3);
	get(p->b, begin, 20, 3);
	CHECK_EQ(st_recv(p->b, got, sizeof(got), MSG_DONTWAIT), -EAGAIN);
	close(listener);
	close(ends[0]);
	close(ends[1]);
	pair_close(p);
}

static void refuse(struct pair *p)
{
	sock_down(fd_sock(p->a), p->a, VD_REASON_SPLICE);
}

static void bounce(struct pair *p)
{
	sock_bounce(fd_sock(p->a), p->a);
}

static void go_up(struct pair *p)
{
	CHECK(tx_up(fd_sock(p->a), p->a));
}

STREAM_TEST(a_pipe_gets_bytes_of_tcp_once_as_the_peer_stays_there)
{
	struct pair p = pair_ready(40);
	give_amid(&p, refuse, 40);
}

STREAM_TEST(a_pipe_gets_bytes_of_tcp_once_as_the_peer_goes_up)
{
	struct pair p = pair_ready(40);
	give_amid(&p, go_up, 40);
}

static struct pair pair_with_some_in_the_ring(void)
{
	struct pair p = pair_open_up();
	put(p.a, 0, 40, 3);
	return p;
}

STREAM_TEST(a_pipe_gets_bytes_of_the_ring_once_as_the_peer_leaves_it)
{
	struct pair p = pair_with_some_in_the_ring();
	give_amid(&p, refuse, 40);
	p = pair_with_some_in_the_ring();
	give_amid(&p, bounce, 40);
}
