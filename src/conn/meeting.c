/* SPDX-License-Identifier: Apache-2.0 */
/* From the first operation to the attached segment: earning, publishing, looking, attaching. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/borrowed.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/real.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "conn/heed.h"
#include "conn/leave.h"
#include "conn/received.h"
#include "conn/report.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "rendezvous/rendezvous.h"
#include "settings/config.h"

/* So many looks at one operation each, then fewer. */
#define EAGER_LOOKS 4u
/* A peer that has not shown up by then is plain: after so many operations, which a program that
 * never sleeps makes in no time, and so much time, in which a busy peer makes few. */
#define LOOK_BOUND    65536u
#define LOOK_BOUND_MS 5000
/* No more operations than that between two looks, so that the end of the search comes when it is due. */
#define GAP_MOST 8192u
/* Operations between the segment and the first question to the kernel about registrations. */
#define ATTACH_LOOKS 64u
/* One that has not shown up by then probably is. */
#define LIKELY_PLAIN 64u
/* A connector that its kernel does not show what it rewrites looks so long for who says so: five times. The first
 * look is nine system calls, the others are six, and both ends begin at about the same operation. */
#define REWRITTEN_LOOKS 12u
/* Before that no connector has earned what it would look for: see meeting_tell. */
#define FIRST_TELL 16u
/* A nonblocking end has done so much without a wait that has come by here. */
#define EARN_SURE_UNITS (8 * EARN_TURN_UNITS)

static struct meet_segment segment_of(const struct sock *s)
{
	return (struct meet_segment){.wire = s->wire,
				     .memfd = -1,
				     .bell = s->bell,
				     .peer_bell = s->peer_bell,
				     .far_bell = s->far_bell};
}

/* It lies where this sock's segments have always been: see sock_drop_segment. */
static void store_segment(struct sock *s, struct meet_segment *seg)
{
	fds_close(seg->memfd); /* the mapping keeps it */
	seg->memfd = -1;
	s->bell = seg->bell;
	s->peer_bell = seg->peer_bell;
	s->far_bell = seg->far_bell;
	store_relaxed(&sock_had_bells, true);
	slot_show_bells(s->slot, s->bell, s->peer_bell, s->far_bell);
	s->window = s->wire = seg->wire;
}

_Atomic uint32_t sock_awaited NEAR_DATA;
void (*sock_on_none_awaited)(void);

/*
 * It is awaited no more. Where it may be closed meanwhile, under ctl, so that it is not the connection that
 * has the sock next. True when it was the last: to be said without locks. In a child of vfork it is its parent
 * that waits, and lets go of the descriptors with which it does.
 */
static inline bool await_ends(struct sock *s)
{
	uint32_t is_awaited = 1;
	bool alone = __libc_single_threaded;
	return load_relaxed(&s->awaited) && !is_borrowed() &&
	       single_exchange32(&s->awaited, &is_awaited, 0, alone) &&
	       single_take32(&sock_awaited, 1, alone) == 1;
}

static inline void say_none_awaited(void)
{
	if (sock_on_none_awaited)
		sock_on_none_awaited();
}

NEAR_CODE void meeting_over(struct sock *s)
{
	if (await_ends(s))
		say_none_awaited();
}

bool ctl_take(struct sock *s)
{
	struct lock *ctl = &s->slot->ctl;
	lock_take(ctl);
	if (ctl_is_kept(s))
		return true;
	lock_drop_if_mine(ctl);
	return false;
}

static void set_final(struct slot *sl, enum vd_reason reason)
{
	atomic_store(&sl->reason, reason);
	store_release(&sl->phase, SLOT_FINAL);
	rx_final(sl);
	tx_final(sl);
	/* A listener may be on its way to another image, which sets options of its own. */
	if (load_relaxed(&sl->options) == OPTIONS_PLAIN)
		store_relaxed(&sl->options, OPTIONS_UNKNOWN);
}

/* Under ctl. */
static void close_name(struct sock *s)
{
	int fd = s->meet_fd;
	s->meet_fd = -1;
	/* What another process has, too, is not the last: to close it drops nothing that lies there. */
	if (slot_is_alone(s->slot))
		meet_unpublish(fd);
	else
		fds_close(fd);
}

/* No operation is looked at from here on: all that is counted, the kernel counts. */
static void be_plain(struct sock *s, int fd)
{
	settled_begin(s, fd, true);
	settled_begin(s, fd, false);
	store_relaxed(&s->is_plain, true);
}

