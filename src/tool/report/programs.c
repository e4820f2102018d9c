/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a user's own pair of programs: is it worth it? */
#include <string.h>

#include "tool/cli.h"
#include "tool/report/report.h"

static const struct {
	const char *field, *words;
} measures[] = {
	{"elapsed_s", "Elapsed time"},
	{"client_cpu_s", "Processor time of the client"},
	{"server_cpu_s", "Processor time of the server"},
};

static const struct {
	const char *field, *words, *over;
} states[] = {
	{"plain", "plain", "tcp"},
	{"under_viaduct", "under Viaduct", "viaduct"},
};

static int gather(struct bars *bars, const struct figures *f)
{
	for (size_t m = 0; m < sizeof(measures) / sizeof(measures[0]); m++) {
		struct bar_group *g = bars_group(bars);

		if (!g)
			return -1;
		snprintf(g->name, sizeof(g->name), "%s", measures[m].words);
		for (size_t s = 0; s < 2; s++) {
			const json_t *state = json_object_get(f->json, states[s].field);
			struct spread v = json_spread(state, measures[m].field);
			struct bar *b = v.median > 0 ? bars_add(bars) : NULL;

			if (!b)
				continue;
			b->value = v;
			b->style = contender_style(states[s].over);
			snprintf(b->name, sizeof(b->name), "%s", states[s].words);
			format_figure(b->text, UNIT_TIME, v.median);
		}
	}
	return 0;
}

int programs_make(struct album *album, const struct figures *f)
{
	struct bars bars = {0};
	struct picture *p = NULL;
	int err = gather(&bars, f);

	if (!err && !bars.bars) {
		warn_line("viaduct report: %s holds no times of programs (`plain` and "
			  "`under_viaduct` are missing or empty)",
			  f->path);
		err = -1;
	}
	if (!err)
		p = picture_open(album, SECTION_OTHER, BARS_WIDTH, bars_height(&bars));
	if (p) {
		picture_name(p, "programs");
		snprintf(p->title, sizeof(p->title), "Plain and under Viaduct");
		snprintf(p->note, sizeof(p->note),
			 "Medians; whiskers: the lowest and the highest of the pairs. "
			 "Shorter is better.");
		bars_draw(p, &bars);
		err = picture_close(p);
	}
	bars_finish(&bars);
	return p ? err : -1;
}

/* As a shell would take it. */
static void put_word(FILE *out, const char *word)
{
	if (*word && !strpbrk(word, " \t\n'\"\\$`&;|<>()*?[]#~")) {
		putf_escaped(out, " %s", word);
		return;
	}
	fputs(" '", out);
	for (;; word++) {
		int n = (int)strcspn(word, "'");

		putf_escaped(out, "%.*s", n, word);
		word += n;
		if (!*word)
			break;
		fputs("'\\''", out);
	}
	fputc('\'', out);
}

static void put_command(FILE *out, const char *words, const json_t *command)
{
	fprintf(out, "<p>%s:<code>", words);
	for (size_t i = 0; i < json_array_size(command); i++) {
		const char *word = json_string_value(json_array_get(command, i));

		put_word(out, word ? word : "");
	}
	fprintf(out, "</code></p>\n");
}

static void put_counts(FILE *out, const struct figures *f)
{
	char text[4][FIGURE_LETTERS];

	fprintf(out,
		"<p>Of %s connections %s went direct, with %s bytes; %s bytes went over "
		"TCP.</p>\n",
		format_figure(text[0], UNIT_COUNT, json_figure(f->json, "connections")),
		format_figure(text[1], UNIT_COUNT, json_figure(f->json, "upgraded")),
		format_figure(text[2], UNIT_COUNT, json_figure(f->json, "direct_bytes")),
		format_figure(text[3], UNIT_COUNT, json_figure(f->json, "tcp_bytes")));
}

void programs_write(FILE *out, const struct figures *f, const struct album *album)
{
	struct spread q = json_spread(f->json, "ratio");
	char figure[3][FIGURE_LETTERS];

	fprintf(out, "<p class=\"lead\">");
	put_escaped(out, json_word(f->json, "sentence"));
	fprintf(out, "</p>\n");
	words_warnings(out, f);
	put_command(out, "Server", json_object_get(f->json, "server"));
	put_command(out, "Client", json_object_get(f->json, "client"));
	if (q.median > 0)
		fprintf(out,
			"<p>In %.0f pairs, plain and under Viaduct in turn, it was "
			"<b>%s</b> as "
			"fast under Viaduct (median; %s to %s).</p>\n",
			json_figure(f->json, "pairs"),
			format_figure(figure[0], UNIT_RATIO, q.median),
			format_figure(figure[1], UNIT_RATIO, q.min),
			format_figure(figure[2], UNIT_RATIO, q.max));
	put_counts(out, f);
	fprintf(out, "<div class=\"grid\">\n");
	for (unsigned i = 0; i < album->count; i++) {
		fprintf(out, "<figure>");
		picture_write(out, &album->picture[i], false);
		fprintf(out, "</figure>\n");
	}
	fprintf(out, "</div>\n<h2>Where it was measured</h2>\n");
	table_machine(out, f);
}
