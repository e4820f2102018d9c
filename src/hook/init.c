/* SPDX-License-Identifier: Apache-2.0 */
/* The library's start and end in a process. */
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/lock.h"
#include "base/report.h"
#include "hook/hook.h"
#include "sock/ready.h"

/* Sockets of one family of processes; the memory of those never used is never touched. */
#define SLOTS 65536u

bool hook_active;

static void report_at_quick_exit(void)
{
	report_write();
}

/* Sockets that were made before this runs stay unknown, and so on TCP. */
__attribute__((constructor)) static void hook_init(void)
{
	int saved = errno;

	if (!real_ready)
		real_resolve();
	at_quick_exit(report_at_quick_exit);
	/* Without the handler a child would take itself for its parent. */
	if (pthread_atfork(NULL, NULL, hook_forked_child) == 0 && !config_get()->off &&
	    slot_table_init(SLOTS) == 0) {
		ready_init();
		hook_active = true;
	}
	errno = saved;
}

__attribute__((destructor)) static void hook_finish(void)
{
	if (!hook_is_borrowed())
		report_write();
}