/* Under ctl, before it is FINAL. A connector has a name to be found by once it has earned its upgrade. */
static void plan_telling(struct slot *sl)
{
	if (atomic_load(&sl->role) != TCP_ROLE_ACCEPTED || phase_of(sl) > SLOT_EARNING)
		return;
	if (load_relaxed(&sl->ops) == 0)
		store_relaxed(&sl->next_try, FIRST_TELL);
	store_relaxed(&sl->tells, 1);
}

/*
 * Under ctl, which was taken before the number was found to be the connection's. Operations that begin from
 * here on may be past all counts, since no direction will move. A close waits for ctl, so that nothing of this
 * comes to the connection that has the sock next.
 */
static void give_up(struct sock *s, int fd, enum vd_reason reason)
{
	if (!load_relaxed(&s->slot->tells))
		be_plain(s, fd);
	close_name(s);
	peer_end(s);
	set_final(s->slot, reason);
	log_debug("fd %d: stays on TCP: %s (%s)", fd, reason_name(reason),
		  reason_text(reason));
}

/* The segment is stored. 1; 0, not yet; or -reason when it must not be used after all. */
static int attach(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	bool connected = atomic_load(&sl->role) == TCP_ROLE_CONNECTED;
	unsigned out = connected ? WIRE_FROM_CONNECTOR : WIRE_FROM_ACCEPTOR;
	fork_hold_off();
	/* Forked since the step began: the offer stands until the socket is this process's alone. */
	if (!connected && !peer_is_far(s) && !slot_is_alone(sl)) {
		fork_let_go();
		return 0;
	}
	s->out = &s->wire->dir[out];
	s->in = &s->wire->dir[1 - out];
	s->out_data = (uint8_t *)s->wire + wire_area_offset(out, 0);
	s->in_data = (uint8_t *)s->wire + wire_area_offset(1 - out, 0);
	ring_tx_init(&sl->tx, config_get()->area_limit);
	ring_rx_init(&sl->rx);
	if (peer_is_far(s))
		peer_ops->attach(s, out);
	shown_begin(s);
	if (s->far_bell >= 0)
		seen_add(sl, SEEN_FOREIGN);
	/* A child that was forked before now does not have the pointers just stored. */
	if (!slot_is_alone(sl)) {
		fork_let_go();
		atomic_store(&s->in->want_down, 1);
		sock_drop_segment(s);
		return -VD_REASON_SHARED;
	}
	/* From here on only this thread moves the phase, or somebody who refuses. */
	atomic_store(&sl->phase, SLOT_ATTACHING);
	fork_let_go();
	log_debug("fd %d: attached, %s end", fd, connected ? "connecting" : "accepting");
	return 1;
}

/* Under ctl; `again`: it has been looked for before. 1 attached, 0 not yet, -reason. */
static int step_connected(struct sock *s, int fd, bool again)
{
	struct slot *sl = s->slot;
	struct meet_segment seg;
	int r;
	if (phase_of(sl) == SLOT_EARNING) {
		if (again && !meet_may_publish(fd))
			return 0;
		r = meet_publish(fd, &s->meet_fd);
		if (r == 1)
			atomic_store(&sl->phase, SLOT_MEETING);
		return r < 0 ? r : 0;
	}
	seg.turned_away = VD_REASON_NONE;
	r = meet_collect(fd, &s->meet_fd, s->window, &seg);
	if (r == 0 && seg.turned_away != VD_REASON_NONE)
		atomic_store(&sl->reason, seg.turned_away);
	if (r != 1)
		return r;
	store_segment(s, &seg);
	return attach(s, fd);
}

static int step_accepted(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	struct meet_segment seg;
	int r;
	if (phase_of(sl) != SLOT_OFFERED) {
		r = meet_offer(fd, s->window, &seg);
		if (r != 1)
			return r;
		store_segment(s, &seg);
		atomic_store(&sl->phase, SLOT_OFFERED);
		return 0;
	}
	if (!s->wire) /* offered by another process, after it had forked this one */
		return -VD_REASON_SHARED;
	seg = segment_of(s);
	r = meet_attached(fd, &seg);
	if (r == 1)
		r = attach(s, fd);
	else if (r < 0)
		sock_drop_segment(s);
	return r;
}

