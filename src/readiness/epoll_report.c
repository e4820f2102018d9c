/* SPDX-License-Identifier: Apache-2.0 */
/* The events of converted registrations, and which of them are looked at in memory. */
#include <errno.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "conn/lowat.h"
#include "readiness/epoll.h"

#define LEVEL_BITS                                                                       \
	(LOOK_IN | LOOK_OUT | LOOK_KERNEL | EPOLLRDBAND | EPOLLWRBAND | EPOLLMSG)

/* The level of a socket that is, or has gone back to being, the kernel's. */
static uint32_t kernel_level(struct epoll_reg *r, uint32_t want)
{
	struct pollfd p = {.fd = r->use_fd, .events = (short)want};
	uint32_t phase = load_acquire(&r->s->slot->phase);

	if (phase == SLOT_FINAL && !r->orphan) {
		reg_revert(r);
		if (!r->converted)
			return 0;
	}
	if (await_glance(&p, 1) <= 0 || (p.revents & POLLNVAL))
		return 0;
	return (uint16_t)p.revents & (want | LOOK_ALWAYS);
}

static uint32_t level_of(struct epoll_reg *r, uint32_t want)
{
	uint32_t bits;

	if (__builtin_expect(!sock_is_direct(r->s), 0))
		return kernel_level(r, want);
	bits = look_level(r->s, r->use_fd, want);
	/* It is reported for what it can send, and what it receives is TCP's to know. */
	if (bits && (want & LOOK_IN) && !(bits & LOOK_IN) &&
	    gate_state(&r->s->slot->gate_rx) != GATE_RING)
		bits = sock_level(r->s, r->use_fd) & (want | LOOK_ALWAYS);
	return bits;
}

/*
 * As in the kernel, a wake-up has a key, and one that a registration has not asked for is no edge:
 * bytes wake for EPOLLIN and what goes with it, room for EPOLLOUT. A change of the connection's
 * state wakes everybody. Who is woken gets all bits that hold.
 */
#define KEY_IN	EPOLL_KEY_IN
#define KEY_OUT LOOK_OUT
/* States of the connection, as events, and what this end has done itself. */
#define STATE_KERNEL  (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define STATE_SHUT_WR (1u << 16)
#define STATE_SHUT_RD (1u << 17)
#define STATE_BROKEN  (1u << 18)
#define STATE_GONE    (1u << 19)
#define STATE_FIN     (1u << 20) /* the peer's: EPOLLRDHUP is also told of our own end */
#define STATE_OWN     (STATE_SHUT_WR | STATE_SHUT_RD | STATE_BROKEN)

/*
 * What has come since the last report, with the keys that it wakes for. An edge may be told once
 * more than on TCP, and is never lost: what has risen is noted as told where it was told, or where
 * the level shows that nothing of it is left. A move of the connection is an edge of all that holds.
 */
struct edges {
	uint64_t in, moves, out;
	uint32_t state, shuts;
	bool in_came, in_moved, out_rose, waits;
};

/* What events say of the connection's state. */
static uint32_t ended(uint32_t events)
{
	return (events & (EPOLLHUP | EPOLLERR)) | (events & EPOLLRDHUP ? STATE_FIN : 0);
}

static uint32_t state_of(struct epoll_reg *r)
{
	struct sock *s = r->s;
	uint32_t seen = load_acquire(&s->slot->seen), heard = r->tcp_edge;

	/* After an own shutdown for reading the kernel says the same without the peer's end. */
	if (seen & SEEN_SHUT_RD)
		heard &= ~(uint32_t)EPOLLRDHUP;
	return ended(heard) | ((seen & SEEN_FIN) || sock_has_fin(s) ? STATE_FIN : 0) |
	       (seen & SEEN_HUP ? EPOLLHUP : 0) | (seen & SEEN_ERR ? EPOLLERR : 0) |
	       (seen & SEEN_SHUT_WR ? STATE_SHUT_WR : 0) |
	       (seen & SEEN_SHUT_RD ? STATE_SHUT_RD : 0) |
	       (seen & SEEN_BROKEN ? STATE_BROKEN : 0) |
	       (seen & SEEN_GONE ? STATE_GONE : 0);
}

