/* SPDX-License-Identifier: Apache-2.0 */
/* A command that looks at hostile processes keeps no more of root's rights than it needs. */
#include "tool/rights.h"

#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

static uint64_t bit(int capability)
{
	return (uint64_t)1 << capability;
}

static uint64_t mask_of(unsigned rights)
{
	uint64_t mask = 0;

	if (rights & RIGHTS_LOOK)
		mask |= bit(CAP_SYS_PTRACE) | bit(CAP_DAC_READ_SEARCH) |
			bit(CAP_CHECKPOINT_RESTORE);
	if (rights & RIGHTS_NAMESPACES)
		mask |= bit(CAP_SYS_ADMIN) | bit(CAP_NET_ADMIN);
	if (rights & RIGHTS_FILES)
		mask |= bit(CAP_DAC_OVERRIDE);
	return mask;
}

void rights_keep(unsigned rights)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint64_t mask = mask_of(rights);

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_capget, &head, data) != 0)
		return;
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(mask >> 32 * i);
		data[i].effective &= (uint32_t)(mask >> 32 * i);
		data[i].inheritable = 0;
	}
	/* To have fewer is always allowed. */
	syscall(SYS_capset, &head, data);
}
