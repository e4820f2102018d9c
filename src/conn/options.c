/* SPDX-License-Identifier: Apache-2.0 */
/* Socket options that make a connection the kernel's, and that nobody has told us of. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/real.h"
#include "conn/conn.h"

/*
 * An accepted connection has its listener's options, and a socket may come by exec or in a message,
 * with options that another image has set. Those of a socket that this process has made, and of
 * what is accepted by it, are known: until one of these is set, or the socket is given to
 * somebody else. All others are asked of the kernel, once, when the upgrade has been earned.
 */

static const struct {
	int level, name;
	int plain; /* what it is unless it was set */
	enum vd_reason reason;
} asked[] = {
	{SOL_SOCKET, SO_TIMESTAMP, 0, VD_REASON_OPTION},
	{SOL_SOCKET, SO_TIMESTAMPNS, 0, VD_REASON_OPTION},
	{SOL_SOCKET, SO_TIMESTAMPING, 0, VD_REASON_OPTION},
	{SOL_SOCKET, SO_TIMESTAMP_NEW, 0, VD_REASON_OPTION},
	{SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0, VD_REASON_OPTION},
	{SOL_SOCKET, SO_PEEK_OFF, -1, VD_REASON_OPTION},
	{SOL_SOCKET, SO_RCVLOWAT, 1, VD_REASON_OPTION},
	{SOL_SOCKET, SO_MAX_PACING_RATE, -1, VD_REASON_OPTION},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, 0, VD_REASON_OPTION},
	{IPPROTO_TCP, TCP_REPAIR, 0, VD_REASON_PROTOCOL},
};

/* A filter is told as the number of its instructions, an eBPF program by an error. */
static bool has_filter(int fd)
{
	socklen_t count = 0;

	return REAL(getsockopt)(fd, SOL_SOCKET, SO_GET_FILTER, NULL, &count) == 0
		       ? count > 0
		       : errno == EACCES;
}

void sock_learn_unsent(struct sock *s, int fd)
{
	uint32_t most = 0;
	socklen_t len = sizeof(most);

	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, &len) == 0)
		store_relaxed(&s->slot->tx_unsent, most);
}

static enum vd_reason ask(int fd)
{
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		int value = asked[i].plain;
		socklen_t len = sizeof(value);

		/* An older kernel does not know all of them. */
		if (REAL(getsockopt)(fd, asked[i].level, asked[i].name, &value, &len) !=
			    0 ||
		    value == asked[i].plain)
			continue;
		log_debug("fd %d: option %d of level %d is the kernel's", fd,
			  asked[i].name, asked[i].level);
		return asked[i].reason;
	}
	return has_filter(fd) ? VD_REASON_OPTION : VD_REASON_NONE;
}

enum vd_reason options_reason(struct sock *s, int fd)
{
	int saved = errno;
	enum vd_reason reason;
	uint32_t known = load_relaxed(&s->slot->options);

	/* Where another process has left the table, it may have set some since. */
	if (known == OPTIONS_PLAIN && !atomic_load(&s->slot->left))
		return VD_REASON_NONE;
	reason = known == OPTIONS_KERNEL ? VD_REASON_OPTION : ask(fd);
	if (reason == VD_REASON_NONE)
		sock_learn_unsent(s, fd);
	errno = saved;
	return reason;
}
