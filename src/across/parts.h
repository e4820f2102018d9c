/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share with each other and with nobody else. */
#ifndef VD_ACROSS_PARTS_H
#define VD_ACROSS_PARTS_H

#include <assert.h>
#include <stddef.h>

#include "across/across.h"
#include "base/clock.h"
#include "rdma/link.h"
#include "ring/ring.h"

/* Of the protocol: both ends have the same. */
enum {
	ACROSS_VERSION = 3,
	ACROSS_CREDITS = 128,
	ACROSS_SENDS = 192,
	ACROSS_BATCH = 32, /* events of one poll: notes that are polled and not handled */
	ACROSS_PLACES = 8, /* connections of a link */
	ACROSS_NOTES = 192, /* places for notes under way: see mail_fits */
	ACROSS_NOTE_BYTES = 192,
	ACROSS_MAIL_BYTES = ACROSS_NOTES * ACROSS_NOTE_BYTES,
	ACROSS_PLACE_BYTES = WIRE_AREA0_BYTES + WIRE_AREA1_BYTES,
	/* Twice of that is what a link pins: `viaduct doctor` and the manual say how much. */
	ACROSS_WINDOW_BYTES = ACROSS_MAIL_BYTES + ACROSS_PLACES * ACROSS_PLACE_BYTES,
};

/* Of this process. */
enum { ACROSS_CONTEXTS = 4, ACROSS_LINKS = 64, ACROSS_CONNECTIONS = 512 };

/* A place may be used again when its note has been handled: of those that were posted, at most
 * the credits are not polled, and a batch not handled. The source of a note stays as it is
 * until the write is complete: no more than a full queue is not. */
static_assert(ACROSS_NOTES >= ACROSS_CREDITS + ACROSS_BATCH, "places for notes");
static_assert(ACROSS_MAIL_BYTES % 4096 == 0, "places lie on pages");

enum note_kind {
	NOTE_SHORT = 1, /* the cursors, and few bytes */
	NOTE_LONG,	/* all words */
	NOTE_LAST,	/* all words, and no more will come */
};

/* All that one end writes in a connection's memory, as of one moment. */
struct note_words {
	uint64_t produced, consumed;
	/* NOTE_SHORT has no more of them. */
	uint64_t up_at, down_at, held_at;
	uint64_t turn_at[WIRE_TURNS];
	uint32_t turn_area[WIRE_TURNS];
	uint32_t turn_seq, up_epoch, down_epoch;
	uint32_t
		held_ms; /* how long bytes up to held_at have been held, plus 1; 0 none */
	uint32_t fin;
	uint32_t ready_epoch, want_down, closed, rx_bound;
	uint32_t zero;
};

#define NOTE_CARRIED_MAX 160u

struct note {
	uint32_t number;		 /* of the link's notes in this direction */
	uint8_t kind, generation, place; /* generation and place: the receiver's */
	uint8_t carried;		 /* bytes of the stream in a NOTE_SHORT */
	union {
		struct note_words words;
		struct {
			uint64_t produced, consumed;
			uint32_t at; /* of the bytes, in the receiver's place */
			uint8_t data[NOTE_CARRIED_MAX];
		} few;
	};
};

static_assert(sizeof(struct note) <= ACROSS_NOTE_BYTES, "layout of notes");
static_assert(offsetof(struct note, words.consumed) ==
		      offsetof(struct note, few.consumed),
	      "cursors lie in one place");
#define NOTE_SHORT_BYTES offsetof(struct note, few.data)

/*
 * The flags of an immediate: 0 comes with a note. Of a write that is the stream's next bytes, and
 * needs none: TELLS_BYTES, and above it how much has been consumed since that was told last, in
 * units, rounded down.
 */
#define TELLS_BYTES	  1u
#define TELLS_UNITS_SHIFT 1
#define TELLS_UNITS_MAX	  127u
#define TELLS_UNIT_BYTES  2048u

enum across_state {
	ACROSS_FREE = 0,
	ACROSS_NEW,	  /* connector: publishes next; acceptor: asks next */
	ACROSS_PUBLISHED, /* connector */
	ACROSS_WHO,	  /* acceptor: has asked which process it is */
	ACROSS_KNOWN,	  /* acceptor: knows; a link is to be found */
	ACROSS_ASKED,	  /* acceptor: has named a link and a place */
	ACROSS_ANSWERED,  /* connector: the same; waits for the first note */
	ACROSS_OPEN,	  /* met */
	ACROSS_ENDED,	  /* nobody's: the place waits for the peer's last note */
};

struct across_link;

struct across {
	enum across_state state;
	enum across_role role;
	int refused; /* -enum vd_reason: what the next step says */
	struct name_end local, peer;
	uint32_t request;	/* id at viaductd of what is not answered; 0 none */
	uint32_t turn;		/* uses of this struct: part of ids */
	uint64_t not_before_ms; /* asking again before is in vain */
	uint8_t process[16];	/* acceptor: the peer's */

