/* SPDX-License-Identifier: Apache-2.0 */
/* A peer of another user that takes back what it has shown: readiness that has been told holds. */
#include "unit/test.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/kernel.h"
#include "conn/lowat.h"
#include "conn/promise.h"
#include "unit/readiness_pair.h"

/* A call that sleeps for ever ends the test. */
#define ALARM_S 960

__attribute__((constructor)) static void settings(void)
{
	setenv("VIADUCT_SPIN", "0", 1);
	signal(SIGPIPE, SIG_IGN);
	alarm(ALARM_S);
}

/* The end c is hostile; to the end s it is another user's. */
static struct sock_pair open_foreign(void)
{
	struct sock_pair p = pair_raised();

	seen_add(fd_sock(p.s)->slot, SEEN_FOREIGN);
	return p;
}

static struct wire_dir *to_victim(struct sock_pair p)
{
	return fd_sock(p.c)->out;
}

static struct wire_dir *from_victim(struct sock_pair p)
{
	return fd_sock(p.c)->in;
}

static const struct timespec now;

/* ---- the ways to ask: whether `events` are told of fd ---- */

static bool by_poll(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return ready_poll(&p, 1, &now, NULL) == 1 && (p.revents & events);
}

static bool by_select(int fd, short events)
{
	fd_set in, out;

	FD_ZERO(&in);
	FD_ZERO(&out);
	if (events & (POLLIN | POLLRDHUP))
		FD_SET(fd, &in);
	if (events & POLLOUT)
		FD_SET(fd, &out);
	return ready_select(fd + 1, &in, &out, NULL, &now, NULL) == 1;
}

static int open_epoll(int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	int ep = ready_epoll_create(epoll_create1(EPOLL_CLOEXEC));

	REQUIRE(ep >= 0 && ready_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	return ep;
}

static bool by_epoll_with(int fd, uint32_t events)
{
	struct epoll_event ev;
	int ep = open_epoll(fd, events);
	bool told = ready_epoll_wait(ep, &ev, 1, &now, NULL) == 1 && (ev.events & events);

	pair_close_fd(ep);
	return told;
}

static bool by_epoll(int fd, short events)
{
	return by_epoll_with(fd, (uint32_t)events);
}

static bool by_edge(int fd, short events)
{
	return by_epoll_with(fd, (uint32_t)events | EPOLLET);
}

/* An instance within another. */
static bool by_nested(int fd, short events)
{
	int inner = open_epoll(fd, (uint32_t)events), outer = open_epoll(inner, EPOLLIN);
	struct epoll_event ev;
	bool told = ready_epoll_wait(outer, &ev, 1, &now, NULL) == 1;

	told = told && ready_epoll_wait(inner, &ev, 1, &now, NULL) == 1;
	pair_close_fd(outer);
	pair_close_fd(inner);
	return told;
}

static bool by_count(int fd, short events)
{
	int bytes = 0;

	if (events == POLLIN)
		return sock_inq(fd_sock(fd), fd, &bytes) == 0 && bytes > 0;
	return by_poll(fd, events);
}

static bool by_hint(int fd, short events)
{
	return events == POLLIN ? sock_inq_hint(fd_sock(fd), fd) > 0
				: by_poll(fd, events);
}

typedef bool asks(int fd, short events);
static asks *const ways[] = {by_poll,  by_select, by_epoll, by_edge,
			     by_count, by_hint,	  by_nested};
#define WAYS (sizeof(ways) / sizeof(*ways))

/* ---- bytes ---- */

/* What a blocking receive gives at once: bytes, an end or an error. */
static ssize_t read_one(int fd)
{
	char byte;

	return pair_recv(fd, &byte, 1, 0);
}

TEST(bytes_that_are_taken_back)
{
	sock_pair_init();
	for (size_t i = 0; i < WAYS; i++) {
		struct sock_pair p = open_foreign();
		uint64_t at = atomic_load(&to_victim(p)->produced);

		atomic_store(&to_victim(p)->produced, at + 1);
		CHECK(ways[i](p.s, POLLIN));
		atomic_store(&to_victim(p)->produced, at);
		CHECK(by_poll(p.s, POLLIN)); /* also when it is asked again */
		ssize_t n = read_one(p.s);
		CHECK(n == 1 || n == -ECONNRESET);
		pair_close(p);
	}
}

/* The peer can write our own cursor, too. */
TEST(bytes_by_our_own_cursor)
{
	struct sock_pair p = open_foreign();
	uint64_t at = atomic_load(&to_victim(p)->consumed);

	atomic_store(&to_victim(p)->consumed, at - 1);
	CHECK(!by_poll(p.s, POLLIN));
	CHECK(!by_epoll(p.s, POLLIN));
	atomic_store(&to_victim(p)->consumed, at);
	pair_pass(p.c, p.s);
	pair_close(p);
}

TEST(held_bytes_that_are_taken_back)
{
	struct sock_pair p = open_foreign();
	struct wire_dir *d = to_victim(p);

	atomic_store(&d->held_at, atomic_load(&d->produced) + 1);
	atomic_store(&d->held_since_ms, 1);
	CHECK(by_poll(p.s, POLLIN));
	atomic_store(&d->held_since_ms, 0);
	CHECK_EQ(read_one(p.s), 1);
	pair_close(p);
}

/* Back to TCP, where nothing has been sent. */
TEST(bytes_that_are_to_come_over_tcp)
{
	for (int asked = 0; asked < 2; asked++) {
		struct sock_pair p = open_foreign();
		struct wire_dir *d = to_victim(p);
		uint64_t at = atomic_load(&d->produced);

		if (asked)
			sock_hand_over(fd_sock(p.s), p.s, VD_REASON_EXEC);
		atomic_store(&d->produced, at + 1);
		CHECK(by_poll(p.s, POLLIN));
		atomic_store(&d->down_at, at);
		atomic_store(&d->down_epoch, atomic_load(&d->up_epoch));
		CHECK(by_poll(p.s, POLLIN)); /* hears of the mark */
		CHECK_EQ(read_one(p.s), -ECONNRESET);
		CHECK_EQ(read_one(p.s), -ECONNRESET);
		pair_close(p);
	}
}

/* A mark that goes away again, after a part of the bytes before it. */
TEST(a_mark_that_is_taken_back)
{
	struct sock_pair p = open_foreign();
	struct wire_dir *d = to_victim(p);
	uint64_t at = atomic_load(&d->produced);
	int bytes = 0;

	atomic_store(&d->produced, at + 10);
	CHECK_EQ(sock_inq(fd_sock(p.s), p.s, &bytes), 0);
	CHECK_EQ(bytes, 10);
	atomic_store(&d->down_at, at + 1);
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch));
	CHECK(by_poll(p.s, POLLIN)); /* hears of the mark */
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch) - 1);
	for (int i = 0; i < 10; i++) {
		ssize_t n = read_one(p.s);
		CHECK(n == 1 || n == -ECONNRESET);
	}
	pair_close(p);
}

