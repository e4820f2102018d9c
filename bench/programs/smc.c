/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: TCP sockets become sockets of the kernel's SMC, as smc_run does it. With SMC_TOLD a
 * line in that file for each of them that is closed: "smc", or "tcp" if it has fallen back. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AF_SMC
#define AF_SMC 43
#endif
#define FILES 1024

static bool made[FILES];

int socket(int domain, int type, int protocol)
{
	bool is_tcp =
		(domain == AF_INET || domain == AF_INET6) && (type & 15) == SOCK_STREAM;
	int fd;

	if (is_tcp) {
		protocol = domain == AF_INET6; /* SMCPROTO_SMC6 : SMCPROTO_SMC */
		domain = AF_SMC;
	}
	fd = (int)syscall(SYS_socket, domain, type, protocol);
	if (fd >= 0 && fd < FILES)
		made[fd] = is_tcp;
	return fd;
}

/* A socket that falls back becomes that of TCP. */
int close(int fd)
{
	const char *name = getenv("SMC_TOLD");
	bool is_told = name && fd >= 0 && fd < FILES && made[fd];
	int domain = 0;
	socklen_t bytes = sizeof(domain);
	FILE *file;

	if (is_told && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 &&
	    (file = fopen(name, "a"))) {
		fprintf(file, "%s\n", domain == AF_SMC ? "smc" : "tcp");
		fclose(file);
	}
	if (is_told)
		made[fd] = false;
	return (int)syscall(SYS_close, fd);
}
