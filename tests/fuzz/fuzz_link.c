/* SPDX-License-Identifier: Apache-2.0 */
/* What comes from another daemon: the handshake in both roles, frames, questions, answers. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "daemon/session.h"
#include "fuzz/fuzz.h"

/* The first byte of an input. */
enum { RESPONDER, INITIATOR, FRAMES, QUESTION, ANSWER, LOCAL, KINDS };
enum { LOCAL_TYPES = LOCAL_TRANSLATED, SAID = 1024 };

static const struct name_end end_a = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 1},
				      .port = 7};
static const struct name_end end_b = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 2},
				      .port = 8};
static struct keys keys;
static uint64_t chance;

/* The same points each time, so that a good handshake of the seeds stays good. */
static uint32_t same_number(void)
{
	chance = chance * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(chance >> 32);
}

static void same_bytes(void *const to, const size_t size)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)to)[i] = (uint8_t)same_number();
}

static const char *same_name(void)
{
	return "same";
}

static struct randombytes_implementation same = {
	.implementation_name = same_name, .random = same_number, .buf = same_bytes};

static void begin(void)
{
	static const char text[] = "one = "
				   "1111111111111111111111111111111111111111111111111111"
				   "111111111111\0"
				   "two = "
				   "2222222222222222222222222222222222222222222222222222"
				   "222222222222";
	char why[256];

	if (keys.count == 0) {
		randombytes_set_implementation(&same);
		FUZZ_CHECK(sodium_init() >= 0);
		FUZZ_CHECK(keys_parse(text, sizeof(text), &keys, why, sizeof(why)) == 0);
	}
	chance = 1;
}

static size_t initiate(struct session *s, uint8_t *out)
{
	chance = 1;
	return session_initiate(s, &keys, &end_a, &end_b, out);
}

static void respond(struct session *s)
{
	chance = 2;
	session_respond(s, &keys, &end_a, &end_b);
}

/* A whole conversation; returns what the initiator, or the responder, has said in it. */
static size_t converse_anew(struct session *i, struct session *r, uint8_t *by_i,
			    uint8_t *by_r)
{
	size_t n = initiate(i, by_i), answer, proof, none;

	respond(r);
	FUZZ_CHECK(session_shake(r, by_i, n, by_r, &answer) == (ssize_t)n);
	FUZZ_CHECK(session_shake(i, by_r, answer, by_i + n, &proof) == (ssize_t)answer);
	FUZZ_CHECK(session_shake(r, by_i + n, proof, by_r + answer, &none) ==
		   (ssize_t)proof);
	return n + proof;
}

/* It is the same each time, and what takes the most time by far. */
static size_t converse(struct session *i, struct session *r, uint8_t *by_i, uint8_t *by_r)
{
	static struct session was_i, was_r;
	static uint8_t said_i[SAID], said_r[SAID];
	static size_t bytes;

	if (!bytes)
		bytes = converse_anew(&was_i, &was_r, said_i, said_r);
	*i = was_i;
	*r = was_r;
	memcpy(by_i, said_i, SAID);
	memcpy(by_r, said_r, SAID);
	return bytes;
}

static size_t put_plain(unsigned kind, uint8_t *out)
{
	static const uint8_t hello[40] = "hello";
	struct wire_question q = {1, 2, end_a, end_b, hello, sizeof(hello)};
	struct wire_answer a = {1, 2, LOCAL_OK, hello, sizeof(hello)};

	return kind == ANSWER ? wire_put_answer(out, &a) : wire_put_question(out, &q);
}

static bool has_hello(unsigned type)
{
	return type == LOCAL_PUBLISH || type == LOCAL_ASKED || type == LOCAL_PROBED;
}

size_t fuzz_seed(unsigned n, uint8_t out[FUZZ_MAX])
{
	uint8_t by_i[SAID], by_r[SAID], plain[WIRE_PLAIN_MAX];
	struct session i, r;
	struct local_message m = {.version = LOCAL_PROTOCOL};
	struct wire_question q = {1, 2, end_a, end_b, NULL, 0};
	size_t bytes;

	if (n >= LOCAL + LOCAL_TYPES + 1)
		return 0;
	begin();
	out[0] = (uint8_t)(n < KINDS ? n : LOCAL);
	bytes = converse(&i, &r, by_i, by_r);
	switch (n) {
	case RESPONDER:
		memcpy(out + 1, by_i, bytes);
		break;
	case INITIATOR:
		memcpy(out + 1, by_r, SESSION_REPLY_BYTES);
		return 1 + SESSION_REPLY_BYTES;
	case FRAMES:
		bytes = put_plain(QUESTION, plain);
		bytes = session_seal(&i, plain, bytes, out + 1);
		return 1 + bytes + session_seal(&i, plain, 0, out + 1 + bytes);
	case QUESTION:
	case ANSWER:
		return 1 + put_plain(n, out + 1);
	case LOCAL + LOCAL_TYPES: /* what a PROBE becomes */
		out[0] = QUESTION;
		q.asker.port = q.holder.port = 0;
		return 1 + wire_put_question(out + 1, &q);
	default:
		m.type = (uint8_t)(LOCAL_PUBLISH + (n - LOCAL) % LOCAL_TYPES);
		memcpy(out + 1, &m, LOCAL_HEAD_BYTES + 8);
		return 1 + LOCAL_HEAD_BYTES + (has_hello(m.type) ? 8 : 0);
	}
	return 1 + bytes;
}

