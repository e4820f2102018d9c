/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a connection whose other end, a process of the same user or of another, writes what it likes to the
 * segment, between the calls and during them, sends over TCP, rings, and goes: src/conn.
 * A call ends; it gives no byte but the peer's: those of its direction in the segment, and what came over TCP.
 * Without lies what poll would say is true; and where the peer is another user's it stays true whatever he writes,
 * as bytes that were shown stay.
 * Not reached: signals, forks, epoll instances, and bells between users (farbell.h). */
#include "fuzz/rig.h"
#include "unit/conn_pair.h"

#include "conn/shown.h"

#include "fuzz/flip.h"

/* Flags of an input. flip.h, if all of CHANGING are set, since it takes long. */
enum { TIMED = 1, FOREIGN = 2, CHANGING = 0x70 };
enum { OPS_MOST = 64, BUF = 100000, GUARD = 64 };
/* What the other end has, what it has written to the segment, and what lies beside ours. */
enum { SENT = 's', SENT_TCP = 't', MINE = 'm', BESIDE = 0xee };

/*
 * The bytes of the other end's direction, in the place of the segment's: each of them is the other end's, so that a
 * liar may have any of them taken, and no other byte is one of theirs. The segment has zeros, and bytes from the
 * pair's beginning. In whole pages, since a ring gives pages back: the kernel refuses that for these.
 */
static struct {
	alignas(4096) uint8_t before[4096];
	uint8_t data[WIRE_DIR_DATA_BYTES];
	uint8_t behind[4096];
} peers;

enum op {
	OP_RECV,
	OP_PEEK,
	OP_SEND,
	OP_LEVEL,
	OP_ASK,
	OP_PEER_SEND,
	OP_PEER_RECV,
	OP_PEER_TCP,
	OP_LIE,
	OP_LIE_NEAR,
	OP_RING,
	OP_SHUT,
	OP_SPOIL,
	OPS
};

static struct pair p;
static bool is_honest; /* no word was a lie */
static bool is_foreign_peer;
static uint32_t told;	    /* of what a call can do, and none has done it yet */
static uint8_t peeked[BUF]; /* by MSG_PEEK */
static size_t peeked_bytes;

__attribute__((constructor)) static void short_spins(void)
{
	setenv("VIADUCT_SPIN", "0", 1);
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t seeds[][32] = {
		{0, OP_PEER_SEND, 100, 0, OP_LEVEL, 0, 0, OP_RECV, 50, 0, OP_RECV, 255,
		 255, OP_SEND, 100, 1, OP_PEER_RECV, 255, 255},
		{TIMED, OP_LIE_NEAR, 0, 10, OP_LEVEL, 0, 0, OP_RECV, 100, 0, OP_SEND, 5,
		 0},
		{0, OP_LIE,  32,  2, 0,	      0,   0, 0,      0, 0,
		 0, OP_SEND, 200, 2, OP_SEND, 200, 2, OP_ASK, 0, 0},
		{TIMED, OP_PEER_TCP, 3, 0, OP_RECV, 9, 9, OP_SHUT, 1, 0, OP_RECV, 1, 1},
		{CHANGING, OP_PEER_SEND, 255, 127, OP_RECV, 255, 3, OP_SEND, 200, 9,
		 OP_LEVEL, 0, 0, OP_RECV, 255, 255},
		{0, OP_PEER_SEND, 255, 255, OP_PEER_SEND, 255, 255, OP_PEEK, 255, 255,
		 OP_RECV, 255, 255, OP_RECV, 255, 255, OP_RING, 0, 0},
		{FOREIGN,  OP_PEER_SEND,
		 100,	   0,
		 OP_LEVEL, 0,
		 0,	   OP_LIE,
		 0,	   0,
		 0,	   0,
		 0,	   0,
		 0,	   0,
		 0,	   OP_RECV,
		 50,	   0},
		{FOREIGN, OP_PEER_SEND, 100, 0, OP_PEEK, 100, 0, OP_SPOIL, 1, 0, OP_RECV,
		 50, 0},
		{CHANGING | FOREIGN, OP_PEER_SEND, 255, 127, OP_PEEK, 255, 3, OP_LEVEL, 0,
		 0, OP_SEND, 200, 9, OP_RECV, 255, 255},
		/* All of the first area, from its second byte to its first: `produced` is said to be there. */
		{0, OP_LIE, 128, 1, 0x40, 0, 0, 0, 0, 0, 0, OP_RECV, 255, 255},
	};

	if (n >= sizeof(seeds) / sizeof(seeds[0]))
		return 0;
	memcpy(out, seeds[n], sizeof(seeds[n]));
	return sizeof(seeds[n]);
}

/* EINTR: libFuzzer has a timer, and a socket with a timeout is not waited for again. */
static bool is_error(ssize_t n)
{
	return n == -EAGAIN || n == -EINTR || n == -ECONNRESET || n == -EPIPE ||
	       n == -ECONNABORTED;
}

/* A part of the bytes has gone over TCP and the rest has not: our end has broken off, and left the ring.
 * What there is no connection for is the kernel's to say. */
