/* SPDX-License-Identifier: Apache-2.0 */
/* The process's side of viaductd's local protocol. */
#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include <sys/uio.h>

#include "base/kernel.h"
#include "base/real.h"
#include "daemon_client/caller.h"

int caller_open(const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd, r;

	if (strlen(path) >= sizeof(name.sun_path))
		return -ENAMETOOLONG;
	strcpy(name.sun_path, path);
	fd = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	r = kernel_connect(fd, (struct sockaddr *)&name, sizeof(name));
	if (r < 0) {
		kernel_close(fd);
		return r;
	}
	return fd;
}

int caller_say(int fd, enum local_type type, uint32_t id, const struct name_end *local,
	       const struct name_end *peer, enum local_status status, const void *hello,
	       size_t hello_bytes)
{
	struct local_message m;
	struct iovec iov[2] = {{&m, LOCAL_HEAD_BYTES}, {(void *)hello, hello_bytes}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = hello_bytes ? 2 : 1};
	ssize_t n;

	if (hello_bytes > LOCAL_HELLO_MAX)
		return -EMSGSIZE;
	memset(&m, 0, LOCAL_HEAD_BYTES);
	m.version = LOCAL_PROTOCOL;
	m.type = (uint8_t)type;
	m.status = (uint8_t)status;
	m.id = id;
	if (local)
		m.local = *local;
	if (peer)
		m.peer = *peer;
	n = kernel_sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? (int)n : 0;
}

int caller_hear(int fd, struct local_message *m)
{
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = kernel_recvmsg(fd, &msg, MSG_DONTWAIT);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -EPIPE;
	if (msg.msg_flags & MSG_TRUNC || local_check(m, (size_t)n, false) != LOCAL_OK)
		return -EPROTO;
	return (int)((size_t)n - LOCAL_HEAD_BYTES);
}
