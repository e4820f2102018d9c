/* SPDX-License-Identifier: Apache-2.0 */
/* The settings and rules in force, for people. */
#include <string.h>

#include "tool/config/config.h"

enum { VALUE_BYTES = PATH_MAX + 16, NAME_WIDTH = 14, WIDTH_MOST = 44 };

static void print_origin(FILE *out, const struct view_source *s, const char *variable)
{
	if (!s->text) {
		fprintf(out, "default\n");
		return;
	}
	if (s->profile)
		fprintf(out, "profile %s, ", s->profile);
	if (s->file)
		fprintf(out, "%s:%u\n", s->file, s->line);
	else
		fprintf(out, "environment, %s\n", variable);
}

static int width_of(const struct outlook *o)
{
	char value[VALUE_BYTES];
	int most = 8;

	for (int id = 0; id < VALUE_COUNT; id++) {
		outlook_value(o, (enum value_id)id, value, sizeof(value));
		if ((int)strlen(value) > most)
			most = (int)strlen(value);
	}
	for (unsigned i = 0; i < o->view.rules.count; i++)
		if (o->view.rules.rule[i].length + 4 - NAME_WIDTH > most)
			most = o->view.rules.rule[i].length + 4 - NAME_WIDTH;
	return most < WIDTH_MOST ? most : WIDTH_MOST;
}

static void print_settings(FILE *out, const struct outlook *o, int width)
{
	char value[VALUE_BYTES];

	fprintf(out, "  %-*s  %-*s  %s\n", NAME_WIDTH, "setting", width, "value", "from");
	for (int id = 0; id < VALUE_COUNT; id++) {
		const struct view_source *s = &o->view.source[id];

		outlook_value(o, (enum value_id)id, value, sizeof(value));
		fprintf(out, "  %-*s  %-*s  ", NAME_WIDTH, value_table[id].name, width,
			value);
		print_origin(out, s,
			     value_table[s->profile ? VALUE_PROFILE : (enum value_id)id]
				     .variable);
	}
}

static void print_rules(FILE *out, const struct outlook *o, int width)
{
	const struct rules *rules = &o->view.rules;

	width += NAME_WIDTH - 2;
	fprintf(out, "\nRules, in the order in which they are asked; the first that "
		     "matches decides\n");
	for (unsigned i = 0; i < rules->count; i++) {
		const struct rule *r = &rules->rule[i];

		fprintf(out, "  %2u  %.*s%*s  ", i + 1, r->length, r->text,
			r->length < width ? width - r->length : 0, "");
		if (r->file)
			fprintf(out, "%s:%u\n", r->file, r->line);
		else
			fprintf(out, "environment, VIADUCT_RULES\n");
	}
	fprintf(out, "   -  %-*s  what no rule matches\n", width, "allow");
}

static void print_files(FILE *out, const struct outlook *o)
{
	bool some = false;

	fprintf(out, "\nFiles, the later one above the earlier\n");
	for (int i = 0; i < VIEW_FILES; i++) {
		const struct conffile *f = &o->view.files[i];

		if (f->state == CONFFILE_NONE)
			continue;
		some = true;
		fprintf(out, "  %s: %s\n", f->path,
			f->state == CONFFILE_READ     ? "read"
			: f->state == CONFFILE_ABSENT ? "not there"
						      : f->why);
	}
	if (!some)
		fprintf(out, "  none: %s\n",
			o->view.env_off ? "the environment switches Viaduct off"
					: "VIADUCT_CONFIG is empty");
}

static void print_sections(FILE *out, const struct outlook *o)
{
	struct section s = {0};
	bool first = true;

	while (!o->program && outlook_section(o, &s)) {
		if (!strcmp(s.program, "*"))
			continue;
		if (first)
			fprintf(out, "\nFor some programs other settings hold, which "
				     "--program NAME shows\n");
		first = false;
		fprintf(out, "  %s  %s:%u\n", s.program, o->view.files[s.file].path,
			s.line);
	}
}

void outlook_print(FILE *out, const struct outlook *o)
{
	int width = width_of(o);

	if (o->program)
		fprintf(out, "For the program %s\n\n", o->program);
	print_settings(out, o, width);
	if (o->view.config.off)
		fprintf(out, "\nViaduct is off: every connection stays on TCP.\n");
	else if (o->doubt)
		fprintf(out,
			"\nEvery connection stays on TCP, because what is wrong below "
			"leaves rules in doubt.\n");
	print_rules(out, o, width);
	print_sections(out, o);
	print_files(out, o);
	for (size_t i = 0; i < o->problem_count; i++)
		fprintf(out, "%s  %s: %s\n", i ? "" : "\nWhat is wrong\n",
			o->problems[i].place, o->problems[i].text);
}
