/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this is a child of vfork, which runs in its parent's memory. */
#include "base/borrowed.h"

#include <unistd.h>

_Thread_local pid_t borrowed_mark __attribute__((tls_model("initial-exec")));

bool borrowed_slow(void)
{
	if (getpid() != borrowed_mark)
		return true;
	borrowed_mark = 0;
	return false;
}
