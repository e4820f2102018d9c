/* SPDX-License-Identifier: Apache-2.0 */
/* The settings and rules in force, for people. */
#include <libsmartcols/libsmartcols.h>
#include <locale.h>
#include <string.h>

#include "base/printable.h"
#include "tool/config/config.h"

enum { CELLS = 3, CELL_BYTES = 32 << 10 };

/* ---- a table of three columns ---- */

/* A text in the middle that is far longer than the others does not widen the column of a terminal. */
static struct libscols_table *new_table(FILE *out, const char *const heads[CELLS])
{
	static const int flags[CELLS] = {0, SCOLS_FL_NOEXTREMES, 0};
	struct libscols_table *t;

	setlocale(LC_CTYPE, ""); /* libsmartcols escapes what is no letter there */
	t = outlook_need(scols_new_table());
	scols_table_set_stream(t, out);
	scols_table_set_column_separator(t, "  ");
	scols_table_enable_noheadings(t, !*heads[0]);
	for (int i = 0; i < CELLS; i++)
		outlook_need(scols_table_new_column(t, heads[i], 0, flags[i]));
	return t;
}

static void add_line(struct libscols_table *t, char cells[CELLS][CELL_BYTES])
{
	struct libscols_line *line = outlook_need(scols_table_new_line(t, NULL));

	for (size_t i = 0; i < CELLS; i++) {
		printable(cells[i]);
		if (scols_line_set_data(line, i, cells[i]))
			outlook_need(NULL);
	}
}

static void end_table(struct libscols_table *t)
{
	scols_print_table(t);
	scols_unref_table(t);
}

/* ---- settings and rules ---- */

static char cells[CELLS][CELL_BYTES];

static void put_origin(char *out, const struct view_source *s, const char *variable)
{
	int n = 0;

	if (s->profile)
		n = sprintf(out, "profile %s, ", s->profile);
	if (!s->text)
		strcpy(out, "default");
	else if (s->file)
		sprintf(out + n, "%s:%u", s->file, s->line);
	else
		sprintf(out + n, "environment, %s", variable);
}

static void print_settings(FILE *out, const struct outlook *o)
{
	static const char *const heads[CELLS] = {"  setting", "value", "from"};
	struct libscols_table *t = new_table(out, heads);

	for (int id = 0; id < VALUE_COUNT; id++) {
		const struct view_source *s = &o->view.source[id];

		sprintf(cells[0], "  %s", value_table[id].name);
		outlook_value(o, (enum value_id)id, cells[1], CELL_BYTES);
		put_origin(cells[2], s,
			   value_table[s->profile ? VALUE_PROFILE : (enum value_id)id]
				   .variable);
		add_line(t, cells);
	}
	end_table(t);
}

static void print_rules(FILE *out, const struct outlook *o)
{
	static const char *const none[CELLS] = {"", "", ""};
	const struct rules *rules = &o->view.rules;
	struct libscols_table *t = new_table(out, none);

	fprintf(out, "\nRules, in the order in which they are asked; the first that "
		     "matches decides\n");
	for (unsigned i = 0; i < rules->count; i++) {
		const struct rule *r = &rules->rule[i];

		sprintf(cells[0], "  %2u", i + 1);
		snprintf(cells[1], CELL_BYTES, "%.*s", r->length, r->text);
		if (r->file)
			sprintf(cells[2], "%s:%u", r->file, r->line);
		else
			strcpy(cells[2], "environment, VIADUCT_RULES");
		add_line(t, cells);
	}
	strcpy(cells[0], "   -");
	strcpy(cells[1], "allow");
	strcpy(cells[2], "what no rule matches");
	add_line(t, cells);
	end_table(t);
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
	if (o->program)
		fprintf(out, "For the program %s\n\n", o->program);
	print_settings(out, o);
	if (o->view.config.off)
		fprintf(out, "\nViaduct is off: every connection stays on TCP.\n");
	else if (o->doubt)
		fprintf(out,
			"\nEvery connection stays on TCP, because what is wrong below "
			"leaves rules in doubt.\n");
	print_rules(out, o);
	print_sections(out, o);
	print_files(out, o);
	for (size_t i = 0; i < o->problem_count; i++)
		fprintf(out, "%s  %s: %s\n", i ? "" : "\nWhat is wrong\n",
			o->problems[i].place, o->problems[i].text);
}