/* Bytes that are not exactly those of a side with the key never bring it to READY. */
static void shake(struct session *s, const uint8_t *good, size_t good_bytes,
		  const uint8_t *data, size_t size)
{
	uint8_t out[SESSION_SHAKE_MAX], plain[WIRE_PLAIN_MAX];
	size_t at = 0, out_bytes;
	ssize_t n = 1;

	while (n > 0 && s->state != SESSION_READY) {
		n = session_shake(s, data + at, size - at, out, &out_bytes);
		FUZZ_CHECK(n <= (ssize_t)(size - at) && out_bytes <= sizeof(out));
		at += n > 0 ? (size_t)n : 0;
	}
	FUZZ_CHECK(n >= 0 || s->state == SESSION_DEAD);
	if (s->state != SESSION_READY)
		return;
	FUZZ_CHECK(at == good_bytes && !memcmp(data, good, good_bytes));
	/* Nothing of the seeds is a frame. */
	FUZZ_CHECK(session_open(s, data + at, size - at, plain, &out_bytes) <= 0);
}

static void frames(const uint8_t *data, size_t size)
{
	uint8_t by_i[SAID], by_r[SAID], plain[WIRE_PLAIN_MAX],
		good[2 * SESSION_FRAME_MAX];
	struct session i, r;
	size_t at = 0, bytes, good_bytes;
	ssize_t n = 1;

	converse(&i, &r, by_i, by_r);
	bytes = put_plain(QUESTION, plain);
	good_bytes = session_seal(&i, plain, bytes, good);
	good_bytes += session_seal(&i, plain, 0, good + good_bytes);
	while (n > 0) {
		n = session_open(&r, data + at, size - at, plain, &bytes);
		at += n > 0 ? (size_t)n : 0;
	}
	/* What was opened is what was sealed, in its order. */
	FUZZ_CHECK(at <= good_bytes && !memcmp(data, good, at));
	FUZZ_CHECK(n == 0 || r.state == SESSION_DEAD);
}

static void messages(unsigned kind, const uint8_t *data, size_t size)
{
	uint8_t again[FUZZ_MAX];
	struct wire_question q;
	struct wire_answer a;
	struct local_message m;

	if (kind == QUESTION && wire_get_question(data, size, &q) == 0)
		FUZZ_CHECK(wire_put_question(again, &q) == size &&
			   !memcmp(again, data, size));
	if (kind == ANSWER && wire_get_answer(data, size, &a) == 0)
		FUZZ_CHECK(wire_put_answer(again, &a) == size &&
			   !memcmp(again, data, size));
	if (kind != LOCAL)
		return;
	memset(&m, 0, sizeof(m));
	memcpy(&m, data, size < sizeof(m) ? size : sizeof(m));
	if (local_check(&m, size, true) == LOCAL_OK) {
		FUZZ_CHECK(size >= LOCAL_HEAD_BYTES && size <= sizeof(m));
		FUZZ_CHECK(local_check(&m, size, false) != LOCAL_OK);
		FUZZ_CHECK(m.type != LOCAL_PROBE || size == LOCAL_HEAD_BYTES);
		FUZZ_CHECK(!local_ends_fit(&m.local, &m.peer) ||
			   local_addresses_fit(&m.local, &m.peer));
	}
	if (local_check(&m, size, false) == LOCAL_OK) {
		FUZZ_CHECK(size >= LOCAL_HEAD_BYTES && size <= sizeof(m));
		FUZZ_CHECK(m.status < LOCAL_STATUS_COUNT);
		FUZZ_CHECK(m.type != LOCAL_PROBED ||
			   size == LOCAL_HEAD_BYTES + sizeof(struct local_probed));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t by_i[SAID], by_r[SAID], own[SESSION_SHAKE_MAX];
	struct session i, r;

	if (size == 0)
		return 0;
	begin();
	switch (data[0]) {
	case RESPONDER:
		converse(&i, &r, by_i, by_r);
		respond(&r);
		shake(&r, by_i, SESSION_HELLO_BYTES + SESSION_PROOF_BYTES, data + 1,
		      size - 1);
		break;
	case INITIATOR:
		converse(&i, &r, by_i, by_r);
		initiate(&i, own);
		shake(&i, by_r, SESSION_REPLY_BYTES, data + 1, size - 1);
		break;
	case FRAMES:
		frames(data + 1, size - 1);
		break;
	default:
		messages(data[0], data + 1, size - 1);
	}
	return 0;
}
