/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of the log that strangers can cause: a few a second, and how many are left out. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"

static const uint8_t all[BUCKET_KEY_BYTES];

void notice(struct relay *r, const char *format, ...)
{
	char line[512];
	va_list args;

	if (log_level_now < LOG_INFO)
		return;
	if (!bucket_take(&r->by_log, all, r->now_ms)) {
		r->unlogged++;
		return;
	}
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	log_info("%s", line);
}

void notice_tick(struct relay *r)
{
	if (r->unlogged == 0 || !bucket_take(&r->by_log, all, r->now_ms))
		return;
	log_info("%llu more lines like these are left out",
		 (unsigned long long)r->unlogged);
	r->unlogged = 0;
}
