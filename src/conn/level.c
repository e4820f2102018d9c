/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness of a socket that may be partly in the ring and partly in the kernel. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <x86intrin.h>

#include "base/atomic.h"
#include "base/await.h"
#include "conn/conn.h"
#include "conn/lowat.h"
#include "conn/promise.h"
#include "conn/switch.h"

/* Looks in vain, or ticks (about 100 us), between two questions to the kernel. */
#define LOOK_INTERVAL 64u
#define LOOK_TICKS    300000u

#define KERNEL_IN  (EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLRDBAND)
#define KERNEL_OUT (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

static uint32_t kernel_level(struct sock *s, int fd)
{
	struct pollfd pfd = {.fd = fd,
			     .events = POLLIN | POLLPRI | POLLOUT | POLLRDHUP |
				       POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND};
	uint64_t mark;
	int state;
	do {
		mark = sock_mark(s, fd);
		if (await_glance(&pfd, 1) < 0)
			return 0;
		/* In the midst of a reset: whom that wakes sees all of it, but our bell woke us. The
		 * kernel answers with the state when it is done with the segment. */
		if (__builtin_expect((pfd.revents & (POLLERR | POLLHUP)) &&
					     !(pfd.revents & POLLRDHUP),
				     0) &&
		    tcp_state(fd, &state) == 0)
			await_glance(&pfd, 1);
		/* Not: this number was taken meanwhile, or one that is counted with it. */
	} while (!sock_see(s, fd, mark, (uint16_t)pfd.revents) && sock_has(s, fd));
	/* Not before the peer's last words are here. */
	if ((pfd.revents & (POLLRDHUP | POLLHUP)) && peer_is_far(s) &&
	    !(seen_of(s->slot) & SEEN_SHUT_RD) && !peer_end_is_known(s))
		pfd.revents &= ~(POLLRDHUP | POLLHUP);
	return (uint16_t)pfd.revents;
}

static bool ring_readable(struct sock *s)
{
	return (ring_unread(s->in) || wait_held_due(s)) && !lowat_lacks(s);
}

static bool ring_writable(struct sock *s)
{
	uint64_t fill = ring_unread(s->out);
	uint32_t size = ring_size_hint(s->out);
	return fill <= size - size / 4 || room_will_grow(s) || room_needs_tcp(s);
}

static bool is_roomy(struct sock *s, bool foreign)
{
	return foreign ? promise_room(s) : ring_writable(s);
}

/*
 * As in the kernel, who asks for room and finds none makes an edge of the room that comes. The second
 * look is for room that has come meanwhile: nobody would be rung for it after the count.
 */
static bool has_room(struct sock *s, bool foreign)
{
	if (is_roomy(s, foreign))
		return true;
	sock_lacks_room(s);
	return is_roomy(s, foreign);
}

static uint32_t level_in(struct sock *s, int fd, uint32_t kernel)
{
	uint32_t seen = seen_of(s->slot);
	/* It may have come to that since the kernel was asked. */
	if (gate_state(&s->slot->gate_rx) != GATE_RING) {
		kernel = lowat_is_less(s) ? kernel_level(s, fd) : kernel;
		return (kernel & KERNEL_IN) |
		       (lowat_is_there(s, fd) ? EPOLLIN | EPOLLRDNORM : 0);
	}
	if (lowat_is_divided(s))
		return kernel_level(s, fd) & (EPOLLIN | EPOLLRDNORM);
	if ((seen & SEEN_FOREIGN ? promise_bytes(s) : ring_readable(s)) ||
	    (seen & (SEEN_FIN | SEEN_SHUT_RD)) || sock_has_fin(s))
		return EPOLLIN | EPOLLRDNORM;
	return 0;
}

static uint32_t level_out(struct sock *s, uint32_t kernel)
{
	uint32_t seen = seen_of(s->slot);
	if (gate_state(&s->slot->gate_tx) != GATE_RING ||
	    (seen & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_SHUT_WR)))
		return kernel & KERNEL_OUT;
	return has_room(s, seen & SEEN_FOREIGN) ? EPOLLOUT | EPOLLWRNORM : 0;
}

uint32_t sock_level(struct sock *s, int fd)
{
	uint32_t edges = load_relaxed(&s->edges);
	/* The kernel first, the marks after: a FIN seen here has its mark already set. */
	uint32_t kernel = kernel_level(s, fd);
	sock_service(s, fd);
	/* What a send would do, before it is told of: the peer could take its reason back. */
	if (is_foreign(s) && room_needs_tcp(s))
		sock_bounce(s, fd);
	if (!sock_is_direct(s))
		return kernel;
	if (seen_of(s->slot) & SEEN_BROKEN)
		return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLERR |
		       EPOLLHUP | EPOLLRDHUP;
	uint32_t bits = kernel & (EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLPRI);
	bits |= level_in(s, fd, kernel) | level_out(s, kernel);
	/* The end may have become known since either look: it is told whole, as the kernel does. */
	if (gate_state(&s->slot->gate_rx) == GATE_RING &&
	    (sock_has_fin(s) || (seen_of(s->slot) & SEEN_FIN)))
		bits |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
	if (sock_was_reset(s)) {
		bits |= EPOLLHUP | EPOLLRDHUP | EPOLLOUT | EPOLLWRNORM;
		if (!(seen_of(s->slot) & SEEN_RESET_TOLD))
			bits |= EPOLLERR;
	}
	if (kept_error(s))
		bits |= EPOLLERR;
	if (!(bits & EPOLLIN))
		store_relaxed(&s->looked, edges);
	return bits;
}

/* What is found in memory may have been sent after a close, of which only the kernel knows
 * more. */
