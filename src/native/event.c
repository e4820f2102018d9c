/* SPDX-License-Identifier: Apache-2.0 */
/* Events that wait for the program, and the descriptor that shows them. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/kernel.h"
#include "native/lend.h"
#include "native/message.h"
#include "native/native.h"

/* It is the last: after those of puts that were lent. */
static bool is_end_due(const vd_conn *c)
{
	return c->event_count == 0 && c->error && !c->end_taken && !lend_is_due(c);
}

bool event_is_there(vd_conn *c, const void *arg)
{
	(void)arg;
	return c->event_count > 0 || is_end_due(c);
}

void event_show(vd_conn *c)
{
	bool want = event_is_there(c, NULL);
	uint64_t one = 1;

	if (want == c->event_fd_set)
		return;
	/* Neither can block: the count is 0 or 1. */
	if ((want ? kernel_write(c->event_fd, &one, sizeof(one))
		  : kernel_read(c->event_fd, &one, sizeof(one))) == sizeof(one))
		c->event_fd_set = want;
}

static struct vd_event *event_at(vd_conn *c, uint32_t i)
{
	/* Both are less than that. */
	uint32_t at = c->event_first + i;

	return &c->events[at < EVENTS_MOST ? at : at - EVENTS_MOST];
}

/* There is one more. */
static void pushed(vd_conn *c)
{
	c->event_count++;
	conn_changed(c);
	event_tell(c);
}

void event_push(vd_conn *c, const struct vd_event *ev)
{
	*event_at(c, c->event_count) = *ev;
	pushed(c);
}

static void taken(vd_conn *c, uint32_t count)
{
	c->notes_taken += count;
	if (c->notes_taken - c->notes_told >= FRAME_CREDITS / 2)
		c->owed.taken = true;
}

int event_note(vd_conn *c, struct vd_region *x, uint32_t tag, uint64_t offset,
	       uint64_t len)
{
	/* No more may be under way than the peer was told of. */
	if (c->notes_come - c->notes_told >= FRAME_CREDITS)
		return -EPROTO;
	c->notes_come++;
	count(c, NATIVE_NOTES_COME, 1);
	if (!x) {
		taken(c, 1);
		return 0;
	}
	*event_at(c, c->event_count) = (struct vd_event){.kind = VD_EVENT_NOTIFY,
							 .tag = tag,
							 .where = x,
							 .user = x->user,
							 .offset = offset,
							 .len = len};
	pushed(c);
	return 0;
}

void event_message(vd_conn *c, uint32_t len)
{
	struct vd_event ev = {.kind = VD_EVENT_MESSAGE, .len = len};

	c->event_messages++;
	event_push(c, &ev);
}

void event_drop_message(vd_conn *c, uint32_t count)
{
	uint32_t at = 0;

	if (c->event_messages < count)
		return;
	while (event_at(c, at)->kind != VD_EVENT_MESSAGE)
		at++;
	/* What comes before it moves up. */
	for (; at > 0; at--)
		*event_at(c, at) = *event_at(c, at - 1);
	c->event_first = (c->event_first + 1) % EVENTS_MOST;
	c->event_count--;
	c->event_messages--;
	event_tell(c);
}

void event_drop(vd_conn *c, const struct vd_region *x)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->event_count; i++)
		if (event_at(c, i)->where != x)
			*event_at(c, kept++) = *event_at(c, i);
	taken(c, c->event_count - kept);
	c->event_count = kept;
	event_tell(c);
}

bool event_is_handled(vd_conn *c)
{
	const struct vd_region *x = c->event_count > 0 ? event_at(c, 0)->where : NULL;

	return x && x->handler;
}

static void take_first(vd_conn *c, struct vd_event *ev)
{
	*ev = *event_at(c, 0);
	c->event_first = (c->event_first + 1) % EVENTS_MOST;
	c->event_count--;
	if (ev->kind == VD_EVENT_MESSAGE)
		c->event_messages--;
	else if (ev->kind == VD_EVENT_DONE)
		c->lend.untaken--;
	else
		taken(c, 1);
}

