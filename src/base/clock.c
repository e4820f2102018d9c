/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's clocks, past libraries that give the program others. */
#include "base/clock.h"

#include <dlfcn.h>
#include <gnu/lib-names.h>
#include <gnu/libc-version.h>
#include <stdbool.h>

#include "base/real.h"
#include "base/sections.h"

int (*clock_read)(clockid_t clock, struct timespec *t) NEAR_DATA = clock_gettime;

/* Nearly always: then nothing has to be looked up by name. */
static bool is_of_libc(void)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
	struct dl_find_object own, libc;

	return _dl_find_object((void *)clock_read, &own) == 0 &&
	       _dl_find_object((void *)gnu_get_libc_version, &libc) == 0 &&
	       own.dlfo_link_map == libc.dlfo_link_map;
#else
	return false;
#endif
}

void clock_init(void)
{
	void *libc, *own;

	if (is_of_libc())
		return;
	libc = REAL(dlopen)(LIBC_SO, RTLD_LAZY | RTLD_NOLOAD);
	if (!libc)
		return;
	own = REAL_DLSYM(libc, "clock_gettime");
	if (own)
		*(void **)&clock_read = own;
	dlclose(libc);
}