static inline bool is_more_known(struct sock *s)
{
	return wait_attention(s) || load_relaxed(&s->in->fin) ||
	       load_relaxed(&s->out->closed);
}

static inline __attribute__((always_inline)) uint32_t
level_quick(struct sock *s, uint32_t interest, bool foreign)
{
	struct slot *sl = s->slot;
	uint32_t bits = 0;
	if (is_more_known(s))
		return SOCK_LOOK;
	if (interest & EPOLLIN) {
		enum gate_state state = gate_state(&sl->gate_rx);
		if (state == GATE_RING) {
			if (foreign ? promise_bytes(s) : ring_readable(s))
				bits |= EPOLLIN | EPOLLRDNORM;
		} else if (load_relaxed(&s->edges) != load_relaxed(&s->looked) ||
			   (state == GATE_READY &&
			    (lowat_is_asked(s) || wait_hint(s, EPOLLIN)))) {
			return SOCK_LOOK;
		}
	}
	if (interest & EPOLLOUT) {
		if (gate_state(&sl->gate_tx) != GATE_RING)
			return SOCK_LOOK;
		if (has_room(s, foreign))
			bits |= EPOLLOUT | EPOLLWRNORM;
	}
	return bits;
}

static __attribute__((noinline)) uint32_t foreign_quick(struct sock *s, uint32_t interest)
{
	uint32_t bits = SOCK_LOOK;
	/* What the kernel has together with the ring it alone tells, also where the mark down is gone. */
	if (seen_of(s->slot) == SEEN_FOREIGN)
		bits = ((interest & EPOLLOUT) && room_needs_tcp(s)) || lowat_is_divided(s)
			       ? SOCK_LOOK
			       : level_quick(s, interest, true);
	/* It may have been caught in a lie just now. */
	return seen_of(s->slot) == SEEN_FOREIGN ? bits : SOCK_LOOK;
}

uint32_t sock_level_quick(struct sock *s, uint32_t interest)
{
	peer_look(s);
	if (__builtin_expect(seen_of(s->slot) != 0, 0))
		return foreign_quick(s, interest);
	return level_quick(s, interest, false);
}

void sock_serve_heard(struct sock *s, int fd)
{
	if (__builtin_expect(peer_is_far(s), 0) && wait_attention(s))
		sock_service(s, fd);
}

static bool count_vain(struct sock *s, uint64_t now, bool also_due)
{
	uint32_t vain = load_relaxed(&s->vain) + 1;
	bool due = vain % LOOK_INTERVAL == 0 ||
		   now - load_relaxed(&s->vain_at) >= LOOK_TICKS ||
		   load_relaxed(&s->out->closed);
	/* Relaxed, all: a thread that is counted twice, or not, looks a little later. */
	if (!due || also_due)
		store_relaxed(&s->vain, vain);
	return due;
}

/*
 * A look that is due for the time alone is not, where the peer has sent something within that time: it
 * was there. It says when, in an instance with other connections. Relaxed, all: hints. Apart, since it
 * is not asked of others.
 */
static __attribute__((noinline)) bool is_still_due(struct sock *s, uint64_t now)
{
	bool came = false;
	for (uint32_t i = 0; i < WIRE_TIMES; i++)
		came |= now - load_relaxed(&s->in->time_at[i]) < LOOK_TICKS;
	if (came && !peer_is_far(s) && !load_relaxed(&s->out->closed) &&
	    load_relaxed(&s->vain) % LOOK_INTERVAL != 0)
		return false;
	store_relaxed(&s->vain_at, now);
	return true;
}

bool sock_vain_look(struct sock *s)
{
	uint64_t now = __rdtsc();
	if (!count_vain(s, now, true))
		return false;
	if (load_relaxed(&s->in->want_times) & WIRE_ARRIVALS)
		return is_still_due(s, now);
	store_relaxed(&s->vain_at, now);
	return true;
}

bool sock_vain_is_due(struct sock *s)
{
	return count_vain(s, __rdtsc(), false);
}

uint64_t sock_edge_in(struct sock *s)
{
	/* A sum of terms that only rise: it rises when one does. But what is due by time may be held anew, with more. */
	uint64_t end = load_acquire(&s->in->produced);
	uint64_t held = load_acquire(&s->in->held_at);
	if ((int64_t)(held - end) > 0 && wait_held_due(s))
		end = held;
	return end + load_relaxed(&s->slot->nudges);
}

uint64_t sock_moves(struct sock *s)
{
	/* The gate first: its value together with the sum of the epochs occurs but once. */
	bool ring = gate_state(&s->slot->gate_rx) == GATE_RING;
	uint64_t epochs = (uint64_t)load_acquire(&s->in->up_epoch) +
			  load_acquire(&s->in->down_epoch);
	return 2 * epochs + ring;
}

bool sock_peer_has_left(struct sock *s)
{
	return rx_is_down(s);
}

void sock_want_times(struct sock *s)
{
	fetch_or_relaxed(&s->in->want_times, WIRE_ARRIVALS);
}

uint64_t sock_came(struct sock *s)
{
	if (gate_state(&s->slot->gate_rx) != GATE_RING)
		return 0;
	return ring_came(s->in, load_relaxed(&s->in->consumed));
}

uint64_t sock_came_since(struct sock *s, uint64_t edge)
{
	uint64_t taken = load_relaxed(&s->in->consumed);
	uint64_t told = edge - load_relaxed(&s->slot->nudges);

	if (gate_state(&s->slot->gate_rx) != GATE_RING)
		return 0;
	return ring_came(s->in, (int64_t)(told - taken) > 0 ? told : taken);
}

uint64_t sock_ended(struct sock *s)
{
	return sock_is_direct(s) ? load_relaxed(&s->in->ended_at) : 0;
}
