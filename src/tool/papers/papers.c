/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct papers: the experiments of the papers. Python runs them: bench/papers, which lies beside
 * this executable's build or is installed. It reads the command line, too. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/cli.h"

int cmd_papers(int argc, char **argv)
{
	static char program[PATH_MAX + 16];
	char self[PATH_MAX], **args = calloc((size_t)argc + 4, sizeof(*args));
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!args || n <= 0) {
		warn_line("viaduct papers: %s", strerror(errno));
		return 1;
	}
	self[n] = 0;
	snprintf(program, sizeof(program), "%.*s/bench/papers",
		 (int)(strrchr(self, '/') - self), self);
	if (access(program, R_OK) != 0)
		snprintf(program, sizeof(program), "%s/papers", VD_DATADIR);
	args[0] = (char *)"python3";
	args[1] = (char *)"-B";
	args[2] = program;
	args[3] = self;
	memcpy(args + 4, argv + 1, (size_t)(argc - 1) * sizeof(*args));
	execvp(args[0], args);
	warn_line(
		"viaduct papers: the experiments are run by Python; python3: %s (Debian: "
		"apt-get install python3 python3-matplotlib python3-jinja2)",
		strerror(errno));
	free(args);
	return 1;
}
