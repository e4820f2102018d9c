/* SPDX-License-Identifier: Apache-2.0 */
/* Large sets of poll and select: the direct sockets in them, kept registered. */
#include "base/atomic.h"
#include "readiness/pollset.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/low.h"
#include "base/pages.h"
#include "base/real.h"
#include "base/sigsafe.h"
#include "readiness/epoll.h"
#include "readiness/ready.h"

/*
 * A thread is a sleepy one from so many points on, until it has less than so many: a call that
 * slept adds one, a call that did not takes one. The first is more than those that sleep since a
 * few spins were in vain.
 */
#define POLLSET_SLEEPY 128
#define POLLSET_AWAKE  96
/* Entries of calls without that pay for the registration of one. */
#define POLLSET_PRICE 16
#define POLLSET_CALLS 64 /* that can be saved up */
/* With fewer descriptors allowed the program may need that of the instance. */
#define POLLSET_FDS 4096
/* The kernel's events in one question. */
#define POLLSET_RAW 64

/* One of the set, as of the last call. */
struct pollset_entry {
	int fd;
	short events;
	bool direct; /* in the instance */
	struct sock *s;
	uint32_t generation; /* of its slot */
};

/* For each of an entry's parts in the block; one more of some is for the instance. */
#define ENTRY_BYTES 64
#define ROOM_LEAST  128
static_assert(ROOM_LEAST * (sizeof(struct pollset_entry) + sizeof(struct pollfd) +
			    sizeof(struct epoll_event) + 2 * sizeof(uint32_t)) +
			      sizeof(struct pollfd) + sizeof(uint32_t) <=
		      ROOM_LEAST * ENTRY_BYTES,
	      "they fit");

nfds_t pollset_over = POLLSET_LEAST;
/* For tests: whatever can be registered is, at once. */
static bool eager;
static _Atomic uint32_t taken;

static _Thread_local struct {
	uint32_t points;
	bool sleepy;
} lately __attribute__((tls_model("initial-exec")));
static _Thread_local struct pollset mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static bool key_made;
#ifdef __GLIBC__
/* For further keys a thread's first value takes memory from the heap. */
#define KEYS_WITHOUT_HEAP 32
#else
#define KEYS_WITHOUT_HEAP PTHREAD_KEYS_MAX
#endif

/* In a forked child it has ended, and a program may have closed it past us. */
static bool is_there(struct pollset *ps)
{
	return ps->owner == epoll_self() && instance_at(ps->epfd) == ps->in &&
	       fds_is_ours(ps->epfd);
}

static void drop(struct pollset *ps)
{
	if (ps->in && is_there(ps)) {
		ready_closing(ps->epfd);
		fds_close(ps->epfd);
	}
	ps->in = NULL;
}

/* What is registered and not looked at would be woken for. */
static void drop_unused(struct pollset *ps)
{
	if (ps->in && ps->small && !lately.sleepy && !eager)
		drop(ps);
}

static void end_of_thread(void *arg)
{
	struct pollset *ps = arg;

	crit_enter(); /* a handler that polls uses the block: another thread may have it */
	drop(ps);
	pages_give(ps->entry, ps->room * ENTRY_BYTES);
	*ps = (struct pollset){.room = 0};
	crit_leave();
}

uint32_t pollset_eagerly(void)
{
	eager = true;
	pollset_over = 0;
	return atomic_load(&taken);
}

nfds_t pollset_kept(void)
{
	return mine.in ? mine.n : 0;
}

bool pollset_is_sleepy(void)
{
	/* A large set is not given up for a small one. */
	return lately.sleepy && !(mine.in && !mine.small);
}

void pollset_count(bool slept)
{
	if (slept && lately.points < POLLSET_SLEEPY)
		lately.points++;
	else if (!slept && lately.points > 0)
		lately.points--;
	lately.sleepy = lately.points >= (lately.sleepy ? POLLSET_AWAKE : POLLSET_SLEEPY);
	if (!mine.busy)
		drop_unused(&mine);
}

void pollset_init(void)
{
	key_made =
		pthread_key_create(&key, end_of_thread) == 0 && key < KEYS_WITHOUT_HEAP;
}

