/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader does with frames: those with bulk, and what each header tells. All of it is under mu. */
#ifndef VD_NATIVE_BODY_H
#define VD_NATIVE_BODY_H

#include "native/native.h"

/* ---- peer.c ---- */

/* What each header tells. 0 or -EPROTO. */
int peer_took(vd_conn *c, uint32_t taken);
static inline int peer_taken(vd_conn *c, const struct frame *f)
{
	return f->taken == c->notes_spent ? 0 : peer_took(c, f->taken);
}

/* ---- body.c: frames with bulk ---- */

/* The header is in c->frame. 0, -EPROTO or -ENOMEM. */
int body_begin(vd_conn *c);
/* All of a put that voids no key, and whose bytes are there: in the place of the others. 0 or -EPROTO. */
#define BODY_SHORT 4096u /* copied under mu; more without it */
int body_short(vd_conn *c, const struct frame *f, const uint8_t *from);
/* Copies up to so many bytes of the body to their place, if it is still there. How many. Gives mu up
 * for a long copy. */
uint32_t body_land(vd_conn *c, const uint8_t *from, uint32_t len);
/* Where the rest may be received to, or NULL. If not, body_landed is to follow. */
uint8_t *body_target(vd_conn *c, uint32_t *room);
void body_landed(vd_conn *c, uint32_t len);
/* All of it is there. 0 or -EPROTO. */
int body_end(vd_conn *c);

#endif
