/* SPDX-License-Identifier: Apache-2.0 */
/* A direction that goes back to TCP for a reader who has no ring: what lies unread in the ring
 * is sent once more, over TCP. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <linux/sock_diag.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "conn/area.h"
#include "conn/conn.h"
#include "conn/exec_carry.h"
#include "conn/promise.h"
#include "conn/report.h"
#include "conn/shown.h"
#include "conn/switch.h"

/* What the kernel accounts for beside the bytes of a send buffer, with room to spare. */
#define OVERHEAD(n) ((n) / 8 + 65536)
/* Spans of one sendmsg: more than the runs that three areas can make. */
#define SPANS_MOST 8
/* A sender that was stopped between taking and its mark is not waited for any longer. */
#define SETTLE_NAPS   2000
#define SETTLE_NAP_NS 1000000
/* A sender that is answered by nothing but more bytes does not look at requests. */
#define KEEP_ROUNDS 16

/* ---- the receiver ---- */

/* Shut down both ways, the kernel answers whatever comes with a reset, which takes the program what it can still read. */
static bool is_shut(struct slot *sl)
{
	const uint32_t both = SEEN_SHUT_RD | SEEN_SHUT_WR;
	return (seen_of(sl) & both) == both;
}

/* Requests that the two ends could change their minds about are for one host alone. And what
 * has been shown is to come as it was. */
static bool rewind_may(struct sock *s)
{
	struct slot *sl = s->slot;
	return !gate_is_kernel(gate_state(&sl->gate_rx)) &&
	       !(seen_of(sl) & SEEN_BROKEN) && !peer_is_far(s) &&
	       shown_bytes(s) <= PROMISE_SHOWN_MOST && !is_shut(sl);
}

static bool rewind_want(struct sock *s, int fd, uint32_t want,
			enum slot_rewinding rewinding)
{
	struct slot *sl = s->slot;
	uint32_t before = REWINDING_NOT;
	bool asked;
	lock_take(&sl->rx_lock);
	/* What was kept for a new image, which never began, is to be sent after all. */
	if (load_relaxed(&s->in->kept))
		rewind_settle(s, fd);
	if (!rewind_may(s)) {
		asked = atomic_exchange(&s->in->want_down, WANT_FINAL) == WANT_FINAL;
	} else {
		/* Before the request: who takes from the ring must withdraw it first. */
		if (!atomic_compare_exchange_strong(&sl->rewinding, &before, rewinding) &&
		    rewinding == REWINDING_ASKED)
			atomic_store(&sl->rewinding, REWINDING_ASKED);
		atomic_store(&s->in->consumed, sl->rx.consumed);
		asked = atomic_exchange(&s->in->want_down, want) == want;
	}
	lock_drop(&sl->rx_lock);
	return !asked;
}

bool rewind_again(struct sock *s)
{
	struct slot *sl = s->slot;
	if (load_relaxed(&sl->rewinding) || rx_is_down(s) || !rewind_may(s))
		return false;
	atomic_store(&sl->rewinding, REWINDING_OURS);
	atomic_store(&s->in->consumed, sl->rx.consumed);
	atomic_exchange(&s->in->want_down, WANT_REWIND);
	return true;
}

bool rewind_ask(struct sock *s, int fd)
{
	return rewind_want(s, fd, WANT_REWIND, REWINDING_ASKED);
}

bool rewind_lend(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t want;
	bool asked = false;
	lock_take(&sl->rx_lock);
	want = load_relaxed(&s->in->want_down);
	if (phase_of(sl) != SLOT_ATTACHED || load_relaxed(&s->in->kept) ||
	    want > WANT_BOUNCE) {
		/* What is asked for stands. */
	} else if (gate_state(&sl->gate_rx) == GATE_TCP) {
		/* Nothing to bring down; and it tells the peer that nothing is opened. */
		want = WANT_NOTHING;
		asked = atomic_compare_exchange_strong(&s->in->want_down, &want,
						       WANT_BOUNCE);
	} else if (rewind_may(s) && want != WANT_FINAL && !load_relaxed(&sl->rewinding)) {
		/* As in rewind_want. Not over a request for good, which is made without the lock. */
		atomic_store(&sl->rewinding, REWINDING_ASKED);
		atomic_store(&s->in->consumed, sl->rx.consumed);
		asked = atomic_compare_exchange_strong(&s->in->want_down, &want,
						       WANT_LEND);
		if (!asked)
			atomic_store(&sl->rewinding, REWINDING_NOT);
	}
	lock_drop(&sl->rx_lock);
	return asked;
}

