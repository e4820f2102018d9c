/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of two daemons and their frames: what goes through, and what must not. */
#include <errno.h>
#include <sodium.h>

#include "daemon/session.h"
#include "unit/test.h"

#define EIGHT(x) x x x x x x x x

static const char one[] = "one = " EIGHT("11111111");
static const char two[] = "two = " EIGHT("22222222");
static const char both[] = "two = " EIGHT("22222222") "\0one = " EIGHT("11111111");
static const char false_one[] = "one = " EIGHT("33333333");

static const struct name_end end_a = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 1},
				      .port = 7};
static const struct name_end end_b = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 2},
				      .port = 8};
static const struct name_end end_c = {.addr = {[10] = 0xff, 0xff, 10, 9, 0, 3},
				      .port = 8};

struct pair {
	struct keys keys_i, keys_r;
	struct session i, r;
	uint8_t hello[SESSION_SHAKE_MAX], reply[SESSION_SHAKE_MAX],
		proof[SESSION_SHAKE_MAX];
	size_t hello_bytes, reply_bytes, proof_bytes;
};

static void keys_of(const char *text, size_t bytes, struct keys *keys)
{
	char why[256];

	REQUIRE(sodium_init() >= 0);
	REQUIRE(keys_parse(text, bytes, keys, why, sizeof(why)) == 0);
}
#define KEYS(text, keys) keys_of(text, sizeof(text), keys)

static void begin(struct pair *p)
{
	p->hello_bytes = session_initiate(&p->i, &p->keys_i, &end_a, &end_b, p->hello);
	session_respond(&p->r, &p->keys_r, &end_a, &end_b);
}

static ssize_t hello(struct pair *p)
{
	return session_shake(&p->r, p->hello, p->hello_bytes, p->reply, &p->reply_bytes);
}

static ssize_t reply(struct pair *p)
{
	return session_shake(&p->i, p->reply, p->reply_bytes, p->proof, &p->proof_bytes);
}

static ssize_t proof(struct pair *p)
{
	uint8_t out[SESSION_SHAKE_MAX];
	size_t none = 1;
	ssize_t n = session_shake(&p->r, p->proof, p->proof_bytes, out, &none);

	CHECK_EQ(none, 0);
	return n;
}

static void shake(struct pair *p)
{
	begin(p);
	CHECK_EQ(hello(p), SESSION_HELLO_BYTES);
	CHECK_EQ(reply(p), SESSION_REPLY_BYTES);
	CHECK_EQ(proof(p), SESSION_PROOF_BYTES);
	REQUIRE(p->i.state == SESSION_READY && p->r.state == SESSION_READY);
}

static void ready(struct pair *p)
{
	KEYS(one, &p->keys_i);
	KEYS(one, &p->keys_r);
	shake(p);
}

static void passes(struct session *from, struct session *to, size_t bytes)
{
	uint8_t plain[WIRE_PLAIN_MAX], out[WIRE_PLAIN_MAX], frame[SESSION_FRAME_MAX];
	size_t got = 0, n;

	randombytes_buf(plain, bytes);
	n = session_seal(from, plain, bytes, frame);
	CHECK_EQ(n, bytes + SESSION_SEALED_BYTES);
	for (size_t part = 0; part < n; part += 1 + part / 2)
		CHECK_EQ(session_open(to, frame, part, out, &got), 0);
	CHECK_EQ(session_open(to, frame, n, out, &got), n);
	CHECK_EQ(got, bytes);
	CHECK(!memcmp(out, plain, bytes));
}

TEST(two_with_a_key_agree)
{
	struct pair p;

	ready(&p);
	for (int i = 0; i < 3; i++) {
		passes(&p.i, &p.r, 0);
		passes(&p.i, &p.r, WIRE_PLAIN_MAX);
		passes(&p.r, &p.i, 100);
	}
	CHECK(memcmp(p.i.seal.k, p.i.open.k, sizeof(p.i.seal.k)) != 0);
	session_finish(&p.i);
	CHECK(sodium_is_zero(p.i.seal.k, sizeof(p.i.seal.k)));
	CHECK(sodium_is_zero(p.i.open.k, sizeof(p.i.open.k)));
}

