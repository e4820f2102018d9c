/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over two logarithmic axes, with spread bars, each named at its right end. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tool/report/report.h"

enum { LEFT = 68, RIGHT = 124, TOP = 58, BOTTOM = 50, LABEL_STEP = 14 };

struct scale {
	double min, max; /* of the values, as logarithms */
	double from, to; /* on the picture */
};

static double scale_at(const struct scale *s, double value)
{
	return s->from + (log(value) - s->min) / (s->max - s->min) * (s->to - s->from);
}

static void scale_init(struct scale *s, double min, double max, double room)
{
	s->min = log(min);
	s->max = log(max);
	if (s->max - s->min < 1) { /* one value, or nearly: a decent range around it */
		s->min -= 0.5;
		s->max += 0.5;
	}
	room *= s->max - s->min;
	s->min -= room;
	s->max += room;
}

static void scales_init(const struct lines *lines, struct scale *x, struct scale *y)
{
	double x_min = DBL_MAX, x_max = 0, y_min = DBL_MAX, y_max = 0;

	for (unsigned i = 0; i < lines->count; i++) {
		for (unsigned n = 0; n < lines->series[i].points; n++) {
			const struct point *p = &lines->series[i].point[n];

			x_min = fmin(x_min, p->x);
			x_max = fmax(x_max, p->x);
			y_min = fmin(y_min, p->y.min);
			y_max = fmax(y_max, p->y.max);
		}
	}
	scale_init(x, x_min, x_max, 0.03);
	scale_init(y, y_min, y_max, 0.05);
	x->from = LEFT;
	x->to = LINES_WIDTH - RIGHT;
	y->from = LINES_HEIGHT - BOTTOM;
	y->to = TOP;
}

/* "10 µs", not "10.0 µs". */
static const char *format_tick(char buf[FIGURE_LETTERS], enum unit unit, double value)
{
	char *point = strchr(format_figure(buf, unit, value), '.'), *end;

	if (!point)
		return buf;
	end = point + 1 + strspn(point + 1, "0123456789");
	for (point = end; point[-1] == '0'; point--)
		;
	point -= point[-1] == '.';
	memmove(point, end, strlen(end) + 1);
	return buf;
}

static void draw_y_tick(FILE *out, const struct scale *s, enum unit unit, double value,
			bool named)
{
	char text[FIGURE_LETTERS];
	double y = scale_at(s, value);

	if (y > s->from + 0.5 || y < s->to - 0.5)
		return;
	svg_line(out, LEFT, y, LINES_WIDTH - RIGHT, y, named ? "grid" : "fine");
	if (named)
		svg_text(out, LEFT - 8, y + 4, ANCHOR_END, "",
			 format_tick(text, unit, value));
}

/* Decades; in between 2 and 5, named where there is room. */
static void draw_y_axis(FILE *out, const struct scale *s, enum unit unit)
{
	int first = (int)floor(s->min / M_LN10), last = (int)ceil(s->max / M_LN10);
	double decades = (s->max - s->min) / M_LN10;
	int step = decades > 9 ? 2 : 1;

	for (int e = first; e <= last; e++) {
		double at = pow(10, e);

		draw_y_tick(out, s, unit, at, e % step == 0);
		if (decades < 5) {
			draw_y_tick(out, s, unit, 2 * at, decades < 2.2);
			draw_y_tick(out, s, unit, 5 * at, decades < 2.2);
		}
	}
}

/* One tick for each value that was measured, with a name where there is room. */
static void draw_x_axis(FILE *out, const struct scale *s, const struct lines *lines)
{
	double done = 0, room_from = 0, bottom = LINES_HEIGHT - BOTTOM;

	svg_line(out, LEFT, bottom, LINES_WIDTH - RIGHT, bottom, "axis");
	for (;;) {
		char text[FIGURE_LETTERS];
		double next = DBL_MAX, x, half;

		for (unsigned i = 0; i < lines->count; i++)
			for (unsigned n = 0; n < lines->series[i].points; n++)
				if (lines->series[i].point[n].x > done)
					next = fmin(next, lines->series[i].point[n].x);
		if (next == DBL_MAX)
			break;
		done = next;
		x = scale_at(s, next);
		svg_line(out, x, bottom, x, bottom + 5, "axis");
		format_figure(text, lines->x_unit, next);
		half = svg_text_width(text, 11) / 2;
		if (x - half < room_from)
			continue;
		svg_text(out, x, bottom + 18, ANCHOR_MIDDLE, "", text);
		room_from = x + half + 2;
	}
	svg_text(out, LINES_WIDTH - RIGHT, LINES_HEIGHT - 12, ANCHOR_END, "sub",
		 lines->x_label);
}