/* ---- the end ---- */

TEST(an_end_that_is_taken_back)
{
	sock_pair_init();
	for (size_t i = 0; i < WAYS; i++) {
		struct sock_pair p = open_foreign();
		struct wire_dir *d = to_victim(p);

		atomic_store(&d->fin, 1);
		CHECK(ways[i](p.s, POLLRDHUP));
		atomic_store(&d->fin, 0);
		CHECK(by_poll(p.s, POLLRDHUP));
		CHECK(by_poll(p.s, POLLIN));
		CHECK_EQ(read_one(p.s), 0);
		/* And nothing comes behind it. */
		atomic_store(&d->produced, atomic_load(&d->produced) + 1);
		CHECK_EQ(read_one(p.s), 0);
		CHECK(by_poll(p.s, POLLIN));
		CHECK_EQ(read_one(p.s), 0);
		pair_close(p);
	}
}

/* Bytes of this end are under way: they are told of once, and by an error. */
TEST(an_end_and_bytes_before_it)
{
	struct sock_pair p = open_foreign();
	struct wire_dir *d = to_victim(p);

	CHECK_EQ(pair_send(p.c, "ab", 2, 0), 2);
	atomic_store(&d->fin, 1);
	CHECK(by_poll(p.s, POLLRDHUP));
	atomic_store(&d->fin, 0);
	CHECK_EQ(read_one(p.s), 1);
	CHECK_EQ(read_one(p.s), 1);
	CHECK_EQ(read_one(p.s), 0);
	pair_close(p);
}

/* It goes back to TCP, and a byte comes that way, but no FIN. */
static void leave_with_a_byte(struct sock_pair p)
{
	struct wire_dir *d = to_victim(p);

	CHECK_EQ(kernel_write(p.c, "x", 1), 1);
	atomic_store(&d->down_at, atomic_load(&d->produced));
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch));
}

TEST(no_bytes_come_behind_an_end_that_was_read)
{
	struct sock_pair p = open_foreign();
	char byte;

	atomic_store(&to_victim(p)->fin, 1);
	CHECK(by_poll(p.s, POLLRDHUP));
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 0);
	leave_with_a_byte(p);
	CHECK(by_poll(p.s, POLLRDHUP));
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), -ECONNRESET);
	pair_close(p);
}

