/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that observe connections share with each other. */
#ifndef VD_TOOL_OBSERVE_PARTS_H
#define VD_TOOL_OBSERVE_PARTS_H

#include "tool/observe/observe.h"

/* A descriptor that is a socket, of any process. */
struct observe_holder {
	uint64_t inode;
	uint32_t process; /* index */
	int fd;
};

/* A TCP socket as the kernel lists it. */
struct observe_socket {
	uint64_t inode, cookie, netns;
	struct observe_end local, peer;
	uint64_t bytes_acked, bytes_received;
	uint32_t segments_out, segments_in; /* with data */
	uint32_t unsent;		    /* in the send queue, acknowledged or not */
	uint8_t state;
	bool layered; /* MPTCP or kernel TLS is above it; root alone is told */
};

struct observe_list {
	void *items;
	size_t count, room, item_bytes;
};

/* A new item, zeroed; NULL without memory. */
void *observe_add(struct observe_list *list);

/* Fills both lists from /proc; counts into hidden. 0 or -errno. */
int observe_scan(struct observe_list *processes, struct observe_list *holders,
		 size_t *hidden);
/* Adds the TCP sockets of the network namespace of pid (0: our own). 0 or -errno. */
int observe_sockets(struct observe_list *sockets, pid_t pid, uint64_t netns);

#endif
