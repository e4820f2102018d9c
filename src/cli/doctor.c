/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct doctor: tries what Viaduct needs on this machine, and says what to do. */
#include <getopt.h>
#include <string.h>
#include <sys/utsname.h>

#include "cli/cli.h"
#include "cli/doctor.h"

enum { STATUS_WELL = 0, STATUS_PROBLEM = 1, STATUS_USAGE = 2 };
enum { OPT_JSON = 256, OPT_ENDS, OPT_HELP };

static const struct check_group *const groups[] = {
	&doctor_needs, &doctor_limits, &doctor_speed, &doctor_hosts, &doctor_unused};
enum { GROUPS = sizeof(groups) / sizeof(groups[0]), STATES = FINDING_PROBLEM + 1 };

static int usage(FILE *to, int status)
{
	fprintf(to,
		"usage: viaduct doctor [--json]\n\n"
		"Checks this machine: what works, what does not, and what to do.\n\n"
		"  --json   one JSON object instead of the table\n"
		"  --help   print this\n\n"
		"Exit status: 0 when all that Viaduct needs works, 1 when something does "
		"not,\n2 when the command line is wrong. See viaduct-doctor(1).\n");
	return status;
}

static void look(const struct check *c, struct finding *f)
{
	memset(f, 0, sizeof(*f));
	f->unit = "";
	c->look(f);
}

static void print_groups(FILE *out, unsigned counts[STATES])
{
	struct utsname u;
	static struct finding f;

	uname(&u);
	fprintf(out, "viaduct %s on Linux %s\n", VD_VERSION, u.release);
	for (size_t g = 0; g < GROUPS; g++) {
		fprintf(out, "\n%s\n", groups[g]->title);
		for (size_t i = 0; i < groups[g]->count; i++) {
			const struct check *c = &groups[g]->checks[i];

			look(c, &f);
			finding_print(out, c->name, &f);
			fflush(out);
			counts[f.state]++;
		}
	}
	fprintf(out, "\n%u ok, %u note%s, %u problem%s\n", counts[FINDING_OK],
		counts[FINDING_NOTE], counts[FINDING_NOTE] == 1 ? "" : "s",
		counts[FINDING_PROBLEM], counts[FINDING_PROBLEM] == 1 ? "" : "s");
}

static void print_json(FILE *out, unsigned counts[STATES])
{
	const char *comma = "";
	static struct finding f;

	fprintf(out, "{\"version\":\"%s\",\"checks\":[", VD_VERSION);
	for (size_t g = 0; g < GROUPS; g++) {
		for (size_t i = 0; i < groups[g]->count; i++) {
			const struct check *c = &groups[g]->checks[i];

			look(c, &f);
			fprintf(out, "%s\n", comma);
			finding_json(out, groups[g]->name, c->name, &f);
			counts[f.state]++;
			comma = ",";
		}
	}
	fprintf(out, "\n]}\n");
}

int cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {{"json", 0, NULL, OPT_JSON},
						{"ends", 0, NULL, OPT_ENDS},
						{"help", 0, NULL, OPT_HELP},
						{NULL, 0, NULL, 0}};
	unsigned counts[STATES] = {0};
	bool json = false;
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct doctor"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == OPT_JSON)
			json = true;
		else if (c == OPT_ENDS)
			return doctor_ends();
		else
			return c == OPT_HELP || c == 'h' ? usage(stdout, STATUS_WELL)
							 : usage(stderr, STATUS_USAGE);
	}
	if (optind != argc) {
		fprintf(stderr, "viaduct doctor: it takes no argument: `%s`\n",
			argv[optind]);
		return usage(stderr, STATUS_USAGE);
	}
	if (json)
		print_json(stdout, counts);
	else
		print_groups(stdout, counts);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "viaduct doctor: the findings cannot be written\n");
		return STATUS_PROBLEM;
	}
	return counts[FINDING_PROBLEM] ? STATUS_PROBLEM : STATUS_WELL;
}
