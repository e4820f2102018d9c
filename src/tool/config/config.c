/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct config: the settings and rules in force, where they come from, and what is wrong. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/config/config.h"
#include "tool/variable.h"

enum { STATUS_WELL = 0, STATUS_PROBLEM = 1 };
enum { OPT_PROGRAM = 256, OPT_CHECK, OPT_JSON, OPT_HELP };

static struct outlook outlook;

static int help(void)
{
	printf("usage: viaduct config [--program NAME] [--json]\n"
	       "       viaduct config --check [FILE...]\n\n"
	       "Prints the settings and rules that are in force for programs started "
	       "from here,\nand where each comes from; or checks files.\n\n"
	       "  --program NAME   for the program of that name, with its sections\n"
	       "  --json           one JSON object instead of the tables\n"
	       "  --check          print only what is wrong, in FILE or in what is in "
	       "force\n"
	       "  --help           print this\n\n"
	       "Exit status: 0 when all is well, 1 when something is wrong in a file or "
	       "a\nvariable, 2 when the command line is wrong. See "
	       "viaduct-config(1).\n");
	return STATUS_WELL;
}

void *outlook_need(void *memory)
{
	if (!memory) {
		fprintf(stderr, "viaduct config: there is no memory left\n");
		exit(STATUS_PROBLEM);
	}
	return memory;
}

/* ---- what there is to print ---- */

bool outlook_section(const struct outlook *o, struct section *s)
{
	for (; s->file < VIEW_FILES; s->file++, s->at = 0, s->line = 0) {
		const struct conffile *f = &o->view.files[s->file];
		const char *line;

		while (f->state == CONFFILE_READ && (line = conffile_next(f, &s->at))) {
			s->line++;
			if (*line == '[' && view_section(line, s->program))
				return true;
		}
	}
	return false;
}

void outlook_value(const struct outlook *o, enum value_id id, char *out, size_t size)
{
	static const char *const unset[VALUE_COUNT] = {[VALUE_PROFILE] = "default",
						       [VALUE_LOG] = "off",
						       [VALUE_REPORT] = "none"};
	const char *text = o->view.source[id].text;

	if (unset[id])
		snprintf(out, size, "%s", text && *text ? text : unset[id]);
	else
		value_print(id, &o->view.config, out, size);
}

/* ---- what is wrong ---- */

/* The line of a place in that file, 0 for the file as a whole; -1 for a place elsewhere. */
static long line_in(const char *file, const char *place)
{
	size_t n = file ? strlen(file) : 0;

	if (n == 0 || strncmp(place, file, n) != 0 || (place[n] && place[n] != ':'))
		return -1;
	return place[n] ? strtol(place + n + 1, NULL, 10) : 0;
}

/* Rules are looked at behind all settings: among those of the file it goes by its line. */
static size_t slot_for(const struct outlook *o, const char *file, const char *place)
{
	long line = line_in(file, place);
	size_t at = o->problem_count;

	for (size_t i = 0; line >= 0 && i < o->problem_count; i++) {
		long other = line_in(file, o->problems[i].place);

		if (other > line)
			return i;
		if (other >= 0)
			at = i + 1;
	}
	return at;
}

static void add_problem(struct outlook *o, const char *file, const char *place,
			const char *message)
{
	size_t at = slot_for(o, file, place);
	struct problem *p;

	o->problems =
		outlook_need(realloc(o->problems, (o->problem_count + 1) * sizeof(*p)));
	p = &o->problems[at];
	memmove(p + 1, p, (o->problem_count++ - at) * sizeof(*p));
	p->place = outlook_need(strdup(place));
	p->text = outlook_need(strdup(message));
}

static void note_problem(struct view *v, enum view_effect effect, const char *file,
			 const char *place, const char *message)
{
	if (effect != VIEW_FOREIGN)
		add_problem((struct outlook *)v, file, place, message);
}

static void note_slip(void *context, const char *text, const char *meant)
{
	char message[128];

	snprintf(message, sizeof(message), VARIABLE_SLIP, meant);
	add_problem(context, NULL, text, message);
}

static int print_problems(struct outlook *o)
{
	for (size_t i = 0; i < o->problem_count; i++)
		warn_line("%s: %s", o->problems[i].place, o->problems[i].text);
	return o->problem_count ? STATUS_PROBLEM : STATUS_WELL;
}

/* Of a file that was named: another one may have the same name. */
static int print_and_forget(struct outlook *o)
{
	int status = print_problems(o);

	for (size_t i = 0; i < o->problem_count; i++) {
		free(o->problems[i].place);
		free(o->problems[i].text);
	}
	o->problem_count = 0;
	return status;
}

/* Whatever the environment has is none of the files' business. */
static int check_files(int count, char **paths)
{
	struct view *v = &outlook.view;
	int status = STATUS_WELL;

	unsetenv("VIADUCT_RULES");
	for (int id = 0; id < VALUE_COUNT; id++)
		unsetenv(value_table[id].variable);
	v->strict = true;
	v->complain = note_problem;
	for (int i = 0; i < count; i++) {
		struct conffile *f = &v->files[0];

		if (strlen(paths[i]) >= sizeof(f->path)) {
			warn_line("%s: this name of a file is too long", paths[i]);
			status = STATUS_PROBLEM;
			continue;
		}
		strcpy(f->path, paths[i]);
		conffile_read(f, CONFFILE_CHECKED);
		view_resolve(v);
		if (print_and_forget(&outlook) != STATUS_WELL)
			status = STATUS_PROBLEM;
	}
	return status;
}

static void look(void)
{
	struct view *v = &outlook.view;
	const char *slash = outlook.program ? strrchr(outlook.program, '/') : NULL;

	if (slash)
		outlook.program = slash + 1;
	v->exe = v->argv0 = outlook.program;
	view_load(v);
	/* As this program will see it; then what is wrong for any. */
	view_resolve(v);
	outlook.doubt = v->doubt;
	v->strict = true;
	v->complain = note_problem;
	view_resolve(v);
	variable_slips(note_slip, &outlook);
	if (outlook.program)
		rules_keep_program(&v->rules, outlook.program, outlook.program);
}

int cmd_config(int argc, char **argv)
{
	static const struct option options[] = {{"program", 1, NULL, OPT_PROGRAM},
						{"json", 0, NULL, OPT_JSON},
						{"check", 0, NULL, OPT_CHECK},
						{"help", 0, NULL, OPT_HELP},
						{NULL, 0, NULL, 0}};
	bool json = false, check = false;
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct config"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == OPT_PROGRAM)
			outlook.program = optarg;
		else if (c == OPT_JSON)
			json = true;
		else if (c == OPT_CHECK)
			check = true;
		else
			return c == OPT_HELP || c == 'h' ? help()
							 : usage_error("config", NULL);
	}
	if (optind != argc && !check)
		return usage_error("config", "`%s` is taken with --check only",
				   argv[optind]);
	if (check && (json || outlook.program))
		return usage_error("config", "--check goes with no other option");
	if (optind != argc)
		return check_files(argc - optind, argv + optind);
	look();
	if (check)
		return print_problems(&outlook);
	if (json)
		outlook_json(stdout, &outlook);
	else
		outlook_print(stdout, &outlook);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "viaduct config: the settings cannot be written\n");
		return STATUS_PROBLEM;
	}
	return outlook.problem_count ? STATUS_PROBLEM : STATUS_WELL;
}
