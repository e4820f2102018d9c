/* SPDX-License-Identifier: Apache-2.0 */
/* All settings and rules of a process together, each with the place that it comes from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "settings/view.h"

#define MESSAGE_BYTES 256
#define BLANKS	      " \t"

/* One way through one file: for the settings, or for the rules. */
struct walk {
	struct view *v;
	const struct conffile *file;
	unsigned line;
	bool for_rules;
	bool fits;			     /* the section in hand is for this program */
	bool is_mistaken;		     /* nobody knows for whom it is */
	struct view_source set[VALUE_COUNT]; /* by the section, so far */
};

static const char *environment(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static void complain(struct view *v, enum view_effect effect, const char *file,
		     const char *place, const char *message)
{
	v->complaints++;
	if (effect == VIEW_DOUBT)
		v->doubt = true;
	if (v->complain)
		v->complain(v, effect, file, place, message);
}

/* ---- which files ---- */

static bool is_off_by_environment(void)
{
	const char *viaduct = environment("VIADUCT");
	const char *profile = environment("VIADUCT_PROFILE");

	if (viaduct && !strcmp(viaduct, "off"))
		return true;
	return profile && !strcmp(profile, "off") && !(viaduct && !strcmp(viaduct, "on"));
}

static void load_named(struct conffile *f, const char *path)
{
	size_t len = strlen(path);

	if (len == 0)
		return;
	snprintf(f->path, sizeof(f->path), "%s", path);
	if (*path == '/' && len < sizeof(f->path)) {
		conffile_read(f, CONFFILE_NAMED);
		return;
	}
	f->level = CONFFILE_NAMED;
	f->state = CONFFILE_BAD;
	snprintf(f->why, sizeof(f->why),
		 "VIADUCT_CONFIG takes an absolute name of a file, or nothing for no "
		 "file");
}

void view_load(struct view *v)
{
	const char *named = secure_getenv("VIADUCT_CONFIG");
	struct conffile *system = &v->files[0], *user = &v->files[1];

	v->privileged = getauxval(AT_SECURE) != 0;
	v->env_off = !v->privileged && is_off_by_environment();
	if (v->privileged || v->env_off)
		return;
	if (named) {
		load_named(user, named);
		return;
	}
	snprintf(system->path, sizeof(system->path), "%s", conffile_system);
	conffile_read(system, CONFFILE_SYSTEM);
	if (conffile_user(user->path, sizeof(user->path)))
		conffile_read(user, CONFFILE_USER);
}

/* ---- one section, or the environment ---- */

/* A profile first: single settings of the same place stand above it. */
static void apply(struct view *v, const struct view_source set[VALUE_COUNT], bool in_file)
{
	char message[MESSAGE_BYTES];

	if (set[VALUE_PROFILE].text) {
		for (int id = VALUE_PROFILE_FIRST; id <= VALUE_PROFILE_LAST; id++) {
			v->source[id] = set[VALUE_PROFILE];
			v->source[id].profile = value_profile(set[VALUE_PROFILE].text);
		}
	}
	for (int id = 0; id < VALUE_COUNT; id++) {
		if (!set[id].text)
			continue;
		value_parse((enum value_id)id, set[id].text, in_file, &v->config, message,
			    sizeof(message));
		v->source[id] = set[id];
	}
}

static void complain_of_variable(struct view *v, enum view_effect effect,
				 const char *name, const char *value, const char *message)
{
	char place[160];
	int n = snprintf(place, sizeof(place), "%s=%s", name, value);

	if (n >= (int)sizeof(place)) /* a long list of rules */
		strcpy(place + sizeof(place) - 4, "...");
	complain(v, effect, NULL, place, message);
}

/* Who has set VIADUCT wants it off, more likely than not; but a path is where somebody's script has the command. */
static enum view_effect mistake(int id, const char *text)
{
	return id == VALUE_VIADUCT && !strchr(text, '/') ? VIEW_DOUBT : VIEW_SKIPPED;
}

static void apply_environment(struct view *v)
{
	struct view_source set[VALUE_COUNT] = {0};
	char message[MESSAGE_BYTES];

	for (int id = 0; id < VALUE_COUNT; id++) {
		const char *name = value_table[id].variable, *text = environment(name);
		struct config scratch = v->config;

		/* A log was asked for, however it is spelt: log_init says so, and makes one. */
		if (!text || id == VALUE_LOG)
			set[id].text = text;
		if (!text || (id == VALUE_LOG && !v->strict))
			continue;
		if (value_parse((enum value_id)id, text, false, &scratch, message,
				sizeof(message)) == 0)
			set[id].text = text;
		else
			complain_of_variable(v, mistake(id, text), name, text, message);
	}
	apply(v, set, false);
}

static void environment_rules(struct view *v)
{
	const char *text = environment("VIADUCT_RULES");
	char message[MESSAGE_BYTES];

	if (!text || rules_parse(text, &v->rules, message, sizeof(message)) == 0)
		return;
	v->rules.count = 0;
	complain_of_variable(v, VIEW_DOUBT, "VIADUCT_RULES", text, message);
}

/* ---- the lines of a file ---- */

static void complain_of_line(struct walk *w, enum view_effect effect, const char *message)
{
	char place[PATH_MAX + 16];

	snprintf(place, sizeof(place), "%s:%u", w->file->path, w->line);
	complain(w->v, effect, w->file->path, place, message);
}

bool view_section(const char *line, char glob[RULE_PROGRAM_BYTES])
{
	static const char name[] = "program=";
	const char *from = line + 1 + strspn(line + 1, BLANKS), *end = strrchr(line, ']');

	if (!end || end[1] || strncmp(from, name, strlen(name)) != 0)
		return false;
	from += strlen(name);
	while (end > from && strchr(BLANKS, end[-1]))
		end--;
	if (end <= from || end - from >= RULE_PROGRAM_BYTES)
		return false;
	memcpy(glob, from, (size_t)(end - from));
	glob[end - from] = '\0';
	return !strpbrk(glob, BLANKS "/");
}

static void begin_section(struct walk *w, const char *line)
{
	struct view *v = w->v;
	char glob[RULE_PROGRAM_BYTES];

	if (w->fits)
		apply(v, w->set, true);
	memset(w->set, 0, sizeof(w->set));
	w->is_mistaken = !view_section(line, glob);
	w->fits = !w->is_mistaken && (v->exe ? rules_fit_program(glob, v->exe, v->argv0)
					     : !strcmp(glob, "*"));
	if (w->for_rules)
		return;
	v->sections++;
	if (w->is_mistaken)
		complain_of_line(
			w, VIEW_SKIPPED,
			"a section begins with [program=PATTERN], with a pattern "
			"of 1 to 63 characters for the program's base name; [program=*] "
			"is for all");
}

static bool is_word(const char *word, const char *text, size_t length)
{
	return strlen(word) == length && !strncasecmp(word, text, length);
}

#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"

/* Returns the value of a line NAME = VALUE, and the length of the name; else NULL. */
static const char *setting_of(const char *line, size_t *length)
{
	size_t n = strspn(line, NAME_BYTES);
	const char *at = line + n + strspn(line + n, BLANKS);

	if (n == 0 || *at != '=' || is_word("allow", line, n) || is_word("deny", line, n))
		return NULL;
	*length = n;
	return at + 1 + strspn(at + 1, BLANKS);
}

/* What is no setting is taken for a rule: a rule that is not understood must not be lost. */
static const char *rule_of(const char *line)
{
	size_t n = 0;
	const char *value = setting_of(line, &n);

	if (!value)
		return line;
	return is_word("rule", line, n) || is_word("rules", line, n) ? value : NULL;
}

static void take_setting(struct walk *w, const char *line)
{
	char why[MESSAGE_BYTES], message[MESSAGE_BYTES + 128], list[128];
	size_t n = 0;
	const char *value = setting_of(line, &n);
	enum value_id id = value_find(line, n);
	struct config scratch = w->v->config;

	if (id == VALUE_COUNT)
		snprintf(message, sizeof(message),
			 "there is no setting %.*s; there are %s", (int)(n < 64 ? n : 64),
			 line, value_list(list, sizeof(list)));
	else if (w->set[id].text)
		snprintf(message, sizeof(message),
			 "%s is set in line %u already: remove one of the two",
			 value_table[id].name, w->set[id].line);
	else if (value_parse(id, value, true, &scratch, why, sizeof(why)) != 0)
		snprintf(message, sizeof(message), "%s = %.80s: %s", value_table[id].name,
			 value, why);
	else {
		w->set[id] = (struct view_source){
			.text = value, .file = w->file->path, .line = w->line};
		return;
	}
	complain_of_line(w, VIEW_SKIPPED, message);
}

/* A line of a setting that lacks its `=` is taken for a rule: replaces what is said of that. */
static void name_missing_equals(const char *line, char *message, size_t size)
{
	size_t n = strspn(line, NAME_BYTES);
	enum value_id id =
		line[n] && !strchr(BLANKS, line[n]) ? VALUE_COUNT : value_find(line, n);

	if (id != VALUE_COUNT)
		snprintf(message, size, "a setting is written as %s = VALUE",
			 value_table[id].name);
}

static void take_rules(struct walk *w, const char *text)
{
	struct rules *rules = &w->v->rules;
	char message[MESSAGE_BYTES];
	unsigned before = rules->count;
	int err;

	if (w->is_mistaken) {
		complain_of_line(w, VIEW_DOUBT,
				 "this rule is in a section whose [program=PATTERN] is "
				 "not understood");
		return;
	}
	err = rules_add(text, rules, message, sizeof(message));
	if (err != 0) {
		name_missing_equals(text, message, sizeof(message));
		if (err != -ENOSPC || !w->v->full)
			complain_of_line(w, VIEW_DOUBT, message);
		w->v->full = w->v->full || err == -ENOSPC;
		return;
	}
	if (!w->fits)
		rules->count = before;
	for (unsigned i = before; i < rules->count; i++) {
		rules->rule[i].file = w->file->path;
		rules->rule[i].line = w->line;
	}
}

static void walk(struct view *v, const struct conffile *f, bool for_rules)
{
	struct walk w = {.v = v, .file = f, .for_rules = for_rules, .fits = true};
	const char *line, *rule;
	size_t at = 0;

	while (f->state == CONFFILE_READ && (line = conffile_next(f, &at))) {
		w.line++;
		if (!*line)
			continue;
		if (*line == '[') {
			begin_section(&w, line);
			continue;
		}
		rule = rule_of(line);
		if ((rule != NULL) != for_rules)
			continue;
		if (rule && (w.fits || w.is_mistaken || v->strict))
			take_rules(&w, rule);
		else if (!rule && (w.fits || v->strict))
			take_setting(&w, line);
	}
	if (w.fits)
		apply(v, w.set, true);
}

static void judge(struct view *v, const struct conffile *f)
{
	if (f->state == CONFFILE_BAD)
		complain(v, VIEW_DOUBT, f->path, f->path, f->why);
	else if (f->state == CONFFILE_FOREIGN)
		complain(v, VIEW_FOREIGN, f->path, f->path, f->why);
	else if (f->state == CONFFILE_LOOSE)
		complain(v, VIEW_IGNORED, f->path, f->path, f->why);
}

void view_resolve(struct view *v)
{
	value_defaults(&v->config);
	memset(v->source, 0, sizeof(v->source));
	v->rules.count = 0;
	v->doubt = v->full = false;
	v->complaints = v->sections = 0;
	for (int i = 0; i < VIEW_FILES; i++) {
		judge(v, &v->files[i]);
		walk(v, &v->files[i], false);
	}
	apply_environment(v);
	environment_rules(v);
	for (int i = VIEW_FILES - 1; i >= 0; i--)
		walk(v, &v->files[i], true);
}
