/* SPDX-License-Identifier: Apache-2.0 */
/* The process's line to viaductd: made when it is first needed, and again when it has ended. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/sections.h"
#include "daemon_client/local.h"
#include "remote/owed.h"
#include "remote/parts.h"
#include "remote/presence.h"

static const char *const path = "/run/viaduct/relay.sock";
static int line = -1;
static struct owed owed;
static struct presence presence;
static bool was_lost; /* since it was last asked */
static uint64_t tried_ms;

bool relay_is_there(void)
{
	return presence_look(&presence, path);
}

static int open_line(void)
{
	int fd = presence_line(path, &tried_ms);

	if (fd < 0)
		return fd;
	line = fd;
	return 0;
}

static void lose_line(void)
{
	log_debug("viaductd has ended the connection");
	fds_close(line);
	line = -1;
	owed.count = 0;
	was_lost = true;
}

int relay_say(struct local_message *m, size_t hello_bytes)
{
	size_t bytes = LOCAL_HEAD_BYTES + hello_bytes;
	long n;
	int r = line < 0 ? open_line() : 0;

	if (r == 0)
		r = owed_say(&owed, line);
	if (r < 0 && r != -EAGAIN && line >= 0)
		lose_line();
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

bool relay_withdraw(const struct name_end *local, const struct name_end *peer)
{
	if (line >= 0 && owed_withdraw(&owed, line, local, peer) < 0)
		lose_line();
	return owed.count > 0;
}

void relay_is_idle(void)
{
	if (line >= 0)
		lose_line();
}

static void say_owed(void)
{
	int r = line >= 0 && owed.count > 0 ? owed_say(&owed, line) : 0;

	if (r < 0 && r != -EAGAIN)
		lose_line();
}

int relay_hear(struct local_message *m, size_t *hello_bytes)
{
	say_owed();
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
	owed.count = 0;
	was_lost = false;
	tried_ms = 0;
}
