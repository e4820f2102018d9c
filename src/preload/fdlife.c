/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that appear, are duplicated, and go: what the tables have to learn of it.
 */
#include "base/atomic.h"
#include "base/sections.h"
#include "conn/placing.h"
#include "preload/hook.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/* A peer that does not call us in this time cannot be waited for. */
#define TAKE_DOWN_MS 500

/* Every socket of this process is kept on TCP, with this reason. */
_Atomic uint32_t hook_refuse_reason NEAR_DATA;

_Atomic bool hook_is_short;

/* One past the highest number that was ever a socket or an epoll instance of ours. */
_Atomic int hook_ever_known FORK_DATA;

void hook_known(int fd)
{
	int end = load_relaxed(&hook_ever_known);

	while (fd >= end && !atomic_compare_exchange_weak_explicit(
				    &hook_ever_known, &end, fd + 1, memory_order_relaxed,
				    memory_order_relaxed))
		;
}

ssize_t hook_take_down_unread(struct sock *s, int fd, enum vd_reason reason)
{
	return sock_down_wait(s, fd, reason, TAKE_DOWN_MS);
}

ssize_t hook_take_down(struct sock *s, int fd, enum vd_reason reason)
{
	/* Our sending is the kernel's at once; what the peer sends until it has obeyed is read
	 * from the ring as ever, by splice too. Only who reads past us has to wait for that:
	 * the peer may be busy for long, and an event loop must not stand still meanwhile. */
	if (reason == VD_REASON_SIGIO || reason == VD_REASON_OOB ||
	    reason == VD_REASON_OPTION || reason == VD_REASON_PROTOCOL ||
	    reason == VD_REASON_SPLICE) {
		sock_refuse(s, fd, reason);
		return 0;
	}
	return hook_take_down_unread(s, fd, reason);
}

bool hook_is_stranded(struct sock *s, int fd, enum vd_reason reason)
{
	return hook_take_down(s, fd, reason) > 0 &&
	       sock_down_wait(s, fd, reason, HOOK_UNREAD_MS) > 0;
}

/* In a child of vfork: the number is for another image, which does not know the ring. The tables are
 * the parent's, where it is no number. */
static void hook_lent(int oldfd, int newfd)
{
	struct sock *s = fd_sock(oldfd);

	if (s && hook_is_stranded(s, oldfd, VD_REASON_EXEC))
		sock_sever(s, newfd);
}

static bool is_parted(void)
{
	return load_relaxed(&hook_is_parted);
}

void hook_give_way(int fd)
{
	if (!hook_active || hook_is_borrowed() || !fds_got(fd) || is_parted())
		return;
	/* Relaxed: a hint. */
	store_relaxed(&hook_is_short, true);
	sock_give_way(fd);
}

bool hook_make_room(int need, int from, struct sock_room *room)
{
	if (!hook_active || hook_is_borrowed() || is_parted())
		return false;
	return sock_make_room(need, from, room, announce_give_back);
}

/* Loads of libraries under way whose calls may go past us. */
_Atomic int hook_holds NEAR_DATA;

bool hook_hold_begin(void)
{
	/* Sequentially consistent, before the look: who comes later sees it. */
	atomic_fetch_add(&hook_holds, 1);
	for (int fd = 0; fd < fd_limit(); fd++) {
		if (fd_sock(fd)) {
			hook_hold_end();
			return false;
		}
	}
	return true;
}

void hook_hold_end(void)
{
	atomic_fetch_sub(&hook_holds, 1);
}

static bool is_any(struct sock *s, int fd)
{
	(void)s;
	(void)fd;
	return true;
}

void hook_refuse_all(enum vd_reason reason)
{
	int64_t end = 0, left;

	atomic_store(&hook_refuse_reason, reason);
	sock_hand_over_each(is_any, reason);
	/* One bound for all of them. */
	for (int fd = 0; fd < fd_limit(); fd++) {
		struct sock *s = fd_sock(fd);

		if (s && sock_is_direct(s)) {
			end = end ? end : hook_now_ms() + TAKE_DOWN_MS;
			left = end - hook_now_ms();
			sock_down_wait(s, fd, reason, left > 0 ? (int)left : 0);
		}
	}
	/* Whoever waits for one of these past us never looks: of what is not down yet, the
	 * kernel has to tell him. */
	for (int fd = 0; fd < hook_known_end(); fd++)
		epoll_nested_past(fd);
}

struct sock *hook_sock_now(int fd)
{
	return fd_sock(fd);
}

bool hook_refuses(void)
{
	return load_relaxed(&hook_refuse_reason) != VD_REASON_NONE;
}

void hook_took_slow(int fd)
{
	struct sock *s = fd_sock(fd);
	uint32_t reason = load_relaxed(&hook_refuse_reason);

	if (!s)
		return;
	if (!reason && atomic_load(&hook_holds))
		reason = VD_REASON_DEEPBIND;
	hook_known(fd);
	/* libc and child processes use these numbers past every symbol of ours. */
	if (fd <= 2)
		reason = VD_REASON_STDIO;
	if (reason != VD_REASON_NONE)
		sock_hand_over(s, fd, (enum vd_reason)reason);
}

void hook_closing_for(int fd, struct fd_placing *by)
{
	int saved = errno;

	if (hook_is_borrowed())
		return;
	ready_closing(fd);
	announce_closing(fd);
	fd_closing_for(fd, by);
	errno = saved;
}

static __attribute__((noinline)) bool closing_slow(int fd)
{
	int saved = errno;
	bool ok = true;

	ready_closing(fd);
	announce_closing(fd);
	ok = fd_closing(fd);
	errno = saved;
	return ok;
}

NEAR_CODE bool hook_closing(int fd)
{
	if (fd < 0 || hook_is_borrowed())
		return true;
	if (fds_is_ours(fd))
		return false;
	return (!instance_at(fd) && fd_closing_short(fd)) || closing_slow(fd);
}

void hook_closing_stream(FILE *f)
{
	int saved = errno, fd = fileno(f);

	if (fd_sock(fd) && !hook_is_borrowed()) {
		/* The last words come after the last bytes. */
		fflush(f);
		hook_closing(fd);
	}
	errno = saved;
}

void hook_placed(int oldfd, int newfd)
{
	int saved = errno;

	if (fd_sock(newfd))
		hook_took(newfd);
	hook_numbered(newfd);
	ready_duplicated(oldfd, newfd);
	if (instance_at(newfd))
		hook_known(newfd);
	errno = saved;
}

void hook_duplicated(int oldfd, int newfd)
{
	int saved = errno;

	if (hook_is_borrowed()) {
		hook_lent(oldfd, newfd);
		ready_goes_along(oldfd);
	} else {
		if (fd_sock(oldfd))
			fd_duplicated(oldfd, newfd);
		else
			hook_opened(newfd);
		hook_placed(oldfd, newfd);
	}
	errno = saved;
}