/* Under mu: up to one that is for a handler. */
static int take(vd_conn *c, struct vd_event *events, int n)
{
	int count = 0;

	while (count < n && c->event_count > 0 && !event_is_handled(c))
		take_first(c, &events[count++]);
	if (count < n && is_end_due(c)) {
		events[count++] = (struct vd_event){
			.kind = VD_EVENT_END,
			.result = c->error == -EPIPE ? 0 : c->error,
		};
		c->end_taken = true;
	}
	event_tell(c);
	return count;
}

/* Under mu, which it gives up meanwhile. */
static int await_event(vd_conn *c, int timeout_ms, int64_t deadline)
{
	int r;

	lend_look(c);
	if (event_is_there(c, NULL))
		return 0;
	/* A loop that asks only when vd_fd says so leaves the reading to the service. */
	if (timeout_ms == 0 && c->event_fd >= 0 && !c->error)
		return -ETIMEDOUT;
	c->event_waits++;
	board_glance(c, event_is_there, timeout_ms);
	r = until_is(c, event_is_there, NULL, deadline);
	c->event_waits--;
	return r;
}

/* What waits is not cancelled in it (wait.c); nor is this, which may be anything. */
static int handle(vd_conn *c, const struct vd_event *ev)
{
	NOT_CANCELLED;

	return handler_run(c, ev);
}

static void close_late(vd_conn *c)
{
	NOT_CANCELLED;

	vd_close(c);
}

/* Under mu, but with -ECHILD. Handlers run on the way, for all that came in time. */
static int wait_events(vd_conn *c, struct vd_event *events, int n, int timeout_ms)
{
	bool is_there = event_is_there(c, NULL) && !event_is_handled(c);
	int64_t deadline = is_there ? 0 : until(timeout_ms);
	struct vd_event ev;
	int r;

	for (uint32_t i = 0; i < EVENTS_MOST || until_left(deadline) != 0; i++) {
		r = await_event(c, timeout_ms, deadline);
		if (r == 0)
			r = take(c, events, n);
		if (r != 0)
			return r;
		take_first(c, &ev);
		event_tell(c);
		r = handle(c, &ev);
		if (r < 0)
			return r;
	}
	return -ETIMEDOUT;
}

/* Under mu, which it gives up, and staying, which it does no more. */
static int wait_here(vd_conn *c, struct vd_event *events, int n, int timeout_ms)
{
	int r = wait_events(c, events, n, timeout_ms);
	bool closes;

	if (r == -ECHILD)
		return r;
	/* A look at a device may have been on the way, after which no tick looks. */
	if (c->owed.taken || (lend_is_due(c) && !lend_is_far(c))) {
		pthread_mutex_unlock(&c->mu);
		send_owed(c);
		pthread_mutex_lock(&c->mu);
	}
	closes = handler_closes(c) && !handler_is_around(c);
	if (closes)
		c->closes_late = false;
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	if (closes)
		close_late(c);
	return r;
}

int event_take(vd_conn *c, struct vd_event *events, int n)
{
	int r = wait_here(c, events, n, 0);

	return r > 0 || r == -ECHILD ? r : 0;
}

NATIVE int vd_wait(vd_conn *c, struct vd_event *events, int n, int timeout_ms)
{
	int r = native_check(c);

	if (r < 0)
		return r;
	if (n <= 0)
		return -EINVAL;
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	return wait_here(c, events, n, timeout_ms);
}

NATIVE int vd_fd(vd_conn *c)
{
	NOT_CANCELLED;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	if (c->event_fd < 0) {
		c->event_fd = door->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		r = c->event_fd < 0 ? -errno : 0;
		event_tell(c);
		service_take(c);
	}
	r = r < 0 ? r : c->event_fd;
	pthread_mutex_unlock(&c->mu);
	return r;
}
