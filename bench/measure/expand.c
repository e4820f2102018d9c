/* SPDX-License-Identifier: Apache-2.0 */
/* bench --matrix: the product that the command line stands for, and its contenders. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "measure/plan.h"

static const struct bench_contender tcp = {.name = "tcp"};
static const struct bench_contender spins[] = {
	{.name = "viaduct-nospin",
	 .via_server = true,
	 .via_client = true,
	 .viaduct_spin = "0"},
	{.name = "viaduct",
	 .via_server = true,
	 .via_client = true,
	 .viaduct_spin = "auto"},
};

static bool gave(const struct plan *plan, enum plan_option option)
{
	return plan->given & 1u << option;
}

int plan_parse_spin(struct plan *plan, const char *list)
{
	char copy[32];

	plan->spin[0] = plan->spin[1] = false;
	snprintf(copy, sizeof(copy), "%s", list);
	for (char *save, *s = strtok_r(copy, ",", &save); s;
	     s = strtok_r(NULL, ",", &save)) {
		bool on = !strcmp(s, "on");
		if (!on && strcmp(s, "off"))
			return plan_complain("--spin takes on and off", list);
		plan->spin[on] = true;
	}
	return plan->spin[0] || plan->spin[1] ? 0 : plan_complain("no spin in", list);
}

int plan_parse_below(struct plan *plan, const char *text)
{
	char *end;

	plan->fail_below = strtod(text, &end);
	if (end == text || *end || !(plan->fail_below > 0 && plan->fail_below <= 100))
		return plan_complain("--fail-below takes a ratio above 0", text);
	return 0;
}

/* One end under Viaduct is a question of its own, and LogP's figures are no speeds. */
static bool is_part(const struct bench_pattern *pattern)
{
	return !pattern->plain && pattern->shape < BENCH_LOGP;
}

/* Its calls never wait, or nothing goes direct: spinning makes no difference. */
static bool has_spin(const struct bench_pattern *pattern)
{
	return pattern->wait != BENCH_SPIN &&
	       (pattern->shape != BENCH_CRR || pattern->trips > BENCH_SESSION_TRIPS);
}

/* Two ends that spin on one processor only wait for the end of each other's time slices. */
bool plan_places(const struct plan *plan, const struct bench_pattern *pattern,
		 enum plan_placement placement)
{
	return !plan->matrix || placement != PLAN_ONE || pattern->wait != BENCH_SPIN;
}

static int check_rows(const struct plan *plan)
{
	const struct bench_contender *who[BENCH_CONTENDERS_MAX];

	for (unsigned i = 0; i < plan->pattern_count; i++)
		for (unsigned p = 0; p < plan->placements; p++)
			if (plan_places(plan, plan->patterns[i], plan->placement[p]) &&
			    plan_matrix_contenders(plan, plan->patterns[i], who))
				return 0;
	return plan_complain("nothing is left to measure of the pattern",
			     plan->patterns[0]->name);
}

static int check_patterns(struct plan *plan)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < plan->pattern_count; i++) {
		const struct bench_pattern *p = plan->patterns[i];
		if (is_part(p))
			plan->patterns[kept++] = p;
		else if (gave(plan, PATTERNS))
			return plan_complain("this pattern is no part of the matrix",
					     p->name);
	}
	plan->pattern_count = kept;
	return 0;
}

/* Sizes and lengths that let the whole be over in under 40 minutes, or, quick, in under 7. */
static void set_times(struct plan *plan)
{
	static const size_t sizes[] = {64, 4096, 65536, 1u << 20};
	static const size_t quick_sizes[] = {64, 65536};

	if (!gave(plan, SIZES)) {
		plan->size_count = plan->quick ? 2 : 4;
		memcpy(plan->sizes, plan->quick ? quick_sizes : sizes,
		       plan->size_count * sizeof(sizes[0]));
		plan->under_way_max = 32u << 20;
	}
	if (!gave(plan, CONNS))
		plan->conns[plan->conns_count++] = plan->quick ? 50 : 100;
	if (!gave(plan, PAIRS))
		plan->pairs = plan->quick ? 2 : 3;
	if (!gave(plan, TIME))
		plan->set.time_ns = plan->quick ? 150000000 : 300000000;
	if (!gave(plan, RECHECK))
		plan->recheck = plan->quick ? 3 : 6;
}

int plan_expand(struct plan *plan)
{
	if (gave(plan, OVER))
		return plan_complain("--matrix compares with TCP: leave --over out",
				     plan->over);
	if (check_patterns(plan) < 0)
		return -EINVAL;
	set_times(plan);
	if (!gave(plan, PLACEMENT)) {
		plan->placement[0] = PLAN_TWO;
		plan->placement[1] = PLAN_ONE;
		plan->placements = 2;
	}
	if (!gave(plan, LOAD)) {
		plan->load[plan->loads++] = 0;
		plan->load[plan->loads++] = PLAN_BUSY;
		if (!gave(plan, PLACEMENT))
			plan_set_crowds(plan);
	}
	if (plan->pairs + plan->recheck > BENCH_PAIRS_MAX)
		return plan_complain("--pairs and --recheck together are at most", "99");
	return check_rows(plan);
}

int plan_check_plain(const struct plan *plan)
{
	static const struct {
		enum plan_option option;
		const char *name;
	} only[] = {
		{SPIN, "--spin"}, {RECHECK, "--recheck"}, {FAIL_BELOW, "--fail-below"}};

	for (size_t i = 0; i < sizeof(only) / sizeof(only[0]); i++)
		if (gave(plan, only[i].option))
			return plan_complain("an option of --matrix, which is not there",
					     only[i].name);
	if (plan->active > plan_conns_max(plan))
		return plan_complain("more than there are connections by --conns",
				     "--active");
	return plan->placements == 1
		       ? 0
		       : plan_complain("several placements need --matrix", "--placement");
}

int plan_take_files(struct plan *plan, int argc, char **argv)
{
	uint32_t allowed = 1u << VERDICT | 1u << FAIL_BELOW;

	if (plan->given & ~allowed || plan->quick)
		return plan_complain(
			"nothing is measured, so only --fail-below goes with",
			"--verdict");
	if (optind == argc)
		return plan_complain("files of `viaduct bench --json` are needed after",
				     "--verdict");
	plan->files = argv + optind;
	plan->file_count = (unsigned)(argc - optind);
	return 0;
}

unsigned plan_matrix_contenders(const struct plan *plan,
				const struct bench_pattern *pattern,
				const struct bench_contender **who)
{
	unsigned n = 0;

	who[n++] = &tcp;
	if (plan->spin[1])
		who[n++] = &spins[1];
	if (plan->spin[0] && has_spin(pattern))
		who[n++] = &spins[0];
	return n > 1 ? n : 0;
}
