/* SPDX-License-Identifier: Apache-2.0 */
/* Redirection: bytes for an export land elsewhere, where the program said so in time. */
/*
 * VMMC-2's transfer redirection. A detour stands for a range of an export, and has a *run*: the part
 * whose newest bytes are at the detour's address. The newest bytes of the rest are in the export.
 * The run begins with the first bytes that come for the range, and grows upwards only: it is one
 * piece, so that one offset and one length tell what was redirected. Bytes that come for below the
 * run, or for beyond its end, go to the export. When the detour ends the rest is copied.
 *
 * Puts to mapped memory go past the reader, and so do those that a device writes: a detour that is
 * made there has no run, ever. No device gets to write while others stand (reach.c).
 *
 * All of it under mu. The reader writes to the run's end and beyond while `landing` names the
 * export, and reports afterwards how much has come: whoever ends a detour waits for that.
 */
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "native/native.h"

struct vd_detour {
	struct vd_region *x;
	struct vd_detour *next; /* of the export's */
	uint64_t offset, len;	/* in the export */
	uint8_t *to;
	uint64_t from, end; /* the run, in the export; empty: equal */
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct vd_detour *detour_place(struct vd_region *x, uint64_t at, uint8_t **to,
			       uint64_t *room)
{
	for (struct vd_detour *d = x->detours; d; d = d->next) {
		bool empty = d->from == d->end;

		if (at < d->offset) {
			*room = least(*room, d->offset - at);
		} else if (at < d->offset + d->len) {
			if (empty || (at >= d->from && at <= d->end)) {
				*to = d->to + (at - d->offset);
				*room = least(*room, d->offset + d->len - at);
				return d;
			}
			if (at < d->from)
				*room = least(*room, d->from - at);
			else
				*room = least(*room, d->offset + d->len - at);
		}
	}
	return NULL;
}

void detour_landed(struct vd_detour *d, uint64_t at, uint64_t len)
{
	if (len == 0)
		return;
	if (d->from == d->end)
		d->from = d->end = at;
	if (at + len > d->end)
		d->end = at + len;
}

static bool overlaps(const struct vd_detour *d, uint64_t offset, size_t len)
{
	while (d && (offset >= d->offset + d->len || d->offset >= offset + len))
		d = d->next;
	return d != NULL;
}

NATIVE int vd_redirect(vd_region *x, uint64_t offset, void *addr, size_t len,
		       vd_detour **out)
{
	NOT_CANCELLED;
	struct vd_detour *d, **list;
	int r = native_check(x->c);

	if (r < 0)
		return r;
	if (len == 0 || (x->rights & VD_READ))
		return -EINVAL;
	if (!export_covers(x, offset, len))
		return -ERANGE;
	d = malloc(sizeof(*d));
	if (!d)
		return -ENOMEM;
	*d = (struct vd_detour){.x = x, .offset = offset, .len = len, .to = addr};
	pthread_mutex_lock(&x->c->mu);
	if (overlaps(x->detours, offset, len) || overlaps(x->inert, offset, len))
		r = -EBUSY;
	/* Where it could be mapped, now or later, nothing is redirected; nor where a device writes. */
	list = x->memory || x->is_reached ? &x->inert : &x->detours;
	d->next = *list;
	if (r == 0)
		*list = d;
	pthread_mutex_unlock(&x->c->mu);
	if (r < 0)
		free(d);
	else
		*out = d;
	return r;
}

static void unlink_from(struct vd_detour **at, struct vd_detour *d)
{
	for (; *at; at = &(*at)->next)
		if (*at == d) {
			*at = d->next;
			return;
		}
}

/* The rest is in the export. */
static void copy_rest(const struct vd_detour *d)
{
	const uint8_t *from = d->x->addr + d->offset;
	uint64_t below = d->from - d->offset, beyond = d->end - d->offset;

	if (d->from == d->end) {
		copy_bytes(d->to, from, d->len);
		return;
	}
	copy_bytes(d->to, from, below);
	copy_bytes(d->to + beyond, from + beyond, d->len - beyond);
}

NATIVE int vd_redirect_end(vd_detour *d, struct vd_redirected *done)
{
	NOT_CANCELLED;
	vd_conn *c = d->x->c;
	struct vd_redirected was = {.kind = VD_REDIRECT_NONE};
	int r = native_check(c);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->mu);
	unlink_from(&d->x->detours, d);
	unlink_from(&d->x->inert, d);
	c->followers++;
	while (c->landing == d->x)
		pthread_cond_wait(&c->changed, &c->mu);
	c->followers--;
	if (d->from < d->end) {
		was.offset = d->from - d->offset;
		was.len = d->end - d->from;
		was.kind = was.len == d->len ? VD_REDIRECT_FULL : VD_REDIRECT_PARTIAL;
	}
	count(c,
	      was.kind == VD_REDIRECT_FULL	? NATIVE_FULL
	      : was.kind == VD_REDIRECT_PARTIAL ? NATIVE_PARTIAL
						: NATIVE_NONE,
	      1);
	conn_stay(c);
	pthread_mutex_unlock(&c->mu);
	copy_rest(d);
	conn_leave(c);
	free(d);
	if (done)
		*done = was;
	return 0;
}

void detour_forget(struct vd_region *x)
{
	struct vd_detour *lists[] = {x->detours, x->inert};

	for (int i = 0; i < 2; i++)
		for (struct vd_detour *d = lists[i], *next; d; d = next) {
			next = d->next;
			free(d);
		}
}
