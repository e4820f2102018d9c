/* SPDX-License-Identifier: Apache-2.0 */
/* Who may share memory with us: the process at the other end of the TCP connection, by
 * the kernel's word. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/low.h"
#include "base/put.h"
#include "base/real.h"
#include "base/reason.h"
#include "rendezvous/ident.h"
#include "rendezvous/netlink.h"

#define IDENT_ORIGINAL_DST 80 /* SO_ORIGINAL_DST and its IPv6 twin */
#define IDENT_NS_BYTES	   64 /* of a name such as user:[4026531837] */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define IDENT_NOBODY 65534u /* shown for users that the namespace does not know */

int ident_peer(int unix_fd, struct ucred *out)
{
	socklen_t len = sizeof(*out);

	return REAL(getsockopt)(unix_fd, SOL_SOCKET, SO_PEERCRED, out, &len) ? -errno : 0;
}

bool ident_vouches(int fd, uid_t *as)
{
	uid_t real, effective, saved;
	struct stat st;

	*as = IDENT_AS_IT_IS;
	if (kernel_fstat(fd, &st) != 0 ||
	    kernel_call4(SYS_getresuid, (long)&real, (long)&effective, (long)&saved, 0) !=
		    0)
		return false;
	if (st.st_uid != effective && (st.st_uid == real || st.st_uid == saved))
		*as = st.st_uid;
	return st.st_uid == effective || *as == st.st_uid;
}

bool ident_is_own_user(int unix_fd)
{
	uid_t real, effective, saved;
	struct ucred peer;

	return ident_peer(unix_fd, &peer) == 0 &&
	       kernel_call4(SYS_getresuid, (long)&real, (long)&effective, (long)&saved,
			    0) == 0 &&
	       peer.uid == real && peer.uid == effective && peer.uid == saved;
}

/* Its name, which has its number: a look at the file itself takes twice as long. 0 or -errno. */
static int ident_user_namespace(const char *process, char name[IDENT_NS_BYTES])
{
	char path[48];
	ssize_t n;

	put_text(put_text(put_text(path, "/proc/"), process), "/ns/user");
	n = kernel_readlink(path, name, IDENT_NS_BYTES - 1);
	if (n < 0)
		return (int)n;
	name[n] = '\0';
	return 0;
}

/* 1 same, 0 different, -errno when the kernel does not say. */
static int ident_same_user_namespace(pid_t pid)
{
	char own[IDENT_NS_BYTES], other[IDENT_NS_BYTES], process[16];
	int r = ident_user_namespace("self", own);

	put_number(process, (int)pid);
	if (r == 0)
		r = ident_user_namespace(process, other);
	return r < 0 ? r : strcmp(own, other) == 0;
}

/* Whether the process has this number and no other one: 1, 0 or -errno. By pieces, since the program's stack may be
 * small and a list of groups comes before. */
static int ident_numbers_are(int fd, pid_t pid)
{
	static const char label[] = "\nNSpid:\t";
	enum { LABEL_BYTES = sizeof(label) - 1, NUMBER_BYTES = 12 };
	char text[256], *at;
	size_t have = 0;
	ssize_t n;

	do {
		n = kernel_read(fd, text + have, sizeof(text) - 1 - have);
		if (n < 0)
			return (int)n;
		have += (size_t)n;
		text[have] = '\0';
		at = strstr(text, label);
		if (at && (n == 0 || text + have - at >= LABEL_BYTES + NUMBER_BYTES))
			return strtol(at + LABEL_BYTES, &at, 10) == pid && *at == '\n';
		/* What may be the label's beginning is looked at again. */
		if (!at)
			at = text + (have > LABEL_BYTES ? have - LABEL_BYTES : 0);
		have -= (size_t)(at - text);
		memmove(text, at, have);
	} while (n > 0);
	return 0;
}

