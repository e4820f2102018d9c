/* SPDX-License-Identifier: Apache-2.0 */
/* What runs beside a measurement: --load, --busy, and the crowd of a matrix. */
#include <stdlib.h>
#include <string.h>

#include "measure/plan.h"

enum {
	BUSY_LOOPS = 2, /* one for each end */
	CROWD_SIZE = 64 /* bytes: what a crowd changes is how often an end runs */
};

static const char load_usage[] =
	"--load takes quiet, busy and 0 to 1024 busy loops, at most 8 of them";

static int parse_entry(const char *text, unsigned *load)
{
	char *end;
	unsigned long v;

	*load = !strcmp(text, "quiet") ? 0 : PLAN_BUSY;
	if (!strcmp(text, "quiet") || !strcmp(text, "busy"))
		return 0;
	v = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || v > PLAN_BUSY_MAX)
		return -1;
	*load = (unsigned)v;
	return 0;
}

int plan_parse_load(struct plan *plan, const char *list)
{
	char copy[128];

	plan->loads = 0;
	if (snprintf(copy, sizeof(copy), "%s", list) >= (int)sizeof(copy))
		return plan_complain(load_usage, list);
	for (char *save, *s = strtok_r(copy, ",", &save); s;
	     s = strtok_r(NULL, ",", &save))
		if (plan->loads == PLAN_LOADS_MAX ||
		    parse_entry(s, &plan->load[plan->loads++]) < 0)
			return plan_complain(load_usage, list);
	return plan->loads ? 0 : plan_complain(load_usage, list);
}

/* As --busy may follow --load: once all options are known. Each load once. */
void plan_set_loads(struct plan *plan)
{
	unsigned asked = plan->loads;

	plan->busy_named = plan->busy ? plan->busy : BUSY_LOOPS;
	if (!asked)
		plan->load[asked++] = plan->busy;
	plan->loads = 0;
	for (unsigned i = 0; i < asked; i++) {
		unsigned busy =
			plan->load[i] == PLAN_BUSY ? plan->busy_named : plan->load[i];
		unsigned at = 0;
		while (at < plan->loads && plan->load[at] != busy)
			at++;
		if (at == plan->loads)
			plan->load[plan->loads++] = busy;
	}
}

unsigned plan_busy_max(const struct plan *plan)
{
	unsigned max = 0;

	for (unsigned i = 0; i < plan->loads; i++)
		max = plan->load[i] > max ? plan->load[i] : max;
	for (unsigned i = 0; i < plan->crowds; i++)
		max = plan->crowd[i] > max ? plan->crowd[i] : max;
	return max;
}

void plan_load_name(char name[BENCH_LOAD_LETTERS], const struct plan *plan, unsigned busy)
{
	if (busy == 0 || busy == plan->busy_named)
		snprintf(name, BENCH_LOAD_LETTERS, "%s", busy ? "busy" : "quiet");
	else
		snprintf(name, BENCH_LOAD_LETTERS, "busy-%u", busy);
}

const char *plan_load_list(char buf[96], const struct plan *plan)
{
	size_t n = 0;

	*buf = 0;
	for (unsigned i = 0; i < plan->loads + plan->crowds && n < 96; i++)
		n += (size_t)snprintf(buf + n, 96 - n, "%s%u", i ? "," : "",
				      i < plan->loads ? plan->load[i]
						      : plan->crowd[i - plan->loads]);
	return buf;
}

void plan_set_crowds(struct plan *plan)
{
	plan->crowd[plan->crowds++] = 6;
	if (!plan->quick)
		plan->crowd[plan->crowds++] = 12;
}

/* Short messages, and connections whose upgrade is due with all processors busy. */
bool plan_crowd_wants(const struct plan *plan, const struct bench_pattern *pattern,
		      size_t size)
{
	static const char *const names[] = {"rtt", "session-30", "rtt-epoll",
					    "crr", "session",	 "session-100"};
	unsigned n = plan->quick ? 2 : sizeof(names) / sizeof(names[0]);

	for (unsigned i = 0; i < n; i++)
		if (!strcmp(pattern->name, names[i]))
			return size == CROWD_SIZE;
	return false;
}
