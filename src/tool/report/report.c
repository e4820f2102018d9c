/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct report: plots and one page of what `viaduct bench` has measured. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/report/report.h"

static int help(void)
{
	printf("usage: viaduct report [OPTION...] RESULTS.json\n\n"
	       "Makes plots and one HTML page of the figures of `viaduct bench "
	       "--json`.\n\n"
	       "  --out DIR   the folder to write, made if need be (default "
	       "viaduct-report)\n"
	       "  --png       fail where PNG cannot be made\n"
	       "  --no-png    make no PNG\n"
	       "  --help      print this\n\n"
	       "DIR/report.html holds everything; DIR/*.svg and *.png are the plots "
	       "alone.\n"
	       "PNG is made by rsvg-convert (Debian: librsvg2-bin), where it is "
	       "installed.\n"
	       "Exit status: 0; 1 when the results cannot be read or the report "
	       "cannot be\n"
	       "written; 2 for a wrong command line. See viaduct-report(1).\n");
	return 0;
}

/* Opens a file of the folder. Returns NULL after a message. */
static FILE *open_file(const char *folder, const char *name, const char *ending)
{
	char *path = NULL;
	FILE *out = NULL;

	if (asprintf(&path, "%s/%s.%s", folder, name, ending) < 0)
		path = NULL;
	else
		out = fopen(path, "we");
	if (!out)
		warn_line("viaduct report: cannot write %s: %s", path ? path : name,
			  strerror(errno));
	free(path);
	return out;
}

static int close_file(FILE *out, const char *folder)
{
	int err = ferror(out);

	err |= fclose(out);
	if (err)
		warn_line("viaduct report: cannot write into %s: %s", folder,
			  strerror(errno));
	return err ? -1 : 0;
}

static int write_pictures(const struct album *album, const char *folder)
{
	for (unsigned i = 0; i < album->count; i++) {
		FILE *out = open_file(folder, album->picture[i].name, "svg");

		if (!out)
			return -1;
		picture_write(out, &album->picture[i], true);
		if (close_file(out, folder) < 0)
			return -1;
	}
	return 0;
}

static int write_page(const struct figures *f, const struct album *album,
		      const char *folder)
{
	FILE *out = open_file(folder, "report", "html");

	if (!out)
		return -1;
	page_write(out, f, album);
	return close_file(out, folder);
}

static int write_pngs(const struct album *album, const char *folder, enum report_png png)
{
	const char *must =
		png == REPORT_PNG_MUST ? "" : "; the SVG and the page are complete";

	for (unsigned i = 0; i < album->count && png != REPORT_PNG_NEVER; i++) {
		int err = png_make(folder, album->picture[i].name);

		if (!err)
			continue;
		if (err == -ENOENT)
			warn_line("viaduct report: no PNG: rsvg-convert is not installed "
				  "(Debian: "
				  "apt-get install librsvg2-bin)%s",
				  must);
		else
			warn_line("viaduct report: no PNG: rsvg-convert failed on "
				  "%s/%s.svg%s",
				  folder, album->picture[i].name, must);
		return png == REPORT_PNG_MUST ? -1 : 0;
	}
	return 0;
}

/* Two pictures of one name: the later one gets a number. */
static void number_names(struct album *album)
{
	for (unsigned i = 0; i < album->count; i++) {
		char base[48];
		unsigned number = 1;

		snprintf(base, sizeof(base), "%.47s", album->picture[i].name);
		for (unsigned n = 0; n < i; n++)
			if (!strcmp(album->picture[n].name, album->picture[i].name)) {
				picture_name(&album->picture[i], "%s-%u", base, ++number);
				n = (unsigned)-1; /* compare the new one with all */
			}
	}
}

static int make_pictures(struct album *album, const struct figures *f)
{
	if (f->programs)
		return programs_make(album, f);
	if (f->matrix)
		return matrix_picture(album, f);
	if (heat_picture(album, f) < 0 || plots_make(album, f) < 0)
		return -1;
	return groups_make(album, f);
}

static int make_folder(const char *folder)
{
	if (mkdir(folder, 0777) == 0 || errno == EEXIST)
		return 0;
	warn_line("viaduct report: cannot make the folder %s: %s", folder,
		  strerror(errno));
	return -1;
}

int report_write(const char *results, const char *folder, enum report_png png)
{
	struct figures f;
	struct album album = {0};
	int err = figures_load(&f, results);

	if (!err)
		err = make_pictures(&album, &f);
	if (!err)
		err = make_folder(folder);
	if (!err) {
		number_names(&album);
		err = write_pictures(&album, folder);
	}
	if (!err)
		err = write_page(&f, &album, folder);
	if (!err)
		err = write_pngs(&album, folder, png);
	if (!err)
		printf("%s/report.html: %u plot%s; open it in a browser\n", folder,
		       album.count, album.count == 1 ? "" : "s");
	album_finish(&album);
	figures_finish(&f);
	return err ? -1 : 0;
}

int report_begin(const char *folder, const char *results)
{
	if (make_folder(folder) < 0)
		return -1;
	if (unlink(results) == 0 || errno == ENOENT)
		return 0;
	warn_line("viaduct report: cannot replace %s: %s", results, strerror(errno));
	return -1;
}

int report_end(const char *folder, const char *results)
{
	if (access(results, F_OK) < 0)
		return 0; /* whoever did not write them has said why */
	return report_write(results, folder, REPORT_PNG_CAN);
}

int cmd_report(int argc, char **argv)
{
	static const struct option options[] = {{"out", 1, NULL, 'o'},
						{"png", 0, NULL, 'p'},
						{"no-png", 0, NULL, 'n'},
						{"help", 0, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	const char *folder = "viaduct-report";
	enum report_png png = REPORT_PNG_CAN;
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct report"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'o')
			folder = optarg;
		else if (c == 'p')
			png = REPORT_PNG_MUST;
		else if (c == 'n')
			png = REPORT_PNG_NEVER;
		else
			return c == 'h' ? help() : usage_error("report", NULL);
	}
	if (optind == argc)
		return usage_error("report", "which results? give the file that `viaduct "
					     "bench --json FILE` wrote");
	if (optind + 1 < argc)
		return usage_error("report", "one file of results at a time");
	return report_write(argv[optind], folder, png) < 0 ? 1 : 0;
}
