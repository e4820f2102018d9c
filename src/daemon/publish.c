/* SPDX-License-Identifier: Apache-2.0 */
/* The table of published connections: found by their ends, listed by process. */
#include <sodium.h>
#include <string.h>

#include "daemon/daemon.h"

static uint8_t hash_key[crypto_shorthash_KEYBYTES]; /* so that nobody can aim */

void publish_init(struct relay *r)
{
	crypto_shorthash_keygen(hash_key);
	for (int i = 0; i < RELAY_PUBLICATIONS; i++)
		r->hash[i] = -1;
	r->free_publication = -1;
}

/* Memory that was used before comes first. */
static int take_place(struct relay *r)
{
	int at = r->free_publication;

	if (at >= 0)
		r->free_publication = r->publication[at].next_of_hash;
	else if (r->fresh_publication < RELAY_PUBLICATIONS)
		at = r->fresh_publication++;
	return at;
}

static int *bucket_of_ends(struct relay *r, const struct name_end *local,
			   const struct name_end *peer)
{
	uint8_t ends[2 * sizeof(*local)], hash[crypto_shorthash_BYTES];
	uint32_t v;

	memcpy(ends, local, sizeof(*local));
	memcpy(ends + sizeof(*local), peer, sizeof(*peer));
	crypto_shorthash(hash, ends, sizeof(ends), hash_key);
	memcpy(&v, hash, sizeof(v));
	return &r->hash[v % RELAY_PUBLICATIONS];
}

struct relay_publication *publish_find(struct relay *r, const struct name_end *local,
				       const struct name_end *peer)
{
	int at = *bucket_of_ends(r, local, peer);

	while (at >= 0 && (!name_end_equal(&r->publication[at].local, local) ||
			   !name_end_equal(&r->publication[at].peer, peer)))
		at = r->publication[at].next_of_hash;
	return at < 0 ? NULL : &r->publication[at];
}

void publish_remove(struct relay *r, struct relay_publication *p)
{
	int self = (int)(p - r->publication);
	int *link = bucket_of_ends(r, &p->local, &p->peer);

	while (*link != self)
		link = &r->publication[*link].next_of_hash;
	*link = p->next_of_hash;
	if (p->previous_of_client >= 0)
		r->publication[p->previous_of_client].next_of_client = p->next_of_client;
	else
		r->client[p->client].first = p->next_of_client;
	if (p->next_of_client >= 0)
		r->publication[p->next_of_client].previous_of_client =
			p->previous_of_client;
	p->used = false;
	r->published--;
	p->next_of_hash = r->free_publication;
	r->free_publication = self;
}

void publish_remove_all(struct relay *r, uint32_t client)
{
	while (r->client[client].first >= 0)
		publish_remove(r, &r->publication[r->client[client].first]);
}

/* All are counted only where they can be too many. */
static bool has_too_many(const struct relay *r, uint32_t uid)
{
	struct share share = {.uid = uid};

	if (r->published < RELAY_PUBLICATIONS_UID)
		return false;
	for (int i = 0; i < RELAY_PUBLICATIONS; i++)
		if (r->publication[i].used)
			share_count(&share,
				    r->client[r->publication[i].client].owner.uid);
	return !share_is_left(&share, RELAY_PUBLICATIONS_UID, RELAY_PUBLICATIONS);
}

enum local_status publish_add(struct relay *r, uint32_t client,
			      const struct local_message *m, size_t hello_bytes,
			      uint64_t cookie)
{
	struct relay_publication *p = publish_find(r, &m->local, &m->peer);
	int *hash, at;

	/* The last one counts: of two processes of the user, and of two hellos. */
	if (p)
		publish_remove(r, p);
	if (has_too_many(r, r->client[client].owner.uid) || (at = take_place(r)) < 0)
		return LOCAL_FULL;
	p = &r->publication[at];
	p->used = true;
	r->published++;
	p->client = client;
	p->cookie = cookie;
	p->local = m->local;
	p->peer = m->peer;
	p->hello_bytes = (uint16_t)hello_bytes;
	memcpy(p->hello, m->hello, hello_bytes);
	hash = bucket_of_ends(r, &p->local, &p->peer);
	p->next_of_hash = *hash;
	*hash = at;
	p->previous_of_client = -1;
	p->next_of_client = r->client[client].first;
	if (p->next_of_client >= 0)
		r->publication[p->next_of_client].previous_of_client = at;
	r->client[client].first = at;
	return LOCAL_OK;
}
