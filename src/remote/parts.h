/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share with each other and with nobody else. */
#ifndef VD_REMOTE_PARTS_H
#define VD_REMOTE_PARTS_H

#include <assert.h>
#include <stddef.h>

#include "base/clock.h"
#include "rdma/link.h"
#include "remote/cache.h"
#include "remote/learn.h"
#include "remote/learnt.h"
#include "remote/remote.h"
#include "remote/tells.h"
#include "rendezvous/rendezvous.h"
#include "ring/ring.h"

/* Of the protocol: both ends have the same. */
enum {
	ACROSS_VERSION = 7,
	ACROSS_CREDITS = 128,
	ACROSS_SENDS = 192,
	ACROSS_BATCH = 32, /* events of one poll: notes that are polled and not handled */
	ACROSS_PLACES = 8, /* connections of a link */
	ACROSS_NOTES = 192, /* places for notes under way: see mail_fits */
	ACROSS_NOTE_BYTES = 192,
	ACROSS_MAIL_BYTES = ACROSS_NOTES * ACROSS_NOTE_BYTES,
	/* What there was no credit for, for the peer to read; what has been read of the peer's; and
	 * what the peer has heard of ours. */
	ACROSS_TOLD_BYTES = 1984,
	ACROSS_TOLD_AT = ACROSS_MAIL_BYTES,
	ACROSS_HEARD_AT = ACROSS_TOLD_AT + ACROSS_TOLD_BYTES,
	ACROSS_ANSWER_AT = ACROSS_HEARD_AT + ACROSS_TOLD_BYTES,
	ACROSS_PLACES_AT = ACROSS_ANSWER_AT + 128,
	ACROSS_PLACE_BYTES = WIRE_AREA0_BYTES + WIRE_AREA1_BYTES,
	/* Twice of that is what a link pins: `viaduct doctor` and the manual say how much. */
	ACROSS_WINDOW_BYTES = ACROSS_PLACES_AT + ACROSS_PLACES * ACROSS_PLACE_BYTES,
};

/* Of this process. */
enum {
	ACROSS_CONTEXTS = 4,
	ACROSS_LINKS = 64,
	ACROSS_HOST_SHARE =
		7, /* links of one host, for each that is free: see hub_has_share */
	ACROSS_BULKS = 16, /* links for redirected bytes, see side_link.c */
	ACROSS_CONNECTIONS = 512,
	ACROSS_REACHES = 512, /* see reach.c */
	ACROSS_MOVES = 512,   /* of all connections */
};

/* A place may be used again when its note has been handled: of those that were posted, at most
 * the credits are not polled, and a batch not handled. The source of a note stays as it is
 * until the write is complete: no more than a full queue is not. */
static_assert(ACROSS_NOTES >= ACROSS_CREDITS + ACROSS_BATCH, "places for notes");
static_assert(ACROSS_PLACES_AT % 4096 == 0, "places lie on pages");
static_assert(ACROSS_LINKS <= 64, "a word has a bit for each link");

