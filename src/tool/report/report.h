/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of `viaduct report`: the figures read from JSON, and the pictures of them. */
#ifndef VD_TOOL_REPORT_REPORT_H
#define VD_TOOL_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* ---- load.c: the JSON of viaduct bench; strings belong to the document ---- */

/* Of the valid values of a figure; median 0 means that there is none. */
struct spread {
	double median, min, max;
};

struct result {
	const char *over;
	struct spread rate;  /* operations a second */
	struct spread ratio; /* against the first result of the row */
	double cpu_ns_per_op;
	double direct_bytes, tcp_bytes;
	bool under_viaduct; /* one end at least: the bytes above were counted */
	const json_t *json;
};

enum { LOAD_LETTERS = 16 };
enum row_kind { ROW_TIME, ROW_BYTES, ROW_OPS };

struct row {
	const char *pattern;
	enum row_kind kind; /* what its figures are shown as */
	double size_bytes, bytes_per_op, conns, active, busy, think_us, line_ns;
	char load[LOAD_LETTERS]; /* quiet, busy, or busy-6: for rows of several loads */
	const char *place;	 /* of a matrix, as --placement names it; else "" */
	unsigned results;
	struct result *result;
	const json_t *json;
};

struct figures {
	json_t *json;
	const char *path;
	bool programs; /* kind "programs": there are no rows */
	bool matrix;   /* of bench --matrix: rows differ in their placement too */
	unsigned rows;
	struct row *row;
};

/* Returns 0, or -1 after a message. */
int figures_load(struct figures *f, const char *path);
void figures_finish(struct figures *f);
const struct result *row_find(const struct row *row, const char *over);
/* Figures of a file that may lack them, or hold something else: 0 or "" then. */
double json_figure(const json_t *object, const char *name);
const char *json_word(const json_t *object, const char *name);
struct spread json_spread(const json_t *object, const char *name);
/* False where nothing is to be gained and nothing need go direct. */
bool row_wants_direct(const struct row *row);
/* False for LogP, whose round trips are those of another pattern, and for experiments. */
bool row_compares(const struct row *row);

/* ---- format.c: figures for people ---- */

enum unit {
	UNIT_TIME,	 /* seconds */
	UNIT_BYTES_RATE, /* bytes a second */
	UNIT_RATE,	 /* operations a second */
	UNIT_SIZE,	 /* bytes, in powers of two */
	UNIT_COUNT,
	UNIT_RATIO,
};

enum { FIGURE_LETTERS = 32, CELL_LETTERS = 192 };

const char *format_figure(char buf[FIGURE_LETTERS], enum unit unit, double value);
/* A result of the row, from its operations a second. */
const char *format_rate(char buf[FIGURE_LETTERS], const struct row *row, double rate);
enum unit row_unit(const struct row *row);
double row_value(const struct row *row, double rate);
/* "4 KiB, 100 connections, busy": what tells the rows of a pattern apart. */
const char *format_cell(char *buf, size_t size, const struct row *row);
/* Text as it may stand in HTML and SVG. */
void put_escaped(FILE *out, const char *text);
void putf_escaped(FILE *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- names.c: patterns and contenders in words ---- */

const char *pattern_words(const char *pattern);
const char *contender_words(const char *over);
const char *place_words(const char *place);
/* A number from 0 to STYLES - 1, the same for a contender in all pictures. */
enum { STYLES = 10 };
unsigned contender_style(const char *over);

/* ---- svg.c: pictures, and what all of them are made of ---- */

enum section {
	SECTION_RATIO,
	SECTION_LATENCY,
	SECTION_THROUGHPUT,
	SECTION_CONNS,
	SECTION_CPU,
	SECTION_BUSY,
	SECTION_OTHER,
	SECTIONS
};

struct picture {
	enum section section;
	char name[64]; /* of the file, without its ending */
	char title[128];
	char note[160]; /* the line below it */
	double width, height;
	char *body; /* without the element svg, so that it can stand in a page too */
	size_t body_len;
	FILE *out; /* writes the body, until picture_close */
};

struct album {
	unsigned count, room;
	struct picture *picture;
};

extern const char picture_style[]; /* CSS */

/* Returns NULL without memory, after a message. The picture is valid until the next one. */
struct picture *picture_open(struct album *album, enum section section, double width,
			     double height);
void picture_name(struct picture *p, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int picture_close(struct picture *p); /* 0, or -1 after a message */
void picture_write(FILE *out, const struct picture *p, bool alone);
void album_finish(struct album *album);

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };

void svg_text(FILE *out, double x, double y, enum anchor anchor, const char *classes,
	      const char *text);
void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *classes);
void svg_rect(FILE *out, double x, double y, double w, double h, const char *classes);
/* The mark of a contender; `hover` is shown under the pointer. */
void svg_mark(FILE *out, double x, double y, unsigned style, const char *hover);
void svg_heading(struct picture *p);
double svg_text_width(const char *text, double size);

