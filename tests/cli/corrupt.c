/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a bench: spoils one byte that its server gets early, or one of each piece later, or what
 * is copied between processes. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* One end only: two spoilt bytes at one place would cancel out. */
static bool is_server(void)
{
	char line[2048];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, line, sizeof(line));
	close(fd);
	return n > 0 && memmem(line, (size_t)n, "server", 7);
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t len,
						    int flags)
{
	static ssize_t (*real)(int, void *, size_t, int);
	static size_t total;
	const char *how = getenv("CORRUPT");
	ssize_t n;

	static bool wanted;
	if (!real) {
		*(void **)&real = dlsym(RTLD_NEXT, "recv");
		wanted = is_server();
	}
	n = real(fd, buf, len, flags);
	if (n <= 0 || !how || !wanted)
		return n;
	/* One piece amid the checked round trips that open a connection, or all that come after them
	 * (role.c, check_connections): the first of these comes however busy the machine is. */
	bool late = !strcmp(how, "late");
	size_t at = late ? 512 * 128 + 1 : 1000;
	/* What is short controls a measurement. */
	if ((late ? n >= 1024 : total < at) && total + (size_t)n >= at)
		((unsigned char *)buf)[0] ^= 1;
	total += (size_t)n;
	return n;
}

/* Messages only: one byte is a question whether it may be done at all. */
static void spoil(const struct iovec *local)
{
	const char *how = getenv("CORRUPT");
	if (how && !strcmp(how, "copy") && local->iov_len > 1)
		((unsigned char *)local->iov_base)[0] ^= 1;
}

__attribute__((visibility("default"))) ssize_t
process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
		  const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	spoil(local);
	return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}

__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
		 const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	ssize_t n =
		syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
	spoil(local);
	return n;
}