static bool is_broken_off(ssize_t n)
{
	struct slot *sl = fd_sock(p.b)->slot;

	return n == -ENOTCONN && (seen_of(sl) & SEEN_BROKEN) &&
	       gate_state(&sl->gate_rx) == GATE_FINAL;
}

static void look(void)
{
	uint32_t level = sock_level(fd_sock(p.b), p.b);

	if (is_foreign_peer)
		told |= level & (EPOLLIN | EPOLLOUT);
}

/* What was shown is what comes. */
static void compare_peeked(const uint8_t *buf, size_t n, bool shows)
{
	size_t same = n < peeked_bytes ? n : peeked_bytes;

	FUZZ_CHECK(memcmp(buf, peeked, same) == 0);
	if (!shows) {
		memmove(peeked, peeked + same, peeked_bytes - same);
		peeked_bytes -= same;
	} else if (n > peeked_bytes) {
		memcpy(peeked, buf, n);
		peeked_bytes = n;
	}
}

static bool are_sent(const uint8_t *buf, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++)
		if (buf[i] != SENT && buf[i] != SENT_TCP) {
			fprintf(stderr, "byte %zd of %zd is %#x\n", i, n, buf[i]);
			return false;
		}
	return true;
}

static void receive(size_t len, int flags)
{
	static uint8_t buf[BUF];
	bool ready = is_honest && sock_level(fd_sock(p.b), p.b) & EPOLLIN;
	ssize_t n;

	ready = ready || told & EPOLLIN;
	memset(buf, BESIDE, len + GUARD);
	n = st_recv(p.b, buf, len, flags);
	FUZZ_CHECK(n <= (ssize_t)len && (n >= 0 || is_error(n) || is_broken_off(n)));
	FUZZ_CHECK(!ready || n != -EAGAIN);
	FUZZ_CHECK(are_sent(buf, n));
	/* Less than a receive has room for is all that it has written; it may have failed amid it. */
	for (size_t i = n > 0 ? (size_t)n : len; i < len + GUARD; i++)
		FUZZ_CHECK(buf[i] == BESIDE);
	if (is_foreign_peer && n > 0)
		compare_peeked(buf, (size_t)n, flags & MSG_PEEK);
	if (n > 0 && !(flags & MSG_PEEK))
		told &= ~(uint32_t)EPOLLIN;
}

static void send_some(size_t len, int flags)
{
	static uint8_t buf[BUF];
	bool ready = told & EPOLLOUT && len > 0;
	ssize_t n;

	memset(buf, MINE, len);
	n = st_send(p.b, buf, len, flags | MSG_NOSIGNAL);
	FUZZ_CHECK(n <= (ssize_t)len && (n >= 0 || is_error(n)));
	FUZZ_CHECK(!ready || n != -EAGAIN);
	if (n > 0)
		told &= ~(uint32_t)EPOLLOUT;
}

static void ask(void)
{
	int bytes = 0;

	if (sock_inq(fd_sock(p.b), p.b, &bytes) == 0)
		FUZZ_CHECK(bytes >= 0);
	(void)sock_outq(fd_sock(p.b), p.b, false, &bytes);
	(void)sock_level_quick(fd_sock(p.b), EPOLLIN | EPOLLOUT);
	(void)sock_edge_in(fd_sock(p.b));
	sock_push(fd_sock(p.b));
}

