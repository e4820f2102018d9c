/* SPDX-License-Identifier: Apache-2.0 */
/* poll over kernel descriptors and direct sockets: two halves, one call. */
#include "base/atomic.h"
#include "readiness/poll_wait.h"

#include <errno.h>
#include <x86intrin.h>

#include "base/await.h"
#include "base/cleanup.h"
#include "base/probe.h"
#include "base/scratch.h"
#include "base/sigsafe.h"
#include "conn/kernel_call.h"
#include "conn/report.h"

/* Entries whose records are on the stack, where a coroutine has little. */
#define POLL_STACK 4
/* Calls that found something in memory alone, or ticks (20 us), before one asks the kernel. */
#define POLL_ASK_CALLS 16
#define POLL_ASK_TICKS 60000
/* Times that a set is looked at anew in one call, before it is left for this one. */
#define POLL_SETS 4
/* Questions to the kernel for one answer, while memory has more after each. */
#define POLL_ROUNDS 4

/* Calls since the kernel was last asked, and when that was. */
static _Thread_local struct {
	uint32_t calls;
	uint64_t at;
} unasked __attribute__((tls_model("initial-exec")));

/* Urgent data is the kernel's alone. A look for it would be a question to the kernel: there is one for
 * the whole set after this, or the sleep is one. */
static uint32_t in_memory(const struct poll_wait *w, nfds_t i, struct sock *s)
{
	uint32_t wanted = poll_wanted(w, i);

	/* But after an end, of which the kernel would tell again and again. */
	if (!(wanted & POLLPRI) || load_acquire(&s->slot->seen) & (SEEN_HUP | SEEN_ERR))
		return wanted;
	return wanted & ~(uint32_t)POLLPRI;
}

/* Looks at the direct sockets, in memory where that is enough. Returns those ready. */
int poll_look(struct poll_wait *w)
{
	int count = 0;

	w->direct = 0;
	/* Of a set, memory shows those that have lately been busy. */
	w->any_kernel = w->set != NULL;
	w->any_asked = false;
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
		w->any_asked |= p->events & (POLLRDHUP | POLLPRI);
		p->revents = (short)(look_level_held(s, p->fd, in_memory(w, i, s)) &
				     poll_accepted(w, i));
		count += p->revents != 0;
	}
	return count + (w->set ? pollset_look(w->set) : 0);
}

/* Returns how many direct sockets there are among the entries. */
static nfds_t ask_all(struct poll_wait *w)
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
			poll_ask_tcp(&w->k[i], w->item[i].s, poll_wanted(w, i));
	}
	return direct;
}

/* Without waiting. A count, or -errno. */
static int ask_kernel(struct poll_wait *w)
{
	/* With all in the instance, what it has to tell is heard at once. */
	if (w->set && w->n == 1) {
		w->k[0].revents = 0;
		return pollset_hear(w->set);
	}
	return await_glance(w->k, w->n);
}

/* The kernel has told an end of what had this number, which may be another connection's by now: it
 * is asked once more while the number cannot change. */
static __attribute__((noinline)) void note_end(struct sock *s, int fd)
{
	crit_enter(); /* no handler jumps away with the hold */
	if (sock_hold(s, fd)) {
		sock_look(s, fd);
		sock_unhold(s);
	}
	crit_leave();
}

/* With what the kernel says about direct sockets. True when memory has more than at the last
 * look, which this one replaces. */
static bool memory_rose(struct poll_wait *w)
{
	int found = w->set ? pollset_found(w->set) : 0;
	bool rose = false;

	for (nfds_t i = 0; i < w->n; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = w->item[i].s;
		uint32_t bits = (uint16_t)w->k[i].revents;

		if (!s)
			continue;
		if (bits && !(bits & POLLNVAL)) {
			if (bits & (LOOK_ALWAYS | POLLRDHUP))
				note_end(s, p->fd);
			sock_note_kernel(s, 0);
		}
		bits = look_level_held(s, p->fd, in_memory(w, i, s)) &
		       poll_accepted(w, i);
		rose |= bits & ~(uint32_t)(uint16_t)p->revents;
		p->revents = (short)bits;
	}
	if (w->set && w->k[w->n - 1].revents)
		pollset_hear(w->set);
	return (w->set && pollset_look(w->set) > found) || rose;
}

/* What the kernel has just said of an entry, where memory has not answered for all of it. After an end
 * it was not asked about the socket, since it would say that alone again and again. */