	struct across_link *link; /* has `place` there; NULL: none yet */
	uint32_t place, peer_place;
	uint8_t generation, peer_generation;
	bool has_peer; /* peer_place is known: notes may be sent */
	bool said;     /* a note has been sent */
	bool heard;    /* one has come */
	uint64_t
		first_at; /* of the link's writes: with it complete the peer will hear us */
	bool owes;	  /* something was not posted for want of room */
	bool last_sent, last_came;
	uint64_t last_at; /* of the link's writes: with it complete our memory is free */

	/* Attached. */
	struct wire *wire;
	struct wire_dir *in, *out;
	struct across_owner owner;
	struct ring_rx
		reader; /* of our own direction: what has been written to the peer */
	struct ring_tx arrivals; /* its times, as the peer would note them */
	struct note_words sent;	 /* as the peer has it */
	struct note_words came;	 /* as we have it, before there is memory, too */
	uint32_t rung_rx, rung_tx;
	struct wire_dir kept[2]; /* ENDED: the connection's memory as it was */
};

struct across_context {
	struct link_context *context; /* NULL: free, or it could not be opened */
	struct name_end local;
	bool failed;
	uint64_t failed_ms;
};

struct across_link {
	struct link *link; /* NULL: free */
	struct across_context *context;
	uint64_t made_ms;
	uint64_t token; /* names it between the two processes */
	uint8_t process[16];
	bool up; /* both ways have been seen to work: notes may be sent */
	bool failed;
	uint8_t *window, *staging; /* ACROSS_WINDOW_BYTES each */
	struct link_memory memory; /* of staging */
	struct across *at[ACROSS_PLACES];
	uint8_t generation[ACROSS_PLACES];
	uint32_t used[ACROSS_PLACES]; /* when the place was last given out */
	uint32_t uses;
	uint64_t notes_sent, notes_came;
};

/* ---- lock.c: everything below is under it ---- */

/* Keeps errno, and the thread from being cancelled in the device's library. */
struct across_guard {
	int saved_errno, cancel;
};
struct across_guard across_enter(void);
bool across_try(struct across_guard *g);
void across_leave(struct across_guard g);

/* Stands where a peer may write to whom nobody here knows any more. */
extern struct across across_lost;
extern struct across across_pool[ACROSS_CONNECTIONS];
/* One past the last handle that was ever taken: a process that has none touches no page of it all,
 * which each fork would pay for. */
extern int across_used;
extern struct across_link across_links[ACROSS_LINKS];
extern struct across_context across_contexts[ACROSS_CONTEXTS];
/* Of this process: random, 16 bytes; another one in a forked child. */
const uint8_t *across_process(void);

/* ---- hub.c: contexts, links, and what comes on them ---- */

/* NULL with *why when there is no device with this address. */
struct across_context *hub_context(const struct name_end *local, const char **why);
/* A new link: its hello is asked for with link_hello. 0 or -errno; -EDQUOT: what it pins is more
 * than the process may lock. */
int hub_create(struct across_context *c, struct across_link **out);
/*
 * The first end has the second's hello. It is not up before its READY is known to have arrived,
 * since what it says may be the last that gets through: where the way back is cut, the second
 * would hear a note, and could not know what else is lost.
 */
void hub_connected(struct across_link *k);
/* One with that process that has a free place, or is being made (*making). */
struct across_link *hub_find(const uint8_t process[16], bool *making);
struct across_link *hub_find_token(const uint8_t process[16], uint64_t token);
/* False: all places are in use. */
bool hub_take_place(struct across_link *k, struct across *a);
/* The place is given back, the handle is free: nobody writes there. */
void hub_give_place(struct across *a);
/* A link that failed, or was never connected, goes once nobody has a place there. */
void hub_drop(struct across_link *k);
void hub_poll(void);
/* Ours has ended; frees what is free by now. */
void hub_settle(struct across *a);

/* ---- note.c ---- */

void note_push(struct across *a);
/* A note for this connection has come. False: it cannot be. */
bool note_take(struct across *a, const struct note *n);
/* So many bytes have, with these flags. */
void note_take_bytes(struct across *a, uint32_t bytes, uint32_t flags);
/* Carries out what has come before there was memory. */
void note_apply_all(struct across *a);

/* ---- meet.c ---- */

/* The handle ends: what is published is withdrawn. */
void meet_end(struct across *a);

/* ---- relay.c: the process's line to viaductd ---- */

struct local_message;
bool relay_is_there(void);
/* 0, or -errno: then nothing was said. */
int relay_say(struct local_message *m, size_t hello_bytes);
/* 1 a message, 0 nothing now, -EPIPE: the line is new: what was published is forgotten. */
int relay_hear(struct local_message *m, size_t *hello_bytes);
void relay_forked(void);

#endif