/* In one block. What was in the old one is not looked at again. */
static bool make_room(struct pollset *ps, nfds_t n)
{
	nfds_t had = ps->room, room = had ? had : ROOM_LEAST;
	struct pollset_entry *entry, *old = ps->entry;

	if (n <= had)
		return true;
	while (room < n)
		room *= 2;
	/* A handler that jumps away loses nothing: this is a critical section. */
	entry = pages_take(room * ENTRY_BYTES);
	if (!entry)
		return false;
	if (pthread_setspecific(key, ps) != 0) {
		pages_give(entry, room * ENTRY_BYTES);
		return false;
	}
	/* A child of vfork may be killed amid these, with no room or the new one, and nothing that others have. */
	ps->room = 0;
	fence_compiler();
	ps->entry = entry;
	ps->sub = (struct pollfd *)(entry + room);
	ps->found = (struct epoll_event *)(ps->sub + room + 1);
	ps->rest = (uint32_t *)(ps->found + room);
	ps->sub_accept = ps->rest + room;
	fence_compiler();
	ps->room = room;
	pages_give(old, had * ENTRY_BYTES);
	return true;
}

static bool open_instance(struct pollset *ps)
{
	int fd = LOW_MADE(fds_adopt, REAL(epoll_create1)(EPOLL_CLOEXEC));

	if (fd < 0)
		return false;
	ready_epoll_create(fd);
	ps->epfd = fd;
	ps->owner = epoll_self();
	ps->in = instance_at(fd);
	if (ps->in)
		ps->in->hidden = true;
	else
		fds_close(fd);
	return ps->in;
}

/* ---- the set, compared with that of the last call ---- */

static uint32_t generation_of(struct sock *s)
{
	return load_relaxed(&s->slot->generation);
}

static struct sock *sock_at(const struct pollfd *p)
{
	return p->fd < 0 ? NULL : fd_sock(p->fd);
}

static struct epoll_event wish(const struct pollfd *p, nfds_t i)
{
	return (struct epoll_event){.events = (uint16_t)p->events, .data.u64 = i};
}

static bool is_entry(const struct pollset_entry *e, const struct pollfd *p)
{
	struct sock *s = sock_at(p);

	if (e->fd != p->fd || e->s != s)
		return false;
	return !s || (e->direct == sock_is_direct(s) &&
		      (!e->direct || e->generation == generation_of(s)));
}

/* Only what is asked for has changed. */
static void renew(struct pollset *ps, const struct pollfd *p, nfds_t i)
{
	struct epoll_event ev = wish(p, i);

	if (ps->entry[i].direct)
		ready_epoll_ctl(ps->epfd, EPOLL_CTL_MOD, p->fd, &ev);
	ps->entry[i].events = p->events;
}

static bool is_same(struct pollset *ps, struct pollfd *fds, nfds_t n)
{
	const struct pollset_entry *entry = ps->entry;

	if (!ps->in || ps->n != n)
		return false;
	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = 0;
		if (!is_entry(&entry[i], &fds[i]))
			return false;
		if (entry[i].events != fds[i].events)
			renew(ps, &fds[i], i);
	}
	return true;
}

/* The registration that is the program's wish now, or NULL. Both locks are held. */
static struct epoll_reg *reg_of(struct pollset *ps, const struct pollset_entry *e)
{
	struct epoll_reg *r = e->direct && ps->in ? reg_find(ps->in, e->s, e->fd) : NULL;

	return r && !r->parked && r->converted && !r->orphan ? r : NULL;
}

/* Notes the entries. Returns how many are to be registered. */
static nfds_t survey(struct pollset *ps, struct pollfd *fds, nfds_t n, nfds_t *direct)
{
	nfds_t missing = 0;

	*direct = ps->nrest = 0;
	for (nfds_t i = 0; i < n; i++) {
		struct sock *s = sock_at(&fds[i]);
		struct pollset_entry *e = &ps->entry[i];

		fds[i].revents = 0;
		*e = (struct pollset_entry){
			.fd = fds[i].fd, .events = fds[i].events, .s = s};
		if (s) {
			e->generation = generation_of(s);
			e->direct = sock_is_direct(s);
		}
		if (!e->direct)
			ps->rest[ps->nrest++] = (uint32_t)i;
		else
			missing += !reg_of(ps, e);
		*direct += e->direct;
	}
	return missing;
}

/* False when the entry stands in the set twice, or cannot be registered. */
static bool reg_bring(struct pollset *ps, struct pollfd *fds, nfds_t i)
{
	struct pollset_entry *e = &ps->entry[i];
	struct epoll_reg *r = reg_of(ps, e);
	struct epoll_event ev = wish(&fds[i], i);
	uint64_t was = r ? r->data.u64 : i;

	if (!r)
		return reg_enter(ps->in, ps->epfd, e->s, e->fd, &ev) == 0;
	if (was < i && ps->entry[was].fd == e->fd)
		return false;
	if (r->events != ev.events)
		reg_renew(r, &ev);
	r->data.u64 = i;
	return true;
}

