/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of two daemons, and their frames, by libsodium's crypto_kx and secretstream. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "daemon/session.h"

/* The stream's own tag: each frame is a message. None is its last one, nor renews its key. */
#define TAG crypto_secretstream_xchacha20poly1305_TAG_MESSAGE

enum { TYPE_HELLO = 1, TYPE_REPLY, TYPE_PROOF, TYPE_REFUSAL };

static const uint8_t magic[8] = {'v', 'i', 'a', 'd', 'u', 'c', 't', 'd'};

/* Places in the messages. */
enum {
	HELLO_ID = SESSION_HEAD_BYTES,
	HELLO_POINT = HELLO_ID + KEYS_ID_BYTES,
	HELLO_MAC = HELLO_POINT + SESSION_POINT_BYTES,
	REPLY_POINT = SESSION_HEAD_BYTES,
	REPLY_START = REPLY_POINT + SESSION_POINT_BYTES,
	REPLY_MAC = REPLY_START + SESSION_START_BYTES,
	PROOF_START = SESSION_HEAD_BYTES,
	PROOF_MAC = PROOF_START + SESSION_START_BYTES
};

enum {
	TRANSCRIPT_MAX =
		SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES + PROOF_MAC
};

static_assert(crypto_auth_KEYBYTES == KEYS_KEY_BYTES, "MAC");
static_assert(crypto_kx_SESSIONKEYBYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES,
	      "keys of both directions");

static void put_head(uint8_t *to, uint8_t type, uint8_t status)
{
	memcpy(to, magic, sizeof(magic));
	wire_put16(to + 8, SESSION_PROTOCOL);
	to[10] = type;
	to[11] = status;
}

/*
 * Everything that both have seen so far, so that no part of it can be exchanged: the ends,
 * HELLO (without its MAC before there is a REPLY), that many bytes of REPLY, and PROOF
 * without its MAC where there is one.
 */
static size_t transcript(const struct session *s, size_t reply, const uint8_t *proof,
			 uint8_t out[TRANSCRIPT_MAX])
{
	size_t hello = reply ? SESSION_HELLO_BYTES : HELLO_MAC, n = 0;

	memcpy(out, s->ends, SESSION_ENDS_BYTES);
	n += SESSION_ENDS_BYTES;
	memcpy(out + n, s->hello, hello);
	n += hello;
	memcpy(out + n, s->reply, reply);
	n += reply;
	if (proof)
		memcpy(out + n, proof, PROOF_MAC);
	return n + (proof ? PROOF_MAC : 0);
}

static void mac_of(const struct session *s, enum keys_use use, size_t reply,
		   const uint8_t *proof, uint8_t *mac)
{
	uint8_t seen[TRANSCRIPT_MAX];
	size_t n = transcript(s, reply, proof, seen);

	crypto_auth(mac, seen, n, s->key->part[use]);
}

static int mac_check(const struct session *s, enum keys_use use, size_t reply,
		     const uint8_t *proof, const uint8_t *mac)
{
	uint8_t seen[TRANSCRIPT_MAX];
	size_t n = transcript(s, reply, proof, seen);

	return crypto_auth_verify(mac, seen, n, s->key->part[use]) == 0 ? 0
									: -EKEYREJECTED;
}

/* crypto_kx knows the two points alone: the shared key and what was said are added here. */
static void bind_key(const struct session *s, const uint8_t *exchanged, uint8_t *key)
{
	uint8_t seen[TRANSCRIPT_MAX];
	size_t n = transcript(s, REPLY_START, NULL, seen);
	crypto_generichash_state hash;

	crypto_generichash_init(&hash, s->key->part[KEYS_SESSION], KEYS_KEY_BYTES,
				crypto_kx_SESSIONKEYBYTES);
	crypto_generichash_update(&hash, exchanged, crypto_kx_SESSIONKEYBYTES);
	crypto_generichash_update(&hash, seen, n);
	crypto_generichash_final(&hash, key, crypto_kx_SESSIONKEYBYTES);
	sodium_memzero(&hash, sizeof(hash));
}

/* With both points known: begins the own stream at start, and keeps the other one's key. */
static int exchange(struct session *s, bool initiator, uint8_t *start)
{
	const uint8_t *client = s->hello + HELLO_POINT, *server = s->reply + REPLY_POINT;
	uint8_t rx[crypto_kx_SESSIONKEYBYTES], tx[crypto_kx_SESSIONKEYBYTES];
	uint8_t key[crypto_kx_SESSIONKEYBYTES];
	int bad;

	if (initiator)
		bad = crypto_kx_client_session_keys(rx, tx, client, s->own_secret,
						    server);
	else
		bad = crypto_kx_server_session_keys(rx, tx, server, s->own_secret,
						    client);
	if (!bad) {
		bind_key(s, tx, key);
		bind_key(s, rx, s->open_key);
		crypto_secretstream_xchacha20poly1305_init_push(&s->seal, start, key);
	}
	sodium_memzero(rx, sizeof(rx));
	sodium_memzero(tx, sizeof(tx));
	sodium_memzero(key, sizeof(key));
	sodium_memzero(s->own_secret, sizeof(s->own_secret));
	return bad ? -EKEYREJECTED : 0;
}

