/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a benchmark for people: what is in a cell fits its column. */
#include <string.h>

#include "measure/bench.h"
#include "unit/test.h"

static const char *ratio(double median, double least, double most)
{
	static char buf[64];

	return bench_format_ratio(
		buf, (struct bench_spread){
			     .n = 3, .median = median, .min = least, .max = most});
}

TEST(a_ratio_has_as_many_digits_as_tell_something)
{
	CHECK(!strcmp(ratio(8.152, 7.9, 8.305), "  8.15 (7.90..8.30)"));
	CHECK(!strcmp(ratio(1677.54, 130.03, 3225.05), "  1678 (130..3225)"));
	CHECK(!strcmp(ratio(99.994, 0.004, 99.996), " 99.99 (0.00..100)"));
}

TEST(a_ratio_fits_its_column)
{
	for (double most = 0.001; most < 9e4; most *= 1.37)
		for (double median = most; median > 1e-4; median /= 1.9)
			CHECK(strlen(ratio(median, median / 3, most)) <= 22);
}
