/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the C library's own functions, past the ones that Viaduct interposes. */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/real.h"
#include "base/sections.h"

struct real real_table NEAR_DATA;
int real_ready NEAR_DATA;

/* Stands in for a function that this libc lacks, exactly as an old kernel would answer.
 */
static long real_missing(void)
{
	errno = ENOSYS;
	return -1;
}

/* Sanitizers ask before they can be called themselves. */
__attribute__((no_sanitize("thread", "address", "undefined"))) void *real_dlsym(void)
{
#ifdef __GLIBC__
	static void *kept;
	void *found = __atomic_load_n(&kept, __ATOMIC_RELAXED);

	if (!found) {
		/* Each glibc has it by this version. Whoever comes at once finds as much. */
		found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		__atomic_store_n(&kept, found, __ATOMIC_RELAXED);
	}
	return found;
#else
	return (void *)dlsym;
#endif
}

/* True when the symbol is defined in the object that holds this very function. */
static bool real_is_own(void *symbol)
{
	Dl_info own, other;

	return dladdr((void *)&real_table, &own) && dladdr(symbol, &other) &&
	       own.dli_fbase == other.dli_fbase;
}

static void *real_find(const char *name)
{
	char plain[32];
	size_t len = strlen(name);
	void *symbol = REAL_DLSYM(RTLD_NEXT, name);

	/* Nothing comes after us when we were opened late and locally; but then the
	 * global order may begin with ourselves. */
	if (!symbol) {
		symbol = REAL_DLSYM(RTLD_DEFAULT, name);
		if (symbol && real_is_own(symbol))
			symbol = NULL;
	}
	/* A libc whose off_t always has 64 bits may know only the plain name. */
	if (!symbol && len > 2 && len < sizeof(plain) && !strcmp(name + len - 2, "64")) {
		memcpy(plain, name, len - 2);
		plain[len - 2] = '\0';
		return real_find(plain);
	}
#ifndef __GLIBC__
	if (!symbol)
		symbol = real_lacking(name);
#endif
	return symbol;
}

void *real_late(const char *name)
{
	return real_find(name);
}

/*
 * No lock and no once: a lock could not be had in a child forked while it was held.
 * Threads that arrive together store the same symbols.
 */
static void real_fill(void **entry, const char *name)
{
	void *symbol = real_find(name);

	/* Relaxed: the flag publishes it. */
	__atomic_store_n(entry, symbol ? symbol : (void *)real_missing, __ATOMIC_RELAXED);
}

void real_resolve(void)
{
	int saved = errno;

#define X(ret, name, params) real_fill((void **)&real_table.name, #name);
	VD_REAL(X)
#undef X
#ifndef __GLIBC__
	dlerror(); /* musl lacks some, and would tell the program of that */
#endif
	/* Release: whoever sees the flag (acquire, in REAL) sees the whole table. */
	__atomic_store_n(&real_ready, 1, __ATOMIC_RELEASE);
	errno = saved;
}
