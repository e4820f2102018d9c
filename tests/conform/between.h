/* SPDX-License-Identifier: Apache-2.0 */
/* For cases of what happens in the middle of a call: between.c, which is preloaded. */
#ifndef CONFORM_BETWEEN_H
#define CONFORM_BETWEEN_H

#include <dlfcn.h>

#include "conform/cases.h"

/* The function runs before and after each question of this thread to the kernel; NULL ends it. 0 or -errno. */
typedef long between_call(void (*function)(void));

static inline between_call *between_need(void)
{
	between_call *between = (between_call *)dlsym(RTLD_DEFAULT, "conform_between");

	if (!between)
		skip("needs between.so");
	return between;
}

#endif
