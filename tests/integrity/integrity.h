/* SPDX-License-Identifier: Apache-2.0 */
/* The integrity test: what its parts share. */
#ifndef INTEGRITY_H
#define INTEGRITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONNS_MAX   256
#define BUF_BYTES   (4u << 20)
#define HISTORY	    8
#define HISTORY_LEN 72
#define PIPE_MOST   32768u

enum side { CLIENT = 0, SERVER = 1 };

/* How one end of a connection does its input and output. */
enum mode {
	MODE_THREADS, /* two threads, blocking */
	MODE_TIMEO,   /* two threads, SO_RCVTIMEO and SO_SNDTIMEO */
	MODE_FORK,    /* two threads, and a forked child takes the sending over */
	MODE_POLL,
	MODE_SELECT,
	MODE_LT,
	MODE_ET,
	MODE_ONESHOT, /* two threads on one epoll instance */
	MODES
};

enum ending {
	END_SHUT,  /* both shut down for writing, read to the end, close */
	END_CLOSE, /* one end closes as soon as it has sent and received everything */
	END_EXIT,  /* the same, but leaves the closing to its exit */
	END_ABORT, /* one end closes in the middle, whatever is unread */
};

struct options {
	uint64_t seed;
	unsigned seconds, rounds, conns, wait_seconds;
	uint64_t bytes, volume;
	bool kill, bounce, forks, signals, hold, verbose;
	bool events; /* rounds of events.c */
	bool go_on;  /* after a failure, with the next round */
	int scene;   /* -1: all */
	bool far;    /* this is one side, and the other is on another host */
	enum side side;
	uint32_t own, peer; /* the hosts, in network order: loopback when they are one */
	int mode;	    /* -1: all */
	int side_mode[2];
	int first_round;
};

/* One direction at one end, in memory that the supervisor sees. */
struct dir_state {
	_Atomic uint64_t off, ops;
	_Atomic int phase; /* enum dir_phase */
	_Atomic unsigned history_next;
	char history[HISTORY][HISTORY_LEN];
};
enum dir_phase { DIR_IDLE, DIR_MOVING, DIR_ENDED, DIR_DEAD };

struct conn_state {
	_Atomic int fd, mode;
	struct dir_state tx, rx;
};

/* What must have happened, in rounds of events. */
#define COUNTS(X)                                                                        \
	X(SPLICE_IN, "splices into a pipe")                                              \
	X(SPLICE_OUT, "splices out of a pipe")                                           \
	X(TEE, "tees")                                                                   \
	X(RECVMMSG_CUT, "recvmmsg cut by a signal")                                      \
	X(SENDMMSG_CUT, "sendmmsg cut by a signal")                                      \
	X(SIGNAL, "signals")                                                             \
	X(DUP2_SAME, "dup2 over the same connection")                                    \
	X(DUP2_OTHER, "dup2 over another connection")                                    \
	X(FORK_EXEC, "fork and exec")                                                    \
	X(VFORK_EXEC, "vfork and exec")                                                  \
	X(SPAWN, "posix_spawn")                                                          \
	X(LOST, "bytes lost in a handing over, which both were told")                    \
	X(HANDED, "connections handed over by exec")                                     \
	X(HALF_POLL, "half-closes told by poll and select")                              \
	X(HALF_LT, "half-closes told level-triggered")                                   \
	X(HALF_ET, "half-closes told edge-triggered")                                    \
	X(HALF_ONESHOT, "half-closes told with EPOLLONESHOT")                            \
	X(COUNTED, "processes whose descriptors were counted")
enum count {
#define X(name, text) COUNT_##name,
	COUNTS(X)
#undef X
		COUNT_END
};

/* What the two ends of a pair of threads tell each other (scenes.c). */
struct pair_state {
	_Atomic unsigned port;	       /* where the server's end listens */
	_Atomic unsigned step;	       /* the scene */
	_Atomic uint64_t said[2];      /* by each side: enum said, of this step */
	_Atomic uint64_t sent, shorts; /* messages of the scene duo */
	_Atomic uint64_t handed;       /* enum handed, of this step */
};

struct shared {
	_Atomic int failed;
	_Atomic int killed; /* 0, or 1 + the side that is being killed */
	_Atomic unsigned listen_port;
	_Atomic uint64_t bounces;
	_Atomic unsigned port[CONNS_MAX]; /* the client's, once connected */
	struct conn_state conn[2][CONNS_MAX];
	_Atomic uint64_t moved; /* bytes, in rounds of events */
	_Atomic uint64_t count[COUNT_END];
	struct pair_state pair[CONNS_MAX];
};

/* What both ends know of a connection from the seed. */
struct plan {
	uint64_t total[2]; /* bytes sent by each side */
	enum ending ending;
	enum side closer;
	uint64_t cut; /* END_ABORT: the closer goes after so many bytes */
};