/* Fewer bytes than SO_RCVLOWAT asks for, before a mark that is taken back. */
TEST(few_bytes_before_a_mark_that_goes)
{
	struct sock_pair p = open_foreign();
	struct wire_dir *d = to_victim(p);
	int least = 50;

	CHECK_EQ(pair_send(p.c, "0123456789", 10, 0), 10);
	CHECK_EQ(lowat_put(fd_sock(p.s), p.s, &least, sizeof(least)), 0);
	sock_refuse(fd_sock(p.s), p.s, VD_REASON_OPTION);
	atomic_store(&d->down_at, atomic_load(&d->produced));
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch));
	CHECK(!by_poll(p.s, POLLIN));
	atomic_store(&d->down_epoch, atomic_load(&d->up_epoch) - 1);
	CHECK(!by_poll(p.s, POLLIN));
	CHECK(!by_epoll(p.s, POLLIN));
	pair_close(p);
}

static uint32_t edge_of(int ep)
{
	static const struct timespec at_once;
	struct epoll_event ev = {0};

	return ready_epoll_wait(ep, &ev, 1, &at_once, NULL) == 1 ? ev.events : 0;
}

/* Memory has told of it before; and another call meets the kernel's first. */
TEST(an_end_behind_the_last_bytes_is_an_edge)
{
	struct sock_pair p = pair_raised();
	int ep = ready_epoll_create(epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	struct pollfd end = {.fd = p.s, .events = POLLRDHUP};
	char byte;

	REQUIRE(ep >= 0);
	CHECK_EQ(ready_epoll_ctl(ep, EPOLL_CTL_ADD, p.s, &ev), 0);
	edge_of(ep);
	leave_with_a_byte(p);
	atomic_store(&to_victim(p)->fin, 1);
	CHECK(edge_of(ep) & EPOLLIN);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), -EAGAIN);
	edge_of(ep);
	CHECK_EQ(kernel_write(p.c, "x", 1), 1);
	REQUIRE(kernel_call4(SYS_shutdown, p.c, SHUT_WR, 0, 0) == 0);
	REQUIRE(kernel_poll(&end, 1, -1) == 1);
	sock_look(fd_sock(p.s), p.s);
	CHECK(edge_of(ep) & EPOLLIN);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 0);
	ready_closing(ep);
	close(ep);
	pair_close(p);
}

/* The last byte and the end come over TCP, and another call meets the end before the instance hears. */
static void last_byte_is_met(struct sock_pair p)
{
	struct pollfd end = {.fd = p.s, .events = POLLRDHUP};
	int state = TCP_ESTABLISHED;

	CHECK_EQ(kernel_write(p.c, "x", 1), 1);
	REQUIRE(kernel_call4(SYS_shutdown, p.c, SHUT_WR, 0, 0) == 0);
	REQUIRE(kernel_poll(&end, 1, -1) == 1);
	while (state != TCP_CLOSE_WAIT)
		REQUIRE(tcp_state(p.s, &state) == 0);
	sock_look(fd_sock(p.s), p.s);
}

/* And the kernel's own event of it, or one of room, is no second edge. */
static void last_byte_is_told_once(struct sock_pair p, int ep)
{
	char byte;

	CHECK(edge_of(ep) & EPOLLIN);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(edge_of(ep), 0);
	ready_closing(ep);
	close(ep);
	pair_close(p);
}

/* The kernel tells of our own end as of the peer's. */
TEST(an_end_behind_the_last_bytes_after_our_own_shutdown)
{
	struct sock_pair p = pair_raised();
	int ep = open_epoll(p.s, EPOLLIN | EPOLLRDHUP | EPOLLET);
	char byte;

	edge_of(ep);
	CHECK_EQ(sock_shutdown(fd_sock(p.s), p.s, SHUT_RD), 0);
	while (edge_of(ep))
		;
	leave_with_a_byte(p);
	atomic_store(&to_victim(p)->fin, 1);
	CHECK(edge_of(ep) & EPOLLIN);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 0);
	edge_of(ep);
	last_byte_is_met(p);
	last_byte_is_told_once(p, ep);
}

/* Memory has told of it while there was more in the ring, which is where the kernel's end is told, too. */
TEST(an_end_behind_the_last_bytes_of_ring_and_tcp)
{
	struct sock_pair p = pair_raised();
	int ep = open_epoll(p.s, EPOLLIN | EPOLLRDHUP | EPOLLET);
	char byte;

	edge_of(ep);
	CHECK_EQ(pair_send(p.c, "r", 1, 0), 1);
	leave_with_a_byte(p);
	atomic_store(&to_victim(p)->fin, 1);
	CHECK_EQ(edge_of(ep), EPOLLIN | EPOLLRDHUP);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(pair_recv(p.s, &byte, 1, MSG_DONTWAIT), -EAGAIN);
	edge_of(ep);
	last_byte_is_met(p);
	last_byte_is_told_once(p, ep);
}

