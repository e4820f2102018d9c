/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: TCP sockets become sockets of the kernel's SMC, as smc_run does it. */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AF_SMC
#define AF_SMC 43
#endif

int socket(int domain, int type, int protocol)
{
	if ((domain == AF_INET || domain == AF_INET6) && (type & 15) == SOCK_STREAM) {
		protocol = domain == AF_INET6; /* SMCPROTO_SMC6 : SMCPROTO_SMC */
		domain = AF_SMC;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}
