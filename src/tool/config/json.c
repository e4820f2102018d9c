/* SPDX-License-Identifier: Apache-2.0 */
/* The settings and rules in force, as one JSON object. */
#include <string.h>

#include "tool/config/config.h"
#include "tool/json.h"

enum { TEXT_BYTES = 32 << 10 };

static const char *const levels[] = {[CONFFILE_SYSTEM] = "system",
				     [CONFFILE_USER] = "user",
				     [CONFFILE_NAMED] = "named"};
static const char *const states[] = {
	[CONFFILE_ABSENT] = "absent",	[CONFFILE_READ] = "read",
	[CONFFILE_FOREIGN] = "foreign", [CONFFILE_LOOSE] = "loose",
	[CONFFILE_BAD] = "bad",
};

static void field(FILE *out, const char *before, const char *name, const char *text)
{
	fprintf(out, "%s\"%s\":", before, name);
	write_json_string(out, text);
}

static void place(FILE *out, const char *file, unsigned line, const char *variable)
{
	field(out, ",", "file", file ? file : "");
	fprintf(out, ",\"line\":%u", line);
	field(out, ",", "variable", variable);
}

static void json_settings(FILE *out, const struct outlook *o)
{
	static char value[PATH_MAX + 16];

	for (int id = 0; id < VALUE_COUNT; id++) {
		const struct view_source *s = &o->view.source[id];
		const char *variable = value_table[id].variable;
		const char *origin = s->profile ? "profile"
				     : s->file	? "file"
				     : s->text	? "environment"
						: "default";

		if (s->profile)
			variable = value_table[VALUE_PROFILE].variable;
		outlook_value(o, (enum value_id)id, value, sizeof(value));
		field(out, id ? ",\n{" : "\n{", "name", value_table[id].name);
		field(out, ",", "value", value);
		field(out, ",", "origin", origin);
		field(out, ",", "profile", s->profile ? s->profile : "");
		place(out, s->file, s->line, s->text && !s->file ? variable : "");
		fputc('}', out);
	}
}

static void json_rules(FILE *out, const struct outlook *o)
{
	static char text[TEXT_BYTES];

	for (unsigned i = 0; i < o->view.rules.count; i++) {
		const struct rule *r = &o->view.rules.rule[i];

		snprintf(text, sizeof(text), "%.*s", r->length, r->text);
		field(out, i ? ",\n{" : "\n{", "rule", text);
		field(out, ",", "origin", r->file ? "file" : "environment");
		place(out, r->file, r->line, r->file ? "" : "VIADUCT_RULES");
		fputc('}', out);
	}
}

static void json_sections(FILE *out, const struct outlook *o)
{
	struct section s = {0};
	const char *before = "\n{";

	while (outlook_section(o, &s)) {
		field(out, before, "program", s.program);
		field(out, ",", "file", o->view.files[s.file].path);
		fprintf(out, ",\"line\":%u}", s.line);
		before = ",\n{";
	}
}

static void json_files(FILE *out, const struct outlook *o)
{
	const char *before = "\n{";

	for (int i = 0; i < VIEW_FILES; i++) {
		const struct conffile *f = &o->view.files[i];

		if (f->state == CONFFILE_NONE)
			continue;
		field(out, before, "level", levels[f->level]);
		field(out, ",", "path", f->path);
		field(out, ",", "state", states[f->state]);
		field(out, ",", "text", f->why);
		fputc('}', out);
		before = ",\n{";
	}
}

void outlook_json(FILE *out, const struct outlook *o)
{
	field(out, "{", "version", VD_VERSION);
	field(out, ",", "program", o->program ? o->program : "");
	fprintf(out, ",\"off\":%s,\"doubt\":%s,\"settings\":[",
		o->view.config.off ? "true" : "false", o->doubt ? "true" : "false");
	json_settings(out, o);
	fprintf(out, "],\n\"rules\":[");
	json_rules(out, o);
	fprintf(out, "],\n\"sections\":[");
	json_sections(out, o);
	fprintf(out, "],\n\"files\":[");
	json_files(out, o);
	fprintf(out, "],\n\"problems\":[");
	for (size_t i = 0; i < o->problem_count; i++) {
		field(out, i ? ",\n{" : "\n{", "place", o->problems[i].place);
		field(out, ",", "text", o->problems[i].text);
		fputc('}', out);
	}
	fprintf(out, "]}\n");
}
