/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct report: plots and one page of what `viaduct bench` has measured. Python draws them:
 * bench/report, which lies beside this executable's build or is installed. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/self.h"

extern char **environ;

static int help(void)
{
	printf("usage: viaduct report [OPTION...] RESULTS.json\n\n"
	       "Makes plots and one HTML page of the figures of `viaduct bench "
	       "--json`.\n\n"
	       "  -o, --out DIR   the folder to write, made if need be (default "
	       "viaduct-report)\n"
	       "      --png       fail where PNG cannot be made\n"
	       "      --no-png    make no PNG\n"
	       "  -h, --help      print this\n\n"
	       "DIR/report.html holds everything; DIR/*.svg and *.png are the plots "
	       "alone.\n"
	       "Python draws them (Debian: python3-matplotlib, python3-jinja2).\n"
	       "Exit status: 0; 1 when the results cannot be read or the report "
	       "cannot be\n"
	       "written; 2 for a wrong command line. See viaduct-report(1).\n");
	return 0;
}

/* Without results it only looks whether all is there. 0, or -1 after a message. */
static int run_python(const char *results, const char *folder, const char *png)
{
	char program[PATH_MAX];
	char *argv[] = {(char *)"python3", (char *)"-B", program, (char *)results,
			(char *)folder,	   (char *)png,	 NULL};
	pid_t pid;
	int status, err;

	self_find("bench/report", VD_DATADIR "/report", program, sizeof(program));
	fflush(stdout);
	err = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (err) {
		warn_line("viaduct report: the page is drawn in Python; python3: %s "
			  "(Debian: apt-get install python3 python3-matplotlib "
			  "python3-jinja2)",
			  strerror(err));
		return -1;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

int report_begin(const char *folder, const char *results)
{
	if (run_python(NULL, NULL, NULL) < 0)
		return -1;
	if (mkdir(folder, 0777) < 0 && errno != EEXIST) {
		warn_line("viaduct report: cannot make the folder %s: %s", folder,
			  strerror(errno));
		return -1;
	}
	if (unlink(results) == 0 || errno == ENOENT)
		return 0;
	warn_line("viaduct report: cannot replace %s: %s", results, strerror(errno));
	return -1;
}

int report_end(const char *folder, const char *results)
{
	if (access(results, F_OK) < 0)
		return 0; /* whoever did not write them has said why */
	return run_python(results, folder, "can");
}

int cmd_report(int argc, char **argv)
{
	static const struct option options[] = {{"out", 1, NULL, 'o'},
						{"png", 0, NULL, 'p'},
						{"no-png", 0, NULL, 'n'},
						{"help", 0, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	const char *folder = "viaduct-report", *png = "can";
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct report"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		if (c == 'o')
			folder = optarg;
		else if (c == 'p')
			png = "must";
		else if (c == 'n')
			png = "never";
		else
			return c == 'h' ? help() : usage_error("report", NULL);
	}
	if (!*folder)
		return usage_error("report", "--out takes a folder: `%s`", folder);
	if (optind == argc)
		return usage_error("report", "which results? give the file that `viaduct "
					     "bench --json FILE` wrote");
	if (optind + 1 < argc)
		return usage_error("report", "one file of results at a time");
	return run_python(argv[optind], folder, png) < 0 ? 1 : 0;
}
