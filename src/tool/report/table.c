/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the page: the machine, and every figure. */
#include <string.h>

#include "tool/report/report.h"

static void put_value(FILE *out, const json_t *value)
{
	if (json_is_string(value))
		put_escaped(out, json_string_value(value));
	else if (json_is_number(value))
		fprintf(out, "%.10g", json_number_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "yes" : "no", out);
	else if (json_is_array(value)) {
		for (size_t i = 0; i < json_array_size(value); i++) {
			if (i)
				fputs(", ", out);
			put_value(out, json_array_get(value, i));
		}
	} else if (json_is_object(value)) {
		const char *name, *comma = "";
		json_t *v;

		json_object_foreach((json_t *)value, name, v)
		{
			putf_escaped(out, "%s%s ", comma, name);
			put_value(out, v);
			comma = ", ";
		}
	}
}

/* Other systems, of which a program measures: is it there? */
static void put_peers(FILE *out, const json_t *peers)
{
	for (size_t i = 0; i < json_array_size(peers); i++) {
		const json_t *peer = json_array_get(peers, i);
		bool found = json_is_true(json_object_get(peer, "found"));

		putf_escaped(out, "%s%s: ", i ? "; " : "",
			     contender_words(json_word(peer, "over")));
		putf_escaped(out, found ? "%s" : "not installed (Debian: %s)",
			     json_word(peer, found ? "program" : "package"));
	}
}

/* Fields of the JSON in words; a number is of this unit, once it is multiplied. */
static const struct field {
	const char *name, *words;
	enum unit unit;
	double scale; /* 0: as it stands */
} fields[] = {
	{"cpu", "processor", 0, 0},
	{"cpus", "processors", 0, 0},
	{"memory_bytes", "memory", UNIT_SIZE, 1},
	{"idle_driver", "idle processors: driver", 0, 0},
	{"idle_governor", "idle processors: governor", 0, 0},
	{"guest_halt_poll_ns", "idle processors: polling before sleep, ns", 0, 0},
	{"frequency_governor", "frequency governor", 0, 0},
	{"system_congestion", "congestion control of the system", 0, 0},
	{"load", "load at the start", 0, 0},
	{"clocksource", "clock", 0, 0},
	{"line_ns", "round trip through one cache line", UNIT_TIME, 1e-9},
	{"ring_rtt_64_ns", "round trip of 64 B", UNIT_TIME, 1e-9},
	{"ring_64_per_s", "messages of 64 B", UNIT_RATE, 1},
	{"ring_16k_bytes_per_s", "in messages of 16 KiB", UNIT_BYTES_RATE, 1},
	{"pairs", "pairs of measurements", 0, 0},
	{"time_s", "length of a measurement", UNIT_TIME, 1},
	{"busy", "busy loops beside", 0, 0},
	{"congestion", "congestion control of TCP", 0, 0},
	{"active", "active connections (0: all)", 0, 0},
	{"peers", "other systems", 0, 0},
	{"matrix", "the whole matrix", 0, 0},
	{"recheck", "pairs more where one is below TCP", 0, 0},
	{"think_us", "thinking time", UNIT_TIME, 1e-6},
};

static void put_field(FILE *out, const char *name, const json_t *value)
{
	static const struct field other;
	const struct field *f = &other;
	char text[FIGURE_LETTERS];

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!strcmp(fields[i].name, name))
			f = &fields[i];
	fprintf(out, "<tr><td>");
	put_escaped(out, f->words ? f->words : name);
	fprintf(out, "</td><td>");
	if (f->scale > 0 && json_number_value(value) > 0)
		fputs(format_figure(text, f->unit, json_number_value(value) * f->scale),
		      out);
	else if (!strcmp(name, "peers"))
		put_peers(out, value);
	else
		put_value(out, value);
	fprintf(out, "</td></tr>\n");
}

