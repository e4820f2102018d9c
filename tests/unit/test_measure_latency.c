/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles of counted times against those of the sorted times. */
#include <stdlib.h>

#include "measure/latency.h"
#include "unit/test.h"

enum { TIMES = 20000 };

static struct latencies l;
static uint64_t times[TIMES];

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void begin(unsigned bits)
{
	l = (struct latencies){0};
	srandom(bits);
	for (int i = 0; i < TIMES; i++) {
		times[i] = ((uint64_t)random() << 31 | (uint64_t)random()) >>
			   (62 - bits + (unsigned)random() % bits);
		latencies_add(&l, times[i]);
	}
	qsort(times, TIMES, sizeof(times[0]), by_value);
}

TEST(a_percentile_is_known_to_one_percent)
{
	for (unsigned bits = 1; bits <= LATENCY_BITS_MAX; bits++) {
		begin(bits);
		for (double share = 0.001; share <= 1; share += 0.0123) {
			int at = share * TIMES > (int)(share * TIMES)
					 ? (int)(share * TIMES)
					 : (int)(share * TIMES) - 1;
			double exact = (double)times[at], found = latencies_at(&l, share);

			CHECK(found >= 0.99 * exact && found <= 1.01 * exact);
		}
	}
}

TEST(the_ends_of_what_can_be_counted)
{
	l = (struct latencies){0};
	CHECK(latencies_at(&l, 0.5) == 0);
	latencies_add(&l, 0);
	CHECK(latencies_at(&l, 1) == 0);
	latencies_add(&l, UINT64_MAX);
	CHECK(latencies_at(&l, 0.5) == 0);
	CHECK(latencies_at(&l, 1) > 0.99 * (double)(UINT64_C(1) << LATENCY_BITS_MAX));
	for (int i = 0; i < 998; i++)
		latencies_add(&l, 7);
	CHECK(latencies_at(&l, 0.999) == 7);
}
