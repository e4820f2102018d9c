/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files whose names others choose. */
#include "base/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/vfs.h>

#include "base/kernel.h"
#include "base/put.h"

/* Not in linux/magic.h. */
#define CONFIGFS_MAGIC 0x62656570
#define FUSECTL_MAGIC  0x65735543
#define MQUEUE_MAGIC   0x19800202

/* The kernel's own file systems: to read some of their files has effects, and reading others may not end. */
static bool is_of_kernel(int fd)
{
	static const uint32_t those[] = {
		PROC_SUPER_MAGIC,    SYSFS_MAGIC,      DEBUGFS_MAGIC,
		TRACEFS_MAGIC,	     SECURITYFS_MAGIC, SELINUX_MAGIC,
		SMACK_MAGIC,	     AAFS_MAGIC,       BPF_FS_MAGIC,
		PSTOREFS_MAGIC,	     EFIVARFS_MAGIC,   CGROUP_SUPER_MAGIC,
		NSFS_MAGIC,	     BINFMTFS_MAGIC,   RDTGROUP_SUPER_MAGIC,
		XENFS_SUPER_MAGIC,   CONFIGFS_MAGIC,   FUSECTL_MAGIC,
		CGROUP2_SUPER_MAGIC, MQUEUE_MAGIC};
	struct statfs fs;

	if (kernel_call4(SYS_fstatfs, fd, (long)&fs, 0, 0) < 0)
		return true;
	for (unsigned i = 0; i < sizeof(those) / sizeof(those[0]); i++)
		if ((uint32_t)fs.f_type == those[i])
			return true;
	return false;
}

int regular_open(const char *path)
{
	/* O_PATH takes hold of the file and opens nothing. */
	int probe = kernel_open(path, O_PATH | O_CLOEXEC, 0), fd = -ENOEXEC;
	struct stat st;
	char name[40];

	if (probe < 0)
		return probe;
	if (kernel_fstat(probe, &st) == 0 && S_ISREG(st.st_mode) &&
	    !is_of_kernel(probe)) {
		put_number(put_text(name, "/proc/self/fd/"), probe);
		fd = kernel_open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	}
	/* Without /proc nothing but the name is left. */
	if (fd == -ENOENT)
		fd = kernel_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	kernel_close(probe);
	return fd;
}
