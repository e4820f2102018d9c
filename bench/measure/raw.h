/* SPDX-License-Identifier: Apache-2.0 */
/* A queue pair between two hosts, and messages on it: for the patterns by raw verbs. */
#ifndef VD_MEASURE_RAW_H
#define VD_MEASURE_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rdma/verbs_lib.h"

/*
 * Each end has `depth` places to send from, and a few more to receive into, all of them posted. A message
 * is one send and one receive. Where the next one does not wait for an answer, it needs credit: the
 * receiver returns it for `depth` / 2 messages at a time, by a message without bytes; MARK is another, which
 * is answered where the sender waits for it. Of the peer's messages without bytes four at most have not been
 * taken: two that return credit, its MARK and an answer to ours. So a send always finds a receive posted,
 * and a full send queue always has a completion coming.
 *
 * A place is written again when its send is complete, or when the peer has answered what was in it.
 */

/* Messages without bytes. */
enum raw_word { RAW_CREDIT = 1, RAW_MARK = 2 };
/* What a completion was of. */
enum raw_taken { RAW_NOTHING, RAW_SENT, RAW_CREDITED, RAW_MARKED, RAW_DATA };

struct raw {
	const struct verbs_lib *lib;
	struct verbs_port port;
	struct ibv_comp_channel *channel;
	struct ibv_cq *queue;
	struct ibv_pd *domain;
	struct ibv_mr *memory;
	struct ibv_qp *pair;
	uint8_t *places; /* to send from, then to receive into */
	size_t size;
	unsigned depth;
	uint32_t inline_max;
	bool spins, is_armed;
	uint64_t posted, completed; /* sends */
	uint64_t credits;
	unsigned owed;	/* messages taken, whose credit has not been returned */
	unsigned place; /* of the last message that was taken */
	uint8_t last;	/* the last byte of each message */
};

/* Both ends do so, by the connection. */
void raw_start(struct raw *r, bool spins, size_t size, int fd);
void raw_end(struct raw *r, int fd);

void raw_post_receive(struct raw *r, unsigned place);
/* A message of `size` bytes; without `from` a word. */
void raw_post_send(struct raw *r, const uint8_t *from, enum raw_word word);
/* One completion, if there is one. Of a message with bytes the place is posted again by the caller. */
enum raw_taken raw_look(struct raw *r);
/* The same, waited for. */
enum raw_taken raw_take(struct raw *r);

#endif