bool rewind_ask_own(struct sock *s, int fd)
{
	return rewind_want(s, fd, WANT_REWIND, REWINDING_OURS);
}

bool rewind_ask_yielding(struct sock *s, int fd)
{
	return rewind_want(s, fd, WANT_YIELD, REWINDING_OURS);
}

void rewind_is_last(struct sock *s, bool last)
{
	uint32_t before = last ? WANT_REWIND : WANT_LAST;
	if (!last || slot_is_alone(s->slot))
		atomic_compare_exchange_strong(&s->in->want_down, &before,
					       last ? WANT_LAST : WANT_REWIND);
}

static void settle_nap(void)
{
	const struct timespec nap = {.tv_nsec = SETTLE_NAP_NS};
	kernel_call4(SYS_nanosleep, (long)&nap, 0, 0, 0);
}

/* Until the sender is not in the middle of an answer. False: it never will be out of it. */
static bool is_settled(struct sock *s)
{
	for (int naps = 0; naps < SETTLE_NAPS; naps++) {
		uint32_t state = atomic_load(&s->in->rewind);
		if (state == REWIND_IDLE || rx_is_down(s))
			return true;
		if (state == REWIND_BROKEN)
			return false;
		/* Its owner may have died: another process is to go on. */
		bell_ring_peer(s);
		settle_nap();
	}
	return false;
}

void rewind_closing(struct sock *s)
{
	uint32_t want = WANT_REWIND;
	if (load_relaxed(&s->slot->rewinding) != REWINDING_ASKED || rx_is_down(s))
		return;
	/* As in rewind_settle: either the sender finds this, or it is found taking, and
	 * then its mark is waited for. */
	atomic_compare_exchange_strong(&s->in->want_down, &want, WANT_LAST);
	is_settled(s);
}

int rewind_settle(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	/* Another thread is in exec: this one ends with it, or gets the bytes back. */
	for (int naps = 0; atomic_load(&sl->rewinding) == REWINDING_KEPT; naps++) {
		if (naps == SETTLE_NAPS)
			goto broken;
		settle_nap();
	}
	/* Sequentially consistent against rewind_answer: it says that it takes, then looks
	 * here; so either it finds the request withdrawn, or we find it taking. */
	uint32_t lend = WANT_LEND;
	if (!atomic_compare_exchange_strong(&s->in->want_down, &lend, WANT_BOUNCE))
		atomic_exchange(&s->in->want_down, WANT_FINAL);
	if (!is_settled(s))
		goto broken;
	atomic_store(&s->in->kept, 0);
	/* A mark that answers it is believed while the request can be seen. */
	int r = rx_advance(s, fd);
	atomic_store(&sl->rewinding, REWINDING_NOT);
	return r;
broken:
	/* Nobody knows how many of the bytes have gone over TCP. */
	sock_break(s, VD_REASON_BYPASS);
	return -ECONNRESET;
}

void rewind_is_shut(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!is_shut(sl))
		return;
	lock_take(&sl->rx_lock);
	uint32_t rewinding = load_relaxed(&sl->rewinding);
	if (rewinding == REWINDING_ASKED || rewinding == REWINDING_OURS)
		rewind_settle(s, fd);
	lock_drop(&sl->rx_lock);
}

void sock_keep_over(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!sock_is_direct(s) || load_relaxed(&sl->rewinding) != REWINDING_ASKED)
		return;
	lock_take(&sl->rx_lock);
	if (sock_has(s, fd) && load_relaxed(&sl->rewinding) == REWINDING_ASKED)
		rewind_settle(s, fd);
	lock_drop(&sl->rx_lock);
}

/* All that can be seen in the ring, what is held back included. */
static int64_t look_at_ring(struct sock *s)
{
	struct ring_rx *rx = &s->slot->rx;
	if (ring_rx_avail(rx, s->in, SIZE_MAX) < 0 || ring_rx_take_held(rx, s->in) < 0) {
		sock_break(s, VD_REASON_CORRUPT);
		return -ECONNRESET;
	}
	return ring_rx_avail(rx, s->in, SIZE_MAX);
}

