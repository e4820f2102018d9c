/* SPDX-License-Identifier: Apache-2.0 */
/* How an answer is put together, and printed for programs. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli.h"
#include "tool/explain/explain.h"
#include "tool/json.h"

static const char *const state_names[] = {
	[POINT_YES] = "yes", [POINT_NOTE] = "note", [POINT_NO] = "no"};

void *need(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "viaduct explain: out of memory\n");
	exit(EXIT_USAGE);
}

static char *text_from(const char *format, va_list args)
{
	char *text = NULL;

	return need(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *text_of(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = text_from(format, args);
	va_end(args);
	return text;
}

void text_list(char **list, const char *word)
{
	/* Nobody reads more, and a hostile file has words without end. */
	enum { LIST_MOST = 16384 };
	char *longer;

	if (*list && strlen(*list) > LIST_MOST)
		return;
	longer = *list ? text_of("%s, %s", *list, word) : text_of("%s", word);

	free(*list);
	*list = longer;
}

void say(struct answer *a, enum point_state state, const char *name, const char *format,
	 ...)
{
	va_list args;

	a->points = need(realloc(a->points, (a->count + 1) * sizeof(*a->points)));
	va_start(args, format);
	a->points[a->count++] = (struct point){
		.state = state, .name = name, .text = text_from(format, args)};
	va_end(args);
}

void say_remedy(struct answer *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	a->points[a->count - 1].remedy = text_from(format, args);
	va_end(args);
}

void say_about(struct answer *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	a->points[a->count - 1].about = text_from(format, args);
	va_end(args);
}

void say_verdict(struct answer *a, bool accelerated, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	a->verdict = text_from(format, args);
	va_end(args);
	a->accelerated = accelerated;
}

bool said_no(const struct answer *a)
{
	for (size_t i = 0; i < a->count; i++)
		if (a->points[i].state == POINT_NO)
			return true;
	return false;
}

static void json_names(FILE *out, const char *key, const char *const *names, size_t count)
{
	fprintf(out, ",\"%s\":[", key);
	for (size_t i = 0; i < count; i++) {
		fputs(i ? "," : "", out);
		write_json_string(out, names[i]);
	}
	fputc(']', out);
}

static void json_point(FILE *out, const struct point *p)
{
	fprintf(out, "{\"about\":");
	write_json_string(out, p->about ? p->about : "");
	fprintf(out, ",\"state\":\"%s\",\"name\":\"%s\",\"text\":", state_names[p->state],
		p->name);
	write_json_string(out, p->text);
	fprintf(out, ",\"remedy\":");
	write_json_string(out, p->remedy ? p->remedy : "");
	fputc('}', out);
}

void answer_json(FILE *out, const char *subject, const struct answer *a)
{
	fprintf(out, "{\"version\":\"%s\",\"subject\":", VD_VERSION);
	write_json_string(out, subject);
	fprintf(out,
		",\"accelerated\":%s,\"verdict\":", a->accelerated ? "true" : "false");
	write_json_string(out, a->verdict);
	fprintf(out, ",\"points\":[");
	for (size_t i = 0; i < a->count; i++) {
		fputs(i ? ",\n" : "\n", out);
		json_point(out, &a->points[i]);
	}
	fprintf(out, "\n],\"imports\":[");
	for (size_t i = 0; i < a->imports_count; i++) {
		const struct imports *m = &a->imports[i];

		fprintf(out, "%s\n{\"file\":", i ? "," : "");
		write_json_string(out, m->file);
		json_names(out, "interposed", m->interposed, m->interposed_count);
		json_names(out, "outside", m->outside, m->outside_count);
		fputc('}', out);
	}
	fprintf(out, "\n]}\n");
}
