/* SPDX-License-Identifier: Apache-2.0 */
/* The words behind an arena that both ends map, by which messages and notifications are told: who writes which, and
 * what they permit. */
#ifndef VD_NATIVE_BOARD_H
#define VD_NATIVE_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "native/frame.h"

/*
 * Each end has one behind its arena, and writes to that alone; it maps the peer's for reading.
 *
 * `entries`: number n of the messages and notifications that are told here, from 0 on, is told in entry n modulo
 *   BOARD_ENTRIES. `number` is stored last, as n + 1, with release: what the entry says is there for whoever sees
 *   it, and so are the message's bytes, or those that were put into memory which the peer shares. The entry is
 *   written anew when the peer has read it. For what it has not read has not been released, or taken by its
 *   program; and an arena has no room for more messages than it has granules, nor is there credit for more
 *   notifications than FRAME_CREDITS: together they are never more than there are entries.
 * `wants`: not 0, the end wants a frame (LOOK) for each message that the peer tells on its own board.
 *   It sets that before it looks for the last time and sleeps, with a fence between; the peer looks
 *   at it after it has told something, with a fence between. So one of the two sees the other. While it is
 *   set a notification goes by a frame, but the first, by which the end learns to look here.
 * `released`: as in a frame RELEASED. The peer reads it when it knows of too little room.
 *
 * The order of messages and frames: an entry says how many frames its sender had sent before. It is taken
 * when as many have been carried out. And before a frame is carried out, what the board tells is
 * taken: all of it that was told before the frame was sent is visible by then.
 */
struct board_entry {
	_Atomic uint32_t at,
		len; /* position, bytes; of a notification: where in the export */
	_Atomic uint32_t after; /* frames that come first */
	_Atomic uint32_t token; /* as in RELEASED */
	_Atomic uint32_t number;
	_Atomic uint32_t id, tag; /* of a notification; id 0: a message */
	uint32_t zero;
};

#define BOARD_ENTRIES (FRAME_ARENA / FRAME_GRANULE + FRAME_CREDITS)

struct board {
	_Alignas(128) _Atomic uint32_t wants;
	_Alignas(128) _Atomic uint32_t released;
	_Alignas(128) struct board_entry entries[BOARD_ENTRIES];
};

_Static_assert(sizeof(struct board_entry) == 32, "two in a cache line");

/* Of the memory: the arena, then the board. */
#define BOARD_ALL (FRAME_ARENA + (uint32_t)sizeof(struct board))

static inline struct board *board_of(uint8_t *arena)
{
	return (struct board *)(void *)(arena + FRAME_ARENA);
}

#endif
