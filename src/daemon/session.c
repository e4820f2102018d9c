/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of two daemons, and their frames, from libsodium's primitives. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "daemon/session.h"

enum { TYPE_HELLO = 1, TYPE_REPLY, TYPE_PROOF, TYPE_REFUSAL };

static const uint8_t magic[8] = {'v', 'i', 'a', 'd', 'u', 'c', 't', 'd'};

/* Places in the messages. */
enum {
	HELLO_ID = SESSION_HEAD_BYTES,
	HELLO_POINT = HELLO_ID + KEYS_ID_BYTES,
	HELLO_MAC = HELLO_POINT + 32,
	REPLY_POINT = SESSION_HEAD_BYTES,
	REPLY_MAC = REPLY_POINT + 32,
	PROOF_MAC = SESSION_HEAD_BYTES
};

static_assert(crypto_auth_BYTES == 32 && crypto_auth_KEYBYTES == KEYS_KEY_BYTES, "MAC");
static_assert(crypto_scalarmult_BYTES == 32 && crypto_scalarmult_SCALARBYTES == 32,
	      "points");
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == SESSION_TAG_BYTES &&
		      crypto_aead_chacha20poly1305_ietf_KEYBYTES == 32,
	      "frames");

static void put_head(uint8_t *to, uint8_t type, uint8_t status)
{
	memcpy(to, magic, sizeof(magic));
	wire_put16(to + 8, SESSION_PROTOCOL);
	to[10] = type;
	to[11] = status;
}

/* Everything that both have seen so far, so that no part of it can be exchanged. */
static size_t
transcript(const struct session *s, size_t hello, size_t reply,
	   uint8_t out[SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES])
{
	memcpy(out, s->ends, SESSION_ENDS_BYTES);
	memcpy(out + SESSION_ENDS_BYTES, s->hello, hello);
	memcpy(out + SESSION_ENDS_BYTES + hello, s->reply, reply);
	return SESSION_ENDS_BYTES + hello + reply;
}

static void mac_of(const struct session *s, enum keys_use use, size_t hello, size_t reply,
		   uint8_t mac[32])
{
	uint8_t seen[SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES];
	size_t n = transcript(s, hello, reply, seen);

	crypto_auth(mac, seen, n, s->key->part[use]);
}

static int mac_check(const struct session *s, enum keys_use use, size_t hello,
		     size_t reply, const uint8_t *mac)
{
	uint8_t seen[SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES];
	size_t n = transcript(s, hello, reply, seen);

	return crypto_auth_verify(mac, seen, n, s->key->part[use]) == 0 ? 0
									: -EKEYREJECTED;
}

static void own_point(struct session *s, uint8_t *point)
{
	randombytes_buf(s->own_secret, sizeof(s->own_secret));
	crypto_scalarmult_base(point, s->own_secret);
}

