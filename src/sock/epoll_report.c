/* SPDX-License-Identifier: Apache-2.0 */
/* The events of converted registrations, and which of them are looked at in memory. */
#include <errno.h>
#include <x86intrin.h>

#include "base/await.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "sock/epoll.h"

#define LEVEL_BITS                                                                       \
	(LOOK_IN | LOOK_OUT | LOOK_KERNEL | EPOLLRDBAND | EPOLLWRBAND | EPOLLMSG)
/* Calls without activity after which a record leaves the hot list: scanning it that
 * often costs about what one doorbell costs. */
#define HOT_CALLS 64

/* The level of a socket that is, or has gone back to being, the kernel's. */
static uint32_t kernel_level(struct epoll_reg *r, uint32_t want)
{
	struct pollfd p = {.fd = r->use_fd, .events = (short)want};
	uint32_t phase = atomic_load_explicit(&r->s->slot->phase, memory_order_acquire);

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

/* True when something has come in that the kernel would report as an edge. */
static bool edge_in_rose(struct epoll_reg *r, uint32_t want, bool take)
{
	uint64_t in = sock_edge_in(r->s);
	bool rose = r->fresh;

	if (in != r->edge_in && (want & (LOOK_IN | EPOLLPRI | EPOLLRDHUP)))
		rose = true;
	/* A change of state wakes everybody, whatever they wait for. */
	if (r->tcp_edge & ~r->tcp_noted & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		rose = true;
	if (take) {
		r->edge_in = in;
		r->tcp_noted |= r->tcp_edge & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
		r->fresh = false;
	}
	return rose;
}

/* Room on TCP is an edge by itself; that of the ring is one once somebody found it full,
 * which is what sock_edge_out counts. */
static bool edge_out_rose(struct epoll_reg *r, uint32_t want, uint64_t out)
{
	if (!(want & LOOK_OUT))
		return false;
	return out != r->edge_out || ((r->tcp_edge & EPOLLOUT) &&
				      gate_state(&r->s->slot->gate_tx) != GATE_RING);
}

/* What was told of the connection's end is no news when the kernel reports it too, nor
 * when this look itself has noted it in `seen`, which sock_edge_in counts. */
static void end_told(struct epoll_reg *r, uint32_t bits, uint32_t seen_before)
{
	uint32_t seen = atomic_load_explicit(&r->s->slot->seen, memory_order_acquire);
	uint32_t told = (bits & EPOLLRDHUP ? SEEN_FIN : 0) |
			(bits & EPOLLHUP ? SEEN_HUP : 0) |
			(bits & EPOLLERR ? SEEN_ERR : 0);

	r->tcp_noted |= bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
	r->edge_in += seen & ~seen_before & told;
	r->edge_out += seen & ~seen_before & told;
}

static uint32_t edge_report(struct epoll_reg *r, uint32_t want, bool take)
{
	/* The edges are read before the level: what comes between them is a later edge. */
	uint32_t seen = atomic_load_explicit(&r->s->slot->seen, memory_order_acquire);
	uint64_t out = sock_edge_out(r->s);
	bool out_rose = edge_out_rose(r, want, out);
	bool in_rose = edge_in_rose(r, want, take);
	uint32_t bits, due;

	if (!in_rose && !out_rose)
		return 0;
	bits = level_of(r, want | EPOLLRDHUP);
	due = bits & want;
	/* A full ring's edge is due when there is room again. */
	if (!in_rose && !(due & (LOOK_OUT | LOOK_ALWAYS)))
		return 0;
	if (take && (due & LOOK_OUT)) {
		r->edge_out = out;
		r->tcp_edge = 0;
	}
	if (take)
		end_told(r, bits, seen);
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

/*
 * The place of an event in the kernel's queue, as a tick of the processors' clock. Programs
 * depend on that order unawares: a client that sends to one connection and then to another
 * expects a server of one thread to serve them so. A registration is queued by what comes,
 * or by ADD and MOD when that is there already. A level-triggered one is queued again by
 * each report, until a look finds nothing.
 */
static uint64_t place(struct epoll_reg *r, uint32_t bits)
{
	uint64_t at = 0;

	if (r->queued)
		return r->queued;
	if ((bits & LOOK_IN) && !(bits & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)))
		at = sock_came(r->s);
	return at > r->added ? at : r->added;
}

/* The program gets the event: what follows from that. */
static void told(struct batch *b, struct epoll_reg *r)
{
	r->active = r->in->calls;
	r->told_at = b->scan;
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
	struct epoll_event ev = {.events = bits, .data = r->data};
	int i = b->n++;

	if (b->ordered && i < EPOLL_ORDERED) {
		uint64_t at = place(r, bits);

		b->again += r->queued != 0;
		b->late |= !r->queued && (at == r->added || at > b->began);
		for (; i > 0 && b->place[i - 1] > at; i--) {
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
			r->queued = b->base + (uint64_t)(i * EPOLL_PLACES);
	}
}

void instance_scan_begin(struct instance *in, struct batch *b)
{
	b->scan = ++in->scans;
	b->n = b->again = 0;
	b->late = false;
	b->ordered = atomic_load_explicit(&in->mixed, memory_order_relaxed);
	if (b->ordered)
		b->began = __rdtsc() - BLUR_TICKS;
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

	instance_scan_begin(in, b);
	while (left-- && b->n < b->max) {
		struct epoll_reg *r;
		uint32_t bits;

		if (i >= in->nhot)
			i = 0;
		r = in->hot[i];
		if (__builtin_expect(reg_is_stale(r), 0)) {
			reg_abandon(r);
			left = b->n ? left : in->nhot;
			continue;
		}
		bits = reg_report(r, true);
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
	if (!instance_sleepers(r->in))
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

/* Says what the TCP descriptor reported, unless it only repeats what is known: the slot
 * counts each note as an edge. */
static void tcp_heard(struct epoll_reg *r, uint32_t events)
{
	uint32_t news = events & ~r->tcp_noted & (LOOK_IN | LOOK_KERNEL);
	struct slot *slot = r->s->slot;

	r->tcp_edge |= events;
	if (!r->spent)
		reg_heat(r);
	/* Past a FIN the descriptor stays readable. But what memory has told of the end runs
	 * ahead of the kernel's: bytes that are still under way are news when they come. */
	if ((atomic_load_explicit(&slot->seen, memory_order_acquire) & SEEN_FIN) ||
	    ((r->tcp_noted & EPOLLRDHUP) && gate_state(&slot->gate_rx) == GATE_RING))
		news &= ~(uint32_t)LOOK_IN;
	if (news)
		sock_note_kernel(r->s, events);
}

void tag_heard(struct instance *in, struct epoll_reg *r, bool bell, uint32_t events)
{
	/* A tag may have been under way while its record went. */
	if (r->in == in && r->converted && !reg_is_stale(r)) {
		if (bell) {
			bell_heard(r);
			sock_hear_bell(r->s);
			sock_service(r->s, r->use_fd);
		} else {
			tcp_heard(r, events);
			if ((events & (EPOLLIN | EPOLLRDHUP)) == EPOLLIN)
				sock_check_bypass(r->s, r->use_fd);
		}
	}
}

static void take_tag(struct instance *in, struct epoll_reg *r, bool bell, uint32_t events)
{
	instance_lock(in);
	if (r)
		tag_heard(in, r, bell, events);
	else
		side_settle(in);
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
			sock_hear_shared_bell();
		else if (r || ev[i].data.u64 == side)
			take_tag(in, r, bell, ev[i].events);
		else
			out[kept++] = ev[i];
	}
	return kept;
}

void instance_arm(struct instance *in)
{
	for (uint32_t i = 0; i < in->nhot; i++)
		reg_arm(in->hot[i]);
}

void instance_disarm(struct instance *in)
{
	for (uint32_t i = 0; i < in->nhot; i++)
		reg_disarm(in->hot[i]);
}

void instance_attend(struct instance *in)
{
	/* Who watches a side from outside asks before each look, and no event is an edge twice. */
	bool ring = in->side < 0 || in->blind || instance_sleepers(in) > 1;

	for (uint32_t i = 0; i < in->nhot; i++) {
		struct epoll_reg *r = in->hot[i];

		/* What came before it was armed did not ring. */
		reg_arm(r);
		if (ring && reg_report(r, false))
			sock_ring_self(r->s);
	}
}

void instance_age(struct instance *in)
{
	if (in->calls - in->aged_at < HOT_CALLS)
		return;
	in->aged_at = in->calls;
	for (uint32_t i = in->nhot; i-- > 0;) {
		struct epoll_reg *r = in->hot[i];

		/* The hot ones are watched for a death that the kernel does not tell. */
		if (in->calls - r->active < HOT_CALLS || sock_is_held_up(r->s, r->use_fd))
			continue;
		reg_arm(r);
		if (!reg_report(r, false))
			reg_chill(r);
		else if (!instance_sleepers(in))
			reg_disarm(r);
	}
}
