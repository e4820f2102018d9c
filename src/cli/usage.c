/* SPDX-License-Identifier: Apache-2.0 */
/* What all commands say of a wrong command line. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/cli.h"

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
