/* SPDX-License-Identifier: Apache-2.0 */
/* Makes links, connects them by their hellos, and ends them. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdma/fabric.h"

static bool within(uint32_t *value, uint32_t preset, uint32_t low, uint32_t high)
{
	if (*value == 0)
		*value = preset;
	return *value >= low && *value <= high;
}

int link_limits_check(struct link_limits *l)
{
	if (!within(&l->links, 32, 1, LINK_LINKS_MAX) ||
	    !within(&l->credits, 256, LINK_CREDITS_MIN, LINK_CREDITS_MAX) ||
	    !within(&l->sends, 128, LINK_SENDS_MIN, LINK_SENDS_MAX) ||
	    !within(&l->watch_ms, 1000, 1, LINK_WATCH_MAX))
		return -EINVAL;
	return 0;
}

int link_context_init(struct link_context *c)
{
	int r;

	c->slots = calloc(c->limits.links, sizeof(struct link *));
	if (!c->slots)
		return -ENOMEM;
	r = link_watch_open(c);
	if (r < 0)
		free(c->slots);
	return r;
}

static void context_free(struct link_context *c)
{
	link_watch_close(c);
	free(c->slots);
	free(c);
}

void link_context_destroy(struct link_context *c)
{
	if (!c)
		return;
	assert(c->live == 0);
	c->ops->finish(c);
	context_free(c);
}

void link_context_abandon(struct link_context *c)
{
	/* Nor is the heap touched, whose locks a thread of the parent's may have held. */
	c->ops->abandon(c);
	link_watch_close(c);
}

static uint32_t free_slot(const struct link_context *c)
{
	uint32_t slot = 0;

	while (c->slots[slot])
		slot++;
	return slot;
}

static int create(struct link_context *c, struct link *beside, void *window,
		  uint64_t bytes, struct link **out)
{
	struct link *l;
	int r;

	if (c->live == c->limits.links)
		return -ENOSPC;
	/* Completions of those that were destroyed still have their places in the queue. */
	if (c->live + c->stale >= c->limits.links)
		return -EAGAIN;
	l = calloc(1, c->ops->link_bytes);
	if (!l)
		return -ENOMEM;
	l->context = c;
	l->beside = beside;
	l->slot = free_slot(c);
	l->generation = ++c->generation;
	l->window = window;
	l->window_bytes = bytes;
	r = c->ops->open(l);
	if (r < 0) {
		free(l);
		return r;
	}
	l->own.credits = c->limits.credits;
	c->slots[l->slot] = l;
	c->live++;
	r = c->ops->receive(l, c->limits.credits + LINK_RESERVE, link_tag(l, true, 0));
	if (r < 0) {
		link_destroy(l);
		return r;
	}
	*out = l;
	return 0;
}

int link_create(struct link_context *c, void *window, uint64_t bytes, struct link **out)
{
	return create(c, NULL, window, bytes, out);
}

int link_create_beside(struct link *first, void *window, uint64_t bytes,
		       struct link **out)
{
	return create(first->context, first, window, bytes, out);
}

int link_hello(struct link *l, uint8_t hello[LINK_HELLO_BYTES])
{
	if (l->state == LINK_FAILED)
		return -EPIPE;
	/* The second's hello tells the first that it may post. */
	if (l->state == LINK_OPEN)
		l->said_hello = true;
	link_hello_put(hello, &l->own);
	return 0;
}

/* NULL, or why this hello cannot be meant for this link. */
static const char *mismatch(const struct link *l, const struct link_address *peer)
{
	if (peer->nonce == l->own.nonce)
		return "the hello is our own";
	if (l->said_hello && peer->echo != l->own.nonce)
		return "the hello does not answer ours";
	if (!l->said_hello && peer->echo != 0)
		return "the hello answers another link's";
	if (l->beside && (peer->lid != l->beside->peer.lid ||
			  memcmp(peer->gid, l->beside->peer.gid, sizeof(peer->gid)) != 0))
		return "the hello is not of the first link's host";
	return NULL;
}

