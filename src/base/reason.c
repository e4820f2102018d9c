/* SPDX-License-Identifier: Apache-2.0 */
/* The words for each reason to stay on kernel TCP. */
#include <stddef.h>

#include "base/reason.h"

static const struct {
	const char *name, *text, *remedy;
} reasons[] = {
#define X(num, NAME, name, text, remedy) [num] = {name, text, remedy},
	VD_REASONS(X)
#undef X
};

/* The number may come from shared memory or an older log, so holes must be survived. */
static int reason_known(uint32_t reason)
{
	return reason < sizeof(reasons) / sizeof(reasons[0]) && reasons[reason].name;
}

const char *reason_name(uint32_t reason)
{
	return reason_known(reason) ? reasons[reason].name : "unknown";
}

const char *reason_text(uint32_t reason)
{
	return reason_known(reason) ? reasons[reason].text : "unknown";
}

const char *reason_remedy(uint32_t reason)
{
	return reason_known(reason) ? reasons[reason].remedy : "unknown";
}
