/* SPDX-License-Identifier: Apache-2.0 */
/* One finding: how it is filled in, and printed for people and for programs. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "base/printable.h"
#include "tool/doctor/doctor.h"
#include "tool/json.h"

enum { INDENT = 26, LINE_LETTERS = 90 };

static const char *const state_names[] = {
	[FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_PROBLEM] = "problem"};

void found(struct finding *f, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}

void found_number(struct finding *f, double number, const char *unit)
{
	f->is_number = true;
	f->number = number;
	f->unit = unit;
}

void found_word(struct finding *f, const char *word)
{
	snprintf(f->word, sizeof(f->word), "%s", word);
}

void found_trouble(struct finding *f, enum finding_state state, const char *meaning,
		   const char *remedy, ...)
{
	va_list args;

	f->state = state;
	snprintf(f->meaning, sizeof(f->meaning), "%s", meaning);
	va_start(args, remedy);
	vsnprintf(f->remedy, sizeof(f->remedy), remedy, args);
	va_end(args);
}

static const char *remedy_for(int error)
{
	switch (error) {
	case EMFILE:
	case ENFILE:
		return "Raise the limit of descriptors: `ulimit -n`.";
	case EFBIG:
		return "Raise the limit of a file's size: `ulimit -f unlimited`.";
	case ENOMEM:
	case ENOBUFS:
	case ENOSPC:
		return "Raise the limits of memory: `ulimit -v`, or the container's.";
	case EPERM:
	case EACCES:
	case ENOSYS:
		return "Allow it in the filter of system calls (seccomp) or the security "
		       "policy of this container or service.";
	case EAFNOSUPPORT:
	case EPROTONOSUPPORT:
	case ENOPROTOOPT:
		return "Use a kernel that has it, or load the module that does.";
	default:
		return "See the kernel's log: `dmesg`.";
	}
}

void found_refused(struct finding *f, const char *call, int error)
{
	found(f, "%s failed: %s", call, strerror(error));
	found_word(f, strerror(error));
	found_trouble(f, FINDING_PROBLEM, "Every connection stays on TCP.", "%s",
		      remedy_for(error));
}

void finding_print(FILE *out, const char *name, const struct finding *f)
{
	fprintf(out, "  %-7s  %-14s ", state_names[f->state], name);
	printable_put(out, f->text, SIZE_MAX);
	fputc('\n', out);
	if (f->state == FINDING_OK)
		return;
	/* Both sentences on one line where they are short. */
	bool one = strlen(f->meaning) + strlen(f->remedy) < LINE_LETTERS;

	fprintf(out, "%*s", INDENT, "");
	printable_put(out, f->meaning, SIZE_MAX);
	fprintf(out, "%s%*s", one ? " " : "\n", one ? 0 : INDENT, "");
	printable_put(out, f->remedy, SIZE_MAX);
	fputc('\n', out);
}

static void json_field(FILE *out, const char *name, const char *text)
{
	fprintf(out, ",\"%s\":", name);
	write_json_string(out, text);
}

void finding_json(FILE *out, const char *group, const char *name, const struct finding *f)
{
	char text[sizeof(f->text) + sizeof(f->meaning) + 4];
	bool ok = f->state == FINDING_OK;

	snprintf(text, sizeof(text), "%s%s%s", f->text, ok ? "" : ". ", f->meaning);
	fprintf(out, "{\"group\":\"%s\",\"name\":\"%s\",\"state\":\"%s\"", group, name,
		state_names[f->state]);
	if (f->is_number)
		fprintf(out, ",\"value\":%.15g", f->number);
	else
		json_field(out, "value", f->word);
	json_field(out, "unit", f->unit);
	json_field(out, "text", text);
	json_field(out, "remedy", f->remedy);
	fputc('}', out);
}