struct conn;

/* One direction at one end, as the threads use it. */
struct half {
	struct conn *conn;
	struct dir_state *state;
	uint64_t rng, key;
	uint64_t off, total;
	uint64_t until; /* not further for now; 0: to the end */
	int fd;
	bool blocking; /* no timeouts, no signals: MSG_WAITALL must be kept */
	bool dontwait; /* ask with MSG_DONTWAIT, the socket is blocking */
	bool done;
	bool small;	      /* small calls only */
	bool plain;	      /* read and write only */
	unsigned splice_from; /* no splice before so many calls: it may keep TCP */
	bool cut;	      /* a signal has ended a recvmmsg: see interrupted() */
};

struct conn {
	unsigned index;
	enum side side;
	enum mode mode;
	const char *scene; /* or NULL */
	unsigned step;	   /* of the scene, in the round */
	bool fragile;	   /* may end with an error that both ends are told */
	struct plan plan;
	struct conn_state *state;
	uint64_t rng;
	_Atomic bool aborted;
	_Atomic unsigned halves_done;
	bool started; /* by threads_start */
	struct half tx, rx;
	/* For the event loops. */
	bool in_ready, out_ready, hangup, registered, closed;
};

extern struct options opt;
extern struct shared *sh;
extern int sh_fd; /* its memory's, in rounds of events */
extern unsigned round_now;

/* ---- random numbers and the stream (stream.c) ---- */
uint64_t mix(uint64_t x);
uint64_t rnd(uint64_t *state);
bool chance(uint64_t *state, unsigned one_in);
uint64_t seed_of(unsigned what, unsigned index, unsigned side);
void stream_fill(uint64_t key, uint64_t off, uint8_t *buf, size_t len);
/* Index of the first wrong byte, or -1. */
ssize_t stream_check(uint64_t key, uint64_t off, const uint8_t *buf, size_t len);

/* ---- the other host (far.c) ---- */
void far_open(void);
/* Tells and hears what is new. Never blocks. */
void far_exchange(void);
/* Waits for the other side to begin the round; false at the end, or when it has failed. The
 * server says when all is done. */
bool far_begin(bool done);
/* Our side's process has ended; theirs has; theirs has failed. */
void far_gone(void);
bool far_peer_gone(void);
bool far_failed(void);
/* True once the other side knows that this one is going to be killed. */
bool far_may_kill(enum side victim);
/* The last words. */
void far_end(bool ok);
double now(void);

/* ---- one random call (calls.c, pipes.c) ---- */
enum moved { MOVED, MOVED_SHORT, MOVED_AGAIN, MOVED_EOF, MOVED_DEAD };
enum moved half_send(struct half *h);
enum moved half_recv(struct half *h);
/* True when the other end may be gone at any moment, so that errors are right. */
bool may_die(const struct conn *c);
void maybe_bounce(struct half *h);
/* Compares what was received with the stream. */
void verify(struct half *h, uint64_t off, const uint8_t *buf, size_t len);
ssize_t send_mmsg(struct half *h, uint8_t *buf, size_t len, int flags);
/* N messages, or as many as the dice say (0). */
ssize_t recv_mmsg(struct half *h, uint8_t *buf, size_t len, int flags, unsigned n);
/* At the end of a thread: what it keeps for its calls. */
void calls_done(void);
void pipes_done(void);
ssize_t send_splice(struct half *h, const uint8_t *buf, size_t len);
ssize_t recv_splice(struct half *h, uint8_t *buf, size_t len);
void count(enum count what);

/* ---- ends of connections (side.c, threads.c, loops.c) ---- */
int side_main(enum side side);
void start_signals(enum side side);
void conn_open(struct conn *c, int fd);
/* A connected socket; -1: the server has been killed. */
int connect_to(struct conn *c, unsigned port);
void plan_make(struct plan *p, unsigned index);
void conn_close(struct conn *c);
/* All is sent: says so to the peer as the plan wants it. */
void tx_finish(struct conn *c);
/* True when this end stops here, in the middle. */
bool conn_aborts(const struct conn *c);
bool rx_complete(const struct half *h);
void threads_start(struct conn *c);
void threads_join(struct conn *c);
void loop_run(enum mode mode, struct conn **conns, unsigned count, uint64_t rng);
/* In a child: closes the sockets that are not its business. */
void side_close_others(const struct half *mine);

/* ---- rounds of events (events.c, scenes.c) ---- */
int events_main(enum side side);
/* This program, executed to go on with a connection: what it was given. */
int events_resume(const char *what);
int scene_number(const char *name); /* -1: none of this name */

/* Prints what went wrong with this direction, and ends the process. */
_Noreturn void fail_at(const struct half *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void note(struct half *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
