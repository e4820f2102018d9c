/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the native library share: a connection, its tables, and who may do what. */
#ifndef VD_NATIVE_NATIVE_H
#define VD_NATIVE_NATIVE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/native_count.h"
#include "native/board.h"
#include "native/cancel.h"
#include "native/frame.h"
#include "preload/door.h"
#include "viaduct/viaduct.h"

/* Of the public symbols alone. */
#define NATIVE __attribute__((visibility("default")))

/*
 * One connection: a stream of frames (frame.h) each way, over one socket of the engine's.
 *
 * Reading. Frames are read by one thread at a time, the *reader*: a caller that waits for something
 * on this connection, or the service thread. The reader takes bytes without a lock; it holds `mu`
 * while it carries them out, but for long copies. A caller that finds another reader sleeps on
 * `changed`, and takes over when that one stops. So whatever a caller waits for is read by itself, or
 * by somebody who tells it.
 *
 * The service thread reads connections that are WATCHED. A caller that waits makes its connection
 * CALLED: the service thread does not sleep on it, and so the peer need not ring for it. It takes
 * the connection back when no caller has waited for some milliseconds, or at once when a caller is
 * about to block in a send: the peer may be blocked in one as well, until somebody reads here.
 *
 * Writing. `wr` orders whole frames. What the protocol owes the peer (struct owed) is written by
 * whoever has `wr`; nobody sleeps for `wr` to do so: the holder looks at it once more afterwards.
 * Callers have `turn` around it, from send_begin to send_end, and keep that while they wait without `wr` for
 * a device that is at what was lent before: their frames and their device's writes go in their order.
 * A reader never blocks in a send, so two ends cannot wait for each other's reading.
 *
 * Locks: turn, wr, then mu. `mu` is held for moments, never in a system call that may block. The
 * service's own lock (service.c) comes before mu.
 */

enum { CONN_WATCHED, CONN_CALLED };

#define IN_BYTES    65536u /* of the buffer of frames; more than any but for its bulk */
#define PIECE_BYTES (256u << 10) /* a longer put goes in several frames */
#define EVENTS_MOST (FRAME_CREDITS + MESSAGES_MOST + VD_LENT_MOST)

struct vd_region {
	struct vd_conn *c;
	uint32_t id, rights;
	uint8_t *addr;
	size_t len;
	void *user;
	char name[VD_NAME_MAX + 1];
	/* Under mu. */
	struct memory *memory; /* it is the whole of it; or NULL */
	bool is_withdrawn;     /* nothing lands there any more */
	bool is_lent;	  /* the memory was sent to the peer, and not yet taken back */
	bool is_returned; /* the peer says that it has it no more */
	/* See reach.c: its key, or 0; of those that it has had the last; there is one, or will be; and
	 * there has been one. */
	uint64_t reach;
	uint32_t key_number;
	int64_t key_at; /* until then there is no other */
	bool is_reached, was_reached;
	bool is_keyed; /* the peer was told one: after UNEXPORT it says when it has done with it */
	struct memory *claimed; /* of vd_alloc, for that */
	struct vd_detour *detours, *inert;
	vd_handler handler; /* or NULL */
	void *handler_arg;
	struct vd_region *next_ended; /* of the connection's */
};

/* What the peer exports in one place of its table. */
struct peer_export {
	uint32_t id, rights; /* id 0: never used */
	uint32_t skew;	     /* of its address, from a multiple of 8 */
	uint64_t len;
	bool alive;
	char name[VD_NAME_MAX + 1];
	/* Mapped: map, and threads that copy just now. See map.c. */
	uint8_t *map;
	uint32_t users;
	bool is_whole;	  /* could be mapped, and has not been asked for */
	bool is_asked;	  /* a thread asks for it just now: nobody has a handle yet */
	bool is_lent;	  /* was sent to us, or its key: after its end UNMAPPED is due */
	bool owes_return; /* that is due now */
	uint32_t reason;  /* why it is not mapped */
	/* Reached: see reach.c. */
	struct door_key key;
	uint32_t key_number; /* 0: we have none */
	int64_t reach_at;    /* asking before that is in vain */
	uint64_t put_at;     /* puts_sent, at the last put over the stream */
};

struct vd_remote {
	struct vd_conn *c;
	uint32_t id, rights, skew;
	uint64_t len;
	struct vd_remote *next; /* all of the connection's */
};

