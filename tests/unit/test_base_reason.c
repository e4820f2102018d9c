/* SPDX-License-Identifier: Apache-2.0 */
/* The list of reasons is complete, and unknown numbers are survived. */
#include "base/reason.h"
#include "unit/test.h"

TEST(each_reason_has_its_words)
{
	for (uint32_t i = 0; i < VD_REASON_COUNT; i++) {
		CHECK(strcmp(reason_name(i), "unknown") != 0);
		CHECK(strlen(reason_name(i)) > 0);
		CHECK(strlen(reason_text(i)) > 0);
		CHECK(strlen(reason_remedy(i)) > 0);
		for (uint32_t j = 0; j < i; j++)
			CHECK(strcmp(reason_name(i), reason_name(j)) != 0);
	}
}

TEST(numbers_are_stable)
{
	CHECK_STR(reason_name(0), "none");
	CHECK_STR(reason_name(2), "plain-peer");
	CHECK_STR(reason_name(15), "shared");
	CHECK_STR(reason_name(32), "kernel");
	CHECK_STR(reason_name(33), "ended");
	CHECK_STR(reason_remedy(VD_REASON_FD_LIMIT), "raise `ulimit -n`");
}

TEST(unknown_numbers)
{
	CHECK_STR(reason_name(VD_REASON_COUNT), "unknown");
	CHECK_STR(reason_text(UINT32_MAX), "unknown");
	CHECK_STR(reason_remedy(1000), "unknown");
}
