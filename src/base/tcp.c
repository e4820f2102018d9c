/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about one TCP socket: how far its streams are, and who it is. */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "base/kernel.h"
#include "base/real.h"
#include "base/tcp.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* The counts repeat at once unless the peer is sending or acknowledging just now. */
#define TCP_SANDWICH_TRIES 1000

/* <netinet/tcp.h> has these too, but with an old struct tcp_info beside them. */
enum {
	STATE_ESTABLISHED = 1,
	STATE_FIN_WAIT1 = 4,
	STATE_FIN_WAIT2 = 5,
	STATE_CLOSE = 7,
	STATE_CLOSE_WAIT = 8,
	STATE_LAST_ACK = 9,
	STATE_CLOSING = 11,
};

#define IN_STATE(state, set) ((1u << (state)) & (set))

/* A FIN takes a number in its stream. These are the states in which the counts hold it.
 */
#define OUR_FIN_QUEUED                                                                   \
	(1u << STATE_FIN_WAIT1 | 1u << STATE_FIN_WAIT2 | 1u << STATE_CLOSING |           \
	 1u << STATE_LAST_ACK | 1u << STATE_CLOSE)
#define OUR_FIN_ACKED (1u << STATE_FIN_WAIT2 | 1u << STATE_CLOSE)
#define PEER_FIN_IN                                                                      \
	(1u << STATE_CLOSE_WAIT | 1u << STATE_LAST_ACK | 1u << STATE_CLOSING |           \
	 1u << STATE_CLOSE)
#define HAS_COUNTS                                                                       \
	(1u << STATE_ESTABLISHED | OUR_FIN_QUEUED | OUR_FIN_ACKED | PEER_FIN_IN)

static int tcp_info_get(int fd, struct tcp_info *info)
{
	socklen_t len = sizeof(*info);

	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, info, &len) != 0)
		return -errno;
	if (len < offsetof(struct tcp_info, tcpi_bytes_received) +
			  sizeof(info->tcpi_bytes_received))
		return -ENOTSUP;
	return 0;
}

/*
 * Whether the rules about FINs can be trusted. A socket that was reset is in
 * CLOSE as well, with or without FINs, and then nobody can tell.
 */
static int tcp_countable(int fd, const struct tcp_info *info)
{
	struct pollfd p = {.fd = fd};

	if (!IN_STATE(info->tcpi_state, HAS_COUNTS))
		return -ENOTCONN;
	if (info->tcpi_state != STATE_CLOSE)
		return 0;
	int n = kernel_poll(&p, 1, 0);
	if (n < 0)
		return n;
	return p.revents & POLLERR ? -ENOTCONN : 0;
}

/* Reads the counts around the length of a queue until they belong together. */
static int tcp_sandwich(int fd, unsigned long request, struct tcp_info *info, int *queue)
{
	struct tcp_info before;
	int err = tcp_info_get(fd, info);

	for (int i = 0; !err && i < TCP_SANDWICH_TRIES; i++) {
		before = *info;
		if (REAL(ioctl)(fd, request, queue) != 0)
			return -errno;
		err = tcp_info_get(fd, info);
		if (!err && before.tcpi_bytes_acked == info->tcpi_bytes_acked &&
		    before.tcpi_bytes_received == info->tcpi_bytes_received &&
		    before.tcpi_state == info->tcpi_state)
			return tcp_countable(fd, info);
	}
	return err ? err : -EAGAIN;
}

/* A count minus the SYN and FIN numbers in it; a socket that never was connected has
 * fewer. */
static int tcp_minus(uint64_t count, uint64_t extra, uint64_t *bytes)
{
	if (count < extra)
		return -ENOTCONN;
	*bytes = count - extra;
	return 0;
}

static int tcp_role_known(enum tcp_role role)
{
	return role == TCP_ROLE_CONNECTED || role == TCP_ROLE_ACCEPTED ? 0 : -EINVAL;
}

static int written_of(const struct tcp_info *info, int queue, enum tcp_role role,
		      uint64_t *bytes)
{
	return tcp_minus(info->tcpi_bytes_acked + (uint64_t)queue,
			 (role == TCP_ROLE_CONNECTED) +
				 !!IN_STATE(info->tcpi_state, OUR_FIN_QUEUED),
			 bytes);
}

static int acked_of(const struct tcp_info *info, enum tcp_role role, uint64_t *bytes)
{
	return tcp_minus(info->tcpi_bytes_acked,
			 (role == TCP_ROLE_CONNECTED) +
				 !!IN_STATE(info->tcpi_state, OUR_FIN_ACKED),
			 bytes);
}

