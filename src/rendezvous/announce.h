/* SPDX-License-Identifier: Apache-2.0 */
/* The hint that a port of this host is served under Viaduct. */
#ifndef VD_RENDEZVOUS_ANNOUNCE_H
#define VD_RENDEZVOUS_ANNOUNCE_H

#include <stdint.h>

/* Asks for a port (network order). 1 announced, 0 not, -errno as kept_take. */
int announce_probe(uint16_t port, uint64_t netns);

#endif
