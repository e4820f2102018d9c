/* SPDX-License-Identifier: Apache-2.0 */
/* Exports of this end, and handles to those of the peer. */
#include <stdlib.h>
#include <string.h>

#include "base/reason.h"
#include "native/native.h"
#include "native/reach.h"

/* Under mu: gives x a place and so an id. */
static int place(vd_conn *c, struct vd_region *x)
{
	uint32_t found = VD_EXPORTS_MAX;

	if (c->error)
		return c->error;
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++) {
		if (c->exports[i] && !strcmp(c->exports[i]->name, x->name))
			return -EEXIST;
		/* A place whose uses are counted out is never used again. */
		if (!c->exports[i] && !c->is_held[i] && c->uses[i] < FRAME_ID_USES &&
		    found > i)
			found = i;
	}
	if (found == VD_EXPORTS_MAX)
		return -ENOSPC;
	x->id = ++c->uses[found] << FRAME_ID_SHIFT | found;
	c->exports[found] = x;
	return 0;
}

/* Under mu. Afterwards nothing is written there but to mapped memory and by a key, and no event names it. */
static void withdraw(vd_conn *c, struct vd_region *x)
{
	if (x->is_withdrawn)
		return;
	x->is_withdrawn = true;
	c->exports[x->id & FRAME_ID_PLACE] = NULL;
	/* Before the place is used again. The peer may be stopped, and another thread block in a send to it:
	 * so nobody waits until it can be sent. */
	send_gone(c, x->id);
	event_drop(c, x);
	c->followers++;
	while (c->landing == x)
		pthread_cond_wait(&c->changed, &c->mu);
	c->followers--;
	reach_withdraw(c, x);
}

void export_forget(struct vd_region *x)
{
	detour_forget(x);
	memory_unuse(x->memory);
	free(x);
}

static int announce(vd_conn *c, struct vd_region *x)
{
	struct frame f = {.type = FRAME_EXPORT,
			  .flags = x->memory ? FRAME_WHOLE : 0,
			  .id = x->id,
			  .offset = x->len,
			  .tag = x->rights,
			  .token = (uintptr_t)x->addr % 8,
			  .len = (uint32_t)strlen(x->name)};
	int r = send_held(c, &f, x->name);

	if (r < 0) {
		pthread_mutex_lock(&c->mu);
		withdraw(c, x);
		pthread_mutex_unlock(&c->mu);
	}
	return r;
}

NATIVE int vd_export(vd_conn *c, const char *name, void *addr, size_t len,
		     unsigned rights, void *user, vd_region **out)
{
	NOT_CANCELLED;
	size_t length = name ? strnlen(name, VD_NAME_MAX + 1) : 0;
	struct vd_region *x;
	int r = native_check(c);

	if (r < 0)
		return r;
	if (length == 0 || length > VD_NAME_MAX || len == 0 || rights == 0 ||
	    (rights & ~(VD_READ | VD_WRITE)))
		return -EINVAL;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	*x = (struct vd_region){
		.c = c, .rights = rights, .addr = addr, .len = len, .user = user};
	memcpy(x->name, name, length);
	x->memory = memory_use(addr, len);
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	/* Ids go out in the order in which they are given. */
	send_begin(c);
	pthread_mutex_lock(&c->mu);
	r = place(c, x);
	pthread_mutex_unlock(&c->mu);
	if (r == 0)
		r = announce(c, x);
	send_end(c);
	conn_leave(c);
	if (r < 0)
		export_forget(x);
	else
		*out = x;
	return r;
}

/* Afterwards it is still to be forgotten. */
static int end_export(struct vd_region *x)
{
	vd_conn *c = x->c;
	int r;

	pthread_mutex_lock(&c->mu);
	withdraw(c, x);
	pthread_mutex_unlock(&c->mu);
	/* Whether the peer hears of it or not. */
	send_owed(c);
	pthread_mutex_lock(&c->mu);
	reach_recall(c, x);
	r = map_recall(c, x);
	pthread_mutex_unlock(&c->mu);
	return r;
}

