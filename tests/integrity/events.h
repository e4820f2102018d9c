/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of events: pairs of threads, one in each process, play short scenes. */
#ifndef EVENTS_H
#define EVENTS_H

#include "integrity.h"

enum scene {
	SCENE_TALK,   /* questions and answers, then an end of each kind */
	SCENE_STREAM, /* both ways at once, with calls of each kind */
	SCENE_DUP,  /* the same, while numbers are replaced by others of the connection */
	SCENE_DUO,  /* messages by a number that is now one, now another connection */
	SCENE_MMSG, /* a signal ends a recvmmsg behind its first message */
	SCENE_HAND, /* a program that is executed goes on with the connection */
	SCENES
};
extern const char *const scene_names[SCENES];

enum goodbye {
	BYE_HALF,	/* the closer shuts its direction down, and reads on */
	BYE_SHUT_CLOSE, /* it closes at once after that */
	BYE_CLOSE,
	BYE_ABORT, /* it resets the connection */
};

/* Naps of 200 us for a peer that may be unable to send it all. */
#define PATIENCE 500

enum said { SAID_NOTHING, SAID_READY, SAID_SENT, SAID_CUT, SAID_SENT_CUT };
enum handed { HANDED_NOT, HANDED_CLEAN, HANDED_ERROR };

/* What both ends know of a scene from the seed. */
struct play {
	enum scene scene;
	unsigned index, step;
	unsigned turns, ask, answer; /* the client asks */
	enum goodbye bye;
	enum side closer;
	uint64_t rest[2];  /* bytes that each side sends behind the turns */
	bool late;	   /* the client shuts down when it has read all */
	unsigned meddlers; /* a bit for each side */
};

/* Of one thread that waits for a connection that does not block. */
struct waiter {
	int epfd;
	uint32_t mask;
	bool fired;
};

struct worker {
	enum side side;
	unsigned index;
	int listener;
};

struct end {
	const struct worker *worker;
	struct play play;
	struct conn c;
	struct waiter in, out;
	int fd;
	unsigned begin_at; /* the turn at which it begins to wait as its mode does */
	uint32_t extra;	   /* in the mask of events */
	_Atomic bool quit;
};

/* ---- events.c ---- */
/* A thread that signals may hit, from here to there. */
void target_begin(void);
void target_end(void);
/* What an executed program is given: without a report, of which there would be too many. */
char **bare_environment(void);
/* The theme of this round, or what a scene was executed with. */
int theme(void);

/* ---- one end (end.c) ---- */
void play_make(struct play *p, unsigned index, unsigned step, int theme);
void end_init(struct end *e, const struct play *p, enum side side);
/* False: the other side has been killed. */
bool end_open(struct end *e, const struct worker *w, const struct play *p);
void end_close(struct end *e);
/* False: the connection is dead, and may be. */
bool send_until(struct end *e, struct waiter *w, uint64_t off);
bool recv_until(struct end *e, uint64_t off);
bool recv_end(struct end *e);
bool turns(struct end *e);
/* Waits until the other side has said it, or has been killed (false). */
bool hear(const struct end *e, enum said what);
bool said(const struct end *e, enum said what);
void say(const struct end *e, enum said what);
void dawdle(struct end *e);
void shut(struct end *e);
/* An error of the connection that is right now, or fails. */
void may_fail(const struct half *h, const char *what);

/* ---- the scenes (scenes.c, dups.c, hand.c) ----
 * False when the other side has been killed. */
bool scene_talk(struct end *e);
bool scene_stream(struct end *e);
bool scene_duo(struct end *e);
bool scene_mmsg(struct end *e);
bool scene_hand(struct end *e);
void *meddle(void *end);

#endif
