/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct stat: the connections of all Viaduct processes, and the paths that they take. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/rights.h"
#include "tool/stat/stat.h"
#include "tool/terminal.h"

enum { STATUS_WELL = 0, STATUS_FAILED = 1 };
enum {
	OPT_PID = 256,
	OPT_PORT,
	OPT_PATH,
	OPT_REASON,
	OPT_PROGRAM,
	OPT_BOTH,
	OPT_PROCESSES,
	OPT_RPC,
	OPT_COUNT,
	OPT_SORT,
	OPT_JSON,
	OPT_PROMETHEUS,
	OPT_PER_CONNECTION,
	OPT_HELP,
};

/* Of lines that go to no terminal. */
#define PLAIN_WIDTH 120

static int help(void)
{
	printf("usage: viaduct stat [OPTION...]\n\n"
	       "Lists the TCP connections of all programs under Viaduct, one line each: "
	       "the path\nthat they take, how much went there, and why one is on "
	       "TCP.\n\n"
	       "  -p, --pid PID        of this process\n"
	       "      --port PORT      with this port at either end\n"
	       "      --path PATH      on ring, rdma, tcp or switching\n"
	       "      --reason NAME    with this reason; see viaduct-reasons(7)\n"
	       "      --program GLOB   of programs whose names match\n"
	       "  -b, --both           a line for each end, in each process\n"
	       "      --processes      a line for each process\n"
	       "      --rpc            a line for each remote procedure that a process "
	       "calls\n                       or serves\n"
	       "  -w, --wide           all columns\n"
	       "  -o, --columns LIST   these columns in this order: PROCESS,PEER,SENT\n"
	       "      --watch[=SEC]    again and again, every 2 seconds, the busiest "
	       "first\n"
	       "      --count N        ends after N times\n"
	       "      --sort WHAT      by a column, such as SENT; with --watch also the "
	       "busiest\n                       by bytes, or by messages\n"
	       "      --json           one JSON object\n"
	       "      --prometheus     metrics of each process, in the text format\n"
	       "      --per-connection metrics of each connection as well\n"
	       "      --help           print this\n\n"
	       "Exit status: 0, 1 when connections cannot be read or written, 2 when "
	       "the "
	       "command\nline is wrong. See viaduct-stat(1).\n");
	return STATUS_WELL;
}

static int complain(const char *option, const char *value, const char *want)
{
	warn_line("viaduct stat: --%s `%s`: %s", option, value, want);
	return -EINVAL;
}

/* ---- values ---- */

static int read_number(const char *option, const char *text, unsigned long most,
		       unsigned long *out)
{
	char want[64], *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && errno == 0 && n >= 1 && n <= most) {
		*out = n;
		return 0;
	}
	snprintf(want, sizeof(want), "want a number from 1 to %lu", most);
	return complain(option, text, want);
}

static int read_seconds(const char *text, double *out)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end || !isfinite(n) || n < 0.1 || n > 86400)
		return complain("watch", text, "want seconds, from 0.1 to 86400");
	*out = n;
	return 0;
}

static int read_path(const char *text, uint32_t *out)
{
	for (uint32_t p = 0; p < STAT_PATHS; p++)
		if (!strcmp(text, observe_path_name(p))) {
			*out = p;
			return 0;
		}
	return complain("path", text, "want ring, rdma, tcp or switching");
}

static int read_reason(const char *text, uint32_t *out)
{
	for (uint32_t r = 0; r < VD_REASON_COUNT; r++)
		if (!strcmp(text, reason_name(r))) {
			*out = r;
			return 0;
		}
	complain("reason", text, "there is no such reason; these are:");
	for (uint32_t r = 0; r < VD_REASON_COUNT; r++)
		warn_line("  %-17s %s", reason_name(r), reason_text(r));
	return -EINVAL;
}

/* The busiest, or else a column. */
static int read_sort(const char *text, struct stat_options *o)
{
	bool busiest = !strcmp(text, "messages") || !strcmp(text, "bytes");

	o->by_messages = !strcmp(text, "messages");
	o->busiest = busiest;
	o->sort = busiest ? NULL : text;
	return 0;
}

static int read_filter(int option, const char *value, struct stat_options *o)
{
	unsigned long n = 0;
	int r;

	switch (option) {
	case OPT_PID:
		r = read_number("pid", value, INT_MAX, &n);
		o->pid = (pid_t)n;
		return r;
	case OPT_PORT:
		r = read_number("port", value, 65535, &n);
		o->port = (uint16_t)n;
		return r;
	case OPT_PATH:
		return read_path(value, &o->path);
	case OPT_REASON:
		return read_reason(value, &o->reason);
	default:
		o->program = value;
		return 0;
	}
}

static int read_format(struct stat_options *o, enum stat_format format)
{
	if (o->format != STAT_TABLE && o->format != format) {
		warn_line("viaduct stat: --json and --prometheus do not go together");
		return -EINVAL;
	}
	o->format = format;
	return 0;
}