static int64_t before_mark(struct sock *s, int64_t n)
{
	uint64_t end = load_relaxed(&s->in->down_at);
	uint64_t count = end - s->slot->rx.consumed;
	if (count > (uint64_t)n) {
		sock_break(s, VD_REASON_CORRUPT);
		return -ECONNRESET;
	}
	return (int64_t)count;
}

int64_t rewind_keep(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	for (int rounds = 0; rounds < KEEP_ROUNDS; rounds++) {
		/* With no request, and nobody taking: so whoever takes later, at whatever
		 * request, finds `kept` as it is from here on. */
		if (rewind_settle(s, fd) < 0)
			return -ECONNRESET;
		if (gate_is_kernel(gate_state(&sl->gate_rx)))
			return 0;
		bool down = rx_is_down(s);
		if (!down && peer_is_far(s))
			return -EAGAIN; /* more may be on its way */
		int64_t n = look_at_ring(s);
		if (down && n > 0)
			n = before_mark(s, n);
		if (n <= 0)
			return n;
		if (down) {
			atomic_store(&sl->rewinding, REWINDING_KEPT);
			return n;
		}
		atomic_store(&s->in->kept, sl->rx.consumed + (uint64_t)n);
		atomic_store(&sl->rewinding, REWINDING_ASKED);
		atomic_store(&s->in->consumed, sl->rx.consumed);
		atomic_exchange(&s->in->want_down, WANT_LAST);
		/* More was sent by somebody who may have ended without having seen it. Nobody
		 * has: then every mark from here on is here. */
		if (look_at_ring(s) == n) {
			atomic_store(&sl->rewinding, REWINDING_KEPT);
			return n;
		}
	}
	return -EAGAIN;
}

void rewind_unkeep(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t kept = REWINDING_KEPT;
	/* Without the lock: who has it may be waiting for this. */
	atomic_compare_exchange_strong(&sl->rewinding, &kept, REWINDING_ASKED);
	lock_take(&sl->rx_lock);
	if (atomic_load(&sl->rewinding))
		rewind_settle(s, fd);
	lock_drop(&sl->rx_lock);
}

/* ---- the sender, all under tx_lock ---- */

/* Not by SEEN_SHUT_WR: who sets it may still be on the way here. */
static bool is_ended(struct sock *s)
{
	return (seen_of(s->slot) & (SEEN_HUP | SEEN_ERR | SEEN_BROKEN)) ||
	       load_relaxed(&s->out->fin);
}

/* The send buffer takes n bytes more, without anybody reading; and what was told to have room still
 * has. */
static bool fits(struct sock *s, int fd, uint64_t n)
{
	uint32_t mem[SK_MEMINFO_VARS] = {0};
	socklen_t len = sizeof(mem);
	/* Of a table that lies, the sum below might say less. */
	if (n > WIRE_DIR_DATA_BYTES)
		return false;
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_MEMINFO, mem, &len) < 0 ||
	    len <= SK_MEMINFO_WMEM_QUEUED * sizeof(mem[0]))
		return false;
	/* The kernel tells of room up to two thirds. */
	uint64_t most = is_foreign(s) ? mem[SK_MEMINFO_SNDBUF] / 3 * 2ull
				      : mem[SK_MEMINFO_SNDBUF];
	return n + OVERHEAD(n) + mem[SK_MEMINFO_WMEM_QUEUED] <= most;
}

/* One sendmsg of what is unread, of n bytes, from `skip` to `end`. A count or -errno. */
static ssize_t send_unread(struct sock *s, int fd, uint64_t skip, uint64_t end,
			   uint64_t n, int more)
{
	struct iovec iov[SPANS_MOST];
	struct msghdr msg = {.msg_iov = iov};
	while (skip < end && msg.msg_iovlen < SPANS_MOST) {
		struct ring_span span;
		ring_tx_unread_span_within(&s->slot->tx, s->out_data, areas_of(s),
					   n - skip, &span);
		if (span.len > end - skip)
			span.len = end - skip;
		iov[msg.msg_iovlen++] = (struct iovec){span.data, span.len};
		skip += span.len;
	}
	/* Not through libc, where it would be a point of cancellation. */
	return kernel_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | more);
}

