/* SPDX-License-Identifier: Apache-2.0 */
/* Bars in groups. Each group has a scale of its own, from 0, since its unit is its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/report/report.h"

enum {
	TOP = 56,
	GROUP = 26,
	BAR = 19,
	BETWEEN = 8,
	NAMES = 134,
	FIGURES = 88,
	EDGE = 14
};

static void *grow(void *list, unsigned *room, unsigned count, size_t size)
{
	unsigned wanted = *room ? 2 * *room : 16;
	void *more;

	if (count < *room)
		return list;
	more = realloc(list, wanted * size);
	if (more)
		*room = wanted;
	return more;
}

struct bar_group *bars_group(struct bars *bars)
{
	void *list =
		grow(bars->group, &bars->group_room, bars->groups, sizeof(*bars->group));

	if (!list)
		return NULL;
	bars->group = list;
	memset(&bars->group[bars->groups], 0, sizeof(*bars->group));
	bars->group[bars->groups].first = bars->bars;
	return &bars->group[bars->groups++];
}

struct bar *bars_add(struct bars *bars)
{
	void *list = grow(bars->bar, &bars->bar_room, bars->bars, sizeof(*bars->bar));

	if (!list || !bars->groups)
		return NULL;
	bars->bar = list;
	memset(&bars->bar[bars->bars], 0, sizeof(*bars->bar));
	bars->group[bars->groups - 1].count++;
	return &bars->bar[bars->bars++];
}

void bars_finish(struct bars *bars)
{
	free(bars->group);
	free(bars->bar);
	memset(bars, 0, sizeof(*bars));
}

double bars_height(const struct bars *bars)
{
	return TOP + bars->groups * (GROUP + BETWEEN) + bars->bars * BAR + 6;
}

static void draw_bar(FILE *out, const struct bar *b, double y, double max)
{
	double width = BARS_WIDTH - NAMES - FIGURES - 2 * EDGE, left = EDGE + NAMES;
	double length = b->value.median / max * width;
	double low = left + b->value.min / max * width,
	       high = left + b->value.max / max * width;
	double middle = y + BAR / 2.0 - 2;
	char classes[32];

	svg_text(out, left - 8, middle + 4, ANCHOR_END, "", b->name);
	snprintf(classes, sizeof(classes), "f%u%s", b->style, b->light ? " light" : "");
	svg_rect(out, left, y, fmax(length, 1), BAR - 5, classes);
	if (high - low > 2) {
		svg_line(out, low, middle, high, middle, "whisker");
		svg_line(out, low, middle - 3, low, middle + 3, "whisker");
		svg_line(out, high, middle - 3, high, middle + 3, "whisker");
	}
	svg_text(out, BARS_WIDTH - EDGE, middle + 4, ANCHOR_END, "strong", b->text);
}

void bars_draw(struct picture *p, const struct bars *bars)
{
	double y = TOP;

	svg_heading(p);
	for (unsigned g = 0; g < bars->groups; g++) {
		const struct bar_group *group = &bars->group[g];
		const struct bar *bar = &bars->bar[group->first];
		double max = 0;

		svg_text(p->out, EDGE, y + 15, ANCHOR_START, "strong", group->name);
		y += GROUP;
		for (unsigned i = 0; i < group->count; i++)
			max = fmax(max, fmax(bar[i].value.max, bar[i].value.median));
		if (!(max > 0))
			max = 1;
		for (unsigned i = 0; i < group->count; i++, y += BAR)
			draw_bar(p->out, &bar[i], y, max);
		y += BETWEEN;
	}
}
