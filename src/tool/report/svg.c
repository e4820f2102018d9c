/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as SVG: one style sheet for light, dark and paper, and the parts they share. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/report/report.h"

/*
 * The colours are Okabe's and Ito's, darkened where they bear text, so that they can be told
 * apart by the colour-blind; marks and dashes differ as well. Plain rules, without variables,
 * because converters to PNG know no others; these pass over @media.
 */
#define HUE(n, c) ".picture .c" #n "{stroke:" c "}.picture .f" #n "{fill:" c "}"
#define HUES(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9)                                     \
	HUE(0, c0)                                                                       \
	HUE(1, c1)                                                                       \
	HUE(2, c2)                                                                       \
	HUE(3, c3)                                                                       \
	HUE(4, c4)                                                                       \
	HUE(5, c5) HUE(6, c6) HUE(7, c7) HUE(8, c8) HUE(9, c9)

const char picture_style[] =
	".picture{font-family:system-ui,'DejaVu Sans','Liberation Sans',Arial,sans-serif}"
	".picture text{fill:#3b4351;font-size:11px}"
	".picture text.head{fill:#14181f;font-size:15px;font-weight:600}"
	".picture text.sub{fill:#5b6472;font-size:11px}"
	".picture text.strong{fill:#14181f;font-weight:600}"
	".picture text.cell{font-size:12px;fill:#14181f}"
	".picture text.cell.inverse{fill:#fff}"
	".picture .paper{fill:#fff}"
	".picture .grid{stroke:#d5dae1;stroke-width:1}"
	".picture .fine{stroke:#eceff3;stroke-width:1}"
	".picture .axis{stroke:#8a93a1;stroke-width:1}"
	".picture .line{fill:none;stroke-width:2;stroke-linejoin:round}"
	".picture .dash{stroke-dasharray:5 4}"
	".picture .spread{stroke-width:1.4;stroke-opacity:.55}"
	".picture .whisker{stroke:#14181f;stroke-width:1.2;stroke-opacity:.65}"
	".picture .mark{stroke:#fff;stroke-width:1.2}"
	".picture .light{fill-opacity:.45}"
	".picture .h0{fill:#eceff3}.picture .h1{fill:#d3e6f5}.picture .h2{fill:#9fcaea}"
	".picture .h3{fill:#4f9bd0}.picture .h4{fill:#0b5c98}"
	".picture .l1{fill:#fde3cf}.picture .l2{fill:#f7b884}.picture .l3{fill:#c9540a}"
	/* TCP, Viaduct, AF_UNIX, TCP spinning, raw ring, client, server, two peers, others */
	HUES("#c4560a", "#0067a8", "#00805c", "#96690a", "#6b7280", "#a2467f", "#5747a6",
	     "#20262e", "#8a3fb0",
	     "#7a4a2b") "@media screen and (prefers-color-scheme:dark){"
			".picture text{fill:#c3cad5}.picture text.head,.picture "
			"text.strong,"
			".picture text.cell{fill:#f2f5f9}.picture text.sub{fill:#9aa4b2}"
			".picture text.cell.inverse{fill:#0c1015}"
			".picture .paper{fill:#14181f}.picture .grid{stroke:#363d49}"
			".picture .fine{stroke:#242a33}.picture .axis{stroke:#727c8a}"
			".picture .whisker{stroke:#f2f5f9}.picture .mark{stroke:#14181f}"
			".picture .h0{fill:#2a313b}.picture .h1{fill:#1d3d57}.picture "
			".h2{fill:#1f5b8a}"
			".picture .h3{fill:#3480b8}.picture .h4{fill:#a9d6f7}"
			".picture .l1{fill:#4a3020}.picture .l2{fill:#8a4a17}.picture "
			".l3{fill:#f79a52}" HUES("#ff9a57", "#5bb8f5", "#35c79c",
						 "#dcb545", "#9aa4b2", "#e08fc0",
						 "#b3a6f5", "#e6e9ee", "#d09af0",
						 "#d2a37f") "}";

struct picture *picture_open(struct album *album, enum section section, double width,
			     double height)
{
	struct picture *p;

	if (album->count == album->room) {
		unsigned room = album->room ? 2 * album->room : 16;
		void *more = realloc(album->picture, room * sizeof(*album->picture));

		if (!more)
			goto none;
		album->picture = more;
		album->room = room;
	}
	p = &album->picture[album->count];
	memset(p, 0, sizeof(*p));
	p->section = section;
	p->width = width;
	p->height = height;
	p->out = open_memstream(&p->body, &p->body_len);
	if (!p->out)
		goto none;
	album->count++;
	return p;
none:
	fprintf(stderr, "viaduct report: no memory\n");
	return NULL;
}