enum note_kind {
	NOTE_SHORT = 1, /* the cursors */
	NOTE_LONG,	/* all words */
	NOTE_LAST,	/* all words, and no more will come */
	NOTE_OFFER,	/* memory for the stream's next bytes */
	NOTE_VERDICT,	/* what has become of it */
	NOTE_BULK,	/* of no connection, but of the link beside this one */
	NOTE_LOOK,	/* of none, either */
	NOTE_ASK =
		0x80, /* beside one of them: its sender's `struct told` are to be read */
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

/* From the receiver: the bytes from `position` on may be written there. */
struct note_offer {
	uint64_t position, address;
	uint32_t number; /* of the connection's offers, from 1 */
	uint32_t key, bytes;
	uint32_t least; /* fewer go by the ring */
	uint32_t turn;	/* moves of the ring that the receiver has passed */
};

/* And what became of it: the ring goes on at `position`. */
struct note_verdict {
	uint64_t position;
	uint32_t number;
};

/* Bytes that lie in a row, in the memory of a place. */
struct told_piece {
	uint32_t at, bytes;
};

/*
 * What an end would say, had it credit: in its own window, for the peer to read, at the number of the
 * peer's place. Unread bytes lie in two areas, and once more in the first after a move back: each in
 * two pieces at most. The check is over the rest of it: it may be read while it is written.
 */
enum { TOLD_PIECES = 6 };
struct told {
	uint64_t check;
	uint32_t number; /* of the link's, from 1; 0: there is none */
	uint32_t sent;	 /* immediates that come before all of it */
	uint32_t generation;
	uint32_t key;  /* of the memory in which the pieces lie: it is the sender's, */
	uint64_t base; /* and the place's begins there */
	uint64_t from; /* position of the first piece */
	uint32_t pieces, zero;
	struct told_piece piece[TOLD_PIECES]; /* one after another in the stream */
	struct note_words words;
	struct note_verdict verdict; /* number 0: none */
};
static_assert(sizeof(struct told) * ACROSS_PLACES <= ACROSS_TOLD_BYTES, "room for words");

/* What the reader writes into the window of the one who told, before each look. */
struct told_answer {
	_Atomic uint32_t looks;		       /* asks that were heard before it */
	_Atomic uint32_t heard[ACROSS_PLACES]; /* numbers of what has been carried out */
};
static_assert(ACROSS_ANSWER_AT + sizeof(struct told_answer) <= ACROSS_PLACES_AT,
	      "room for the answer");

enum note_bulk_what { BULK_WANTED = 1, BULK_HELLO = 2, BULK_GONE = 3 };
struct note_bulk {
	uint32_t what, turn; /* turn: of the links beside this one, from 1 */
	uint8_t hello[LINK_HELLO_BYTES];
};

struct note {
	uint32_t number;		 /* of the link's notes in this direction */
	uint8_t kind, generation, place; /* generation and place: the receiver's */
	uint8_t zero;
	union {
		struct note_words words;
		struct note_offer offer;
		struct note_verdict verdict;
		struct note_bulk bulk;
	};
};

static_assert(sizeof(struct note) <= ACROSS_NOTE_BYTES, "layout of notes");
#define NOTE_SHORT_BYTES offsetof(struct note, words.up_at)

static_assert(ACROSS_PLACES == 1 << TELLS_PLACE_BITS,
	      "an id holds a place, and nothing else");
static_assert(TELLS_CONSUMED_MAX >= ACROSS_PLACE_BYTES,
	      "all that can be consumed is told");

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

/* Of cursors, which run freely. */
static inline bool cursor_is_ahead(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) > 0;
}

/* Of a place, in a window and in the memory that is written from. */
static inline uint64_t place_offset(uint32_t place)
{
	return ACROSS_PLACES_AT + (uint64_t)place * ACROSS_PLACE_BYTES;
}

struct across_link;

/*
 * Of a link's two, the one for bytes that go to where a receiver has offered to take them. An offer
 * that is withdrawn while something is on its way there fails it, and nothing else.
 */
struct across_bulk {
	struct link *link;	/* NULL: free */
	struct across_link *of; /* the link that it is beside */
	uint8_t *window;
	uint32_t turn;
	bool up; /* may be written on */
};

/* What this end has offered. */
enum offer_state {
	OFFER_NONE = 0,
	OFFER_OPEN,   /* the peer knows, or will, and may write there */
	OFFER_LANDED, /* it has: `landed` bytes */
	OFFER_BROKEN, /* it cannot any more, or may have failed to */
};
struct across_offer {
	enum offer_state state;
	uint64_t id; /* of this process's: who has it open knows it */
	uint64_t position;
	uint32_t number, bytes, least, turn, landed;
	struct link_memory memory;
	bool said;
	struct note_verdict verdict; /* to be said; number 0: none */
	_Atomic uint32_t due; /* 1: it is not open any more, and waits to be ended */
};

/* What the peer has offered. */
enum grant_state {
	GRANT_NONE = 0,
	GRANT_OPEN,
	GRANT_USED, /* `bytes` are on their way: nothing follows them before the verdict */
};
struct across_grant {
	enum grant_state state;
	uint32_t bytes;		    /* USED */
	struct note_verdict judged; /* the last: it may come twice */
	struct note_offer offer;
	_Atomic uint32_t is_open; /* the state, for across_takes */
	/* A blocking send gathers what it is to write there; or writes it, now. No other call may:
	 * the sender must poll until the verdict has come, else nobody may hear it. */
	bool is_held, is_ready;
};

/*
 * Where the bytes of such a write are, if in the program's memory: the grant is USED, and in the ring
 * is only the room for them. The device may read there while is_registered.
 */
struct across_lent {
	const uint8_t *from; /* NULL: the ring has them, or they have landed */
	uint64_t id;	     /* of this process's: the call that sends them knows it */
	struct link_memory memory;
	uint64_t
		posted; /* of the writes on the link beside: with it complete they are read */
	uint32_t turn; /* of that link */
	bool is_registered;
};