/* A get or an atomic that we have asked for. Under mu. */
struct asked {
	bool used, done;
	uint32_t token;
	int result;
	uint8_t *to; /* where the answer goes */
	uint32_t len;
};

/* One that the peer has asked for. Under mu. */
struct wanted {
	struct frame frame;
	uint8_t operand[FRAME_OPERANDS];
};

/* What the protocol owes the peer, besides what callers send. Under mu. */
struct owed {
	/* UNEXPORT of these ids: they come before every other frame. A ring. */
	uint32_t gone[VD_EXPORTS_MAX], gone_first, gone_count;
	union {
		struct {
			bool flush, taken, released, bye;
			bool offer, map, mapped, look; /* of the arenas */
		};
		uint64_t any; /* not 0: one of these */
	};
	uint32_t flush_seq;
	/* What we ask: a FLUSH that is about no put; and MAP and REACH, id 0: none. */
	bool ping;
	uint32_t map_id, reach_id;
	uint8_t map_name[FRAME_NAME_BYTES];
	uint32_t mapped_id, mapped_reason;	 /* id 0: none */
	uint32_t returns;			 /* of peer_exports with owes_return */
	uint32_t key_id, key_reason, key_number; /* id 0: none */
	struct frame_key key;
	uint32_t wanted_first, wanted_count;
	struct wanted wanted[FRAME_ASKED_MOST];
};

/* Where bytes of a body go: their offset there, and how many in one piece. */
struct body_place {
	uint8_t *to;
	uint64_t at, room;
	struct vd_detour *detour;
};

/* Messages to the peer: see message.c. Under mu, but for the bytes. */
struct outbox {
	uint8_t *arena;	       /* NULL before the first */
	struct memory *memory; /* of it, where it can be mapped */
	bool is_offered;       /* it was tried to offer that */
	bool is_brought;       /* the peer has asked for it */
	bool is_mapped;	       /* the peer has it */
	struct board *board;   /* in that memory; or NULL */
	uint32_t told;	       /* messages and notifications, on it */
	uint32_t reason;       /* why not */
	bool is_busy;	       /* a thread reserves, or has reserved, or commits */
	bool is_reserved;
	uint32_t at, room; /* where, and how many bytes */
	bool is_beside;	   /* it can be told on the board */
	/* Positions: behind the last; of the first that the peer has; what its frames have said of that. */
	uint32_t head, freed, seen;
};

#define MESSAGES_MOST 1024u /* that an arena has room for */
struct message {
	uint32_t at, len;
	bool is_mapped; /* it is not in the mirror */
};

/* Those of the peer. */
struct inbox {
	uint8_t *mirror;     /* NULL before the first */
	uint8_t *map;	     /* of the peer's arena, or NULL */
	struct board *board; /* behind it */
	uint32_t told;	     /* that have come by it */
	bool is_quiet;	     /* our own board says that we want no LOOK */
	bool is_near;	     /* the last one came while it was looked for */
	bool is_wrong;	     /* it breaks a rule: the next reader ends the connection */
	bool is_offered;
	int listener; /* that memory is awaited there; or -1 */
	uint8_t name[FRAME_NAME_BYTES];
	struct message *queue;
	uint32_t first, count; /* that have come, until they are released */
	bool is_busy;	       /* a thread looks for one, or holds one */
	bool is_held;	       /* the first */
	bool is_awaited;       /* the peer waits for this position: */
	uint32_t awaited;
	/* Positions: behind the last of each. The second is looked at without mu. */
	uint32_t come;
	_Atomic uint32_t released;
	uint32_t untold; /* granules released since the peer was told */
};

/* A put whose source is lent: PUT; or PLACED, of so many bytes, which are there. */
struct lent {
	struct frame frame;
	const uint8_t *src;
	uint64_t len, sent;
	uint64_t move;	     /* not 0: a device is at it, */
	uint32_t key_number; /* by this key */
	bool is_by_frames;   /* its bytes are */
};

/* See lend.c. Under mu; the first one's `sent` under wr, too. */
struct lent_queue {
	struct lent *items;	/* NULL before the first */
	uint32_t gone;		/* so many; the place of the next one follows from it */
	_Atomic uint32_t count; /* relaxed: also looked at without mu */
	uint32_t untaken; /* in the queue, or events that the program has not taken */
	uint32_t by_frames,
		far;   /* of the queue: whose bytes go so; that a device is at */
	bool has_turn; /* it and the other things that are owed have turns */
};

