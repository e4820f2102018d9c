/* SPDX-License-Identifier: Apache-2.0 */
/* A caller that waits for the events of several connections. */
/*
 * For as long as it waits it is the reader of each of them that has none, and sleeps in one poll on all their
 * sockets: so nothing comes by way of the service thread. Before that it spins on their boards, as one that
 * waits for a single connection does. Another thread that waits for one of them meanwhile sleeps on `changed`,
 * and goes on as the reader when this call returns.
 *
 * Where a connection has another reader this one is an *onlooker* there: conn_changed writes to its descriptor
 * whatever wakes those who sleep on `changed`.
 *
 * It stays (conn_stay) at all of them, but while a handler runs: that may close others. So it returns
 * after handlers, and has given up all others before. Where it finds that another thread has taken VD_EVENT_END it
 * leaves at once: vd_close may wait for that, and nothing comes there any more.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/kernel.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

/* Whose records are on the stack. */
#define FEW 8
/* Between looks at a device. */
#define FAR_MS 1
/* After the deadline: as in wait.c. */
#define LATE_ROUNDS 256

struct member {
	vd_conn *c; /* NULL: it is passed over, or has been left */
	bool reads, looks_on, is_hushed;
	struct onlooker onlooker;
};

struct any {
	struct member *members;
	struct pollfd *fds; /* theirs, and the bell */
	/* Boards to spin on. */
	const _Atomic uint32_t **words;
	uint32_t *values;
	int *boards;
	int count, first, living, spins;
	bool is_far; /* a device is to be looked at, at one of them */
	int bell;    /* of an onlooker; or -1 */
};

void conn_ring(const vd_conn *c)
{
	for (const struct onlooker *o = c->onlookers; o; o = o->next) {
		uint64_t one = 1;
		ssize_t n = kernel_write(o->fd, &one, sizeof(one));

		(void)n; /* full is as good */
	}
}

static bool is_over(const vd_conn *c)
{
	return c->error && c->end_taken;
}

/* ---- one of them, under its mu ---- */

static int look_on(struct any *a, struct member *m)
{
	if (a->bell < 0)
		a->bell = door->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (a->bell < 0)
		return -errno;
	m->onlooker = (struct onlooker){a->bell, m->c->onlookers};
	m->c->onlookers = &m->onlooker;
	m->looks_on = true;
	return 0;
}

static void look_on_no_more(struct member *m)
{
	struct onlooker **at = &m->c->onlookers;

	if (!m->looks_on)
		return;
	while (*at != &m->onlooker)
		at = &(*at)->next;
	*at = m->onlooker.next;
	m->looks_on = false;
}

/* The reader, where there is none, or an onlooker. 0 or -EMFILE. */
static int take_part(struct any *a, struct member *m)
{
	vd_conn *c = m->c;

	if (m->reads && !c->error)
		return 0;
	if (m->reads) {
		c->is_read = c->is_deaf = m->reads = false;
		conn_changed(c);
	}
	/* After an error nothing is to be read; the last puts that were lent are still to be given back. */
	if (c->is_read || c->error)
		return m->looks_on ? 0 : look_on(a, m);
	look_on_no_more(m);
	c->is_read = c->is_deaf = m->reads = true;
	return 0;
}

/* But for the stay. */
static void stop(struct member *m)
{
	vd_conn *c = m->c;

	look_on_no_more(m);
	if (m->reads)
		c->is_read = c->is_deaf = false;
	m->reads = false;
	c->event_waits--;
	service_left(c); /* which wakes those who wait to read */
}

/* After mu is given up the connection may be gone. */
static void leave_one(struct member *m)
{
	vd_conn *c = m->c;

	stop(m);
	m->c = NULL;
	conn_left(c);
}

/* What its board tells; and before a sleep, that a frame is to tell. */
static void look(struct any *a, struct member *m, bool may_spin)
{
	vd_conn *c = m->c;

	if (m->is_hushed)
		board_heard(c);
	else
		message_drain(c);
	m->is_hushed = false;
	/* As in wait.c. */
	if (!m->reads || c->body_left > 0 || event_is_there(c, NULL))
		return;
	m->is_hushed = may_spin && !send_is_due(c) && message_may_spin(c);
	if (!m->is_hushed) {
		message_watch(c);
	} else {
		a->boards[a->spins] = c->fd;
		a->words[a->spins] = board_hush(c, &a->values[a->spins]);
		a->spins++;
	}
}

