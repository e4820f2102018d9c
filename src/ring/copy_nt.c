/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of bulk, through the caches or past them, by what the last ones have cost. */
#include "base/atomic.h"
#include "ring/copy_nt.h"

#include "ring/wire.h"

/*
 * A line that another processor has read is taken back from its cache before it can be written.
 * Where the two share a third-level cache, that costs three to five times what the write does, and
 * twenty times where they do not: there a store past the caches, which does not wait for it, is
 * cheaper by far, although the reader then fetches the bytes from memory. Where the two run is not
 * known (a guest cannot see it), and may change: so what the copies cost is measured as they are
 * made.
 */

#define WINDOW_BYTES (1u << 20)
/* A KiB takes 60 to 80 ticks to and from one processor's caches, 280 to 370 where another has read
 * the lines and shares a cache, 1000 to 1400 where it does not; past the caches 50 to 90, for which
 * the reader takes 70 more. Below this, what the reader loses is what the sender gains. */
#define DEAR_TICKS 500u
/* So many windows in a row are not due to something that passes: of one connection, or of all of the
 * process, where fewer of each will do. */
#define DEAR_WINDOWS	 4
#define DEAR_WINDOWS_OWN 2
/* A piece that took longer than this has been interrupted. */
#define MOST_TICKS 4000u
/* What the comparison costs is to be little of this. */
#define AGAIN_BYTES (1ull << 30)

/* Windows in a row that were dear, of whichever connection. Relaxed: a guess. */
static _Atomic uint32_t dear_in_all;

static bool is_dear(struct past *p)
{
	if (p->dear <= p->bytes / 2) {
		p->dear_windows = 0;
		store_relaxed(&dear_in_all, 0);
		return false;
	}
	uint32_t all = load_relaxed(&dear_in_all);
	if (all < DEAR_WINDOWS)
		store_relaxed(&dear_in_all, all + 1);
	p->dear_windows++;
	return p->dear_windows >= DEAR_WINDOWS ||
	       (p->dear_windows >= DEAR_WINDOWS_OWN && all >= DEAR_WINDOWS);
}

static void judge(struct past *p, uint64_t cost)
{
	if (p->is_trial) {
		p->is_trial = false;
		p->is_on = cost < p->cost / 2;
		p->rest = AGAIN_BYTES;
		p->dear_windows = 0;
	} else if (p->is_on) {
		if (p->rest > 0)
			return;
		/* The lines come from memory once: that is not to be judged. */
		*p = (struct past){.area = p->area,
				   .skip = wire_area_bytes(p->area),
				   .dear_windows = DEAR_WINDOWS - 1};
	} else if (is_dear(p) && p->rest == 0) {
		p->cost = (uint32_t)cost;
		p->is_on = p->is_trial = true;
	}
}

void past_note(struct past *p, size_t bytes, uint64_t ticks)
{
	uint64_t most = bytes * MOST_TICKS / 1024;

	if (p->skip > 0) {
		p->skip -= p->skip < bytes ? p->skip : bytes;
		return;
	}
	p->bytes += bytes;
	p->ticks += ticks < most ? ticks : most;
	if (ticks > bytes * DEAR_TICKS / 1024)
		p->dear += bytes;
	if (p->bytes < WINDOW_BYTES)
		return;
	p->rest -= p->rest < p->bytes ? p->rest : p->bytes;
	judge(p, p->ticks * 1024 / p->bytes);
	p->bytes = p->dear = p->ticks = 0;
}
