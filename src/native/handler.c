/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers: functions of the program that vd_wait calls for notifications. */
/*
 * A handler runs with no lock held, and may call anything. While it does, a record on the stack of its
 * thread says so, in the connection's list. Whoever ends an export, or takes its handler away, waits
 * until no other thread has such a record of it: what the handler uses may go then. No new one
 * comes meanwhile: the export has no event and no such handler any more. He waits without `wr`, which
 * the handler may need.
 *
 * The thread that runs it touches the export no more afterwards, since its handler may have ended
 * it. It does touch the connection: so vd_close waits for threads in vd_wait, and in a handler it is
 * put off until the vd_wait around it returns.
 */
#include "native/native.h"

struct handling {
	struct handling *next;
	uint32_t id; /* of the export */
	pthread_t thread;
};

/* Under mu. */
static bool is_running(const vd_conn *c, uint32_t id, bool here)
{
	for (const struct handling *h = c->handlings; h; h = h->next)
		if ((h->id == id || id == 0) &&
		    here == !!pthread_equal(h->thread, pthread_self()))
			return true;
	return false;
}

bool handler_is_around(const vd_conn *c)
{
	return is_running(c, 0, true);
}

void handler_await(vd_conn *c, uint32_t id)
{
	c->followers++;
	while (is_running(c, id, false))
		pthread_cond_wait(&c->changed, &c->mu);
	c->followers--;
	conn_changed(c); /* vd_close waits for the last */
}

static void over(vd_conn *c, const struct handling *h)
{
	struct handling **at = &c->handlings;

	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	conn_changed(c);
}

int handler_run(vd_conn *c, const struct vd_event *ev)
{
	const struct vd_region *x = ev->where;
	struct handling h = {c->handlings, x->id, pthread_self()};
	vd_handler handler = x->handler;
	void *arg = x->handler_arg;
	bool due = c->owed.taken;

	c->handlings = &h;
	pthread_mutex_unlock(&c->mu);
	if (due)
		send_owed(c);
	/* Its thread is not cancelled in it, as in no call: the record would stay. */
	handler(ev, arg);
	/* It may have forked: then mu is in no known state. */
	if (native_check(c) < 0)
		return -ECHILD;
	pthread_mutex_lock(&c->mu);
	over(c, &h);
	return handler_closes(c) ? -EPIPE : 0;
}

bool handler_closes(const vd_conn *c)
{
	return c->closes_late && pthread_equal(c->closer, pthread_self());
}

bool handler_puts_off(vd_conn *c)
{
	bool is_here;

	pthread_mutex_lock(&c->mu);
	is_here = handler_is_around(c);
	if (is_here) {
		c->closes_late = true;
		c->closer = pthread_self();
	}
	pthread_mutex_unlock(&c->mu);
	return is_here;
}

NATIVE int vd_on_notify(vd_region *x, vd_handler handler, void *arg)
{
	NOT_CANCELLED;
	vd_conn *c = x->c;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	x->handler = handler;
	x->handler_arg = arg;
	/* Two that run would wait for each other. */
	if (!handler_is_around(c))
		handler_await(c, x->id);
	pthread_mutex_unlock(&c->mu);
	return 0;
}
