/* SPDX-License-Identifier: Apache-2.0 */
/* From descriptor to sock: the table, and what opening, duplicating and forking do to it. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/atomic.h"
#include "base/fds.h"
#include "base/fds_call.h"
#include "base/log.h"
#include "base/pageable.h"
#include "base/real.h"
#include "base/reason.h"
#include "base/sections.h"
#include "base/space.h"
#include "conn/conn.h"
#include "conn/heed.h"
#include "conn/leave.h"
#include "conn/limbo.h"
#include "conn/passed.h"
#include "conn/report.h"
#include "conn/shown.h"
#include "conn/table.h"
#include "conn/trace.h"
#include "ring/source.h"
#include "settings/config.h"

#define SLOT_COUNT     65536u
#define FD_TABLE_MAX   (1 << 20)
#define FD_TABLE_LEAST 1024
/* Where the program's data is limited: 1.3 MB in the place of up to 32. */
#define SLOT_COUNT_SMALL 2048u
#define FD_TABLE_SMALL	 (1 << 16)

static struct sock *socks NEAR_DATA; /* one for each slot */

/* The slots whose `forking` this thread has raised. A fork copies the list to the child. */
static uint32_t *forking_list;
static uint32_t forking_used FORK_DATA;

uint32_t sock_forks FORK_DATA;