TEST(each_session_has_keys_of_its_own)
{
	struct pair p, q;

	ready(&p);
	ready(&q);
	CHECK(memcmp(p.i.seal.k, q.i.seal.k, sizeof(p.i.seal.k)) != 0);
	CHECK(memcmp(p.hello, q.hello, p.hello_bytes) != 0);
}

TEST(the_second_key_is_accepted)
{
	struct pair p;

	KEYS(one, &p.keys_i);
	KEYS(both, &p.keys_r);
	shake(&p);
	CHECK_STR(p.r.key->id, "one");
	KEYS(both, &p.keys_i);
	shake(&p);
	CHECK_STR(p.r.key->id, "two");
}

/* The responder's refusal reaches the initiator, and is no more than a word. */
static void refused(struct pair *p, int error, int status)
{
	begin(p);
	CHECK_EQ(hello(p), error);
	CHECK_EQ(p->r.state, SESSION_DEAD);
	CHECK_EQ(p->reply_bytes, SESSION_HEAD_BYTES);
	CHECK_EQ(reply(p), -ECONNREFUSED);
	CHECK_EQ(p->i.refusal, status);
	CHECK_EQ(p->i.state, SESSION_DEAD);
}

TEST(without_the_key_there_is_no_session)
{
	struct pair p;

	KEYS(two, &p.keys_i);
	KEYS(one, &p.keys_r);
	refused(&p, -ENOKEY, LOCAL_KEY);
	KEYS(false_one, &p.keys_i);
	refused(&p, -EKEYREJECTED, LOCAL_KEY);
	/* A responder that answers without the key. */
	KEYS(one, &p.keys_i);
	begin(&p);
	CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
	KEYS(false_one, &p.keys_i);
	CHECK_EQ(reply(&p), -EKEYREJECTED);
}

/* The version before had another handshake: what each of the two says to the other. */
TEST(another_version_is_refused_by_name)
{
	struct pair p;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	for (int version = 0; version < 4; version++) {
		if (version == SESSION_PROTOCOL)
			continue;
		begin(&p);
		wire_put16(p.hello + 8, (unsigned)version);
		CHECK_EQ(hello(&p), -EPROTONOSUPPORT);
		CHECK_EQ(p.reply_bytes, SESSION_HEAD_BYTES);
		/* The refusal is of our version; the other one's is understood as well. */
		CHECK_EQ(wire_get16(p.reply + 8), SESSION_PROTOCOL);
		wire_put16(p.reply + 8, (unsigned)version);
		CHECK_EQ(reply(&p), -ECONNREFUSED);
		CHECK_EQ(p.i.refusal, LOCAL_VERSION);
		begin(&p);
		CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
		wire_put16(p.reply + 8, (unsigned)version);
		CHECK_EQ(reply(&p), -EPROTONOSUPPORT);
		CHECK_EQ(p.i.state, SESSION_DEAD);
	}
}

TEST(a_forwarded_link_does_not_come_up)
{
	struct pair p;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	p.hello_bytes = session_initiate(&p.i, &p.keys_i, &end_a, &end_b, p.hello);
	session_respond(&p.r, &p.keys_r, &end_c, &end_b);
	CHECK_EQ(hello(&p), -EKEYREJECTED);
}

TEST(a_repeated_hello_and_proof_are_not_enough)
{
	struct pair p;
	struct session again;
	uint8_t out[SESSION_SHAKE_MAX];
	size_t n;

	ready(&p);
	session_respond(&again, &p.keys_r, &end_a, &end_b);
	CHECK_EQ(session_shake(&again, p.hello, p.hello_bytes, out, &n),
		 SESSION_HELLO_BYTES);
	CHECK_EQ(session_shake(&again, p.proof, p.proof_bytes, out, &n), -EKEYREJECTED);
	CHECK_EQ(again.state, SESSION_DEAD);
	/* And a repeated reply is none to a new hello. */
	n = session_initiate(&again, &p.keys_i, &end_a, &end_b, out);
	CHECK_EQ(session_shake(&again, p.reply, p.reply_bytes, out, &n), -EKEYREJECTED);
}

