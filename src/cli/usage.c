/* SPDX-License-Identifier: Apache-2.0 */
/* What all commands say of what is wrong, on standard error. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/cli.h"

void warn_line(const char *format, ...)
{
	char line[8192];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	for (char *at = line; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	fprintf(stderr, "%s\n", line);
}

int usage_error(const char *command, const char *format, ...)
{
	va_list args;

	if (format) {
		fprintf(stderr, "viaduct %s: ", command);
		va_start(args, format);
		vfprintf(stderr, format, args);
		va_end(args);
		fputc('\n', stderr);
	}
	fprintf(stderr, "usage: see `viaduct %s --help`\n", command);
	return EXIT_USAGE;
}
