/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files whose names others choose. */
#include "base/regular.h"

#include <errno.h>
#include <fcntl.h>

#include "base/kernel.h"
#include "base/put.h"

int regular_open(const char *path)
{
	/* O_PATH takes hold of the file and opens nothing. */
	int probe = kernel_open(path, O_PATH | O_CLOEXEC, 0), fd = -ENOEXEC;
	struct stat st;
	char name[40];

	if (probe < 0)
		return probe;
	if (kernel_fstat(probe, &st) == 0 && S_ISREG(st.st_mode)) {
		put_number(put_text(name, "/proc/self/fd/"), probe);
		fd = kernel_open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	}
	/* Without /proc nothing but the name is left. */
	if (fd == -ENOENT)
		fd = kernel_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	kernel_close(probe);
	return fd;
}
