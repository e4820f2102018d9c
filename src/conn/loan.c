/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that images get which do not know the ring: docs/processes.md, "Lent connections". */
#include "conn/loan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/put.h"
#include "base/real.h"
#include "conn/conn.h"
#include "conn/switch.h"
#include "conn/table.h"

/* Steps on TCP until the first look, which costs a system call; twice as many each time that it is lent, up to: */
#define STEPS_LEAST 16u
#define STEPS_MOST  1024u

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

/* ---- tokens ---- */

static int control(int fd, int command, long argument)
{
	return (int)kernel_call4(SYS_fcntl, fd, command, argument, 0);
}

static int make_token(int table)
{
	char path[32];
	int fd, token;

	*put_number(put_text(path, "/proc/self/fd/"), table) = '\0';
	fd = kernel_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return -1;
	token = control(fd, F_DUPFD, LOAN_FIRST);
	kernel_close(fd);
	/* The table's number may have been closed past us, and be another file's. */
	if (token < LOAN_FIRST + LOAN_MOST && (token < 0 || table_is_memory(token)))
		return token;
	kernel_close(token);
	return -1;
}

int loan_begin(void)
{
	int table = table_descriptor(), token;

	if (table < 0 || table_is_private())
		return -1;
	low_begin();
	token = make_token(table);
	low_end();
	return token;
}

void loan_end(int token)
{
	if (token >= 0)
		kernel_close(token);
}

bool loan_is_token(int fd)
{
	return control(fd, F_GETFD, 0) == 0 &&
	       (control(fd, F_GETFL, 0) & O_ACCMODE) == O_RDONLY && table_is_memory(fd);
}

/* Of one connection: slots are used again. */
static struct flock byte_of(struct slot *sl, short type)
{
	uint64_t at = (uint64_t)load_relaxed(&sl->generation) << 16 | slot_index(sl);

	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
}

static bool mark(int token, struct slot *sl)
{
	struct flock lock = byte_of(sl, F_RDLCK);

	return control(token, F_OFD_SETLK, (long)&lock) == 0;
}

/* Also where that cannot be asked. */
static bool is_marked(struct slot *sl)
{
	struct flock lock = byte_of(sl, F_WRLCK);

	int table = table_descriptor();

	/* The number may have become another file's before, or since. */
	return control(table, F_OFD_GETLK, (long)&lock) != 0 || lock.l_type != F_UNLCK ||
	       !table_is_memory(table);
}

/* ---- the count ---- */

static void count_one(struct slot *sl)
{
	uint32_t left = atomic_load(&sl->left), next;
	do {
		next = left + (1u << SLOT_LENT_SHIFT);
		if (next < left) /* never none */
			next += 1u << SLOT_LENT_SHIFT;
	} while (!atomic_compare_exchange_weak(&sl->left, &left, next));
}

/* It is back, if it was not lent once more since `left` was read. */
static bool is_back(struct slot *sl, uint32_t left)
{
	return atomic_compare_exchange_strong(&sl->left, &left,
					      left & ((1u << SLOT_LENT_SHIFT) - 1));
}

/* ---- who lends ---- */

static bool can_lend(struct sock *s)
{
	struct slot *sl = s->slot;

	/* Before, nothing asks the kernel what an image has set meanwhile. */
	return phase_of(sl) == SLOT_ATTACHED && !peer_is_far(s) && !peer_is_parents(s) &&
	       !load_relaxed(&sl->former) &&
	       !(seen_of(sl) & (SEEN_BROKEN | SEEN_RESET_TOLD));
}

/*
 * The mark is there before the count: see loan_look. And the count before the way down, which takes the locks: who goes up
 * has looked at it under them.
 */
static bool lend(struct sock *s, int token, bool stays)
{
	struct slot *sl = s->slot;
	uint32_t none = VD_REASON_NONE, least;

	/* With nobody left to whom it could come back it goes to TCP for good. */
	if ((!stays && slot_is_held_alone(sl, BUT_CLOSING)) || !mark(token, sl))
		return false;
	count_one(sl);
	if (!sock_is_direct(s))
		return true;
	atomic_compare_exchange_strong(&sl->reason, &none, VD_REASON_EXEC);
	least = 2 * load_relaxed(&sl->lent_least);
	least = least < STEPS_LEAST  ? STEPS_LEAST
		: least > STEPS_MOST ? STEPS_MOST
				     : least;
	/* Relaxed: guesses. */
	store_relaxed(&sl->lent_least, (uint16_t)least);
	store_relaxed(&sl->lent_steps, (uint16_t)least);
	sock_note_still(s);
	return true;
}

static void ask(struct sock *s, int fd, enum vd_reason reason)
{
	(void)fd;
	(void)reason;
	if (slot_is_lent(s->slot) && phase_of(s->slot) == SLOT_ATTACHED && rewind_lend(s))
		bell_ring_peer(s);
}

