/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel about processes and their connections. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/tcp.h"
#include "daemon/owner.h"
#include "rendezvous/diag.h"

#define OVERFLOW_UID 65534u /* what a user is called who has no number in our namespace */

static uint64_t own_netns;
static bool all_users_have_numbers;

static bool user_namespace_is_first(void)
{
	unsigned inside, outside, count;
	char text[128];

	return kernel_read_text("/proc/self/uid_map", text, sizeof(text)) &&
	       sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
	       outside == 0 && count == 4294967295u;
}

/* Also has the socket made while there are descriptors. */
static int ask_once(void)
{
	static const struct name_end none = {.addr = {[10] = 0xff, [11] = 0xff}};
	struct diag_socket found;
	int r = diag_lookup(own_netns, &none, &none, 0, &found);

	return r < 0 ? r : 0;
}

int owner_init(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	r = tcp_netns_cookie(fd, &own_netns);
	close(fd);
	all_users_have_numbers = user_namespace_is_first();
	return r < 0 ? r : ask_once();
}

void owner_learn_program(struct owner *o)
{
	char path[64], text[2 * OWNER_PROGRAM_BYTES];
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)o->pid);
	if (!kernel_read_text(path, text, sizeof(text)))
		return;
	n = strcspn(text, "\n");
	n = n < OWNER_PROGRAM_BYTES ? n : OWNER_PROGRAM_BYTES - 1;
	memcpy(o->program, text, n);
	o->program[n] = '\0';
}

int owner_of_peer(int sock, struct owner *out)
{
	socklen_t size = sizeof(struct ucred);
	struct ucred cred;
	uint64_t netns;
	int r;

	memset(out, 0, sizeof(*out));
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	/* An accepted AF_UNIX socket lies in the namespace of who has connected. */
	r = tcp_netns_cookie(sock, &netns);
	if (r < 0)
		return r;
	out->pid = cred.pid;
	out->uid = cred.uid;
	out->same_netns = netns == own_netns;
	return 0;
}

bool owner_has_number(const struct owner *o)
{
	return o->uid != OVERFLOW_UID || all_users_have_numbers;
}

enum local_status owner_check(const struct owner *o, const struct name_end *local,
			      const struct name_end *peer, uint64_t *cookie)
{
	struct diag_socket found;

	if (!o->same_netns)
		return LOCAL_NETNS;
	if (!owner_has_number(o))
		return LOCAL_OWNER;
	if (diag_lookup(own_netns, local, peer, 0, &found) != 1 || found.inode == 0 ||
	    found.uid != o->uid || found.state == TCP_SYN_SENT ||
	    found.state == TCP_SYN_RECV)
		return LOCAL_OWNER;
	*cookie = found.cookie;
	return LOCAL_OK;
}
