/* SPDX-License-Identifier: Apache-2.0 */
/* Puts and gets by a device, past the stream: what the rest of the library has to say of them. */
#ifndef VD_NATIVE_REACH_H
#define VD_NATIVE_REACH_H

#include "native/native.h"

/* After a refusal, or a put in vain. Less in tests. */
extern int reach_again_ms;

/* The exporter's, under mu. The peer wants the key of x (NULL: that has ended); the reader's, gives mu
 * up meanwhile. */
void reach_open(vd_conn *c, struct vd_region *x, uint32_t id);
/* Nothing is written there any more by a device. */
void reach_close(struct vd_region *x);
void reach_close_all(vd_conn *c);
/* As the next of what is sent: the peer is told the key of the export with that id. False: that has ended. */
bool reach_told(vd_conn *c, uint32_t id);
/* Before UNEXPORT: no key is told after that. And behind it: gives mu up until the peer's device has done with
 * what is under way, or it is too late; then as reach_close. */
void reach_withdraw(vd_conn *c, struct vd_region *x);
void reach_recall(vd_conn *c, struct vd_region *x);
/* The peer gives up the key with this number. */
void reach_void(struct vd_region *x, uint32_t number);

/* The importer's, under mu: the answer. 0 or -EPROTO. */
int reach_key(vd_conn *c, const struct frame *f, const uint8_t *payload);
/* So many are worth the device. */
bool reach_is_long(const vd_remote *r, size_t len);
/* Before a put of so many bytes that goes by frames, or by the device. */
void reach_prepare(const vd_remote *r, size_t len);
/* How many of the first bytes of a get the device has brought. The rest is asked for by frames. */
size_t reach_get(const vd_remote *r, uint64_t offset, void *dst, size_t len);
/* Under wr: by the device. True: they are there. Else they go by frames, the first of which voids the key with
 * the number *voids, unless that is 0. */
bool reach_put(const vd_remote *r, uint64_t offset, const void *src, size_t len,
	       uint32_t *voids);
/* Its source is lent: the device goes on with it, and lend_look says what has become of that. False: it is to
 * be queued (lend_queue), and nothing was waited for in vain. More than DOOR_MOVE_BYTES are not for it. */
bool reach_lend(const vd_remote *r, const struct frame *f, const void *src, size_t len);
/* Under mu: the device has done with one to that export, by the key of that number. The key that has to be void
 * before the bytes are sent by frames; or 0. */
uint32_t reach_done(vd_conn *c, uint32_t id, uint32_t key_number, bool is_there);

#endif
