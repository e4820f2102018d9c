/* SPDX-License-Identifier: Apache-2.0 */
/* What all commands say of what is wrong, on standard error. */
#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"
#include "tool/cli.h"

static void put_line(const char *format, va_list args)
{
	char line[8192];

	vsnprintf(line, sizeof(line), format, args);
	printable(line);
	fprintf(stderr, "%s\n", line);
}

void warn_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put_line(format, args);
	va_end(args);
}

int usage_error(const char *command, const char *format, ...)
{
	va_list args;

	if (format) {
		fprintf(stderr, "viaduct %s: ", command);
		va_start(args, format);
		put_line(format, args);
		va_end(args);
	}
	fprintf(stderr, "usage: see `viaduct %s --help`\n", command);
	return EXIT_USAGE;
}
