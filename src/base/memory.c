/* SPDX-License-Identifier: Apache-2.0 */
/* Memory files, as far as the kernel's settings allow them. */
#include "base/memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/kernel.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

int memory_file(const char *name)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	/* With vm.memfd_noexec=2 there is none without it. */
	long fd =
		kernel_call4(SYS_memfd_create, (long)name, flags | MFD_NOEXEC_SEAL, 0, 0);

	if (fd == -EINVAL) /* before Linux 6.3 */
		fd = kernel_call4(SYS_memfd_create, (long)name, flags, 0, 0);
	return (int)fd;
}
