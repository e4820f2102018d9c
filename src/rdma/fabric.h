/* SPDX-License-Identifier: Apache-2.0 */
/* What an interconnect does for links, and what a link keeps: not for users of links. */
#ifndef VD_RDMA_FABRIC_H
#define VD_RDMA_FABRIC_H

#include <assert.h>

#include "rdma/hello.h"
#include "rdma/link.h"

/*
 * A receive queue holds `credits` receives for the caller's immediates and these for ours:
 * READY, CLOSE, and the grants that the peer has not polled. It grants once for each quarter
 * of its credits at least (link_poll.c), so of those there are four at most; and by link_grant,
 * of which two may come without that its peer polls.
 */
enum { LINK_GRANTS_MAX = 4, LINK_RESERVE = 2 + LINK_GRANTS_MAX + 2 };
/* Our own writes that may be in a full send queue: the same, and the mark of a drain. */
enum { LINK_SEND_RESERVE = LINK_RESERVE + 2 };

/* A completion. */
struct fabric_done {
	uint64_t tag; /* as posted */
	uint8_t error;
	bool flushed;	     /* not done, because something else has failed */
	bool with_immediate; /* of a receive */
	uint32_t immediate, bytes;
};

/* A write, checked. */
struct fabric_work {
	uint64_t tag;
	const void *from;
	uint32_t bytes, key; /* the key of local memory; 0 with is_inline */
	bool is_inline, is_signalled, with_immediate;
	bool is_read;	/* from there to `from` */
	bool in_window; /* a read: `from` lies in our window, and has its key */
	uint64_t to;	/* the peer's address */
	uint32_t to_key;
	uint32_t immediate;
};

/* Who may use local memory, beside the own device, which may write from it: bits of an enum link_may. */
enum { ACCESS_OWN = 0 };

/*
 * None of them calls back. Each call returns 0 or -errno. After `halt` nothing is written to
 * the link's window, and everything that was posted completes, as flushed.
 */
struct fabric_ops {
	const char *name;
	size_t link_bytes; /* of its own struct, which begins with struct link */
	/* Fills in l->own but for credits and echo, l->inline_max, l->write_max. */
	int (*open)(struct link *l);
	int (*connect)(struct link *l, const struct link_address *peer);
	void (*halt)(struct link *l);
	/* Of what `open` made; afterwards no new completion of this link comes. */
	void (*close)(struct link *l);
	/* Room is the caller's business: sends + LINK_SEND_RESERVE, credits + LINK_RESERVE. */
	int (*post)(struct link *l, const struct fabric_work *w);
	int (*receive)(struct link *l, uint32_t count, uint64_t tag);
	int (*add)(struct link *l, void *start, size_t bytes, uint32_t access,
		   struct link_memory *out);
	void (*drop)(struct link *l, struct link_memory *m);
	/* Completions of a link's sends come in order, of its receives too. */
	int (*poll)(struct link_context *c, struct fabric_done *out, int max);
	int (*arm)(struct link_context *c);
	/* 1: `brief`, and nothing but one notice has been taken. */
	int (*answer)(struct link_context *c, bool brief);
	void (*finish)(struct link_context *c);
	void (*abandon)(struct link_context *c);
};

struct link_context {
	const struct fabric_ops *ops;
	struct link_limits limits;
	int fd;	   /* an epoll instance of the interconnect's, with its own descriptors */
	int timer; /* in it, too: link_watch.c */
	bool is_watched; /* something may be under way: there will be a look at look_ms, */
	bool is_due;	 /* or now: the timer has said so */
	uint64_t look_ms;
	bool is_again;			       /* the timer is for what a poll has left */
	bool (*expects)(const struct link *l); /* link_expect */
	uint32_t live;			       /* links that there are */
	uint32_t stale;	     /* links whose last completions may still lie in the queue */
	uint32_t generation; /* of the last link made */
	struct link **slots; /* limits.links of them */
	struct link *owing;  /* list of the links that link_poll has to look at */
};