/* ---- lines.c: lines over a logarithmic axis, with spread bars ---- */

enum { SERIES_MAX = 12, POINTS_MAX = 64, HOVER_LETTERS = 400 };

struct point {
	double x;
	struct spread y;
	char hover[HOVER_LETTERS];
};

struct series {
	const char *over;
	unsigned points;
	struct point point[POINTS_MAX]; /* x rising */
};

struct lines {
	enum unit x_unit, y_unit;
	const char *x_label;
	unsigned count;
	struct series series[SERIES_MAX];
};

enum { LINES_WIDTH = 640, LINES_HEIGHT = 400 };
void lines_draw(struct picture *p, const struct lines *lines);

/* ---- bars.c: bars in groups, each group to a scale of its own ---- */

struct bar {
	char name[64], text[FIGURE_LETTERS];
	unsigned style;
	bool light; /* the second of two states of one contender */
	struct spread value;
};

struct bar_group {
	char name[CELL_LETTERS];
	unsigned first, count; /* of bars */
};

struct bars {
	unsigned groups, bars, group_room, bar_room;
	struct bar_group *group;
	struct bar *bar;
};

/* Both return NULL without memory. */
struct bar_group *bars_group(struct bars *bars);
struct bar *bars_add(struct bars *bars);
void bars_finish(struct bars *bars);
double bars_height(const struct bars *bars);
enum { BARS_WIDTH = 640 };
void bars_draw(struct picture *p, const struct bars *bars);

/* ---- heat.c: the ratios as a table in colours ---- */

/* 0: neutral; 1 to 4: better; -1 to -3: worse. */
int heat_level(double ratio);
enum { HEAT_CELL = 70, HEAT_ROW = 30 };
/* The result whose ratio is shown, or NULL. */
const struct result *heat_result(const struct row *row, const char *over);
void heat_cell(FILE *out, const struct row *row, const struct result *r, double x,
	       double y);
void heat_heading(struct picture *p, const char *name);
void heat_legend(FILE *out, double x, double y);
int heat_picture(struct album *album, const struct figures *f);

/* ---- matrix.c: what bench --matrix has measured ---- */

int matrix_picture(struct album *album, const struct figures *f);
void matrix_write(FILE *out, const struct figures *f); /* the cells below TCP */

/* ---- plots.c, groups.c: which pictures follow from the figures ---- */

/* Each returns 0, or -1 after a message. */
int plots_make(struct album *album, const struct figures *f);
int groups_make(struct album *album, const struct figures *f);

/* ---- programs.c: kind "programs" ---- */

int programs_make(struct album *album, const struct figures *f);
void programs_write(FILE *out, const struct figures *f, const struct album *album);

/* ---- words.c, caveats.c, table.c, page.c: the page ---- */

void words_tiles(FILE *out, const struct figures *f);
void words_summary(FILE *out, const struct figures *f);
void words_findings(FILE *out, const struct figures *f);
void words_warnings(FILE *out, const struct figures *f);
void words_command(FILE *out, const struct figures *f);
void table_machine(FILE *out, const struct figures *f);
void table_figures(FILE *out, const struct figures *f);
void page_write(FILE *out, const struct figures *f, const struct album *album);

/* ---- report.c ---- */

enum report_png { REPORT_PNG_CAN, REPORT_PNG_MUST, REPORT_PNG_NEVER };

/* Writes report.html and the pictures into the folder, which is made. 0 or -1. */
int report_write(const char *results, const char *folder, enum report_png png);

/* ---- png.c ---- */

/* Makes name.png of name.svg in the folder. Returns 0; -ENOENT without the converter. */
int png_make(const char *folder, const char *name);

#endif
