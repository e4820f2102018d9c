/* SPDX-License-Identifier: Apache-2.0 */
/* Which listening sockets of this process are announced to connectors on this host. */
#include <fcntl.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/real.h"
#include "base/reason.h"
#include "base/sections.h"
#include "preload/hook.h"
#include "readiness/look.h"
#include "rendezvous/rendezvous.h"

/* Listeners beyond these are not announced: their connections stay on TCP. */
#define ANNOUNCED_MAX 256

struct listener {
	bool used;
	/* NULL: the listener is closed, its connections may still meet. */
	struct sock *_Atomic s;
	int announced; /* -1: not, or no more: the accepts try again */
};
/* The first ones lie where a child that closes them writes anyway. */
#define FIRST_LISTENERS 8
static struct listener first[FIRST_LISTENERS] FORK_DATA;
static struct listener others[ANNOUNCED_MAX - FIRST_LISTENERS];
static _Atomic int table_used; /* entries below it may be in use */
static struct lock table_lock FORK_DATA;
/* Entries whose listener is closed. Raised before their connections are looked for, as the count of
 * these is lowered before a look at this: one of the two sees the other. */
static _Atomic int outlived NEAR_DATA;

/* Another process may listen on the port as well, at another address, or may be about to end. It has the
 * name until then, which may be at once. */
#define RETRY_NS      20000000u
#define TRIES_AT_ONCE 8u
static unsigned tries_at_once;
static uint64_t retry_at_ns;
_Atomic int announce_missing;

static struct listener *listener_at(int i)
{
	return i < FIRST_LISTENERS ? &first[i] : &others[i - FIRST_LISTENERS];
}

/* Under the lock, these two. */
static bool may_try(void)
{
	return tries_at_once > 0 || clock_now_ns() >= retry_at_ns;
}

static int try_announce(int fd)
{
	int announced = meet_announce(fd);

	if (announced >= 0)
		return announced;
	if (tries_at_once > 0)
		tries_at_once--;
	else
		retry_at_ns = clock_now_ns() + RETRY_NS;
	return -1;
}

void announce_listener(struct sock *s, int fd)
{
	int saved = errno, used, free_entry;
	struct listener *l;
	bool is_new, is_known = false;

	if (load_relaxed(&hook_is_parted))
		return;
	lock_take(&table_lock);
	is_new = !s->has_listened;
	s->has_listened = true;
	used = load_relaxed(&table_used);
	free_entry = used;
	for (int i = 0; i < used; i++) {
		l = listener_at(i);
		if (l->used && l->s == s)
			is_known = true; /* a second listen() */
		else if (!l->used && free_entry == used)
			free_entry = i;
	}
	if (free_entry == ANNOUNCED_MAX && is_new)
		log_info("fd %d: not announced, its connections stay on TCP: %s (%s)", fd,
			 reason_name(VD_REASON_FULL), reason_text(VD_REASON_FULL));
	if (free_entry < ANNOUNCED_MAX && !is_known) {
		l = listener_at(free_entry);
		l->used = true;
		l->s = s;
		l->announced = try_announce(fd);
		if (l->announced < 0) {
			tries_at_once = TRIES_AT_ONCE;
			atomic_fetch_add(&announce_missing, 1);
		}
		/* Relaxed: the closing side looks again under the lock. */
		if (free_entry == used)
			store_relaxed(&table_used, used + 1);
	}
	lock_drop(&table_lock);
	errno = saved;
}

bool announce_found(int fd)
{
	int saved = errno;

	/* Several threads accept at once: one of them takes it in. */
	lock_take(&table_lock);
	if (!fd_sock(fd))
		fd_open_socket(fd, REAL(fcntl64)(fd, F_GETFL) & O_NONBLOCK);
	lock_drop(&table_lock);
	hook_known(fd);
	if (fd_sock(fd))
		announce_listener(fd_sock(fd), fd);
	errno = saved;
	return fd_sock(fd) != NULL;
}

/* Withdraws what belongs to s; with s NULL, what outlived its listener. */
static FORK_CODE void withdraw(struct sock *s)
{
	int saved = errno;

	lock_take(&table_lock);
	for (int i = 0; i < load_relaxed(&table_used); i++) {
		struct listener *l = listener_at(i);

		if (!l->used || l->s != s)
			continue;
		if (s)
			atomic_fetch_add(&outlived, 1);
		l->s = NULL;
		/* A server may accept, close its listener, and only then talk. */
		if (atomic_load(&sock_awaited) > 0)
			continue;
		if (l->announced < 0)
			atomic_fetch_sub(&announce_missing, 1);
		meet_unannounce(l->announced);
		l->used = false;
		atomic_fetch_sub(&outlived, 1);
	}
	lock_drop(&table_lock);
	errno = saved;
}

/* Relaxed: a listen() that goes on beside the close may come after it as well. */
static bool is_announced(const struct sock *s)
{
	int used = load_relaxed(&table_used);

	for (int i = 0; i < used; i++)
		if (load_relaxed(&listener_at(i)->s) == s)
			return true;
	return false;
}

NEAR_CODE void announce_closing(int fd)
{
	struct sock *s = fd_sock(fd);

	/* Other descriptors of this process keep the listener alive. */
	if (s && s->has_listened && is_announced(s) && load_relaxed(&s->fds) == 1)
		withdraw(s);
}

void announce_leave(void)
{
	lock_take(&table_lock);
	for (int i = 0; i < load_relaxed(&table_used); i++) {
		struct listener *l = listener_at(i);

		if (!l->used)
			continue;
		if (!l->s)
			atomic_fetch_sub(&outlived, 1);
		if (l->announced < 0)
			atomic_fetch_sub(&announce_missing, 1);
		meet_unannounce(l->announced);
		l->s = NULL;
		l->used = false;
	}
	lock_drop(&table_lock);
}

bool announce_give_back(void)
{
	int saved = errno, used;
	bool given = false;

	lock_take(&table_lock);
	used = load_relaxed(&table_used);
	for (int i = 0; i < used && !given; i++) {
		struct listener *l = listener_at(i);

		if (!l->used || l->announced < 0)
			continue;
		meet_unannounce(l->announced);
		l->announced = -1;
		given = true;
		tries_at_once = 0;
		retry_at_ns = clock_now_ns() + RETRY_NS;
		atomic_fetch_add(&announce_missing, 1);
	}
	lock_drop(&table_lock);
	errno = saved;
	return given;
}

void announce_again(struct sock *s, int fd)
{
	int saved = errno, used;

	lock_take(&table_lock);
	used = load_relaxed(&table_used);
	for (int i = 0; i < used && may_try(); i++) {
		struct listener *l = listener_at(i);

		if (!l->used || l->s != s || l->announced >= 0)
			continue;
		l->announced = try_announce(fd);
		if (l->announced >= 0)
			atomic_fetch_sub(&announce_missing, 1);
	}
	lock_drop(&table_lock);
	errno = saved;
}

void announce_forking(void)
{
	lock_take(&table_lock);
}

void announce_forked_parent(void)
{
	lock_drop(&table_lock);
}

FORK_CODE void announce_forked_child(void)
{
	lock_drop_forked(&table_lock);
}

NEAR_CODE static void none_awaited(void)
{
	if (atomic_load(&outlived) > 0)
		withdraw(NULL);
}

void announce_init(void)
{
	sock_on_none_awaited = none_awaited;
}