/* A thread that waits for several connections, and is not the reader here: see any.c. */
struct onlooker {
	int fd;
	struct onlooker *next;
};

struct vd_conn {
	int fd;
	pthread_mutex_t mu;
	pthread_cond_t changed;
	int announced;	/* of vd_adopt; or -1 */
	uint32_t birth; /* see native_check */
	uint64_t serial;
	struct vd_conn *next; /* of all connections; under the service's lock */

	/* Under mu. */
	_Atomic uint64_t *counts; /* for `viaduct stat`; or no_counts */
	_Atomic uint64_t no_counts[NATIVE_COUNTS];
	bool is_read, is_deaf; /* a reader; it may sleep until the peer speaks */
	int mode;	       /* CONN_ */
	bool stuck;	       /* what is owed waits for room in the stream */
	uint32_t interest;     /* that the service thread sleeps on; 0: none */
	uint32_t callers;      /* threads inside a call that waits */
	uint32_t followers;    /* of those: asleep on `changed` */
	struct onlooker *onlookers;
	uint32_t calls; /* of such calls, so far, and what the service thread last saw */
	uint32_t seen_calls, still_ticks;
	int tick_ms; /* to the next look at it; grows while callers keep coming */
	int error;   /* 0 while it lives; else what every call returns */
	bool end_taken, bye_sent;
	bool is_closing; /* nobody begins anything with the peer's memory */
	bool is_blocked; /* whoever has wr waits for room in the stream */
	uint32_t
		waiters; /* threads in vd_wait, also while that runs a handler; or that may block in a send */
	struct handling *handlings;
	bool closes_late; /* a handler in this thread has called vd_close */
	pthread_t closer;
	struct vd_region *ended; /* by vd_close, and still to be freed */
	int event_fd;		 /* -1 until vd_fd */
	bool event_fd_set;
	struct vd_event *events; /* a ring of EVENTS_MOST */
	uint32_t event_first, event_count;
	uint32_t event_waits;	 /* threads that wait for one */
	uint32_t event_messages; /* of those: of messages, the last that have come */
	struct vd_region *exports[VD_EXPORTS_MAX];
	uint32_t uses[VD_EXPORTS_MAX];		/* how often the place was used */
	struct vd_region *lent[VD_EXPORTS_MAX]; /* to this peer */
	bool is_held
		[VD_EXPORTS_MAX]; /* until UNMAPPED comes, the place is not used again */
	bool peer_returned;	  /* all of it: it has said BYE */
	bool peer_is_slow;	  /* has not returned one in time */
	struct peer_export *peer_exports;
	uint32_t map_id, map_reason; /* MAP under way, or 0; and what came of the last */
	uint32_t reach_id;	     /* REACH under way, or 0 */
	struct vd_remote *remotes;
	/* Notifications: sent; taken by the peer's program; come; taken by ours; told so. */
	uint32_t notes_sent, notes_spent, notes_come, notes_taken, notes_told;
	/* But HELLO: sent, or about to be, also looked at without mu; carried out. */
	_Atomic uint32_t frames_sent;
	uint32_t frames_come;
	uint32_t flush_sent, flush_done;
	/* Puts over the stream: sent, counted under wr, too; and surely landed. And there was one to
	 * mapped memory since the last flush. */
	uint64_t puts_sent, puts_flushed;
	bool is_placed;
	uint32_t tokens, asked_count;
	struct asked asked[FRAME_ASKED_MOST];
	struct owed owed;
	struct outbox outbox;
	struct inbox inbox;
	struct lent_queue lend;
	bool is_lending; /* a thread may read from the first one's source */
	/* What the reader is writing to, an export or an answer. Who wants that back waits. */
	const void *landing;
	struct body_place place; /* and where */

	/* The reader's. */
	uint8_t *in;
	uint32_t in_at, in_end;
	bool greeted;
	bool is_sliced;	    /* a receive that waits ends after some time: see wait.c */
	uint32_t endless;   /* waits in a row that had no deadline */
	struct frame frame; /* whose body is being read */
	uint32_t body_left;
	bool in_put;	   /* the next PUT goes on with this one */
	uint32_t put_id;   /* its export */
	uint64_t put_from; /* where it began, and where that goes on */
	uint64_t put_next;

