/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that writes anything anywhere into the segment: the victim neither crashes nor hangs. */
#include "unit/test.h"

#include "unit/conn_pair.h"

__attribute__((constructor)) static void short_spins(void)
{
	setenv("VIADUCT_SPIN", "20", 1);
}

#ifdef __SANITIZE_THREAD__
#define SCALE 4
/* The vandal is another process in truth. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:sock_drop_segment\nrace:fds_close\nrace:st_close\n";
}
#else
#define SCALE 1
#endif

/* Words that the attacker can reach and the victim reads: all of both directions. */
#define WORDS (2 * sizeof(struct wire_dir) / sizeof(uint32_t))

static _Atomic uint32_t *word_of(const struct pair *p, size_t i)
{
	return (_Atomic uint32_t *)fd_sock(p->a)->wire->dir + i;
}

/* ENOTCONN: behind the error of one that is broken off, which dissolves it. */
static bool is_result(ssize_t n)
{
	return n >= 0 || n == -EAGAIN || n == -ECONNRESET || n == -EPIPE ||
	       n == -ENOTCONN;
}

/* Everything that a program can do with its end, each a bounded number of times. */
static void use(int fd, uint64_t *state)
{
	static _Thread_local uint8_t buf[300000];
	size_t len = flow_random(state) % (1u << flow_random(state) % 18) + 1;
	uint64_t dice = flow_random(state);
	int bytes;
	switch (dice % 8) {
	case 0:
		REQUIRE(is_result(st_recv(fd, buf, len, 0))); /* until its timeout */
		break;
	case 1:
		REQUIRE(is_result(st_recv(fd, buf, len, MSG_DONTWAIT | MSG_PEEK)));
		break;
	case 2:
		REQUIRE(is_result(st_recv(fd, buf, len, MSG_WAITALL)));
		break;
	case 3:
		REQUIRE(is_result(st_send(fd, buf, len, MSG_NOSIGNAL)));
		break;
	case 4:
		REQUIRE(is_result(st_send(fd, buf, len, MSG_DONTWAIT | MSG_MORE)));
		break;
	case 5:
		(void)sock_level(fd_sock(fd), fd);
		(void)sock_level_quick(fd_sock(fd), EPOLLIN | EPOLLOUT);
		(void)sock_edge_in(fd_sock(fd));
		break;
	case 6:
		(void)sock_inq(fd_sock(fd), fd, &bytes);
		(void)sock_outq(fd_sock(fd), fd, false, &bytes);
		sock_push(fd_sock(fd));
		break;
	default:
		REQUIRE(is_result(st_recv(fd, buf, len, MSG_DONTWAIT)));
		break;
	}
}

static struct pair open_victim(void)
{
	struct pair p = pair_open_up();
	st_timeout(p.b, SO_RCVTIMEO, 1);
	st_timeout(p.b, SO_SNDTIMEO, 1);
	return p;
}

static void each_word(size_t step, size_t size)
{
	const uint64_t values[] = {2, UINT64_MAX / 2};
	uint64_t state = 5;
	for (size_t i = 0; i < WORDS; i += step * SCALE) {
		for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++) {
			struct pair p = open_victim();
			CHECK_EQ(st_send(p.a, "some bytes", 10, MSG_DONTWAIT), 10);
			if (size == 8)
				*(_Atomic uint64_t *)word_of(&p, i) = values[v];
			else
				atomic_store(word_of(&p, i), (uint32_t)values[v]);
			for (int k = 0; k < 5; k++)
				use(p.b, &state);
			pair_close(&p);
		}
	}
}

/* One lie, told once: no call loops over it. */
STREAM_TEST(each_long_word)
{
	each_word(2, 8);
}

STREAM_TEST(each_short_word)
{
	each_word(1, 4);
}