TEST(what_one_says_cannot_be_said_back)
{
	struct pair p;
	struct session mirror;
	uint8_t out[SESSION_SHAKE_MAX], frame[SESSION_FRAME_MAX], plain[WIRE_PLAIN_MAX];
	size_t n, bytes;

	ready(&p);
	session_initiate(&mirror, &p.keys_i, &end_a, &end_b, out);
	CHECK_EQ(session_shake(&mirror, out, SESSION_HELLO_BYTES, p.reply, &n), -EPROTO);
	n = session_seal(&p.i, out, 10, frame);
	CHECK_EQ(session_open(&p.i, frame, n, plain, &bytes), -EBADMSG);
}

/* Each byte of each message of the handshake, changed. */
static void flipped(int which, size_t at)
{
	struct pair p;
	ssize_t r;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	begin(&p);
	p.hello[at] ^= which == 0 ? 4 : 0;
	r = hello(&p);
	if (which > 0) {
		p.reply[at] ^= which == 1 ? 4 : 0;
		r = reply(&p);
	}
	if (which > 1) {
		p.proof[at] ^= 4;
		r = proof(&p);
	}
	CHECK(r < 0);
	CHECK((which == 1 ? p.i.state : p.r.state) == SESSION_DEAD);
}

TEST(no_byte_of_the_handshake_can_be_changed)
{
	static const size_t bytes[] = {SESSION_HELLO_BYTES, SESSION_REPLY_BYTES,
				       SESSION_PROOF_BYTES};

	for (int which = 0; which < 3; which++)
		for (size_t at = 0; at < bytes[which]; at++)
			flipped(which, at);
}

TEST(the_handshake_may_come_in_pieces)
{
	struct pair p;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	begin(&p);
	for (p.hello_bytes = 1; p.hello_bytes < SESSION_HELLO_BYTES; p.hello_bytes++)
		CHECK_EQ(hello(&p), 0);
	CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
	for (p.reply_bytes = 1; p.reply_bytes < SESSION_REPLY_BYTES; p.reply_bytes++) {
		CHECK_EQ(reply(&p), 0);
		CHECK_EQ(p.proof_bytes, 0);
	}
	CHECK_EQ(reply(&p), SESSION_REPLY_BYTES);
	for (p.proof_bytes = 1; p.proof_bytes < SESSION_PROOF_BYTES; p.proof_bytes++)
		CHECK_EQ(proof(&p), 0);
	CHECK_EQ(proof(&p), SESSION_PROOF_BYTES);
}

/* Over what both have seen, as the page has it. */
static void mac_anew(const struct pair *p, enum keys_use use, size_t hello, size_t reply,
		     uint8_t *mac)
{
	uint8_t seen[SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES];

	memcpy(seen, p->r.ends, SESSION_ENDS_BYTES);
	memcpy(seen + SESSION_ENDS_BYTES, p->hello, hello);
	memcpy(seen + SESSION_ENDS_BYTES + hello, p->reply, reply);
	crypto_auth(mac, seen, SESSION_ENDS_BYTES + hello + reply,
		    p->keys_r.key[0].part[use]);
}

/* Who has the key sends zero as its point, with a good MAC. */
TEST(points_of_small_order_are_refused)
{
	struct pair p;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	begin(&p);
	memset(p.hello + 28, 0, 32);
	mac_anew(&p, KEYS_HELLO, 60, 0, p.hello + 60);
	CHECK_EQ(hello(&p), -EKEYREJECTED);
	begin(&p);
	CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
	memset(p.reply + 12, 0, 32);
	mac_anew(&p, KEYS_RESPONDER, SESSION_HELLO_BYTES, 68, p.reply + 68);
	CHECK_EQ(reply(&p), -EKEYREJECTED);
}

