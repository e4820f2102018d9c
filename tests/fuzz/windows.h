/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers of links are given in the kernel's place: windows.c. */
#ifndef VD_TESTS_FUZZ_WINDOWS_H
#define VD_TESTS_FUZZ_WINDOWS_H

#include <stdint.h>

/* What the next random bytes follow from. */
extern uint64_t windows_random;

#endif