/* ---- all of them ---- */

static void begin(struct any *a, vd_conn *const *conns)
{
	for (int i = 0; i < a->count; i++) {
		vd_conn *c = conns[i];

		if (!c)
			continue;
		pthread_mutex_lock(&c->mu);
		if (!is_over(c)) {
			a->members[i].c = c;
			conn_stay(c);
			c->event_waits++;
			service_called(c);
		}
		pthread_mutex_unlock(&c->mu);
	}
}

static void leave(struct any *a)
{
	for (int i = 0; i < a->count; i++) {
		struct member *m = &a->members[i];
		vd_conn *c = m->c;

		if (!c)
			continue;
		pthread_mutex_lock(&c->mu);
		leave_one(m);
		pthread_mutex_unlock(&c->mu);
	}
}

/* One that has an event, whose mu is left taken; else -EAGAIN, or -EMFILE. */
static int look_at_all(struct any *a, bool may_spin)
{
	int r = 0;

	a->living = a->spins = 0;
	a->is_far = false;
	for (int k = 0; k < a->count && r == 0; k++) {
		int i = (a->first + k) % a->count;
		struct member *m = &a->members[i];
		struct pollfd *p = &a->fds[i];
		vd_conn *c = m->c;
		bool is_wrong;

		*p = (struct pollfd){.fd = -1};
		if (!c)
			continue;
		pthread_mutex_lock(&c->mu);
		if (is_over(c)) {
			leave_one(m);
			pthread_mutex_unlock(&c->mu);
			continue;
		}
		r = take_part(a, m);
		lend_look(c);
		a->is_far |= lend_is_far(c);
		if (r == 0)
			look(a, m, may_spin && !a->is_far);
		if (r == 0 && event_is_there(c, NULL))
			return i;
		is_wrong = c->inbox.is_wrong && !c->error;
		if (m->reads) {
			p->fd = c->fd;
			p->events = (short)(POLLIN | (send_is_due(c) ? POLLOUT : 0));
		}
		a->living += !is_wrong; /* which is looked at once more */
		pthread_mutex_unlock(&c->mu);
		/* It is the next that has an event. */
		if (is_wrong) {
			conn_over(c, -EPROTO);
			k--;
		}
	}
	return r < 0 ? r : -EAGAIN;
}

static void read_one(struct member *m)
{
	vd_conn *c = m->c;
	bool is_due;

	read_some(c, MSG_DONTWAIT);
	is_due = send_is_due(c);
	/* Others may have lacked what came. */
	pthread_mutex_unlock(&c->mu);
	if (is_due)
		send_owed(c);
}

/* False: nothing has come in time. */
static bool sleep_on_all(struct any *a, int64_t deadline)
{
	int n, left = until_left(deadline);

	if (a->is_far && (left < 0 || left > FAR_MS))
		left = FAR_MS;
	a->fds[a->count] = (struct pollfd){.fd = a->bell, .events = POLLIN};
	n = door->poll(a->fds, (nfds_t)a->count + 1, left);
	if (n == 0)
		return until_left(deadline) != 0;
	for (int i = 0; i < a->count && n > 0; i++)
		if (a->fds[i].revents)
			read_one(&a->members[i]);
	if (n > 0 && a->fds[a->count].revents) {
		uint64_t count;
		ssize_t got = kernel_read(a->bell, &count, sizeof(count));

		(void)got;
	}
	return true;
}

/* As look_at_all, in time; or -ETIMEDOUT, or -EPIPE: none lives. */
static int await(struct any *a, int64_t deadline)
{
	bool is_late = false;
	int i, late = 0;

	for (;;) {
		bool may_spin = !is_late && until_left(deadline) != 0;

		i = look_at_all(a, may_spin);
		if (i == -EAGAIN && a->spins > 0) {
			door->await_words(a->boards, a->words, a->values, a->spins);
			i = look_at_all(a, false);
		}
		if (i != -EAGAIN)
			return i;
		if (a->living == 0)
			return -EPIPE;
		if (is_late)
			return -ETIMEDOUT;
		is_late = !sleep_on_all(a, deadline) ||
			  (until_left(deadline) == 0 && late++ == LATE_ROUNDS);
	}
}

