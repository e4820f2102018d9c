/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is loaded with RTLD_DEEPBIND: it moves bytes by calls, pointers and names. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

SEEN ssize_t plugin_send(int fd, const void *buf, size_t len);
SEEN ssize_t plugin_recv(int fd, void *buf, size_t len);
SEEN ssize_t plugin_read(int fd, void *buf, size_t len);
SEEN ssize_t plugin_named(int fd, void *buf, size_t len);

#ifdef BEGINS
typedef ssize_t reader(int fd, void *buf, size_t len);

static reader **kept;

/* Keeps libc's functions where nobody finds them, and calls some. */
__attribute__((constructor)) static void begin(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	kept = calloc(2, sizeof(*kept));
	kept[0] = read;
	*(void **)&kept[1] = dlsym(RTLD_DEFAULT, "read");
	close(fd);
}
#endif

#ifdef OWN_READ
/* Meant for this library alone: the program's read is libc's. */
SEEN ssize_t read(int fd, void *buf, size_t len)
{
	ssize_t n = recv(fd, buf, len, 0);

	if (n > 0)
		*(char *)buf = '*';
	return n;
}
#endif

#ifndef BEGINS
static ssize_t (*const reads)(int fd, void *buf, size_t len) = read;
#endif

ssize_t plugin_send(int fd, const void *buf, size_t len)
{
	return send(fd, buf, len, 0);
}

ssize_t plugin_recv(int fd, void *buf, size_t len)
{
	return recv(fd, buf, len, 0);
}

ssize_t plugin_read(int fd, void *buf, size_t len)
{
#ifdef BEGINS
	static int turn;

	return kept[turn++ % 2](fd, buf, len);
#else
	ssize_t (*const volatile *by)(int fd, void *buf, size_t len) = &reads;

	return (*by)(fd, buf, len);
#endif
}

/* As the name is found in this library's order. */
ssize_t plugin_named(int fd, void *buf, size_t len)
{
	ssize_t (*found)(int fd, void *buf, size_t len, int flags);

	*(void **)&found = dlsym(RTLD_DEFAULT, "recv");
	return found(fd, buf, len, 0);
}