struct link {
	struct link_context *context;
	struct link *beside; /* link_create_beside, or NULL */
	uint32_t slot, generation;
	uint8_t state, error; /* enum link_state, enum link_error */
	bool said_hello;
	bool is_owing; /* is in the list */
	struct link *next_owing;
	void *window;
	uint64_t window_bytes;
	struct link_address own, peer;
	uint32_t inline_max, write_max;

	/* Sends: writes are counted from 1. */
	uint64_t posted, signalled, completed;
	uint64_t close_at; /* our CLOSE, or 0 */
	uint64_t
		awaited; /* the last that somebody waits for: until then each completion is told */
	uint64_t seen;	  /* completed, as was told */
	uint64_t watched; /* completed, at the last look */
	uint64_t looked;  /* posted, at the last look */
	uint8_t silent;	  /* looks since then without more */
	bool is_asked;	  /* the next write is to tell of its completion */
	bool wants_mark;  /* a drain waits for what no completion tells of */
	bool wants_room,
		wants_credit; /* link_post has refused something for lack of it */
	bool wants_ready, wants_close;

	/* Immediates of the caller's. */
	uint64_t sent;	  /* by us */
	uint64_t granted; /* of them, polled by the peer, as far as it has said */
	uint64_t taken;	  /* of the peer's, polled by us */
	uint64_t told;	  /* of them, said to the peer */
	uint32_t unposted, unposted_own; /* receives used up; by the caller's, by ours */

	uint64_t read_at; /* the last read under way, or 0 */
	bool grants_all;  /* at the next pay */

	bool error_told, peer_closed, close_told;
};

/* Limits with the defaults filled in. 0, or -EINVAL. */
int link_limits_check(struct link_limits *l);
/* Of a context that the interconnect has allocated, with ops, limits and fd set. 0 or -errno. */
int link_context_init(struct link_context *c);

/* The link's own immediates: bit 31, then what it is, then a value of 24 bits. */
enum link_control { CONTROL_READY = 1, CONTROL_GRANT = 2, CONTROL_CLOSE = 3 };
#define CONTROL_BIT UINT32_C(0x80000000)

static inline uint32_t link_control_word(enum link_control what, uint64_t value)
{
	return CONTROL_BIT | (uint32_t)what << 24 | (uint32_t)(value & 0xffffff);
}

#define LINK_TAG_RECEIVE (UINT64_C(1) << 53)

/* A tag names the link, whether it is a receive, and the low half of the write's count. */
static inline uint64_t link_tag(const struct link *l, bool is_receive, uint64_t count)
{
	return (uint64_t)l->slot << 54 | (is_receive ? LINK_TAG_RECEIVE : 0) |
	       (uint64_t)(l->generation & 0x1fffff) << 32 | (uint32_t)count;
}

static_assert(LINK_LINKS_MAX <= 1 << 10, "a slot has ten bits of the tag");

/* A link has its first error: it fails, and that becomes an event. */
void link_fail(struct link *l, enum link_error error);
/* The same, for all of them. */
void link_fail_all(struct link_context *c, enum link_error error);
/* For one, unless its own cause is still to come. */
void link_suspect(struct link *l);
/* link_poll is to look at it. */
void link_owe(struct link *l);
/* Posts what the link owes the peer, as far as there is room. */
void link_pay(struct link *l);
bool link_has_room(const struct link *l, bool with_immediate);
/* Sees to it that a write is under way that will tell of its completion. False: no room, or the
 * link has failed. */
bool link_mark(struct link *l);

/* ---- link_watch.c: a device must say what becomes of a write ---- */

/* Adds a timer to the context's descriptor. 0 or -errno. */
int link_watch_open(struct link_context *c);
void link_watch_close(struct link_context *c);
/* Something is posted. */
void link_watch_begin(struct link_context *c);
/* Fails the links of which nothing was heard. Costs a look at the clock, now and then more. */
void link_watch(struct link_context *c);
/* Empties the descriptor. */
void link_watch_answer(struct link_context *c);

#endif
