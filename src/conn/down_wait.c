/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a connection that goes back to TCP, where somebody else is to read on; and what cannot wait. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/atomic.h"
#include "base/await.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/linger.h"
#include "conn/switch.h"

/* Bytes published or held back, as far as they can be seen. Under rx_lock. */
static ssize_t left_in_ring(struct sock *s)
{
	struct slot *sl = s->slot;
	int64_t avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
	if (avail == 0 && ring_rx_take_held(&sl->rx, s->in) > 0)
		avail = ring_rx_avail(&sl->rx, s->in, SIZE_MAX);
	return avail > 0 ? (ssize_t)avail : 0;
}

/* Bytes that only a ring read can get, once the peer writes no more to the ring; or -1. */
static ssize_t stranded(struct sock *s, int fd, bool late)
{
	struct slot *sl = s->slot;
	ssize_t n;
	lock_take(&sl->rx_lock);
	/* The end first: whoever made it had made his mark before. */
	peer_look(s);
	bool gone = seen_of(sl) & (SEEN_FIN | SEEN_HUP | SEEN_ERR | SEEN_BROKEN);
	if (late)
		rewind_is_last(s, true);
	gone |= sock_has_fin(s);
	/* A mark that comes behind the step has not ended the ring yet, and bytes that are sent again would count. */
	bool down;
	do {
		down = rx_is_down(s);
		rx_advance(s, fd);
		enum gate_state state = gate_state(&sl->gate_rx);
		if (state == GATE_READY && !rx_is_up(s))
			n = gone ? 0 : -1;
		else if (state == GATE_READY || state == GATE_RING)
			n = gone || late || down ? left_in_ring(s) : -1;
		else
			n = -1;
	} while (!down && rx_is_down(s));
	/* Nobody would hear of bytes that are on their way from another host. */
	if (late && n <= 0 && !gone && peer_is_far(s) && !rx_is_down(s) &&
	    !gate_is_kernel(gate_state(&sl->gate_rx)))
		n = 1;
	if (late && n > 0)
		rewind_is_last(s, false);
	lock_drop(&sl->rx_lock);
	return n;
}

bool sock_sever(struct sock *s, int fd)
{
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	uint32_t reason = atomic_load(&s->slot->reason);
	const char *format =
		"fd %d: %s with bytes unread in the ring: the new holder gets an error";
	/* A child that is forked need not be one. */
	if (reason == VD_REASON_SHARED)
		log_debug(format, fd, reason_name(reason));
	else
		log_error(format, fd, reason_name(reason));
	/* As at a close: who lets go of it at the same time finds us among those that
	 * do, or is found so here. By another number this process has it still. */
	if (load_relaxed(&s->fds) <= 1 && slot_close_is_last(s->slot)) {
		kernel_connect(fd, &nobody, sizeof(nobody));
		return false;
	}
	if (load_relaxed(&s->fds) <= 1)
		linger_leave_to_exec(s, fd);
	/* Others still read the ring: only this process loses the connection, to a socket
	 * that is not connected. */
	int dead = LOW_MADE(fds_raise,
			    kernel_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (dead < 0 || REAL(dup2)(dead, fd) < 0)
		kernel_close(fd);
	fds_close(dead);
	return true;
}

bool sock_number_begin(struct sock *s, int fd, uint32_t generation)
{
	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		/* A close takes the number out of the table, and then this lock. */
		lock_take(&s->slot->tx_lock);
		if (fd_is(fd, s) && sock_generation(s) == generation)
			return true;
		lock_drop(&s->slot->tx_lock);
		sock_unhold(s);
	}
	crit_leave();
	return false;
}

void sock_number_end(struct sock *s)
{
	lock_drop(&s->slot->tx_lock);
	sock_unhold(s);
	crit_leave();
}

bool sock_is_at(const struct sock *s, int fd)
{
	uint64_t ours = atomic_load(&s->slot->cookie), cookie;
	return ours == 0 || (tcp_cookie(fd, &cookie) == 0 && cookie == ours);
}

static void ask_bounce(struct sock *s, int fd, enum vd_reason reason)
{
	(void)reason;
	sock_bounce(s, fd);
}

struct hold {
	struct sock *s;
	uint32_t forks; /* sock_forks when it began */
	bool is_armed;	/* counted as asleep */
};

