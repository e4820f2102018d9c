/* SPDX-License-Identifier: Apache-2.0 */
/* TCP_INFO and SO_MEMINFO of a connection on the ring: what the kernel has not seen of it. */
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "conn/conn.h"

/*
 * Programs end connections that have been idle for long by the times in TCP_INFO. To know when a
 * byte was last sent costs a send some nanoseconds. So sends note it where these do not matter: the
 * first ones after the upgrade, all after a sleep for the connection, and all that come less often
 * than each RARE_TICKS / LOOK_INTERVAL. Where more of them follow each other they stop (TX_TIMED,
 * sent_tick 0) until somebody has asked. Who asks first amid that is told that the connection is
 * busy, and when it was last so from then on.
 */

/* LOOK_INTERVAL sends in less time than this, some 20 ms, are many. */
#define RARE_TICKS 64u
/* No time is known that is shorter than the kernel's. */
#define NO_AGE UINT32_MAX
/* Of two processors one may be so far ahead. */
#define SKEW_TICKS 16u

/* What a tick is worth: both clocks as of the first connection on a ring. */
static _Atomic uint64_t first_tsc, first_ns;
/* The program has asked for TCP_INFO. */
static _Atomic bool is_asked;

static void know_clocks(void)
{
	uint64_t none = 0;
	if (atomic_load(&first_ns) == 0 &&
	    atomic_compare_exchange_strong(&first_tsc, &none, __rdtsc()))
		atomic_store(&first_ns, clock_now_ns());
}

static uint32_t age_ms(uint32_t tick)
{
	uint64_t ns = atomic_load(&first_ns), tsc = atomic_load(&first_tsc);
	uint32_t ticks = wire_tick() - tick;
	uint64_t ran = __rdtsc() - tsc;
	if (ns == 0 || ran == 0 || ticks > UINT32_MAX - SKEW_TICKS)
		return 0;
	unsigned __int128 age = (unsigned __int128)((uint64_t)ticks << WIRE_TICK_SHIFT) *
				(clock_now_ns() - ns) / ran / 1000000;
	return age < NO_AGE ? (uint32_t)age : NO_AGE - 1;
}

static void want_noted(struct sock *s)
{
	store_relaxed(&is_asked, true);
	if (!sock_is_direct(s))
		return;
	atomic_fetch_or(&s->in->want_times, WIRE_SENT);
	atomic_fetch_or(&s->slot->tx_special, TX_TIMED | TX_ASKED);
}

void info_begin(struct sock *s)
{
	know_clocks();
	store_relaxed(&s->slot->tx_looked, wire_tick());
	if (load_relaxed(&is_asked)) {
		atomic_fetch_or(&s->in->want_times, WIRE_SENT);
		atomic_fetch_or(&s->slot->tx_special, TX_ASKED);
	}
	atomic_fetch_or(&s->slot->tx_special, TX_TIMED);
}

void info_look(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t now = wire_tick();
	bool rare = now - load_relaxed(&sl->tx_looked) >= RARE_TICKS;
	store_relaxed(&sl->tx_looked, now);
	if (special_of(sl) & TX_ASKED)
		return;
	if (rare) {
		atomic_fetch_or(&sl->tx_special, TX_TIMED);
		return;
	}
	atomic_fetch_and(&sl->tx_special, ~(uint32_t)TX_TIMED);
	/* Each time, also over what a thread has stored that goes to sleep just now. */
	if (!(load_relaxed(&s->out->want_times) & WIRE_SENT))
		store_relaxed(&s->out->sent_tick, 0);
}

/* Here the last send was made before now: so much is known. */
static void know_sent(struct sock *s)
{
	uint32_t unknown = 0;
	atomic_compare_exchange_strong(&s->out->sent_tick, &unknown, wire_tick());
}

void info_sleeps_slow(struct sock *s)
{
	atomic_fetch_or(&s->slot->tx_special, TX_TIMED);
	know_sent(s);
}

void info_left(struct sock *s)
{
	store_relaxed(&s->slot->left_tick, wire_tick());
}

/* What has gone through the ring. */
struct moved {
	uint64_t sent, came; /* bytes */
	uint32_t sends, receives;
};

