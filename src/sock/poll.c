/* SPDX-License-Identifier: Apache-2.0 */
/* poll over kernel descriptors and direct sockets: two halves, one call. */
#include "sock/poll.h"

#include <errno.h>
#include <stdlib.h>
#include <x86intrin.h>

#include "base/crit.h"
#include "base/kernel.h"
#include "base/probe.h"
#include "base/real.h"
#include "base/report.h"
#include "sock/look.h"
#include "sock/pollset.h"
#include "stream/counted.h"

#define POLL_STACK 64
/* Calls that found something in memory alone, or ticks (20 us), before one asks the kernel. */
#define POLL_ASK_CALLS 16
#define POLL_ASK_TICKS 60000
/* Times that a set is looked at anew in one call, before it is left for this one. */
#define POLL_SETS 4
/* Questions to the kernel for one answer, while memory has more after each. */
#define POLL_ROUNDS 4

/* What this thread did to one entry before its sleep, to be undone after it. */
struct item {
	struct sock *s;	     /* NULL: a kernel descriptor */
	uint32_t armed;	     /* interest that was armed */
	bool direct;	     /* its readiness is ours */
	bool counted;	     /* sock_poll_enter succeeded */
	bool mute;	     /* holds only bits that do not count: left out of sleeps */
	bool heard;	     /* the sleep has told something of it */
	struct pollfd *bell; /* its doorbell among the descriptors slept on */
	struct pollfd *far;  /* and its far bell, if it has one */
};

struct wait {
	struct pollfd *fds;
	const uint32_t *accept;
	nfds_t n;
	struct pollset *set; /* or NULL; its instance is the last entry */
	struct pollfd *k;    /* n entries like fds, then the doorbells */
	nfds_t nk;
	struct item *item;
	nfds_t direct; /* entries that the last look in memory was for */
	bool any_kernel, any_rdhup;
	bool leave_tcp;	   /* the kernel is not asked about direct sockets this time */
	uint32_t handlers; /* signal handlers run by this thread before the call */
	bool late;	   /* a sleep lasted until the deadline */
	bool slept, dozed; /* the last one did take place; one of them has */
	int result;	   /* of the last sleep */
};

/* Calls since the kernel was last asked, and when that was. */
static _Thread_local struct {
	uint32_t calls;
	uint64_t at;
} unasked __attribute__((tls_model("initial-exec")));

static uint32_t accepted(const struct wait *w, nfds_t i)
{
	if (w->accept)
		return w->accept[i];
	return (uint16_t)w->fds[i].events | LOOK_ALWAYS | POLLNVAL;
}

static uint32_t wanted(const struct wait *w, nfds_t i)
{
	return (uint16_t)w->fds[i].events | LOOK_ALWAYS;
}

/* Looks at the direct sockets, in memory where that is enough. Returns those ready. */
static int look_direct(struct wait *w)
{
	int count = 0;

	w->direct = 0;
	/* Of a set, memory shows those that have lately been busy. */
	w->any_kernel = w->set != NULL;
	w->any_rdhup = false;
	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = p->fd < 0 ? NULL : fd_sock(p->fd);

		p->revents = 0;
		if (p->fd < 0)
			continue;
		if (!s || !sock_is_direct(s)) {
			w->any_kernel = true;
			continue;
		}
		w->direct++;
		w->any_rdhup |= p->events & POLLRDHUP;
		p->revents =
			(short)(look_level_held(s, p->fd, wanted(w, i)) & accepted(w, i));
		count += p->revents != 0;
	}
	return count + (w->set ? pollset_look(w->set) : 0);
}

static void ask_tcp(struct pollfd *k, struct sock *s, uint32_t want)
{
	int events = look_kernel_interest(s, want);

	if (events < 0)
		k->fd = -1;
	else
		k->events = (short)events;
}