/* Several of them together, by their meaning. */
static void lie(struct wire_dir *d, uint64_t *state)
{
	uint64_t r = flow_random(state);
	switch (flow_random(state) % 15) {
	case 0:
		atomic_store(&d->produced, atomic_load(&d->produced) + r % 20000);
		break;
	case 1:
		atomic_store(&d->consumed, atomic_load(&d->produced) - r % 20000);
		break;
	case 2:
		atomic_store(&d->fin, r & 1);
		break;
	case 3:
		atomic_store(&d->down_at, atomic_load(&d->produced) + r % 3 - 1);
		atomic_store(&d->down_epoch, atomic_load(&d->ready_epoch) - (r >> 8) % 2);
		break;
	case 4:
		atomic_store(&d->up_at, r % 200);
		atomic_store(&d->up_epoch, atomic_load(&d->ready_epoch) + (r >> 8) % 2);
		break;
	case 5:
		atomic_store(&d->ready_epoch, atomic_load(&d->down_epoch) + (r & 1));
		break;
	case 6:
		atomic_store(&d->want_down, r % 6);
		break;
	case 7:
		atomic_store(&d->held_at, atomic_load(&d->produced) + r % 40000);
		atomic_store(&d->held_since_ms, 1);
		break;
	case 8: {
		uint32_t seq = atomic_load(&d->turn_seq) + 1;
		atomic_store(&d->turn_at[seq % WIRE_TURNS],
			     atomic_load(&d->produced) + r % 30);
		atomic_store(&d->turn_area[seq % WIRE_TURNS], (uint32_t)(r >> 8) % 4);
		atomic_store(&d->turn_seq, seq);
		break;
	}
	case 9:
		atomic_store(&d->rx_armed, (uint32_t)r);
		atomic_store(&d->tx_armed, (uint32_t)(r >> 8));
		break;
	case 10:
		atomic_store(&d->fin, 1);
		atomic_store(&d->held_at, r);
		break;
	case 11:
		atomic_store((_Atomic uint32_t *)d + r % 128, (uint32_t)(r >> 16));
		break;
	case 12:
		atomic_store(&d->rewind, r % 4);
		break;
	default: /* bytes that are as they should be, so that it goes on */
		break;
	}
}

STREAM_TEST(lies_between_the_calls)
{
	uint64_t state = 77;
	for (int round = 0; round < 120 / SCALE; round++) {
		struct pair p = open_victim();
		for (int k = 0; k < 30; k++) {
			use(p.b, &state);
			lie(&fd_sock(p.a)->wire->dir[flow_random(&state) % 2], &state);
		}
		pair_close(&p);
	}
}

struct vandal {
	struct wire *wire;
	uint64_t state;
	_Atomic bool stop;
	pthread_t thread;
};

static void *vandalise(void *arg)
{
	struct vandal *v = arg;
	while (!atomic_load(&v->stop))
		lie(&v->wire->dir[flow_random(&v->state) % 2], &v->state);
	return NULL;
}

STREAM_TEST(lies_during_the_calls)
{
	uint64_t state = 99;
	for (int round = 0; round < 60 / SCALE; round++) {
		struct pair p = open_victim();
		struct vandal v = {.wire = fd_sock(p.a)->wire,
				   .state = (uint64_t)round + 1};
		REQUIRE(pthread_create(&v.thread, NULL, vandalise, &v) == 0);
		for (int k = 0; k < 40; k++)
			use(p.b, &state);
		atomic_store(&v.stop, true);
		pthread_join(v.thread, NULL);
		pair_close(&p);
	}
}

/* ---- special cunning ---- */

/* A blocked call stays interruptible, and ends with the connection, whatever is promised. */
static void check_blocked_call_ends(struct pair *p, void *(*fn)(void *))
{
	static uint8_t buf[2 * WIRE_DIR_DATA_BYTES];
	struct call c = {
		.fd = p->b, .buf = buf, .len = fn == call_send ? sizeof(buf) : 1};
	st_timeout(p->b, SO_RCVTIMEO, 100);
	st_timeout(p->b, SO_SNDTIMEO, 100);
	REQUIRE(pthread_create(&c.thread, NULL, fn, &c) == 0);
	REQUIRE(is_result(call_end(&c))); /* at the latest by its timeout */
}

STREAM_TEST(promises_without_bytes)
{
	for (int kind = 0; kind < 8; kind++) {
		struct pair p = open_victim();
		struct wire_dir *in = fd_sock(p.b)->in, *out = fd_sock(p.b)->out;
		switch (kind) {
		case 0: /* our own cursor, as if there were something unread */
			atomic_store(&in->consumed, atomic_load(&in->produced) - 5);
			break;
		case 1: /* down, of an epoch that is not */
			atomic_store(&in->up_epoch, 77);
			atomic_store(&in->down_epoch, 77);
			break;
		case 2: /* held back, and due */
			atomic_store(&in->held_at, atomic_load(&in->produced) + 100000);
			atomic_store(&in->held_since_ms, 1);
			break;
		case 3: /* bounce, again and again */
			atomic_store(&out->want_down, 2);
			break;
		case 4:
			atomic_store(&in->fin, 1);
			atomic_store(&in->held_at, UINT64_MAX / 3);
			break;
		case 5: /* the sender's own record of epochs */
			atomic_store(&out->up_epoch, 1000);
			break;
		case 6:
			atomic_store(&out->down_epoch, 1000);
			break;
		default:
			atomic_store(&out->produced, 0);
			atomic_store(&out->consumed, 0);
		}
		check_blocked_call_ends(&p, call_recv);
		check_blocked_call_ends(&p, call_send);
		pair_close(&p);
	}
}

