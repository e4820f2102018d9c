/* SPDX-License-Identifier: Apache-2.0 */
/* A service of a test listens at any port, and tells by a file at which; or at a place that it is given. */
#ifndef VD_TESTS_SUPPORT_LISTEN_H
#define VD_TESTS_SUPPORT_LISTEN_H

#include <netinet/in.h>
#include <stdbool.h>

/* A TCP socket that listens on the loopback. The program ends with status 2 where there is none. */
int listen_anywhere(unsigned short *port);
/* Writes the port's number into a file, which is there only once it has it. */
void listen_tell(const char *file, unsigned short port);
/* Both. */
int listen_told(const char *file);

/* Takes "ADDRESS:PORT", of IPv4. False: it is something else. */
bool listen_parse(const char *place, struct sockaddr_in *out);
/* As listen_anywhere, there. */
int listen_at(const struct sockaddr_in *place);

#endif