/*
 * 1: it is in our pid namespace, where its numbers are ours; one in a namespace below has a second number. 0: it is
 * not, or has ended; or -errno. Equal users are not equal beyond that namespace: a process of a container cannot stop
 * those of its user on the host, and is not to speak for them. It cannot hide this, as it can what it has in
 * /proc/PID/ns.
 */
static int ident_look_among_us(int unix_fd, pid_t pid)
{
	socklen_t len = sizeof(int);
	char path[40];
	int process = -1, fd, r;

	/* What the kernel says of the process itself; or, before Linux 6.5, of whoever has its number now. */
	if (REAL(getsockopt)(unix_fd, SOL_SOCKET, SO_PEERPIDFD, &process, &len) == 0)
		put_number(put_text(path, "/proc/thread-self/fdinfo/"), process);
	else if (errno == ENOPROTOOPT)
		put_text(put_number(put_text(path, "/proc/"), (int)pid), "/status");
	else
		return -errno;
	fd = kernel_open(path, O_RDONLY | O_CLOEXEC, 0);
	r = fd < 0 ? fd : ident_numbers_are(fd, pid);
	if (fd >= 0)
		kernel_close(fd);
	if (process >= 0)
		kernel_close(process);
	return pid == 0 ? 0 : r;
}

static int ident_is_among_us(int unix_fd, pid_t pid)
{
	int r;

	low_begin();
	r = ident_look_among_us(unix_fd, pid);
	low_end();
	return r;
}

static bool is_same_text(const char *own_path, const char *other_path)
{
	char own[256], other[256];

	return low_read_text(own_path, own, sizeof(own)) &&
	       low_read_text(other_path, other, sizeof(other)) && !strcmp(own, other);
}

/* In our user namespace, as far as those can tell who may not look at it: a process in one below
 * cannot have given itself all the users of ours. */
static bool may_administer(pid_t pid)
{
	char path[40];

	put_text(put_number(put_text(path, "/proc/"), (int)pid), "/uid_map");
	return netlink_may_administer(pid) && is_same_text("/proc/self/uid_map", path);
}

bool ident_may_stop_us(int unix_fd)
{
	struct ucred peer;

	return ident_is_own_user(unix_fd) && ident_peer(unix_fd, &peer) == 0 &&
	       ident_is_among_us(unix_fd, peer.pid) == 1;
}

bool ident_is_believed(int unix_fd)
{
	struct ucred peer;

	if (ident_peer(unix_fd, &peer) < 0 || peer.pid == 0)
		return false;
	if (ident_may_stop_us(unix_fd) && ident_same_user_namespace(peer.pid) == 1)
		return true;
	return peer.uid == 0 && may_administer(peer.pid);
}

/*
 * Equal user ids mean equal trust only within one user namespace. A process that changed its user, as
 * servers do, hides its namespaces (EACCES): it is then judged as another user's process is, by its TCP
 * socket alone, which the caller has compared.
 */
static int ident_namespaces(pid_t pid)
{
	int r = ident_same_user_namespace(pid);

	return r == 1 || r == -EACCES ? 1 : -VD_REASON_NAMESPACE;
}

/* True when every user has a number here, so that equal numbers are equal users. */
static bool ident_all_users_mapped(void)
{
	char map[64];
	unsigned long inside, outside, count;

	return low_read_text("/proc/self/uid_map", map, sizeof(map)) &&
	       sscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
	       inside == 0 && outside == 0 && count == UINT32_MAX;
}

/*
 * Whether its message states that user, as the kernel lets those that have him as their real, effective or saved one.
 * Nothing else is taken: there is no room for descriptors. Who has not spoken is told to come again, as in
 * connector_receive.
 */
