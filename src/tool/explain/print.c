/* SPDX-License-Identifier: Apache-2.0 */
/* An answer for people: in lines of words, and what holds for several connections once. */
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "tool/explain/explain.h"
#include "tool/terminal.h"

enum {
	NAME_AT = 8,
	INDENT = 20,
	COLUMNS = 88,
	COLUMNS_LEAST = 60,
	SHOWN_GROUPS = 40,
	SHOWN_MEMBERS = 5,
};

static const char *const state_names[] = {
	[POINT_YES] = "yes", [POINT_NOTE] = "note", [POINT_NO] = "no"};
static int columns = COLUMNS;

/* ---- lines of words ---- */

/* A command is to be copied, so it is never broken: what stands in `...`, and the command line
 * at the end of a text. */
static size_t word_length(const char *text, const char *start)
{
	static const char run[] = "viaduct run -- ";
	size_t len = strcspn(text, " ");
	const char *quote = memchr(text, '`', len), *end;

	if (text - start >= 2 && !strncmp(text - 2, ": ", 2) &&
	    !strncmp(text, run, sizeof(run) - 1))
		return strlen(text);
	end = quote ? strchr(quote + 1, '`') : NULL;
	return end && end > text + len ? (size_t)(end - text) + strcspn(end, " ") : len;
}

/* Beginning at column `at`; a word that is too long gets its own line. */
static void wrap(FILE *out, const char *text, int at)
{
	const char *start = text;
	int column = at;

	while (*text) {
		size_t len = word_length(text, start);

		if (column > at && column + 1 + (int)len > columns) {
			fprintf(out, "\n%*s", at, "");
			column = at;
		} else if (column > at) {
			fputc(' ', out);
			column++;
		}
		printable_put(out, text, len);
		column += (int)len;
		text += len;
		text += *text == ' ';
	}
	fputc('\n', out);
}

static void print_point(FILE *out, const struct point *p)
{
	if (strlen(p->name) < INDENT - NAME_AT)
		fprintf(out, "  %-4s  %-*s", state_names[p->state], INDENT - NAME_AT,
			p->name);
	else
		fprintf(out, "  %-4s  %s\n%*s", state_names[p->state], p->name, INDENT,
			"");
	wrap(out, p->text, INDENT);
	if (!p->remedy)
		return;
	fprintf(out, "%*s", INDENT, "");
	wrap(out, p->remedy, INDENT);
}

/* ---- what holds for several ---- */

/* The points about one connection, or one listener. */
struct block {
	const struct point *first;
	size_t points;
	bool is_printed;
};

struct blocks {
	struct block *items;
	size_t count;
};

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static struct blocks blocks_of(const struct answer *a)
{
	struct blocks b = {need(calloc(a->count + 1, sizeof(*b.items))), 0};

	for (size_t i = 0; i < a->count; i++) {
		const struct point *p = &a->points[i];

		if (!p->about)
			continue;
		if (b.count && i && is_same_text(p->about, p[-1].about))
			b.items[b.count - 1].points++;
		else
			b.items[b.count++] = (struct block){p, 1, false};
	}
	return b;
}

static bool is_listener(const struct block *b)
{
	return strstr(b->first->about, ": listens on ") != NULL;
}

static bool says_the_same(const struct block *a, const struct block *b)
{
	if (a->points != b->points || is_listener(a) != is_listener(b))
		return false;
	for (size_t i = 0; i < a->points; i++)
		if (a->first[i].state != b->first[i].state ||
		    strcmp(a->first[i].name, b->first[i].name) != 0 ||
		    strcmp(a->first[i].text, b->first[i].text) != 0 ||
		    !is_same_text(a->first[i].remedy, b->first[i].remedy))
			return false;
	return true;
}

/* This one, and all after it of which the same is said. */
static void print_group(FILE *out, struct blocks *all, size_t from)
{
	const struct block *first = &all->items[from];
	size_t count = 0, shown = 0;

	for (size_t i = from; i < all->count; i++)
		count +=
			!all->items[i].is_printed && says_the_same(first, &all->items[i]);
	fputc('\n', out);
	if (count > 1)
		fprintf(out, "%zu %s:\n", count,
			is_listener(first) ? "listeners" : "connections");
	for (size_t i = from; i < all->count; i++) {
		struct block *b = &all->items[i];

		if (b->is_printed || !says_the_same(first, b))
			continue;
		b->is_printed = true;
		if (shown++ >= SHOWN_MEMBERS && count > SHOWN_MEMBERS + 1)
			continue;
		fputs(count > 1 ? "  " : "", out);
		wrap(out, b->first->about, count > 1 ? 2 : 0);
	}
	if (count > SHOWN_MEMBERS + 1)
		fprintf(out, "  and %zu more\n", count - SHOWN_MEMBERS);
	for (size_t i = 0; i < first->points; i++)
		print_point(out, &first->first[i]);
}

/* What is not shown one by one is counted by reason. */
static void print_rest(FILE *out, const struct blocks *all)
{
	struct tally {
		const char *name;
		size_t count;
	} *tally = need(calloc(all->count + 1, sizeof(*tally)));
	size_t kinds = 0, rest = 0;
	char *list = NULL;

	for (size_t i = 0; i < all->count; i++) {
		size_t k = 0;

		if (all->items[i].is_printed)
			continue;
		rest++;
		while (k < kinds && strcmp(tally[k].name, all->items[i].first->name) != 0)
			k++;
		if (k == kinds)
			tally[kinds++].name = all->items[i].first->name;
		tally[k].count++;
	}
	for (size_t k = 0; k < kinds; k++) {
		char *word = text_of("%zu %s", tally[k].count, tally[k].name);

		text_list(&list, word);
		free(word);
	}
	if (rest) {
		struct point p = {.state = POINT_NOTE, .name = "more"};

		p.text = text_of("%zu connections more, counted by their reasons: %s.",
				 rest, list);
		p.remedy = text_of("See them all with --json, or one of them by PID:FD.");
		fprintf(out, "\nThe others\n");
		print_point(out, &p);
		free(p.text);
		free(p.remedy);
	}
	free(tally);
	free(list);
}

void answer_print(FILE *out, const struct answer *a)
{
	struct blocks all = blocks_of(a);
	size_t groups = 0;
	int width = terminal_width(out);

	if (width)
		columns = width > COLUMNS	  ? COLUMNS
			  : width > COLUMNS_LEAST ? width
						  : COLUMNS_LEAST;
	wrap(out, a->verdict, 0);
	for (size_t i = 0; i < a->count; i++) {
		if (a->points[i].about)
			continue;
		fputs(groups++ ? "" : "\n", out);
		print_point(out, &a->points[i]);
	}
	groups = 0;
	for (size_t i = 0; i < all.count && groups < SHOWN_GROUPS; i++)
		if (!all.items[i].is_printed) {
			print_group(out, &all, i);
			groups++;
		}
	print_rest(out, &all);
	free(all.items);
}