void picture_name(struct picture *p, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(p->name, sizeof(p->name), format, args);
	va_end(args);
	for (char *s = p->name; *s; s++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *s))
			*s = '-'; /* it becomes the name of a file */
}

int picture_close(struct picture *p)
{
	int err = ferror(p->out) | fclose(p->out);

	p->out = NULL;
	if (err)
		fprintf(stderr, "viaduct report: no memory\n");
	return err ? -1 : 0;
}

void picture_write(FILE *out, const struct picture *p, bool alone)
{
	if (alone)
		fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" "
		"role=\"img\" "
		"viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" aria-label=\"",
		p->width, p->height, p->width, p->height);
	put_escaped(out, p->title);
	fprintf(out, "\">\n");
	if (alone) {
		fprintf(out, "<style>%s</style>\n", picture_style);
		svg_rect(out, 0, 0, p->width, p->height, "paper");
	}
	fwrite(p->body, 1, p->body_len, out);
	fprintf(out, "</svg>\n");
}

void album_finish(struct album *album)
{
	for (unsigned i = 0; i < album->count; i++) {
		if (album->picture[i].out)
			fclose(album->picture[i].out);
		free(album->picture[i].body);
	}
	free(album->picture);
	memset(album, 0, sizeof(*album));
}

void svg_text(FILE *out, double x, double y, enum anchor anchor, const char *classes,
	      const char *text)
{
	static const char *const anchors[] = {"start", "middle", "end"};

	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y,
		anchors[anchor]);
	if (*classes)
		fprintf(out, " class=\"%s\"", classes);
	fputc('>', out);
	put_escaped(out, text);
	fprintf(out, "</text>\n");
}

void svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *classes)
{
	fprintf(out,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
		x1, y1, x2, y2, classes);
}

void svg_rect(FILE *out, double x, double y, double w, double h, const char *classes)
{
	fprintf(out,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
		"class=\"%s\"/>\n",
		x, y, w, h, classes);
}

void svg_mark(FILE *out, double x, double y, unsigned style, const char *hover)
{
	static const char *const shapes[] = {
		"M-4.4 0A4.4 4.4 0 1 0 4.4 0A4.4 4.4 0 1 0 -4.4 0Z", /* circle */
		"M-4 -4H4V4H-4Z",				     /* square */
		"M0 -5L5 4H-5Z",				     /* triangle */
		"M0 -5.4L5.4 0L0 5.4L-5.4 0Z",			     /* diamond */
		"M0 5L5 -4H-5Z",   /* triangle, on its head */
		"M5.4 0L-4 5V-5Z", /* triangles to the right and to the left */
		"M-5.4 0L4 5V-5Z",
		"M0-6L2-2 6-2 3 1 4 5 0 3-4 5-3 1-6-2-2-2Z",		  /* star */
		"M-2 -5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z",			  /* cross */
		"M5.0 0.0L2.5 4.3L-2.5 4.3L-5.0 0.0L-2.5 -4.3L2.5 -4.3Z", /* hexagon */
	};
	_Static_assert(sizeof(shapes) / sizeof(shapes[0]) == STYLES, "a shape each");

	fprintf(out,
		"<path transform=\"translate(%.1f %.1f)\" d=\"%s\" class=\"mark f%u\"", x,
		y, shapes[style], style);
	if (!hover) {
		fprintf(out, "/>\n");
		return;
	}
	fprintf(out, "><title>");
	put_escaped(out, hover);
	fprintf(out, "</title></path>\n");
}

void svg_heading(struct picture *p)
{
	svg_text(p->out, 14, 25, ANCHOR_START, "head", p->title);
	svg_text(p->out, 14, 42, ANCHOR_START, "sub", p->note);
}

/* An estimate: the letters of a wide sans-serif, as DejaVu Sans has them. \xc2 begins the
 * space that does not break. */
double svg_text_width(const char *text, double size)
{
	double letters = 0;

	for (; *text; text++)
		if (((unsigned char)*text & 0xc0) != 0x80) /* not in mid-character */
			letters += strchr("ijltfI.,:|' \xc2", *text) ? 0.36 : 0.62;
	return letters * size;
}
