/* SPDX-License-Identifier: Apache-2.0 */
/* Options of odd lengths and values, and calls that a socket seldom meets. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "differential.h"

static struct descriptor *a_socket(struct dice *d)
{
	struct descriptor *s = any_of(d, SOCKET);
	if (!s)
		tell("nothing");
	return s;
}

/* ---- any option is asked for ---- */

/* What depends on time, on the host, or on the way that the bytes have gone. */
static bool is_volatile(int level, int name)
{
	static const int of_socket[] = {
		SO_SNDBUF,  SO_RCVBUF,	SO_INCOMING_CPU, 56,	      SO_COOKIE,
		SO_MEMINFO, SO_PEERSEC, SO_RCVLOWAT,	 SO_PEERNAME, 78};
	static const int of_tcp[] = {
		TCP_INFO,	  TCP_CC_INFO,	     TCP_MAXSEG,
		TCP_WINDOW_CLAMP, TCP_TIMESTAMP,     TCP_ZEROCOPY_RECEIVE,
		TCP_QUICKACK,	  TCP_REPAIR_WINDOW, TCP_SAVED_SYN,
		TCP_INQ,	  TCP_CORK,	     TCP_NOTSENT_LOWAT};
	const int *of = level == SOL_SOCKET ? of_socket : of_tcp;
	int n = level == SOL_SOCKET ? 10 : 12;
	for (int i = 0; i < n && level != IPPROTO_IP; i++)
		if (of[i] == name)
			return true;
	return level == IPPROTO_IP && (name == IP_MTU || name == IP_OPTIONS);
}

static void op_get_odd(struct dice *d)
{
	static const int levels[] = {SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP};
	static const unsigned lens[] = {0, 1, 2, 3, 4, 5, 8, 16, 64, -1u, 4};
	struct descriptor *s = a_socket(d);
	if (!s)
		return;
	for (int i = 0; i < 4; i++) {
		int level = levels[dice(d, 3)],
		    name = (int)dice(d, level == SOL_SOCKET ? 85 : 50);
		uint8_t value[256];
		socklen_t len = lens[dice(d, 11)], asked = len;
		memset(value, 0x5C, sizeof value);
		/* Takes pages, an error, or the socket from the program; or tells the route, which
		 * the next packet looks up. */
		if ((level == IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE) ||
		    (level == SOL_SOCKET && name == SO_ERROR) ||
		    (level == IPPROTO_IP && name == IP_MTU))
			continue;
		if (len == -1u && is_volatile(level, name))
			continue;
		int r = getsockopt(s->fd, level, name, value, &len);
		if (is_volatile(level, name))
			tell("(%d, %d, %d, of %d) = %s", s->fd, level, name, (int)asked,
			     result(r));
		else
			tell("(%d, %d, %d, of %d) = %s of %d: %08x", s->fd, level, name,
			     (int)asked, result(r), (int)len,
			     checksum(value, sizeof value));
	}
}

/* ---- some are set ---- */

static const struct {
	int level, name;
	int some[4];
} settable[] = {
	{SOL_SOCKET, SO_KEEPALIVE, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_REUSEADDR, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_REUSEPORT, {0, 1, 1, 0}},
	{SOL_SOCKET, SO_BROADCAST, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_DONTROUTE, {0, 0, 0, 0}},
	{SOL_SOCKET, SO_PRIORITY, {0, 6, -1, 7}},
	{SOL_SOCKET, SO_NO_CHECK, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_PASSCRED, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_PASSSEC, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_RXQ_OVFL, {0, 1, -1, 5}},
	{SOL_SOCKET, SO_SELECT_ERR_QUEUE, {0, 0, 0, 0}},
	{SOL_SOCKET, SO_TYPE, {1, 1, 1, 1}},
	{SOL_SOCKET, SO_DOMAIN, {2, 2, 2, 2}},
	{SOL_SOCKET, SO_ERROR, {0, 1, 2, 3}},
	{SOL_SOCKET, SO_ACCEPTCONN, {0, 1, 2, 3}},
	{SOL_SOCKET, SO_SNDLOWAT, {0, 1, 2, 3}},
	{SOL_SOCKET, SO_DETACH_FILTER, {0, 0, 0, 0}},
	{SOL_SOCKET, 999, {0, 0, 0, 0}},
	{IPPROTO_TCP, TCP_KEEPIDLE, {-1, 0, 40000, 100}},
	{IPPROTO_TCP, TCP_KEEPINTVL, {-1, 0, 40000, 100}},
	{IPPROTO_TCP, TCP_KEEPCNT, {-1, 0, 200, 9}},
	{IPPROTO_TCP, TCP_SYNCNT, {-1, 0, 200, 9}},
	/* Without a wait, a probe of a window meets a reset, at any time. */
	{IPPROTO_TCP, TCP_LINGER2, {0, 9, 60, 100}},
	{IPPROTO_TCP, TCP_DEFER_ACCEPT, {-1, 0, 200, 9}},
	{IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, {-1, 0, 1, 2}},
	{IPPROTO_TCP, TCP_THIN_DUPACK, {-1, 0, 1, 2}},
	{IPPROTO_TCP, TCP_USER_TIMEOUT, {-1, 0, 100000, -5}},
	{IPPROTO_TCP, TCP_FASTOPEN, {-1, 0, 1, 2}},
	{IPPROTO_TCP, TCP_SAVE_SYN, {-1, 0, 1, 9}},
	{IPPROTO_TCP, TCP_NODELAY, {1, 2, -1, 3}},
	{IPPROTO_TCP, TCP_CORK, {0, 0, 0, 0}},
	{IPPROTO_TCP, TCP_QUICKACK, {1, 2, 1, 3}},
	{IPPROTO_TCP, TCP_INQ, {-1, 0, 0, 2}},
	{IPPROTO_TCP, TCP_INFO, {-1, 0, 1, 2}},
	{IPPROTO_TCP, TCP_FASTOPEN_CONNECT, {-1, 0, 1, 2}},
	{IPPROTO_TCP, 999, {0, 0, 0, 0}},
	{IPPROTO_IP, IP_TTL, {0, 1, 64, 300}},
	{IPPROTO_IP, IP_TOS, {0, 8, 16, 3}},
	{IPPROTO_IP, IP_RECVTTL, {0, 1, 0, 1}},
	{IPPROTO_IP, IP_MTU_DISCOVER, {0, 1, 2, 9}},
	{IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, {0, 1, 0, 1}},
	{IPPROTO_IP, 999, {0, 0, 0, 0}},
};

