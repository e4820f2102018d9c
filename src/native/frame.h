/* SPDX-License-Identifier: Apache-2.0 */
/* The frames that two ends of a native connection send each other. */
#ifndef VD_NATIVE_FRAME_H
#define VD_NATIVE_FRAME_H

#include <stdint.h>

/*
 * Each is a header of 32 bytes, in the byte order of x86, and `len` bytes of payload. The first of
 * each end is HELLO. Words that a type does not use are 0, and are not looked at.
 *
 * The receiver trusts nothing: a frame that breaks a rule below ends the connection with EPROTO. A
 * put, get or atomic to an export that has ended is no lie, since it may have been on its way.
 */
struct frame {
	uint8_t type, flags;
	uint16_t zero;
	uint32_t id;
	uint64_t offset;
	uint32_t len;
	uint32_t tag;
	uint32_t token;
	uint32_t taken; /* notifications that the sender's program has taken so far */
};

#define FRAME_BYTES 32u
_Static_assert(sizeof(struct frame) == FRAME_BYTES, "struct frame");

/*
 * HELLO	offset: FRAME_MAGIC; id: FRAME_PROTOCOL
 * EXPORT	id, offset: its size; tag: rights; token: its address modulo 8; payload: the name.
 *		FRAME_WHOLE: it is memory that can be mapped at the other end
 * UNEXPORT	id
 * PUT		id, offset, payload: the bytes. FRAME_NOTE: gives an event, with tag. FRAME_MORE: the
 *		next PUT, to the same export, goes on where this one ends. token: the number of a key
 *		that is to be void before the bytes are there; 0: none
 * PLACED	id, offset, tag, payload: 8 bytes, how many. They were put there past the stream: gives
 *		the event
 * FLUSH	token: counts up by 1
 * FLUSHED	token: of the last FLUSH, and so of all before
 * GET		id, offset, tag: how many bytes, at most FRAME_GET_MOST; token
 * ADD		id, offset, payload: 8 bytes; token
 * SWAP		id, offset, payload: 8 bytes expected, 8 bytes new; token
 * ANSWER	token; payload: the bytes, or the 8 that were there. FRAME_STALE: the export has ended
 * MAP		id, payload: FRAME_NAME_BYTES, the name at which its memory is awaited (map.c)
 * MAPPED	id; tag: 0 it was sent there, else an enum vd_reason
 * UNMAPPED	id: after UNEXPORT, where it was sent, or its key, and nothing is under way there
 * REACH	id: its key is wanted, and none is in use (reach.c)
 * KEY		id; tag: 0 here it is, else an enum vd_reason; token: its number; payload: struct
 *		frame_key
 * TAKEN	nothing but `taken`
 * BYE		the last one
 * WRONG	the last one: the receiver has broken a rule
 * MESSAGE	id: its position (message.c); tag: how many bytes; payload: they; token as in RELEASED.
 *		FRAME_WHOLE: no payload, they are where the peer has mapped them
 * RELEASED	token: the position up to which the sender's program has released the messages that came.
 *		FRAME_WHOLE: the peer's are mapped here
 * OFFER	messages lie where the peer can map them: MAP and MAPPED with id 0 are about that
 * WAITS	id: RELEASED is awaited as soon as it can tell of that position
 * LOOK		there are messages, or notifications, on the sender's board (board.h)
 */
enum frame_type {
	FRAME_HELLO = 1,
	FRAME_EXPORT,
	FRAME_UNEXPORT,
	FRAME_PUT,
	FRAME_PLACED,
	FRAME_FLUSH,
	FRAME_FLUSHED,
	FRAME_GET,
	FRAME_ADD,
	FRAME_SWAP,
	FRAME_ANSWER,
	FRAME_MAP,
	FRAME_MAPPED,
	FRAME_UNMAPPED,
	FRAME_TAKEN,
	FRAME_BYE,
	FRAME_WRONG,
	FRAME_MESSAGE,
	FRAME_RELEASED,
	FRAME_WAITS,
	FRAME_OFFER,
	FRAME_REACH,
	FRAME_KEY,
	FRAME_LOOK,
	FRAME_TYPES
};

#define FRAME_NOTE  1u
#define FRAME_MORE  2u
#define FRAME_STALE 1u
#define FRAME_WHOLE 1u

#define FRAME_MAGIC    0x31746361646976ull /* "viadct1" */
#define FRAME_PROTOCOL 5u
/* Limits of one end: a peer that goes beyond them breaks a rule. */
#define FRAME_CREDITS	 1024u	/* notifications that the other's program has not taken */
#define FRAME_ASKED_MOST 16u	/* gets and atomics that are not answered */
#define FRAME_GET_MOST	 16384u /* bytes of one get */
#define FRAME_OPERANDS	 16u
#define FRAME_NAME_BYTES 16u
#define FRAME_SHORT_MOST 64u /* payload of all types but PUT, ANSWER and MESSAGE */
/* Where one end's messages lie, and the unit of their positions. */
#define FRAME_ARENA   (1u << 20)
#define FRAME_GRANULE 1024u

struct frame_key {
	uint64_t address, link;
	uint32_t key, zero;
};

/*
 * An id names one export for ever: the place in the exporter's table below, and how often that has
 * been used above, from 1 on.
 */
#define FRAME_ID_SHIFT 10
#define FRAME_ID_PLACE ((1u << FRAME_ID_SHIFT) - 1)
#define FRAME_ID_USES  ((1u << (32 - FRAME_ID_SHIFT)) - 1)

#endif