/* Neither the shared key alone nor the two points alone give the keys of a stream. */
TEST(the_keys_of_a_stream_come_from_both)
{
	struct pair p;
	uint8_t tx[32], rx[32], key[32], plain[WIRE_PLAIN_MAX], tag;
	uint8_t frame[SESSION_FRAME_MAX], secret[32];
	crypto_secretstream_xchacha20poly1305_state stream;
	size_t n;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	begin(&p);
	memcpy(secret, p.i.own_secret, sizeof(secret));
	CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
	CHECK_EQ(reply(&p), SESSION_REPLY_BYTES);
	n = session_seal(&p.i, plain, 1, frame) - SESSION_FRAME_BYTES;
	REQUIRE(crypto_kx_client_session_keys(rx, tx, p.hello + 28, secret,
					      p.reply + 12) == 0);
	for (int with_key = 0; with_key < 2; with_key++) {
		uint8_t seen[32 + SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + 44];

		memcpy(seen, tx, 32);
		memcpy(seen + 32, p.i.ends, SESSION_ENDS_BYTES);
		memcpy(seen + 32 + SESSION_ENDS_BYTES, p.hello, SESSION_HELLO_BYTES);
		memcpy(seen + 32 + SESSION_ENDS_BYTES + SESSION_HELLO_BYTES, p.reply, 44);
		crypto_generichash(key, 32, seen, sizeof(seen),
				   p.keys_i.key[0].part[KEYS_SESSION], KEYS_KEY_BYTES);
		crypto_secretstream_xchacha20poly1305_init_pull(&stream, p.proof + 12,
								with_key ? key : tx);
		CHECK_EQ(crypto_secretstream_xchacha20poly1305_pull(
				 &stream, plain, NULL, &tag, frame + SESSION_FRAME_BYTES,
				 n, frame, SESSION_FRAME_BYTES),
			 with_key ? 0 : -1);
	}
}

TEST(nothing_is_sealed_before_the_proof)
{
	struct pair p;
	uint8_t frame[SESSION_FRAME_MAX], plain[WIRE_PLAIN_MAX] = {0};
	size_t n;

	KEYS(one, &p.keys_i);
	KEYS(one, &p.keys_r);
	begin(&p);
	CHECK_EQ(hello(&p), SESSION_HELLO_BYTES);
	CHECK_EQ(session_seal(&p.r, plain, 1, frame), 0);
	CHECK_EQ(reply(&p), SESSION_REPLY_BYTES);
	n = session_seal(&p.i, plain, 1, frame);
	CHECK_EQ(session_open(&p.r, frame, n, plain, &n), -EBADMSG);
}

/* ---- frames ---- */

enum { REPEAT, SKIP_ONE, SWAP, RENUMBER, CHANGE, TOO_LONG, TOO_SHORT, RESERVED };

static ssize_t frame_after(int what, size_t at, size_t bytes)
{
	struct pair p;
	uint8_t frame[3][SESSION_FRAME_MAX], plain[WIRE_PLAIN_MAX] = {1, 2, 3};
	size_t n, got;
	ssize_t r;

	ready(&p);
	for (int i = 0; i < 3; i++)
		n = session_seal(&p.i, plain, bytes, frame[i]);
	CHECK_EQ(n, bytes + SESSION_SEALED_BYTES);
	if (what != SKIP_ONE)
		CHECK_EQ(session_open(&p.r, frame[0], n, plain, &got), n);
	if (what == CHANGE)
		frame[1][at] ^= 1;
	if (what == TOO_LONG)
		wire_put16(frame[1], WIRE_PLAIN_MAX + SESSION_TAG_BYTES + 1);
	if (what == TOO_SHORT)
		wire_put16(frame[1], SESSION_TAG_BYTES - 1);
	if (what == RESERVED)
		frame[1][2] = 1;
	if (what == RENUMBER) /* the third in the place of the second */
		memcpy(frame[2] + 4, frame[1] + 4, 8);
	r = session_open(&p.r,
			 frame[what == REPEAT			  ? 0
			       : what == SWAP || what == RENUMBER ? 2
								  : 1],
			 SESSION_FRAME_MAX, plain, &got);
	CHECK_EQ(p.r.state, SESSION_DEAD);
	/* And nothing after it, good as it may be. */
	CHECK_EQ(session_open(&p.r, frame[1], n, plain, &got), -EBADMSG);
	CHECK_EQ(session_seal(&p.r, plain, 1, frame[0]), 0);
	return r;
}