static void leave_ring(struct sock *s, int fd)
{
	if (gate_state(&s->slot->gate_tx) != GATE_RING)
		return;
	report_add(&report_now.downgraded, 1);
	tx_down(s, fd, GATE_TCP);
}

/* As for a way down for good: each end of a connection with itself asks before the other leaves the ring. */
bool loan_each(int token, bool stays, bool (*is_meant)(struct sock *s, int fd))
{
	bool some = false;

	for (int step = 0; step < 3; step++) {
		for (int fd = 0; fd < fd_limit(); fd++) {
			struct sock *s = fd_sock(fd);

			if (!s || !is_meant(s, fd) || !(s = sock_hold_at(fd)))
				continue;
			if (!can_lend(s) || !is_meant(s, fd)) {
				/* as ever */
			} else if (step == 0) {
				/* Another image may have it: that one's token says nothing of this one. */
				if (!lend(s, token, stays) && slot_is_lent(s->slot))
					sock_hand_over(s, fd, VD_REASON_EXEC);
			} else if (slot_is_lent(s->slot) &&
				   phase_of(s->slot) == SLOT_ATTACHED) {
				some = true;
				if (step == 1)
					ask(s, fd, VD_REASON_EXEC);
				else
					leave_ring(s, fd);
			}
			sock_let_go(s);
		}
	}
	return some;
}

ssize_t loan_wait(struct sock *s, int fd, int timeout_ms)
{
	return sock_way_down_wait(s, fd, VD_REASON_EXEC, timeout_ms, ask);
}

/* Behind the lock: who goes up has looked at the count under it. */
static bool is_on_tcp(struct lock *lock, _Atomic uint32_t *gate)
{
	lock_take(lock);
	bool is = gate_state(gate) == GATE_TCP;
	lock_drop(lock);
	return is;
}

/* Another thread may have lent one that had only begun when this token's were marked. */
bool loan_is_done(int token, struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	bool done = false;

	crit_enter();
	if (sock_hold(s, fd)) {
		done = slot_is_lent(sl) && can_lend(s) && mark(token, sl);
		if (done)
			count_one(sl);
		done = done && is_on_tcp(&sl->rx_lock, &sl->gate_rx) &&
		       is_on_tcp(&sl->tx_lock, &sl->gate_tx);
		sock_unhold(s);
	}
	crit_leave();
	return done;
}

/* ---- the way back ---- */

/* An image has ended the sending, which nobody was told of. */
static bool is_ended(struct sock *s, int fd)
{
	int state;

	return tcp_state(fd, &state) < 0 ||
	       (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT &&
		!(seen_of(s->slot) & SEEN_SHUT_WR));
}

static void open_again(struct sock *s)
{
	uint32_t exec = VD_REASON_EXEC;

	atomic_compare_exchange_strong(&s->slot->reason, &exec, VD_REASON_NONE);
	rx_take_back(s);
}

/*
 * The count is read first, then the lock is looked at: who lends takes the lock, then counts. So what is taken for being
 * back was not lent since, or is lent after this, by somebody who then brings down what goes up meanwhile.
 */
static void look(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint32_t left = atomic_load(&sl->left);

	if (is_marked(sl))
		return;
	/* Nobody else sets anything now. While it is lent, all of this is asked of the kernel. */
	if (phase_of(sl) == SLOT_ATTACHED) {
		if (options_reason(s, fd) != VD_REASON_NONE || is_ended(s, fd)) {
			if (fd_is(fd, s))
				sock_hand_over(s, fd, VD_REASON_EXEC);
			return;
		}
		options_learn(s, fd);
		sock_look(s, fd);
	}
	if (!fd_is(fd, s) || !is_back(sl, left))
		return;
	log_debug("fd %d: nobody else has it any more", fd);
	if (phase_of(sl) == SLOT_ATTACHED)
		open_again(s);
}

void loan_look(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint16_t steps = load_relaxed(&sl->lent_steps);

	/* A guess: of two threads one may count below 0. */
	if (phase_of(sl) == SLOT_ATTACHED && (uint16_t)(steps - 1) < STEPS_MOST) {
		fetch_sub_relaxed(&sl->lent_steps, 1);
		return;
	}
	crit_enter();
	if (sock_hold(s, fd)) {
		store_relaxed(&sl->lent_steps, STEPS_LEAST);
		look(s, fd);
		sock_unhold(s);
	}
	crit_leave();
}

/* ---- who has it ---- */

bool loan_may_be(int fd)
{
	int protocol = 0, state = 0;
	socklen_t len = sizeof(protocol);

	return REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
	       protocol == IPPROTO_TCP &&
	       (tcp_state(fd, &state) < 0 || state != TCP_LISTEN);
}

void loan_for_good(int fd)
{
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
	struct sock_fprog filter = {.len = 1, .filter = all};

	if (REAL(setsockopt)(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) <
	    0)
		log_error("fd %d: goes to somebody who is not known, untold", fd);
}
