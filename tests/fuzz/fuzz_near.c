/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of another network namespace shows viaductd: a MEET, with descriptors. daemon/near_child.c,
 * near_place.c. Only the three that are due are taken, and only an end that the kernel vouches for.
 * Not reached: descriptors that hang (relay-stuck), another namespace's (relay-near), and TRANSLATE, which
 * may have none: viaductd looks at what lies in a socket before a child is told (daemon-strangers). */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/near_helper.h"
#include "fuzz/fuzz.h"

enum kind {
	DIAG,
	SPACE,
	PROBE,
	MEMORY,
	BELL,
	PIPE,
	TCP,
	ROUTE,
	USERS,
	PROBE6,
	UNBOUND,
	KINDS
};
enum { FDS_MOST = 6 };

static int kinds[KINDS], above;
static struct name_tuple ends;
static uint64_t cookie;

static void connect_tcp(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at), size = sizeof(cookie);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	kinds[TCP] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FUZZ_CHECK(listen(l, 1) == 0);
	FUZZ_CHECK(getsockname(l, (struct sockaddr *)&at, &len) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FUZZ_CHECK(connect(kinds[TCP], (struct sockaddr *)&at, sizeof(at)) == 0);
	FUZZ_CHECK(accept4(l, NULL, NULL, SOCK_CLOEXEC) >= 0);
	FUZZ_CHECK(name_of_connection(kinds[TCP], TCP_ROLE_CONNECTED, &ends) == 0);
	FUZZ_CHECK(getsockopt(kinds[TCP], SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0);
}

static int open_probe(int family)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} at = {0};
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	at.any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		at.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FUZZ_CHECK(bind(fd, &at.any,
			family == AF_INET ? sizeof(at.in) : sizeof(at.in6)) == 0);
	return fd;
}

static void begin(void)
{
	int pair[2];

	connect_tcp();
	kinds[DIAG] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	kinds[SPACE] = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	kinds[PROBE] = open_probe(AF_INET);
	kinds[MEMORY] = memfd_create("a", MFD_CLOEXEC);
	kinds[BELL] = eventfd(0, EFD_CLOEXEC);
	FUZZ_CHECK(pipe2(pair, O_CLOEXEC) == 0);
	kinds[PIPE] = pair[0];
	kinds[ROUTE] = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	kinds[USERS] = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	kinds[PROBE6] = open_probe(AF_INET6);
	kinds[UNBOUND] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	above = dup(kinds[UNBOUND]);
	for (int i = 0; i < KINDS; i++)
		FUZZ_CHECK(kinds[i] >= 0);
	FUZZ_CHECK(above > pair[1]);
}

/* How many descriptors, their kinds, and the message. */
size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	static const uint8_t heads[][FDS_MOST + 1] = {{3, DIAG, SPACE, PROBE},
						      {3, ROUTE, SPACE, UNBOUND},
						      {3, DIAG, USERS, PROBE6},
						      {4, DIAG, SPACE, PROBE, MEMORY},
						      {0}};
	struct local_message m = {.version = LOCAL_PROTOCOL, .type = LOCAL_MEET, .id = 1};
	size_t len = LOCAL_HEAD_BYTES + sizeof(struct local_meet), head;

	if (n >= sizeof(heads) / sizeof(heads[0]))
		return 0;
	if (!above)
		begin();
	head = 1 + heads[n][0];
	m.local = ends.client;
	m.peer = ends.server;
	memcpy(out, heads[n], head);
	memcpy(out + head, &m, len);
	return head + len;
}

static void send_all(int sock, struct fuzz_bytes *b)
{
	unsigned count = (unsigned)fuzz_number(b, 1) % (FDS_MOST + 1);
	char control[CMSG_SPACE(FDS_MOST * sizeof(int))] = {0};
	struct msghdr msg = {.msg_iovlen = 1};
	int fds[FDS_MOST];

	for (unsigned i = 0; i < count; i++)
		fds[i] = kinds[fuzz_number(b, 1) % KINDS];
	msg.msg_iov = &(struct iovec){(void *)b->at, b->left};
	if (count) {
		struct cmsghdr *c;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	FUZZ_CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)b->left);
}

static bool is_kind(int fd, enum kind kind)
{
	struct stat a, b;

	FUZZ_CHECK(fstat(fd, &a) == 0 && fstat(kinds[kind], &b) == 0);
	return a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static void check_taken(const struct local_message *m, const int fds[NEAR_FDS])
{
	struct near_place place;

	FUZZ_CHECK(is_kind(fds[NEAR_DIAG], DIAG) || is_kind(fds[NEAR_DIAG], ROUTE));
	FUZZ_CHECK(is_kind(fds[NEAR_SPACE], SPACE));
	FUZZ_CHECK(is_kind(fds[NEAR_PROBE], PROBE) || is_kind(fds[NEAR_PROBE], PROBE6) ||
		   is_kind(fds[NEAR_PROBE], UNBOUND));
	if (near_place_take(geteuid(), m, fds, &place) != LOCAL_OK)
		return;
	/* Either end of the one connection that there is. */
	FUZZ_CHECK(is_kind(place.diag, DIAG) && is_kind(place.probe, PROBE));
	FUZZ_CHECK(name_end_equal(&m->local, &ends.client)
			   ? name_end_equal(&m->peer, &ends.server) &&
				     place.cookie == cookie
			   : name_end_equal(&m->local, &ends.server) &&
				     name_end_equal(&m->peer, &ends.client));
	FUZZ_CHECK(near_place_holds(geteuid(), &m->local, &m->peer, place.diag,
				    place.cookie));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes b = {data, size};
	struct local_message m = {0};
	int pair[2], fds[NEAR_FDS];
	int32_t r;

	if (!above)
		begin();
	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	send_all(pair[0], &b);
	r = near_take_message(pair[1], &m, fds);
	FUZZ_CHECK(r <= (int32_t)sizeof(m) && (r > 0 || r == 0 || r == -EBADF));
	/* As near_taken has it, before anything is made of the place. */
	if (r > 0 && local_check(&m, (size_t)r, true) == LOCAL_OK && m.type == LOCAL_MEET)
		check_taken(&m, fds);
	close_range((unsigned)above + 1, ~0u, 0); /* the child ends */
	return 0;
}