/* Returns how many direct sockets there are among the entries. */
static nfds_t ask_all(struct wait *w)
{
	nfds_t direct = 0;

	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = p->fd < 0 ? NULL : fd_sock(p->fd);

		w->item[i].s = s && sock_is_direct(s) ? s : NULL;
		w->k[i] = *p;
		if (!w->item[i].s)
			continue;
		direct++;
		if (w->leave_tcp)
			w->k[i].fd = -1;
		else
			ask_tcp(&w->k[i], w->item[i].s, wanted(w, i));
	}
	return direct;
}

/* Without waiting. A count, or -errno. */
static int ask_kernel(struct wait *w)
{
	/* With all in the instance, what it has to tell is heard at once. */
	if (w->set && w->n == 1) {
		w->k[0].revents = 0;
		return pollset_hear(w->set);
	}
	return kernel_poll(w->k, w->n, 0);
}

/* With what the kernel says about direct sockets. True when memory has more than at the last
 * look, which this one replaces. */
static bool memory_rose(struct wait *w)
{
	int found = w->set ? pollset_found(w->set) : 0;
	bool rose = false;

	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = w->item[i].s;
		uint32_t bits = (uint16_t)w->k[i].revents;

		if (!s)
			continue;
		if (bits && !(bits & POLLNVAL))
			sock_note_kernel(s, bits);
		bits = look_level_held(s, p->fd, wanted(w, i)) & accepted(w, i);
		rose |= bits & ~(uint32_t)(uint16_t)p->revents;
		p->revents = (short)bits;
	}
	if (w->set && w->k[w->n - 1].revents)
		pollset_hear(w->set);
	return (w->set && pollset_look(w->set) > found) || rose;
}

/*
 * After a look in memory, asks the kernel without waiting: for its own descriptors as they are,
 * for those of direct sockets about what only the kernel learns; again while memory has got
 * more, which may have come before something of the kernel's, or after. With `empty` memory has
 * just had nothing: if the kernel has nothing either, then there was nothing at that moment.
 */
static int look_both(struct wait *w, bool empty)
{
	int rc, count = 0;

	for (int i = 0; i < POLL_ROUNDS; i++) {
		/* Some have become direct, or the kernel's, since that look. */
		while (ask_all(w) != w->direct)
			empty = look_direct(w) == 0 && empty;
		rc = ask_kernel(w);
		if (rc == 0 && empty)
			return 0;
		empty = false;
		/* A signal comes first only where nothing is ready. */
		if (rc == -EINTR && look_direct(w))
			continue;
		if (rc < 0)
			return rc;
		if ((rc == 0 && !w->set) || !memory_rose(w))
			break;
	}
	for (nfds_t i = 0; i < w->n; i++) {
		if (!w->item[i].s || w->k[i].revents & POLLNVAL)
			w->fds[i].revents = (short)(w->k[i].revents & accepted(w, i));
		count += w->fds[i].revents != 0;
	}
	return count + (w->set ? pollset_found(w->set) : 0);
}

/* Without a byte in memory, and without a wait: is the kernel to be asked about direct sockets? */
static bool is_end_due(struct wait *w)
{
	bool due = w->any_rdhup;

	for (nfds_t i = 0; i < w->n; i++) {
		struct sock *s = w->fds[i].fd < 0 ? NULL : fd_sock(w->fds[i].fd);

		due |= s && sock_is_direct(s) && sock_vain_look(s);
	}
	return due;
}

/* The first look of a call whose set holds direct sockets. */
static int look_first(struct wait *w, int count, uint64_t deadline)
{
	bool ask = w->any_kernel || w->any_rdhup, vain = !count && deadline == LOOK_NOW;

	/* A set that is all in its instance is heard by the spin, or the sleep, that follows. */
	if (!count && deadline != LOOK_NOW && w->set && w->n == 1)
		return 0;
	if (vain) {
		w->leave_tcp = !is_end_due(w);
		ask |= !w->leave_tcp;
	} else if (count && !ask) {
		ask = ++unasked.calls >= POLL_ASK_CALLS ||
		      __rdtsc() - unasked.at >= POLL_ASK_TICKS;
	}
	if (!ask)
		return count;
	unasked.calls = 0;
	unasked.at = __rdtsc();
	count = look_both(w, vain);
	w->leave_tcp = false;
	return count;
}

