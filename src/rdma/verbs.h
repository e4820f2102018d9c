/* SPDX-License-Identifier: Apache-2.0 */
/* Links over RDMA devices: libibverbs, loaded when it is first asked for. */
#ifndef VD_RDMA_VERBS_H
#define VD_RDMA_VERBS_H

#include <sys/socket.h>

#include "rdma/link.h"

/*
 * Opens the device that has this address (of a TCP connection's own end): on Ethernet by a GID
 * of RoCE v2, on InfiniBand by the interface that has it. -ENODEV: no libibverbs, no device,
 * or none of this address. *why is a sentence for every failure. One at a time in a process.
 * The device may allow fewer links than the limits say. Its descriptors are close-on-exec.
 */
int link_verbs_open(const struct sockaddr *local, const struct link_limits *limits,
		    struct link_context **out, const char **why);
/* For people: "rxe0, port 1, GID 3", of such a context. Always leaves text. */
void link_verbs_name(const struct link_context *c, char *text, size_t size);

#endif
