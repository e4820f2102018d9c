/* SPDX-License-Identifier: Apache-2.0 */
/* A connection whose other end is on this host, in another network namespace: how they meet. */
#ifndef VD_REMOTE_NEAR_H
#define VD_REMOTE_NEAR_H

#include <stdbool.h>

#include "remote/remote.h"
#include "rendezvous/rendezvous.h"

/*
 * docs/near.md has the protocol. A handle is one of remote.h's until both have met; then the connection
 * is as any on one host. None of these waits, sets errno or is a point of cancellation.
 */

/* Of viaductd. Tests change it. */
extern const char *near_socket;
/* There is a viaductd for it. Costs next to nothing. */
bool near_is_here(void);
/* 1: *out is a meeting; or -enum vd_reason. */
int near_begin(const struct name_end *local, const struct name_end *peer,
	       enum across_role role, struct peer **out);
/* The handle is of such a meeting. */
bool near_has(const struct peer *a);
/* 1: met, *seg is this end's memory, at `place`; 2: offered; 0: not yet; -enum vd_reason. */
int near_step(struct peer *a, int fd, void *place, struct meet_segment *seg);
/* The handle is no more. */
void near_end(struct peer *a);
/* In a forked child, which has no line and no meetings: before its handles are given back. */
void near_forked(void);

#endif