static bool is_entry_of(struct pollset *ps, struct epoll_reg *r)
{
	uint64_t i = r->data.u64;
	struct pollset_entry *e = i < ps->n ? &ps->entry[i] : NULL;

	return e && e->direct && e->fd == r->fd && e->s == r->s && !r->orphan;
}

/* Registrations of sockets that are in the set no more. */
static void drop_others(struct pollset *ps)
{
	for (struct epoll_reg *r = ps->in->regs, *next; r; r = next) {
		next = r->next;
		if (reg_is_stale(r)) {
			r->bell = false; /* the number may be another's */
			reg_abandon(r);
			reg_destroy(r);
		} else if (!r->parked && !is_entry_of(ps, r) && reg_leave(r, ps->epfd)) {
			reg_disarm(r);
			reg_destroy(r);
		}
	}
}

/* Both locks are held. */
static bool bring(struct pollset *ps, struct pollfd *fds, nfds_t n)
{
	ps->n = n;
	for (nfds_t i = 0; i < n; i++)
		if (ps->entry[i].direct && !reg_bring(ps, fds, i))
			return false;
	drop_others(ps);
	return true;
}

/* Direct sockets, at least, of n. */
static nfds_t least(nfds_t n)
{
	return n > POLLSET_LEAST ? POLLSET_LEAST : POLLSET_SMALL;
}

static bool may_open(void)
{
	return eager || fds_limit() >= POLLSET_FDS;
}

static bool pays(struct pollset *ps, nfds_t n, nfds_t direct, nfds_t missing)
{
	if (eager)
		return direct > 0;
	return direct >= least(n) && missing * POLLSET_PRICE <= ps->credit && may_open();
}

static bool rebuild(struct pollset *ps, struct pollfd *fds, nfds_t n)
{
	nfds_t direct, missing, few = n < POLLSET_LEAST ? n : POLLSET_LEAST;
	bool ok = false;

	ps->n = 0;
	if ((ps->credit < few * POLLSET_PRICE && !eager) || !make_room(ps, n))
		return false;
	if (!ps->in) {
		missing = survey(ps, fds, n, &direct);
		if (!pays(ps, n, direct, missing)) {
			/* Where nearly all are the kernel's, this look is to be rare. */
			ps->credit = direct < least(n) || !may_open() ? 0 : ps->credit;
			return false;
		}
		if (!open_instance(ps))
			return false;
		ps->small = n <= POLLSET_LEAST;
	}
	epoll_list_lock();
	instance_lock(ps->in);
	ps->reverts = ps->in->reverts;
	missing = survey(ps, fds, n, &direct);
	if (pays(ps, n, direct, missing)) {
		missing *= POLLSET_PRICE;
		ps->credit -= missing < ps->credit ? missing : ps->credit;
		ok = bring(ps, fds, n);
		ps->credit = ok ? ps->credit : 0;
		ps->small &= n <= POLLSET_LEAST;
	}
	ps->n = ok ? n : 0;
	instance_unlock(ps->in);
	epoll_list_unlock();
	return ok;
}

static void earn(struct pollset *ps, nfds_t n)
{
	ps->credit += n;
	if (ps->credit > POLLSET_CALLS * n)
		ps->credit = POLLSET_CALLS * n;
}

/* Before the set is compared: whatever goes back after that is noticed. */
static void note_reverts(struct pollset *ps)
{
	if (!ps->in)
		return;
	instance_lock(ps->in);
	ps->reverts = ps->in->reverts;
	instance_unlock(ps->in);
}

struct pollset *pollset_take(struct pollfd *fds, const uint32_t *accept, nfds_t n)
{
	struct pollset *ps = &mine;
	bool ok;

	if (!key_made || ps->busy)
		return NULL;
	ps->busy = true;
	if (ps->in && !is_there(ps))
		ps->in = NULL;
	earn(ps, n);
	ps->stale = ps->asleep = false;
	ps->fds = fds;
	ps->accept = accept;
	ps->nfound = 0;
	note_reverts(ps);
	ok = is_same(ps, fds, n) || rebuild(ps, fds, n);
	if (ok) {
		if (eager)
			atomic_fetch_add(&taken, 1);
		instance_lock(ps->in);
		ps->in->polled = true;
		ps->in->calls++;
		instance_age(ps->in);
		instance_unlock(ps->in);
		return ps;
	}
	ps->busy = false;
	return NULL;
}