/* 0, -EINVAL, or 1: print the help. */
static int read_option(int option, const char *value, struct stat_options *o)
{
	switch (option) {
	case OPT_BOTH:
		o->both = true;
		return 0;
	case OPT_PROCESSES:
		o->processes = true;
		return 0;
	case OPT_RPC:
		o->rpc = true;
		return 0;
	case 'w':
		o->wide = true;
		return 0;
	case 'W':
		o->watch = true;
		return value ? read_seconds(value, &o->seconds) : 0;
	case OPT_COUNT:
		return read_number("count", value, UINT_MAX, &o->count);
	case OPT_SORT:
		return read_sort(value, o);
	case 'o':
		o->columns = value;
		return 0;
	case OPT_JSON:
		return read_format(o, STAT_JSON);
	case OPT_PROMETHEUS:
		return read_format(o, STAT_PROMETHEUS);
	case OPT_PER_CONNECTION:
		o->per_connection = true;
		return 0;
	case OPT_HELP:
		return 1;
	case '?':
		return -EINVAL;
	default:
		return read_filter(option, value, o);
	}
}

static int read_line(int argc, char **argv, struct stat_options *o)
{
	static const struct option options[] = {
		{"pid", 1, NULL, OPT_PID},
		{"port", 1, NULL, OPT_PORT},
		{"path", 1, NULL, OPT_PATH},
		{"reason", 1, NULL, OPT_REASON},
		{"program", 1, NULL, OPT_PROGRAM},
		{"both", 0, NULL, OPT_BOTH},
		{"processes", 0, NULL, OPT_PROCESSES},
		{"rpc", 0, NULL, OPT_RPC},
		{"wide", 0, NULL, 'w'},
		{"watch", 2, NULL, 'W'},
		{"count", 1, NULL, OPT_COUNT},
		{"sort", 1, NULL, OPT_SORT},
		{"columns", 1, NULL, 'o'},
		{"json", 0, NULL, OPT_JSON},
		{"prometheus", 0, NULL, OPT_PROMETHEUS},
		{"per-connection", 0, NULL, OPT_PER_CONNECTION},
		{"help", 0, NULL, OPT_HELP},
		{NULL, 0, NULL, 0}};
	int c, r;

	optind = 1;
	while ((c = getopt_long(argc, argv, "p:bwo:h", options, NULL)) != -1) {
		c = c == 'p' ? OPT_PID : c == 'b' ? OPT_BOTH : c == 'h' ? OPT_HELP : c;
		r = read_option(c, optarg, o);
		if (r)
			return r;
		/* The seconds may stand apart: `--watch 1`. */
		if (c == 'W' && !optarg && optind < argc && argv[optind][0] >= '0' &&
		    argv[optind][0] <= '9' && read_seconds(argv[optind++], &o->seconds))
			return -EINVAL;
	}
	if (optind != argc) {
		warn_line("viaduct stat: it takes no argument: `%s`; a process is named "
			  "with --pid",
			  argv[optind]);
		return -EINVAL;
	}
	return 0;
}

static int check_together(const struct stat_options *o)
{
	const char *wrong = NULL;

	if (o->watch && o->format == STAT_PROMETHEUS)
		wrong = "--watch does not go with --prometheus: let Prometheus ask again";
	else if (o->per_connection && o->format != STAT_PROMETHEUS)
		wrong = "--per-connection is for --prometheus";
	else if (o->rpc && o->processes)
		wrong = "--rpc does not go with --processes";
	else if (o->count && !o->watch)
		wrong = "--count is for --watch";
	else if (o->busiest && !o->watch)
		wrong = "--sort bytes and --sort messages are for --watch: name a "
			"column, "
			"such as SENT";
	else if ((o->columns || o->sort) && o->format != STAT_TABLE)
		wrong = "columns are of the table: --json and --prometheus have none";
	if (wrong)
		warn_line("viaduct stat: %s", wrong);
	return wrong ? -EINVAL : stat_check_columns(o);
}

/* ---- once ---- */

/* Nobody was asked for, or he is there. */
static bool is_anybody(const struct stat_view *v, const struct stat_options *o)
{
	return !o->pid || observe_process(&v->seen, o->pid);
}

static int show_once(const struct stat_options *o)
{
	int width = terminal_width(stdout), r;
	bool colours = terminal_has_colours(stdout);
	struct stat_page page = {o->wide ? 0
				 : width ? width
					 : PLAIN_WIDTH,
				 0, colours, colours};
	struct stat_view v;
	char message[256];
	bool is_there;

	r = stat_look(&v, o, message, sizeof(message));
	if (r < 0) {
		warn_line("viaduct stat: %s", message);
		return STATUS_FAILED;
	}
	is_there = is_anybody(&v, o);
	if (o->format == STAT_JSON) {
		stat_json(stdout, &v, false);
	} else if (o->format == STAT_PROMETHEUS) {
		stat_prometheus(stdout, &v, o->per_connection);
	} else {
		r = stat_print(stdout, &v, o, &page);
		if (v.shown)
			putchar('\n');
		stat_notes(stdout, &v, o);
	}
	stat_forget(&v);
	if (fflush(stdout) || ferror(stdout) || r < 0) {
		fprintf(stderr, "viaduct stat: the list cannot be written\n");
		return STATUS_FAILED;
	}
	return is_there ? STATUS_WELL : STATUS_FAILED;
}

int cmd_stat(int argc, char **argv)
{
	struct stat_options o = {.path = STAT_ANY, .reason = STAT_ANY, .seconds = 2};
	int r;

	argv[0] = (char *)"viaduct stat"; /* getopt's messages begin with it */
	r = read_line(argc, argv, &o);
	if (r == 1)
		return help();
	if (r == 0)
		r = check_together(&o);
	if (r < 0)
		return usage_error("stat", NULL);
	rights_keep(RIGHTS_LOOK | RIGHTS_NAMESPACES);
	return o.watch ? stat_watch(&o) : show_once(&o);
}
