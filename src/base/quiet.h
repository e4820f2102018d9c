/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of Viaduct's own that must not send the program a signal. */
#ifndef VD_BASE_QUIET_H
#define VD_BASE_QUIET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the calling thread blocked, and what waited for it, before. */
struct quiet {
	uint64_t mask, pending;
};

/*
 * Between the two SIGPIPE and SIGXFSZ are held up, and what `result` (-errno) says that the
 * call has caused is taken away. Nothing else is to happen between. Never blocks, no errno.
 */
void quiet_begin(struct quiet *q);
void quiet_end(const struct quiet *q, long result);

/* write(2), quietly: the count, or -errno. */
ssize_t quiet_write(int fd, const void *buf, size_t len);
/* ftruncate(2), quietly: 0 or -errno. */
int quiet_truncate(int fd, off_t size);

#endif