/* Also where the thread is cancelled. */
static void unhold(void *arg)
{
	const struct hold *hold = arg;
	if (hold->forks != sock_forks)
		return;
	if (hold->is_armed)
		sock_disarm(hold->s, EPOLLIN);
	sock_unhold(hold->s);
}

/* `ask` is the way down. Each time: another reader may have withdrawn the request. */
static ssize_t down_wait(struct hold *hold, int fd, enum vd_reason reason, int timeout_ms,
			 void (*ask)(struct sock *s, int fd, enum vd_reason reason))
{
	struct sock *s = hold->s;
	struct slot *sl = s->slot;
	struct timespec start, now;
	uint64_t taken = sock_is_direct(s) ? load_relaxed(&s->in->consumed) : 0;
	clock_read(CLOCK_MONOTONIC, &start);
	for (;;) {
		struct pollfd pfd[3] = {{.fd = fd, .events = POLLRDHUP},
					{.fd = s->bell, .events = POLLIN},
					{.fd = s->far_bell, .events = POLLIN}};
		ask(s, fd, reason);
		sock_service(s, fd);
		if (!sock_is_direct(s) || gate_is_kernel(gate_state(&sl->gate_rx)))
			return 0;
		ssize_t n = stranded(s, fd, false);
		if (n == 0 || (n > 0 && !sock_is_being_read(s, reason, taken)))
			return n;
		/* Its peer may be in this very thread, which then does nothing else meanwhile. */
		sock_serve_peers();
		sock_service(s, fd);
		if (gate_is_kernel(gate_state(&sl->gate_rx)))
			return 0;
		clock_read(CLOCK_MONOTONIC, &now);
		int64_t left = timeout_ms - (now.tv_sec - start.tv_sec) * 1000 -
			       (now.tv_nsec - start.tv_nsec) / 1000000;
		if (left <= 0) {
			/* With nothing unread the request stands: what the peer may be about to
			 * write to the ring it will send again. */
			n = stranded(s, fd, true);
			return n > 0 ? n : -ETIMEDOUT;
		}
		if (n > 0) {
			sock_nap_beside_reader();
			continue;
		}
		struct timespec rest = {left / 1000, left % 1000 * 1000000};
		uint64_t mark = sock_mark(s, fd);
		crit_enter(); /* as in held_wait */
		uint32_t forks = sock_forks;
		sock_arm(s, EPOLLIN);
		hold->is_armed = true;
		crit_leave();
		n = 0;
		/* Not wait_hint: bytes in the ring are not what is waited for. */
		if (stranded(s, fd, false) < 0 &&
		    !gate_is_kernel(gate_state(&sl->gate_rx)))
			n = await_poll(pfd, pfd[2].fd < 0 ? 2 : 3, &rest, NULL);
		crit_enter();
		hold->is_armed = false;
		if (forks == sock_forks)
			sock_disarm(s, EPOLLIN);
		crit_leave();
		if (n > 0 && (pfd[1].revents || pfd[2].revents))
			sock_answer_bells(s, pfd[1].revents, pfd[2].revents);
		if (n > 0 && pfd[0].revents && sock_had(s, fd, mark))
			sock_note_kernel(s, (uint32_t)pfd[0].revents);
	}
}

ssize_t sock_way_down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms,
			   void (*ask)(struct sock *s, int fd, enum vd_reason reason))
{
	struct _pthread_cleanup_buffer cleanup;
	struct hold hold = {.s = s};
	crit_enter(); /* no handler jumps away, or forks, between the hold and the note of it */
	hold.forks = sock_forks;
	bool held = sock_hold(s, fd);
	if (held)
		_pthread_cleanup_push(&cleanup, unhold, &hold);
	crit_leave();
	if (!held)
		return 0; /* closed by another thread */
	ssize_t n = sock_is_at(s, fd) ? down_wait(&hold, fd, reason, timeout_ms, ask) : 0;
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return n;
}

ssize_t sock_down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms)
{
	return sock_way_down_wait(s, fd, reason, timeout_ms, sock_hand_over);
}

ssize_t sock_bounce_wait(struct sock *s, int fd, int timeout_ms)
{
	return sock_way_down_wait(s, fd, VD_REASON_NONE, timeout_ms, ask_bounce);
}