/* ---- room ---- */

static void fill(int fd)
{
	static char buf[1 << 20];

	for (int vain = 0; vain < 3; vain++)
		while (pair_send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			vain = 0;
}

TEST(room_that_is_taken_back)
{
	sock_pair_init();
	for (size_t i = 0; i < WAYS; i++) {
		struct sock_pair p = open_foreign();
		struct wire_dir *d = from_victim(p);
		uint64_t at = atomic_load(&d->consumed);

		fill(p.s);
		CHECK(!by_poll(p.s, POLLOUT));
		atomic_store(&d->consumed, atomic_load(&d->produced));
		CHECK(ways[i](p.s, POLLOUT));
		atomic_store(&d->consumed, at);
		ssize_t n = pair_send(p.s, "x", 1, MSG_NOSIGNAL);
		CHECK(n == 1 || n == -ECONNRESET);
		pair_close(p);
	}
}

/* A larger area is room, which the peer's word about its buffer allows, or not. */
TEST(room_in_a_larger_area)
{
	struct sock_pair p = open_foreign();
	struct sock *s = fd_sock(p.s);
	char buf[4096] = "";

	atomic_store(&s->slot->tx_bound, 1);
	while (ring_tx_room_known(&s->slot->tx) > 0)
		REQUIRE(pair_send(p.s, buf, 1024, 0) == 1024);
	CHECK(by_poll(p.s, POLLOUT));
	atomic_store(&from_victim(p)->rx_bound, 1);
	CHECK_EQ(pair_send(p.s, buf, sizeof(buf), 0), sizeof(buf));
	pair_close(p);
}

/* ---- all of it at once, by another thread ---- */

struct fickle {
	struct wire_dir *in, *out; /* as the victim has them */
	_Atomic bool stop;
	pthread_t thread;
	uint64_t state;
};

static uint64_t dice(struct fickle *f)
{
	f->state = f->state * 6364136223846793005ull + 1442695040888963407ull;
	return f->state >> 33;
}

static void pauses(struct fickle *f)
{
	for (uint64_t i = dice(f) % 400; i > 0; i--)
		__builtin_ia32_pause();
}

static void *flip(void *arg)
{
	struct fickle *f = arg;

	while (!atomic_load(&f->stop)) {
		uint64_t at = atomic_load(&f->in->consumed),
			 room = atomic_load(&f->out->consumed);

		switch (dice(f) % 8) {
		case 0:
			atomic_store(&f->in->fin, 1);
			break;
		case 1:
			atomic_store(&f->in->down_at, at + dice(f) % 2);
			atomic_store(&f->in->down_epoch, atomic_load(&f->in->up_epoch));
			break;
		case 2:
			atomic_store(&f->out->consumed, atomic_load(&f->out->produced));
			break;
		default:
			atomic_store(&f->in->produced, at + 1);
			break;
		}
		pauses(f);
		/* And back. */
		atomic_store(&f->in->produced, atomic_load(&f->in->consumed));
		atomic_store(&f->in->fin, 0);
		atomic_store(&f->in->down_epoch, atomic_load(&f->in->up_epoch) - 1);
		atomic_store(&f->out->consumed, room);
		pauses(f);
	}
	return NULL;
}

/* Until the connection has ended. */
static void use(struct sock_pair p, asks *told, int turns)
{
	char c = 'x';

	for (int i = 0; i < turns; i++) {
		if (told(p.s, POLLIN)) {
			ssize_t n = read_one(p.s);

			CHECK(n == 1 || n == 0 || n == -ECONNRESET);
			if (n <= 0)
				return;
		}
		if (told(p.s, POLLOUT)) {
			ssize_t n = pair_send(p.s, &c, 1, MSG_NOSIGNAL);

			CHECK(n == 1 || n == -ECONNRESET || n == -EPIPE);
			if (n <= 0)
				return;
		}
	}
}

#ifdef __SANITIZE_THREAD__
#define ROUNDS 4
/* The other thread is another process in truth. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:sock_drop_segment\n";
}
#else
#define ROUNDS 40
#endif

TEST(words_that_flip_meanwhile)
{
	sock_pair_init();
	for (int round = 0; round < ROUNDS; round++) {
		struct sock_pair p = open_foreign();
		struct fickle f = {.in = fd_sock(p.s)->in,
				   .out = fd_sock(p.s)->out,
				   .state = (uint64_t)round + 1};

		REQUIRE(pthread_create(&f.thread, NULL, flip, &f) == 0);
		use(p, ways[(size_t)round % (WAYS - 1)], 2000);
		atomic_store(&f.stop, true);
		pthread_join(f.thread, NULL);
		pair_close(p);
	}
}
