/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this is a child of vfork, which runs in its parent's memory. */
#include "base/kernel.h"
#include "base/borrowed.h"
#include "base/sigsafe.h"

#include <unistd.h>

_Thread_local pid_t borrowed_mark __attribute__((tls_model("initial-exec")));

int (*borrowed_known)(void);

int borrowed_now(void)
{
	int known = borrowed_known ? borrowed_known() : 0;

	return known ? known : kernel_getpid();
}

bool borrowed_slow(void)
{
	if (borrowed_now() != borrowed_mark)
		return true;
	if (!crit_comes_back)
		borrowed_mark = 0;
	return false;
}
