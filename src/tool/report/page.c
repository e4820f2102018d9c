/* SPDX-License-Identifier: Apache-2.0 */
/* The page: one HTML file that holds everything, needs no script, and can be printed. */
#include <string.h>

#include "tool/report/report.h"

static const char page_style[] =
	":root{color-scheme:light "
	"dark;--ink:#14181f;--soft:#5b6472;--paper:#fff;--panel:#f6f8fa;"
	"--edge:#d5dae1;--better:#0067a8;--worse:#b84a00;--caution:#fff6e0;"
	"--caution-edge:#d9a514}"
	"@media screen and "
	"(prefers-color-scheme:dark){:root{--ink:#f2f5f9;--soft:#9aa4b2;"
	"--paper:#14181f;--panel:#1b2028;--edge:#363d49;--better:#5bb8f5;--worse:#ff9a57;"
	"--caution:#2c2614;--caution-edge:#a5812a}}"
	"*{box-sizing:border-box}"
	"body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"
	"'DejaVu Sans','Liberation Sans',Arial,sans-serif}"
	"main{max-width:1320px;margin:0 auto;padding:28px 24px 60px}"
	"h1{font-size:28px;margin:0 0 4px}h2{font-size:20px;margin:36px 0 8px}"
	"h3{font-size:15px;margin:18px 0 4px}p{margin:6px 0;max-width:90ch}"
	"ul{margin:4px 0;padding-left:22px}li{margin:3px 0;max-width:110ch}"
	".soft{color:var(--soft);font-weight:400}.lead{font-size:17px}"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));"
	"gap:12px;"
	"margin:20px 0}"
	".tile{background:var(--panel);border:1px solid var(--edge);border-radius:8px;"
	"padding:12px 14px}"
	".tile span{display:block;color:var(--soft);font-size:13px}"
	".tile strong{display:block;font-size:30px;line-height:1.3}"
	".better{color:var(--better)}.worse{color:var(--worse)}"
	".caution{background:var(--caution);border:1px solid var(--caution-edge);"
	"border-radius:8px;padding:4px 18px 12px;margin:20px 0}"
	".caution h2{font-size:16px;margin:10px 0 4px}"
	".grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(560px,100%)"
	",1fr));"
	"gap:16px;align-items:start}"
	".stack{columns:2 480px;column-gap:16px}.stack figure{break-inside:avoid;"
	"margin-bottom:16px}"
	"p.wide{max-width:none}"
	"figure{margin:0;border:1px solid var(--edge);border-radius:8px;padding:6px;"
	"background:var(--paper);overflow-x:auto}"
	"figure svg{width:100%;min-width:400px;height:auto;display:block}"
	"figure.wide svg{width:auto;max-width:100%}"
	"table{border-collapse:collapse;font-size:13px}"
	"th,td{padding:3px 10px;text-align:left;vertical-align:top}"
	"th{font-weight:600}.n{text-align:right;white-space:nowrap;"
	"font-variant-numeric:tabular-nums}"
	".fields{display:flex;flex-wrap:wrap;gap:8px 48px;align-items:start}"
	".fields td:first-child{color:var(--soft)}.fields td,.fields th{padding-left:0}"
	".figures{width:100%}.figures td{white-space:nowrap}"
	".figures thead "
	"th{border-bottom:2px solid var(--edge)}"
	".figures tr.new>*{border-top:1px solid var(--edge)}"
	".scroll{overflow-x:auto}"
	"pre{background:var(--panel);border:1px solid var(--edge);border-radius:8px;"
	"padding:12px 14px;white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px}"
	"@media "
	"print{main{max-width:none;padding:0}body{font-size:11px}.lead{font-size:13px}"
	"figure,.tile,.caution,tr{break-inside:avoid}h2,h3,p.soft{break-after:avoid}"
	"figure,.scroll{overflow:visible}figure svg{min-width:0}.stack{columns:2}"
	".grid{grid-template-columns:repeat(2,minmax(0,1fr))}"
	".tiles{grid-template-columns:repeat(5,minmax(0,1fr));gap:6px}.tile{padding:6px "
	"8px}"
	".tile strong{font-size:18px}.tile span{font-size:9px}"
	"table,pre{font-size:9px}th,td{padding:2px 4px}"
	"*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}";