/* Under mu of the one at `at`, which it gives up: as event_take. */
static int take(struct any *a, int at, struct vd_event *events, int n)
{
	struct member *m = &a->members[at];
	vd_conn *c = m->c;
	int r;

	stop(m);
	m->c = NULL; /* event_take leaves it */
	if (event_is_handled(c)) {
		/* The handler may close any of the others. */
		pthread_mutex_unlock(&c->mu);
		leave(a);
		pthread_mutex_lock(&c->mu);
	}
	r = event_take(c, events, n);
	leave(a);
	return r;
}

/* Sleeps where it must. *at: whose events they are. */
static int wait_long(struct any *a, vd_conn *const *conns, struct vd_event *events, int n,
		     int64_t deadline, int *at)
{
	int r;

	begin(a, conns);
	*at = await(a, deadline);
	r = *at < 0 ? *at : take(a, *at, events, n);
	leave(a);
	if (a->bell >= 0)
		door->close(a->bell);
	return r;
}

/* With memory for the records. */
static int wait_with(struct any *a, vd_conn *const *conns, struct vd_event *events, int n,
		     int64_t deadline, int *at)
{
	size_t count = (size_t)a->count;
	struct member members[FEW];
	struct pollfd fds[FEW + 1];
	const _Atomic uint32_t *words[FEW];
	uint32_t values[FEW];
	int boards[FEW], r = -ENOMEM;

	if (count <= FEW) {
		memset(members, 0, sizeof(members));
		a->members = members;
		a->fds = fds;
		a->words = words;
		a->values = values;
		a->boards = boards;
		return wait_long(a, conns, events, n, deadline, at);
	}
	a->members = calloc(count, sizeof(*a->members));
	a->fds = calloc(count + 1, sizeof(*a->fds));
	a->words = calloc(count, sizeof(*a->words));
	a->values = calloc(count, sizeof(*a->values));
	a->boards = calloc(count, sizeof(*a->boards));
	if (a->members && a->fds && a->words && a->values && a->boards)
		r = wait_long(a, conns, events, n, deadline, at);
	free(a->members);
	free(a->fds);
	free(a->words);
	free(a->values);
	free(a->boards);
	return r;
}

/* What is there already, without waiting for any; -EAGAIN: nothing. */
static int glance(const struct any *a, vd_conn *const *conns, struct vd_event *events,
		  int n, int *at)
{
	for (int k = 0; k < a->count; k++) {
		int i = (a->first + k) % a->count;
		vd_conn *c = conns[i];

		if (!c)
			continue;
		pthread_mutex_lock(&c->mu);
		message_drain(c);
		if (event_is_there(c, NULL)) {
			*at = i;
			conn_stay(c);
			return event_take(c, events, n);
		}
		pthread_mutex_unlock(&c->mu);
	}
	return -EAGAIN;
}

NATIVE int vd_wait_any(vd_conn *const *conns, int count, struct vd_event *events, int n,
		       int timeout_ms, int *which)
{
	NOT_CANCELLED;
	/* Where the next call of this thread begins to look: each has its turn. */
	static _Thread_local unsigned turn;
	struct any a = {.count = count, .bell = -1};
	int at = 0, r;

	if (n <= 0 || count <= 0)
		return -EINVAL;
	for (int i = 0; i < count; i++)
		if (conns[i] && native_check(conns[i]) < 0)
			return -ECHILD;
	a.first = (int)(turn % (unsigned)count);
	r = glance(&a, conns, events, n, &at);
	if (r == -EAGAIN)
		r = wait_with(&a, conns, events, n, until(timeout_ms), &at);
	if (r > 0)
		*which = at;
	if (r >= 0)
		turn = (unsigned)at + 1;
	return r;
}