static void add_kernel(struct poll_wait *w, nfds_t i)
{
	struct sock *s = w->item[i].s;
	struct pollfd *p = &w->fds[i];
	uint32_t bits = (uint16_t)w->k[i].revents;

	if (!s || bits & POLLNVAL) {
		p->revents = (short)(bits & poll_accepted(w, i));
		return;
	}
	if (!(p->events & POLLPRI) || w->leave_tcp)
		return;
	if (w->k[i].fd < 0)
		bits = look_level_held(s, p->fd, poll_wanted(w, i));
	p->revents |= (short)(bits & POLLPRI & poll_accepted(w, i));
}

/*
 * After a look in memory, asks the kernel without waiting: for its own descriptors as they are,
 * for those of direct sockets about what only the kernel learns; again while memory has got
 * more, which may have come before something of the kernel's, or after. With `empty` memory has
 * just had nothing: if the kernel has nothing either, then there was nothing at that moment.
 */
static int look_both(struct poll_wait *w, bool empty)
{
	int rc, count = 0;

	for (int i = 0; i < POLL_ROUNDS; i++) {
		/* Some have become direct, or the kernel's, since that look. */
		while (ask_all(w) != w->direct) {
			empty = poll_look(w) == 0 && empty;
			w->leave_tcp &= !w->any_asked;
		}
		rc = ask_kernel(w);
		if (rc == 0 && empty)
			return 0;
		empty = false;
		/* A signal comes first only where nothing is ready. */
		if (rc == -EINTR && poll_look(w))
			continue;
		if (rc < 0)
			return rc;
		if ((rc == 0 && !w->set) || !memory_rose(w))
			break;
	}
	for (nfds_t i = 0; i < w->n; i++) {
		add_kernel(w, i);
		count += w->fds[i].revents != 0;
	}
	return count + (w->set ? pollset_found(w->set) : 0);
}

/* Without a byte in memory, and without a wait: is the kernel to be asked about direct sockets? */
static bool is_end_due(struct poll_wait *w)
{
	bool due = w->any_asked;

	for (nfds_t i = 0; i < w->n; i++) {
		struct sock *s = w->fds[i].fd < 0 ? NULL : fd_sock(w->fds[i].fd);

		due |= s && sock_is_direct(s) && sock_vain_look(s);
	}
	return due;
}

