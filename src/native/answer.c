/* SPDX-License-Identifier: Apache-2.0 */
/* Gets and atomics of the peer, carried out in their order when their answer can be sent. */
#include <string.h>

#include "base/copy.h"
#include "native/native.h"

/* The memory is the program's, whose own operations are atomic, too. */
static uint64_t atomic_at(uint8_t *at, const struct wanted *w)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)(void *)at;
	uint64_t operand[2];

	memcpy(operand, w->operand, sizeof(operand));
	if (w->frame.type == FRAME_ADD)
		return atomic_fetch_add(word, operand[0]);
	atomic_compare_exchange_strong(word, &operand[0], operand[1]);
	return operand[0];
}

uint32_t answer_next(vd_conn *c, uint8_t *to)
{
	struct owed *o = &c->owed;
	const struct wanted *w = &o->wanted[o->wanted_first];
	struct frame f = {.type = FRAME_ANSWER, .token = w->frame.token};
	bool known;
	struct vd_region *x = export_find(c, w->frame.id, &known);
	uint64_t old;

	send_stamp(c, &f);
	if (!x) {
		f.flags = FRAME_STALE;
	} else if (w->frame.type == FRAME_GET) {
		f.len = w->frame.tag;
		copy_bytes(to + FRAME_BYTES, x->addr + w->frame.offset, f.len);
	} else {
		f.len = sizeof(old);
		old = atomic_at(x->addr + w->frame.offset, w);
		memcpy(to + FRAME_BYTES, &old, sizeof(old));
	}
	memcpy(to, &f, sizeof(f));
	o->wanted_first = (o->wanted_first + 1) % FRAME_ASKED_MOST;
	o->wanted_count--;
	return FRAME_BYTES + f.len;
}
