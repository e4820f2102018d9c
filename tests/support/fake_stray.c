/* SPDX-License-Identifier: Apache-2.0 */
/* The fake interconnect: writes that are still in the network when their link is destroyed. */
#include <stdlib.h>
#include <string.h>

#include "support/fake_parts.h"
/* The queue pair that a stray goes to, as far as it is still there for it. */
static struct fake_link *aim_of(struct fake_world *w, const struct stray *s)
{
	struct fake_link *l = w->links;

	while (l && l->link.own.qpn != s->to)
		l = l->next;
	return l && l->peer_qpn == s->from && !l->is_halted && !context_of(l)->is_dead
		       ? l
		       : NULL;
}

/* The oldest one arrives. */
void fake_step_stray(struct fake_world *w)
{
	struct stray *s = w->strays;
	struct fake_link *l = aim_of(w, s);

	w->strays = s->next;
	if (l && (!fake_allows(l, &s->w) || (s->w.with_immediate && !l->receives))) {
		l->is_halted = true;
	} else if (l) {
		memcpy((void *)(uintptr_t)s->w.to, s->bytes, s->w.bytes);
		w->counts.strays++;
		fake_receive(l, &s->w);
	}
	free(s);
}

void fake_leave_strays(struct fake_link *l)
{
	struct fake_world *world = context_of(l)->world;
	struct stray **at = &world->strays;

	while (*at)
		at = &(*at)->next;
	for (uint32_t n = l->delivered; n < l->count; n++) {
		const struct work *work = work_at(l, n);
		struct stray *s =
			work->w.is_read ? NULL : malloc(sizeof(*s) + work->w.bytes);

		/* What comes behind one that is not there is not taken. */
		if (!s || draw(world, 8) == 0) {
			free(s);
			return;
		}
		*s = (struct stray){
			.from = l->link.own.qpn, .to = l->peer_qpn, .w = work->w};
		memcpy(s->bytes, work->w.is_inline ? work->inline_bytes : work->w.from,
		       work->w.bytes);
		*at = s;
		at = &s->next;
	}
}