static void begin_opening(struct session *s, const uint8_t *start)
{
	crypto_secretstream_xchacha20poly1305_init_pull(&s->open, start, s->open_key);
	sodium_memzero(s->open_key, sizeof(s->open_key));
}

static void begin(struct session *s, const struct keys *keys,
		  const struct name_end *initiator, const struct name_end *responder)
{
	memset(s, 0, sizeof(*s));
	s->keys = keys;
	memcpy(s->ends, initiator, sizeof(*initiator));
	memcpy(s->ends + sizeof(*initiator), responder, sizeof(*responder));
}

size_t session_initiate(struct session *s, const struct keys *keys,
			const struct name_end *initiator,
			const struct name_end *responder, uint8_t out[SESSION_SHAKE_MAX])
{
	begin(s, keys, initiator, responder);
	s->state = SESSION_WAITS_REPLY;
	s->key = &keys->key[0];
	put_head(s->hello, TYPE_HELLO, 0);
	memcpy(s->hello + HELLO_ID, s->key->id, KEYS_ID_BYTES);
	crypto_kx_keypair(s->hello + HELLO_POINT, s->own_secret);
	mac_of(s, KEYS_HELLO, 0, NULL, s->hello + HELLO_MAC);
	memcpy(out, s->hello, SESSION_HELLO_BYTES);
	return SESSION_HELLO_BYTES;
}

void session_respond(struct session *s, const struct keys *keys,
		     const struct name_end *initiator, const struct name_end *responder)
{
	begin(s, keys, initiator, responder);
	s->state = SESSION_WAITS_HELLO;
}

static int take_hello(struct session *s, const uint8_t *in, uint8_t *out,
		      size_t *out_bytes)
{
	int r;

	memcpy(s->hello, in, SESSION_HELLO_BYTES);
	s->key = keys_find(s->keys, in + HELLO_ID);
	if (!s->key)
		return -ENOKEY;
	r = mac_check(s, KEYS_HELLO, 0, NULL, in + HELLO_MAC);
	if (r < 0)
		return r;
	put_head(s->reply, TYPE_REPLY, 0);
	crypto_kx_keypair(s->reply + REPLY_POINT, s->own_secret);
	r = exchange(s, false, s->reply + REPLY_START);
	if (r < 0)
		return r;
	mac_of(s, KEYS_RESPONDER, REPLY_MAC, NULL, s->reply + REPLY_MAC);
	memcpy(out, s->reply, SESSION_REPLY_BYTES);
	*out_bytes = SESSION_REPLY_BYTES;
	s->state = SESSION_WAITS_PROOF;
	return 0;
}

static int take_reply(struct session *s, const uint8_t *in, uint8_t *out,
		      size_t *out_bytes)
{
	int r;

	memcpy(s->reply, in, SESSION_REPLY_BYTES);
	r = mac_check(s, KEYS_RESPONDER, REPLY_MAC, NULL, in + REPLY_MAC);
	if (r == 0)
		r = exchange(s, true, out + PROOF_START);
	if (r < 0)
		return r;
	begin_opening(s, s->reply + REPLY_START);
	put_head(out, TYPE_PROOF, 0);
	mac_of(s, KEYS_INITIATOR, SESSION_REPLY_BYTES, out, out + PROOF_MAC);
	*out_bytes = SESSION_PROOF_BYTES;
	s->state = SESSION_READY;
	return 0;
}

static int take_proof(struct session *s, const uint8_t *in)
{
	int r = mac_check(s, KEYS_INITIATOR, SESSION_REPLY_BYTES, in, in + PROOF_MAC);

	if (r < 0)
		return r;
	begin_opening(s, in + PROOF_START);
	s->state = SESSION_READY;
	return 0;
}

/* The length of the message that is expected now; a refusal is shorter than each. */
static size_t expected(const struct session *s, uint8_t *type)
{
	switch (s->state) {
	case SESSION_WAITS_HELLO:
		*type = TYPE_HELLO;
		return SESSION_HELLO_BYTES;
	case SESSION_WAITS_REPLY:
		*type = TYPE_REPLY;
		return SESSION_REPLY_BYTES;
	case SESSION_WAITS_PROOF:
		*type = TYPE_PROOF;
		return SESSION_PROOF_BYTES;
	default:
		return 0;
	}
}