/* READY, and TCP bytes that never come. */
STREAM_TEST(a_mark_that_is_never_reached)
{
	struct pair p = open_victim();
	struct slot *b = fd_sock(p.b)->slot;
	sock_bounce(fd_sock(p.a), p.a);
	sock_service(fd_sock(p.b), p.b);
	sock_service(fd_sock(p.a), p.a);
	rx_open(fd_sock(p.b), p.b);
	REQUIRE(gate_state(&b->gate_rx) == GATE_READY);
	uint64_t consumed;
	REQUIRE(tcp_consumed(p.b, &consumed) == 0);
	atomic_store(&fd_sock(p.b)->in->up_at, consumed + 100);
	atomic_store(&fd_sock(p.b)->in->up_epoch, b->rx_epoch);
	check_blocked_call_ends(&p, call_recv);
	pair_close(&p);
}

/* An urgent byte stops the kernel's count of what is queued. */
STREAM_TEST(an_urgent_byte_past_us)
{
	for (int ready = 0; ready < 2; ready++) {
		struct pair p = open_victim();
		if (ready) {
			sock_bounce(fd_sock(p.a), p.a);
			sock_service(fd_sock(p.b), p.b);
			sock_service(fd_sock(p.a), p.a);
			rx_open(fd_sock(p.b), p.b);
			REQUIRE(gate_state(&fd_sock(p.b)->slot->gate_rx) == GATE_READY);
		}
		REQUIRE(send(p.a, "u", 1, MSG_OOB) == 1);
		REQUIRE(send(p.a, "past the mark", 13, 0) == 13);
		REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
		for (int i = 0; i < 5; i++) {
			check_blocked_call_ends(&p, call_recv);
			check_blocked_call_ends(&p, call_send);
		}
		pair_close(&p);
	}
}

/* Bytes on TCP behind the mark: never taken for the stream's. */
STREAM_TEST(bytes_past_the_mark)
{
	struct pair p = open_victim();
	char buf[64];
	REQUIRE(st_send(p.a, "ring", 4, 0) == 4);
	REQUIRE(send(p.a, "bypass", 6, 0) == 6);
	REQUIRE(poll(&(struct pollfd){.fd = p.b, .events = POLLIN}, 1, -1) == 1);
	CHECK_EQ(st_recv(p.b, buf, 4, 0), 4);
	CHECK(memcmp(buf, "ring", 4) == 0);
	st_timeout(p.b, SO_RCVTIMEO, 0);
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), 0), -ECONNRESET);
	/* It is over: nothing more is taken from anywhere. */
	REQUIRE(st_send(p.a, "ring", 4, 0) == 4);
	CHECK_EQ(st_recv(p.b, buf, sizeof(buf), 0), -ECONNRESET);
	CHECK(is_result(st_send(p.b, "x", 1, MSG_NOSIGNAL)));
	pair_close(&p);
}

/* Doorbells that ring without a reason, and one that is full. */
STREAM_TEST(bells)
{
	struct pair p = open_victim();
	uint64_t much = UINT64_MAX - 1;
	char byte;
	REQUIRE(write(fd_sock(p.b)->bell, &much, 8) == 8);
	CHECK_EQ(st_recv(p.b, &byte, 1, 0), -EAGAIN);
	/* What the victim writes to never blocks it. */
	REQUIRE(write(fd_sock(p.b)->peer_bell, &much, 8) == 8);
	for (int i = 0; i < 5; i++) {
		atomic_store(&fd_sock(p.b)->out->rx_armed, (uint32_t)i + 1);
		CHECK_EQ(st_send(p.b, &byte, 1, 0), 1);
	}
	CHECK_EQ(st_recv(p.a, &byte, 1, 0), 1);
	pair_close(&p);
}
