/* SPDX-License-Identifier: Apache-2.0 */
/* musl's header, with dladdr1 made of what there is. */
#ifndef VD_MUSL_DLFCN_H
#define VD_MUSL_DLFCN_H

#include_next <dlfcn.h>

#define RTLD_DL_LINKMAP 2

/* Objects stay where they are: musl's dlclose unloads nothing. */
static inline int dladdr1(const void *address, Dl_info *info, void **extra, int flags)
{
	void *object;

	if (flags != RTLD_DL_LINKMAP || !dladdr(address, info))
		return 0;
	object = dlopen(info->dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	return object && dlinfo(object, RTLD_DI_LINKMAP, extra) == 0;
}

#endif