	pthread_mutex_t turn;
	int cancel; /* of the thread that holds that */
	/* Under wr: what the stream did not take of a frame, and of the payload that is lent. */
	pthread_mutex_t wr;
	uint8_t *rest;
	uint32_t rest_at;
	_Atomic uint32_t rest_end; /* relaxed: others look whether there is any */
	struct iovec piece;
	bool is_lent; /* the frame is the first of the queue */
};

/* Under mu. */
static inline void count(struct vd_conn *c, enum native_count what, uint64_t n)
{
	/* Relaxed, and no step of one: mu is held, and others only look. */
	n += load_relaxed(&c->counts[what]);
	store_relaxed(&c->counts[what], n);
}

/* ---- native.c: the process ---- */

extern const struct door *door;
/*
 * Which process of a family it is: 0 before the first connection, and in a child that was forked
 * since, whichever way, because the kernel clears that page. Connections note it at their birth.
 */
extern const _Atomic uint32_t *native_birth;
static inline int native_check(const vd_conn *c)
{
	/* Relaxed: set before the connection was made. */
	return load_relaxed(native_birth) == c->birth ? 0 : -ECHILD;
}
/* Finds the engine, and begins a life of this process. 0, -ECHILD after a bare fork, -errno. */
int native_begin(void);

/* ---- conn.c ---- */

/* Takes fd over on success. */
int conn_create(int fd, int announced, vd_conn **c);
/* It is over, with this error for all calls to come: once; wakes all. No lock is held. */
void conn_over(vd_conn *c, int error);
/* Under mu: tells the onlookers, of whom there are some (any.c). */
void conn_ring(const vd_conn *c);
/* Under mu: tells those who wait in this process that something has changed. */
static inline void conn_changed(vd_conn *c)
{
	if (c->followers)
		pthread_cond_broadcast(&c->changed);
	if (c->onlookers)
		conn_ring(c);
}

/* Under mu: a caller may give that up, and block, before it leaves. vd_close waits for it; the connection may
 * be gone once mu is given up after conn_left, or when conn_leave has returned, which takes mu itself. */
static inline void conn_stay(vd_conn *c)
{
	c->waiters++;
}
static inline void conn_left(vd_conn *c)
{
	if (--c->waiters == 0)
		conn_changed(c);
}
void conn_leave(vd_conn *c);

/* ---- read.c ---- */

/*
 * Receives once, and carries out what is complete. `flags`: MSG_DONTWAIT, or 0 to wait for the first
 * byte. It takes mu and leaves it taken. 0, -EAGAIN, -EINTR; or the connection's error, when it is
 * over by that.
 */
int read_some(vd_conn *c, int flags);

/* ---- peer.c: the other frames, by the reader, under mu ---- */

/* 0, -EPROTO; or the end: -EPIPE, or -ECONNABORTED, where it is we who broke a rule. */
int peer_frame(vd_conn *c, const struct frame *f, const uint8_t *payload);
/* The peer has put so many bytes there past the stream: the event. 0 or -EPROTO. */
int peer_placed(vd_conn *c, uint32_t id, uint32_t tag, uint64_t offset, uint64_t len);

/* ---- export.c ---- */

/* Under mu. The live export of this id, or NULL; *known: there has been one. */
static inline struct vd_region *export_find(vd_conn *c, uint32_t id, bool *known)
{
	uint32_t place = id & FRAME_ID_PLACE, use = id >> FRAME_ID_SHIFT;
	struct vd_region *x = c->exports[place];

	*known = use > 0 && use <= c->uses[place];
	return x && x->id == id ? x : NULL;
}
static inline bool export_covers(const struct vd_region *x, uint64_t offset, uint64_t len)
{
	return offset <= x->len && len <= x->len - offset;
}
/* Under mu. 0, or why r cannot be used so. */
int remote_check(const struct vd_remote *r, uint64_t offset, uint64_t len,
		 uint32_t rights);

void export_forget(struct vd_region *x);
/* Before the connection is closed. */
void export_end_all(vd_conn *c);

/* ---- answer.c ---- */

/* Under mu: carries out the first thing that the peer wants, as a frame with payload. */
uint32_t answer_next(vd_conn *c, uint8_t *to);

/* ---- memory.c ---- */

