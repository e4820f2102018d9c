/* SPDX-License-Identifier: Apache-2.0 */
/* Three hosts on the fake interconnect, which begin anew with each input. */
#ifndef VD_TESTS_FUZZ_HOSTS_H
#define VD_TESTS_FUZZ_HOSTS_H

#include "fuzz/rig.h"
#include "fuzz/windows.h"
#include "support/fake_parts.h"
#include "unit/daemon_rig.h"

/* Whoever had a connection has none any more, and is told nothing. */
static inline void hosts_drop(void)
{
	struct across_guard g = across_enter();

	for (int i = 0; i < ACROSS_LINKS; i++) {
		struct across_link *k = &across_links[i];

		memset(k->at, 0, sizeof(k->at));
		hub_drop(k);
		FUZZ_CHECK(!k->link && !k->window);
	}
	for (int i = 0; i < ACROSS_BULKS; i++)
		FUZZ_CHECK(!across_bulks[i].link);
	memset(across_pool, 0, (size_t)across_used * sizeof(across_pool[0]));
	across_used = 0;
	across_leave(g);
}

/* Without links nothing is left of an input but what each context has heard. */
static inline void hosts_forget(void)
{
	for (int i = 0; i < RIG_HOSTS; i++) {
		struct fake_context *c = (void *)across_contexts[i].context;

		link_answer(&c->context, false);
		c->first = c->count = c->still = 0;
		c->is_dead = c->is_absent = false;
		FUZZ_CHECK(link_arm(&c->context) == 0);
	}
	while (rig_world->strays)
		fake_step_stray(rig_world);
	FUZZ_CHECK(!rig_world->links && !rig_world->offers);
	rig_world->counts = (struct fake_counts){0};
	rig_world->last_qpn = 0;
}

static inline void hosts_begin(uint64_t seed)
{
	rig_first = rig_next = 0;
	rig_heard_count = 0;
	rig_tamper = NULL;
	rig_is_brief = true;
	rig_seed = windows_random = seed + 1;
	rig_begin();
	rig_world->random = rig_seed * 2 + 1;
}

static inline void hosts_end(void)
{
	const struct fake_counts *counts = fake_counts(rig_world);

	/* Whatever a peer does: of ours are there always enough. */
	FUZZ_CHECK(counts->overrun == 0);
	hosts_drop();
	hosts_forget();
}

#endif
