/* SPDX-License-Identifier: Apache-2.0 */
/* Posts writes on a link: room, credits, which ones tell of their completion, drain, close. */
#include <errno.h>

#include "rdma/fabric.h"

static uint64_t under_way(const struct link *l)
{
	return l->posted - l->completed;
}

bool link_has_room(const struct link *l, bool with_immediate)
{
	return under_way(l) < l->context->limits.sends &&
	       (!with_immediate || l->sent - l->granted < l->peer.credits);
}

/*
 * Every quarter of the queue at the latest one write tells of its completion, and of those
 * before it. So a full queue always has one under way that will. The look each second asks, too.
 */
static bool tells(const struct link *l)
{
	return l->is_asked ||
	       l->posted + 1 - l->signalled >= l->context->limits.sends / 4;
}

static int post(struct link *l, struct fabric_work *w)
{
	int r;

	w->tag = link_tag(l, false, l->posted + 1);
	w->is_signalled = w->is_signalled || tells(l);
	r = l->context->ops->post(l, w);
	if (r < 0) {
		link_fail(l, LINK_LOCAL_FAULT);
		return r;
	}
	l->posted++;
	if (w->is_signalled) {
		l->signalled = l->posted;
		l->is_asked = false;
	}
	link_watch_begin(l->context);
	return 0;
}

static int state_error(const struct link *l)
{
	switch (l->state) {
	case LINK_UP:
		return l->peer_closed ? -EPIPE : 0;
	case LINK_OPEN:
	case LINK_WAITING:
		return -ENOTCONN;
	default:
		return -EPIPE;
	}
}

static bool holds(const struct link_memory *m, const void *from, uint32_t bytes)
{
	uintptr_t at = (uintptr_t)from;

	return at >= m->start && at - m->start <= m->bytes &&
	       bytes <= m->bytes - (at - m->start);
}

static int check(const struct link *l, const struct link_write *w)
{
	if (l->state != LINK_UP || l->peer_closed)
		return state_error(l);
	if (w->bytes > l->write_max)
		return -EMSGSIZE;
	if (!(w->flags & LINK_OFFERED) &&
	    (w->at > l->peer.window_bytes || w->bytes > l->peer.window_bytes - w->at))
		return -EFAULT;
	if (w->memory ? !holds(w->memory, w->from, w->bytes) : w->bytes > l->inline_max)
		return -EFAULT;
	return 0;
}

int link_post(struct link *l, const struct link_write *w)
{
	bool with_immediate = w->flags & LINK_IMMEDIATE;
	bool offered = w->flags & LINK_OFFERED;
	struct fabric_work work = {
		.from = w->from,
		.bytes = w->bytes,
		.key = w->memory ? w->memory->key : 0,
		.is_inline = !w->memory,
		.is_signalled = w->flags & LINK_SIGNAL,
		.with_immediate = with_immediate,
		.to = offered ? w->at : l->peer.window + w->at,
		.to_key = offered ? w->key : l->peer.key,
		.immediate = w->immediate & ~CONTROL_BIT,
	};
	int r = check(l, w);

	if (r < 0)
		return r;
	if (!link_has_room(l, with_immediate)) {
		if (link_has_room(l, false))
			l->wants_credit = true;
		else
			l->wants_room = true;
		return -EAGAIN;
	}
	r = post(l, &work);
	if (r < 0)
		return r;
	if (with_immediate)
		l->sent++;
	if (w->flags & LINK_SIGNAL)
		l->awaited = l->posted;
	return 0;
}

/* A word of the link's own, without bytes. False: no room, or the link has failed. */
static bool post_own(struct link *l, bool with_immediate, uint32_t immediate, bool signal)
{
	struct fabric_work work = {
		.is_inline = true,
		.is_signalled = signal,
		.with_immediate = with_immediate,
		.to = l->peer.window,
		.to_key = l->peer.key,
		.immediate = immediate,
	};

	if (under_way(l) >= l->context->limits.sends + LINK_SEND_RESERVE)
		return false;
	return post(l, &work) == 0;
}

bool link_mark(struct link *l)
{
	return l->completed < l->signalled || post_own(l, false, 0, true);
}

/* Receives that were used up are posted again, and so much is granted to the peer. */
static void pay_receives(struct link *l)
{
	uint32_t credits = l->context->limits.credits;
	uint32_t batch =
		l->grants_all ? 1 : (credits + LINK_GRANTS_MAX - 1) / LINK_GRANTS_MAX;
	uint32_t count = l->unposted + l->unposted_own;
	int r;

	if (l->unposted >= batch || l->unposted_own) {
		r = l->context->ops->receive(l, count, link_tag(l, true, 0));
		if (r < 0) {
			link_fail(l, LINK_LOCAL_FAULT);
			return;
		}
		l->unposted = l->unposted_own = 0;
	}
	if (l->state == LINK_UP && !l->peer_closed &&
	    l->taken - l->unposted - l->told >= batch &&
	    post_own(l, true, link_control_word(CONTROL_GRANT, l->taken - l->unposted),
		     false))
		l->told = l->taken - l->unposted;
}

