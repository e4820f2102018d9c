/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files that processes append lines to, at a name where somebody else may have put another. */
#include "base/appended.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/kernel.h"

/* O_NONBLOCK: a FIFO that nobody reads must not hold the program up. */
#define FLAGS (O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

static bool is_own_link(const char *path)
{
	struct stat st;
	int fd = kernel_open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	bool own = fd >= 0 && kernel_fstat(fd, &st) == 0 && S_ISLNK(st.st_mode) &&
		   (st.st_uid == 0 || st.st_uid == kernel_geteuid());

	if (fd >= 0)
		kernel_close(fd);
	return own;
}

static int judge(int fd)
{
	struct stat st;
	int r = kernel_fstat(fd, &st);

	if (r < 0)
		return r;
	if (S_ISBLK(st.st_mode))
		return -EINVAL;
	return S_ISREG(st.st_mode) && st.st_nlink > 1 ? -EMLINK : 0;
}

int appended_open(const char *path, mode_t mode, bool links)
{
	int fd = kernel_open(path, FLAGS | O_NOFOLLOW, mode), r;

	if (fd == -ELOOP && links && is_own_link(path))
		fd = kernel_open(path, FLAGS, mode);
	if (fd < 0)
		return fd;
	r = judge(fd);
	if (r < 0)
		kernel_close(fd);
	return r < 0 ? r : fd;
}
