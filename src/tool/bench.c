/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct bench: executes the benchmark, a program of its own (bench/measure), which lies beside this
 * executable's build or is installed. It reads the command line, too. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/self.h"

int cmd_bench(int argc, char **argv)
{
	char program[PATH_MAX], **args = calloc((size_t)argc + 2, sizeof(*args));

	if (!args) {
		warn_line("viaduct bench: %s", strerror(errno));
		return 1;
	}
	self_find("bench/measure/viaduct-bench", VD_LIBEXECDIR "/viaduct-bench", program,
		  sizeof(program));
	args[0] = (char *)"viaduct-bench";
	args[1] = (char *)self_program();
	memcpy(args + 2, argv + 1, (size_t)(argc - 1) * sizeof(*args));
	execv(program, args);
	warn_line("viaduct bench: the benchmark is a program of its own; %s: %s", program,
		  strerror(errno));
	free(args);
	return 1;
}
