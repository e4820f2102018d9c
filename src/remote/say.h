/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of a connection between hosts say to each other, by their viaductds. */
#ifndef VD_REMOTE_SAY_H
#define VD_REMOTE_SAY_H

#include <string.h>

#include "base/siphash.h"
#include "daemon_client/local.h"
#include "remote/parts.h"

enum say_kind { SAY_WHO = 1, SAY_I_AM, SAY_LINK, SAY_TAKEN, SAY_FULL, SAY_NO, SAY_GONE };

/*
 * A hello, as far as viaductd is concerned. Little endian, as both hosts are.
 *
 * `number` and `proof` show that the ends of this connection are those of the link: docs/rdma.md,
 * "Whose link it is". Nothing else here is proved.
 */
struct say {
	uint32_t version;
	uint32_t kind;
	uint8_t process[16]; /* of who says it: a hint, as anybody can say it */
	uint64_t token;	     /* LINK, TAKEN */
	uint32_t place, generation;
	uint32_t has_hello; /* LINK of a new one, and its TAKEN */
	uint32_t zero;
	uint8_t hello[LINK_HELLO_BYTES];
	uint8_t secret
		[SIPHASH_BYTES]; /* with the hello: what the other end is to prove */
	uint8_t number[SIPHASH_BYTES]; /* I_AM, LINK: random; for one proof */
	uint8_t proof[SIPHASH_BYTES];  /* LINK of a link that is there, and each TAKEN */
};

static_assert(sizeof(struct say) == 176, "layout of what the ends say");

struct say say_begin(enum say_kind kind);
/* False: it is of another version, or nothing that an end would say. */
bool say_of(const struct local_message *m, size_t bytes, struct say *out);

/* To viaductd, for this connection; `s` may be NULL. 0, and a->request is its id; or -errno. */
int say_request(struct peer *a, enum local_type type, const struct say *s);
/* True: there was no room for it, or for others, yet. */
bool say_withdraw(struct peer *a);
void say_answer(uint32_t id, enum local_status status, const struct say *s);
/* Whose request has that id; NULL: nobody's any more. */
struct peer *say_by_request(uint32_t id);

/* Of secrets that were here, a forked child finds none in its copy of the stack. As explicit_bzero,
 * which would be one more symbol to look up at each start of a program. */
static inline void say_wipe(void *secret, size_t bytes)
{
	memset(secret, 0, bytes);
	__asm__ __volatile__("" : : "r"(secret) : "memory");
}

/* False: the kernel gives no random bytes, and nothing can be proved. */
bool say_random(void *to, size_t bytes);
/* Puts the proof into `s`, which is complete but for that. */
void say_prove(const struct peer *a, const uint8_t secret[SIPHASH_BYTES], struct say *s);
bool say_is_proved(const struct peer *a, const uint8_t secret[SIPHASH_BYTES],
		   const struct say *s);

#endif