/* 0 where the bytes so far can be the expected message. */
static int head_check(struct session *s, const uint8_t *in, size_t bytes, uint8_t type)
{
	size_t n = bytes < sizeof(magic) ? bytes : sizeof(magic);

	if (memcmp(in, magic, n) != 0)
		return -EPROTO;
	if (bytes < SESSION_HEAD_BYTES)
		return 0;
	if (in[10] == TYPE_REFUSAL && s->state == SESSION_WAITS_REPLY) {
		s->refusal = in[11];
		return -ECONNREFUSED;
	}
	if (wire_get16(in + 8) != SESSION_PROTOCOL)
		return -EPROTONOSUPPORT;
	return in[10] == type && in[11] == 0 ? 0 : -EPROTO;
}

static ssize_t fail(struct session *s, int error, uint8_t *out, size_t *out_bytes)
{
	bool responder = s->state == SESSION_WAITS_HELLO;

	session_finish(s);
	/* Only for the other one's log: nobody vouches for it. */
	if (responder && error != -EPROTO) {
		put_head(out, TYPE_REFUSAL,
			 error == -EPROTONOSUPPORT ? LOCAL_VERSION : LOCAL_KEY);
		*out_bytes = SESSION_HEAD_BYTES;
	}
	return error;
}

ssize_t session_shake(struct session *s, const uint8_t *in, size_t bytes,
		      uint8_t out[SESSION_SHAKE_MAX], size_t *out_bytes)
{
	uint8_t type = 0;
	size_t whole = expected(s, &type);
	int r;

	*out_bytes = 0;
	if (whole == 0)
		return -EPROTO;
	r = head_check(s, in, bytes, type);
	if (r == 0 && bytes < whole)
		return 0;
	if (r == 0 && type == TYPE_HELLO)
		r = take_hello(s, in, out, out_bytes);
	else if (r == 0 && type == TYPE_REPLY)
		r = take_reply(s, in, out, out_bytes);
	else if (r == 0)
		r = take_proof(s, in);
	return r < 0 ? fail(s, r, out, out_bytes) : (ssize_t)whole;
}

static void put64(uint8_t *to, uint64_t v)
{
	wire_put32(to, (uint32_t)(v >> 32));
	wire_put32(to + 4, (uint32_t)v);
}

size_t session_seal(struct session *s, const uint8_t *plain, size_t bytes,
		    uint8_t out[SESSION_FRAME_MAX])
{
	if (s->state != SESSION_READY || bytes > WIRE_PLAIN_MAX)
		return 0;
	wire_put16(out, (unsigned)(bytes + SESSION_TAG_BYTES));
	wire_put16(out + 2, 0);
	put64(out + 4, s->sealed++);
	crypto_secretstream_xchacha20poly1305_push(&s->seal, out + SESSION_FRAME_BYTES,
						   NULL, plain, bytes, out,
						   SESSION_FRAME_BYTES, TAG);
	return bytes + SESSION_SEALED_BYTES;
}

/* The stream itself takes no frame but the next: the number only says what is wrong. */
static int open_check(const struct session *s, const uint8_t *in, size_t length)
{
	uint64_t number = (uint64_t)wire_get32(in + 4) << 32 | wire_get32(in + 8);

	if (length < SESSION_TAG_BYTES || length > WIRE_PLAIN_MAX + SESSION_TAG_BYTES ||
	    wire_get16(in + 2) != 0)
		return -EMSGSIZE;
	if (number < s->opened)
		return -EALREADY;
	return number == s->opened ? 0 : -EBADMSG;
}

ssize_t session_open(struct session *s, const uint8_t *in, size_t bytes,
		     uint8_t plain[WIRE_PLAIN_MAX], size_t *plain_bytes)
{
	unsigned long long got = 0;
	size_t length;
	uint8_t tag = 0;
	int r;

	if (s->state != SESSION_READY)
		return -EBADMSG;
	if (bytes < SESSION_FRAME_BYTES)
		return 0;
	length = wire_get16(in);
	r = open_check(s, in, length);
	if (r == 0 && bytes < SESSION_FRAME_BYTES + length)
		return 0;
	if (r == 0 && (crypto_secretstream_xchacha20poly1305_pull(
			       &s->open, plain, &got, &tag, in + SESSION_FRAME_BYTES,
			       length, in, SESSION_FRAME_BYTES) != 0 ||
		       tag != TAG))
		r = -EBADMSG;
	if (r < 0) {
		session_finish(s);
		return r;
	}
	s->opened++;
	*plain_bytes = (size_t)got;
	return (ssize_t)(SESSION_FRAME_BYTES + length);
}

void session_finish(struct session *s)
{
	uint8_t refusal = s->refusal;

	sodium_memzero(s, sizeof(*s));
	s->state = SESSION_DEAD;
	s->refusal = refusal;
}
