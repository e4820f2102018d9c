/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, and what is told on boards: what the rest of the library has to say of them. */
#ifndef VD_NATIVE_MESSAGE_H
#define VD_NATIVE_MESSAGE_H

#include "native/native.h"

/* ---- message.c: under mu ---- */

/* MESSAGE, whose header is in c->frame: 0, -EPROTO, -ENOMEM; where its body goes; it is complete. */
int message_begin(vd_conn *c, const struct frame *f);
uint8_t *message_target(vd_conn *c);
void message_end(vd_conn *c);
/* The peer has released what lies before this position. 0 or -EPROTO. */
int message_released(vd_conn *c, uint32_t token);
/* The other frames about messages. 0 or -EPROTO. */
int message_frame(vd_conn *c, const struct frame *f, const uint8_t *payload);
/* What is owed of them, into `to`: its length, or 0. */
uint32_t message_owed(vd_conn *c, uint8_t *to);
/* Under wr, too: a frame that tells what was released. */
void message_stamp(vd_conn *c, struct frame *f);
/* A message has come by the peer's board. 0, -EPROTO, -ENOMEM. */
int message_told(vd_conn *c, uint32_t at, uint32_t len, uint32_t token);
/* What is told to the peer of released ones. */
uint32_t message_token(vd_conn *c);

/* ---- board.c: under mu ---- */

/* The peer has one, or told something wrong on it: else the next ones have nothing to look at. */
static inline bool board_has_some(const vd_conn *c)
{
	return c->inbox.board || c->inbox.is_wrong;
}

void board_begin(struct board *b);
/* Messages can be told to the peer past the stream. */
bool board_may_tell(const vd_conn *c);
/* So the reservation is: first without mu, by its only owner; then under mu, and a LOOK may be owed. */
void board_tell(vd_conn *c, uint32_t len);
void board_told(vd_conn *c);
/* Where the peer says that it has released them up to; or what is known of that. */
uint32_t board_released(const vd_conn *c);
/* Before a wait of so many ms for that: takes what is there, or comes at once. */
void board_look(vd_conn *c, bool (*is_there)(vd_conn *, const void *), int timeout_ms);
static inline void board_glance(vd_conn *c, bool (*is_there)(vd_conn *, const void *),
				int timeout_ms)
{
	if (board_has_some(c))
		board_look(c, is_there, timeout_ms);
}
/* Bytes were put into the peer's memory, which is mapped here: it gets the event past the stream. False: by a
 * frame, then. A LOOK may be owed. */
bool board_note(vd_conn *c, uint32_t id, uint64_t offset, uint64_t len, uint32_t tag);
/* Shows the peer what we have. */
void board_release(vd_conn *c);
/* Takes what the peer's board tells. 0 or -EPROTO. */
int board_drain(vd_conn *c);
static inline int message_drain(vd_conn *c)
{
	return board_has_some(c) ? board_drain(c) : 0;
}
/* The reader's. A thread waits for what comes so, and the board may be looked at in the place of the stream. */
bool message_may_spin(const vd_conn *c);
/* Then: does so for a moment, for which it gives mu up. True: the stream has something. */
bool message_spin(vd_conn *c);
/* The same in two steps: from the first on no frame tells of what comes, until the word has this number; the
 * second takes what has come. */
const _Atomic uint32_t *board_hush(vd_conn *c, uint32_t *number);
void board_heard(vd_conn *c);
/* Nobody looks at the board from now on, but whoever a frame wakes. What is there is taken. */
void board_watch(vd_conn *c);
static inline void message_watch(vd_conn *c)
{
	if (board_has_some(c))
		board_watch(c);
}

/* ---- arena.c: under mu ---- */

void message_init(vd_conn *c);
/* Gives the memory back. */
void message_finish(vd_conn *c);
/* Takes no memory before it is written to. NULL: there is none. */
uint8_t *arena_create(void);
/* Before a reservation: shows our memory to the peer, if that is still to be done and can be; gives mu up
 * meanwhile. 0, or the connection's error. */
int arena_offer(vd_conn *c);
/* The same for a put, behind it; the offer is owed, then. */
void arena_want(vd_conn *c);
/* Frames about that: the peer's memory can be had; it was brought; ours is awaited. 0 or -EPROTO. */
int arena_offered(vd_conn *c);
int arena_mapped(vd_conn *c, const struct frame *f);
int arena_map(vd_conn *c, const uint8_t *random);

#endif
