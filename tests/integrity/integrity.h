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
	uint64_t bytes;
	bool kill, bounce, forks, signals, hold, verbose;
	bool far; /* this is one side, and the other is on another host */
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

struct shared {
	_Atomic int failed;
	_Atomic int killed; /* 0, or 1 + the side that is being killed */
	_Atomic unsigned listen_port;
	_Atomic uint64_t bounces;
	_Atomic unsigned port[CONNS_MAX]; /* the client's, once connected */
	struct conn_state conn[2][CONNS_MAX];
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
	int fd;
	bool blocking; /* no timeouts, no signals: MSG_WAITALL must be kept */
	bool dontwait; /* ask with MSG_DONTWAIT, the socket is blocking */
	bool done;
};

struct conn {
	unsigned index;
	enum side side;
	enum mode mode;
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

/* ---- one random call (calls.c) ---- */
enum moved { MOVED, MOVED_SHORT, MOVED_AGAIN, MOVED_EOF, MOVED_DEAD };
enum moved half_send(struct half *h);
enum moved half_recv(struct half *h);
/* True when the other end may be gone at any moment, so that errors are right. */
bool may_die(const struct conn *c);
void maybe_bounce(struct half *h);

/* ---- ends of connections (side.c, threads.c, loops.c) ---- */
int side_main(enum side side);
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

/* Prints what went wrong with this direction, and ends the process. */
_Noreturn void fail_at(const struct half *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void note(struct half *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