void pollset_give_up(void)
{
	if (!mine.busy)
		drop(&mine);
}

void pollset_leave(struct pollset *ps)
{
	instance_let_close(ps->in);
	ps->busy = false;
	drop_unused(ps);
}

/* ---- one call ---- */

static uint32_t accepted(const struct pollset *ps, uint64_t i)
{
	if (ps->accept)
		return ps->accept[i];
	return (uint16_t)ps->fds[i].events | LOOK_ALWAYS;
}

int pollset_look(struct pollset *ps)
{
	struct batch b; /* its largest part need not be cleared */

	ps->nfound = 0;
	b.ev = ps->found;
	b.max = (int)ps->n;
	instance_lock(ps->in);
	instance_scan(ps->in, &b);
	/* What has gone back to the kernel meanwhile says nothing here. */
	ps->stale |= ps->in->reverts != ps->reverts;
	instance_unlock(ps->in);
	for (int i = 0; i < b.n; i++) {
		struct epoll_event ev = ps->found[i];

		ev.events &= accepted(ps, ev.data.u64);
		if (ev.events)
			ps->found[ps->nfound++] = ev;
	}
	return pollset_found(ps);
}

int pollset_found(struct pollset *ps)
{
	return ps->nfound + ps->stale;
}

bool pollset_hear(struct pollset *ps)
{
	struct epoll_event raw[POLLSET_RAW];
	int n, others = 0;
	bool heard = false;

	do {
		n = (int)kernel_call4(SYS_epoll_wait, ps->epfd, (long)raw, POLLSET_RAW,
				      0);
		heard |= n != 0;
		if (n > 0)
			others = instance_translate(ps->in, raw, n, raw);
	} while (n == POLLSET_RAW && !others);
	/* A registration is the kernel's again, or this is a child that came here by a fork. */
	ps->stale |= others > 0 || n < 0;
	return heard;
}

nfds_t pollset_rest(struct pollset *ps)
{
	for (nfds_t j = 0; j < ps->nrest; j++) {
		const struct pollfd *p = &ps->fds[ps->rest[j]];

		ps->sub[j] = (struct pollfd){.fd = p->fd, .events = p->events};
		ps->sub_accept[j] =
			accepted(ps, ps->rest[j]) | (ps->accept ? 0 : POLLNVAL);
	}
	ps->sub[ps->nrest] = (struct pollfd){.fd = ps->epfd, .events = POLLIN};
	ps->sub_accept[ps->nrest] = 0;
	return ps->nrest + 1;
}

/* Those that another thread has closed during the call. */
static int answer_closed(struct pollset *ps, struct pollfd *fds)
{
	int count = 0;

	for (nfds_t i = 0; i < ps->n; i++) {
		if (!ps->entry[i].direct || fd_is(fds[i].fd, ps->entry[i].s))
			continue;
		count += !fds[i].revents;
		fds[i].revents = POLLNVAL;
	}
	return count;
}

int pollset_answer(struct pollset *ps, struct pollfd *fds)
{
	int count = ps->nfound;

	for (nfds_t j = 0; j < ps->nrest; j++) {
		fds[ps->rest[j]].revents = ps->sub[j].revents;
		count += ps->sub[j].revents != 0;
	}
	for (int k = 0; k < ps->nfound; k++)
		fds[ps->found[k].data.u64].revents = (short)ps->found[k].events;
	if (count && atomic_load(&ps->in->lingering))
		count += answer_closed(ps, fds);
	return count;
}

void pollset_crowd(struct pollset *ps, struct look_crowd *c)
{
	instance_crowd(ps->in, c);
}

void pollset_lie_down(struct pollset *ps)
{
	instance_lock(ps->in);
	ps->sleep = instance_sleep(ps->in);
	ps->asleep = true;
	instance_arm(ps->in);
	instance_unlock(ps->in);
}

uint64_t pollset_nap_ns(struct pollset *ps)
{
	uint64_t nap;

	instance_lock(ps->in);
	nap = instance_nap_ns(ps->in);
	instance_unlock(ps->in);
	return nap;
}

void pollset_wake(struct pollset *ps)
{
	if (!ps->asleep)
		return;
	ps->asleep = false;
	instance_up(ps->in, ps->sleep);
}
