/* SPDX-License-Identifier: Apache-2.0 */
/* A link: remote writes between two processes, on which all their connections travel. */
#ifndef VD_RDMA_LINK_H
#define VD_RDMA_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * docs/rdma.md has the protocol and its invariants.
 *
 * A *context* is what a process has of one interconnect: a completion queue and a descriptor
 * to sleep on, for all of its links. Each end of a link has a *window*: memory of its own
 * that the other end, and nobody else, may write to and read.
 *
 * Calls on one context, and on its links, are made one at a time: the caller has a lock.
 * None of them blocks, but for opening, connecting, registering and destroying, which make
 * system calls. They return 0 or a count, or -errno. A forked child may call nothing but
 * link_context_abandon.
 */
struct link_context;
struct link;

enum {
	LINK_HELLO_BYTES = 80,
	LINK_FLAG_BITS = 8, /* of an immediate: the caller's own */
	LINK_GENERATION_BITS = 8,
	LINK_ID_BITS = 15,
	LINK_IDS = 1 << LINK_ID_BITS,
};

enum link_state {
	LINK_OPEN,    /* has a hello; knows no peer */
	LINK_WAITING, /* connected, and the peer may not be yet: nothing may be posted */
	LINK_UP,
	LINK_CLOSING, /* our close is said: nothing more may be posted */
	LINK_FAILED,  /* for good: what the peer still writes is refused */
};

enum link_error {
	LINK_FINE = 0,
	LINK_PEER_DEAD,	   /* no answer: its process, its host or the way there is gone */
	LINK_PEER_REFUSED, /* its device refuses: not its window, or its memory is gone */
	LINK_PEER_WRONG,   /* it does not keep to the protocol */
	LINK_PEER_CLOSED,  /* it has closed, in order */
	LINK_LOCAL_FAULT,  /* memory that is not registered, or a call that was refused */
	LINK_BROKEN, /* the queue pair failed without a cause: that may be the peer's doing */
	LINK_DEVICE_LOST,
	LINK_ABORTED, /* link_abort */
	LINK_ERRORS,
};

/* What a context is made for, at most. 0 means a default. */
struct link_limits {
	uint32_t links;	   /* at a time: LINK_LINKS_MAX */
	uint32_t credits;  /* immediates to us under way, per link: LINK_CREDITS_MAX */
	uint32_t sends;	   /* writes under way, per link: LINK_SENDS_MAX */
	uint32_t watch_ms; /* eleven times that without a completion: the link fails */
};

enum {
	LINK_CREDITS_MIN = 4,
	LINK_CREDITS_MAX = 8192,
	LINK_SENDS_MIN = 4,
	LINK_SENDS_MAX = 4096,
	LINK_WATCH_MAX = 60000,
	LINK_LINKS_MAX = 1024,
};

/* Local memory that a link may read from; or its peer, or that this may write to. */
struct link_memory {
	void *handle;
	uintptr_t start;
	uint64_t bytes;
	uint32_t key;	   /* for the own device */
	uint32_t peer_key; /* for the peer: link_share, link_offer */
};

enum link_write_flags {
	LINK_IMMEDIATE = 1, /* the peer gets `immediate`, after the bytes */
	LINK_SIGNAL = 2,    /* its completion is wanted soon, and LINK_EVENT_DONE */
	LINK_OFFERED = 4, /* not to the window, but to memory that the peer has offered */
};

struct link_read {
	const struct link_memory
		*memory; /* holds `into`; NULL: it goes to our own window, */
	uint64_t to;	 /* to this offset */
	void *into;	 /* with memory (LINK_MAY_SINK): there */
	uint32_t bytes;	 /* not 0 */
	uint32_t flags;	 /* LINK_OFFERED */
	uint64_t
		from; /* offset in the peer's window; with LINK_OFFERED an address there */
	uint32_t key; /* with LINK_OFFERED: that memory's, which is shared */
};

struct link_write {
	const void
		*from;	/* not to be changed until the write is complete, unless inline */
	uint32_t bytes; /* may be 0 */
	uint32_t flags;
	const struct link_memory *memory; /* holds all of it; NULL: inline */
	uint64_t at; /* offset in the peer's window; with LINK_OFFERED an address there */
	uint32_t key;	    /* with LINK_OFFERED: that memory's */
	uint32_t immediate; /* link_immediate() */
};