/* Contenders are drawn beside each other, so that their spread bars can be told apart. */
static double beside(const struct lines *lines, unsigned which)
{
	return 2.5 * ((double)which - (double)(lines->count - 1) / 2);
}

static void draw_line(FILE *out, const struct series *s, const struct scale *x,
		      const struct scale *y, double aside)
{
	unsigned style = contender_style(s->over);
	bool dash = !strcmp(s->over, "floor") || !strcmp(s->over, "tcp-spin");
	char classes[32];

	fprintf(out, "<path class=\"line%s c%u\" d=\"", dash ? " dash" : "", style);
	for (unsigned i = 0; i < s->points; i++)
		fprintf(out, "%s%.1f %.1f", i ? "L" : "M",
			scale_at(x, s->point[i].x) + aside,
			scale_at(y, s->point[i].y.median));
	fprintf(out, "\"/>\n");
	snprintf(classes, sizeof(classes), "spread c%u", style);
	for (unsigned i = 0; i < s->points; i++) {
		const struct point *p = &s->point[i];
		double at = scale_at(x, p->x) + aside;
		double low = scale_at(y, p->y.min), high = scale_at(y, p->y.max);

		if (low - high < 1)
			continue; /* no spread: hidden behind the mark anyway */
		svg_line(out, at, low, at, high, classes);
		svg_line(out, at - 3, low, at + 3, low, classes);
		svg_line(out, at - 3, high, at + 3, high, classes);
	}
	for (unsigned i = 0; i < s->points; i++)
		svg_mark(out, scale_at(x, s->point[i].x) + aside,
			 scale_at(y, s->point[i].y.median), style, s->point[i].hover);
}

struct label {
	const struct series *series;
	double y;
};

/* Pushes the names apart, down first, and then up again from the lower edge. */
static void place_labels(struct label *labels, unsigned count, double bottom)
{
	for (unsigned i = 1; i < count; i++)
		for (unsigned n = i; n && labels[n].y < labels[n - 1].y; n--) {
			struct label l = labels[n];

			labels[n] = labels[n - 1];
			labels[n - 1] = l;
		}
	for (unsigned i = 1; i < count; i++)
		labels[i].y = fmax(labels[i].y, labels[i - 1].y + LABEL_STEP);
	for (unsigned i = count; i--; bottom = labels[i].y - LABEL_STEP)
		labels[i].y = fmin(labels[i].y, bottom);
}

static void draw_labels(FILE *out, const struct lines *lines, const struct scale *x,
			const struct scale *y)
{
	struct label labels[SERIES_MAX];

	for (unsigned i = 0; i < lines->count; i++) {
		const struct series *s = &lines->series[i];

		labels[i].series = s;
		labels[i].y = scale_at(y, s->point[s->points - 1].y.median);
	}
	place_labels(labels, lines->count, y->from);
	for (unsigned i = 0; i < lines->count; i++) {
		unsigned style = contender_style(labels[i].series->over);

		svg_mark(out, x->to + 20, labels[i].y, style, NULL);
		svg_text(out, x->to + 30, labels[i].y + 4, ANCHOR_START, "strong",
			 contender_words(labels[i].series->over));
	}
}

void lines_draw(struct picture *p, const struct lines *lines)
{
	struct scale x, y;

	if (!lines->count)
		return;
	scales_init(lines, &x, &y);
	svg_heading(p);
	draw_y_axis(p->out, &y, lines->y_unit);
	draw_x_axis(p->out, &x, lines);
	for (unsigned i = lines->count; i--;) /* the first ones on top */
		draw_line(p->out, &lines->series[i], &x, &y, beside(lines, i));
	draw_labels(p->out, lines, &x, &y);
}
