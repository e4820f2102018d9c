/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct explain: why a program or a connection is, or is not, on the direct path. */
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/explain.h"

enum { STATUS_ACCELERATED = 0, STATUS_TCP = 1 };
enum { OPT_JSON = 256, OPT_LIBS, OPT_HELP };

static int usage(FILE *to, int status)
{
	fprintf(to,
		"usage: viaduct explain [--json] [--libs] -- PROGRAM [ARGUMENT...]\n\n"
		"Says whether a program can be accelerated, why not, and what to do.\n"
		"It does not start the program.\n\n"
		"  --json   one JSON object instead of sentences\n"
		"  --libs   look into the program's libraries, too\n"
		"  --help   print this\n\n"
		"Exit status: 0 accelerated, or it would be; 1 not; 125 when the command "
		"line is\nwrong or names nothing that is there. See "
		"viaduct-explain(1).\n");
	return status;
}

static int print(const char *subject, bool json, const struct answer *a)
{
	if (json)
		answer_json(stdout, subject, a);
	else
		answer_print(stdout, a);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "viaduct explain: the answer cannot be written\n");
		return EXIT_USAGE;
	}
	return a->accelerated ? STATUS_ACCELERATED : STATUS_TCP;
}

int cmd_explain(int argc, char **argv)
{
	static const struct option options[] = {{"json", 0, NULL, OPT_JSON},
						{"libs", 0, NULL, OPT_LIBS},
						{"help", 0, NULL, OPT_HELP},
						{NULL, 0, NULL, 0}};
	bool json = false, libs = false;
	struct answer a = {0};
	int c, rc;

	optind = 1;
	argv[0] = (char *)"viaduct explain"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (c == OPT_JSON)
			json = true;
		else if (c == OPT_LIBS)
			libs = true;
		else
			return c == OPT_HELP || c == 'h' ? usage(stdout, 0)
							 : usage(stderr, EXIT_USAGE);
	}
	if (optind == argc) {
		fprintf(stderr, "viaduct explain: nothing to explain was named\n");
		return usage(stderr, EXIT_USAGE);
	}
	if (strcmp(argv[optind - 1], "--") != 0) {
		fprintf(stderr, "viaduct explain: `%s`: put `--` before a program\n",
			argv[optind]);
		return usage(stderr, EXIT_USAGE);
	}
	rc = explain_program(argv + optind, libs, &a);
	return rc ? rc : print(argv[optind], json, &a);
}
