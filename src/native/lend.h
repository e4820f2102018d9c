/* SPDX-License-Identifier: Apache-2.0 */
/* Puts whose source is lent: what the rest of the library has to say of them. All of it is under mu. */
#ifndef VD_NATIVE_LEND_H
#define VD_NATIVE_LEND_H

#include "native/native.h"

/* One more is to be, by one of the next three. Or -EAGAIN: so many events would have no room; -ENOMEM. */
int lend_begin(vd_conn *c);
void lend_cancel(vd_conn *c);
/* It has been done by other ways: the event. */
void lend_done(vd_conn *c, const struct frame *f, uint64_t len);
/* It goes into the queue. 0, or the connection's error. */
int lend_queue(vd_conn *c, const struct frame *f, const void *src, uint64_t len);
/* How many of the queue may still be there, the last ones, when a device begins with that. */
uint32_t lend_may_stay(const vd_conn *c, const struct frame *f, uint64_t len);
/* As lend_queue, under wr, too: a device is at it. The connection has no error. */
void lend_to_device(vd_conn *c, const struct frame *f, const void *src, uint64_t len,
		    uint64_t move, uint32_t key_number);
/* There is a queue. */
static inline bool lend_is_due(const vd_conn *c)
{
	return load_relaxed(&c->lend.count) > 0;
}
/* A device is at the first one, so that none can be sent. */
static inline bool lend_is_far(const vd_conn *c)
{
	const struct lent_queue *q = &c->lend;

	return lend_is_due(c) && q->items[q->gone % VD_LENT_MOST].move;
}
/* Has a look at what devices have done: from now on that is not so, or they are still at the first one. */
void lend_look_far(vd_conn *c);
static inline void lend_look(vd_conn *c)
{
	if (lend_is_far(c))
		lend_look_far(c);
}
/* Under wr, too: the next frame of the queue, and where its payload is. */
struct frame lend_next(vd_conn *c, struct iovec *piece);
/* And that has been sent. */
void lend_sent(vd_conn *c);
/* The connection has ended: all that no thread sends just now are given back. */
void lend_give_back(vd_conn *c);

#endif
