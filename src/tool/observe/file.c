/* SPDX-License-Identifier: Apache-2.0 */
/* Opens memory files of other processes, which may show us anything under their names. */
#include "tool/observe/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* AT_STATX_DONT_SYNC: the kernel answers from what it has. A file system in user space is not
 * asked, because it may never answer. */
static int look(int fd, struct statx *st)
{
	unsigned mask = STATX_TYPE | STATX_INO | STATX_SIZE | STATX_UID;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, st) != 0 ? -errno
										: 0;
}

/* All memory files lie on one file system, which cannot be mounted. A file of our own tells
 * its number. */
static int memory_device(uint32_t *major, uint32_t *minor)
{
	struct statx st;
	int fd = memory_file("viaduct-look"), r;

	if (fd < 0)
		return fd;
	r = look(fd, &st);
	close(fd);
	*major = st.stx_dev_major;
	*minor = st.stx_dev_minor;
	return r;
}

static int judge(int probe, struct observe_file *out)
{
	uint32_t major = 0, minor = 0;
	struct statx st;
	int r = memory_device(&major, &minor);

	if (r == 0)
		r = look(probe, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.stx_mode) || st.stx_dev_major != major ||
	    st.stx_dev_minor != minor)
		return -ENXIO;
	out->inode = st.stx_ino;
	out->size = st.stx_size;
	out->uid = st.stx_uid;
	return 0;
}

int observe_file_open_at(int dir, const char *name, int access, struct observe_file *out)
{
	/* O_PATH takes hold of the file and opens nothing. */
	int probe = openat(dir, name, O_PATH | O_CLOEXEC), r;
	char path[40];

	out->fd = -1;
	if (probe < 0)
		return -errno;
	r = judge(probe, out);
	if (r == 0) {
		/* O_NONBLOCK: else a lease would hold us up. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", probe);
		out->fd = open(path, access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		r = out->fd < 0 ? -errno : 0;
	}
	close(probe);
	return r;
}

int observe_file_look(const char *path, struct observe_file *out)
{
	int probe = open(path, O_PATH | O_CLOEXEC), r;

	out->fd = -1;
	if (probe < 0)
		return -errno;
	r = judge(probe, out);
	close(probe);
	return r;
}

int observe_file_open(const char *path, int access, struct observe_file *out)
{
	return observe_file_open_at(AT_FDCWD, path, access, out);
}

bool observe_file_is_sealed(const struct observe_file *f)
{
	int seals = fcntl(f->fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK);
}
