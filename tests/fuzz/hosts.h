/* SPDX-License-Identifier: Apache-2.0 */
/* Three hosts on the fake interconnect, which begin anew with each input. */
#ifndef VD_TESTS_FUZZ_HOSTS_H
#define VD_TESTS_FUZZ_HOSTS_H

#include "fuzz/rig.h"
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
	for (int i = 0; i < RIG_HOSTS; i++)
		if (across_contexts[i].context)
			link_context_destroy(across_contexts[i].context);
	memset(across_contexts, 0, sizeof(across_contexts));
	memset(across_pool, 0, (size_t)across_used * sizeof(across_pool[0]));
	across_used = 0;
	across_leave(g);
}

static inline void hosts_begin(uint64_t seed)
{
	rig_first = rig_next = 0;
	rig_heard_count = 0;
	rig_tamper = NULL;
	rig_seed = seed + 1;
	rig_begin();
}

static inline void hosts_end(void)
{
	const struct fake_counts *counts = fake_counts(rig_world);

	/* Whatever a peer does: of ours are there always enough. */
	FUZZ_CHECK(counts->overrun == 0);
	hosts_drop();
	fake_world_destroy(rig_world);
	rig_world = NULL;
}

#endif
