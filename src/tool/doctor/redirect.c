/* SPDX-License-Identifier: Apache-2.0 */
/* From which size on bytes from that host are better redirected: measured once. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>

#include "remote/crossover.h"
#include "remote/learnt.h"
#include "tool/doctor/far.h"
#include "tool/kept.h"

/* What is less faster than that is not worth it, nor known for sure. */
#define GAIN 0.97

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
	r = kept_write(c, path);
	if (r < 0)
		found_trouble(f, FINDING_NOTE,
			      "What was measured cannot be kept, and so has no effect.",
			      "Let this user write %s, or set HOME: %s.",
			      *path ? path : "a file", strerror(-r));
}

/* Until now, without a measurement. */
static void say_learnt(char *text, size_t size)
{
	struct learnt l;

	learnt_read();
	if (!learnt_find(way.peer.addr, NULL, &l))
		return;
	snprintf(
		text, size,
		l.pays ? "; connections had found out on %s that it pays from %u bytes on"
		       : "; connections had found out on %s that it does not up to %u "
			 "bytes",
		l.date, l.pays ? l.pays : l.fails);
}

static void tell_measured(struct finding *f, const struct far_result *result)
{
	char how[300];
	int n = snprintf(how, sizeof(how), "; by the ring and redirected:");

	for (int i = 0; i < FAR_SIZES; i++)
		n += snprintf(how + n, sizeof(how) - (size_t)n, " %uK %.0f, %.0f us%s",
			      far_sizes[i] >> 10, result->us[i][0], result->us[i][1],
			      i < FAR_SIZES - 1 ? ";" : "");
	say_learnt(how + n, sizeof(how) - (size_t)n);
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