static uint64_t resend_to(struct sock *s, int fd, uint64_t done, uint64_t end, uint64_t n,
			  int more)
{
	while (done < end) {
		ssize_t sent = send_unread(s, fd, done, end, n, more);
		if (sent <= 0)
			break;
		report_add(&report_now.tx_tcp_bytes, (uint64_t)sent);
		done += (uint64_t)sent;
	}
	return done;
}

/*
 * The bytes from `done` to n. Returns how far it came. What the peer could read it is to find again: no cork holds that
 * back, nor Nagle's algorithm. The last `held` bytes wait on as they did.
 */
static uint64_t resend(struct sock *s, int fd, uint64_t done, uint64_t n, uint64_t held)
{
	uint64_t seen = n - (held < n ? held : n);
	int before = 0, unbounded = -1;
	socklen_t len = sizeof(before);
	/* A low-water mark of unsent bytes would end the send early. */
	REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &before, &len);
	REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unbounded, sizeof(before));
	done = resend_to(s, fd, done, seen, n, 0);
	if (seen > 0)
		tcp_push_held(fd);
	if (done >= seen)
		done = resend_to(s, fd, done, n, n, MSG_MORE);
	REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &before, sizeof(before));
	return done;
}

/* A part of the bytes is on TCP and the rest is not: neither path can go on. */
static void break_off(struct sock *s, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	atomic_store(&s->out->rewind, REWIND_BROKEN);
	sock_break(s, VD_REASON_MEMORY);
	if (fd >= 0)
		kernel_connect(fd, &nobody, sizeof(nobody));
}

/* How many of the unread bytes a dead owner had sent already; or -1, unknown. */
static int64_t sent_before(struct sock *s, int fd)
{
	uint64_t written, mark;
	if (fd < 0 || tcp_written(fd, atomic_load(&s->slot->role), &written) < 0)
		return -1;
	mark = load_relaxed(&s->out->up_at);
	return written - mark <= WIRE_DIR_DATA_BYTES ? (int64_t)(written - mark) : -1;
}

bool rewind_is_due(struct sock *s)
{
	return load_relaxed(&s->out->rewind) != REWIND_IDLE ||
	       load_relaxed(&s->out->want_down) >= WANT_REWIND;
}

bool rewind_answer(struct sock *s, int fd, uint64_t held, uint64_t *end)
{
	struct ring_tx *tx = &s->slot->tx;
	uint64_t unread, got = 0;
	*end = tx->produced;
	if (peer_is_far(s) && !rewind_is_due(s))
		return true;
	/*
	 * TAKING before the look at the request, and until the mark is there: see rewind_settle, and
	 * rewind_closing. A request that comes behind a look without it would be answered by nobody.
	 * Not IDLE: an owner died.
	 */
	bool begun = atomic_exchange(&s->out->rewind, REWIND_TAKING) != REWIND_IDLE;
	uint32_t want = atomic_load(&s->out->want_down);
	if (!begun && want < WANT_REWIND)
		return true;
	if (ring_tx_unread(tx, s->out, &unread) < 0) {
		sock_break(s, VD_REASON_CORRUPT);
		return true;
	}
	int64_t done = sent_before(s, fd);
	if (begun && (done < 0 || (uint64_t)done > unread)) {
		break_off(s, fd);
		return false;
	}
	if (done > 0 ? begun
		     : done == 0 && want >= WANT_REWIND && !is_ended(s) &&
			       fits(s, fd, unread))
		got = resend(s, fd, (uint64_t)done, unread, held);
	if (got == unread) {
		*end = tx->produced - unread;
		if (unread > 0)
			log_debug("fd %d: sends %llu unread bytes again over TCP", fd,
				  (unsigned long long)unread);
		return true;
	}
	/* What is refused stays in the ring, as in every other way down, for who has it. */
	if (got == 0 && want != WANT_LAST)
		return true;
	break_off(s, fd);
	return false;
}

bool rewind_answered(struct sock *s)
{
	uint64_t end = load_relaxed(&s->out->down_at);
	struct ring_tx *tx = &s->slot->tx;
	if (load_relaxed(&s->out->rewind) != REWIND_TAKING)
		return false;
	/* The peer may have written there, but only what lies unread can have moved. */
	bool back = end != tx->produced;
	if (back && tx->produced - end <= WIRE_DIR_DATA_BYTES)
		ring_tx_rewind(tx, s->out, end);
	/* Release: whoever finds it IDLE finds the mark. */
	store_release(&s->out->rewind, REWIND_IDLE);
	return back;
}