static void *map_private(size_t size)
{
	void *map =
		pageable_map(NULL, size, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	return map == MAP_FAILED ? NULL : map;
}

int fd_table_init(void)
{
	bool small = space_is_counted();
	uint32_t slots = small ? SLOT_COUNT_SMALL : SLOT_COUNT;
	struct rlimit lim = {0};
	int size = small ? FD_TABLE_SMALL : FD_TABLE_MAX;
	if (kernel_getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_max < (rlim_t)size)
		size = lim.rlim_max < FD_TABLE_LEAST ? FD_TABLE_LEAST : (int)lim.rlim_max;
	if (!space_is_left(slots * (sizeof(struct slot) + sizeof(*socks)) +
			   sizeof(*fd_table) * (size_t)size))
		return -ENOMEM;
	int r = slot_table_init(slots, TABLE_SHEETS);
	wait_init();
	if (r < 0)
		return r;
	socks = map_private(sizeof(*socks) * slots);
	fd_table = map_private(sizeof(*fd_table) * (size_t)size);
	forking_list = map_private(sizeof(*forking_list) * slots);
	if (!socks || !fd_table || !forking_list)
		return -ENOMEM;
	report_collect = sock_counts;
	fd_table_size = fd_table_end = size;
	return 0;
}

void fd_stand_down(void)
{
	fd_table_size = 0;
}

/*
 * Not the pointers into the segment's window: a thread that lost a race against close may
 * still follow them (it finds out under the locks). Nor its counts of threads: they balance.
 * Relaxed: whoever finds it in the table has all of it, by fd_table_set.
 */
static __attribute__((noinline)) void reset_rest(struct sock *s)
{
	s->meet_fd = -1;
	store_relaxed(&s->kept_fd, -1);
	store_relaxed(&s->bell, -1);
	store_relaxed(&s->peer_bell, -1);
	store_relaxed(&s->far_bell, -1);
	s->look_end_ms = 0;
	store_relaxed(&s->peer, NULL);
	store_relaxed(&s->cpu, 0);
	store_relaxed(&s->rush, 0);
	store_relaxed(&s->stuck_ns, 0);
	store_relaxed(&s->spin_failed, 0);
	store_relaxed(&s->spin_skip, 0);
	store_relaxed(&s->brief_failed, 0);
	store_relaxed(&s->brief_skip, 0);
	store_relaxed(&s->brief_sent, 0);
	s->tx_bytes = s->rx_bytes = 0;
	s->past = (struct past){0};
	s->still_at = s->still_since_ms = 0;
	store_relaxed(&s->forked_ms, 0);
	store_relaxed(&s->ground_until_ms, 0);
	store_relaxed(&s->ground_ms, 0);
	s->left = NULL;
}

static inline void sock_reset(struct sock *s, struct slot *sl)
{
	if (s->slot != sl) /* never changes: others may read it at any time */
		s->slot = sl;
	s->wire = NULL;
	s->regs = NULL;
	store_relaxed(&s->fds, 1);
	store_relaxed(&s->awaited, 0);
	store_relaxed(&s->closed, 0);
	store_relaxed(&s->look_due, 0);
	store_relaxed(&s->edges, 0);
	store_relaxed(&s->looked, 0);
	store_relaxed(&s->is_copied, false);
	s->is_native = false;
	s->has_listened = false;
	store_relaxed(&s->elsewhere, 0);
	store_relaxed(&s->is_plain, false);
	if (__builtin_expect(!s->is_blank, 0))
		reset_rest(s);
	s->is_blank = false;
}

static __attribute__((noinline, cold)) void tell_full(int fd)
{
	log_debug("fd %d: stays on TCP: %s (%s)", fd, reason_name(VD_REASON_FULL),
		  reason_text(VD_REASON_FULL));
}

/* No fork and no handler comes in between: a thread that is alone cannot call one. */
static inline bool hold_off(void)
{
	crit_enter();
	bool alone = __libc_single_threaded;
	if (!alone)
		lock_take(&forking_lock);
	return alone;
}

static inline void let_go(bool alone)
{
	if (!alone)
		lock_drop(&forking_lock);
	crit_leave();
}

static inline struct sock *open_sock(int fd, bool nonblock, enum tcp_role role)
{
	struct slot *sl;
	struct sock *s;
	bool alone;
	if ((unsigned)fd >= (unsigned)fd_table_size)
		return NULL;
	if (__builtin_expect(fd_table[fd] != NULL, 0))
		fd_forget(fd);
	alone = hold_off();
	sl = slot_alloc();
	if (__builtin_expect(!sl, 0)) {
		let_go(alone);
		tell_full(fd);
		return NULL;
	}
	s = &socks[slot_index(sl)];
	sock_reset(s, sl);
	store_relaxed(&sl->earn_due, load_relaxed(&earn_first_due));
	store_relaxed(&sl->fd, fd);
	store_relaxed(&sl->role, role);
	store_relaxed(&sl->nonblock, nonblock);
	if (__builtin_expect(fd <= 2, 0)) {
		meeting_refuse(s, VD_REASON_STDIO);
	} else if (role == TCP_ROLE_ACCEPTED) {
		store_relaxed(&sl->reason, VD_REASON_SHORT);
		store_relaxed(&s->awaited, 1);
		single_add32(&sock_awaited, 1, alone);
		store_relaxed(&sl->phase, SLOT_EARNING);
	}
	fd_table_set(fd, s);
	let_go(alone);
	return s;
}

NEAR_CODE struct sock *fd_open_socket(int fd, bool nonblock)
{
	return open_sock(fd, nonblock, TCP_ROLE_UNKNOWN);
}

NEAR_CODE struct sock *fd_open_accepted(int fd, bool nonblock)
{
	struct sock *s = open_sock(fd, nonblock, TCP_ROLE_ACCEPTED);
	if (!s && (unsigned)fd >= (unsigned)fd_table_size)
		return NULL;
	report_add(&report_now.connections, 1);
	if (!s)
		report_add(&report_now.reasons[VD_REASON_FULL], 1);
	return s;
}

struct sock *fd_open_carried(int fd, bool nonblock, enum tcp_role role)
{
	struct sock *s = fd > 2 ? open_sock(fd, nonblock, role) : NULL;

	if (s) { /* its peer was met, or was not, before the exec; and it was heeded */
		meeting_over(s);
		heed_wait(s, EPOLLIN);
	}
	return s;
}

NEAR_CODE void fd_connecting(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	(void)fd;
	crit_enter();
	/* A handler may have forked, or made a thread, before this section, and not since. */
	bool alone = __libc_single_threaded && !load_relaxed(&s->is_copied) &&
		     !load_relaxed(&sl->ctl.word);
	if (!alone && !ctl_take(s)) {
		crit_leave();
		return;
	}
	bool first = load_relaxed(&sl->role) == TCP_ROLE_UNKNOWN;
	if (first) {
		store_relaxed(&sl->role, TCP_ROLE_CONNECTED);
		if (phase_of(sl) == SLOT_IDLE) {
			store_relaxed(&sl->reason, VD_REASON_SHORT);
			store_release(&sl->phase, SLOT_EARNING);
		}
	}
	if (!alone)
		lock_drop(&sl->ctl);
	crit_leave();
	if (first)
		report_add(&report_now.connections, 1);
}

int fd_number(struct sock *s)
{
	for (int fd = 0; fd < fd_limit(); fd++)
		if (fd_is(fd, s))
			return fd;
	return -1;
}

void fd_duplicated(int oldfd, int newfd)
{
	struct sock *s = fd_sock(oldfd);
	if (oldfd == newfd || (unsigned)newfd >= (unsigned)fd_table_size)
		return;
	if (fd_sock(newfd))
		fd_forget(newfd);
	if (!s)
		return;
	atomic_fetch_add(&s->fds, 1);
	fd_table_set(newfd, s);
}

/* In the parent, before fork: each child holds every socket from its first moment on. */
void sock_forking(void)
{
	passed_copied();
	limbo_forking();
	lock_take(&forking_lock);
	fds_calls_forking();
	forking_used = 0;
	for (int fd = 0; fd < fd_limit() && forking_used < slot_count(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s)
			continue;
		if (table_is_private()) { /* a child has a copy of its own */
			slot_pass_on(s->slot);
			continue;
		}
		shown_forking(s);
		/* A store that changes nothing would copy the page all the same, each time. */
		if (!s->is_copied)
			s->is_copied = true;
		slot_pass_on(s->slot);
		atomic_fetch_add(&s->slot->forking, 1);
		if (forking_list[forking_used] != slot_index(s->slot))
			forking_list[forking_used] = slot_index(s->slot);
		forking_used++;
	}
	slot_table_forking();
	if (peer_ops)
		peer_ops->forking();
}

struct table_process *sock_forked_parent(pid_t child)
{
	struct table_process *untold;
	if (peer_ops)
		peer_ops->forked_parent();
	untold = table_forked_parent(child);
	for (uint32_t i = 0; child == -1 && i < forking_used; i++)
		slot_forked(slot_at(forking_list[i]));
	peer_forked_parent();
	lock_drop(&forking_lock);
	limbo_forked_parent();
	return untold;
}

static inline void zero(_Atomic uint32_t *word)
{
	if (load_relaxed(word))
		store_relaxed(word, 0);
}

/* The parent's other threads do not exist in the child, nor do their counts. */
static inline void forget_threads(struct sock *s)
{
	zero(&s->sleepers);
	zero(&s->inside);
	zero(&s->bell_users);
	zero(&s->cpu);
	if (s->tx_bytes | s->rx_bytes | s->is_native) {
		s->tx_bytes = s->rx_bytes = 0;
		s->is_native = false;
	}
}

FORK_CODE void sock_forked_child(bool told)
{
	/* The parent seems to have no pid: this is another pid namespace. */
	bool foreign = kernel_getppid() == 0;
	sock_forks++;
	if (peer_ops)
		peer_ops->forked_child();
	lock_drop_forked(&forking_lock);
	source_forked_child();
	fds_calls_forked_child();
	trace_forked();
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);
		if (!s)
			continue;
		if (foreign)
			slot_hold_foreign(s->slot);
		else
			slot_hold(s->slot);
		forget_threads(s);
	}
	/* In another pid namespace it has another pid than the parent knows. */
	if (foreign)
		slot_table_uncounted();
	table_forked_child(foreign || !told);
	/* After the holds: a socket that was closed in between is freed by this. */
	for (uint32_t i = 0; i < forking_used; i++)
		slot_forked(slot_at(forking_list[i]));
	limbo_forked();
	peer_forked_child();
	leave_forked_child();
}
