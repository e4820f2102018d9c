/* SPDX-License-Identifier: Apache-2.0 */
/* A connection whose other end is on another host: its memory, kept alike by RDMA writes. */
#ifndef VD_REMOTE_REMOTE_H
#define VD_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"
#include "ring/wire.h"

/*
 * docs/rdma.md, "Streams", has the protocol. Each end has memory laid out as between two
 * processes of one host (ring/wire.h). What an end writes there as its own is told to the other
 * end by *notes*, and there carried out by whoever polls, as if the peer had done it, in the
 * same order. So everything above sees a peer of this host that is a little late.
 *
 * None of these calls waits for the peer's program but across_flush, across_drain and
 * across_awaits. With a full send queue, or when credit runs out amid what is pushed, across_push,
 * across_release and across_end wait for the devices, 3 s at most; across_begin opens a device at
 * the first meeting, and reads files. They set no errno, and are no points of cancellation. One
 * lock is taken inside; callers may hold the stream's locks. A handle stays readable memory for
 * ever, and is good from across_begin to across_end.
 */
struct peer;

enum across_role { ACROSS_CONNECTED, ACROSS_ACCEPTED };

/* ---- meeting, by viaductd ---- */

/* There is a viaductd on this host: costs next to nothing. */
bool across_is_here(void);
/*
 * The peer of this connection may be on another host. 1: *out is a meeting;
 * or -enum vd_reason. `netns` is the TCP socket's.
 */
int across_begin(const struct name_end *local, const struct name_end *peer,
		 enum across_role role, struct peer **out);
/* To be called now and then: 1 once the ends have met, 0 not yet, or -enum vd_reason. */
int across_step(struct peer *a);

/* ---- after 1 ---- */

/* What this end receives, and what it is to write to: areas 0 and 1 of a ring's three. */
uint8_t *across_in_data(struct peer *a);
uint8_t *across_out_data(struct peer *a);
#define ACROSS_AREA_LIMIT 1u
/* A descriptor of the connection's own (adopted, see fds.h) that is readable when
 * something may have come; or -errno. */
int across_descriptor(struct peer *a);
/* The one of which those are duplicates: it stays open, and is not to be closed. Or -1. */
int across_shared_descriptor(struct peer *a);

/* Called under the lock: they only store and ring. */
struct across_owner {
	void *owner;
	void (*ring)(void *owner); /* the peer would ring its bell now */
	void (*lost)(
		void *owner); /* the link has failed: what was under way is not known */
	/* So many bytes have gone past the ring; `out`: sent. */
	void (*redirected)(void *owner, bool out, uint32_t bytes);
	/* Of this process: so many bytes of its memory stay registered, and so many registrations were
	 * given up for something else than a put or a get. */
	void (*pinned)(uint64_t bytes, uint32_t evictions);
};

/* From here on notes are carried out in *wire. `out`: the direction that this end sends. */
void across_attach(struct peer *a, struct wire *wire, enum wire_direction out,
		   const struct across_owner *owner);

/* ---- attached ---- */

/* Tells the peer what is new of ours: bytes, and words. What there is no room for now follows
 * by itself once somebody polls. */
void across_push(struct peer *a);
/* So much of *in has been consumed since the peer was told that it is to be told of it: across_push. Takes no lock. */
bool across_room_is_due(const struct peer *a, struct wire_dir *in);
/* Carries out what has come, on all connections, unless another thread is at it. */
void across_progress(void);
/* The same, and when it returns that has been done. */
void across_catch_up(void);
/* The same for who was woken by a descriptor: it will be readable again for what comes. `brief`
 * costs less, and may leave it readable: not for who waits for edges. */
void across_answer(bool brief);
/* Pushes, and waits until all of it is in the peer's memory. 0; -EPIPE when the link has failed;
 * -ETIMEDOUT: the peer has taken nothing for 3 s. */
int across_flush(struct peer *a);
/* Bytes may go this way: the peer will have heard of us before it hears that the link has
 * failed. So an end of which nothing was heard has sent nothing this way. */
bool across_may_use(struct peer *a);
/* No word of the peer's is to come any more: it has ended, or the link has failed. */
bool across_is_over(struct peer *a);
/* Notices a peer that has died without a word. */
void across_probe(struct peer *a);
/* Our last words are pushed; the handle is no more. Attached or not. The link goes on telling
 * them while the process lives. */
void across_end(struct peer *a);

/* ---- redirection: the peer's next bytes past the ring ---- */

/* Where they may be written, in the program's memory. */
struct across_room {
	void *start;
	uint32_t bytes, least; /* of fewer than that nothing is written there */
	uint64_t position;     /* of the stream: the ring has been read up to there */
	uint32_t turn;	       /* and so many of its moves passed */
};

/*
 * Offers it. A thread has one open at most, a connection too: true when it is this one. From here
 * on until across_offer_end the memory is the peer's. Under the stream's receive lock.
 */
bool across_offer(struct peer *a, const struct across_room *room);
/* Nothing has become of it yet. */
bool across_offer_stands(void);
/*
 * Nothing is written there any more. How many bytes have been, from the start on: they are the
 * stream's next, and the connection's cursors are behind them. With `take` false it is none: what
 * has come will come again by the ring. Under the receive lock, if `take`.
 */
uint32_t across_offer_end(bool take);
/* A receive must have room for so many bytes, with this peer's host; 0: none is redirected. */
uint32_t across_redirect_least(const struct peer *a);
/* From this host it may be learnt still from which size on it pays, by receives with so much room; or what was
 * learnt is still to be kept. Reads two words. */
