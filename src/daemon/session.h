/* SPDX-License-Identifier: Apache-2.0 */
/* Two daemons prove to each other that they have a key, and then seal what they say. */
#ifndef VD_DAEMON_SESSION_H
#define VD_DAEMON_SESSION_H

#include <assert.h>
#include <sodium.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/endpoint.h"
#include "daemon/keys.h"
#include "daemon/wire.h"

#define SESSION_PROTOCOL 2

#define SESSION_HEAD_BYTES  12 /* magic, version, type, status */
#define SESSION_POINT_BYTES crypto_kx_PUBLICKEYBYTES
#define SESSION_START_BYTES crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define SESSION_MAC_BYTES   crypto_auth_BYTES
#define SESSION_HELLO_BYTES                                                              \
	(SESSION_HEAD_BYTES + KEYS_ID_BYTES + SESSION_POINT_BYTES + SESSION_MAC_BYTES)
#define SESSION_REPLY_BYTES                                                              \
	(SESSION_HEAD_BYTES + SESSION_POINT_BYTES + SESSION_START_BYTES +                \
	 SESSION_MAC_BYTES)
#define SESSION_PROOF_BYTES  (SESSION_HEAD_BYTES + SESSION_START_BYTES + SESSION_MAC_BYTES)
#define SESSION_ENDS_BYTES   36
#define SESSION_SHAKE_MAX    SESSION_REPLY_BYTES /* the longest of them */
#define SESSION_FRAME_BYTES  12			 /* length, zero, number */
#define SESSION_TAG_BYTES    crypto_secretstream_xchacha20poly1305_ABYTES
#define SESSION_SEALED_BYTES (SESSION_FRAME_BYTES + SESSION_TAG_BYTES)
#define SESSION_FRAME_MAX    (SESSION_SEALED_BYTES + WIRE_PLAIN_MAX)

static_assert(SESSION_HELLO_BYTES == 92 && SESSION_REPLY_BYTES == 100 &&
		      SESSION_PROOF_BYTES == 68 && SESSION_SEALED_BYTES == 29,
	      "layout of docs/relay.md");

enum session_state {
	SESSION_WAITS_HELLO, /* responder */
	SESSION_WAITS_PROOF, /* responder */
	SESSION_WAITS_REPLY, /* initiator */
	SESSION_READY,
	SESSION_DEAD /* after any error: nothing more is sealed or opened */
};

struct session {
	enum session_state state;
	const struct keys *keys;
	const struct keys_key *key;
	uint8_t ends
		[SESSION_ENDS_BYTES]; /* of the TCP connection, the initiator's first */
	uint8_t own_secret[crypto_kx_SECRETKEYBYTES];
	uint8_t hello[SESSION_HELLO_BYTES], reply[SESSION_REPLY_BYTES];
	uint8_t open_key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
	crypto_secretstream_xchacha20poly1305_state seal, open; /* one each direction */
	uint64_t sealed, opened;				/* frames */
	uint8_t refusal; /* LOCAL_ status of what the other side refused, or 0 */
};

/* Of who has made the TCP connection. Writes its first message; returns its length. */
size_t session_initiate(struct session *s, const struct keys *keys,
			const struct name_end *initiator,
			const struct name_end *responder, uint8_t out[SESSION_SHAKE_MAX]);
/* Of who has accepted it. */
void session_respond(struct session *s, const struct keys *keys,
		     const struct name_end *initiator, const struct name_end *responder);
/*
 * Takes one message of the handshake from the bytes that have come. Returns how many it
 * was; 0 where some are missing. *out_bytes of out are to be sent then, also on an error,
 * before the connection is closed. -EPROTO: not this protocol; -EPROTONOSUPPORT: another
 * version of it; -ENOKEY: the other one names a key that is not here; -EKEYREJECTED: it
 * does not have the key that it names; -ECONNREFUSED: it refuses us, see refusal.
 */
ssize_t session_shake(struct session *s, const uint8_t *in, size_t bytes,
		      uint8_t out[SESSION_SHAKE_MAX], size_t *out_bytes);
/* Writes the frame of a message of at most WIRE_PLAIN_MAX; its length, or 0 where
 * the session is not ready. */
size_t session_seal(struct session *s, const uint8_t *plain, size_t bytes,
		    uint8_t out[SESSION_FRAME_MAX]);
/*
 * Takes one frame. Returns its length, or 0 as above; the message is in plain. -EMSGSIZE:
 * no frame has that length; -EALREADY: this one has come before; -EBADMSG: forged, changed,
 * or some are missing before it.
 */
ssize_t session_open(struct session *s, const uint8_t *in, size_t bytes,
		     uint8_t plain[WIRE_PLAIN_MAX], size_t *plain_bytes);
/* Wipes the keys. */
void session_finish(struct session *s);

#endif
