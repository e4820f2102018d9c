/* SPDX-License-Identifier: Apache-2.0 */
/* The sleep of poll and select: on the kernel's descriptors, and on the doorbells of others. */
#include "base/atomic.h"
#include "base/await.h"
#include "base/cleanup.h"
#include "base/probe.h"
#include "base/sigsafe.h"
#include "conn/kernel_call.h"
#include "conn/report.h"
#include "readiness/poll_wait.h"

/* Where a doorbell can stand among the descriptors slept on. */
static struct pollfd *next_bell(struct poll_wait *w)
{
	nfds_t end = w->set ? w->n - 1 : w->n;

	if (w->nk < w->most)
		return &w->k[w->nk++];
	while (w->spare < end && w->fds[w->spare].fd >= 0)
		w->spare++;
	return w->spare < end ? &w->k[w->spare++] : &w->k[w->nk++];
}

/* An earlier entry of the same connection, where each descriptor counts. */
static struct item *earlier(struct poll_wait *w, nfds_t i)
{
	for (nfds_t j = 0; j < i && w->nk >= w->most; j++)
		if (w->item[j].bell && w->item[j].s == w->item[i].s)
			return &w->item[j];
	return NULL;
}

static void add_bells(struct poll_wait *w, nfds_t i)
{
	struct item *it = &w->item[i], *twin = earlier(w, i);
	int far = it->s->far_bell;

	w->bells = true;
	if (twin) {
		it->bell = twin->bell;
		it->far = twin->far;
		return;
	}
	it->bell = next_bell(w);
	*it->bell = (struct pollfd){.fd = it->s->bell, .events = POLLIN};
	if (far < 0)
		return;
	it->far = next_bell(w);
	*it->far = (struct pollfd){.fd = far, .events = POLLIN};
}

/* Readies one entry for the sleep, in a critical section: no handler forks amid it. False when it has to be looked
 * at again. */
static bool settle(struct poll_wait *w, nfds_t i)
{
	struct pollfd *p = &w->fds[i], *k = &w->k[i];
	struct item *it = &w->item[i];

	/* The place of an ignored entry may be a doorbell's by now. */
	if (p->fd >= 0)
		*k = *p;
	it->s = p->fd < 0 ? NULL : fd_sock(p->fd);
	it->direct = it->s && sock_is_direct(it->s);
	it->forks = sock_forks;
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
	it->mark = sock_mark(it->s, p->fd);
	it->armed = look_interest(poll_wanted(w, i));
	sock_arm(it->s, it->armed);
	poll_ask_tcp(k, it->s, poll_wanted(w, i));
	add_bells(w, i);
	return true;
}

static void unsettle(void *arg)
{
	struct poll_wait *w = arg;

	for (nfds_t i = 0; i < w->n; i++) {
		struct item *it = &w->item[i];

		if (it->bell && it->forks == sock_forks) {
			sock_disarm(it->s, it->armed);
			sock_unhold(it->s);
		}
		if (it->counted && it->forks == sock_forks)
			sock_poll_leave(it->s);
		it->counted = false;
		it->bell = it->far = NULL;
	}
	if (w->set)
		pollset_wake(w->set);
}

/* After the kernel's answer: what it says about direct sockets goes to their slots. */
static void note_answers(struct poll_wait *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		struct item *it = &w->item[i];
		uint32_t bits = (uint16_t)w->k[i].revents;

		if (w->fds[i].fd < 0) {
			w->fds[i].revents = 0;
			continue;
		}
		if (!it->bell) {
			w->fds[i].revents = (short)(bits & poll_accepted(w, i));
			it->mute |=
				bits && !w->fds[i].revents && (!w->set || i < w->n - 1);
			continue;
		}
		it->heard = bits || it->bell->revents || (it->far && it->far->revents);
		if (it->bell->revents || (it->far && it->far->revents)) {
			/* First: this thread is no longer one for whom to ring again. */
			if (it->forks == sock_forks)
				sock_disarm(it->s, it->armed);
			it->armed = 0;
			sock_answer_bells(it->s, it->bell->revents,
					  it->far && it->far->revents);
		}
		/* An end is not noted where another file may have had the number. */
		if (bits)
			sock_note_kernel(it->s, sock_had(it->s, w->fds[i].fd, it->mark)
							? bits
							: 0);
		if ((bits & (POLLIN | POLLRDHUP)) == POLLIN)
			sock_check_bypass(it->s, w->fds[i].fd);
	}
}

static int settle_and_sleep(struct poll_wait *w, uint64_t deadline, const sigset_t *mask)
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
	if ((w->set || w->bells) && poll_look(w))
		return 0;
	if (w->set || w->bells)
		report_add(&report_now.sleeps, 1);
	end = look_sooner(deadline, nap);
	PROBE3(sleep, PROBE_POLL, -1, 0ull);
	rc = await_poll(w->k, w->nk, look_remaining(end, &ts), mask);
	PROBE4(wake, PROBE_POLL, -1, 0ull, rc);
	if (rc < 0)
		return rc;
	w->late = rc == 0 && end == deadline;
	w->slept = w->dozed = true;
	crit_enter(); /* as in poll_sleep */
	note_answers(w);
	crit_leave();
	return 0;
}

int poll_sleep(struct poll_wait *w, uint64_t deadline, const sigset_t *mask)
{
	struct _pthread_cleanup_buffer cleanup;

	sock_attend(true);
	w->nk = w->n;
	w->most = load_relaxed(&await_limit);
	w->spare = 0;
	w->bells = false;
	for (nfds_t i = 0; i < w->n; i++) {
		w->k[i].fd = -1;
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
	return w->result;
}
