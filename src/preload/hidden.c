/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's own descriptors are not there for a program that looks for open ones. */
#include <errno.h>
#include <sys/stat.h>

#include "base/fds.h"
#include "base/real.h"
#include "preload/hook.h"

bool hook_hidden(int fd)
{
	if (!fds_is_ours(fd))
		return false;
	errno = EBADF;
	return true;
}

HOOK int fstat(int fd, struct stat *st)
{
	return hook_hidden(fd) ? -1 : REAL(fstat)(fd, st);
}

HOOK int fstat64(int fd, struct stat64 *st)
{
	return hook_hidden(fd) ? -1 : REAL(fstat64)(fd, st);
}
