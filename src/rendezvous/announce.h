/* SPDX-License-Identifier: Apache-2.0 */
/* The hint that a port of this host is served under Viaduct. */
#ifndef VD_RENDEZVOUS_ANNOUNCE_H
#define VD_RENDEZVOUS_ANNOUNCE_H

#include <stdint.h>

/* Asks for a port (network order). 1 announced, 0 not, -errno as kept_take. */
int announce_probe(uint16_t port, uint64_t netns);

/* From now on connectors that find nobody at a port are told that connections to it may be
 * rewritten, and that somebody here knows how. */
void announce_rewritten(uint16_t port, uint64_t netns);
/* Asks for that, as above. */
int announce_probe_rewritten(uint16_t port, uint64_t netns);
/* The same for either of the two. */
int announce_probe_either(uint16_t port, uint64_t netns);

#endif