enum link_event_type {
	LINK_EVENT_UP,	      /* a link that was waiting may be used */
	LINK_EVENT_IMMEDIATE, /* and all bytes that were posted before it are here */
	LINK_EVENT_ROOM,      /* after -EAGAIN: try again, it may be refused again */
	LINK_EVENT_DONE,      /* more is complete of what is waited for */
	LINK_EVENT_READ,      /* all of link_read is: what they have read is here */
	LINK_EVENT_CLOSED,    /* the peer posts nothing more, nor may we */
	LINK_EVENT_FAILED,    /* the last event of a link; see link_error() */
};

struct link_event {
	struct link *link;
	enum link_event_type type;
	uint32_t immediate, bytes; /* of an immediate's own write */
};

/* ---- set-up ---- */

/* Gives up all that the context has; its links must be destroyed. */
void link_context_destroy(struct link_context *c);
/*
 * In a forked child: closes the inherited descriptors, and leaves everything else alone.
 * To destroy there would end the parent's links.
 */
void link_context_abandon(struct link_context *c);

/*
 * Makes an end, with a window of the caller's; that must stay until link_destroy.
 * -ENOSPC: the context has as many links as it is made for. -EAGAIN: it will have room once
 * link_poll has returned less than asked for.
 */
int link_create(struct link_context *c, void *window, uint64_t bytes, struct link **out);
/*
 * One more between the same two processes, for what may fail without harm to the first. Memory
 * that is registered with one of the two is good with both. It is destroyed before the first.
 */
int link_create_beside(struct link *first, void *window, uint64_t bytes,
		       struct link **out);
/*
 * The own hello: LINK_HELLO_BYTES, opaque. One end, the *first*, gives its hello away before
 * it has the peer's. The *second* connects to that, and only then its own hello is made,
 * which answers the first's. So the first may post as soon as it has connected, and the
 * second waits for LINK_EVENT_UP: what came too early would be lost for a while.
 */
int link_hello(struct link *l, uint8_t hello[LINK_HELLO_BYTES]);
/*
 * Takes the peer's hello. -EPROTO: it is damaged, or answers another link's. -EPROTONOSUPPORT:
 * version, feature or interconnect is another. Both leave the link as it was, and *why is a
 * sentence. -EISCONN: has been connected. Anything else: the link has failed.
 */
int link_connect(struct link *l, const void *hello, size_t bytes, const char **why);
/* It leads to a device that has this address (IPv4 mapped), as the peer's of a connection with it
 * does. InfiniBand's addresses are others: of those nothing is known. */
bool link_hello_is_at(const uint8_t hello[LINK_HELLO_BYTES], const uint8_t address[16]);
/*
 * At any time; all memory must have been unregistered. Only from here on it is sure that nobody
 * writes to the window: a write that was arriving when the link failed may land late.
 */
void link_destroy(struct link *l);

/* What others may do with local memory than to write from it. */
enum link_may {
	LINK_MAY_READ = 1,  /* the peer, once it knows address and key: to read it */
	LINK_MAY_WRITE = 2, /* the peer: to write there */
	LINK_MAY_SINK = 4,  /* our own device: to write there what link_read has read */
};
/* Local memory to write from, of which nobody may do more. -errno of the system's. */
int link_register(struct link *l, void *start, size_t bytes, struct link_memory *out);
/* The same, for some of those. */
int link_allow(struct link *l, void *start, size_t bytes, uint32_t may,
	       struct link_memory *out);
/* The same, which the peer may read once it knows address and key. */
int link_share(struct link *l, void *start, size_t bytes, struct link_memory *out);
/* Local memory that the peer may write to, beside the window, once it knows address and key. */
int link_offer(struct link *l, void *start, size_t bytes, struct link_memory *out);
/*
 * Memory to write from, or to read to: once all that was posted with it is complete, or the link has
 * failed. What the peer may use: at any time. From here on nothing is written there; a write that the peer has under way, or begins,
 * fails the link that it is on.
 */
void link_unregister(struct link *l, struct link_memory *m);

/*
 * Asked about a second after a write, and then again each second while true: something of the
 * peer's is waited for, so its death is to be noticed though nothing of ours is under way.
 */
