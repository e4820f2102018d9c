/* SPDX-License-Identifier: Apache-2.0 */
/* The library's start and end in a process. */
#include <elf.h>
#include <link.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/program.h"
#include "conn/report.h"
#include "preload/carry.h"
#include "preload/hook.h"

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
static bool is_not_go(void)
{
	bool found = false;

	dl_iterate_phdr(find_go, &found);
	if (!found)
		return true;
	log_info("%s (%s)", reason_name(VD_REASON_RAW), reason_text(VD_REASON_RAW));
	report_add(&report_now.reasons[VD_REASON_RAW], 1);
	report_write_now();
	return false;
}

__attribute__((constructor)) static void hook_init(void)
{
	int saved = errno;

	at_quick_exit(hook_ends);
	if (hook_begin(is_not_go)) {
		signal_init();
		hook_active = true;
	}
	carry_init();
	errno = saved;
}

__attribute__((destructor)) static void hook_finish(void)
{
	if (!hook_is_borrowed())
		hook_ends();
}