static void put_fields(FILE *out, const char *heading, const json_t *object)
{
	const char *name;
	json_t *value;

	if (!json_object_size(object))
		return;
	fprintf(out, "<table><tr><th colspan=\"2\" scope=\"colgroup\">%s</th></tr>\n",
		heading);
	json_object_foreach((json_t *)object, name, value) put_field(out, name, value);
	fprintf(out, "</table>\n");
}

void table_machine(FILE *out, const struct figures *f)
{
	fprintf(out, "<div class=\"fields\">\n");
	put_fields(out, "The machine", json_object_get(f->json, "machine"));
	put_fields(out, "The run", json_object_get(f->json, "run"));
	put_fields(out, "Its limit: a raw ring, without sockets",
		   json_object_get(f->json, "floor"));
	fprintf(out, "</div>\n");
}

static void put_direct(FILE *out, const struct row *row, const struct result *r)
{
	double all = r->direct_bytes + r->tcp_bytes;

	if (r->under_viaduct && all > 0 && r->direct_bytes > 0)
		fprintf(out, "%.1f %%", 100 * r->direct_bytes / all);
	else if (r->under_viaduct)
		fputs(row_wants_direct(row) ? "<b>NONE</b>" : "none", out);
}

static void put_result(FILE *out, const struct row *row, const struct result *r)
{
	char text[FIGURE_LETTERS];
	bool first = r == row->result;

	fprintf(out, "<td>");
	put_escaped(out, contender_words(r->over));
	fprintf(out, "</td><td class=\"n\"><b>%s</b></td>",
		format_rate(text, row, r->rate.median));
	fprintf(out, "<td class=\"n\">%s</td>", format_rate(text, row, r->rate.min));
	fprintf(out, "<td class=\"n\">%s</td>", format_rate(text, row, r->rate.max));
	fprintf(out, "<td class=\"n\">");
	if (!first && r->ratio.median > 0) {
		fprintf(out, "<b>%s</b>",
			format_figure(text, UNIT_RATIO, r->ratio.median));
		fprintf(out, "</td><td class=\"n\">%s to ",
			format_figure(text, UNIT_RATIO, r->ratio.min));
		fputs(format_figure(text, UNIT_RATIO, r->ratio.max), out);
	} else {
		fprintf(out, "</td><td>");
	}
	fprintf(out, "</td><td class=\"n\">");
	if (r->cpu_ns_per_op > 0)
		fputs(format_figure(text, UNIT_TIME, r->cpu_ns_per_op * 1e-9), out);
	fprintf(out, "</td><td class=\"n\">");
	put_direct(out, row, r);
	fprintf(out, "</td>");
}

static void put_row(FILE *out, const struct row *row)
{
	char cell[CELL_LETTERS];

	for (unsigned i = 0; i < row->results; i++) {
		fprintf(out, "<tr%s>", i ? "" : " class=\"new\"");
		if (!i) {
			fprintf(out, "<th scope=\"rowgroup\" rowspan=\"%u\">",
				row->results);
			put_escaped(out, pattern_words(row->pattern));
			fprintf(out, "<br><span class=\"soft\">");
			put_escaped(out, format_cell(cell, sizeof(cell), row));
			fprintf(out, "</span></th>");
		}
		put_result(out, row, &row->result[i]);
		if (!i && row->line_ns > 0)
			fprintf(out, "<td class=\"n\">%.0f ns</td></tr>\n", row->line_ns);
		else
			fprintf(out, "<td></td></tr>\n");
	}
}

void table_figures(FILE *out, const struct figures *f)
{
	static const char *const heads[] = {"what",	    "over",
					    "median",	    "slowest pair",
					    "fastest pair", "times the first",
					    "pairs",	    "CPU of both ends",
					    "direct",	    "line"};

	fprintf(out, "<div class=\"scroll\"><table class=\"figures\">\n<thead><tr>");
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		fprintf(out, "<th scope=\"col\"%s>%s</th>", i > 1 ? " class=\"n\"" : "",
			heads[i]);
	fprintf(out, "</tr></thead>\n<tbody>\n");
	for (unsigned i = 0; i < f->rows; i++)
		put_row(out, &f->row[i]);
	fprintf(out, "</tbody></table></div>\n");
}
