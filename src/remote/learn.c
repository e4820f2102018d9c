/* SPDX-License-Identifier: Apache-2.0 */
/* From which size on it pays to redirect: found out by a long connection with a host, while it is used. */
/*
 * A receive that is about to sleep is free to offer its memory to the peer, or not to (redirect.c). All that happens
 * here is that choice. Nothing is sent for it, the peer is told nothing, and no byte takes a way that it could not
 * take anyway.
 *
 * What is compared. Once a connection has received a megabyte, its receives are taken in *stretches* of four times a
 * size: 16, 64 or 256 KiB, the largest for which the first receive has room. In one stretch, receives with room for
 * that size offer it; in another one they do as before. Two of them are a *pair*; which comes first is by chance.
 * A stretch lasts from a receive that is about to sleep, with an empty ring, to such a receive. So it has in it all
 * that the program does, in both kinds alike, and both copies, or both registrations. What is compared is the time
 * a byte, by whoever it is spent.
 *
 * When it is known. After sixteen pairs of a size, of all connections with the host by a device. It pays, if
 * the stretches with offers were quicker in 13 of them (by chance: once in a hundred times) and took less than 97 %
 * in the middle. Where less than a quarter of their bytes came past the ring, the pairs say nothing: the peer does not
 * send that way. After three such rounds a size is given up, in this process.
 * A stretch of more than two seconds says nothing, either: the programs had nothing to do.
 *
 * What follows. If it pays, receives with room for that size are redirected from then on, also those of the other
 * connections that are there. Smaller sizes can be learnt still; if it does not pay, larger ones. The result is
 * written to a file with its date and the device (learnt.c). What `viaduct doctor` has measured, and
 * VIADUCT_REDIRECT, come before all that: then nothing is learnt. Whether RDMA is slower than TCP is not learnt here.
 *
 * A peer that is slow on purpose can have a wrong size learnt of its own host.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/sigsafe.h"
#include "remote/crossover.h"
#include "remote/parts.h"

enum {
	SIZES = 3,
	HOSTS = 16, /* with a device each, of one process */
	PAIRS = 16,
	PAIRS_WON = 13,
	MEDIAN_MOST = 970, /* of 1000 */
	ROUNDS_IN_VAIN = 3,
	STRETCH = 4, /* times the size */
	SAVE_TRIES = 8,
	SAVE_AGAIN_MS = 100,
};
#define IDLE_NS 2000000000u
static const uint32_t sizes[SIZES] = {16 << 10, 64 << 10, 256 << 10};

struct trial {
	uint32_t pairs, in_vain;
	uint32_t ratio[PAIRS]; /* of 1000: with offers to without */
	uint64_t landed, bytes;
	bool is_given_up;
};

struct learn_host {
	bool is_used;
	struct learnt known;
	struct trial trial[SIZES];
	uint32_t saves; /* to be tried yet */
};

static struct learn_host hosts[HOSTS];
static _Atomic uint32_t unsaved;
static uint64_t save_not_before_ms;
uint64_t (*learn_clock)(void) = clock_now_ns;
uint64_t learn_after_bytes = 1 << 20;

static bool is_open(const struct learn_host *h, int i)
{
	return !h->trial[i].is_given_up && sizes[i] > h->known.fails &&
	       (h->known.pays == 0 || sizes[i] < h->known.pays);
}

static bool any_is_open(const struct learn_host *h)
{
	bool any = false;

	for (int i = 0; i < SIZES; i++)
		any = any || is_open(h, i);
	return any;
}

/* NULL: as many as there are places for. */
static struct learn_host *host_of(const uint8_t addr[16], const char *device)
{
	struct learn_host *h = hosts;

	for (; h < hosts + HOSTS && h->is_used; h++)
		if (memcmp(h->known.addr, addr, sizeof(h->known.addr)) == 0 &&
		    !strcmp(h->known.device, device))
			return h;
	if (h == hosts + HOSTS)
		return NULL;
	h->is_used = true;
	if (!learnt_find(addr, device, &h->known)) {
		memcpy(h->known.addr, addr, sizeof(h->known.addr));
		memcpy(h->known.device, device, sizeof(h->known.device));
	}
	return h;
}

static void set_least(struct peer *a, uint32_t least)
{
	store_relaxed(&a->redirect_least, least);
}

bool learn_may_begin(const uint8_t addr[16])
{
	if (!crossover_is_open(addr))
		return false;
	learnt_read();
	return true;
}

void learn_begin(struct peer *a, const struct across_context *c)
{
	struct learn_host *h = c ? host_of(a->peer.addr, c->device) : NULL;

	a->learn = (struct across_learn){0};
	if (!h)
		return;
	a->learn.host = h;
	set_least(a, h->known.pays);
	store_relaxed(&a->learn.is_on, any_is_open(h));
}

void learn_landed(struct peer *a, uint32_t bytes)
{
	if (a->learn.size && a->learn.offers)
		a->learn.landed += bytes;
}

void learn_reset(void)
{
	memset(hosts, 0, sizeof(hosts));
	atomic_store(&unsaved, 0);
}

/* ---- verdicts ---- */

