/* SPDX-License-Identifier: Apache-2.0 */
/* Finds variables of the environment whose names are one slip away from a setting's. */
#include <string.h>
#include <unistd.h>

#include "settings/value.h"
#include "tool/variable.h"

#define PREFIX "VIADUCT_"

static const char *const others[] = {"VIADUCT_CONFIG", "VIADUCT_RULES"};

enum { OTHERS = sizeof(others) / sizeof(others[0]), KNOWN = VALUE_COUNT + OTHERS };

static const char *known(size_t i)
{
	return i < VALUE_COUNT ? value_table[i].variable : others[i - VALUE_COUNT];
}

bool variable_one_slip(const char *a, size_t n, const char *b, size_t m)
{
	size_t at = 0;

	if (n > m)
		return variable_one_slip(b, m, a, n);
	while (at < n && a[at] == b[at])
		at++;
	if (m - n == 1)
		return !memcmp(a + at, b + at + 1, n - at);
	if (m != n || at == n)
		return false;
	if (!memcmp(a + at + 1, b + at + 1, n - at - 1))
		return true;
	return n - at >= 2 && a[at] == b[at + 1] && a[at + 1] == b[at] &&
	       !memcmp(a + at + 2, b + at + 2, n - at - 2);
}

static const char *meant(const char *name, size_t length)
{
	const char *found = NULL;

	for (size_t i = 0; i < KNOWN; i++) {
		size_t n = strlen(known(i));

		if (n == length && !memcmp(known(i), name, n))
			return NULL;
		if (!found && variable_one_slip(name, length, known(i), n))
			found = known(i);
	}
	return found;
}

void variable_slips(variable_slip *say, void *context)
{
	for (char **at = environ; at && *at; at++) {
		size_t length = strcspn(*at, "=");
		const char *name = strncmp(*at, PREFIX, strlen(PREFIX)) == 0
					   ? meant(*at, length)
					   : NULL;

		if (name)
			say(context, *at, name);
	}
}
