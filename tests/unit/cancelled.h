/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that cancel threads: AddressSanitizer is to hold its hand. */
#ifndef VD_TESTS_UNIT_CANCELLED_H
#define VD_TESTS_UNIT_CANCELLED_H

#ifdef __SANITIZE_ADDRESS__
/*
 * A thread that is cancelled leaves the marks of its frames on its stack. AddressSanitizer's own end of the thread
 * runs there next, and where it takes down its stack for signals it finds them.
 */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "use_sigaltstack=0";
}
#endif

#endif
