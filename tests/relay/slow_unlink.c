/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into daemons that start together: what they have seen is old when a name is removed. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int unlink(const char *path)
{
	dprintf(STDERR_FILENO, "slow unlink\n");
	usleep(50000);
	return (int)syscall(SYS_unlink, path);
}
