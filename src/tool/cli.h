/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of viaduct; argv[0] is the subcommand's name. */
#ifndef VD_TOOL_CLI_H
#define VD_TOOL_CLI_H

/* Exit statuses of our own, as env(1) and the shells give them. */
enum {
	EXIT_USAGE = 2,	    /* the command line is wrong */
	EXIT_REFUSED = 126, /* the program cannot run, or not under Viaduct */
	EXIT_NOT_FOUND = 127,
};

/*
 * usage.c: says on one line what is wrong with the command line, and on another where it is
 * explained. NULL where getopt has said it already. Returns EXIT_USAGE.
 */
int usage_error(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* usage.c: one line on standard error, whatever the values are that it repeats. */
void warn_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_papers(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_service(int argc, char **argv);

/*
 * report.c, for `viaduct bench --report`. The first makes the folder, and takes results of an
 * older run out of it; the second writes the page, if there are results now. 0 or -1.
 */
int report_begin(const char *folder, const char *results);
int report_end(const char *folder, const char *results);

#endif
