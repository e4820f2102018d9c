/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks' programs end by when something that must hold does not. */
#ifndef VD_BENCH_NEED_H
#define VD_BENCH_NEED_H

#include <stdio.h>
#include <stdlib.h>

#define NEED(condition)                                                                  \
	do {                                                                             \
		if (!(condition)) {                                                      \
			fprintf(stderr, "%s: line %d\n", __FILE__, __LINE__);            \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

#endif
