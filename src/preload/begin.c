/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's start in a process: of the preloaded library, and of the native one. */
#include <pthread.h>
#include <string.h>

#include "base/await.h"
#include "base/brittle.h"
#include "base/log.h"
#include "base/sections.h"
#include "conn/report.h"
#include "preload/hook.h"
#include "readiness/ready.h"
#include "remote/peer.h"
#include "settings/config.h"

bool hook_active NEAR_DATA;

static bool has_tables(void)
{
	int r = fd_table_init();

	if (r == 0)
		return true;
	log_error("everything stays on TCP: %s (%s); remedy: %s",
		  reason_name(VD_REASON_MEMORY), strerror(-r),
		  reason_remedy(VD_REASON_MEMORY));
	report_add(&report_now.reasons[VD_REASON_MEMORY], 1);
	return false;
}

static bool is_wanted(void)
{
	const struct config *config = config_get();

	log_info("loaded into %s%s", config->program,
		 config->off ? ", and switched off: its connections stay on TCP" : "");
	return !config->off;
}

/* Sockets that were made before this runs stay unknown, and so on TCP. */
bool hook_begin(bool (*suits)(void))
{
	if (!real_ready)
		real_resolve();
	clock_init();
	await_learn_limit();
	brittle_learn();
	/* Without the handler a child would take itself for its parent. */
	if (pthread_atfork(hook_forking, hook_forked_unwrapped, hook_forked_child) != 0 ||
	    !is_wanted() || (suits && !suits()) || !has_tables())
		return false;
	remote_register();
	ready_init();
	announce_init();
	return true;
}
