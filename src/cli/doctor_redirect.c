/* SPDX-License-Identifier: Apache-2.0 */
/* From which size on bytes from that host are better redirected: measured once. The file of that. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crossover.h"
#include "base/conffile.h"
#include "cli/doctor_far.h"

/* What is less faster than that is not worth it, nor known for sure. */
#define GAIN 0.97

/* ---- the file ---- */

static bool file_path(char *path, size_t size)
{
	if (geteuid() != 0)
		return crossover_user(path, size);
	snprintf(path, size, "%s", crossover_system);
	return true;
}

/* With the folders above it. */
static void make_folders(const char *path)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(folder, 0755);
		*at = '/';
	}
}

/* The other hosts' lines, and ours. 0 or -errno. */
static int write_lines(FILE *out, const struct conffile *old, const struct crossover *c)
{
	char text[CROSSOVER_TEXT];
	struct crossover other;
	const char *line;
	size_t at = 0;

	fprintf(out, "# From how many bytes on receives are redirected, and whether RDMA "
		     "is slower than TCP, by host: see viaduct-doctor(1).\n");
	while (old->state == CONFFILE_READ && (line = conffile_next(old, &at)))
		if (*line && (crossover_parse(line, &other) < 0 ||
			      memcmp(other.addr, c->addr, sizeof(c->addr)) != 0))
			fprintf(out, "%s\n", line);
	fprintf(out, "%s\n", crossover_text(c, text));
	return fflush(out) || ferror(out) || fsync(fileno(out)) ? -errno : 0;
}

static int keep(const struct crossover *c, char path[PATH_MAX])
{
	static struct conffile old;
	char next[PATH_MAX + 8];
	FILE *out;
	int fd, r;

	if (!file_path(path, PATH_MAX))
		return -ENOENT;
	make_folders(path);
	snprintf(old.path, sizeof(old.path), "%s", path);
	conffile_read(&old, CONFFILE_CHECKED);
	snprintf(next, sizeof(next), "%s.XXXXXX", path);
	fd = mkstemp(next);
	if (fd < 0)
		return -errno;
	fchmod(fd, 0644);
	out = fdopen(fd, "w");
	r = out ? write_lines(out, &old, c) : -errno;
	if (out)
		fclose(out);
	else
		close(fd);
	if (r == 0 && rename(next, path) != 0)
		r = -errno;
	if (r < 0)
		unlink(next);
	return r;
}

/* ---- what is measured ---- */

/* By a child whose receives are redirected where that can be, on a connection of its own. */
static int measure(struct far_result *out, struct far_path *path)
{
	struct name_end peer = answer_end();
	struct far_child child = {0};
	int r = far_connect(&child, FAR_REDIRECTED);

	if (r == 0)
		r = far_order(&child, FAR_DO_REDIRECT, 0, out);
	if (r == 0)
		far_look(&child, &peer, path);
	far_close(&child, r == 0);
	return r;
}

static uint32_t crossover_of(const struct far_result *r)
{
	uint32_t least = 0;

	for (int i = FAR_SIZES - 1; i >= 0 && r->us[i][1] < r->us[i][0] * GAIN; i--)
		least = far_sizes[i];
	return least;
}

static void tell(struct finding *f, const struct crossover *c, const char *how)
{
	if (c->least)
		found_number(f, c->least, "bytes");
	else
		found_word(f, "off");
	if (c->least)
		found(f,
		      "receives with room for %u bytes or more are better redirected%s",
		      c->least, how);
	else
		found(f,
		      "the ring is the better way for all sizes: nothing is "
		      "redirected%s",
		      how);
}

static void keep_measured(struct finding *f)
{
	struct crossover *c = &way.measured;
	time_t now = time(NULL);
	char path[PATH_MAX] = "";
	struct tm today;
	int r;

	memcpy(c->addr, way.peer.addr, sizeof(c->addr));
	strftime(c->date, sizeof(c->date), "%Y-%m-%d", gmtime_r(&now, &today));
	r = keep(c, path);
	if (r < 0)
		found_trouble(f, FINDING_NOTE,
			      "What was measured cannot be kept, and so has no effect.",
			      "Let this user write %s, or set HOME: %s.",
			      *path ? path : "a file", strerror(-r));
}

static void tell_measured(struct finding *f, const struct far_result *result)
{
	char how[200];
	int n = snprintf(how, sizeof(how), "; by the ring and redirected:");

	for (int i = 0; i < FAR_SIZES; i++)
		n += snprintf(how + n, sizeof(how) - (size_t)n, " %uK %.0f, %.0f us%s",
			      far_sizes[i] >> 10, result->us[i][0], result->us[i][1],
			      i < FAR_SIZES - 1 ? ";" : "");
	way.measured.least = crossover_of(result);
	tell(f, &way.measured, how);
}

void check_redirect(struct finding *f)
{
	struct far_result result;
	struct far_path path = {0};
	char how[64];
	int r;

	f->left_out = !way.is_rdma;
	if (f->left_out)
		return;
	if (way.is_kept) {
		snprintf(how, sizeof(how), ", as measured on %s", way.measured.date);
		tell(f, &way.measured, how);
		return;
	}
	link_finish(); /* one connection is answered at a time */
	way.measured.least = 0;
	r = measure(&result, &path);
	if (r == 0 && path.redirects > 0) {
		tell_measured(f, &result);
		keep_measured(f);
		return;
	}
	found_word(f, r < 0 ? strerror(-r) : "no redirects");
	found(f, "nothing could be redirected%s%s", r < 0 ? ": " : "",
	      r < 0 ? strerror(-r) : "");
	found_trouble(f, FINDING_NOTE, "All bytes from there go by the ring.",
		      "Raise the limit of locked memory, `ulimit -l`, and try again.");
	if (way.measured.is_slower)
		keep_measured(f);
}
