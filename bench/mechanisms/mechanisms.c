/* SPDX-License-Identifier: Apache-2.0 */
/* Says which mechanisms the benchmark's own build of the engine lacks: VIADUCT_LACKS, a number. */
#include <stdlib.h>

#include "base/mechanism.h"

unsigned mechanisms_lacked;

__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("VIADUCT_LACKS");

	mechanisms_lacked = text ? (unsigned)strtoul(text, NULL, 10) : 0;
}
