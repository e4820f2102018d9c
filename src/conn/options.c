/* SPDX-License-Identifier: Apache-2.0 */
/* Socket options that make a connection the kernel's, and what is learnt of others: buffers, timeouts. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>

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
	{IPPROTO_TCP, TCP_REPAIR, 0, VD_REASON_PROTOCOL},
};

#ifndef TCP_AO_ADD_KEY /* newer than some headers that Viaduct is built with */
#define TCP_AO_ADD_KEY 38
#endif
#ifndef SO_TIMESTAMPING_NEW
#define SO_TIMESTAMPING_NEW 65
#endif

const char *option_name(int level, int name)
{
#define NAMED(level, name)                                                               \
	{                                                                                \
		level, name, #name                                                       \
	}
	static const struct {
		int level, name;
		const char *text;
	} named[] = {
		NAMED(SOL_SOCKET, SO_TIMESTAMP),
		NAMED(SOL_SOCKET, SO_TIMESTAMPNS),
		NAMED(SOL_SOCKET, SO_TIMESTAMPING),
		NAMED(SOL_SOCKET, SO_TIMESTAMP_NEW),
		NAMED(SOL_SOCKET, SO_TIMESTAMPNS_NEW),
		NAMED(SOL_SOCKET, SO_TIMESTAMPING_NEW),
		NAMED(SOL_SOCKET, SO_PEEK_OFF),
		NAMED(SOL_SOCKET, SO_RCVLOWAT),
		NAMED(SOL_SOCKET, SO_MAX_PACING_RATE),
		NAMED(SOL_SOCKET, SO_ATTACH_FILTER),
		NAMED(SOL_SOCKET, SO_ATTACH_BPF),
		NAMED(IPPROTO_TCP, TCP_REPAIR),
		NAMED(IPPROTO_TCP, TCP_ULP),
		NAMED(IPPROTO_TCP, TCP_MD5SIG),
		NAMED(IPPROTO_TCP, TCP_MD5SIG_EXT),
		NAMED(IPPROTO_TCP, TCP_AO_ADD_KEY),
		NAMED(IPPROTO_TCP, TCP_USER_TIMEOUT),
	};
#undef NAMED

	for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
		if (named[i].level == level && named[i].name == name)
			return named[i].text;
	return "an option";
}

/* What MPTCP's listener accepts from a plain peer has 0 there, which is as 1. */
static bool is_least(int name, int value)
{
	return name == SO_RCVLOWAT && value == 0;
}

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
		    value == asked[i].plain || is_least(asked[i].name, value))
			continue;
		log_debug("fd %d: %s is the kernel's", fd,
			  option_name(asked[i].level, asked[i].name));
		return asked[i].reason;
	}
	if (!has_filter(fd))
		return VD_REASON_NONE;
	log_debug("fd %d: %s is the kernel's", fd,
		  option_name(SOL_SOCKET, SO_ATTACH_FILTER));
	return VD_REASON_OPTION;
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

static bool option_is_set(int fd, int level, int name)
{
	struct timeval value = {0};
	socklen_t len = sizeof(value);
	return REAL(getsockopt)(fd, level, name, &value, &len) == 0 &&
	       (value.tv_sec != 0 || value.tv_usec != 0);
}

static bool gives_up(int fd)
{
	int ms = 0;
	socklen_t len = sizeof(ms);
	return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &len) == 0 &&
	       ms > 0;
}

void sock_learn_buffers(struct sock *s, int fd)
{
	int locked = 0, send = 0, receive = 0;
	socklen_t len = sizeof(int);
	if (phase_of(s->slot) < SLOT_ATTACHING || !s->in)
		return;
	/* The kernel's own choice bounds nothing: it grows. Kernels before 5.14 do not tell. */
	REAL(getsockopt)(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, &len);
	if (locked & SOCK_SNDBUF_LOCK)
		REAL(getsockopt)(fd, SOL_SOCKET, SO_SNDBUF, &send, &len);
	if (locked & SOCK_RCVBUF_LOCK)
		REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVBUF, &receive, &len);
	/* How long the window is closed TCP measures: what a full ring has no room for goes there. */
	if (gives_up(fd))
		send = INT_MAX;
	store_relaxed(&s->slot->tx_bound, (uint32_t)send);
	/* Relaxed, both: a bound that is seen late is as good as one set late. */
	store_relaxed(&s->in->rx_bound, (uint32_t)receive);
}

void options_learn(struct sock *s, int fd)
{
	int lowat = 1;
	socklen_t len = sizeof(lowat);
	if (atomic_load(&s->slot->left))
		store_relaxed(&s->slot->nonblock,
			      !!(REAL(fcntl64)(fd, F_GETFL) & O_NONBLOCK));
	if (option_is_set(fd, IPPROTO_TCP, TCP_CORK))
		atomic_fetch_or(&s->slot->tx_special, TX_CORKED);
	if (option_is_set(fd, IPPROTO_TCP, TCP_INQ))
		atomic_store(&s->slot->inq, 1);
	sock_learn_buffers(s, fd);
	/* Nobody on this host could answer for one on another. */
	if (peer_is_far(s) && gives_up(fd)) {
		log_debug("fd %d: TCP_USER_TIMEOUT is the kernel's", fd);
		sock_refuse(s, fd, VD_REASON_OPTION);
	}
	if (!timeout_learn(s, fd)) {
		log_debug("fd %d: its listener had a negative timeout some time", fd);
		sock_refuse(s, fd, VD_REASON_OPTION);
	}
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, &len) == 0 &&
	    lowat > 1) {
		log_debug("fd %d: SO_RCVLOWAT of %d is the kernel's", fd, lowat);
		sock_refuse(s, fd, VD_REASON_OPTION);
	}
}

/* The kernel tells who waits for room that there is some: it does not ask whether there was before. */
static void tell_room(struct sock *s)
{
	if (sock_level_quick(s, EPOLLOUT))
		fetch_add_relaxed(&s->slot->tx_full, 1);
}

void sock_buffers_set(struct sock *s, int fd, bool sends)
{
	if (!sock_is_direct(s))
		return;
	if (sends)
		tell_room(s);
	if (room_needs_tcp(s))
		sock_bounce(s, fd);
	sock_ring_self(s);
	bell_ring_peer(s); /* for whom the window has become larger */
}
