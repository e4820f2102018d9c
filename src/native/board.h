/* SPDX-License-Identifier: Apache-2.0 */
/* The words behind an arena of messages that both ends map: who writes which, and what they permit. */
#ifndef VD_NATIVE_BOARD_H
#define VD_NATIVE_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "native/frame.h"

/*
 * Each end has one behind its arena, and writes to that alone; it maps the peer's for reading.
 *
 * `entries`: message number n of those that are told here, from 0 on, is told in entry n modulo ROUND.
 *   `number` is stored last, as n + 1, with release: what the entry says, and the message's bytes, are
 *   there for whoever sees it. The entry is written anew after the message before it in that place has
 *   been released, since an arena has no room for more than ROUND of them.
 * `wants`: not 0, the end wants a frame (LOOK) for each message that the peer tells on its own board.
 *   It sets that before it looks for the last time and sleeps, with a fence between; the peer looks
 *   at it after it has told a message, with a fence between. So one of the two sees the other.
 * `released`: as in a frame RELEASED. The peer reads it when it knows of too little room.
 *
 * The order of messages and frames: an entry says how many frames its sender had sent before. It is taken
 * when as many have been carried out. And before a frame is carried out, what the board tells is
 * taken: all of it that was told before the frame was sent is visible by then.
 */
struct board_entry {
	_Atomic uint32_t at, len; /* position, bytes */
	_Atomic uint32_t after;	  /* frames that come first */
	_Atomic uint32_t token;	  /* as in RELEASED */
	_Atomic uint32_t number;
	uint32_t zero[3];
};

struct board {
	_Alignas(128) _Atomic uint32_t wants;
	_Alignas(128) _Atomic uint32_t released;
	_Alignas(128) struct board_entry entries[FRAME_ARENA / FRAME_GRANULE];
};

_Static_assert(sizeof(struct board_entry) == 32, "two in a cache line");

/* Of the memory: the arena, then the board. */
#define BOARD_ALL (FRAME_ARENA + (uint32_t)sizeof(struct board))

static inline struct board *board_of(uint8_t *arena)
{
	return (struct board *)(void *)(arena + FRAME_ARENA);
}

#endif