static void op_set_odd(struct dice *d)
{
	static const socklen_t lens[] = {4, 4, 4, 0, 1, 2, 3, 5, 8, 64};
	struct descriptor *s = a_socket(d);
	unsigned which = dice(d, sizeof settable / sizeof *settable);
	int value[16] = {settable[which].some[dice(d, 4)]};
	socklen_t len = once_in(d, 20) ? (socklen_t)-1 : lens[dice(d, 10)];
	if (!s)
		return;
	int r = setsockopt(s->fd, settable[which].level, settable[which].name, value,
			   len);
	tell("(%d, %d, %d, %d of %d) = %s", s->fd, settable[which].level,
	     settable[which].name, value[0], (int)len, result(r));
}

static void op_congestion(struct dice *d)
{
	static const char *const some[] = {"cubic", "reno", "nonsuch", ""};
	struct descriptor *s = a_socket(d);
	const char *name = some[dice(d, 4)];
	char is[16];
	socklen_t len = 1 + dice(d, 16);
	if (!s)
		return;
	int r = setsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, name,
			   (socklen_t)strlen(name));
	tell("(%d, %s) = %s", s->fd, name, result(r));
	memset(is, 0, sizeof is);
	r = getsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, is, &len);
	tell("is %s of %u: %.16s", result(r), len, is);
}

/* ---- how many bytes are behind those that a message brings ---- */

