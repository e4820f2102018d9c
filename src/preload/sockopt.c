/* SPDX-License-Identifier: Apache-2.0 */
/* Socket options and ioctl: what is tracked, what is answered, what needs kernel TCP. */
#include <asm/sockios.h>
#include <limits.h>
#include <linux/kcm.h>
#include <linux/nbd.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/lowat.h"
#include "conn/peer.h"
#include "conn/put_back.h"
#include "conn/timeout.h"
#include "preload/hook.h"
#include "preload/withheld.h"

/* Newer than some headers that Viaduct is built with. */
enum { OPT_TCP_AO_ADD_KEY = 38, OPT_SO_TIMESTAMPING_NEW = 65 };

static int option_int(const void *value, socklen_t len)
{
	int v = 1;

	if (len < sizeof(v) || crit_copy(&v, value, sizeof(v)) < 0)
		return 1;
	return v;
}

/* "Without bound", as an int or as a long. */
static bool option_is_ones(const void *value, socklen_t len)
{
	unsigned char bytes[sizeof(long)];
	size_t n = len >= sizeof(long) ? sizeof(long) : sizeof(int);

	if (len < sizeof(int) || crit_copy(bytes, value, n) < 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != 0xff)
			return false;
	return true;
}

/* An option that excludes an upgrade, and cannot be asked for. */
static bool option_is_a_key(int level, int name)
{
	return level == IPPROTO_TCP && (name == TCP_MD5SIG || name == TCP_MD5SIG_EXT ||
					name == OPT_TCP_AO_ADD_KEY);
}

static enum vd_reason socket_option(int name, const void *value, socklen_t len)
{
	switch (name) {
	case SO_ATTACH_FILTER:
	case SO_ATTACH_BPF:
		return VD_REASON_OPTION;
	case SO_TIMESTAMP:
	case SO_TIMESTAMPNS:
	case SO_TIMESTAMPING:
	case SO_TIMESTAMP_NEW:
	case SO_TIMESTAMPNS_NEW:
	case OPT_SO_TIMESTAMPING_NEW:
		return option_int(value, len) ? VD_REASON_OPTION : VD_REASON_NONE;
	case SO_RCVLOWAT: /* 0 and 1 mean the same; the ring knows no other */
		return option_int(value, len) > 1 || option_int(value, len) < 0
			       ? VD_REASON_OPTION
			       : VD_REASON_NONE;
	case SO_MAX_PACING_RATE: /* a ring has no pace */
		return option_is_ones(value, len) ? VD_REASON_NONE : VD_REASON_OPTION;
	case SO_PEEK_OFF:
		return option_int(value, len) >= 0 ? VD_REASON_OPTION : VD_REASON_NONE;
	default:
		return VD_REASON_NONE;
	}
}

/* Why a connection with this option must be the kernel's; NONE when it need not. */
static enum vd_reason option_reason(struct sock *s, int level, int name,
				    const void *value, socklen_t len)
{
	if (level == SOL_SOCKET)
		return socket_option(name, value, len);
	if (level != IPPROTO_TCP)
		return VD_REASON_NONE;
	switch (name) {
	case TCP_ULP:
	case TCP_REPAIR:
		return VD_REASON_PROTOCOL;
	case TCP_MD5SIG:
	case TCP_MD5SIG_EXT:
	case OPT_TCP_AO_ADD_KEY:
		return VD_REASON_OPTION;
	case TCP_USER_TIMEOUT: /* what another host leaves unanswered TCP alone knows */
		return peer_is_far(s) && option_int(value, len) > 0 ? VD_REASON_OPTION
								    : VD_REASON_NONE;
	default:
		return VD_REASON_NONE;
	}
}

/* By it the kernel counts bytes that are unread, or keeps them from the program: so these must be its own, if the peer
 * is in time. */
static bool option_counts_unread(int level, int name)
{
	return (level == SOL_SOCKET && (name == SO_RCVLOWAT || name == SO_PEEK_OFF)) ||
	       (level == IPPROTO_TCP && name == TCP_REPAIR);
}

