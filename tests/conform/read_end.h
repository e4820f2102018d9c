/* SPDX-License-Identifier: Apache-2.0 */
/* How bytes that were unread at an exec end for who reads them. */
#ifndef CONFORM_READ_END_H
#define CONFORM_READ_END_H

#include <sys/socket.h>
#include <sys/types.h>

#include "conform/cases.h"

/* As exit statuses, of readers and senders. */
enum { ALL_CAME = 0, IS_TOLD = 3, IS_WRONG = 4 };

static inline int read_end(int fd, uint64_t bytes)
{
	uint8_t buf[4096];
	uint64_t off = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof buf, 0)) > 0)
		for (ssize_t i = 0; i < n; i++)
			NEED(buf[i] == pattern(off++));
	if (n < 0)
		return IS_TOLD;
	return off == bytes ? ALL_CAME : IS_WRONG;
}

#endif