static struct moved moved_by(struct sock *s)
{
	struct slot *sl = s->slot;
	struct moved m;
	lock_take(&sl->tx_lock);
	m.sent = sl->tx.produced;
	m.sends = (uint32_t)sl->tx_messages;
	lock_drop(&sl->tx_lock);
	lock_take(&sl->rx_lock);
	uint64_t unread = sock_is_direct(s) ? ring_unread(s->in) : 0;
	m.came = sl->rx.consumed + (unread <= WIRE_DIR_DATA_BYTES ? unread : 0);
	m.receives = (uint32_t)sl->rx_messages;
	lock_drop(&sl->rx_lock);
	return m;
}

static uint32_t left_age(struct sock *s)
{
	uint32_t left = load_relaxed(&s->slot->left_tick);
	return left ? age_ms(left) : NO_AGE;
}

/* How long nothing has been sent by the ring; NO_AGE: never was. */
static uint32_t sent_age(struct sock *s, const struct moved *m)
{
	if (m->sent == 0 || !sock_is_direct(s))
		return m->sent ? left_age(s) : NO_AGE;
	know_sent(s);
	return age_ms(load_relaxed(&s->out->sent_tick));
}

static uint32_t came_age(struct sock *s, const struct moved *m)
{
	struct slot *sl = s->slot;
	if (m->came == 0 || !sock_is_direct(s))
		return m->came ? left_age(s) : NO_AGE;
	uint32_t tick = load_relaxed(&s->in->sent_tick);
	uint32_t asked = load_relaxed(&sl->asked_tick);
	if (tick)
		return age_ms(tick);
	if (asked && load_relaxed(&sl->asked_at) == m->came)
		return age_ms(asked);
	store_relaxed(&sl->asked_at, m->came);
	store_relaxed(&sl->asked_tick, wire_tick());
	return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void add_ring(struct sock *s, int fd, const struct moved *m, struct tcp_info *info)
{
	uint64_t unsent = acked_not(s, fd);
	uint64_t sent = m->sent > unsent ? m->sent - unsent : 0;
	uint32_t out = m->sends, in = m->receives;
	uint32_t sent_ms = sent_age(s, m), came_ms = came_age(s, m);
	info->tcpi_last_data_sent = least(info->tcpi_last_data_sent, sent_ms);
	info->tcpi_last_data_recv = least(info->tcpi_last_data_recv, came_ms);
	/* What comes from TCP's peer acknowledges what it has, and is acknowledged. */
	info->tcpi_last_ack_recv =
		least(info->tcpi_last_ack_recv, least(sent_ms, came_ms));
	info->tcpi_bytes_acked += sent;
	info->tcpi_bytes_sent += sent;
	info->tcpi_bytes_received += m->came;
	info->tcpi_notsent_bytes += (uint32_t)unsent;
	info->tcpi_segs_out += out + in;
	info->tcpi_segs_in += out + in;
	info->tcpi_data_segs_out += out;
	info->tcpi_data_segs_in += in;
	info->tcpi_delivered += out;
}

/* What the kernel tells of `name` is in `own`, of which the program has asked for `len` bytes. */
static void give(void *value, size_t len, const void *own, size_t size)
{
	crit_copy(value, own, len < size ? len : size);
}

void sock_info(struct sock *s, int fd, void *value, size_t len)
{
	struct tcp_info info = {0};
	socklen_t size = sizeof(info);
	want_noted(s);
	if (sock_is_direct(s))
		peer_hear(s);
	struct moved m = moved_by(s);
	if (m.sent == 0 && m.came == 0)
		return;
	/* Not as the program has it, which may have asked for the half of a number. */
	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return;
	add_ring(s, fd, &m, &info);
	give(value, len, &info, size);
}

void sock_meminfo(struct sock *s, int fd, void *value, size_t len)
{
	uint32_t info[SK_MEMINFO_VARS] = {0};
	socklen_t size = sizeof(info);
	if (!sock_is_direct(s) ||
	    REAL(getsockopt)(fd, SOL_SOCKET, SO_MEMINFO, info, &size) != 0)
		return;
	/* First: it hears what has come. */
	info[SK_MEMINFO_WMEM_QUEUED] += (uint32_t)acked_not(s, fd);
	info[SK_MEMINFO_RMEM_ALLOC] += (uint32_t)ring_unread(s->in);
	give(value, len, info, size);
}
