/* SPDX-License-Identifier: Apache-2.0 */
/* The segment of one connection and its two doorbells: made by the acceptor, checked by
 * the connector. */
#ifndef VD_MEET_SEGMENT_H
#define VD_MEET_SEGMENT_H

#include "meet/meet.h"

/* Order of the descriptors in the hello. */
enum { SEGMENT_MEMFD, SEGMENT_ACCEPTOR_BELL, SEGMENT_CONNECTOR_BELL, SEGMENT_FDS };

/* The reason that goes with a failed system call. */
enum vd_reason segment_reason(int err);
/* 1, or -enum vd_reason with nothing left behind. */
int segment_create(struct meet_segment *out);
/*
 * Checks descriptors from a peer that is not trusted, and maps the memory. They become
 * *out's, or are closed. 1, or -enum vd_reason.
 */
int segment_take(int fds[SEGMENT_FDS], struct meet_segment *out);

#endif
