/* SPDX-License-Identifier: Apache-2.0 */
/* Where the two ends of a measurement run: --placement, and the processors that follow. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "measure/plan.h"

const char *plan_placement_name(enum plan_placement placement)
{
	return placement == PLAN_TWO ? "two" : placement == PLAN_ONE ? "one" : "free";
}

const char *plan_placement_names(char buf[16], const struct plan *plan)
{
	int n = 0;

	for (unsigned i = 0; i < plan->placements; i++)
		n += snprintf(buf + n, 16 - (size_t)n, "%s%s", i ? "," : "",
			      plan_placement_name(plan->placement[i]));
	return buf;
}

/* Each of them once. */
int plan_parse_placement(struct plan *plan, const char *list)
{
	char copy[32];

	plan->placements = 0;
	snprintf(copy, sizeof(copy), "%s", list);
	for (char *save, *s = strtok_r(copy, ",", &save); s;
	     s = strtok_r(NULL, ",", &save)) {
		unsigned p = 0, i = 0;
		while (p < PLAN_PLACEMENTS && strcmp(s, plan_placement_name(p)))
			p++;
		while (i < plan->placements && plan->placement[i] != p)
			i++;
		if (p == PLAN_PLACEMENTS || i < plan->placements)
			return plan_complain("--placement takes two, one or free", list);
		plan->placement[plan->placements++] = p;
	}
	return plan->placements ? 0 : plan_complain("no placement in", list);
}

/*
 * Busy loops inherit the policy. Of a real-time one nothing else would run beside them, and
 * the ends would wait for whole time slices.
 */
static int check_policy(const struct plan *plan)
{
	int policy = sched_getscheduler(0);

	if (!plan_busy_max(plan) || (policy != SCHED_FIFO && policy != SCHED_RR))
		return 0;
	return plan_complain("busy loops would take the processors from all others under "
			     "a real-time policy: measure them without",
			     policy == SCHED_RR ? "SCHED_RR" : "SCHED_FIFO");
}

/* The processors of the two ends, and of the floor, out of those we may use. */
int plan_place(struct plan *plan)
{
	struct bench_setting *set = &plan->set;
	cpu_set_t allowed;
	int found = 0;

	set->floor_cpus[0] = set->floor_cpus[1] = -1;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		CPU_ZERO(&allowed);
	for (int i = CPU_SETSIZE - 1; i >= 0; i--) {
		if (!CPU_ISSET((unsigned)i, &allowed))
			continue;
		set->floor_cpus[0] = set->floor_cpus[1]; /* server: the second one */
		set->floor_cpus[1] = i;			 /* client: the first one */
		found++;
	}
	if (found < 2)
		set->floor_cpus[0] = -1;
	for (unsigned i = 0; i < plan->placements; i++)
		if (plan->placement[i] == PLAN_TWO && found < 2)
			return plan_complain(
				"one processor only, choose another placement", "two");
	if (plan->host.name) /* there is no memory that both ends share */
		set->floor_cpus[0] = set->floor_cpus[1] = -1;
	*set = plan_setting(plan, plan->placement[0]);
	return check_policy(plan);
}

struct bench_setting plan_setting(const struct plan *plan, enum plan_placement placement)
{
	struct bench_setting set = plan->set;

	set.cpus[0] = set.cpus[1] = placement == PLAN_FREE ? -1 : set.floor_cpus[1];
	if (placement == PLAN_TWO)
		set.cpus[0] = set.floor_cpus[0];
	return set;
}