void link_pay(struct link *l)
{
	if (l->state != LINK_UP && l->state != LINK_WAITING && l->state != LINK_CLOSING)
		return;
	/* Before anything else that the peer gets. */
	if (l->wants_ready &&
	    post_own(l, true, link_control_word(CONTROL_READY, 0), false))
		l->wants_ready = false;
	pay_receives(l);
	if (l->wants_close &&
	    post_own(l, true, link_control_word(CONTROL_CLOSE, 0), true)) {
		l->close_at = l->awaited = l->posted;
		l->wants_close = false;
	}
	if (l->wants_mark && (l->signalled == l->posted || post_own(l, false, 0, true))) {
		l->wants_mark = false;
		l->awaited = l->posted;
	}
}

uint32_t link_credit(const struct link *l)
{
	return l->peer.credits - (uint32_t)(l->sent - l->granted);
}

bool link_room(struct link *l, uint32_t count)
{
	if (under_way(l) + count <= l->context->limits.sends)
		return true;
	l->wants_room = true;
	return false;
}

void link_want_credit(struct link *l)
{
	l->wants_credit = true;
}

uint64_t link_immediates(const struct link *l)
{
	return l->sent;
}

uint64_t link_granted(const struct link *l)
{
	return l->granted;
}

int link_grant(struct link *l)
{
	int r = state_error(l);

	if (r < 0)
		return r;
	l->grants_all = true;
	link_pay(l);
	l->grants_all = false;
	if (l->state == LINK_FAILED)
		return -EPIPE;
	if (l->taken == l->told)
		return 0;
	l->wants_room = true;
	return -EAGAIN;
}

int link_read(struct link *l, const struct link_read *r)
{
	bool offered = r->flags & LINK_OFFERED;
	struct fabric_work work = {.from = r->memory ? r->into
						     : (uint8_t *)l->window + r->to,
				   .bytes = r->bytes,
				   .key = r->memory ? r->memory->key : 0,
				   .in_window = !r->memory,
				   .is_signalled = true,
				   .is_read = true,
				   .to = offered ? r->from : l->peer.window + r->from,
				   .to_key = offered ? r->key : l->peer.key};
	int result = state_error(l);

	if (result < 0)
		return result;
	if (r->memory ? !holds(r->memory, r->into, r->bytes)
		      : r->to > l->window_bytes || r->bytes > l->window_bytes - r->to)
		return -EFAULT;
	if (r->bytes > l->write_max)
		return -EMSGSIZE;
	if (!offered &&
	    (r->from > l->peer.window_bytes || r->bytes > l->peer.window_bytes - r->from))
		return -EFAULT;
	if (!link_has_room(l, false)) {
		l->wants_room = true;
		return -EAGAIN;
	}
	result = post(l, &work);
	if (result == 0)
		l->read_at = l->posted;
	return result;
}

uint32_t link_inline_max(const struct link *l)
{
	return l->inline_max;
}

uint32_t link_write_max(const struct link *l)
{
	return l->write_max;
}

uint64_t link_peer_window(const struct link *l)
{
	return l->peer.window_bytes;
}

uint64_t link_posted(const struct link *l)
{
	return l->posted;
}

uint64_t link_completed(const struct link *l)
{
	return l->completed;
}

int link_drain(struct link *l)
{
	if (l->state == LINK_FAILED)
		return -EPIPE;
	if (l->completed == l->posted)
		return 1;
	l->wants_mark = true;
	link_pay(l);
	return l->state == LINK_FAILED ? -EPIPE : 0;
}

int link_probe(struct link *l)
{
	int r = state_error(l);

	if (r < 0)
		return r;
	if (link_mark(l))
		return 0;
	return l->state == LINK_FAILED ? -EPIPE : -EAGAIN;
}

int link_close(struct link *l)
{
	if (l->state == LINK_OPEN || l->state == LINK_WAITING)
		return -ENOTCONN;
	if (l->state == LINK_UP) {
		l->state = LINK_CLOSING;
		l->wants_close = true;
		link_pay(l);
	}
	if (l->state == LINK_FAILED)
		return l->error == LINK_PEER_CLOSED ? 1 : -EPIPE;
	return l->close_at && l->completed >= l->close_at && l->peer_closed;
}