/* What a socket that is not in the kernel must do about an option that was set. */
static void option_set(struct sock *s, int fd, int level, int name, const void *value,
		       socklen_t len)
{
	if (level == SOL_SOCKET &&
	    (name == SO_SNDBUF || name == SO_SNDBUFFORCE || name == SO_RCVBUF ||
	     name == SO_RCVBUFFORCE || name == SO_BUF_LOCK)) {
		int saved = errno;

		sock_learn_buffers(s, fd);
		sock_buffers_set(s, fd, name == SO_SNDBUF || name == SO_SNDBUFFORCE);
		errno = saved;
	}
	if (level == IPPROTO_TCP && name == TCP_USER_TIMEOUT) {
		int saved = errno;

		sock_learn_buffers(s, fd);
		sock_buffers_set(s, fd, false);
		errno = saved;
	}
	if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
		int saved = errno;

		lowat_set(s, fd);
		errno = saved;
	}
	if (level == IPPROTO_TCP && name == TCP_NOTSENT_LOWAT) {
		int saved = errno;

		sock_learn_unsent(s, fd);
		sock_buffers_set(s, fd, true);
		/* If it listens, what it accepts is to ask, too. */
		if (sock_options(s) == OPTIONS_PLAIN)
			sock_options_are(s, OPTIONS_UNKNOWN);
		errno = saved;
	}
	if (level == IPPROTO_TCP && name == TCP_INQ)
		store_relaxed(&s->slot->inq, option_int(value, len) != 0);
	if (level != IPPROTO_TCP || (name != TCP_CORK && name != TCP_NODELAY))
		return;
	bool on = option_int(value, len) != 0;
	if (name == TCP_CORK && on)
		atomic_fetch_or(&s->slot->tx_special, TX_CORKED);
	else if (name == TCP_CORK)
		atomic_fetch_and(&s->slot->tx_special, ~(uint32_t)TX_CORKED);
	/* Drawing the cork pushes, and so does TCP_NODELAY, also while corked. */
	if (on == (name == TCP_NODELAY)) {
		int saved = errno;

		sock_push(s);
		errno = saved;
	}
}

/* What is changed for a moment, and put back, may be so from a moment on that comes after the first look. */
static inline int set_amid(struct sock *s, int fd, int name, const void *value,
			   socklen_t len)
{
	bool begins = put_back_begins(s);
	int result = begins ? put_back_set(s, fd, name, value, len)
			    : REAL(setsockopt)(fd, IPPROTO_TCP, name, value, len);

	if (result == 0 && !begins && put_back_begins(s))
		result = put_back_set(s, fd, name, value, len);
	return result;
}

NEAR_CODE HOOK int setsockopt(int fd, int level, int name, const void *value,
			      socklen_t len)
{
	struct sock *s = fd_sock(fd);
	enum vd_reason reason;
	int result;

	if (!s)
		return REAL(setsockopt)(fd, level, name, value, len);
	/* Nearly every connection has this one set, and while it is TCP's nothing is to be done. */
	if (level == IPPROTO_TCP && name == TCP_NODELAY) {
		result = set_amid(s, fd, name, value, len);
		if (result == 0 && sock_is_direct(s))
			option_set(s, fd, level, name, value, len);
		return result;
	}
	if (level == SOL_SOCKET && timeout_is_name(name))
		return (int)ret_keeping(timeout_set(s, fd, name, value, len));
	reason = option_reason(s, level, name, value, len);
	/* For what the kernel refuses, the connection stays where it is. */
	if (reason != VD_REASON_NONE &&
	    crit_readable(value, len < sizeof(int) ? len : sizeof(int))) {
		log_debug("fd %d: %s is the kernel's", fd, option_name(level, name));
		/* A receive under way must find its mark raised when it goes on in the kernel, where it
		 * would take it for its own. That the kernel refuses a length, it says again. */
		if (level == SOL_SOCKET && name == SO_RCVLOWAT)
			REAL(setsockopt)(fd, level, name, value, len);
		if (option_counts_unread(level, name))
			hook_take_down_unread(s, fd, reason);
		else
			hook_take_down(s, fd, reason);
	}
	if (level == IPPROTO_TCP && name == TCP_NOTSENT_LOWAT)
		result = set_amid(s, fd, name, value, len);
	else if (level == SOL_SOCKET && name == SO_RCVLOWAT)
		result = (int)ret_keeping(lowat_put(s, fd, value, len));
	else
		result = REAL(setsockopt)(fd, level, name, value, len);
	if (result == 0)
		option_set(s, fd, level, name, value, len);
	/* If it listens, what it accepts will have it as well. */
	if (result == 0 && reason != VD_REASON_NONE && sock_options(s) != OPTIONS_KERNEL)
		sock_options_are(s, option_is_a_key(level, name) ? OPTIONS_KERNEL
								 : OPTIONS_UNKNOWN);
	return result;
}