/* What this end's device writes to memory of the peer's program, out of this end's; or reads: reach.c. */
struct across_move {
	struct across_move *
		next; /* of the connection's, in the order of the calls; or a spare one */
	uint64_t id;  /* of this process's */
	struct cache_entry *held; /* of the source */
	uint32_t turn;		  /* of the link beside */
	uint32_t key;
	uint8_t *own; /* what is not posted yet, */
	size_t left;
	uint64_t far; /* and where it goes */
	bool is_get;
	uint8_t *start;
	size_t bytes;	  /* all of it */
	uint64_t last_at; /* of that link: with it complete all is there; 0: not posted */
};

/* Of a peer on this host, in another network namespace. */
enum near_state { NEAR_NEW, NEAR_ASKS, NEAR_MET };
struct near {
	bool is_used; /* as long as the handle is */
	enum near_state state;
	uint32_t id; /* of its question */
	struct meet_near met;
};

struct peer {
	enum across_state state;
	enum across_role role;
	int refused; /* -enum vd_reason: what the next step says */
	struct name_end local, peer;
	uint32_t request;	/* id at viaductd of what is not answered; 0 none */
	uint32_t turn;		/* uses of this struct: part of ids */
	uint64_t not_before_ms; /* asking again before is in vain */
	_Atomic uint32_t redirect_least; /* across_redirect_least */
	struct across_learn learn;
	bool keeps_tcp; /* by what was measured: it only says no */
	/* Of the peer: its user, for whom viaductd vouches; and its process, as it says. */
	uint32_t uid;
	uint8_t process[16];
	/* For the proofs of this meeting: docs/rdma.md, "Whose link it is". */
	uint8_t number[16], peer_number[16];
	bool has_number; /* connector: has told `number`, and no proof for it has come */
	uint64_t gone;	 /* acceptor: links that the peer has not, one bit each */
	bool in_doubt;	 /* acceptor: an answer was lost, the peer may have `place` */

	struct across_link *link; /* has `place` there; NULL: none yet */
	uint32_t place, peer_place;
	uint8_t generation, peer_generation;
	bool has_peer; /* peer_place is known: notes may be sent */
	bool said;     /* a note has been sent */
	bool heard;    /* one has come */
	uint64_t
		first_at; /* of the link's writes: with it complete the peer will hear us */
	bool owes;	  /* something was not posted for want of room */
	bool untold;	  /* and it is not told aside, either */
	uint64_t bare_at; /* of the link's writes: bytes of which no note tells yet */
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
	/* sent.consumed as of the last push: for across_room_is_due. */
	_Atomic uint64_t consumed_told;
	struct note_words came; /* as we have it, before there is memory, too */
	uint32_t rung_rx, rung_tx;
	struct wire_dir kept[2]; /* ENDED: the connection's memory as it was */

	struct across_offer offer;
	struct across_grant grant;
	struct across_lent lent;
	struct across_move *moves; /* the first that is under way */

	struct told told; /* with a number: nothing else is said before it is heard */
	bool unasked;	  /* it may have come too late for the peer's last look */
	uint64_t pulled;  /* bytes before that position have been read by us */

	struct near
		near; /* near.c: with it the handle has nothing of the above but its ends */
};

/* What the peer tells aside, on its way here. */
enum pull_state {
	PULL_IDLE = 0,
	PULL_WORDS, /* they are being read */
	PULL_BYTES, /* those of which they tell */
};
struct across_pull {
	enum pull_state state;
	bool must_look;
	uint32_t vain; /* looks in a row that found what is not ready yet */
	bool waits;    /* they were too many: the next one is when something has come */
	uint32_t asks_came, answered; /* of them, granted for */
	uint32_t due;	       /* places, in bits, whose words are to be carried out */
	uint32_t place, piece; /* the next to be read */
	bool reads;	       /* some are under way */
	uint32_t heard[ACROSS_PLACES];
	struct told told[ACROSS_PLACES];
};

struct across_context {
	struct link_context *context; /* NULL: free, or it could not be opened */
	struct name_end local;
	char device[LEARNT_DEVICE]; /* its name */
	bool failed;
	uint64_t failed_ms;
};

struct across_link {
	struct link *link; /* NULL: free */
	struct across_context *context;
	uint64_t made_ms;
	uint64_t token; /* names it between the two processes */
	/* Of the peer: its process, as that says; its user; and its address, of the connection that
	 * the link was made for. */
	uint8_t process[16];
	uint32_t uid;
	uint8_t peer[16];
	uint8_t ours[16];   /* secret: made here, the peer proves that it has it */
	uint8_t theirs[16]; /* secret: made by the peer, we prove that we have it */
	bool up;	    /* both ways have been seen to work: notes may be sent */
	bool failed;
	uint8_t *window, *staging; /* ACROSS_WINDOW_BYTES each */
	struct link_memory memory; /* of staging */
	struct peer *at[ACROSS_PLACES];
	uint8_t generation[ACROSS_PLACES];
	uint32_t used[ACROSS_PLACES]; /* when the place was last given out */
	uint32_t uses;
	uint64_t notes_sent, notes_came;