struct memory;
/* The memory of vd_alloc that begins at base and is so long, and in use from now on; or NULL. */
struct memory *memory_use(const void *base, size_t len);
void memory_unuse(struct memory *m);
/* A descriptor for a peer; -1: it has been lent to others, or has parted. */
int memory_lend(struct memory *m, bool writes);
void memory_returned(struct memory *m, bool writes);
/* Some of it may be written, or read, by a device from now on: it is as if it were lent to a peer that does,
 * and used. *out is NULL where nothing of vd_alloc is there. False: it is lent otherwise. */
bool memory_claim(const void *at, size_t len, bool writes, struct memory **out);
void memory_unclaim(struct memory *m, bool writes);
/* The memory of vd_alloc that holds all of that: NULL and 0 where none does. */
void memory_around(const void *at, size_t len, const void **base, size_t *bytes);
/* What was lent to a peer that may write is that peer's alone: the program's is a copy from now on.
 * Others may write to it meanwhile. 0 or -ENOMEM. */
int memory_part(struct memory *m);
void memory_forking(void);
void memory_forked_parent(void);
void memory_forked_child(void);

/* ---- map.c: under mu ---- */

/* The peer waits there for memory: it is sent. An enum vd_reason. */
uint32_t map_bring(vd_conn *c, struct memory *m, bool writes, const uint8_t *random);
/* Waits for memory at a name that it makes up. A descriptor, or -1. */
int map_listen(uint8_t *random);
/* What has come there, mapped; or NULL. */
uint8_t *map_take(int listener, size_t len, uint32_t rights);
/* The exporter's reader sends x to where the peer waits for it. An enum vd_reason. */
uint32_t map_lend(vd_conn *c, struct vd_region *x, const uint8_t *random);
/* After UNEXPORT: until the peer says that it has no way to x any more. -ETIMEDOUT, or why it never will. */
int map_await_return(vd_conn *c, struct vd_region *x);
/* After UNEXPORT: the peer writes there no more. 0 or -ENOMEM. */
int map_recall(vd_conn *c, struct vd_region *x);
/* Tries to get the memory of p; gives mu up meanwhile. Afterwards it is mapped, or never will be. 0, or
 * why that is not settled. */
int map_import(vd_conn *c, struct peer_export *p, int64_t deadline);
/* Where an imported byte is, for a copy: NULL, or map_release is to follow. NULL where it is not there. */
static inline bool map_is_there(const struct vd_remote *r)
{
	return r->c->peer_exports[r->id & FRAME_ID_PLACE].map;
}
uint8_t *map_hold(const struct vd_remote *r, uint64_t offset);
void map_release(const struct vd_remote *r);
void map_release_id(vd_conn *c, uint32_t id);
/* The export has ended. */
void map_ended(vd_conn *c, struct peer_export *p);
/* While the connection is closing: no thread copies there; then all of it is unmapped, and returned by BYE. */
bool map_is_idle(vd_conn *c, const void *arg);
void map_end_all(vd_conn *c);

/* ---- redirect.c: under mu ---- */

/* Bytes for `at`, of which *room are to come: if they are redirected, where to, and by which detour.
 * *room becomes how many have the same fate. */
struct vd_detour *detour_place(struct vd_region *x, uint64_t at, uint8_t **to,
			       uint64_t *room);
void detour_landed(struct vd_detour *d, uint64_t at, uint64_t len);
/* Those that the program has not ended. */
void detour_forget(struct vd_region *x);

/* ---- put.c ---- */

/* Until the peer has read everything that was sent. Blocks while the connection is full. */
int flush_stream(vd_conn *c);
/* Until the peer's library has answered: its deadline holds whatever the peer does. 0, -ETIMEDOUT, or the
 * connection's error. */
int ping(vd_conn *c, int64_t deadline);

/* ---- wait.c ---- */

/* Absolute times, in ms of the monotonic clock. */
#define UNTIL_EVER INT64_MAX
int64_t until(int timeout_ms);
int until_left(int64_t deadline); /* as poll(2) takes it */
typedef bool until_fn(vd_conn *c, const void *arg);
/*
 * Under mu, which it gives up meanwhile: reads, or has others read, until is(c, arg). 0, -ETIMEDOUT,
 * or the connection's error, when the condition can come true no more.
 */
int until_is(vd_conn *c, until_fn *is, const void *arg, int64_t deadline);
/* The same for what other threads of this process bring about, and the peer does not: nothing comes
 * by which a reader would learn of it. */