static void op_inq_message(struct dice *d)
{
	struct descriptor *other, *s = any_sound_pair(d, &other);
	int on = 1, off = 0, behind = -1;
	char control[64];
	uint8_t into[300];
	if (!s || unread(s) == 0) {
		tell("nothing");
		return;
	}
	NEED(setsockopt(s->fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
	struct iovec v = {into, 1 + dice(d, sizeof into)};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = once_in(d, 5) ? 18 : sizeof control};
	int flags = MSG_DONTWAIT | (once_in(d, 3) ? MSG_PEEK : 0);
	ssize_t n = recvmsg(s->fd, &m, flags);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (n > 0 && c && c->cmsg_level == SOL_TCP && c->cmsg_type == TCP_CM_INQ)
		memcpy(&behind, CMSG_DATA(c), sizeof behind);
	tell("(%d, %zu, %s) = %s: %s, control %zu, %d behind", s->fd, v.iov_len,
	     flags_of_message(flags), result(n), flags_of_message(m.msg_flags),
	     m.msg_controllen, behind);
	if (!(flags & MSG_PEEK))
		was_received(s, n);
	NEED(setsockopt(s->fd, IPPROTO_TCP, TCP_INQ, &off, sizeof off) == 0);
}

/* ---- calls for files ---- */

/* Who is told of it, and what becomes of it. */
static void set_as_file(struct descriptor *s, unsigned which, int own)
{
	int r, n = 0;
	switch (which) {
	case 6:
		r = fcntl(s->fd, F_SETOWN, own ? getpid() : 0);
		tell("F_SETOWN(%d, %d) = %s, is %d", s->fd, own, result(r),
		     fcntl(s->fd, F_GETOWN) == getpid());
		break;
	case 7:
		r = fcntl(s->fd, F_SETSIG, own ? SIGURG : 0);
		tell("F_SETSIG(%d, %d) = %s, is %s", s->fd, own, result(r),
		     result(fcntl(s->fd, F_GETSIG)));
		break;
	case 11:
		r = ioctl(s->fd, FIOCLEX, &n);
		tell("FIOCLEX(%d) = %s", s->fd, result(r));
		break;
	case 12:
		r = ioctl(s->fd, FIOASYNC, &n);
		tell("FIOASYNC(%d, 0) = %s", s->fd, result(r));
		break;
	case 13:
		r = fcntl(s->fd, F_SETFD, own ? FD_CLOEXEC : 0);
		tell("F_SETFD(%d) = %s, is %d", s->fd, result(r), fcntl(s->fd, F_GETFD));
		NEED(fcntl(s->fd, F_SETFD, FD_CLOEXEC) == 0);
		break;
	}
}

static void op_as_file(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	struct stat st;
	struct flock lock = {.l_type = F_WRLCK};
	int r, own = (int)dice(d, 2);
	unsigned which;
	if (!s)
		return;
	switch (which = dice(d, 15)) {
	case 0:
		r = fstat(s->fd, &st);
		tell("fstat(%d) = %s: %#o of %ld", s->fd, result(r), st.st_mode,
		     (long)st.st_size);
		break;
	case 1:
		tell("fsync(%d) = %s", s->fd, result(fsync(s->fd)));
		break;
	case 2:
		tell("ftruncate(%d) = %s", s->fd, result(ftruncate(s->fd, 0)));
		break;
	case 3: {
		void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, s->fd, 0);
		tell("mmap(%d) = %s", s->fd, result(p == MAP_FAILED ? -1 : 0));
		/* It holds the socket. */
		if (p != MAP_FAILED)
			NEED(munmap(p, 4096) == 0);
		break;
	}
	case 4:
		r = flock(s->fd, LOCK_EX | LOCK_NB);
		tell("flock(%d) = %s, %s", s->fd, result(r),
		     result(flock(s->fd, LOCK_UN)));
		break;
	case 5:
		tell("F_SETLK(%d) = %s", s->fd, result(fcntl(s->fd, F_SETLK, &lock)));
		break;
	case 8:
		tell("F_GETPIPE_SZ(%d) = %s", s->fd, result(fcntl(s->fd, F_GETPIPE_SZ)));
		break;
	case 9:
		tell("posix_fadvise(%d) = %d", s->fd,
		     posix_fadvise(s->fd, 0, 0, POSIX_FADV_NORMAL));
		break;
	case 10:
		tell("fallocate(%d) = %s", s->fd, result(fallocate(s->fd, 0, 0, 10)));
		break;
	case 14:
		tell("F_DUPFD(%d, many) = %s", s->fd,
		     result(fcntl(s->fd, F_DUPFD, 1 << 30)));
		break;
	default:
		set_as_file(s, which, own);
	}
}

/* ---- fewer descriptors than there are ---- */

/* Bytes unread behind a shutdown of both directions: TCP resets when it has to take them. Documented. */
static bool any_shut_unread(void)
{
	for (int i = 0; i < descriptor_count; i++) {
		const struct descriptor *s = &descriptors[i];
		if (s->kind != SOCKET)
			continue;
		const struct end *e = end_of(s), *peer = peer_of(s);
		if ((e->shut_read && e->shut_write && unread(s)) ||
		    (peer->shut_read && peer->shut_write && e->written > peer->read))
			return true;
	}
	return false;
}

static void op_few(struct dice *d)
{
	struct descriptor *s = a_socket(d);
	struct rlimit was, few;
	int r;
	if (!s)
		return;
	NEED(getrlimit(RLIMIT_NOFILE, &was) == 0);
	few = was;
	/* With none the process stays on TCP from here on: seldom. */
	few.rlim_cur = once_in(d, 12) && !any_shut_unread() ? 0 : 1 + dice(d, 2);
	NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
	r = dup(s->fd);
	tell("dup(%d) = %s", s->fd, result(r));
	r = socket(AF_INET, SOCK_STREAM, 0);
	tell("socket = %s", result(r));
	r = fcntl(s->fd, F_DUPFD, 100);
	tell("F_DUPFD(%d) = %s", s->fd, result(r));
	r = dup2(s->fd, 119);
	tell("dup2(%d, 119) = %s", s->fd, result(r));
	char byte;
	ssize_t n = recv(s->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	tell("peek(%d) = %s", s->fd, result(n));
	NEED(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

/* Closes a row of numbers, or sets their flag. */
static void op_range(struct dice *d)
{
	unsigned first = 3 + dice(d, 30), last = first + dice(d, 4);
	int r;
	if (once_in(d, 3)) {
		r = close_range(first, last, CLOSE_RANGE_CLOEXEC);
		tell("CLOEXEC(%u, %u) = %s", first, last, result(r));
		return;
	}
	if (!once_in(d, 4)) {
		r = close_range(last + 1, first, 0);
		tell("(%u, %u) = %s", last + 1, first, result(r));
		return;
	}
	r = close_range(first, last, 0);
	tell("(%u, %u) = %s", first, last, result(r));
	for (unsigned fd = first; fd <= last; fd++)
		if (descriptor_of((int)fd))
			descriptor_gone(descriptor_of((int)fd));
}

const struct op ops_odd[] = {
	{"get-odd", op_get_odd, 8},	  {"set-odd", op_set_odd, 10},
	{"congestion", op_congestion, 2}, {"inq-message", op_inq_message, 5},
	{"as-file", op_as_file, 6},	  {"few", op_few, 3},
	{"range", op_range, 3},		  {NULL, NULL, 0},
};
