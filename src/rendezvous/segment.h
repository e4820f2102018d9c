/* SPDX-License-Identifier: Apache-2.0 */
/* The segment of one connection and its doorbells: made by the acceptor, checked by the
 * connector. */
#ifndef VD_RENDEZVOUS_SEGMENT_H
#define VD_RENDEZVOUS_SEGMENT_H

#include <stdbool.h>

#include "rendezvous/rendezvous.h"

/* Order of the descriptors in the hello. Between users it is the memory alone. */
enum { SEGMENT_MEMFD, SEGMENT_ACCEPTOR_BELL, SEGMENT_CONNECTOR_BELL, SEGMENT_FDS };

/* The reason that goes with a failed system call. */
enum vd_reason segment_reason(int err);
/* far: the other end belongs to another user. netns: where the two ends are. place: as in
 * meet_offer. 1, or -enum vd_reason with nothing left behind. */
int segment_create(bool far, uint64_t netns, void *place, struct meet_segment *out);
/*
 * Checks descriptors from a peer that is not trusted, and maps the memory. They become
 * *out's, or are closed; -1 for those that do not come. far_port: of the peer's far bell,
 * or 0 when there is none. place: as in meet_offer. 1, or -enum vd_reason.
 */
int segment_take(int fds[SEGMENT_FDS], uint32_t far_port, uint64_t netns, void *place,
		 struct meet_segment *out);

/* The same of memory alone, from a peer in another network namespace, and with the far bell that is to
 * be used. That one is the caller's still where it fails. */
int segment_take_near(int memfd, int far_bell, void *place, struct meet_segment *out);

/* Memory laid out in the same way, without a peer and without bells; for exec_carry.c in the layer
 * above. 1, or -enum vd_reason. */
int segment_alone(struct meet_segment *out);
/* The same with a doorbell of its own end, mapped at `place` when that is given, as in rendezvous.h; the
 * other end is played by src/remote. */
int segment_with_bell(void *place, struct meet_segment *out);
/*
 * Checks and maps what segment_alone in another image of this process made; *out gets a bell
 * of its own, and no descriptor of the memory. memfd stays open. 1, or -enum vd_reason.
 */
int segment_alone_take(int memfd, struct meet_segment *out);

#endif
