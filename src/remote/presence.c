/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a socket of viaductd is there, without asking the kernel each time. */
#include <unistd.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "remote/parts.h"
#include "remote/presence.h"

bool presence_look(struct presence *p, const char *path)
{
	/* Acquire: whoever sees the time of a look sees its answer, or a later one. */
	uint64_t now = clock_coarse_ms(), looked = load_acquire(&p->looked_ms);

	if (looked == 0 || now - looked >= RETRY_MS) {
		store_relaxed(&p->is_there, kernel_call4(SYS_access, (long)path,
							 R_OK | W_OK, 0, 0) == 0);
		store_release(&p->looked_ms, now);
	}
	return load_relaxed(&p->is_there);
}