int until_freed(vd_conn *c, until_fn *is, const void *arg, int64_t deadline);

/* ---- event.c: under mu ---- */

/* A notification has come for x, or for an export that has ended: NULL. 0 or -EPROTO. */
int event_note(vd_conn *c, struct vd_region *x, uint32_t tag, uint64_t offset,
	       uint64_t len);
/* Those of x go, as if they had been taken. */
void event_drop(vd_conn *c, const struct vd_region *x);
/* A message has come. */
void event_message(vd_conn *c, uint32_t len);
/* The first of `count` messages is being looked at: if its event was not taken, it goes. */
void event_drop_message(vd_conn *c, uint32_t count);
bool event_is_there(vd_conn *c, const void *arg);
/* The first one is for a handler. */
bool event_is_handled(vd_conn *c);
/* The caller has seen to it that there is room. */
void event_push(vd_conn *c, const struct vd_event *ev);
/* Takes what is there, and calls handlers, as vd_wait: how many; 0 none, but handlers may have run; or -ECHILD.
 * Gives mu up, and leaves (conn_left). */
int event_take(vd_conn *c, struct vd_event *events, int n);
/* Makes vd_fd readable, or no more, as it ought to be. */
void event_show(vd_conn *c);
static inline void event_tell(vd_conn *c)
{
	if (c->event_fd >= 0)
		event_show(c);
}

/* ---- handler.c: under mu ---- */

/* The event has been taken: calls the handler of its export, for which it gives mu up. 0; -EPIPE where
 * this thread is to return, since that has called vd_close; -ECHILD, without mu, in a child of it. */
int handler_run(vd_conn *c, const struct vd_event *ev);
/* Until it runs in no other thread for the export of this id. */
void handler_await(vd_conn *c, uint32_t id);
/* This thread is in a handler of the connection. */
bool handler_is_around(const vd_conn *c);
/* This thread has called vd_close there. */
bool handler_closes(const vd_conn *c);
/* No lock is held. This thread is in a handler: then vd_close is put off. */
bool handler_puts_off(vd_conn *c);

/* ---- send.c ---- */

/* Sends a frame with its payload, as a whole. Blocks. 0, or the connection's error. */
int send_frame(vd_conn *c, struct frame *f, const void *payload);
/*
 * Under mu, with at most SEND_AT_ONCE bytes of payload: sends the frame if nobody else writes and
 * the stream takes it. False: it is still to be sent. Afterwards, what is due is to be looked at.
 */
#define SEND_AT_ONCE 512u
bool send_at_once(vd_conn *c, struct frame *f, const void *payload);
/* Several that nobody else's come between: begin, held for each, end. */
void send_begin(vd_conn *c);
/* The same, for a put that a device is to begin with: what was lent before may still be under way, but for what that must
 * not come before. */
void send_begin_far(vd_conn *c, const struct frame *f, uint64_t len);
int send_held(vd_conn *c, struct frame *f, const void *payload);
void send_end(vd_conn *c);
/* Writes what is owed, as far as that goes without waiting; the service thread goes on. */
void send_owed(vd_conn *c);
/* Under mu: something is owed, or a rest of it unsent. */
bool send_is_due(const vd_conn *c);
/* Under mu: UNEXPORT is owed, before all that is sent from now on. */
void send_gone(vd_conn *c, uint32_t id);
/* Under wr and mu: each header tells how many notifications have been taken. */
void send_stamp(vd_conn *c, struct frame *f);

/* ---- service.c ---- */

struct vd_listener {
	int fd;
	uint32_t birth;
	struct vd_listener *next;
};
void service_listens(struct vd_listener *l);
void service_listens_no_more(struct vd_listener *l);

/* The thread, where it does not run yet. */
int service_start(void);
int service_add(vd_conn *c);
void service_remove(vd_conn *c);
/* Under mu: a caller is about to wait on this connection; it does no more. */
void service_called(vd_conn *c);
void service_left(vd_conn *c);
/* Under mu: no caller reads it for some time; or there is something to write. */
void service_take(vd_conn *c);
/* Under mu: a device is at something that was lent, and has to be looked at now and then. */
void service_looks(void);
/* Around a fork. */
void service_forking(void);
void service_forked_parent(void);
void service_forked_child(void);

#endif
