/* SPDX-License-Identifier: Apache-2.0 */
/* The release of a socket: its last words, and a limbo for those that threads are still inside of. */
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fds_call.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/sections.h"
#include "base/self.h"
#include "base/sigsafe.h"
#include "base/tcp.h"
#include "conn/conn.h"
#include "conn/limbo.h"
#include "conn/linger.h"
#include "conn/report.h"
#include "conn/shown.h"
#include "conn/switch.h"
#include "rendezvous/rendezvous.h"

/* Closed sockets that threads of this process are still inside of. */
#define LIMBO_MAX 256
/* Between two looks at one that lingers: nothing tells when all has been acknowledged. */
#define LINGER_LOOK_MS 5
static struct sock *limbo[LIMBO_MAX];
_Atomic int limbo_used NEAR_DATA; /* looked at without the lock, too */
static struct lock limbo_lock FORK_DATA;

NEAR_CODE void sock_flush_counts(struct sock *s)
{
	if (s->tx_bytes == 0 && s->rx_bytes == 0)
		return;
	report_add(&report_now.tx_direct_bytes, s->tx_bytes);
	report_add(&report_now.rx_direct_bytes, s->rx_bytes);
	if (load_relaxed(&s->slot->across)) {
		report_add(&report_now.tx_rdma_bytes, s->tx_bytes);
		report_add(&report_now.rx_rdma_bytes, s->rx_bytes);
	}
	s->tx_bytes = s->rx_bytes = 0;
}

/*
 * The mapping is replaced, not removed: a thread that lost a race against close may still
 * read a flag there, or write one. It finds the table changed before it touches a byte.
 */
void sock_drop_segment(struct sock *s)
{
	bells_close(s);
	if (!s->wire)
		return;
	s->wire = NULL;
	shown_forget(s);
	meet_empty(s->window);
}

static bool leaves_unread(struct sock *s)
{
	struct slot *sl = s->slot;
	return !gate_is_kernel(gate_state(&sl->gate_rx)) &&
	       (rx_take_due(s) != 0 || ring_rx_avail(&sl->rx, s->in, 1) != 0);
}

/*
 * TCP answers a close that leaves bytes unread with a reset. Another thread may come by the number until the kernel
 * has closed it, or sleep there, past us: it gets an error or the end, and not what the peer sends behind those bytes.
 */
static void reset_unread(int fd)
{
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};
	const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	/* Some kernels refuse that while a thread sleeps there. */
	if (!__libc_single_threaded && kernel_connect(fd, &nobody, sizeof(nobody)) < 0)
		REAL(shutdown)(fd, SHUT_RDWR);
}

void limbo_last_words(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	if (seen_of(sl) & SEEN_BROKEN)
		return;
	if (!slot_close_is_last(sl)) {
		linger_leave_to_exec(s, fd);
		return;
	}
	tx_answer(s, fd);
	if (gate_state(&sl->gate_tx) == GATE_RING && tx_is_up(s))
		ring_tx_push(&sl->tx, s->out);
	if (load_relaxed(&sl->rewinding) == REWINDING_OURS && rewind_settle(s, fd) < 0)
		return;
	/* While they are being handed over they may be somebody else's to read. Those
	 * that the peer has left here nobody else will get; nor those that it leaves
	 * here from now on. */
	rewind_closing(s);
	uint32_t rewinding = load_relaxed(&sl->rewinding);
	if (rewinding == REWINDING_KEPT ||
	    (rewinding == REWINDING_ASKED &&
	     (!rx_is_down(s) || rx_advance(s, fd) < 0 || !leaves_unread(s))))
		return;
	/* What the peer sends from now on is to meet the closed TCP socket, as it does already where
	 * that direction is TCP's: then its looks ask the kernel, which has had a reset. First: what
	 * it has sent without having seen this is seen here, or was sent at the same time. */
	ring_note_end(s->out);
	/* With bytes unread already the reset is certain: it comes before the peer turns to TCP. */
	bool unread = leaves_unread(s);
	if (unread)
		reset_unread(fd);
	else if (seen_of(sl) & SEEN_LINGERS) /* of an exec that another thread tries */
		linger_put_back(s, fd);
	/* A peer on another host hears of that, and of what was taken, one after the other. */
	bool for_good = !__libc_single_threaded && !peer_is_far(s);
	atomic_exchange(&s->in->closed, for_good ? WIRE_CLOSED_FOR_GOOD : WIRE_CLOSED);
	if (!unread && leaves_unread(s))
		reset_unread(fd);
}

NEAR_CODE static void release(struct sock *s)
{
	struct slot *sl = s->slot;
	bool had_memory = s->wire || s->kept_fd >= 0 || peer_is_far(s);
	/* Most connections end as they began: nobody can be amid memory or doorbells of theirs. */
	if (!had_memory && phase_of(sl) <= SLOT_MEETING) {
		earn_judge(s);
		s->is_blank = sock_is_short(s);
		slot_release(sl, __libc_single_threaded && !s->is_copied);
		return;
	}
	bells_hold_off();
	if (had_memory) {
		lock_take(&sl->rx_lock);
		lock_take(&sl->tx_lock);
		if (s->kept_fd >= 0 && sock_is_direct(s))
			limbo_last_words(s, s->kept_fd);
		sock_flush_counts(s); /* of those who were asleep when it was closed */
		peer_end(s);
		sock_drop_segment(s);
		lock_drop(&sl->tx_lock);
		lock_drop(&sl->rx_lock);
		fds_call_give(s->kept_fd);
	}
	earn_judge(s);
	slot_release(sl, false);
	bells_let_go();
}

