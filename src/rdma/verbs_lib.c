/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libibverbs. */
#include <dlfcn.h>

#include "base/real.h"
#include "rdma/verbs_lib.h"

static bool find(void *library, const char *name, void **entry)
{
	*entry = REAL_DLSYM(library, name);
	return *entry != NULL;
}

const struct verbs_lib *verbs_lib(void)
{
	static struct verbs_lib lib;
	static bool tried, is_there;
	void *library;

	if (tried)
		return is_there ? &lib : NULL;
	tried = true;
	library = REAL(dlopen)("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return NULL;
	is_there = true;
#define X(name) is_there = find(library, #name, (void **)&lib.name) && is_there;
	VERBS_FUNCTIONS(X)
#undef X
	return is_there ? &lib : NULL;
}