/* The same for a peer on another host. */
static int step_remote(struct sock *s, int fd)
{
	struct meet_segment seg;
	int r = peer_ops->step(s, fd, &seg);
	if (r <= 0)
		return r;
	store_segment(s, &seg);
	if (r == 1)
		return attach(s, fd);
	atomic_store(&s->slot->phase, SLOT_OFFERED);
	return 0;
}

/* The peer never came. False when it has come just now, and while it may still come. */
static bool out_of_patience(struct sock *s)
{
	uint32_t state = WIRE_OFFERED;
	uint64_t now = clock_coarse_ms();
	if (!s->look_end_ms)
		s->look_end_ms = now + LOOK_BOUND_MS;
	if (now < s->look_end_ms)
		return false;
	if (phase_of(s->slot) != SLOT_OFFERED)
		return true;
	if (!atomic_compare_exchange_strong(&s->wire->handshake, &state,
					    WIRE_ABANDONED) &&
	    state == WIRE_ATTACHED)
		return false;
	sock_drop_segment(s);
	return true;
}

static bool may_upgrade(struct sock *s, int fd, enum vd_reason *reason)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	int protocol = 0;
	socklen_t len = sizeof(protocol);
	enum config_role role = atomic_load(&s->slot->role) == TCP_ROLE_CONNECTED
					? CONFIG_CONNECT
					: CONFIG_ACCEPT;
	*reason = VD_REASON_NONE;
	if (kernel_getsockname(fd, (struct sockaddr *)&local, &local_len) < 0 ||
	    kernel_getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0)
		return false; /* not connected yet */
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) < 0 ||
	    protocol != IPPROTO_TCP)
		*reason = VD_REASON_PROTOCOL;
	else if (!config_allows(role, (struct sockaddr *)&local,
				(struct sockaddr *)&peer))
		*reason = VD_REASON_RULE;
	else
		*reason = options_reason(s, fd);
	return *reason == VD_REASON_NONE;
}

static int step(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t cookie;
	bool again = atomic_load(&sl->cookie) != 0;
	if (!again) {
		enum vd_reason reason;
		if (!may_upgrade(s, fd, &reason)) {
			if (reason != VD_REASON_NONE)
				plan_telling(sl);
			return -(int)reason;
		}
		if (tcp_cookie(fd, &cookie) < 0)
			return -VD_REASON_KERNEL;
		atomic_store(&sl->cookie, cookie);
	}
	int free = received_is_free(sl);
	if (free != 1)
		return free;
	/* The meeting was a parent's, and has ended with its holding the socket. */
	if (phase_of(sl) == SLOT_MEETING && !peer_is_far(s) && peer_is_parents(s)) {
		store_relaxed(&s->elsewhere, 0);
		atomic_store(&sl->phase, SLOT_EARNING);
		again = false;
	}
	if (phase_of(sl) == SLOT_EARNING) {
		int r = peer_ops ? peer_ops->begin(s, fd) : 0;
		if (r < 0)
			return r;
		if (r == 1)
			atomic_store(&sl->phase, SLOT_MEETING);
	}
	if (peer_is_far(s))
		return step_remote(s, fd);
	return atomic_load(&sl->role) == TCP_ROLE_CONNECTED ? step_connected(s, fd, again)
							    : step_accepted(s, fd);
}

/* Of connectors on this host: the others have published by now, or given up. */
static bool waits_for_hint(struct sock *s)
{
	return !peer_is_far(s) && phase_of(s->slot) == SLOT_EARNING &&
	       atomic_load(&s->slot->role) == TCP_ROLE_CONNECTED;
}

/*
 * When to look again. Whether an offer was taken is a word in memory: at each operation.
 * Whether one has come costs 0.2 us, and whether the name is there 1.3 us: ever more rarely. An answer
 * of viaductd's comes soon or not at all.
 */
static void plan_next(struct sock *s, uint32_t ops, bool is_asked)
{
	struct slot *sl = s->slot;
	uint32_t gap = 1;
	if (phase_of(sl) >= SLOT_ATTACHING)
		gap = ATTACH_LOOKS;
	else if (is_asked ||
		 (phase_of(sl) == SLOT_MEETING &&
		  (peer_is_far(s) || atomic_load(&sl->role) == TCP_ROLE_CONNECTED)))
		gap = ops < EAGER_LOOKS ? 1 : ops < 64 ? 4 : 16 + ops / 64;
	else if (waits_for_hint(s))
		gap = ops;
	else if (phase_of(sl) != SLOT_OFFERED)
		gap = ops < EAGER_LOOKS ? 1 : ops < 2 * GAP_MOST ? ops / 2 : GAP_MOST;
	store_relaxed(&sl->next_try, ops + gap);
}

