/* SPDX-License-Identifier: Apache-2.0 */
/* The table of connection ids: the one that was given back longest ago is taken first. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "rdma/ids.h"

enum { OWN = 1, PEER = 2 }; /* who is not through yet */
#define NONE UINT32_MAX

struct entry {
	void *cookie;
	uint32_t next; /* in the list of the free */
	uint8_t generation;
	uint8_t in_use; /* OWN | PEER; 0: free */
	uint8_t ever;
};

struct ids {
	uint32_t count, first, last;
	struct entry of[];
};

int ids_create(uint32_t count, struct ids **out)
{
	struct ids *s;

	assert(count > 0 && count <= LINK_IDS);
	s = calloc(1, sizeof(*s) + count * sizeof(s->of[0]));
	if (!s)
		return -ENOMEM;
	s->count = count;
	s->last = count - 1;
	for (uint32_t id = 0; id < count; id++)
		s->of[id].next = id < count - 1 ? id + 1 : NONE;
	*out = s;
	return 0;
}

void ids_destroy(struct ids *s)
{
	free(s);
}

int ids_take(struct ids *s, void *cookie, uint32_t *id, uint32_t *generation)
{
	uint32_t taken = s->first;
	struct entry *e;

	if (taken == NONE)
		return -ENOSPC;
	e = &s->of[taken];
	s->first = e->next;
	if (s->first == NONE)
		s->last = NONE;
	e->generation++;
	e->in_use = OWN | PEER;
	e->ever = 1;
	e->cookie = cookie;
	*id = taken;
	*generation = e->generation;
	return 0;
}

enum ids_found ids_find(const struct ids *s, uint32_t immediate, void **cookie)
{
	uint32_t id = link_immediate_id(immediate);
	const struct entry *e = &s->of[id < s->count ? id : 0];

	if (id >= s->count || !e->ever)
		return IDS_UNKNOWN;
	if (!(e->in_use & OWN) || link_immediate_generation(immediate) != e->generation)
		return IDS_LATE;
	*cookie = e->cookie;
	return IDS_LIVE;
}

static int end(struct ids *s, uint32_t id, uint8_t who)
{
	struct entry *e = &s->of[id];

	e->in_use &= (uint8_t)~who;
	if (e->in_use)
		return 0;
	e->cookie = NULL;
	e->next = NONE;
	if (s->last == NONE)
		s->first = id;
	else
		s->of[s->last].next = id;
	s->last = id;
	return 1;
}

int ids_end_own(struct ids *s, uint32_t id)
{
	assert(id < s->count && (s->of[id].in_use & OWN));
	return end(s, id, OWN);
}

int ids_end_peer(struct ids *s, uint32_t immediate)
{
	uint32_t id = link_immediate_id(immediate);

	if (id >= s->count || !(s->of[id].in_use & PEER) ||
	    link_immediate_generation(immediate) != s->of[id].generation)
		return -EPROTO;
	return end(s, id, PEER);
}