/* The other end as the library has it, as far as its own lies let it. */
static void peer(enum op op, size_t len)
{
	static uint8_t buf[BUF];

	memset(buf, op == OP_PEER_TCP ? SENT_TCP : SENT, len);
	if (op == OP_PEER_SEND)
		(void)st_send(p.a, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (op == OP_PEER_RECV)
		(void)st_recv(p.a, buf, len, MSG_DONTWAIT);
	else
		(void)send(p.a, buf, len % 100, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void lie(struct fuzz_bytes *b, bool near)
{
	size_t word = fuzz_number(b, 1);
	uint8_t *at = (uint8_t *)fd_sock(p.a)->wire->dir + word * 4;
	uint64_t value;

	memcpy(&value, at, 8);
	value = near ? value + (uint64_t)(int8_t)fuzz_number(b, 1) : fuzz_number(b, 8);
	memcpy(at, &value, word % 2 ? 4 : 8);
	is_honest = false;
}

static void ring(void)
{
	uint64_t much = UINT64_MAX - 1;

	(void)!write(fd_sock(p.b)->bell, &much, sizeof(much));
	(void)!write(fd_sock(p.b)->peer_bell, &much, sizeof(much));
}

static void step(struct fuzz_bytes *b, bool timed, bool spends)
{
	enum op op = (enum op)(fuzz_number(b, 1) % OPS);
	int flags = timed ? 0 : MSG_DONTWAIT;
	size_t len;

	if (op == OP_LIE || op == OP_LIE_NEAR) {
		lie(b, op == OP_LIE_NEAR);
		return;
	}
	len = fuzz_number(b, 2) % (BUF - 100);
	/* What has gone over TCP is not taken back: the pair is spent. */
	if ((op == OP_PEER_TCP || op == OP_SHUT) && !spends)
		return;
	if (op == OP_RECV)
		receive(len, flags | (len % 7 == 0 ? MSG_WAITALL : 0));
	else if (op == OP_PEEK)
		receive(len, MSG_DONTWAIT | MSG_PEEK);
	else if (op == OP_SEND)
		send_some(len, flags | (len % 5 == 0 ? MSG_MORE : 0));
	else if (op == OP_LEVEL)
		look();
	else if (op == OP_SPOIL)
		fd_sock(p.b)->in_data[len % WIRE_AREA0_BYTES] = SENT_TCP;
	else if (op == OP_ASK)
		ask();
	else if (op == OP_RING)
		ring();
	else if (op == OP_SHUT)
		(void)st_shutdown(len & 1 ? p.a : p.b, len & 2 ? SHUT_WR : SHUT_RD);
	else
		peer(op, len);
}

/* ---- a pair that serves many inputs ---- */

/* All that an input can change, as it was when the pair was new. */
static struct end {
	struct sock sock;
	struct slot slot;
	struct tcp_counts tcp;
} was[2];
static struct wire_dir was_dir[2];
static bool is_open;

static void close_pair(void)
{
	static const struct linger reset = {.l_onoff = 1};

	setsockopt(p.a, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	pair_close(&p);
	is_open = false;
}

static void copy_end(int fd, struct end *e)
{
	memcpy((void *)&e->sock, (const void *)fd_sock(fd), sizeof(e->sock));
	memcpy((void *)&e->slot, (const void *)fd_sock(fd)->slot, sizeof(e->slot));
	FUZZ_CHECK(tcp_counts(fd, TCP_ROLE_CONNECTED, &e->tcp) == 0);
}

static void begin_peers(void)
{
	if (peers.before[0] == BESIDE)
		return;
	memset(&peers, BESIDE, sizeof(peers));
	memset(peers.data, SENT, sizeof(peers.data));
}

static void open_pair(void)
{
	p = pair_open_up();
	begin_peers();
	fd_sock(p.a)->out_data = fd_sock(p.b)->in_data = peers.data;
	st_timeout(p.b, SO_RCVTIMEO, 1);
	st_timeout(p.b, SO_SNDTIMEO, 1);
	copy_end(p.a, &was[0]);
	copy_end(p.b, &was[1]);
	memcpy((void *)was_dir, (const void *)fd_sock(p.a)->wire->dir, sizeof(was_dir));
	is_open = true;
}

/* Nothing has happened in the kernel that cannot be taken back. */
static bool is_as_new(int fd, const struct end *e)
{
	const struct sock *s = fd_sock(fd);
	struct tcp_counts now;
	int state;

	return tcp_state(fd, &state) == 0 && state == TCP_ESTABLISHED &&
	       tcp_counts(fd, TCP_ROLE_CONNECTED, &now) == 0 &&
	       now.written == e->tcp.written && now.received == e->tcp.received &&
	       s->wire == e->sock.wire && s->bell == e->sock.bell &&
	       !atomic_load(&s->sleepers) && !atomic_load(&s->inside);
}

static void restore_end(int fd, const struct end *e)
{
	struct sock *s = fd_sock(fd);
	struct shown *memory;
	uint64_t count;

	FUZZ_CHECK(s);
	shown_forget(s);
	memory = s->shown;
	(void)!read(s->bell, &count, sizeof(count));
	memcpy((void *)s, (const void *)&e->sock, sizeof(*s));
	memcpy((void *)s->slot, (const void *)&e->slot, sizeof(*s->slot));
	s->shown = memory;
}

/* With a pair as it was, or a new one. */
static void begin(void)
{
	if (is_open && (!is_as_new(p.a, &was[0]) || !is_as_new(p.b, &was[1])))
		close_pair();
	if (!is_open) {
		open_pair();
		return;
	}
	restore_end(p.a, &was[0]);
	restore_end(p.b, &was[1]);
	memcpy((void *)fd_sock(p.a)->wire->dir, (const void *)was_dir, sizeof(was_dir));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned turn, spender;
	struct fuzz_bytes b = {data, size};
	unsigned flags = (unsigned)fuzz_number(&b, 1);
	bool changing = (flags & CHANGING) == CHANGING;
	bool timed = flags & TIMED && fuzz_is_turn(&turn),
	     spends = fuzz_is_turn(&spender);

	begin();
	is_honest = !changing;
	is_foreign_peer = flags & FOREIGN;
	told = 0;
	peeked_bytes = 0;
	if (is_foreign_peer)
		seen_add(fd_sock(p.b)->slot, SEEN_FOREIGN);
	if (changing)
		flip_begin(fd_sock(p.a)->wire->dir, 2 * sizeof(struct wire_dir),
			   size * 77 + data[size - 1]);
	for (int i = 0; i < OPS_MOST && b.left > 0; i++)
		step(&b, timed, spends);
	if (changing)
		flip_end();
	return 0;
}
