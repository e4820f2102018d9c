/* SPDX-License-Identifier: Apache-2.0 */
/* The process's line to viaductd: made when it is first needed, and again when it has ended. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sections.h"
#include "daemon_client/local.h"
#include "remote/parts.h"

/* From one try, or look, to the next. */
#define RETRY_MS 1000

static const char *const path = "/run/viaduct/relay.sock";
static int line = -1;
static bool is_there;
static bool was_lost; /* since it was last asked */
static uint64_t looked_ms, tried_ms;

bool relay_is_there(void)
{
	uint64_t now = clock_coarse_ms();

	if (looked_ms == 0 || now - looked_ms >= RETRY_MS) {
		looked_ms = now;
		is_there = kernel_call4(SYS_access, (long)path, R_OK | W_OK, 0, 0) == 0;
	}
	return is_there;
}

static int open_line(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	uint64_t now = clock_coarse_ms();
	int fd, r;

	if (tried_ms != 0 && now - tried_ms < RETRY_MS)
		return -EAGAIN;
	tried_ms = now;
	fd = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	strcpy(name.sun_path, path);
	r = kernel_connect(fd, (struct sockaddr *)&name, sizeof(name));
	if (r < 0) {
		log_debug("viaductd at %s: %s", path, strerror(-r));
		kernel_close(fd);
		return r;
	}
	line = fds_adopt(fd);
	return line < 0 ? line : 0;
}

static void lose_line(void)
{
	log_debug("viaductd has ended the connection");
	fds_close(line);
	line = -1;
	was_lost = true;
}

int relay_say(struct local_message *m, size_t hello_bytes)
{
	size_t bytes = LOCAL_HEAD_BYTES + hello_bytes;
	long n;
	int r = line < 0 ? open_line() : 0;

	if (r < 0)
		return r;
	m->version = LOCAL_PROTOCOL;
	n = kernel_call6(SYS_sendto, line, (long)m, (long)bytes,
			 MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	if (n == (long)bytes)
		return 0;
	if (n == -EAGAIN)
		return -EAGAIN;
	lose_line();
	return -EPIPE;
}

int relay_hear(struct local_message *m, size_t *hello_bytes)
{
	if (line >= 0) {
		long n = kernel_call6(SYS_recvfrom, line, (long)m, sizeof(*m),
				      MSG_DONTWAIT | MSG_TRUNC, 0, 0);

		if (n > 0 && (size_t)n <= sizeof(*m) &&
		    local_check(m, (size_t)n, false) == LOCAL_OK) {
			*hello_bytes = (size_t)n - LOCAL_HEAD_BYTES;
			return 1;
		}
		if (n == -EAGAIN || n == -EINTR)
			return 0;
		if (n > 0)
			log_error("viaductd speaks another protocol than this library");
		lose_line();
	}
	if (!was_lost)
		return 0;
	was_lost = false;
	return -EPIPE;
}

FORK_CODE void relay_forked(void)
{
	if (line < 0 && !was_lost && tried_ms == 0)
		return;
	/* The daemon knows the parent by it. */
	if (line >= 0)
		fds_close(line);
	line = -1;
	was_lost = false;
	tried_ms = 0;
}