bool across_learns(const struct peer *a, size_t room);
/* Then for each such receive, before its offer, under the receive lock: as across_redirect_least, for this one. */
uint32_t across_learn(struct peer *a, size_t room, uint64_t position);
/* And after it, without a lock: writes to a file now and then, at most once for each host and size. */
void across_learn_save(void);
/* The peer has offered memory. Reads one word; before ACROSS_TAKES_LOOK bytes or more it looks for what has come. */
#define ACROSS_TAKES_LOOK 16384u
bool across_takes(const struct peer *a, size_t bytes);
/* Nothing is pushed until across_release, or until something is flushed. */
void across_hold(struct peer *a);
/*
 * Between these two, under the stream's send lock: so many of the stream's next bytes are being
 * written to where the peer has offered, by the device, out of the program's memory, which is
 * registered for that. `tx` has moved past them. 0: none, and all is as it was. The memory must stay
 * as it is until across_lend_end.
 */
struct ring_tx;
uint32_t across_lend(struct peer *a, struct ring_tx *tx, const void *from, size_t bytes);
/* The device reads there no more: in the ring is what the peer does not have. */
void across_lend_end(void);
/* Pushes, to where the peer has offered: true when it has been. Then, while across_awaits says so,
 * nothing else is pushed, until the peer tells what has become of it; some milliseconds a call. */
bool across_release(struct peer *a);
bool across_awaits(struct peer *a);
/* Something has become of an offer of this connection. Reads one word. */
bool across_offer_is_due(const struct peer *a);

/* ---- memory that the peer writes to by itself: reach.c ---- */

/* What the peer has to know of it. */
struct across_key {
	uint64_t address, token; /* token: of the link for which it holds */
	uint32_t key;
};
enum across_may { ACROSS_MAY_READ = 1, ACROSS_MAY_WRITE = 2 };
/*
 * The connection's peer may do that there from now on: some of enum across_may. `owner`: as it was attached
 * for. It pins the memory: a system call that takes the longer the more it is. 0, and *id for
 * across_unreach; -EAGAIN: there is no link now; else -errno.
 */
int across_reach(struct peer *a, const void *owner, void *start, size_t bytes,
		 uint32_t may, struct across_key *key, uint64_t *id);
/* Nothing is read or written there any more. At any time, and as often as one likes. */
void across_unreach(uint64_t id);

/* The program's memory for a put or a get. It stays registered afterwards: see across_forget. */
struct across_span {
	void *at; /* of a put it is only read */
	size_t bytes;
	bool is_get;	   /* the peer's memory is read to there */
	const void *whole; /* memory around it that comes and goes at once; or NULL */
	size_t whole_bytes;
	/* Is added to: registrations that were found, and made, and given up for these; and found to be
	 * of memory that has gone. */
	uint32_t hits, misses, evictions, broken;
};
/*
 * Writes to memory of which the peer has told the key, or reads it, and waits for the devices. 0: all of it
 * is there. -EAGAIN: nothing is under way. -ESTALE: nor will anything be by this key. -EIO: it is not known
 * what is there, and of a put more may come until the owner has voided the key; of a get no more comes.
 */
int across_move(struct peer *a, const void *owner, const struct across_key *key,
		uint64_t offset, struct across_span *span);
/*
 * Its steps, of at most ACROSS_STEP_BYTES. 0 and an id, or as above; then 1: all of it is there, 0: not
 * yet, after a moment; -EIO. -EFAULT: a get went to pages that the program has no more. Of one connection
 * ACROSS_MOVES_MOST may be under way. They arrive in the order of the calls; puts to the same bytes must not be under way at once. The memory that they are written
 * from is the device's until a step has said another thing than 0.
 */
#define ACROSS_STEP_BYTES (8u << 20)
#define ACROSS_MOVES_MOST 16u
int across_move_begin(struct peer *a, const void *owner, const struct across_key *key,
		      uint64_t offset, struct across_span *span, uint64_t *id);
/* 0; or what the call before would return, as far as that is known beforehand. */
int across_move_may(struct peer *a, const void *owner, const struct across_key *key);
int across_move_step(struct peer *a, uint64_t id);
/* The same, at once. `ends`: whatever has become of it, the device has nothing to do with it any more: not 0. */
int across_move_look(struct peer *a, uint64_t id, bool ends);
/* Before a sleep for one of them: a descriptor that is readable when more may be known; -1: more is known already.
 * Another thread may take what it tells, so a sleep ends after a moment (across_nap). */
int across_move_descriptor(struct peer *a);
/* Until a descriptor is readable, or a moment has passed. */
void across_nap(int fd);

/*
 * The program's memory there goes, or becomes other memory: it is registered no more, but for what is
 * used at this moment.
 */
void across_forget(const void *at, size_t bytes);

/* ---- processes ---- */

/* Before the process ends: waits until the peers have all that was pushed, some seconds at most. */
void across_drain(void);
void across_forking(void);
void across_forked_parent(void);
/* The child has no link: handles are dead, and nothing may be asked of them. */
void across_forked_child(void);
/* Its thread may be amid a receive or a send: it has offered nothing, and lent nothing. */
void redirect_forked(void);
void zerocopy_forked(void);

/* For tests: contexts are made by this instead. */
struct link_context;
extern int (*across_open_context)(const struct name_end *local, struct link_context **out,
				  const char **why);

#endif
