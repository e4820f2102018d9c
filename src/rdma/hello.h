/* SPDX-License-Identifier: Apache-2.0 */
/* What one end of a link tells the other to be reached: as values, and as bytes. */
#ifndef VD_RDMA_HELLO_H
#define VD_RDMA_HELLO_H

#include <stddef.h>
#include <stdint.h>

enum link_fabric {
	FABRIC_ROCE2 = 1,
	FABRIC_INFINIBAND = 2,
	FABRIC_FAKE = 3,
};

struct link_address {
	uint8_t fabric;
	uint8_t mtu;  /* as verbs number them: 1 is 256 bytes, 5 is 4096 */
	uint16_t lid; /* of InfiniBand only */
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint64_t window,
		window_bytes; /* address of the window, in the process's own terms */
	uint32_t key;	      /* to write there */
	uint32_t credits;     /* immediates that may be under way to it */
	uint64_t nonce;	      /* of this link; not 0 */
	uint64_t echo;	      /* the nonce that it answers; 0 when it was first */
};

/* Writes LINK_HELLO_BYTES. */
void link_hello_put(uint8_t *to, const struct link_address *a);
/* 0; -EPROTO or -EPROTONOSUPPORT, with a sentence in *why. */
int link_hello_get(const uint8_t *from, size_t bytes, struct link_address *out,
		   const char **why);

#endif