static void edges_read(struct edges *e, struct epoll_reg *r, uint32_t want)
{
	/* Read before the level: what comes between them is a later edge. */
	e->state = state_of(r);
	e->shuts = load_relaxed(&r->s->slot->shuts);
	e->out = sock_edge_out(r->s);
	e->in = sock_edge_in(r->s);
	if ((int64_t)(e->in - r->edge_in) < 0 || lowat_lacks(r->s))
		e->in = r->edge_in;
	e->moves = sock_moves(r->s);
	e->in_came = (want & KEY_IN) &&
		     (e->in != r->edge_in || (r->tcp_edge & (LOOK_IN | EPOLLPRI)));
	e->in_moved = (want & KEY_IN) && e->moves != r->moves;
	/* Room of the ring is an edge once somebody found it full, by a send or a look. */
	e->out_rose =
		(want & KEY_OUT) && (e->out != r->edge_out || (r->tcp_edge & EPOLLOUT));
	e->waits = r->fresh || e->shuts != r->shuts || (e->state & ~r->state_told);
}

/*
 * Whether one has risen that the level shows. An end may be known from memory before the kernel
 * hears of it, and is due then. A full ring's edge is due when there is room again.
 */
static bool is_due(const struct edges *e, struct epoll_reg *r, uint32_t bits)
{
	uint32_t shown = ended(bits) | STATE_OWN;

	return r->fresh || e->shuts != r->shuts || (e->state & ~r->state_told & shown) ||
	       e->in_came || (e->in_moved && (bits & KEY_IN)) ||
	       (e->out_rose && (bits & (LOOK_OUT | LOOK_ALWAYS)));
}

/* The program has been told of these bits, or there was nothing to tell. */
static void edges_take(const struct edges *e, struct epoll_reg *r, uint32_t bits,
		       bool due)
{
	uint32_t shown = ended(bits);

	/* What the look has come upon since the edges were read is told, too: not a peer's end
	 * that the kernel says after an own shutdown for reading. */
	if (!due || (e->state & STATE_SHUT_RD))
		shown &= e->state;
	/* An error that is not there any more has been read. */
	r->state_told |= (e->state & (STATE_OWN | EPOLLERR)) | shown;
	/* After ADD and MOD what was there already counts: see order_place. */
	r->edge_before = r->fresh ? 0 : r->edge_in;
	r->edge_in = e->in;
	r->moves = e->moves;
	r->shuts = e->shuts;
	r->fresh = false;
	r->tcp_edge &= ~(uint32_t)(LOOK_IN | EPOLLPRI);
}

/* Its connection is on TCP for good: the kernel tells of it, and first all that holds. */
static bool goes_back(struct epoll_reg *r)
{
	if (r->orphan || load_acquire(&r->s->slot->phase) != SLOT_FINAL)
		return false;
	reg_revert(r);
	return !r->converted;
}

static uint32_t edge_report(struct epoll_reg *r, uint32_t want, bool take)
{
	uint32_t bits = 0, due = 0;
	struct edges e;

	if (goes_back(r))
		return 0;
	sock_serve_heard(r->s, r->use_fd);
	edges_read(&e, r, want);
	if (e.in_came || e.in_moved || e.out_rose || e.waits) {
		bits = level_of(r, want | EPOLLRDHUP);
		due = is_due(&e, r, bits) ? bits & want : 0;
	}
	if (take)
		edges_take(&e, r, bits, due != 0);
	if (take && (due & LOOK_OUT)) {
		r->edge_out = e.out;
		r->tcp_edge &= ~(uint32_t)EPOLLOUT;
	}
	return due;
}

uint32_t reg_report(struct epoll_reg *r, bool take)
{
	uint32_t want = (r->events & LEVEL_BITS) | LOOK_ALWAYS;

	if (r->spent || reg_is_stale(r))
		return 0;
	if (r->events & EPOLLET)
		return edge_report(r, want, take);
	return level_of(r, want);
}