static bool spin_useful(struct wait *w)
{
	struct look_crowd crowd;
	bool more = true;

	look_crowd_begin(&crowd);
	look_crowd_of(&crowd, w->n);
	for (nfds_t i = 0; i < w->n && more; i++) {
		struct sock *s = w->fds[i].fd < 0 ? NULL : fd_sock(w->fds[i].fd);

		if (s && sock_is_direct(s))
			more = look_crowd_add(&crowd, s);
	}
	if (w->set && more)
		pollset_crowd(w->set, &crowd);
	return look_crowd_end(&crowd);
}

static int spin(struct wait *w, uint64_t deadline)
{
	struct look_spin sp;
	bool ask;
	int count = 0;

	if (!(w->direct || w->set) || !spin_useful(w))
		return 0;
	look_spin_begin(&sp, deadline);
	while (!count && look_spin_turn(&sp, &ask) && crit_handlers() == w->handlers)
		count = ask ? look_both(w, false) : look_direct(w);
	/* What the memory shows is only half of the answer. */
	if (count > 0 && (w->any_kernel || w->any_rdhup))
		count = look_both(w, false);
	look_spin_end(&sp, count != 0);
	return count;
}

/* Readies one entry for the sleep. False when it has to be looked at again. */
static bool settle(struct wait *w, nfds_t i)
{
	struct pollfd *p = &w->fds[i], *k = &w->k[i];
	struct item *it = &w->item[i];
	int far;

	*k = *p;
	it->s = p->fd < 0 ? NULL : fd_sock(p->fd);
	it->direct = it->s && sock_is_direct(it->s);
	if (it->mute)
		k->fd = -1;
	if (it->s && !it->direct) {
		it->counted = sock_poll_enter(it->s, p->fd);
		return it->counted;
	}
	if (!it->direct)
		return true;
	if (!sock_hold(it->s, p->fd))
		return false;
	it->armed = look_interest(wanted(w, i));
	sock_arm(it->s, it->armed);
	ask_tcp(k, it->s, wanted(w, i));
	it->bell = &w->k[w->nk++];
	*it->bell = (struct pollfd){.fd = it->s->bell, .events = POLLIN};
	far = it->s->far_bell;
	if (far < 0)
		return true;
	it->far = &w->k[w->nk++];
	*it->far = (struct pollfd){.fd = far, .events = POLLIN};
	return true;
}

static void unsettle(void *arg)
{
	struct wait *w = arg;

	for (nfds_t i = 0; i < w->n; i++) {
		struct item *it = &w->item[i];

		if (it->bell) {
			sock_disarm(it->s, it->armed);
			sock_unhold(it->s);
		}
		if (it->counted)
			sock_poll_leave(it->s);
		it->counted = false;
		it->bell = it->far = NULL;
	}
	if (w->set)
		pollset_wake(w->set);
}

/* After the kernel's answer: what it says about direct sockets goes to their slots. */
static void note_answers(struct wait *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		struct item *it = &w->item[i];
		uint32_t bits = (uint16_t)w->k[i].revents;

		if (!it->bell) {
			w->fds[i].revents = (short)(bits & accepted(w, i));
			it->mute |=
				bits && !w->fds[i].revents && (!w->set || i < w->n - 1);
			continue;
		}
		it->heard = bits || it->bell->revents || (it->far && it->far->revents);
		if (it->bell->revents || (it->far && it->far->revents)) {
			/* First: this thread is no longer one for whom to ring again. */
			sock_disarm(it->s, it->armed);
			it->armed = 0;
			sock_answer_bells(it->s, it->bell->revents,
					  it->far && it->far->revents);
		}
		if (bits)
			sock_note_kernel(it->s, bits);
		if ((bits & (POLLIN | POLLRDHUP)) == POLLIN)
			sock_check_bypass(it->s, w->fds[i].fd);
	}
}

