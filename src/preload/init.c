/* SPDX-License-Identifier: Apache-2.0 */
/* The library's start and end in a process. */
#include <elf.h>
#include <link.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/program.h"
#include "conn/report.h"
#include "preload/carry.h"
#include "preload/exec_kept.h"
#include "preload/go.h"
#include "preload/hook.h"
#include "preload/lent.h"
#include "settings/config.h"

struct main_program {
	bool is_go;
	uint64_t load_address;
};

/* Asked of the first object, which is the program itself. */
static int look_at_main(struct dl_phdr_info *object, size_t size, void *data)
{
	struct main_program *main = data;

	(void)size;
	main->load_address = object->dlpi_addr;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &object->dlpi_phdr[i];
		const char *at = (const char *)object->dlpi_addr + ph->p_vaddr;

		if (ph->p_type == PT_NOTE && program_note_of_go(at, ph->p_memsz))
			main->is_go = true;
	}
	return 1;
}

/*
 * A program in Go makes its system calls past the C library. Where they cannot be made to come
 * here, it stays on TCP as a whole, what its C parts do included, and says so now, since it will
 * not come by here at its end.
 */
static bool is_followed(void)
{
	struct main_program main = {0};
	const char *lacks;

	dl_iterate_phdr(look_at_main, &main);
	if (!main.is_go)
		return true;
	lacks = config_get()->go_followed ? go_join(main.load_address)
					  : "the setting go = leave holds";
	if (!lacks)
		return true;
	log_info("%s (%s): %s", reason_name(VD_REASON_RAW), reason_text(VD_REASON_RAW),
		 lacks);
	report_add(&report_now.reasons[VD_REASON_RAW], 1);
	report_write_now();
	return false;
}

#ifdef __GLIBC__
/*
 * The last that exit does: what is noted in a constructor of a library was there before the loader's part, in which the
 * destructors of all libraries run. Those that come after ours may still read.
 */
static void hook_last(int status, void *unused)
{
	(void)status, (void)unused;
	if (!hook_is_borrowed() && hook_active)
		sock_reset_unread();
}
#endif

/* False: nothing follows the destructors. */
static bool note_last(void)
{
#ifdef __GLIBC__
	return on_exit(hook_last, NULL) == 0;
#else
	return false;
#endif
}

static bool is_last_noted;

__attribute__((constructor)) static void hook_init(void)
{
	int saved = errno;

	at_quick_exit(hook_ends);
	is_last_noted = note_last();
	if (hook_begin(is_followed)) {
		signal_init();
		vfork_init();
		hook_active = true;
	}
	lent_init();
	carry_init();
	kept_init();
	errno = saved;
}

__attribute__((destructor)) static void hook_finish(void)
{
	if (hook_is_borrowed())
		return;
	stream_flush_all();
	if (is_last_noted)
		hook_ends_soon();
	else
		hook_ends();
}