/*
 * An error that only Viaduct knows of, where the kernel knows of none. As the kernel's own, it is
 * taken before it is seen whether it can be told, and cut to the room. 0 or -EFAULT.
 */
static int add_error(struct sock *s, int result, void *value, const socklen_t *len)
{
	int error = 0, own;
	socklen_t room = 0;
	/* Where the kernel could not store it, what stands there is not its answer. */
	bool known = crit_copy(&room, len, sizeof(room)) == 0 && result == 0;

	if (room > sizeof(error))
		room = sizeof(error);
	known = known && crit_copy(&error, value, room) == 0;
	if (known && error == ECONNRESET)
		sock_error_told(s);
	own = sock_take_error(s);
	if (own == 0 || room == 0)
		return 0;
	if (!known)
		return -EFAULT;
	return error == 0 ? crit_copy(value, &own, room) : 0;
}

/* The kernel has come as far as to take the error: it did not refuse the length. */
static bool error_was_taken(int result, const socklen_t *len)
{
	socklen_t room;

	return result == 0 ||
	       (errno == EFAULT && crit_copy(&room, len, sizeof(room)) == 0 &&
		room <= INT_MAX);
}

/* What the kernel has just stored there. */
static size_t told_length(const socklen_t *len)
{
	socklen_t told = 0;

	return crit_copy(&told, len, sizeof(told)) == 0 ? told : 0;
}

/* As TCP_ZEROCOPY_RECEIVE has it, which has grown; as far as the kernel's answer is of concern here. */
struct mapped_receive {
	uint64_t address;
	uint32_t mapped, to_read, queued;
	int32_t error;
	uint64_t copy_at;
	int32_t copied;
};
#define MAPPED_LEAST offsetof(struct mapped_receive, queued)

/*
 * While only the ring has bytes, none can be mapped: all are to be read, which the kernel says too of
 * bytes that do not fill a page. False: it is the kernel's to answer.
 */
static bool map_nothing(struct sock *s, int fd, void *value, const socklen_t *len)
{
	struct mapped_receive m;
	socklen_t room;
	int bytes;

	if (crit_copy(&room, len, sizeof(room)) < 0 || room < MAPPED_LEAST ||
	    room > INT_MAX)
		return false;
	if (room > sizeof(m))
		room = sizeof(m);
	if (crit_copy(&m, value, room) < 0 || m.address % CRIT_PAGE_BYTES != 0 ||
	    sock_inq(s, fd, &bytes) != 0 || bytes <= 0)
		return false;
	m.mapped = 0;
	m.to_read = m.queued = (uint32_t)bytes;
	m.error = m.copied = 0;
	return crit_copy(value, &m, room) == 0;
}