/* A FIN that the peer gets without `fin` would be taken for a full close. */
static void tell_fin(struct sock *s)
{
	if (seen_of(s->slot) & SEEN_SHUT_WR)
		store_release(&s->out->fin, 1);
}

/* The layer above asks the kernel, too, where next_try is due: ever more rarely. In the end it
 * undoes the upgrade, at both ends. */
static bool may_attach(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t ops = load_relaxed(&sl->ops) + 1;
	store_relaxed(&sl->ops, ops);
	if (!sock_may_attach || sock_may_attach(s))
		return true;
	if (ops >= load_relaxed(&sl->next_try))
		store_relaxed(&sl->next_try, 2 * ops);
	return false;
}

/* Without ctl: the layer above takes locks of its own. Held. */
static void make_attached(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (!may_attach(s))
		return; /* the next operation tries again */
	options_learn(s, fd);
	uint32_t expect = SLOT_ATTACHING;
	meeting_over(s);
	tell_fin(s);
	info_begin(s);
	if (sock_on_attach)
		sock_on_attach(s);
	/* Release: from here on the directions may leave TCP, and others see the segment. */
	if (atomic_compare_exchange_strong_explicit(&sl->phase, &expect, SLOT_ATTACHED,
						    memory_order_release,
						    memory_order_relaxed)) {
		fence_full(); /* as in sock_shutdown */
		tell_fin(s);
		earn_attached(s);
		atomic_store(&sl->reason, VD_REASON_NONE);
		if (sock_on_attach) /* of registrations that came meanwhile */
			sock_on_attach(s);
		report_add(&report_now.upgraded, 1);
		PROBE3(upgrade, fd, slot_cookie(sl), atomic_load(&sl->role));
	} else if (expect == SLOT_FINAL && sock_on_final) {
		/* Refused meanwhile; not: completed by another thread. */
		sock_on_final(s);
	}
}

/* A close in between leaves it to this thread, so that nothing of it is done to the next connection. */
static void finish_attach(struct sock *s, int fd)
{
	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		make_attached(s, fd);
		sock_unhold(s);
	}
	crit_leave();
}

/* Checks that fail on a connection that has ended meanwhile say nothing about the peer. */
static enum vd_reason judged(int fd, enum vd_reason reason)
{
	int state;
	if ((reason == VD_REASON_IDENTITY || reason == VD_REASON_KERNEL ||
	     reason == VD_REASON_RELAY || reason == VD_REASON_NAMESPACE) &&
	    tcp_state(fd, &state) == 0 && state != TCP_ESTABLISHED)
		return VD_REASON_ENDED;
	return reason;
}

static enum vd_reason missing_reason(struct sock *s, int fd)
{
	enum vd_reason known = (enum vd_reason)atomic_load(&s->slot->reason);
	/* Somebody has come, and it was not the peer, or could not be believed. */
	if (known == VD_REASON_UID || known == VD_REASON_NAMESPACE)
		return known;
	return peer_is_far(s) ? VD_REASON_PLAIN_PEER
			      : meet_missing_reason(fd, atomic_load(&s->slot->role));
}

/* What it has earned meanwhile counts. A connection that ends soon is short all the same. */
static bool is_heeded(struct sock *s, bool sends)
{
	struct slot *sl = s->slot;
	uint64_t earned = earn_after(load_relaxed(&sl->earned), sends);
	uint32_t raw = VD_REASON_RAW;
	if (heed_is_known(s)) {
		if (load_relaxed(&sl->reason) == raw)
			atomic_compare_exchange_strong(&sl->reason, &raw,
						       VD_REASON_SHORT);
		return true;
	}
	store_relaxed(&sl->earned, earned);
	if (earned > EARN_SURE_UNITS * EARN_UNIT)
		atomic_store(&sl->reason, VD_REASON_RAW);
	return false;
}