	uint64_t immediates_came;
	uint32_t told;	   /* number of the last */
	uint32_t asked;	   /* notes with NOTE_ASK that were posted */
	uint64_t asked_at; /* immediates up to the last of them */
	struct across_pull pull;

	bool is_first; /* made its hello first: makes those of bulks, too */
	struct across_bulk *bulk;
	uint32_t bulk_turn; /* of the last one */
	uint32_t bulk_due;  /* bits of 1 << enum note_bulk_what, to be said */
	uint32_t gone_turn; /* with BULK_GONE: which */
	uint64_t bulk_not_before_ms;
	uint64_t bulk_hello_ms; /* the last hello of the peer's that was taken */
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
extern struct peer across_lost;
extern struct peer across_pool[ACROSS_CONNECTIONS];
/* One past the last handle that was ever taken: a process that has none touches no page of it all,
 * which each fork would pay for. From there on a handle holds nothing, or what was a parent's. */
extern int across_used;
extern struct across_link across_links[ACROSS_LINKS];
extern struct across_bulk across_bulks[ACROSS_BULKS];
extern struct across_context across_contexts[ACROSS_CONTEXTS];
/* Of this process: random, 16 bytes; another one in a forked child. */
const uint8_t *across_process(void);

/* ---- remote.c ---- */

/* Carries out what has come, for who was woken by a descriptor. */
void across_answer_locked(bool brief);

/* ---- link_table.c: contexts, links, and what comes on them ---- */

/* 0; -ENODEV: there is no device with this address; -ENOSPC: this process has as many of other
 * addresses as it takes. */
int hub_context(const struct name_end *local, struct across_context **out);
/* The peer's user, and its host, have not had their part of the links. */
bool hub_has_share(const struct peer *a);
/* A new link: its hello is asked for with link_hello. 0 or -errno; -EDQUOT: what it pins is more
 * than the process may lock. */
int hub_create(struct across_context *c, struct across_link **out);
/*
 * The first end has the second's hello. It is not up before its READY is known to have arrived,
 * since what it says may be the last that gets through: where the way back is cut, the second
 * would hear a note, and could not know what else is lost.
 */
void hub_connected(struct across_link *k);
/* It is for connections with the same user and process, and for the way that this one takes. */
void hub_assign(struct across_link *k, const struct peer *a);
/* One with the user and process of that connection, by the same devices, that has a free place, or
 * is being made (*making). */
struct across_link *hub_find(const struct peer *a, bool *making);
/* One with the same, of that name, that both ends have. */
struct across_link *hub_find_token(const struct peer *a, uint64_t token);
/* Whether it leads to this connection's peer. */
bool hub_is_for(const struct across_link *k, const struct peer *a);
/* False: all places are in use. */
bool hub_take_place(struct across_link *k, struct peer *a);
/* The place is given back, the handle is free: nobody writes there. */
void hub_give_place(struct peer *a);
/* A link that failed, or was never connected, goes once nobody has a place there. */
void hub_drop(struct across_link *k);
void hub_poll(void);
/* Ours has ended; frees what is free by now. */
void hub_settle(struct peer *a);

/* The peer does not keep to the protocol. */
void hub_wrong(struct across_link *k, const char *what);

/* ---- note.c ---- */

void note_push(struct peer *a);
/* Posts it, of which so many bytes are used; 0 or -errno, as link_post. The number is put in. */
int note_post(struct across_link *k, struct note *n, size_t bytes, uint32_t flags);
/* A note for this connection has come. False: it cannot be. */
bool note_take(struct peer *a, const struct note *n);
/* So many bytes have, and so many of ours have been consumed. */
void note_take_bytes(struct peer *a, uint32_t bytes, uint32_t consumed);
/* Words from elsewhere that are as new as the last note's. False: they cannot be. */
bool note_take_words(struct peer *a, const struct note_words *words);
/* How many bytes the peer has not been told of; and the first of them that lie in a row. */
size_t note_next_bytes(struct peer *a, struct ring_span *out);
/* Those that lie in a row from `skip` on; within the place. */
void note_span(const struct peer *a, size_t skip, struct ring_span *out);
/* Our words as of now; and as far as they hold for the bytes up to `end`, which may not be all. */
void note_look(const struct peer *a, struct note_words *w);
void note_limit(struct note_words *w, uint64_t end, bool all,
		const struct note_words *before);
/* They are worth saying. */
bool note_is_news(const struct peer *a, const struct note_words *now,
		  const struct note_words *before);
/* Carries out what has come before there was memory. */
void note_apply_all(struct peer *a);

/* ---- outbox.c: what there is no credit for ---- */

/* True: nothing but aside_push may tell anything now. */
bool aside_is_due(struct peer *a);
uint64_t aside_check(const struct told *t);
/* Tells what is new, where the peer reads it. What is owed stays owed until that has been heard. */
void aside_push(struct peer *a);

/* ---- pull.c: what the peer has no credit for ---- */

/* A note has asked for it. */
void pull_ask(struct across_link *k);
/* Something has come from the peer. */
void pull_came(struct across_link *k);
/* Of those in a row, before the next thing that the peer sends is waited for. */
#define PULL_VAIN_MOST 100
/* Looks, if that is due and possible. */
void pull_begin(struct across_link *k);
/* What was to be read is here. */
void pull_take(struct across_link *k);
/* There is room again. */
void pull_go_on(struct across_link *k);

/* ---- redirect.c: bytes that go past the ring ---- */

/* What is due to the peer. False: no room. */
bool redirect_push(struct peer *a);
/* Something must be said before any more of the stream. */
bool redirect_comes_first(const struct peer *a);
/* The sender's next bytes: false when they must wait, since others are on their way. */
bool redirect_may_push(struct peer *a);
/* A NOTE_OFFER or NOTE_VERDICT. False: it cannot be. */
bool redirect_take(struct peer *a, const struct note *n);
bool redirect_take_verdict(struct peer *a, const struct note_verdict *v);
/* Bytes have come, to the offer with this number (8 bits). False: more than it takes. */
bool redirect_landed(struct peer *a, uint32_t number, uint32_t bytes);
/* What was on its way beside this link may not arrive. */
void redirect_break(const struct across_link *k);
/* The handle ends: nothing is written to what it has offered. */
void redirect_end(struct peer *a);

/* The sender's next bytes go to what the peer has offered; more `flags` of a link_write. False: not
 * now. */
bool redirect_write(struct peer *a, const void *from, uint32_t bytes,
		    const struct link_memory *memory, uint32_t flags);

/* ---- zerocopy.c: those that the ring never has ---- */

/* What was on its way has arrived. */
void zerocopy_landed(struct peer *a);
/* Nothing is read from the program's memory any more; the ring has what has not landed. */
void zerocopy_end(struct peer *a);
/* False: this thread has sent from memory that the device may still read, though nothing comes of it. */
bool zerocopy_is_read(struct peer *a);

/* ---- side_link.c: the link for them ---- */

/* After one has failed, or when the peer has been asked for one. Less in tests. */
extern uint32_t bulk_retry_ms;
/* True: it can be written on. Else it is asked for. */
bool bulk_is_up(struct across_link *k);
/* Says what is due to the peer, as far as there is room. */
void bulk_push(struct across_link *k);
bool bulk_take(struct across_link *k, const struct note_bulk *n);
/* Of a link that is none of the others. */
void bulk_event(const struct link_event *e);
/* It ends, and the peer is told before anything else. */
void bulk_give_up(struct across_link *k);
/* The link itself has failed, or goes. */
void bulk_drop(struct across_link *k);

/* ---- reach.c: memory that is exported ---- */

/* The keys of that link are void; NULL: those of all. */
void reach_drop(const struct across_link *k);
/* Before a fork: nothing is written here from now on, and nothing is registered but what is held. */
void reach_forking(void);
/* In a forked child, which has none of them. */
void reach_forget(void);
/* The handle ends: what it puts or gets is given up. */
void reach_end(struct peer *a);

/* ---- meet.c ---- */

/* The handle ends: what is published is withdrawn. */
void meet_end(struct peer *a);

/* ---- ask_daemon.c: the process's line to viaductd ---- */

struct local_message;
bool relay_is_there(void);
/* A handle that nobody has, or NULL. */
struct peer *across_take_handle(void);
/* 0, or -errno: then nothing was said. */
int relay_say(struct local_message *m, size_t hello_bytes);
/* That connection is published no more. It is said, later where there is no room now: true while some
 * of these wait. */
bool relay_withdraw(const struct name_end *local, const struct name_end *peer);
/* Nothing is published nor asked: what could not be said yet is said by the line's end. */
void relay_is_idle(void);
/* 1 a message, 0 nothing now, -EPIPE: the line is new: what was published is forgotten. */
int relay_hear(struct local_message *m, size_t *hello_bytes);
void relay_forked(void);

#endif
