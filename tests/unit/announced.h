/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of connections: a listener that is announced. */
#ifndef VD_TESTS_UNIT_ANNOUNCED_H
#define VD_TESTS_UNIT_ANNOUNCED_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/rendezvous.h"
#include "unit/test.h"

/* Another process may still have the name of a port that it listened on before. */
#define ANNOUNCED_TRIES 100

/* On the loopback address; *announced is for meet_unannounce, and *at where it listens. */
static inline int listen_announced(int *announced, struct sockaddr_in *at)
{
	int listener = -1;

	*announced = -1;
	for (int i = 0; i < ANNOUNCED_TRIES && *announced < 0; i++) {
		socklen_t len = sizeof(*at);

		*at = (struct sockaddr_in){.sin_family = AF_INET,
					   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		if (listener >= 0)
			close(listener);
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		REQUIRE(bind(listener, (struct sockaddr *)at, len) == 0);
		REQUIRE(listen(listener, 4) == 0);
		REQUIRE(getsockname(listener, (struct sockaddr *)at, &len) == 0);
		*announced = meet_announce(listener);
	}
	REQUIRE(*announced >= 0);
	return listener;
}

#endif