FORK_CODE void meeting_step(struct sock *s, int fd, bool sends)
{
	struct slot *sl = s->slot;
	uint32_t phase = phase_of(sl);
	if (phase == SLOT_ATTACHING && fd_sock(fd) == s && slot_is_alone(sl))
		finish_attach(s, fd);
	if (phase == SLOT_IDLE || phase >= SLOT_ATTACHING)
		return;
	uint32_t ops = load_relaxed(&sl->ops) + 1;
	if (ops == 1 && (!is_heeded(s, sends) || !earn_enough(s, fd, sends)))
		return;
	store_relaxed(&sl->ops, ops);
	if (ops < load_relaxed(&sl->next_try))
		return;
	if (!lock_try(&sl->ctl))
		return;
	bool attached = false;
	if (fd_sock(fd) != s || !ctl_is_kept(s)) {
		lock_drop_if_mine(&sl->ctl);
		return;
	}
	if (phase_of(sl) >= SLOT_EARNING && phase_of(sl) < SLOT_ATTACHING) {
		bool alone = slot_is_alone(sl);
		int r = alone ? step(s, fd) : 0;
		if (!alone)
			atomic_store(&sl->reason, VD_REASON_SHARED);
		bool is_asked = r == 0 && alone && phase_of(sl) < SLOT_OFFERED &&
				!peer_is_far(s) &&
				meet_is_asked(fd, atomic_load(&sl->role));
		plan_next(s, ops, is_asked);
		if (r < 0)
			give_up(s, fd, judged(fd, (enum vd_reason) - r));
		else if (r == 0 && alone && ops > REWRITTEN_LOOKS && waits_for_hint(s) &&
			 !is_asked)
			give_up(s, fd, missing_reason(s, fd));
		else if (r == 0 && ops > LOOK_BOUND && slot_is_alone(sl) &&
			 out_of_patience(s))
			give_up(s, fd, missing_reason(s, fd));
		else if (r == 0 && alone && ops > LIKELY_PLAIN)
			atomic_store(&sl->reason, missing_reason(s, fd));
		attached = r == 1;
	}
	bool none = phase_of(sl) == SLOT_FINAL && await_ends(s);
	lock_drop(&sl->ctl);
	if (attached)
		finish_attach(s, fd);
	if (none)
		say_none_awaited();
}

/*
 * Under ctl. The phase is the slot's, so it says nothing about what this process has: each lets go of its own, whoever has
 * ended the meeting. A child of vfork has none, since the memory that names them is its parent's.
 */
static void stop(struct sock *s, bool for_all)
{
	struct slot *sl = s->slot;
	bool offered = phase_of(sl) == SLOT_OFFERED && s->wire;
	/* The connector may have attached: it will see our FIN, or our plain TCP. */
	if (offered && (for_all || slot_is_alone(sl)))
		atomic_store(&s->wire->handshake, WIRE_ABANDONED);
	if (is_borrowed())
		return;
	close_name(s);
	if (phase_of(sl) < SLOT_ATTACHING)
		peer_end(s);
	if (offered)
		sock_drop_segment(s);
}

void meeting_stop(struct sock *s)
{
	struct slot *sl = s->slot;
	lock_take(&sl->ctl);
	stop(s, false);
	lock_drop(&sl->ctl);
}

void meeting_tell(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t ops = load_relaxed(&sl->ops) + 1;
	int r;
	store_relaxed(&sl->ops, ops);
	if (ops < load_relaxed(&sl->next_try) || !lock_try(&sl->ctl))
		return;
	if (fd_sock(fd) != s || !ctl_is_kept(s)) {
		lock_drop_if_mine(&sl->ctl);
		return;
	}
	r = slot_is_alone(sl) ? meet_decline(fd, atomic_load(&sl->reason)) : 0;
	store_relaxed(&sl->next_try, ops + (ops < 2 * GAP_MOST ? ops / 2 + 1 : GAP_MOST));
	if (r != 0 || ops > LOOK_BOUND) {
		store_relaxed(&sl->tells, 0);
		be_plain(s, fd);
	}
	lock_drop(&sl->ctl);
}

/* From a phase before `end`. */
static void end_before(struct sock *s, uint32_t end, enum vd_reason reason)
{
	struct slot *sl = s->slot;
	if (!ctl_take(s))
		return;
	stop(s, true);
	if (end == SLOT_ATTACHING)
		plan_telling(sl);
	if (phase_of(sl) < end)
		set_final(sl, reason);
	bool none = await_ends(s);
	lock_drop(&sl->ctl);
	if (none)
		say_none_awaited();
}

void meeting_leave(struct sock *s)
{
	end_before(s, SLOT_FINAL, VD_REASON_SHARED);
}

void meeting_refuse(struct sock *s, enum vd_reason reason)
{
	end_before(s, SLOT_ATTACHING, reason);
}
