/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the unit tests' harness, for their pairs and rigs: a check that fails ends it. */
#ifndef VD_TESTS_FUZZ_RIG_H
#define VD_TESTS_FUZZ_RIG_H

#ifdef VD_TESTS_UNIT_TEST_H
#error "include fuzz/rig.h before what includes unit/test.h"
#endif
#define VD_TESTS_UNIT_TEST_H

#include <stdatomic.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

/* Whoever runs a fuzzer has limits of his own. */
#define PAIR_ALARM_S 0

__attribute__((unused)) static _Atomic int test_failures;

#define REQUIRE(cond)	    FUZZ_CHECK(cond)
#define CHECK(cond)	    FUZZ_CHECK(cond)
#define CHECK_EQ(got, want) FUZZ_CHECK((long long)(got) == (long long)(want))
#define FDS_SETTLED()	    ((void)0)

#endif
