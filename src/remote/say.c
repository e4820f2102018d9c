/* SPDX-License-Identifier: Apache-2.0 */
/* Says things to the other end of a connection by viaductd, and proves some of them. */
#include <sys/random.h>

#include "remote/say.h"

struct say say_begin(enum say_kind kind)
{
	struct say s = {.version = ACROSS_VERSION, .kind = kind};

	memcpy(s.process, across_process(), sizeof(s.process));
	return s;
}

bool say_of(const struct local_message *m, size_t bytes, struct say *out)
{
	if (bytes != sizeof(*out))
		return false;
	memcpy(out, m->hello, sizeof(*out)); /* where it is aligned */
	return out->version == ACROSS_VERSION;
}

/* ---- to viaductd ---- */

static int send_with(struct local_message *m, const struct say *s)
{
	int r;

	if (s)
		memcpy(m->hello, s, sizeof(*s));
	r = relay_say(m, s ? sizeof(*s) : 0);
	say_wipe(m->hello, sizeof(*s));
	return r;
}

static uint32_t id_of(struct peer *a)
{
	return (++a->turn & 0xffff) << 16 | (uint32_t)(a - across_pool) << 1 | 1;
}

struct peer *say_by_request(uint32_t id)
{
	uint32_t i = (id & 0xffff) >> 1;

	if (i >= ACROSS_CONNECTIONS || across_pool[i].request != id || id == 0 ||
	    across_pool[i].state == ACROSS_FREE)
		return NULL;
	return &across_pool[i];
}

int say_request(struct peer *a, enum local_type type, const struct say *s)
{
	struct local_message m = {0};
	uint32_t id = id_of(a);
	int r;

	m.type = (uint8_t)type;
	m.id = id;
	m.local = a->local;
	m.peer = a->peer;
	r = send_with(&m, s);
	a->request = r == 0 ? id : 0;
	return r;
}

bool say_withdraw(struct peer *a)
{
	return relay_withdraw(&a->local, &a->peer);
}

void say_answer(uint32_t id, enum local_status status, const struct say *s)
{
	struct local_message m = {0};

	m.type = LOCAL_ANSWER;
	m.id = id;
	m.status = (uint8_t)status;
	send_with(&m, s);
}

/* ---- proofs ---- */

bool say_random(void *to, size_t bytes)
{
	return getrandom(to, bytes, 0) == (ssize_t)bytes;
}

/* What a proof is about: one thing that is said in one meeting, of which both numbers are. */
struct claim {
	uint32_t version, kind;
	uint64_t token;
	uint32_t place, generation;
	struct name_end connector, acceptor;
	uint8_t connector_number[SIPHASH_BYTES], acceptor_number[SIPHASH_BYTES];
	uint32_t zero;
};
static_assert(sizeof(struct claim) == 96, "a claim has no padding");

static struct claim claim_of(const struct peer *a, const struct say *s)
{
	bool accepted = a->role == ACROSS_ACCEPTED;
	struct claim c = {.version = s->version,
			  .kind = s->kind,
			  .token = s->token,
			  .place = s->place,
			  .generation = s->generation,
			  .connector = accepted ? a->peer : a->local,
			  .acceptor = accepted ? a->local : a->peer};

	memcpy(c.connector_number, accepted ? a->peer_number : a->number, SIPHASH_BYTES);
	memcpy(c.acceptor_number, accepted ? a->number : a->peer_number, SIPHASH_BYTES);
	return c;
}

void say_prove(const struct peer *a, const uint8_t secret[SIPHASH_BYTES], struct say *s)
{
	const struct claim c = claim_of(a, s);

	siphash(secret, &c, sizeof(c), s->proof);
}

bool say_is_proved(const struct peer *a, const uint8_t secret[SIPHASH_BYTES],
		   const struct say *s)
{
	const struct claim c = claim_of(a, s);
	uint8_t right[SIPHASH_BYTES], wrong = 0;

	siphash(secret, &c, sizeof(c), right);
	/* All of them, so that the time tells nothing. */
	for (int i = 0; i < SIPHASH_BYTES; i++)
		wrong |= right[i] ^ s->proof[i];
	return wrong == 0;
}