/* The program gets the event: what follows from that. */
static void told(struct batch *b, struct epoll_reg *r)
{
	r->active = r->in->calls;
	r->told_at = b->scan;
	r->heard = 0;
	if (!(r->events & EPOLLONESHOT))
		return;
	r->spent = true;
	reg_disarm(r);
	reg_chill(r);
}

/* Clocks of processors, and what these do before its turn, differ by less than so many ticks. */
#define BLUR_TICKS 600

/* Adds an event in its place. Most come in order. */
static void add(struct batch *b, struct epoll_reg *r, uint32_t bits)
{
	const struct instance *in = r->in;
	struct epoll_event ev = {.events = bits, .data = r->data};
	int i = b->n++;

	if (b->ordered && i < EPOLL_ORDERED) {
		uint64_t at = order_place(r, bits);

		b->again += r->queued != 0;
		b->late |= !r->queued &&
			   (at <= r->added || at <= in->looked_at || at > b->began);
		for (; i > 0 && order_before(b, i - 1, r, at); i--) {
			b->place[i] = b->place[i - 1];
			b->reg[i] = b->reg[i - 1];
			b->ev[i] = b->ev[i - 1];
		}
		b->place[i] = at;
		b->reg[i] = r;
	}
	b->ev[i] = ev;
	told(b, r);
}

/* The level-triggered ones go to the end of the queue, in the same order. */
static void queue_again(struct instance *in, struct batch *b)
{
	b->base = order_base();
	for (int i = 0; b->ordered && i < b->n && i < EPOLL_ORDERED; i++) {
		struct epoll_reg *r = b->reg[i];

		/* Between two scans it may have become another's. */
		if (r->in == in && !(r->events & (EPOLLET | EPOLLONESHOT)))
			in->queue_end = r->queued =
				b->base + (uint64_t)(i * EPOLL_PLACES);
	}
}

void instance_scan_begin(struct instance *in, struct batch *b)
{
	b->scan = ++in->scans;
	b->n = b->again = 0;
	b->late = false;
	b->ordered = load_relaxed(&in->mixed);
	if (b->ordered) {
		b->began = __rdtsc() - BLUR_TICKS;
		/* Behind what that has queued again. */
		in->looked_at = in->began > in->queue_end ? in->began : in->queue_end;
		in->began = b->began;
	}
}

bool instance_came(struct instance *in, uint64_t first, uint64_t second)
{
	bool came = false;

	instance_lock(in);
	for (uint32_t i = 0; i < in->nhot && !came; i++) {
		struct epoll_reg *r = in->hot[i];
		uint64_t at = reg_is_stale(r) ? 0 : sock_came(r->s);

		came = at > first && at <= second;
	}
	instance_unlock(in);
	return came;
}

void instance_scan_until(struct instance *in, struct batch *b, uint64_t tick)
{
	for (uint32_t i = 0; i < in->nhot && b->n < b->max; i++) {
		struct epoll_reg *r = in->hot[i];
		uint32_t bits;

		/* Another thread may have told it meanwhile. */
		if (r->told_at >= b->scan || reg_is_stale(r) || sock_came(r->s) > tick)
			continue;
		bits = reg_report(r, true);
		if (bits)
			add(b, r, bits);
		/* The last has taken its place. */
		i -= !r->hot_at;
	}
	b->late = false;
	queue_again(in, b);
}

void instance_scan(struct instance *in, struct batch *b)
{
	uint32_t left = in->nhot, i = in->turn;
	bool past_end = false; /* the last ones have been looked at */

	instance_scan_begin(in, b);
	while (left-- && b->n < b->max) {
		struct epoll_reg *r;
		uint32_t bits;

		if (i >= in->nhot) {
			i = 0;
			past_end = left + 1 < in->nhot;
		}
		r = in->hot[i];
		if (__builtin_expect(reg_is_stale(r), 0)) {
			reg_abandon(r);
			bits = 0;
		} else {
			bits = reg_report(r, true);
		}
		if (bits)
			add(b, r, bits);
		else if (r->queued)
			r->queued = 0;
		if (r->hot_at) {
			i++;
		} else if (!b->n) {
			/* The last has taken its place, perhaps behind our back, and whoever
			 * sleeps on an empty look must have looked at all. */
			left = in->nhot;
			past_end = false;
		} else {
			i += past_end;
		}
	}
	/* Where the room ran out, the next call goes on. */
	in->turn = i;
	/* What came when the scan had begun has perhaps come after something that it had then gone
	 * past. */
	if (b->late && in->nhot > 1)
		instance_scan_until(in, b, __rdtsc());
	else
		queue_again(in, b);
}