void limbo_forking(void)
{
	lock_take(&limbo_lock);
}

void limbo_forked_parent(void)
{
	lock_drop(&limbo_lock);
}

FORK_CODE void limbo_forked(void)
{
	lock_drop_forked(&limbo_lock);
	bells_forked();
	for (int i = 0; i < limbo_used; i++) {
		sock_drop_segment(limbo[i]);
		atomic_store(&limbo[i]->peer, NULL);  /* a handle of the parent's */
		atomic_store(&limbo[i]->kept_fd, -1); /* closed by now */
		atomic_store(&limbo[i]->sleepers, 0);
		atomic_store(&limbo[i]->inside, 0);
	}
	limbo_used = 0;
}

void limbo_each(void (*each)(struct sock *s, void *arg), void *arg)
{
	lock_take(&limbo_lock);
	for (int i = 0; i < limbo_used; i++)
		each(limbo[i], arg);
	lock_drop(&limbo_lock);
}

/* The last close of it waits, where the program wants that: of none that a process has of which we do not know. */
static bool is_lingering(struct sock *s, struct linger *linger)
{
	socklen_t len = sizeof(*linger);
	int fd = s->kept_fd, unread = 0;
	return fd >= 0 && sock_is_direct(s) && s->wire &&
	       REAL(getsockopt)(fd, SOL_SOCKET, SO_LINGER, linger, &len) == 0 &&
	       linger->l_onoff && linger->l_linger > 0 && slot_close_is_last(s->slot) &&
	       !slot_is_lent(s->slot) && REAL(ioctl)(fd, FIONREAD, &unread) == 0 &&
	       unread == 0;
}

/*
 * What the kernel does in such a close, without a lock that others want. Until all is acknowledged, or the time is
 * over, or a signal comes.
 */
static void linger(struct sock *s, int seconds)
{
	const struct linger none = {.l_onoff = 0};
	uint64_t end = clock_now_ns() + (uint64_t)seconds * 1000000000u;
	struct slot *sl = s->slot;
	int fd = s->kept_fd, state;
	lock_take(&sl->rx_lock);
	lock_take(&sl->tx_lock);
	limbo_last_words(s, fd);
	lock_drop(&sl->tx_lock);
	lock_drop(&sl->rx_lock);
	REAL(shutdown)(fd, SHUT_RDWR);
	while (tcp_state(fd, &state) == 0 &&
	       (state == TCP_FIN_WAIT1 || state == TCP_CLOSING ||
		state == TCP_LAST_ACK) &&
	       clock_now_ns() < end && !crit_deferred &&
	       kernel_poll(NULL, 0, LINGER_LOOK_MS) == 0)
		;
	REAL(setsockopt)(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* Under the lock. What is to linger is left, or, `waits`, held and returned. */
static struct sock *limbo_sweep(bool waits, int *seconds)
{
	struct linger wish;
	struct sock *held = NULL;
	int kept = 0;
	for (int i = 0; i < limbo_used; i++) {
		struct sock *s = limbo[i];
		if (sock_is_busy(s) || held) {
			limbo[kept++] = s;
		} else if (is_lingering(s, &wish)) {
			limbo[kept++] = s;
			if (!waits)
				continue;
			atomic_fetch_add(&s->sleepers, 1);
			*seconds = wish.l_linger;
			held = s;
		} else {
			release(s);
		}
	}
	limbo_used = kept;
	return held;
}

void limbo_look(void)
{
	struct sock *s;
	int seconds;
	/* Sequentially consistent: who puts one there looks at its counts after. What a child of vfork
	 * closes stays open in its parent, which is to do it. */
	if (!atomic_load(&limbo_used) || kernel_getpid() != self_pid())
		return;
	do {
		crit_enter(); /* no handler forks, or jumps away, amid it */
		lock_take(&limbo_lock);
		s = limbo_sweep(true, &seconds);
		lock_drop(&limbo_lock);
		if (s) {
			linger(s, seconds);
			atomic_fetch_sub(&s->sleepers, 1);
		}
		crit_leave();
	} while (s);
}

bool sock_hold(struct sock *s, int fd)
{
	/* Sequentially consistent against fd_closing: it clears the table, then looks here. */
	atomic_fetch_add(&s->sleepers, 1);
	if (atomic_load(&fd_table[fd]) == s || fd == load_acquire(&s->kept_fd))
		return true; /* by the duplicate: held by a stay */
	sock_unhold(s);
	return false;
}

struct sock *sock_hold_at(int fd)
{
	struct sock *s = fd_sock(fd);
	if (!s)
		return NULL;
	crit_enter();
	if (sock_hold(s, fd))
		return s;
	crit_leave();
	return NULL;
}

void sock_let_go(struct sock *s)
{
	sock_unhold(s);
	crit_leave();
}

void sock_unhold(struct sock *s)
{
	if (atomic_fetch_sub(&s->sleepers, 1) != 1)
		return;
	if (!atomic_load(&s->closed)) {
		bells_release(s);
		return;
	}
	/* The last one out of a socket that was closed meanwhile. */
	limbo_look();
}

/* A full limbo leaks the slot to the reclaimer. */
NEAR_CODE void limbo_release(struct sock *s)
{
	if (!sock_is_busy(s) && limbo_used == 0 && s->kept_fd < 0) {
		release(s);
		return;
	}
	lock_take(&limbo_lock);
	if (limbo_used == LIMBO_MAX)
		limbo_sweep(false, NULL);
	if (limbo_used < LIMBO_MAX)
		limbo[limbo_used++] = s;
	lock_drop(&limbo_lock);
	limbo_look();
}
