/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on TCP connections from a seed; what each of them saw is one line of text. */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The rule of this program: on kernel TCP the same seed prints the same lines, always. So no
 * operation looks at what depends on time or on the size of a buffer; what one end has sent is
 * waited for at the other before the next operation (settle.c); and whether a call would block
 * is known from what the calls before it have returned (world.c), never asked of the socket.
 */

/* ---- random numbers: those of an operation depend on the seed and its number alone ---- */

struct dice {
	uint64_t state;
};
struct dice dice_of(uint64_t seed, uint64_t number);
/* 0 to below - 1. */
unsigned dice(struct dice *d, unsigned below);
/* True once in so many times. */
bool once_in(struct dice *d, unsigned times);
/* Mostly small, sometimes 0, rarely up to most. */
size_t dice_size(struct dice *d, size_t most);

/* ---- the transcript ---- */

void tell_to(int fd);
void tell_who(const char *who);
void tell_begin(unsigned number, const char *op);
/* A line of the operation that is under way. */
void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "12", or "-1 EAGAIN" from errno. Overwritten after eight more. */
const char *result(ssize_t value);
const char *events_of_poll(unsigned events);
const char *events_of_epoll(uint32_t events);
const char *flags_of_message(int flags);
/* Of the bytes; 0 bytes: 0. */
uint32_t checksum(const void *bytes, size_t len);

/* ---- the world ---- */

#define MOST_ENDS	 256
#define MOST_DESCRIPTORS 48

/* One end of a connection, known to all processes of the run. Ends 2n and 2n + 1 are a pair. */
struct end {
	uint64_t written, read; /* bytes, by what the calls returned */
	uint64_t sent;	 /* what the kernel has handed to the network, of settle.c */
	bool is_full;	 /* and more waits until the other end has acknowledged that */
	uint64_t unsent; /* then: how many of them */
	int holders;	 /* descriptors, in all processes */
	bool shut_write, shut_read, closed, urgent, peeks;
	bool corked; /* it holds back what an operation sends, until that is over */
	bool gone;   /* its connection is dissolved or reset: no call blocks */
	bool resets; /* a reset is on its way to it */
};

struct shared {
	uint64_t seed;
	int ends;
	struct end end[MOST_ENDS];
};
extern struct shared *shared;

enum kind { SOCKET, EPOLL };

struct descriptor {
	int fd;
	enum kind kind;
	int end; /* of a socket */
};

extern struct descriptor descriptors[MOST_DESCRIPTORS];
extern int descriptor_count;

void world_start(uint64_t seed);
/* NULL: there is none. */
struct descriptor *any_descriptor(struct dice *d);
struct descriptor *any_of(struct dice *d, enum kind kind);
/* A socket whose other end is in this process too, and nowhere else shut; NULL: none. */
struct descriptor *any_sound_pair(struct dice *d, struct descriptor **other);
struct descriptor *descriptor_of(int fd);
struct descriptor *of_end(int end);
struct end *end_of(const struct descriptor *s);
struct end *peer_of(const struct descriptor *s);
/* fd is here from now on. Room for it there must be: room_for_descriptor. */
void descriptor_add(int fd, enum kind kind, int end);
bool room_for_descriptor(void);
/* The number is closed, or about to be: in the model alone. */
void descriptor_gone(struct descriptor *s);
void end_let_go(int end);
/* The copies that a forked child has. */
void world_forked(void);
void world_leave(void);

/* Bytes that are there to be read. */
size_t unread(const struct descriptor *s);
/* A receive of len bytes could block if the descriptor does. */
bool receive_blocks(const struct descriptor *s, size_t len, int flags);
/* What may be sent without meeting the limits of any buffer. */
size_t room_to_send(const struct descriptor *s, bool nonblocking);
bool is_nonblocking(int fd);
void was_sent(const struct descriptor *s, ssize_t count);
void was_received(const struct descriptor *s, ssize_t count);
/* The next bytes of that end's stream. */
void fill_bytes(const struct descriptor *s, void *bytes, size_t len);

/* A new connection in this process. -1: no room. */
int pair_open(struct dice *d);
int listen_here(uint16_t *port);
int connect_here(uint16_t port);
/* As all ends are. */
void end_prepare(int fd);
/* Moves it out of the way of the numbers that the operations see. */
int out_of_the_way(int fd);

#define NEED(cond)                                                                       \
	do {                                                                             \
		if (!(cond))                                                             \
			broken(#cond, __FILE__, __LINE__);                               \
	} while (0)
/* The test itself failed. */
_Noreturn void broken(const char *what, const char *file, int line);

/* ---- waiting until what was sent has come (settle.c) ---- */

void settle(void);
/* What this process's ends have sent so far. */
void settle_publish(void);
/* The kernel's own, past every library. */
long raw_call(long number, long a, long b, long c, long d, long e);
int raw_option(int fd, int level, int name);

/* ---- other processes that hold an end (peer.c) ---- */

#define PEERS 2
void peers_start(void);
void peers_end(void);
pid_t peer_pid(int peer);
/* Has the peer do operation `number`, and waits for its end. */
void peer_perform(int peer, unsigned number);
/* A new connection to the peer. */
void peer_connect(int peer, struct dice *d);
/* Sends it a descriptor of that end. */
ssize_t peer_give(int peer, const struct descriptor *s);

/* ---- operations ---- */

/* What is known to differ, until that is mended. */
bool pending(void);

struct op {
	const char *name;
	void (*run)(struct dice *d);
	unsigned weight;
};
/* Each ends with a name of NULL. */
extern const struct op ops_send[], ops_receive[], ops_option[], ops_descriptor[],
	ops_poll[], ops_epoll[], ops_process[], ops_wrong[], ops_thread[], ops_mixed[],
	ops_batch[], ops_ready[], ops_connect[], ops_file[], ops_odd[], ops_held[];

/* Operation `number` of the seed, `depth` processes below the first. */
void perform(unsigned number, int depth);
extern int perform_depth;
extern unsigned perform_number;

/* A short count followed by the rest equals the whole (docs/contract.md). So the rest of count messages, of which n
 * have been moved, is asked for until there is none. Returns how many it is in all. */
struct mmsghdr;
int receive_rest(int fd, struct mmsghdr *m, unsigned count, int flags, int n);
int send_rest(int fd, struct mmsghdr *m, unsigned count, int n);

/* Corked ends of this process send what they hold back (ops_option.c). */
void held_let_go(void);
/* Starts this program with s, in a random way, and waits for its end (ops_process.c). */
void carry(struct dice *d, struct descriptor *s);
int wait_for(pid_t pid);
/* Sends fd to itself (ops_descriptor.c). Returns the number that came. */
int fd_in_message(int fd);

/* What came since the last call of this, and is told with each operation. */
void signals_prepare(void);
void signals_tell(void);

/* A page without access, one that is read-only, and the end of one with another behind. */
void *bad_page(void);
/* Continues in an image of this program that was executed with an end. */
int carried_main(int argc, char **argv);

#endif