static void heard(struct epoll_reg *r)
{
	if (!r->converted || r->spent)
		return;
	reg_heat(r);
	r->rung = true;
	if (!instance_is_awaited(r->in))
		reg_disarm(r);
}

static void bell_heard(struct epoll_reg *r)
{
	if (reg_is_only(r)) {
		heard(r);
		return;
	}
	for (struct epoll_reg *o = r->in->regs; o; o = o->next)
		if (o->s == r->s)
			heard(o);
}

/*
 * What the TCP descriptor reported. Beside the ring that is no word of bytes or of room: no bytes
 * come by TCP before the peer has left the ring, and room is told as what is sent goes there.
 */
static void tcp_heard(struct epoll_reg *r, uint32_t events)
{
	struct slot *slot = r->s->slot;
	uint32_t seen = load_acquire(&slot->seen);

	/* After an own shutdown for reading the event looks the same with the peer's end. */
	if ((events & EPOLLRDHUP) && (seen & (SEEN_SHUT_RD | SEEN_FIN)) == SEEN_SHUT_RD)
		sock_look(r->s, r->use_fd);
	sock_note_kernel(r->s, events);
	if (events & STATE_KERNEL)
		order_end_heard(r);
	if (gate_state(&slot->gate_rx) == GATE_RING && !sock_peer_has_left(r->s))
		events &= ~(uint32_t)(LOOK_IN | EPOLLRDBAND);
	if (gate_state(&slot->gate_tx) == GATE_RING)
		events &= ~(uint32_t)LOOK_OUT;
	r->tcp_edge |= events;
	if (!r->spent)
		reg_heat(r);
}

void tag_heard(struct instance *in, const struct epoll_event *ev)
{
	bool bell;
	struct epoll_reg *r = tag_reg(ev->data.u64, &bell);

	/* A tag may have been under way while its record went, or became another connection's. */
	if (r->in == in && r->converted && tag_of(r, bell) == ev->data.u64 &&
	    !reg_is_stale(r)) {
		if (r->parked && in->owner == epoll_self()) {
			reg_hush(r);
		} else if (bell) {
			bell_heard(r);
			sock_hear_bell(r->s);
			sock_service(r->s, r->use_fd);
		} else {
			tcp_heard(r, ev->events);
			if ((ev->events & (EPOLLIN | EPOLLRDHUP)) == EPOLLIN)
				sock_check_bypass(r->s, r->use_fd);
		}
	}
}

/* Those who hear it elsewhere carry out what has come, where nobody is to be told here. */
static void take_shared(struct instance *in)
{
	bool has_ears;

	instance_lock(in);
	has_ears = instance_has_ears(in);
	instance_unlock(in);
	if (has_ears)
		sock_hear_shared_bell();
}

static void take_tag(struct instance *in, bool is_side, const struct epoll_event *ev)
{
	instance_lock(in);
	if (!is_side)
		tag_heard(in, ev);
	else
		side_hear(in);
	instance_unlock(in);
}

int instance_translate(struct instance *in, const struct epoll_event *ev, int n,
		       struct epoll_event *out)
{
	int kept = 0;
	uint64_t shared = tag_of_shared(), side = tag_of_side();

	for (int i = 0; i < n; i++) {
		bool bell = false;
		struct epoll_reg *r = tag_reg(ev[i].data.u64, &bell);

		if (ev[i].data.u64 == shared)
			take_shared(in);
		else if (r || ev[i].data.u64 == side)
			take_tag(in, !r, &ev[i]);
		else if (!tag_collides(ev[i].data.u64) || in->no_upgrade)
			out[kept++] = ev[i];
		/* Else it is of a parent, or a child, with whom the instance is shared. */
	}
	return kept;
}
