/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a socket of viaductd is there, without asking the kernel each time; and a line to it. */
#include "remote/presence.h"

#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/real.h"
#include "remote/parts.h"

bool presence_look(struct presence *p, const char *path)
{
	/* Acquire: whoever sees the time of a look sees its answer, or a later one. */
	uint64_t now = clock_coarse_ms(), looked = load_acquire(&p->looked_ms), there;

	if (looked == 0 || now - looked >= RETRY_MS) {
		if (kernel_call4(SYS_access, (long)path, R_OK | W_OK, 0, 0) == 0)
			store_relaxed(&p->there_ms, now);
		store_release(&p->looked_ms, now);
	}
	/* Another thread may have seen it since `now`; and in a time namespace the clock may be behind. */
	there = load_relaxed(&p->there_ms);
	return there != 0 && now <= there + GONE_MS && there <= now + GONE_MS;
}

bool presence_retry(uint64_t *tried_ms)
{
	uint64_t now = clock_coarse_ms();

	if (*tried_ms != 0 && now - *tried_ms < RETRY_MS)
		return false;
	*tried_ms = now;
	return true;
}

int presence_connect(int fd, const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int r;

	strcpy(name.sun_path, path);
	r = kernel_connect(fd, (struct sockaddr *)&name, sizeof(name));
	if (r < 0)
		log_debug("viaductd at %s: %s", path, strerror(-r));
	return r;
}

int presence_line(const char *path, uint64_t *tried_ms)
{
	int fd, r;

	if (!presence_retry(tried_ms))
		return -EAGAIN;
	fd = LOW_MADE(
		fds_adopt,
		kernel_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return fd;
	r = presence_connect(fd, path);
	if (r < 0) {
		fds_close(fd);
		return r;
	}
	return fd;
}
