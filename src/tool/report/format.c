/* SPDX-License-Identifier: Apache-2.0 */
/* Figures in the units that people read, and text as HTML and SVG take it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/report/report.h"

#define NBSP "\xc2\xa0" /* a figure and its unit stay on one line */

/* 10,000: in groups of three. */
static void format_grouped(char *buf, double v, const char *suffix)
{
	char digits[FIGURE_LETTERS], grouped[2 * FIGURE_LETTERS];
	int n = snprintf(digits, sizeof(digits), "%.0f", v), to = 0;

	if (n >= FIGURE_LETTERS - 1)
		n = FIGURE_LETTERS - 1;
	for (int i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			grouped[to++] = ',';
		grouped[to++] = digits[i];
	}
	grouped[to] = 0;
	snprintf(buf, FIGURE_LETTERS, "%.20s%.10s", grouped, suffix);
}

/* Three digits, and no exponent where it can be helped. */
static void format_three(char *buf, double v, const char *suffix)
{
	int decimals = v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;

	if (v >= 999.5)
		format_grouped(buf, v, suffix);
	else if (v < 0.0995)
		snprintf(buf, FIGURE_LETTERS, "%.2g%s", v, suffix);
	else
		snprintf(buf, FIGURE_LETTERS, "%.*f%s", decimals, v, suffix);
}

struct scale {
	double from, factor;
	const char *suffix;
};

static void format_scaled(char *buf, double v, const struct scale *scale)
{
	while (scale->from > 0 && v < scale->from * 0.9995)
		scale++;
	format_three(buf, v * scale->factor, scale->suffix);
}

static void format_size(char *buf, double v)
{
	static const struct scale sizes[] = {{1073741824, 0x1p-30, NBSP "GiB"},
					     {1048576, 0x1p-20, NBSP "MiB"},
					     {1024, 0x1p-10, NBSP "KiB"},
					     {0, 1, NBSP "B"}};
	const struct scale *scale = sizes;

	while (scale->from > 0 && scale->from > v)
		scale++;
	snprintf(buf, FIGURE_LETTERS, "%.4g%s", v * scale->factor, scale->suffix);
}

const char *format_figure(char buf[FIGURE_LETTERS], enum unit unit, double value)
{
	/* Parts of a microsecond compare better with microseconds than nanoseconds do. */
	static const struct scale times[] = {{1, 1, NBSP "s"},
					     {1e-3, 1e3, NBSP "ms"},
					     {1e-7, 1e6, NBSP "µs"},
					     {0, 1e9, NBSP "ns"}};
	static const struct scale bytes[] = {{1e9, 1e-9, NBSP "GB/s"},
					     {1e6, 1e-6, NBSP "MB/s"},
					     {1e3, 1e-3, NBSP "kB/s"},
					     {0, 1, NBSP "B/s"}};
	static const struct scale rates[] = {
		{1e6, 1e-6, NBSP "M/s"}, {1e3, 1e-3, NBSP "k/s"}, {0, 1, NBSP "/s"}};

	if (unit == UNIT_TIME)
		format_scaled(buf, value, times);
	else if (unit == UNIT_BYTES_RATE)
		format_scaled(buf, value, bytes);
	else if (unit == UNIT_RATE)
		format_scaled(buf, value, rates);
	else if (unit == UNIT_SIZE)
		format_size(buf, value);
	else if (unit == UNIT_RATIO)
		format_three(buf, value, NBSP "×");
	else
		format_grouped(buf, value, "");
	return buf;
}

enum unit row_unit(const struct row *row)
{
	if (row->kind == ROW_TIME)
		return UNIT_TIME;
	return row->kind == ROW_BYTES && row->size_bytes >= 1024 ? UNIT_BYTES_RATE
								 : UNIT_RATE;
}

double row_value(const struct row *row, double rate)
{
	switch (row_unit(row)) {
	case UNIT_TIME:
		return rate > 0 ? 1 / rate : 0;
	case UNIT_BYTES_RATE:
		return rate * row->bytes_per_op;
	default:
		return rate;
	}
}

const char *format_rate(char buf[FIGURE_LETTERS], const struct row *row, double rate)
{
	if (!(rate > 0)) {
		snprintf(buf, FIGURE_LETTERS, "failed");
		return buf;
	}
	return format_figure(buf, row_unit(row), row_value(row, rate));
}

const char *format_cell(char *buf, size_t size, const struct row *row)
{
	char text[3][FIGURE_LETTERS];
	int n = snprintf(buf, size, "%s",
			 format_figure(text[0], UNIT_SIZE, row->size_bytes));

	if (row->conns > 1)
		n += snprintf(buf + n, size - (size_t)n, ", %s connections",
			      format_figure(text[1], UNIT_COUNT, row->conns));
	if (row->conns > 1 && row->active > 0 && row->active < row->conns)
		n += snprintf(buf + n, size - (size_t)n, " (%s active)",
			      format_figure(text[2], UNIT_COUNT, row->active));
	if (row->think_us > 0)
		n += snprintf(buf + n, size - (size_t)n, ", %s of thought",
			      format_figure(text[1], UNIT_TIME, row->think_us * 1e-6));
	if (*row->place)
		n += snprintf(buf + n, size - (size_t)n, ", %.20s",
			      place_words(row->place));
	if (row->busy > 0)
		snprintf(buf + n, size - (size_t)n, ", %s", row->load);
	return buf;
}

/* Bytes of the character at s; 0 when it has been cut off. */
static size_t utf8_length(const char *s)
{
	unsigned char c = (unsigned char)*s;
	size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	for (size_t i = 1; i < n; i++)
		if (((unsigned char)s[i] & 0xc0) != 0x80)
			return 0;
	return c >= 0x80 && c < 0xc0 ? 0 : n;
}

void put_escaped(FILE *out, const char *text)
{
	for (size_t n; *text; text += n ? n : 1) {
		n = utf8_length(text);
		if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '>')
			fputs("&gt;", out);
		else if (*text == '&')
			fputs("&amp;", out);
		else if (*text == '"')
			fputs("&quot;", out);
		else if (!n ||
			 ((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t'))
			fputs("\xef\xbf\xbd", out); /* no character of XML */
		else
			fwrite(text, 1, n, out);
	}
}

void putf_escaped(FILE *out, const char *format, ...)
{
	va_list args;
	char *text = NULL;

	va_start(args, format);
	if (vasprintf(&text, format, args) >= 0)
		put_escaped(out, text);
	va_end(args);
	free(text);
}
