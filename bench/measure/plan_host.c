/* SPDX-License-Identifier: Apache-2.0 */
/* What --host, --answer and --port ask for, and what does not go with them. */
#include <errno.h>
#include <string.h>

#include "measure/plan.h"

static bool gave(const struct plan *plan, enum plan_option option)
{
	return plan->given & 1u << option;
}

/* Options that say where on this one host the ends run, or what runs beside them. */
static int check_options(const struct plan *plan)
{
	static const struct {
		enum plan_option option;
		const char *name;
	} here[] = {{PLACEMENT, "--placement"},
		    {BUSY, "--busy"},
		    {LOAD, "--load"},
		    {MATRIX, "--matrix"},
		    {SPIN, "--spin"},
		    {RECHECK, "--recheck"},
		    {WAIT, "--wait"}};

	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (gave(plan, here[i].option))
			return plan_complain("--host measures between two hosts, without",
					     here[i].name);
	return 0;
}

/* Ways that both ends have to be on one host for. */
static bool is_local(const struct bench_contender *c)
{
	return c->unix_domain || c->floor || c->copy || c->peer;
}

static int check_names(const struct plan *plan)
{
	const struct bench_contender *c;
	const struct bench_peer *p;

	for (unsigned i = 0; i < plan->pattern_count; i++)
		if (plan->patterns[i]->shape >= BENCH_COPY)
			return plan_complain("this experiment is one on a single host",
					     plan->patterns[i]->name);
	for (size_t i = 0; plan->over && (c = plan_contender_at(i)); i++)
		if (is_local(c) && plan_names(plan->over, c->name))
			return plan_complain("this way needs both ends on one host",
					     c->name);
	for (size_t i = 0; plan->over && (p = bench_peer_at(i)); i++)
		if (plan_names(plan->over, p->name))
			return plan_complain("this way needs both ends on one host",
					     p->name);
	return 0;
}

int plan_check_host(struct plan *plan)
{
	uint32_t with_answer = 1u << ANSWER | 1u << PORT;

	if (plan->answers && (plan->given & ~with_answer || plan->quick))
		return plan_complain("this host measures nothing by itself: only --port "
				     "goes with",
				     "--answer");
	if (gave(plan, PORT) && !plan->answers && !plan->host.name)
		return plan_complain("--port needs --host or --answer, and so does",
				     "--port");
	/* A host with one processor answers, too. */
	if (plan->answers || plan->host.name) {
		plan->placement[0] = PLAN_FREE;
		plan->placements = 1;
	}
	if (!plan->host.name)
		return 0;
	if (!*plan->host.name)
		return plan_complain("--host takes the name or address of a host", "");
	return check_options(plan) < 0 ? -EINVAL : check_names(plan);
}

static bool has_turns(const struct bench_pattern *p)
{
	return p->shape == BENCH_RTT && (p->wait == BENCH_BLOCK || p->wait == BENCH_SPIN);
}

/* rsockets have no epoll, and whether they are used at both ends is the same question at each. */
bool plan_host_fits(const struct plan *plan, const struct bench_pattern *pattern,
		    unsigned conns, const struct bench_contender *c)
{
	if (c->rsockets)
		return plan->host.has_rsockets && conns == 1 &&
		       pattern->wait != BENCH_EPOLL && !plan->rate;
	if (c->verbs)
		return plan->host.has_verbs && conns == 1 && !plan->rate &&
		       !pattern->think &&
		       (pattern->shape == BENCH_STREAM || pattern->shape == BENCH_BIDIR ||
			pattern->shape == BENCH_LOGP || has_turns(pattern));
	return !is_local(c);
}
