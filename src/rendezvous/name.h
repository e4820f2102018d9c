/* SPDX-License-Identifier: Apache-2.0 */
/* The abstract names of AF_UNIX sockets at which two ends on one host meet. */
#ifndef VD_RENDEZVOUS_NAME_H
#define VD_RENDEZVOUS_NAME_H

#include <sys/socket.h>
#include <sys/un.h>

#include "base/endpoint.h"

/* Of the connector's listening socket. Returns the address's length. */
socklen_t name_address(const struct name_tuple *t, struct sockaddr_un *out);
/* Of the hint that somebody listens at `port` (network order). Returns the address's length. */
socklen_t name_port_address(uint16_t port, struct sockaddr_un *out);
/* The same, of the hint that connections to `port` are led elsewhere, and that somebody knows how. */
socklen_t name_rewritten_address(uint16_t port, struct sockaddr_un *out);

#endif