void link_expect(struct link_context *c, bool (*expects)(const struct link *l));

/* ---- writing ---- */

/*
 * -EAGAIN: no room in the send queue, or no credit for an immediate; LINK_EVENT_ROOM follows.
 * -ENOTCONN: waiting. -EPIPE: failed or closed. -EFAULT: outside of `memory` or of the peer's
 * window (an offer's bounds the peer's device alone checks), or too long to be inline.
 * -EMSGSIZE: more than link_write_max.
 * Any other failure fails the link.
 */
int link_post(struct link *l, const struct link_write *w);
/* True: so many writes or reads would find room now. Else LINK_EVENT_ROOM follows. */
bool link_room(struct link *l, uint32_t count);
/* LINK_EVENT_ROOM is wanted when the peer grants more. */
void link_want_credit(struct link *l);
/* Immediates that may be posted before the peer grants more; and that were posted so far. */
uint32_t link_credit(const struct link *l);
uint64_t link_immediates(const struct link *l);
/* Of these, what the peer has granted again. */
uint64_t link_granted(const struct link *l);
/*
 * Reads of the peer's memory into our own, after all that was posted before: what is read
 * has been there since that arrived. As link_post; LINK_EVENT_READ follows, once for several.
 */
int link_read(struct link *l, const struct link_read *r);
/*
 * Grants the peer all immediates that have been polled, now. As link_post. Twice at most before the
 * peer polls: who asks for it has heard of the one before (link_granted).
 */
int link_grant(struct link *l);
uint32_t link_inline_max(const struct link *l);
uint32_t link_write_max(const struct link *l);
uint64_t link_peer_window(const struct link *l);
/* Writes posted and completed so far; a completed one is in the peer's memory, and its
 * source may be used again. The link's own writes count as well: compare, do not reckon. */
uint64_t link_posted(const struct link *l);
uint64_t link_completed(const struct link *l);
/*
 * 1: all that was posted is complete. 0: not yet; ask again at the next event. -EPIPE: failed.
 * A peer that has died fails the link in bounded time; who wants a bound of its own uses
 * link_abort.
 */
int link_drain(struct link *l);
/*
 * Writes nothing to the peer, so that its death is noticed: by an idle end, or by one that
 * waits for credit, it is not. 0, or as link_post. A device answers in a stopped process's
 * place.
 */
int link_probe(struct link *l);
/*
 * Says that we post nothing more. The same results; 1 means that the peer has closed, too.
 * Drain before: a peer may close with writes of ours unread.
 */
int link_close(struct link *l);
/* Fails the link, so that nothing is under way any more, in either direction. */
void link_abort(struct link *l);

enum link_state link_state(const struct link *l);
enum link_error link_error(const struct link *l);
const char *link_error_text(enum link_error error);

/* ---- hearing ---- */

/*
 * Fills in at most `max` events. A return of less than `max` means that nothing was left.
 * Before a sleep: arm, poll until that, then sleep until the descriptor is readable, answer.
 * `brief`: of completions no more than one notice is taken, and nothing else then, so that the
 * descriptor may stay readable: not for who waits for edges.
 */
int link_poll(struct link_context *c, struct link_event *out, int max);
/* With so many events, of full polls in a row, all has been told of that had come before the first. */
uint32_t link_backlog(const struct link_context *c);
/* Who does not poll until nothing is left: the descriptor is readable at once, and until it is answered. */
void link_again(struct link_context *c);
int link_fd(const struct link_context *c);
int link_arm(struct link_context *c);
int link_answer(struct link_context *c, bool brief);

/* ---- immediates ---- */

/* `id` and `generation` are those of the connection at the receiving end. */
static inline uint32_t link_immediate(uint32_t id, uint32_t generation, uint32_t flags)
{
	return (id & (LINK_IDS - 1)) << 16 | (generation & 0xff) << 8 | (flags & 0xff);
}

static inline uint32_t link_immediate_id(uint32_t immediate)
{
	return immediate >> 16 & (LINK_IDS - 1);
}

static inline uint32_t link_immediate_generation(uint32_t immediate)
{
	return immediate >> 8 & 0xff;
}

static inline uint32_t link_immediate_flags(uint32_t immediate)
{
	return immediate & 0xff;
}

#endif