TEST(a_frame_counts_once_in_its_place_unchanged)
{
	CHECK_EQ(frame_after(REPEAT, 0, 20), -EALREADY);
	CHECK_EQ(frame_after(SKIP_ONE, 0, 20), -EBADMSG);
	CHECK_EQ(frame_after(SWAP, 0, 20), -EBADMSG);
	CHECK_EQ(frame_after(RENUMBER, 0, 20), -EBADMSG);
	CHECK_EQ(frame_after(TOO_LONG, 0, 20), -EMSGSIZE);
	CHECK_EQ(frame_after(TOO_SHORT, 0, 20), -EMSGSIZE);
	CHECK_EQ(frame_after(RESERVED, 0, 20), -EMSGSIZE);
	for (size_t at = 0; at < 3 + SESSION_SEALED_BYTES; at++)
		CHECK(frame_after(CHANGE, at, 3) < 0);
}

/*
 * A frame whose end is cut off is waited for; what comes in its place does not complete it,
 * but where it is the same bytes: one byte in 256 is.
 */
TEST(a_frame_cut_short_is_none)
{
	struct pair p;
	uint8_t frame[2 * SESSION_FRAME_MAX], plain[WIRE_PLAIN_MAX] = {1, 2, 3};
	uint8_t whole[SESSION_FRAME_MAX];
	size_t n, next, got = 77;

	for (size_t cut = 1; cut < 20 + SESSION_SEALED_BYTES; cut++) {
		ready(&p);
		n = session_seal(&p.i, plain, 20, frame);
		memcpy(whole, frame, n);
		next = session_seal(&p.i, plain, 20, frame + cut);
		CHECK_EQ(session_open(&p.r, frame, cut, plain, &got), 0);
		CHECK_EQ(got, 77);
		CHECK_EQ(n, next);
		if (memcmp(whole, frame, n) != 0) {
			CHECK(session_open(&p.r, frame, cut + next, plain, &got) < 0);
			CHECK_EQ(got, 77);
		}
		/* And with a length that says so. */
		ready(&p);
		n = session_seal(&p.i, plain, 20, frame);
		if (cut < SESSION_SEALED_BYTES)
			continue;
		wire_put16(frame, (unsigned)(cut - SESSION_FRAME_BYTES));
		CHECK_EQ(session_open(&p.r, frame, cut, plain, &got), -EBADMSG);
	}
}

/* Who has the key may not end the stream or renew its key by the stream's own tags. */
TEST(a_frame_is_a_message)
{
	static const uint8_t tags[] = {crypto_secretstream_xchacha20poly1305_TAG_PUSH,
				       crypto_secretstream_xchacha20poly1305_TAG_REKEY,
				       crypto_secretstream_xchacha20poly1305_TAG_FINAL};
	uint8_t frame[SESSION_FRAME_MAX] = {0}, plain[WIRE_PLAIN_MAX] = {0};
	struct pair p;
	size_t got;

	for (int i = 0; i < 3; i++) {
		ready(&p);
		wire_put16(frame, 5 + SESSION_TAG_BYTES);
		crypto_secretstream_xchacha20poly1305_push(
			&p.i.seal, frame + SESSION_FRAME_BYTES, NULL, plain, 5, frame,
			SESSION_FRAME_BYTES, tags[i]);
		CHECK_EQ(session_open(&p.r, frame, 5 + SESSION_SEALED_BYTES, plain, &got),
			 -EBADMSG);
	}
}

TEST(a_message_has_a_longest_length)
{
	struct pair p;
	uint8_t frame[SESSION_FRAME_MAX], plain[WIRE_PLAIN_MAX] = {0};

	ready(&p);
	CHECK_EQ(session_seal(&p.r, plain, WIRE_PLAIN_MAX + 1, frame), 0);
	CHECK_EQ(session_seal(&p.r, plain, WIRE_PLAIN_MAX, frame), SESSION_FRAME_MAX);
}
