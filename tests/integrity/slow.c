/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind Viaduct: the kernel is told of a shutdown late, as on a machine that has put the
 * thread off its processor. What the peer has seen in memory by then must suffice, or be enough to
 * wait for the rest. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static _Atomic unsigned most_us;

void integrity_slow(unsigned us);

void integrity_slow(unsigned us)
{
	most_us = us;
}

int shutdown(int fd, int how)
{
	int (*next)(int, int);
	*(void **)&next = dlsym(RTLD_NEXT, "shutdown");
	if (most_us)
		usleep((unsigned)random() % most_us);
	return next(fd, how);
}
