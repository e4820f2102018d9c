/* SPDX-License-Identifier: Apache-2.0 */
/* The viaduct command: finds the subcommand in a table and calls it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/program.h"
#include "base/standard.h"
#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/variable.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{"run", cmd_run, "run a program, and accelerate its TCP connections"},
	{"stat", cmd_stat, "list connections, their paths, and why they take them"},
	{"bench", cmd_bench, "measure latency, throughput and connection rate"},
	{"trace", cmd_trace, "write what goes past TCP as a file of packets"},
	{"doctor", cmd_doctor,
	 "check this machine, or the way to another, and say what to do"},
	{"config", cmd_config, "print the settings in force, and where they come from"},
	{"report", cmd_report, "plots and one page of what bench has measured"},
	{"papers", cmd_papers, "the experiments of the papers, on this machine"},
	{"service", cmd_service,
	 "put a service of systemd under Viaduct, or take it back"},
	{"explain", cmd_explain, "say why a program or a connection is on TCP"},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int usage(FILE *to, int status)
{
	fprintf(to, "usage: viaduct COMMAND [ARGUMENT...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fprintf(to, "\n`viaduct COMMAND --help` or `viaduct help COMMAND` explains a "
		    "command;\nsee also viaduct(1).\n");
	return status;
}

static int (*command_of(const char *name))(int argc, char **argv)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return commands[i].run;
	return NULL;
}

static const char *meant(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (variable_one_slip(name, strlen(name), commands[i].name,
				      strlen(commands[i].name)))
			return commands[i].name;
	return NULL;
}

/* What was most likely meant is a command, a line of the shell, or nothing that is known. */
static int no_command(const char *name, const char *command, const char *line)
{
	if (line)
		warn_line("viaduct: there is no command `%s`; did you mean: viaduct run "
			  "-- %s",
			  name, line);
	else if (command)
		warn_line("viaduct: there is no command `%s`; did you mean `%s`?", name,
			  command);
	else
		warn_line("viaduct: there is no command `%s`", name);
	fprintf(stderr, "usage: see `viaduct --help`\n");
	return EXIT_USAGE;
}

/* `viaduct help run` is `viaduct run --help`. */
static int help(int argc, char **argv)
{
	int (*run)(int, char **) = argc > 2 ? command_of(argv[2]) : NULL;
	char option[] = "--help";
	char *words[] = {argc > 2 ? argv[2] : NULL, option, NULL};

	if (run)
		return run(2, words);
	if (argc < 3 || argv[2][0] == '-')
		return usage(stdout, 0);
	return no_command(argv[2], meant(argv[2]), NULL);
}

/* Most likely a slip, or a word that was forgotten: `viaduct redis-server`. */
static int unknown(char **argv)
{
	char path[PATH_MAX];
	char *line = program_find(argv[0], path, sizeof(path)) == 0 ? command_line(argv)
								    : NULL;
	int status = no_command(argv[0], meant(argv[0]), line);

	free(line);
	return status;
}

/* A word behind `--version`, or behind the command that help is asked for: that is said. */
static bool is_too_much(int argc, char **argv)
{
	bool alone = !strcmp(argv[1], "--version");
	bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
		    !strcmp(argv[1], "help");
	int most = alone ? 2 : 3;

	if ((!alone && !help) || argc <= most)
		return false;
	warn_line("viaduct %s: it takes %s: `%s`", argv[1],
		  alone ? "no argument" : "one COMMAND at most", argv[most]);
	fprintf(stderr, "usage: see `viaduct --help`\n");
	return true;
}

static int command(int argc, char **argv)
{
	int (*run)(int, char **);

	if (argc < 2)
		return usage(stderr, EXIT_USAGE);
	if (is_too_much(argc, argv))
		return EXIT_USAGE;
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help"))
		return help(argc, argv);
	if (!strcmp(argv[1], "--version")) {
		printf("viaduct %s\n", VD_VERSION);
		return 0;
	}
	run = command_of(argv[1]);
	if (run != cmd_run) /* a program gets its descriptors as they are */
		standard_fill();
	return run ? run(argc - 1, argv + 1) : unknown(argv + 1);
}

int main(int argc, char **argv)
{
	return standard_end("viaduct", command(argc, argv));
}