static bool ident_states(int unix_fd, pid_t pid, uid_t uid)
{
	union {
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	char first;
	struct iovec iov = {&first, 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes};
	struct ucred stated = {0};
	int on = 1, off = 0;
	ssize_t n = 0;

	if (uid == IDENT_NOBODY && !ident_all_users_mapped())
		return false;
	REAL(setsockopt)(unix_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	for (int i = 0; i < 2 && n <= 0; i++) {
		if (i)
			REAL(shutdown)(unix_fd, SHUT_RDWR);
		msg.msg_controllen = sizeof(control.bytes);
		n = kernel_recvmsg(unix_fd, &msg, MSG_PEEK | MSG_DONTWAIT);
	}
	REAL(setsockopt)(unix_fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
	if (n > 0 && msg.msg_controllen >= sizeof(control.bytes) &&
	    control.align.cmsg_level == SOL_SOCKET &&
	    control.align.cmsg_type == SCM_CREDENTIALS)
		memcpy(&stated, CMSG_DATA(&control.align), sizeof(stated));
	/* Without a number it is nobody's, and the user a placeholder. */
	return stated.pid && stated.pid == pid && stated.uid == uid;
}

int ident_check(int unix_fd, enum tcp_role role, uint64_t netns,
		const struct name_tuple *t, struct diag_socket *peer)
{
	bool we_connected = role == TCP_ROLE_CONNECTED;
	struct ucred cred;
	int r = ident_peer(unix_fd, &cred);

	if (r < 0)
		return -VD_REASON_IDENTITY;
	r = diag_lookup(netns, we_connected ? &t->server : &t->client,
			we_connected ? &t->client : &t->server, t->scope, peer);
	if (r < 0)
		return r == -EMFILE ? -VD_REASON_FD_LIMIT : -VD_REASON_KERNEL;
	if (r == 0)
		return -VD_REASON_IDENTITY;
	if (peer->inode == 0 || peer->state == TCP_SYN_RECV)
		return 0;
	if (cred.uid != peer->uid &&
	    !(we_connected && ident_states(unix_fd, cred.pid, peer->uid))) {
		log_debug("the rendezvous belongs to user %u, the TCP peer to user %u",
			  cred.uid, peer->uid);
		return -VD_REASON_UID;
	}
	r = ident_is_among_us(unix_fd, cred.pid);
	if (r != 1)
		return r == -EMFILE ? -VD_REASON_FD_LIMIT : -VD_REASON_NAMESPACE;
	if (cred.uid == kernel_geteuid())
		return ident_namespaces(cred.pid);
	if (cred.uid == IDENT_NOBODY && !ident_all_users_mapped())
		return -VD_REASON_NAMESPACE;
	return 1;
}

int ident_dialled(int fd, const struct name_tuple *t, struct name_end *out)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in;
	socklen_t len;
	int r;

	*out = t->server;
	memset(&in, 0, sizeof(in));
	memset(&in6, 0, sizeof(in6));
	if (name_is_v4(&t->server)) {
		len = sizeof(in);
		r = REAL(getsockopt)(fd, SOL_IP, IDENT_ORIGINAL_DST, &in, &len);
		if (r == 0) {
			memcpy(out->addr + 12, &in.sin_addr, 4);
			out->port = in.sin_port;
		}
	} else {
		len = sizeof(in6);
		r = REAL(getsockopt)(fd, SOL_IPV6, IDENT_ORIGINAL_DST, &in6, &len);
		if (r == 0) {
			memcpy(out->addr, &in6.sin6_addr, 16);
			out->port = in6.sin6_port;
		}
	}
	if (r == 0)
		return 1;
	/* No address translation in the kernel, or not of this connection. */
	return errno == ENOPROTOOPT || errno == ENOENT || errno == EOPNOTSUPP ? 0
									      : -errno;
}

/*
 * With a redirect, the accepted end of one connection can be the exact reverse of another
 * connection's client end, in the names and in sock_diag alike. Only the address that the
 * client dialled tells them apart. A rewritten source address leaves no such trace: an end
 * that may not ask conntrack has only the counts of bytes to keep these apart.
 */
int ident_check_dialled(int fd, const struct name_tuple *t)
{
	struct name_end dialled;
	int r = ident_dialled(fd, t, &dialled);

	if (r < 0)
		return -VD_REASON_NAT;
	return r == 0 || name_end_equal(&dialled, &t->server) ? 1 : -VD_REASON_NAT;
}