/* The first look of a call whose set holds direct sockets. */
static int look_first(struct poll_wait *w, int count, uint64_t deadline)
{
	bool ask = w->any_kernel || w->any_asked, vain = !count && deadline == LOOK_NOW;

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

static bool spin_useful(struct poll_wait *w)
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

static int spin(struct poll_wait *w, uint64_t deadline)
{
	struct look_spin sp;
	bool ask;
	int count = 0;

	if (!(w->direct || w->set) || !spin_useful(w))
		return 0;
	look_spin_begin(&sp, deadline);
	while (!count && look_spin_turn(&sp, &ask) && crit_handlers() == w->handlers)
		count = ask ? look_both(w, false) : poll_look(w);
	/* What the memory shows is only half of the answer. */
	if (count > 0 && (w->any_kernel || w->any_asked))
		count = look_both(w, false);
	look_spin_end(&sp, count != 0);
	return count;
}

/* Something came in before the sleep could begin, or without a word of the kernel's. */
static int look_again(struct poll_wait *w)
{
	int count = poll_look(w);

	return w->any_kernel || w->any_asked ? look_both(w, false) : count;
}

/* After a sleep the kernel's half is known. With news of ours both are looked at. */
static int look_after(struct poll_wait *w)
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

static bool is_over(uint64_t deadline)
{
	return deadline != LOOK_FOREVER &&
	       (deadline == LOOK_NOW || clock_now_ns() >= deadline);
}

static const struct timespec at_once = {0, 0};

/* One sleep. Returns a count or an error when the call is over, else 0. The clock, which is a system call
 * on some machines, is looked at only where nothing is there. */
static int sleep_once(struct poll_wait *w, uint64_t deadline, const sigset_t *mask)
{
	int rc = poll_sleep(w, deadline, mask);

	if (rc < 0)
		return rc;
	rc = w->slept ? look_after(w) : look_again(w);
	if (rc || !w->slept || w->late || !is_over(deadline))
		return rc;
	/* A bell, or what only we listen for, came at its very end: what came before that counts. */
	w->late = true;
	rc = look_again(w);
	/* The kernel has looked for no signal then. */
	return rc || !mask ? rc : await_poll(NULL, 0, &at_once, mask);
}

/* A handler during the spin, or between two sleeps, ends the wait, as it would have ended a sleep. But that
 * would have told what came before, or with the signal. */
static int sleep_unless_handled(struct poll_wait *w, uint64_t deadline,
				const sigset_t *mask)
{
	int rc;

	if (deadline == LOOK_NOW || crit_handlers() == w->handlers)
		return sleep_once(w, deadline, mask);
	rc = look_both(w, false);
	return rc ? rc : -EINTR;
}

static int wait_ready(struct poll_wait *w, uint64_t deadline, const sigset_t *mask)
{
	int rc = poll_look(w);

	if (w->direct || w->set)
		rc = look_first(w, rc, deadline);
	else if (deadline == LOOK_NOW && !mask)
		return look_both(w, false);
	if (deadline == LOOK_NOW && !mask)
		return rc;
	/* A signal that the mask lets in must end the wait, so it must be a sleep. */
	if (!rc && !mask)
		rc = spin(w, deadline);
	for (nfds_t i = 0; !rc && i < w->n; i++)
		w->item[i].mute = false;
	while (!rc && !w->late)
		rc = sleep_unless_handled(w, deadline, mask);
	return rc;
}

/* The end of its connection has become known after the look that the entry holds. */
static bool is_behind(struct poll_wait *w, nfds_t i, struct sock *s)
{
	uint32_t seen = load_acquire(&s->slot->seen);
	uint32_t bits = seen & (SEEN_HUP | SEEN_ERR) ? LOOK_ALWAYS : 0;

	bits |= seen & SEEN_FIN ? poll_wanted(w, i) & POLLRDHUP : 0;
	bits &= poll_accepted(w, i);
	return bits && !((uint16_t)w->fds[i].revents & (bits | POLLNVAL));
}

/* What an entry's look has learned of an end is so for those before it, too. Returns how many
 * more are ready. */
static __attribute__((noinline)) int look_behind(struct poll_wait *w, int count)
{
	bool ended = w->any_asked;
	int more = 0;

	for (nfds_t i = 0; i < w->n && count && !ended; i++)
		ended = w->fds[i].revents & (LOOK_ALWAYS | POLLRDHUP);
	for (nfds_t i = 0; i < w->n && ended; i++) {
		struct pollfd *p = &w->fds[i];
		struct sock *s = p->fd < 0 ? NULL : fd_sock(p->fd);

		if (!s || !sock_is_direct(s) || !is_behind(w, i, s))
			continue;
		more -= p->revents != 0;
		p->revents = (short)(look_level_held(s, p->fd, poll_wanted(w, i)) &
				     poll_accepted(w, i));
		more += p->revents != 0;
	}
	return more;
}

static void give_back(void *arg)
{
	struct poll_wait *w = arg;

	scratch_give(w->k, w->bytes);
}

/* Nothing is left of it by a handler that jumps away. */
static __attribute__((noinline)) bool make_room(struct poll_wait *w,
						struct _pthread_cleanup_buffer *cleanup)
{
	w->bytes = w->n * (3 * sizeof(*w->k) + sizeof(*w->item));
	crit_enter();
	w->k = scratch_take(w->bytes);
	if (w->k)
		_pthread_cleanup_push(cleanup, give_back, w);
	crit_leave();
	w->item = (struct item *)(w->k + 3 * w->n);
	return w->k;
}

static __attribute__((noinline)) void leave_room(struct _pthread_cleanup_buffer *cleanup)
{
	crit_enter();
	_pthread_cleanup_pop(cleanup, 1);
	crit_leave();
}

/* With a set, the last entry is its instance. */
static int poll_each(struct pollfd *fds, const uint32_t *accept, nfds_t n,
		     struct pollset *set, uint64_t deadline, const sigset_t *mask)
{
	struct _pthread_cleanup_buffer cleanup;
	struct pollfd k[3 * POLL_STACK];
	struct item item[POLL_STACK];
	struct poll_wait w; /* most of it is for a sleep, and set there */
	int rc;

	w.fds = fds;
	w.accept = accept;
	w.n = n;
	w.set = set;
	w.k = k;
	w.item = item;
	w.handlers = crit_handlers();
	w.leave_tcp = w.late = w.dozed = false;
	if (n > POLL_STACK && !make_room(&w, &cleanup))
		return -ENOMEM;
	rc = wait_ready(&w, deadline, mask);
	if (n > 1 && rc >= 0)
		rc += look_behind(&w, rc);
	if (n > POLL_STACK)
		leave_room(&cleanup);
	if (set || w.direct)
		pollset_note(set ? set->n : n, w.dozed);
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
	crit_enter(); /* as in poll_sleep */
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
