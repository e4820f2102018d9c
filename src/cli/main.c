/* SPDX-License-Identifier: Apache-2.0 */
/* The viaduct command: finds the subcommand in a table and calls it. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{"run", cmd_run, "run a program with its TCP connections on the direct path"},
	{"stat", cmd_stat, "list connections, their paths, and why they take them"},
	{"bench", cmd_bench, "measure latency, throughput and connection rate"},
	{"trace", cmd_trace, "write what goes past TCP as a file of packets"},
	{"doctor", cmd_doctor,
	 "check this machine, or the way to another, and say what to do"},
	{"config", cmd_config, "print the settings in force, and where they come from"},
	{"report", cmd_report, "plots and one page of what bench has measured"},
	{"explain", cmd_explain, "say why a program or a connection is on TCP"},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int usage(FILE *to, int status)
{
	fprintf(to, "usage: viaduct COMMAND [ARGUMENT...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fprintf(to,
		"\n`viaduct COMMAND --help` explains a command; see also viaduct(1).\n");
	return status;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr, EXIT_USAGE);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help"))
		return usage(stdout, 0);
	if (!strcmp(argv[1], "--version")) {
		printf("viaduct %s\n", VD_VERSION);
		return 0;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "viaduct: there is no command `%s`\n", argv[1]);
	return usage(stderr, EXIT_USAGE);
}
