/* SPDX-License-Identifier: Apache-2.0 */
/* Who may share memory with us: the process at the other end of the TCP connection, by
 * the kernel's word. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "base/real.h"
#include "base/reason.h"
#include "rendezvous/ident.h"

#define IDENT_ORIGINAL_DST 80	  /* SO_ORIGINAL_DST and its IPv6 twin */
#define IDENT_NS_BYTES	   64	  /* of a name such as user:[4026531837] */
#define IDENT_NOBODY	   65534u /* shown for users that the namespace does not know */

int ident_peer(int unix_fd, struct ucred *out)
{
	socklen_t len = sizeof(*out);

	return REAL(getsockopt)(unix_fd, SOL_SOCKET, SO_PEERCRED, out, &len) ? -errno : 0;
}

bool ident_is_own_user(int unix_fd)
{
	uid_t real, effective, saved;
	struct ucred peer;

	return ident_peer(unix_fd, &peer) == 0 &&
	       getresuid(&real, &effective, &saved) == 0 && peer.uid == real &&
	       peer.uid == effective && peer.uid == saved;
}

/* Its name, which has its number: a look at the file itself takes twice as long. 0 or -errno. */
static int ident_namespace(const char *process, const char *kind,
			   char name[IDENT_NS_BYTES])
{
	char path[48];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/ns/%s", process, kind);
	n = readlink(path, name, IDENT_NS_BYTES - 1);
	if (n < 0)
		return -errno;
	name[n] = '\0';
	return 0;
}

/* 1 same, 0 different, -errno when the kernel does not say. */
static int ident_same_namespace(pid_t pid, const char *kind)
{
	char own[IDENT_NS_BYTES], other[IDENT_NS_BYTES], process[16];
	int r = ident_namespace("self", kind, own);

	snprintf(process, sizeof(process), "%d", (int)pid);
	if (r == 0)
		r = ident_namespace(process, kind, other);
	return r < 0 ? r : strcmp(own, other) == 0;
}

/*
 * Equal user ids mean equal trust only within one user and pid namespace. A process that
 * changed its user, as servers do, hides its namespaces (EACCES): it is then judged as
 * another user's process is, by its TCP socket alone, which the caller has compared.
 */
static int ident_namespaces(pid_t pid)
{
	static const char *const kinds[] = {"user", "pid"};

	for (unsigned i = 0; i < 2; i++) {
		int r = ident_same_namespace(pid, kinds[i]);
		if (r != 1 && r != -EACCES)
			return -VD_REASON_NAMESPACE;
	}
	return 1;
}

/* True when every user has a number here, so that equal numbers are equal users. */
static bool ident_all_users_mapped(void)
{
	char map[64];
	unsigned long inside, outside, count;

	return kernel_read_text("/proc/self/uid_map", map, sizeof(map)) &&
	       sscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3 &&
	       inside == 0 && outside == 0 && count == UINT32_MAX;
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
	if (cred.uid != peer->uid) {
		log_debug("the rendezvous belongs to user %u, the TCP peer to user %u",
			  cred.uid, peer->uid);
		return -VD_REASON_UID;
	}
	if (cred.pid == 0)
		return -VD_REASON_NAMESPACE;
	if (cred.uid == geteuid())
		return ident_namespaces(cred.pid);
	if (cred.uid == IDENT_NOBODY && !ident_all_users_mapped())
		return -VD_REASON_NAMESPACE;
	return 1;
}

/*
 * With a redirect, the accepted end of one connection can be the exact reverse of another
 * connection's client end, in the names and in sock_diag alike. Only the address that the
 * client dialled tells them apart. A rewritten source address leaves no such trace: there
 * only the counts of bytes keep connections apart.
 */
int ident_check_dialled(int fd, const struct name_tuple *t)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in;
	struct name_end dialled = t->server;
	socklen_t len;
	int r;

	memset(&in, 0, sizeof(in));
	memset(&in6, 0, sizeof(in6));
	if (name_is_v4(&t->server)) {
		len = sizeof(in);
		r = REAL(getsockopt)(fd, SOL_IP, IDENT_ORIGINAL_DST, &in, &len);
		memcpy(dialled.addr + 12, &in.sin_addr, 4);
		dialled.port = in.sin_port;
	} else {
		len = sizeof(in6);
		r = REAL(getsockopt)(fd, SOL_IPV6, IDENT_ORIGINAL_DST, &in6, &len);
		memcpy(dialled.addr, &in6.sin6_addr, 16);
		dialled.port = in6.sin6_port;
	}
	if (r != 0) /* no address translation in the kernel, or not of this connection */
		return errno == ENOPROTOOPT || errno == ENOENT || errno == EOPNOTSUPP
			       ? 1
			       : -VD_REASON_NAT;
	return name_end_equal(&dialled, &t->server) ? 1 : -VD_REASON_NAT;
}