static const struct {
	enum section section;
	const char *class, *heading, *lead;
} sections[] = {
	{SECTION_RATIO, "whole", "Cell by cell",
	 "Each cell is one pattern at one message size: how many times as fast it is "
	 "with "
	 "Viaduct as with kernel TCP, in the same run."},
	{SECTION_LATENCY, "grid", "Latency",
	 "One message forth and back over one connection. Both axes are logarithmic."},
	{SECTION_THROUGHPUT, "grid", "Throughput",
	 "Messages of one size after another. Both axes are logarithmic."},
	{SECTION_CONNS, "grid", "Many connections",
	 "Round trips over all connections together."},
	{SECTION_CPU, "grid", "Processor time",
	 "What the two ends burn, in the kernel and outside: a gain in speed that is "
	 "bought "
	 "with spinning shows here."},
	{SECTION_BUSY, "stack", "Quiet against busy",
	 "The same with other work on the two processors. Pale bars are the busy ones."},
	{SECTION_OTHER, "stack", "The rest", "What was measured at one size only."},
};

static void put_section(FILE *out, const struct album *album, size_t n)
{
	bool any = false;

	for (unsigned i = 0; i < album->count; i++) {
		const struct picture *p = &album->picture[i];

		if (p->section != sections[n].section)
			continue;
		if (!any)
			fprintf(out,
				"<section><h2>%s</h2>\n<p class=\"soft wide\">%s</p>\n"
				"<div class=\"%s\">\n",
				sections[n].heading, sections[n].lead, sections[n].class);
		any = true;
		fprintf(out, "<figure%s>",
			p->section == SECTION_RATIO ? " class=\"wide\"" : "");
		picture_write(out, p, false);
		fprintf(out, "</figure>\n");
	}
	if (any)
		fprintf(out, "</div></section>\n");
}

/* "Linux 6.18, AMD EPYC, 2 processors; 2026-01-31T12:00:00Z; Viaduct 0.1.0" */
static void put_subtitle(FILE *out, const struct figures *f)
{
	const json_t *m = json_object_get(f->json, "machine");
	const char *kernel = json_word(m, "kernel"), *cpu = json_word(m, "cpu");
	const char *started = json_word(f->json, "started");
	const char *version = json_word(f->json, "viaduct");
	double cpus = json_figure(m, "cpus");

	fprintf(out, "<p class=\"soft wide\">Measured by <code>viaduct bench</code>");
	if (*kernel)
		putf_escaped(out, " on Linux %s", kernel);
	if (*cpu)
		putf_escaped(out, ", %s", cpu);
	if (cpus > 0)
		putf_escaped(out, ", %.0f processor%s", cpus, cpus > 1 ? "s" : "");
	if (*started)
		putf_escaped(out, "; %s", started);
	if (*version)
		putf_escaped(out, "; Viaduct %s", version);
	fprintf(out, "</p>\n");
}

static void put_head(FILE *out)
{
	fprintf(out,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" "
		"content=\"width=device-width,initial-scale=1\">\n"
		"<title>Viaduct: what it gains, and where it does not</title>\n"
		"<style>\n%s\n%s\n</style>\n</head>\n<body><main>\n",
		page_style, picture_style);
}

static void put_patterns(FILE *out, const struct figures *f, const struct album *album)
{
	const char *const how = "<p>Every figure is a median of pairs that alternate "
				"between the contenders; the "
				"spread is that of the pairs, and a ratio is the median "
				"of the ratios of the "
				"pairs, not the ratio of the medians. The first "
				"contender of each row, mostly "
				"kernel TCP, is what the others are compared with. "
				"<i>Direct</i> is the share of "
				"the program's bytes that went through shared memory, as "
				"the programs' own "
				"reports say. <i>Line</i> is the time of a round trip "
				"through one cache line "
				"between the two processors, before each row.</p>\n";

	words_tiles(out, f);
	words_warnings(out, f);
	if (f->matrix)
		matrix_write(out, f);
	fprintf(out, "<section><h2>In short</h2>\n");
	words_summary(out, f);
	words_findings(out, f);
	fprintf(out, "</section>\n");
	for (size_t n = 0; n < sizeof(sections) / sizeof(sections[0]); n++)
		put_section(out, album, n);
	fprintf(out, "<section><h2>The machine and the run</h2>\n");
	table_machine(out, f);
	fprintf(out, "<h3>To measure it again</h3>\n<pre>");
	words_command(out, f);
	fprintf(out, "</pre></section>\n<section><h2>All figures</h2>\n%s", how);
	table_figures(out, f);
	fprintf(out, "</section>\n");
}

void page_write(FILE *out, const struct figures *f, const struct album *album)
{
	put_head(out);
	fprintf(out, "<h1>%s</h1>\n",
		f->programs ? "Your programs, plain and under Viaduct"
			    : "Viaduct against kernel TCP");
	put_subtitle(out, f);
	if (f->programs)
		programs_write(out, f, album);
	else
		put_patterns(out, f, album);
	fprintf(out, "</main></body>\n</html>\n");
}
