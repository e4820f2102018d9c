/* SPDX-License-Identifier: Apache-2.0 */
/* How often TCP has waited before it acknowledged, as the kernel counts it. */
#include <stdlib.h>
#include <string.h>

#include "measure/pair.h"

/* Of a pair of lines of /proc/net/netstat, names and values, in the same order. */
static uint64_t value_of(char *names, char *values, const char *wanted)
{
	char *name_rest, *value_rest;
	const char *name = strtok_r(names, " \n", &name_rest);
	const char *value = strtok_r(values, " \n", &value_rest);

	while (name && value && strcmp(name, wanted) != 0) {
		name = strtok_r(NULL, " \n", &name_rest);
		value = strtok_r(NULL, " \n", &value_rest);
	}
	return name && value ? strtoull(value, NULL, 10) : 0;
}

uint64_t late_acks(void)
{
	FILE *f = fopen("/proc/net/netstat", "re");
	char *names = NULL, *values = NULL;
	size_t names_size = 0, values_size = 0;
	uint64_t n = 0;

	while (f && !n && getline(&names, &names_size, f) > 0 &&
	       getline(&values, &values_size, f) > 0)
		n = value_of(names, values, "DelayedACKs");
	free(names);
	free(values);
	if (f)
		fclose(f);
	return n;
}
