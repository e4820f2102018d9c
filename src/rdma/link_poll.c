/* SPDX-License-Identifier: Apache-2.0 */
/* Reaps completions: progress, credits, and the events that they mean for the caller. */
#include "rdma/fabric.h"

enum { BATCH = 16 };

void link_owe(struct link *l)
{
	if (l->is_owing)
		return;
	l->is_owing = true;
	l->next_owing = l->context->owing;
	l->context->owing = l;
}

/* NULL: it has been destroyed. */
static struct link *link_of_tag(const struct link_context *c, uint64_t tag)
{
	uint32_t slot = (uint32_t)(tag >> 54);
	struct link *l = slot < c->limits.links ? c->slots[slot] : NULL;

	return l && (l->generation & 0x1fffff) == (tag >> 32 & 0x1fffff) ? l : NULL;
}

/* The full count whose low half this is; it is among the last that were posted. */
static uint64_t count_of_tag(const struct link *l, uint64_t tag)
{
	return l->posted - (uint32_t)((uint32_t)l->posted - (uint32_t)tag);
}

/*
 * The peer says how many of our immediates it has polled, modulo 2^24. That can be no more
 * than there were, nor fewer than it has said before.
 */
static void take_grant(struct link *l, uint32_t value)
{
	uint64_t more = (value - (uint32_t)l->granted) & 0xffffff;

	if (more > l->sent - l->granted)
		link_fail(l, LINK_PEER_WRONG);
	else
		l->granted += more;
}

static int take_control(struct link *l, uint32_t word, struct link_event *out)
{
	l->unposted_own++;
	switch (word >> 24 & 0x7f) {
	case CONTROL_READY:
		if (l->state != LINK_WAITING)
			break;
		l->state = LINK_UP;
		*out = (struct link_event){.link = l, .type = LINK_EVENT_UP};
		return 1;
	case CONTROL_GRANT:
		take_grant(l, word & 0xffffff);
		return 0;
	case CONTROL_CLOSE:
		if (l->peer_closed)
			break;
		l->peer_closed = true;
		return 0;
	default:
		break;
	}
	link_fail(l, LINK_PEER_WRONG);
	return 0;
}

static int take_receive(struct link *l, const struct fabric_done *d,
			struct link_event *out)
{
	if (!d->with_immediate || l->state == LINK_OPEN || l->peer_closed) {
		link_fail(l, LINK_PEER_WRONG);
		return 0;
	}
	if (d->immediate & CONTROL_BIT)
		return take_control(l, d->immediate, out);
	l->taken++;
	l->unposted++;
	/* READY comes first; and what we have not granted it must not use. */
	if (l->state == LINK_WAITING || l->taken - l->told > l->context->limits.credits) {
		link_fail(l, LINK_PEER_WRONG);
		return 0;
	}
	*out = (struct link_event){l, LINK_EVENT_IMMEDIATE, d->immediate, d->bytes};
	return 1;
}

/* The number of events: 0 or 1. */
static int take(struct link_context *c, const struct fabric_done *d,
		struct link_event *out)
{
	struct link *l = link_of_tag(c, d->tag);

	if (!l || l->error_told)
		return 0;
	link_owe(l);
	if (d->flushed) {
		link_suspect(l);
		return 0;
	}
	if (d->error != LINK_FINE) {
		link_fail(l, d->error);
		return 0;
	}
	if (d->tag & LINK_TAG_RECEIVE)
		return take_receive(l, d, out);
	l->completed = count_of_tag(l, d->tag);
	return 0;
}

static int tell(struct link *l, enum link_event_type type, struct link_event *out)
{
	*out = (struct link_event){.link = l, .type = type};
	return 1;
}

/* The next event that is not an immediate; 0: none. */
static int look_at(struct link *l, bool was_empty, struct link_event *out)
{
	if (l->state == LINK_FAILED) {
		/* What has come before is told first; and the cause may lie behind what was
		 * flushed. */
		if (!was_empty || l->error_told)
			return 0;
		if (l->error == LINK_FINE)
			l->error = l->peer_closed ? LINK_PEER_CLOSED : LINK_BROKEN;
		l->error_told = true;
		return tell(l, LINK_EVENT_FAILED, out);
	}
	if (l->completed > l->seen) {
		bool is_awaited = l->awaited > l->seen;

		l->seen = l->completed;
		if (is_awaited)
			return tell(l, LINK_EVENT_DONE, out);
	}
	if (l->read_at && l->completed >= l->read_at) {
		l->read_at = 0;
		return tell(l, LINK_EVENT_READ, out);
	}
	if (l->peer_closed && !l->close_told) {
		l->close_told = true;
		return tell(l, LINK_EVENT_CLOSED, out);
	}
	if (l->state != LINK_UP || l->peer_closed)
		return 0;
	if ((l->wants_room && link_has_room(l, false)) ||
	    (l->wants_credit && link_has_room(l, true))) {
		l->wants_room = l->wants_credit = false;
		return tell(l, LINK_EVENT_ROOM, out);
	}
	return 0;
}

/* Pays what links owe their peers, and adds what has become of the links to the events. */
static int settle(struct link_context *c, bool was_empty, struct link_event *out, int max)
{
	struct link *l = c->owing, *next;
	int n = 0;

	c->owing = NULL;
	for (; l; l = next) {
		next = l->next_owing;
		l->is_owing = false;
		link_pay(l);
		while (n < max && look_at(l, was_empty, &out[n]))
			n++;
		/* Without room for an event, or before the last word of the queue. */
		if (n == max || (l->state == LINK_FAILED && !l->error_told))
			link_owe(l);
	}
	return n;
}

int link_poll(struct link_context *c, struct link_event *out, int max)
{
	struct fabric_done done[BATCH];
	bool was_empty = false;
	int n = 0;

	while (n < max && !was_empty) {
		int want = max - n < BATCH ? max - n : BATCH;
		int got = c->ops->poll(c, done, want);

		/* What was taken before is told all the same. */
		if (got < 0)
			link_fail_all(c, LINK_DEVICE_LOST);
		for (int i = 0; i < got; i++)
			n += take(c, &done[i], &out[n]);
		was_empty = got < want;
	}
	if (was_empty) {
		c->stale = 0;
		link_watch(c);
	}
	return n + settle(c, was_empty, out + n, max - n);
}

/* A full poll that has not seen the queue empty has taken as many completions as it gives events. */
uint32_t link_backlog(const struct link_context *c)
{
	const struct link_limits *l = &c->limits;

	return l->links * (l->sends + LINK_SEND_RESERVE + l->credits + LINK_RESERVE);
}

int link_fd(const struct link_context *c)
{
	return c->fd;
}

int link_arm(struct link_context *c)
{
	return c->ops->arm(c);
}

int link_answer(struct link_context *c, bool brief)
{
	int r = c->ops->answer(c, brief);

	if (r == 0)
		link_watch_answer(c);
	return r < 0 ? r : 0;
}
