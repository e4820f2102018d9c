/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a user's own pair of programs: is it worth it? */
#include <string.h>

#include "cli/report.h"

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
		fprintf(stderr,
			"viaduct report: %s holds no times of programs (`plain` and "
			"`under_viaduct` are missing or empty)\n",
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

static void put_command(FILE *out, const char *words, const json_t *command)
{
	fprintf(out, "<p>%s: <code>", words);
	if (json_is_string(command))
		put_escaped(out, json_string_value(command));
	for (size_t i = 0; i < json_array_size(command); i++) {
		const char *word = json_string_value(json_array_get(command, i));

		putf_escaped(out, "%s%s", i ? " " : "", word ? word : "");
	}
	fprintf(out, "</code></p>\n");
}

void programs_write(FILE *out, const struct figures *f, const struct album *album)
{
	struct spread q = json_spread(f->json, "ratio");
	char figure[3][FIGURE_LETTERS];

	fprintf(out, "<p class=\"lead\">");
	put_escaped(out, json_word(f->json, "sentence"));
	fprintf(out, "</p>\n");
	if (q.median > 0)
		fprintf(out,
			"<p>Under Viaduct it is <b>%s</b> as fast as plain, in the "
			"median of "
			"%.0f pairs (%s to %s).</p>\n",
			format_figure(figure[0], UNIT_RATIO, q.median),
			json_figure(f->json, "pairs"),
			format_figure(figure[1], UNIT_RATIO, q.min),
			format_figure(figure[2], UNIT_RATIO, q.max));
	put_command(out, "Server", json_object_get(f->json, "server"));
	put_command(out, "Client", json_object_get(f->json, "client"));
	fprintf(out,
		"<p>Of %.0f connections %.0f were upgraded; %.0f bytes went direct and "
		"%.0f "
		"over TCP.</p>\n<div class=\"grid\">\n",
		json_figure(f->json, "connections"), json_figure(f->json, "upgraded"),
		json_figure(f->json, "direct_bytes"), json_figure(f->json, "tcp_bytes"));
	for (unsigned i = 0; i < album->count; i++) {
		fprintf(out, "<figure>");
		picture_write(out, &album->picture[i], false);
		fprintf(out, "</figure>\n");
	}
	fprintf(out, "</div>\n<h2>The machine</h2>\n");
	table_machine(out, f);
}