static bool is_over(uint64_t deadline)
{
	return deadline != LOOK_FOREVER &&
	       (deadline == LOOK_NOW || clock_now_ns() >= deadline);
}

static int settle_and_sleep(struct wait *w, uint64_t deadline, const sigset_t *mask)
{
	uint64_t nap = sock_settle(), end;
	struct timespec ts;
	int rc;

	for (nfds_t i = 0; i < w->n; i++) {
		bool settled;

		crit_enter();
		settled = settle(w, i);
		crit_leave();
		if (!settled)
			return 0;
		if (w->item[i].bell) {
			uint64_t ns = look_nap_ns(w->item[i].s, w->fds[i].fd);

			nap = ns < nap ? ns : nap;
		}
	}
	if (w->set) {
		uint64_t ns = pollset_nap_ns(w->set);

		nap = ns < nap ? ns : nap;
		crit_enter();
		pollset_lie_down(w->set);
		crit_leave();
	}
	/* What came before the doorbells were armed does not ring. */
	if ((w->set || w->nk > w->n) && look_direct(w))
		return 0;
	if (w->set || w->nk > w->n)
		report_add(&report_now.sleeps, 1);
	end = look_sooner(deadline, nap);
	PROBE3(sleep, PROBE_POLL, -1, 0ull);
	rc = REAL(ppoll)(w->k, w->nk, look_remaining(end, &ts), mask);
	PROBE4(wake, PROBE_POLL, -1, 0ull, rc);
	if (rc < 0)
		return -errno;
	/* Also where a bell, or what only we listen for, came at its very end. */
	w->late = rc == 0 ? end == deadline : is_over(deadline);
	w->slept = w->dozed = true;
	crit_enter(); /* as in sleep_once */
	note_answers(w);
	crit_leave();
	return 0;
}

/* Something came in before the sleep could begin, or without a word of the kernel's. */
static int look_again(struct wait *w)
{
	int count = look_direct(w);

	return w->any_kernel || w->any_rdhup ? look_both(w, false) : count;
}

/* After a sleep the kernel's half is known. With news of ours both are looked at. */
static int look_after(struct wait *w)
{
	int count = 0, closed = 0, heard = 0;

	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = p->fd < 0 ? NULL : fd_sock(p->fd);

		heard += s && sock_is_direct(s) &&
			 (w->item[i].heard || !w->item[i].direct);
		count += p->revents != 0;
		closed += w->item[i].direct && w->k[i].revents == POLLNVAL;
	}
	/* By another thread, during the sleep. As in the kernel, that wakes nobody. */
	for (nfds_t i = 0; count && closed && i < w->n; i++) {
		if (!w->item[i].direct || w->k[i].revents != POLLNVAL)
			continue;
		count += !w->fds[i].revents;
		w->fds[i].revents = POLLNVAL;
	}
	if (w->set && w->k[w->n - 1].revents) {
		/* Alone, it is heard when it is asked once more. */
		if (w->n > 1)
			pollset_hear(w->set);
		count = 0;
	}
	/* What stands behind an old doorbell may be later than all that the kernel has told. */
	return count && !heard ? count : look_again(w);
}

/* One sleep. Returns a count or an error when the call is over, else 0. */
static int sleep_once(struct wait *w, uint64_t deadline, const sigset_t *mask)
{
	struct _pthread_cleanup_buffer cleanup;

	sock_attend(true);
	w->nk = w->n;
	for (nfds_t i = 0; i < w->n; i++) {
		w->item[i].bell = w->item[i].far = NULL;
		w->item[i].counted = w->item[i].heard = false;
	}
	/* A handler may jump away, but not between a count and the note of it. */
	_pthread_cleanup_push(&cleanup, unsettle, w);
	w->slept = false;
	w->result = settle_and_sleep(w, deadline, mask);
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	if (w->result < 0)
		return w->result;
	return w->slept ? look_after(w) : look_again(w);
}

