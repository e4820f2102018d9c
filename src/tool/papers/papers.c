/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct papers: the experiments of the papers. Python runs them: bench/papers, which lies beside
 * this executable's build or is installed. It reads the command line, too. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/self.h"

int cmd_papers(int argc, char **argv)
{
	char program[PATH_MAX], **args = calloc((size_t)argc + 4, sizeof(*args));

	if (!args) {
		warn_line("viaduct papers: %s", strerror(errno));
		return 1;
	}
	self_find("bench/papers", VD_DATADIR "/papers", program, sizeof(program));
	args[0] = (char *)"python3";
	args[1] = (char *)"-B";
	args[2] = program;
	args[3] = (char *)self_program();
	memcpy(args + 4, argv + 1, (size_t)(argc - 1) * sizeof(*args));
	execvp(args[0], args);
	warn_line(
		"viaduct papers: the experiments are run by Python; python3: %s (Debian: "
		"apt-get install python3 python3-matplotlib python3-jinja2)",
		strerror(errno));
	free(args);
	return 1;
}