/* The session's keys come from the shared key, the two points, and all that was said. */
static int derive(struct session *s, const uint8_t *point, int initiator)
{
	uint8_t seen[SESSION_ENDS_BYTES + SESSION_HELLO_BYTES + SESSION_REPLY_BYTES];
	uint8_t common[32], both[64];
	crypto_generichash_state hash;
	size_t n = transcript(s, SESSION_HELLO_BYTES, SESSION_REPLY_BYTES, seen);
	int bad = crypto_scalarmult(common, s->own_secret, point);

	if (!bad) {
		crypto_generichash_init(&hash, s->key->part[KEYS_SESSION], KEYS_KEY_BYTES,
					sizeof(both));
		crypto_generichash_update(&hash, common, sizeof(common));
		crypto_generichash_update(&hash, seen, n);
		crypto_generichash_final(&hash, both, sizeof(both));
		memcpy(initiator ? s->seal_key : s->open_key, both, 32);
		memcpy(initiator ? s->open_key : s->seal_key, both + 32, 32);
		sodium_memzero(&hash, sizeof(hash));
	}
	sodium_memzero(common, sizeof(common));
	sodium_memzero(both, sizeof(both));
	sodium_memzero(s->own_secret, sizeof(s->own_secret));
	return bad ? -EKEYREJECTED : 0;
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
	own_point(s, s->hello + HELLO_POINT);
	mac_of(s, KEYS_HELLO, HELLO_MAC, 0, s->hello + HELLO_MAC);
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
	r = mac_check(s, KEYS_HELLO, HELLO_MAC, 0, in + HELLO_MAC);
	if (r < 0)
		return r;
	put_head(s->reply, TYPE_REPLY, 0);
	own_point(s, s->reply + REPLY_POINT);
	mac_of(s, KEYS_RESPONDER, SESSION_HELLO_BYTES, REPLY_MAC, s->reply + REPLY_MAC);
	r = derive(s, s->hello + HELLO_POINT, 0);
	if (r < 0)
		return r;
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
	r = mac_check(s, KEYS_RESPONDER, SESSION_HELLO_BYTES, REPLY_MAC, in + REPLY_MAC);
	if (r == 0)
		r = derive(s, s->reply + REPLY_POINT, 1);
	if (r < 0)
		return r;
	put_head(out, TYPE_PROOF, 0);
	mac_of(s, KEYS_INITIATOR, SESSION_HELLO_BYTES, SESSION_REPLY_BYTES,
	       out + PROOF_MAC);
	*out_bytes = SESSION_PROOF_BYTES;
	s->state = SESSION_READY;
	return 0;
}

static int take_proof(struct session *s, const uint8_t *in)
{
	int r = mac_check(s, KEYS_INITIATOR, SESSION_HELLO_BYTES, SESSION_REPLY_BYTES,
			  in + PROOF_MAC);

	if (r == 0)
		s->state = SESSION_READY;
	return r;
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

/* Each number is used once with a key, since each session has keys of its own. */
static void nonce_of(uint64_t number, uint8_t nonce[12])
{
	memset(nonce, 0, 4);
	put64(nonce + 4, number);
}

size_t session_seal(struct session *s, const uint8_t *plain, size_t bytes,
		    uint8_t out[SESSION_FRAME_MAX])
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

	if (s->state != SESSION_READY || s->sealed >= SESSION_FRAMES_MAX ||
	    bytes > WIRE_PLAIN_MAX)
		return 0;
	wire_put16(out, (unsigned)(bytes + SESSION_TAG_BYTES));
	wire_put16(out + 2, 0);
	put64(out + 4, s->sealed);
	nonce_of(s->sealed, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt(out + SESSION_FRAME_BYTES, NULL, plain,
						  bytes, out, SESSION_FRAME_BYTES, NULL,
						  nonce, s->seal_key);
	s->sealed++;
	return bytes + SESSION_SEALED_BYTES;
}

static int open_check(const struct session *s, const uint8_t *in, size_t length)
{
	uint64_t number = (uint64_t)wire_get32(in + 4) << 32 | wire_get32(in + 8);

	if (length < SESSION_TAG_BYTES || length > WIRE_PLAIN_MAX + SESSION_TAG_BYTES ||
	    wire_get16(in + 2) != 0)
		return -EMSGSIZE;
	if (number < s->opened)
		return -EALREADY;
	return number == s->opened && number < SESSION_FRAMES_MAX ? 0 : -EBADMSG;
}

ssize_t session_open(struct session *s, const uint8_t *in, size_t bytes,
		     uint8_t plain[WIRE_PLAIN_MAX], size_t *plain_bytes)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	unsigned long long got = 0;
	size_t length;
	int r;

	if (s->state != SESSION_READY)
		return -EBADMSG;
	if (bytes < SESSION_FRAME_BYTES)
		return 0;
	length = wire_get16(in);
	r = open_check(s, in, length);
	if (r == 0 && bytes < SESSION_FRAME_BYTES + length)
		return 0;
	nonce_of(s->opened, nonce);
	if (r == 0 && crypto_aead_chacha20poly1305_ietf_decrypt(
			      plain, &got, NULL, in + SESSION_FRAME_BYTES, length, in,
			      SESSION_FRAME_BYTES, nonce, s->open_key) != 0)
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
