/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct doctor: tries what Viaduct needs on this machine, and says what to do. */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "tool/cli.h"
#include "tool/doctor/way.h"

enum { STATUS_WELL = 0, STATUS_PROBLEM = 1 };
enum {
	OPT_JSON = 256,
	OPT_ANSWER,
	OPT_PORT,
	OPT_ENDS,
	OPT_FAR_ASK,
	OPT_FAR_ANSWER,
	OPT_MEASURE
};

/* NULL closes each. */
static const struct check_group *const of_this_machine[] = {
	&doctor_needs, &doctor_limits, &doctor_speed,
	&doctor_hosts, &doctor_unused, NULL};
static const struct check_group *const of_the_way[] = {&doctor_way, NULL};
enum { STATES = FINDING_PROBLEM + 1 };

static int help(void)
{
	printf("usage: viaduct doctor [--json] [HOST]\n"
	       "       viaduct doctor [--json] [--measure] HOST\n"
	       "       viaduct doctor --answer\n\n"
	       "Checks this machine, or the way to another host: what works, what does\n"
	       "not, and what to do.\n\n"
	       "  --answer      be the other end of what `viaduct doctor HOST` tries\n"
	       "  --port PORT   where the other end answers; default %d\n"
	       "  --measure     measure again whether RDMA is faster than TCP, and from "
	       "which\n"
	       "                size on receives are redirected\n"
	       "  --json        one JSON object instead of the table\n"
	       "  --help        print this\n\n"
	       "Exit status: 0 when all that Viaduct needs works, 1 when something does "
	       "not,\n2 when the command line is wrong. See viaduct-doctor(1).\n",
	       WAY_PORT);
	return STATUS_WELL;
}

static void look(const struct check *c, struct finding *f)
{
	memset(f, 0, sizeof(*f));
	f->unit = "";
	c->look(f);
}

static void print_groups(FILE *out, const struct check_group *const *groups,
			 unsigned counts[STATES])
{
	struct utsname u;
	static struct finding f;

	uname(&u);
	fprintf(out, "viaduct %s on Linux %s\n", VD_VERSION, u.release);
	for (; *groups; groups++) {
		fprintf(out, "\n%s\n", (*groups)->title);
		fflush(out);
		for (size_t i = 0; i < (*groups)->count; i++) {
			const struct check *c = &(*groups)->checks[i];

			look(c, &f);
			if (f.left_out)
				continue;
			finding_print(out, c->name, &f);
			fflush(out);
			counts[f.state]++;
		}
	}
	fprintf(out, "\n%u ok, %u note%s, %u problem%s\n", counts[FINDING_OK],
		counts[FINDING_NOTE], counts[FINDING_NOTE] == 1 ? "" : "s",
		counts[FINDING_PROBLEM], counts[FINDING_PROBLEM] == 1 ? "" : "s");
}

static void print_json(FILE *out, const struct check_group *const *groups,
		       unsigned counts[STATES])
{
	const char *comma = "";
	static struct finding f;

	fprintf(out, "{\"version\":\"%s\",\"checks\":[", VD_VERSION);
	for (; *groups; groups++) {
		for (size_t i = 0; i < (*groups)->count; i++) {
			const struct check *c = &(*groups)->checks[i];

			look(c, &f);
			if (f.left_out)
				continue;
			fprintf(out, "%s\n", comma);
			finding_json(out, (*groups)->name, c->name, &f);
			counts[f.state]++;
			comma = ",";
		}
	}
	fprintf(out, "\n]}\n");
}

struct options {
	bool json, answer;
	int child; /* the option that makes this a child of another doctor, or 0 */
};

static bool take_port(const char *text)
{
	char *end;
	long port = strtol(text, &end, 10);

	way.port = (uint16_t)port;
	return *text && !*end && port >= 1 && port <= 65535;
}

/* -1, or the exit status. */
static int parse(int argc, char **argv, struct options *o)
{
	static const struct option options[] = {{"json", 0, NULL, OPT_JSON},
						{"answer", 0, NULL, OPT_ANSWER},
						{"port", 1, NULL, OPT_PORT},
						{"measure", 0, NULL, OPT_MEASURE},
						{"ends", 0, NULL, OPT_ENDS},
						{"far-ask", 0, NULL, OPT_FAR_ASK},
						{"far-answer", 0, NULL, OPT_FAR_ANSWER},
						{"help", 0, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	bool port = false;
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct doctor"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case OPT_JSON:
			o->json = true;
			break;
		case OPT_ANSWER:
			o->answer = true;
			break;
		case OPT_PORT:
			port = true;
			if (take_port(optarg))
				break;
			return usage_error("doctor",
					   "--port takes a number from 1 to 65535: `%s`",
					   optarg);
		case OPT_MEASURE:
			way.measures_again = true;
			break;
		case OPT_ENDS:
		case OPT_FAR_ASK:
		case OPT_FAR_ANSWER:
			o->child = c;
			break;
		default:
			return c == 'h' ? help() : usage_error("doctor", NULL);
		}
	}
	if (optind < argc && !o->answer && !o->child)
		way.host = argv[optind++];
	if (way.host && !*way.host)
		return usage_error("doctor", "HOST is a name or an address: `%s`",
				   way.host);
	if (optind == argc && !(o->answer && o->json) &&
	    (!port || way.host || o->answer || o->child) &&
	    (!way.measures_again || way.host))
		return -1;
	if (optind < argc)
		return usage_error("doctor", "%s: `%s`",
				   o->answer ? "--answer takes no HOST"
					     : "it takes one HOST at most",
				   argv[optind]);
	return usage_error("doctor", "%s",
			   way.measures_again && !way.host ? "--measure needs a HOST"
			   : o->answer ? "--answer and --json do not go together"
				       : "--port needs a HOST, or --answer");
}

static int check(const struct options *o)
{
	const struct check_group *const *groups = way.host ? of_the_way : of_this_machine;
	unsigned counts[STATES] = {0};

	if (o->json)
		print_json(stdout, groups, counts);
	else
		print_groups(stdout, groups, counts);
	link_finish();
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "viaduct doctor: the findings cannot be written\n");
		return STATUS_PROBLEM;
	}
	return counts[FINDING_PROBLEM] ? STATUS_PROBLEM : STATUS_WELL;
}

int cmd_doctor(int argc, char **argv)
{
	struct options o = {0};
	int status = parse(argc, argv, &o);

	if (status >= 0)
		return status;
	switch (o.child) {
	case OPT_ENDS:
		return doctor_ends();
	case OPT_FAR_ASK:
		return doctor_far_ask();
	case OPT_FAR_ANSWER:
		return doctor_far_answer(way.port);
	default:
		break;
	}
	if (way.host || o.answer)
		signal(SIGPIPE, SIG_IGN); /* a child that has died is told of */
	return o.answer ? doctor_answer(way.port) : check(&o);
}