static int received_of(const struct tcp_info *info, uint64_t *bytes)
{
	return tcp_minus(info->tcpi_bytes_received,
			 !!IN_STATE(info->tcpi_state, PEER_FIN_IN), bytes);
}

int tcp_written(int fd, enum tcp_role role, uint64_t *bytes)
{
	struct tcp_info info;
	int queue, err = tcp_role_known(role);

	if (!err)
		err = tcp_sandwich(fd, SIOCOUTQ, &info, &queue);
	return err ? err : written_of(&info, queue, role, bytes);
}

int tcp_counts(int fd, enum tcp_role role, struct tcp_counts *out)
{
	struct tcp_counts c;
	struct tcp_info info;
	int queue, err = tcp_role_known(role);

	if (!err)
		err = tcp_sandwich(fd, SIOCOUTQ, &info, &queue);
	if (!err)
		err = acked_of(&info, role, &c.acked);
	if (!err)
		err = written_of(&info, queue, role, &c.written);
	if (!err)
		err = received_of(&info, &c.received);
	if (!err)
		*out = c;
	return err;
}

int tcp_consumed(int fd, uint64_t *bytes)
{
	struct tcp_info info;
	int queue, err = tcp_sandwich(fd, SIOCINQ, &info, &queue);

	if (err)
		return err;
	return tcp_minus(info.tcpi_bytes_received,
			 (uint64_t)queue + !!IN_STATE(info.tcpi_state, PEER_FIN_IN),
			 bytes);
}

int tcp_moved(int fd, uint64_t *written, uint64_t *consumed)
{
	struct tcp_info info;
	int queue, err;

	if (REAL(ioctl)(fd, SIOCINQ, &queue) < 0)
		return -errno;
	err = tcp_info_get(fd, &info);
	if (!err)
		err = received_of(&info, consumed);
	if (err)
		return err;
	*consumed -= (uint64_t)queue < *consumed ? (uint64_t)queue : *consumed;
	*written =
		info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
	return 0;
}

int tcp_after_reset(int fd, uint64_t *received, uint32_t *queued)
{
	struct tcp_info info;
	int queue, err = tcp_info_get(fd, &info);

	if (err)
		return err;
	if (REAL(ioctl)(fd, SIOCINQ, &queue) < 0)
		return -errno;
	*received = info.tcpi_bytes_received;
	*queued = (uint32_t)queue;
	return 0;
}

int tcp_received(int fd, uint64_t *bytes)
{
	struct tcp_info info;
	int err = tcp_info_get(fd, &info);

	if (!err)
		err = tcp_countable(fd, &info);
	return err ? err : received_of(&info, bytes);
}

int tcp_state(int fd, int *state)
{
	struct tcp_info info;
	int err = tcp_info_get(fd, &info);

	if (!err)
		*state = info.tcpi_state;
	return err;
}

static int tcp_cookie_option(int fd, int option, uint64_t *cookie)
{
	uint64_t value;
	socklen_t len = sizeof(value);

	if (REAL(getsockopt)(fd, SOL_SOCKET, option, &value, &len) != 0)
		return -errno;
	*cookie = value;
	return 0;
}

int tcp_cookie(int fd, uint64_t *cookie)
{
	return tcp_cookie_option(fd, SO_COOKIE, cookie);
}

int tcp_netns_cookie(int fd, uint64_t *cookie)
{
	return tcp_cookie_option(fd, SO_NETNS_COOKIE, cookie);
}

/* Less than a segment, and not because something is to be acknowledged first. */
static bool is_held_back(int fd, int unsent, bool corked)
{
	int queued = 0, segment = 0;
	socklen_t len = sizeof(segment);

	return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &len) == 0 &&
	       unsent < segment &&
	       (corked || (REAL(ioctl)(fd, SIOCOUTQ, &queued) == 0 && queued == unsent));
}

int tcp_push(int fd, bool corked)
{
	int unsent = 0;

	if (REAL(ioctl)(fd, SIOCOUTQNSD, &unsent) != 0)
		return -errno;
	if (unsent == 0)
		return 0;
	if (is_held_back(fd, unsent, corked))
		return -EAGAIN;
	return tcp_push_held(fd);
}

int tcp_push_held(int fd)
{
	int old, on = 1, off = 0;
	socklen_t len = sizeof(old);

	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &old, &len) != 0)
		return -errno;
	/* Setting it, even once more, sends what is pending, cork or not. What the window
	 * holds back now keeps the kernel's push mark, and follows by itself. */
	if (REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		return -errno;
	if (!old &&
	    REAL(setsockopt)(fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off)) != 0)
		return -errno;
	return 0;
}

void tcp_ack_at_once(int fd)
{
	int on = 1;

	REAL(setsockopt)(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
}
