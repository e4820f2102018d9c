/* SPDX-License-Identifier: Apache-2.0 */
/* The library's start and end in a process. */
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/await.h"
#include "base/config.h"
#include "base/log.h"
#include "base/place.h"
#include "base/program.h"
#include "base/report.h"
#include "hook/carry.h"
#include "hook/hook.h"
#include "sock/ready.h"

/* Sockets of one family of processes; the memory of those never used is never touched. */

bool hook_active NEAR_DATA;

/* Asked of the first object, which is the program itself. */
static int find_go(struct dl_phdr_info *object, size_t size, void *found)
{
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &object->dlpi_phdr[i];
		const char *at = (const char *)object->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_NOTE && program_note_of_go(at, ph->p_memsz))
			*(bool *)found = true;
	}
	return 1;
}

/*
 * A program in Go opens, uses and ends without a call of ours: it stays on TCP as a whole, what
 * its C parts do included, and says so now, since it will not come by here at its end.
 */
static bool is_go(void)
{
	bool found = false;

	dl_iterate_phdr(find_go, &found);
	if (!found)
		return false;
	log_info("%s (%s)", reason_name(VD_REASON_RAW), reason_text(VD_REASON_RAW));
	report_add(&report_now.reasons[VD_REASON_RAW], 1);
	report_write_now();
	return true;
}

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
__attribute__((constructor)) static void hook_init(void)
{
	int saved = errno;

	if (!real_ready)
		real_resolve();
	clock_init();
	await_learn_limit();
	at_quick_exit(hook_report);
	/* Without the handler a child would take itself for its parent. */
	if (pthread_atfork(hook_forking, hook_forked_unwrapped, hook_forked_child) == 0 &&
	    is_wanted() && !is_go() && has_tables()) {
		ready_init();
		announce_init();
		signal_init();
		hook_active = true;
	}
	carry_init();
	errno = saved;
}

__attribute__((destructor)) static void hook_finish(void)
{
	if (!hook_is_borrowed())
		hook_report();
}