static int wait_ready(struct wait *w, uint64_t deadline, const sigset_t *mask)
{
	int rc = look_direct(w);

	if (w->direct || w->set)
		rc = look_first(w, rc, deadline);
	else if (deadline == LOOK_NOW && !mask)
		return look_both(w, false);
	if (deadline == LOOK_NOW && !mask)
		return rc;
	/* A signal that the mask lets in must end the wait, so it must be a sleep. */
	if (!rc && !mask)
		rc = spin(w, deadline);
	/* A handler during the spin ends the wait, as it would have ended the sleep. */
	if (!rc && deadline != LOOK_NOW && crit_handlers() != w->handlers) {
		/* But not what a set's instance had to tell before. */
		rc = w->set ? look_both(w, false) : 0;
		return rc ? rc : -EINTR;
	}
	while (!rc && !w->late)
		rc = sleep_once(w, deadline, mask);
	return rc;
}

/* With a set, the last entry is its instance. */
static int poll_each(struct pollfd *fds, const uint32_t *accept, nfds_t n,
		     struct pollset *set, uint64_t deadline, const sigset_t *mask)
{
	struct pollfd k[3 * POLL_STACK];
	struct item items[POLL_STACK];
	struct wait w = {.fds = fds,
			 .accept = accept,
			 .n = n,
			 .set = set,
			 .k = k,
			 .item = items,
			 .handlers = crit_handlers()};
	int rc;

	if (n > POLL_STACK) {
		w.k = calloc(n, 3 * sizeof(*w.k));
		w.item = calloc(n, sizeof(*w.item));
	} else {
		for (nfds_t i = 0; i < n; i++)
			items[i].mute = false;
	}
	if (w.k && w.item)
		rc = wait_ready(&w, deadline, mask);
	else
		rc = -ENOMEM;
	if (set || w.direct)
		pollset_note(set ? set->n : n, w.dozed);
	if (n > POLL_STACK) {
		free(w.k);
		free(w.item);
	}
	return rc;
}

static void leave_set(void *arg)
{
	pollset_leave(arg);
}

/* Returns as poll_each, or -EAGAIN: there is no set, or, with *stale, it is to be looked at
 * anew. */
static int poll_set(struct pollfd *fds, const uint32_t *accept, nfds_t n,
		    uint64_t deadline, const sigset_t *mask, bool *stale)
{
	struct _pthread_cleanup_buffer cleanup;
	struct pollset *set;
	int rc;

	*stale = false;
	crit_enter(); /* as in sleep_once */
	set = pollset_take(fds, accept, n);
	if (set)
		_pthread_cleanup_push(&cleanup, leave_set, set);
	crit_leave();
	if (!set)
		return -EAGAIN;
	rc = poll_each(set->sub, set->sub_accept, pollset_rest(set), set, deadline, mask);
	if (rc >= 0)
		rc = pollset_answer(set, fds);
	*stale = set->stale;
	crit_enter();
	_pthread_cleanup_pop(&cleanup, 1);
	crit_leave();
	return rc >= 0 && *stale ? -EAGAIN : rc;
}

int poll_core(struct pollfd *fds, const uint32_t *accept, nfds_t n, uint64_t deadline,
	      const sigset_t *mask)
{
	bool stale = pollset_is_wanted(n);
	int rc = -EAGAIN;

	for (int i = 0; stale && i < POLL_SETS && rc == -EAGAIN; i++)
		rc = poll_set(fds, accept, n, deadline, mask, &stale);
	if (rc == -EAGAIN && stale)
		pollset_give_up();
	return rc == -EAGAIN ? poll_each(fds, accept, n, NULL, deadline, mask) : rc;
}
