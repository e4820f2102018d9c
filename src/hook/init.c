/* SPDX-License-Identifier: Apache-2.0 */
/* The library's start and end in a process. */
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "hook/hook.h"
#include "sock/ready.h"

/* Sockets of one family of processes; the memory of those never used is never touched. */

bool hook_active;

/* Sockets that were made before this runs stay unknown, and so on TCP. */
__attribute__((constructor)) static void hook_init(void)
{
	int saved = errno;

	if (!real_ready)
		real_resolve();
	at_quick_exit(hook_report);
	/* Without the handler a child would take itself for its parent. */
	if (pthread_atfork(hook_forking, hook_forked_unwrapped, hook_forked_child) == 0 &&
	    !config_get()->off && fd_table_init() == 0) {
		ready_init();
		announce_init();
		signal_init();
		hook_active = true;
	}
	errno = saved;
}

__attribute__((destructor)) static void hook_finish(void)
{
	if (!hook_is_borrowed())
		hook_report();
}
