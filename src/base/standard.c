/* SPDX-License-Identifier: Apache-2.0 */
/* The standard descriptors of a command: what it may find closed, and what it could not write. */
#include "base/standard.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void standard_fill(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int standard_end(const char *who, int status)
{
	if ((fflush(stdout) || ferror(stdout)) && status == 0) {
		fprintf(stderr, "%s: standard output cannot be written\n", who);
		return 1;
	}
	return status;
}