NEAR_CODE HOOK int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct sock *s = fd_sock(fd);
	int result;

	if (!s)
		return REAL(getsockopt)(fd, level, name, value, len);
	/* This "option" receives. */
	if (level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE) {
		log_debug("fd %d: TCP_ZEROCOPY_RECEIVE is the kernel's", fd);
		hook_take_down(s, fd, VD_REASON_OPTION);
		if (map_nothing(s, fd, value, len))
			return 0;
	}
	if (level == SOL_SOCKET && name == SO_RCVLOWAT && sock_is_direct(s))
		return (int)ret_keeping(lowat_ask(s, fd, value, len));
	if (level == SOL_SOCKET && name == SO_ERROR)
		sock_error_ask(s, fd);
	result = REAL(getsockopt)(fd, level, name, value, len);
	if (level == SOL_SOCKET && name == SO_ERROR && error_was_taken(result, len)) {
		int told = add_error(s, result, value, len);

		return told < 0 ? (int)ret_errno(told) : result;
	}
	if (result == 0 && level == IPPROTO_TCP && name == TCP_INFO)
		sock_info(s, fd, value, told_length(len));
	else if (result == 0 && level == SOL_SOCKET && name == SO_MEMINFO)
		sock_meminfo(s, fd, value, told_length(len));
	return result;
}

/* Counts of bytes, and whether the mark is next. SOCK_KERNEL: ask the kernel. */
static int ioctl_count(struct sock *s, int fd, unsigned long request, void *to)
{
	int count, result = SOCK_KERNEL;

	if (request == FIONREAD) /* SIOCINQ is the same number */
		result = sock_inq(s, fd, &count);
	else if (request == SIOCOUTQ || request == SIOCOUTQNSD)
		result = sock_outq(s, fd, request == SIOCOUTQNSD, &count);
	else if (request == SIOCATMARK)
		result = sock_at_mark(s, fd, &count);
	return result == 0 ? crit_copy(to, &count, sizeof(count)) : result;
}

/* Whether it asks for a signal at each event. */
static bool wants_signals(unsigned long request, const void *arg)
{
	int value;

	if (request != SIOCSPGRP && request != FIOSETOWN && request != FIOASYNC)
		return false;
	return crit_copy(&value, arg, sizeof(value)) == 0 &&
	       (request != FIOASYNC || value != 0);
}

/* A socket that a device or a socket of the kernel's takes over, which then moves its bytes past
 * every program; or -1. */
static int handed_to_kernel(unsigned long request, void *arg)
{
	struct kcm_attach attach;

	if (request == NBD_SET_SOCK)
		return (int)(intptr_t)arg;
	if (request == SIOCKCMATTACH && crit_copy(&attach, arg, sizeof(attach)) == 0)
		return attach.fd;
	return -1;
}

/* 0, or -EAGAIN while bytes wait that only a read through us can get. */
static int hand_to_kernel(int fd)
{
	struct sock *s = fd_sock(fd);

	if (!s)
		return 0;
	log_debug("fd %d: is handed to the kernel", fd);
	return sock_down_wait(s, fd, VD_REASON_SPLICE, HOOK_UNREAD_MS) > 0 ? -EAGAIN : 0;
}

NEAR_CODE HOOK int ioctl(int fd, unsigned long request, ...)
{
	struct sock *s = fd_sock(fd);
	int result;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* The kernel looks at no more, and musl's programs set no more of the register. */
	request = (unsigned)request;
	/* To a TCP socket the numbers mean nothing. */
	if (!s && (request == NBD_SET_SOCK || request == SIOCKCMATTACH)) {
		int saved = errno;

		result = hand_to_kernel(handed_to_kernel(request, arg));
		errno = saved;
		if (result < 0)
			return (int)ret_errno(result);
	}
	if (!s)
		return REAL(ioctl)(fd, request, arg);
	result = ioctl_count(s, fd, request, arg);
	if (result != SOCK_KERNEL)
		return (int)ret_errno(result);
	if (wants_signals(request, arg))
		hook_take_down(s, fd, VD_REASON_SIGIO);
	if (request == FIOCLEX)
		withheld_forget(s, fd);
	result = REAL(ioctl)(fd, request, arg);
	if (result == 0 && request == FIONBIO)
		store_relaxed(&s->slot->nonblock, *(int *)arg != 0);
	return result;
}

/* The C library's asks past us. */
HOOK int sockatmark(int fd)
{
	int at_mark;

	return ioctl(fd, SIOCATMARK, &at_mark) < 0 ? -1 : at_mark;
}