static bool pays(const struct trial *t)
{
	uint32_t sorted[PAIRS], won = 0;

	for (uint32_t i = 0; i < PAIRS; i++) {
		uint32_t at = i;

		for (; at > 0 && sorted[at - 1] > t->ratio[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = t->ratio[i];
		won += t->ratio[i] < 1000;
	}
	return won >= PAIRS_WON &&
	       sorted[PAIRS / 2 - 1] + sorted[PAIRS / 2] < 2 * MEDIAN_MOST;
}

static void tell_all(const struct learn_host *h)
{
	for (int i = 0; i < across_used; i++) {
		struct peer *a = &across_pool[i];

		if (a->state == ACROSS_FREE || a->learn.host != h)
			continue;
		set_least(a, h->known.pays);
		store_relaxed(&a->learn.is_on, any_is_open(h));
	}
}

static void judge(struct learn_host *h, int i)
{
	struct trial *t = &h->trial[i];
	char text[LEARNT_TEXT];

	if (t->landed < t->bytes / 4) {
		t->is_given_up = ++t->in_vain == ROUNDS_IN_VAIN;
	} else {
		if (pays(t))
			h->known.pays = sizes[i];
		else
			h->known.fails = sizes[i];
		learnt_date(learnt_today(), h->known.date);
		log_info("learnt: %s", learnt_text(&h->known, text));
		h->saves = SAVE_TRIES;
		store_relaxed(&unsaved, 1);
	}
	t->pairs = 0;
	t->landed = t->bytes = 0;
	tell_all(h);
}

static int index_of(uint32_t size)
{
	int i = 0;

	while (sizes[i] != size)
		i++;
	return i;
}

static void end_pair(struct across_learn *l)
{
	int i = index_of(l->size);
	struct trial *t = &l->host->trial[i];
	uint64_t ratio = l->cost[0] ? l->cost[1] * 1000 / l->cost[0] : 1000;

	l->size = 0;
	if (!is_open(l->host, i)) /* another connection has been quicker */
		return;
	t->ratio[t->pairs++] = ratio < UINT32_MAX / 2 ? (uint32_t)ratio : UINT32_MAX / 2;
	t->landed += l->landed;
	t->bytes += l->bytes;
	if (t->pairs == PAIRS)
		judge(l->host, i);
}

/* ---- stretches ---- */

static void begin_stretch(struct across_learn *l, uint64_t position, uint64_t now)
{
	l->began_at = position;
	l->began_ns = now;
}

static void begin_pair(struct across_learn *l, size_t room, uint64_t position,
		       uint64_t now)
{
	static uint64_t chance = 88172645463325252u;

	for (int i = 0; i < SIZES; i++)
		if (sizes[i] <= room)
			l->size = is_open(l->host, i) ? sizes[i] : 0;
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	l->offers = (chance ^ now) >> 9 & 1;
	l->stretches = 0;
	l->landed = l->bytes = 0;
	begin_stretch(l, position, now);
}

static void end_stretch(struct across_learn *l, uint64_t position, uint64_t now)
{
	uint64_t bytes = position - l->began_at;

	l->cost[l->offers] = (now - l->began_ns) * 1000000 / bytes;
	if (l->offers)
		l->bytes = bytes;
	l->offers = !l->offers;
	begin_stretch(l, position, now);
	if (++l->stretches == 2)
		end_pair(l);
}

static bool may_learn(struct peer *a, uint64_t position)
{
	struct across_learn *l = &a->learn;

	if (!l->is_seen) {
		l->is_seen = true;
		l->first_at = position;
	}
	return load_relaxed(&l->is_on) && position - l->first_at >= learn_after_bytes &&
	       a->link && bulk_is_up(a->link);
}

static uint32_t learn(struct peer *a, size_t room, uint64_t position)
{
	struct across_learn *l = &a->learn;
	uint64_t now = learn_clock();

	if (!may_learn(a, position) || (l->size && now - l->began_ns > IDLE_NS))
		l->size = 0;
	else if (l->size && position - l->began_at >= STRETCH * (uint64_t)l->size)
		end_stretch(l, position, now);
	if (!l->size && may_learn(a, position))
		begin_pair(l, room, position, now);
	return l->size && l->offers ? l->size : across_redirect_least(a);
}

bool across_learns(const struct peer *a, size_t room)
{
	return room >= sizes[0] &&
	       (load_relaxed(&a->learn.is_on) || load_relaxed(&unsaved));
}

uint32_t across_learn(struct peer *a, size_t room, uint64_t position)
{
	struct across_guard g = across_enter();
	uint32_t least = learn(a, room, position);

	across_leave(g);
	return least;
}

/* ---- kept ---- */

/* One that is to be written now, and its file nobody else's. */
static struct learn_host *take_unsaved(struct learnt *out)
{
	uint64_t now = clock_coarse_ms();

	if (now < save_not_before_ms)
		return NULL;
	save_not_before_ms = now + SAVE_AGAIN_MS;
	for (int i = 0; i < HOSTS; i++) {
		if (hosts[i].saves == 0)
			continue;
		*out = hosts[i].known;
		hosts[i].saves--;
		return &hosts[i];
	}
	return NULL;
}

static bool any_is_unsaved(void)
{
	bool any = false;

	for (int i = 0; i < HOSTS; i++)
		any = any || hosts[i].saves > 0;
	return any;
}

static void was_saved(struct learn_host *h, const struct learnt *l, int result)
{
	/* More may have been learnt meanwhile. */
	if (result != -EAGAIN && memcmp(&h->known, l, sizeof(*l)) == 0)
		h->saves = 0;
	store_relaxed(&unsaved, any_is_unsaved());
	if (result < 0 && result != -EAGAIN)
		log_info("what was learnt is not kept: %s", strerrordesc_np(-result));
}

void across_learn_save(void)
{
	static _Atomic bool is_busy;
	struct learn_host *h;
	struct across_guard g;
	struct learnt l;
	int r;

	if (!load_relaxed(&unsaved) || exchange_acquire(&is_busy, true))
		return;
	crit_enter(); /* a handler that jumps away would leave it busy */
	g = across_enter();
	h = take_unsaved(&l);
	across_leave(g);
	if (h) {
		r = learnt_save(&l);
		g = across_enter();
		was_saved(h, &l, r);
		across_leave(g);
	}
	store_release(&is_busy, false);
	crit_leave();
}