int link_connect(struct link *l, const void *hello, size_t bytes, const char **why)
{
	struct link_address peer;
	int r;

	*why = NULL;
	if (l->state != LINK_OPEN)
		return l->state == LINK_FAILED ? -EPIPE : -EISCONN;
	r = link_hello_get(hello, bytes, &peer, why);
	if (r < 0)
		return r;
	if (peer.fabric != l->own.fabric) {
		*why = "the hello is of another interconnect";
		return -EPROTONOSUPPORT;
	}
	*why = mismatch(l, &peer);
	if (*why)
		return -EPROTO;
	r = l->context->ops->connect(l, &peer);
	if (r < 0) {
		link_fail(l, LINK_LOCAL_FAULT);
		return r;
	}
	l->peer = peer;
	l->own.echo = peer.nonce;
	l->state = l->said_hello ? LINK_UP : LINK_WAITING;
	l->wants_ready = l->said_hello;
	link_pay(l);
	return l->state == LINK_FAILED ? -EIO : 0;
}

static void forget_owing(struct link *l)
{
	struct link **at = &l->context->owing;

	if (!l->is_owing)
		return;
	while (*at != l)
		at = &(*at)->next_owing;
	*at = l->next_owing;
}

void link_destroy(struct link *l)
{
	struct link_context *c;

	if (!l)
		return;
	c = l->context;
	if (l->state != LINK_FAILED)
		c->ops->halt(l);
	c->ops->close(l);
	forget_owing(l);
	c->slots[l->slot] = NULL;
	c->live--;
	c->stale++;
	free(l);
}

int link_allow(struct link *l, void *start, size_t bytes, uint32_t may,
	       struct link_memory *out)
{
	int r = l->context->ops->add(l, start, bytes, may, out);

	if (r < 0)
		return r;
	out->start = (uintptr_t)start;
	out->bytes = bytes;
	return 0;
}

int link_register(struct link *l, void *start, size_t bytes, struct link_memory *out)
{
	return link_allow(l, start, bytes, ACCESS_OWN, out);
}

int link_share(struct link *l, void *start, size_t bytes, struct link_memory *out)
{
	return link_allow(l, start, bytes, LINK_MAY_READ, out);
}

int link_offer(struct link *l, void *start, size_t bytes, struct link_memory *out)
{
	return link_allow(l, start, bytes, LINK_MAY_WRITE, out);
}

void link_unregister(struct link *l, struct link_memory *m)
{
	l->context->ops->drop(l, m);
	m->handle = NULL;
}

void link_fail(struct link *l, enum link_error error)
{
	/* It may have gone before the answer to our last words was here. */
	if (l->peer_closed && (error == LINK_PEER_DEAD || error == LINK_PEER_REFUSED))
		error = LINK_PEER_CLOSED;
	if (l->error == LINK_FINE)
		l->error = (uint8_t)error;
	link_suspect(l);
}

void link_fail_all(struct link_context *c, enum link_error error)
{
	for (uint32_t i = 0; i < c->limits.links; i++)
		if (c->slots[i])
			link_fail(c->slots[i], error);
}

void link_suspect(struct link *l)
{
	if (l->state != LINK_FAILED) {
		l->state = LINK_FAILED;
		l->context->ops->halt(l);
	}
	link_owe(l);
}

void link_abort(struct link *l)
{
	link_fail(l, LINK_ABORTED);
}

enum link_state link_state(const struct link *l)
{
	return l->state;
}

enum link_error link_error(const struct link *l)
{
	return l->error;
}

const char *link_error_text(enum link_error error)
{
	static const char *const texts[LINK_ERRORS] = {
		[LINK_FINE] = "nothing is wrong",
		[LINK_PEER_DEAD] = "the peer does not answer any more",
		[LINK_PEER_REFUSED] = "the peer's device refuses what is written",
		[LINK_PEER_WRONG] = "the peer does not keep to the protocol",
		[LINK_PEER_CLOSED] = "the peer has closed the link",
		[LINK_LOCAL_FAULT] = "a fault of this process's memory or queue pair",
		[LINK_BROKEN] = "the queue pair has failed, and the device says no cause",
		[LINK_DEVICE_LOST] = "the device is gone",
		[LINK_ABORTED] = "the link was given up",
	};

	return error < LINK_ERRORS ? texts[error] : "an unknown error";
}
