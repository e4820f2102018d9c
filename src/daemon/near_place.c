/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of another network namespace shows of itself, judged by the kernel's word. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tcp.h"
#include "daemon/address.h"
#include "daemon/daemon.h"
#include "rendezvous/diag.h"

/* Users without a number in a user namespace: those of the daemon's, and of the process's. */
#define OVERFLOW_UID 65534u

/* Linux 6.18: of a network namespace it is the cookie that its sockets tell. */
#define SPACE_GET_ID _IOR(NSIO, 13, uint64_t)

static bool has_option(int fd, int option, int value)
{
	socklen_t size = sizeof(int);
	int is = -1;

	return getsockopt(fd, SOL_SOCKET, option, &is, &size) == 0 && is == value;
}

static bool is_diag(int fd, uint64_t *netns)
{
	return has_option(fd, SO_DOMAIN, AF_NETLINK) &&
	       has_option(fd, SO_PROTOCOL, NETLINK_SOCK_DIAG) &&
	       tcp_netns_cookie(fd, netns) == 0;
}

/*
 * Who may give addresses away in a network namespace may make a connection with any two ends: the
 * users of the user namespace that it belongs to. Two ends meet only where that is the same one.
 */
static bool is_space(int fd, uint64_t netns, uint64_t *owner)
{
	struct stat st;
	uint64_t id = 0;
	int user, r;

	if (ioctl(fd, NS_GET_NSTYPE) != CLONE_NEWNET ||
	    ioctl(fd, SPACE_GET_ID, &id) < 0 || id != netns)
		return false;
	user = ioctl(fd, NS_GET_USERNS);
	if (user < 0)
		return false;
	r = fstat(user, &st);
	close(user);
	*owner = st.st_ino;
	return r == 0;
}

/* Bound to the connection's own address: so what comes to it has come as the connection's bytes do. */
static bool is_probe(int fd, uint64_t netns, const struct name_end *local, uint16_t *port)
{
	int room = 1;
	uint64_t own;
	union address name, due;
	socklen_t size = sizeof(name), due_size = address_of_end(local, &due);

	if (!has_option(fd, SO_DOMAIN, due.any.sa_family) ||
	    !has_option(fd, SO_TYPE, SOCK_DGRAM) ||
	    !has_option(fd, SO_PROTOCOL, IPPROTO_UDP) || tcp_netns_cookie(fd, &own) < 0 ||
	    own != netns || getsockname(fd, &name.any, &size) < 0 || size != due_size)
		return false;
	*port = name_is_v4(local) ? name.in.sin_port : name.in6.sin6_port;
	/* Nobody is to fill the host's memory by it. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	return *port != 0 &&
	       (name_is_v4(local) ? name.in.sin_addr.s_addr == due.in.sin_addr.s_addr
				  : !memcmp(&name.in6.sin6_addr, &due.in6.sin6_addr, 16));
}

/*
 * The socket's user is a number of the user namespace in which `diag` was made. Where that is not
 * ours, the process may have had its own choice of numbers, but for its own users alone; all the others
 * have the one number that nobody may have here.
 */
static enum local_status find(uint32_t uid, const struct name_end *local,
			      const struct name_end *peer, int diag, uint64_t *cookie)
{
	struct diag_socket found;

	if (uid == OVERFLOW_UID || diag_lookup_on(diag, local, peer, &found) != 1 ||
	    found.inode == 0 || found.uid != uid || found.state == TCP_SYN_SENT ||
	    found.state == TCP_SYN_RECV)
		return LOCAL_OWNER;
	*cookie = found.cookie;
	return LOCAL_OK;
}

enum local_status near_place_take(uint32_t uid, const struct local_message *m,
				  const int fds[NEAR_FDS], struct near_place *out)
{
	struct near_place p = {.diag = fds[NEAR_DIAG], .probe = fds[NEAR_PROBE]};
	enum local_status status;

	if (!is_diag(p.diag, &p.netns) || !is_space(fds[NEAR_SPACE], p.netns, &p.owner) ||
	    !is_probe(p.probe, p.netns, &m->local, &p.port))
		return LOCAL_NETNS;
	status = find(uid, &m->local, &m->peer, p.diag, &p.cookie);
	if (status == LOCAL_OK)
		*out = p;
	return status;
}

bool near_place_holds(uint32_t uid, const struct name_end *local,
		      const struct name_end *peer, int diag, uint64_t cookie)
{
	uint64_t found;

	return find(uid, local, peer, diag, &found) == LOCAL_OK && found == cookie;
}

void near_place_close(struct near_place *place)
{
	close(place->diag);
	close(place->probe);
}