NATIVE int vd_unexport(vd_region *x)
{
	NOT_CANCELLED;
	vd_conn *c = x->c;
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	r = x->detours || x->inert ? -EBUSY : 0;
	/* At once: then vd_close does not find it, and does not end it as well. */
	if (r == 0)
		withdraw(c, x);
	pthread_mutex_unlock(&c->mu);
	if (r == 0)
		r = end_export(x);
	pthread_mutex_lock(&c->mu);
	if (r == 0)
		handler_await(c, x->id);
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	if (r == 0)
		export_forget(x);
	return r;
}

/* Those that the peer may write to, past the stream, have to come back before its end. A handler may
 * run for one of them, until the connection has ended. */
void export_end_all(vd_conn *c)
{
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++) {
		struct vd_region *x;

		pthread_mutex_lock(&c->mu);
		x = c->exports[i];
		if (x && x->is_lent)
			withdraw(c, x);
		else
			x = NULL;
		pthread_mutex_unlock(&c->mu);
		if (!x)
			continue;
		end_export(x);
		x->next_ended = c->ended;
		c->ended = x;
	}
}

/* ---- the peer's ---- */

int remote_check(const struct vd_remote *r, uint64_t offset, uint64_t len,
		 uint32_t rights)
{
	const struct peer_export *p = &r->c->peer_exports[r->id & FRAME_ID_PLACE];

	if (r->c->error || r->c->is_closing)
		return r->c->error ? r->c->error : -EPIPE;
	if ((r->rights & rights) != rights)
		return -EACCES;
	if (offset > r->len || len > r->len - offset)
		return -ERANGE;
	return p->alive && p->id == r->id ? 0 : -ESTALE;
}

/* Under mu. */
static struct peer_export *find_peer(vd_conn *c, const char *name)
{
	for (uint32_t i = 0; i < VD_EXPORTS_MAX; i++)
		if (c->peer_exports[i].alive && !strcmp(c->peer_exports[i].name, name))
			return &c->peer_exports[i];
	return NULL;
}

static bool is_exported(vd_conn *c, const void *name)
{
	return find_peer(c, name) != NULL;
}

/* Under mu, which it gives up meanwhile. */
static int import(vd_conn *c, const char *name, int64_t deadline, struct vd_remote *h)
{
	struct peer_export *p;
	int r;

	do {
		r = until_is(c, is_exported, name, deadline);
		if (r < 0)
			return r;
		p = find_peer(c, name);
		h->id = p->id;
		r = map_import(c, p, deadline);
		if (r < 0)
			return r;
		/* The handle would go at once. */
		if (c->is_closing)
			return -EPIPE;
	} while (!p->alive || p->id != h->id);
	h->rights = p->rights;
	h->skew = p->skew;
	h->len = p->len;
	count(c, NATIVE_IMPORTS, 1);
	count(c, NATIVE_MAPPED, p->map != NULL);
	h->next = c->remotes;
	c->remotes = h;
	return 0;
}

NATIVE int vd_import(vd_conn *c, const char *name, int timeout_ms, vd_remote **out)
{
	NOT_CANCELLED;
	struct vd_remote *h;
	int r = native_check(c);

	if (r < 0)
		return r;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->c = c;
	pthread_mutex_lock(&c->mu);
	conn_stay(c);
	r = import(c, name, until(timeout_ms), h);
	conn_left(c);
	pthread_mutex_unlock(&c->mu);
	if (r == 0)
		*out = h;
	else
		free(h);
	return r;
}

NATIVE const char *vd_remote_reason(const vd_remote *r)
{
	NOT_CANCELLED;
	const struct peer_export *p = &r->c->peer_exports[r->id & FRAME_ID_PLACE];
	uint32_t reason = VD_REASON_ENDED;

	if (native_check(r->c) == 0) {
		pthread_mutex_lock(&r->c->mu);
		if (p->alive && p->id == r->id)
			reason = p->reason;
		pthread_mutex_unlock(&r->c->mu);
	}
	return reason_name(reason);
}

NATIVE size_t vd_remote_size(const vd_remote *r)
{
	return r->len;
}

NATIVE unsigned vd_remote_rights(const vd_remote *r)
{
	return r->rights;
}

NATIVE void vd_unimport(vd_remote *r)
{
	NOT_CANCELLED;
	struct vd_remote **at;

	if (!r || native_check(r->c) < 0)
		return;
	pthread_mutex_lock(&r->c->mu);
	for (at = &r->c->remotes; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	pthread_mutex_unlock(&r->c->mu);
	free(r);
}
