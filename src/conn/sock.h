/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP socket as this process sees it, and what the layers above may do with it. */
#ifndef VD_CONN_SOCK_H
#define VD_CONN_SOCK_H

#include <limits.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/atomic.h"
#include "base/reason.h"
#include "base/sections.h"
#include "base/tcp.h"
#include "conn/report.h"
#include "conn/slot.h"
#include "ring/copy_nt.h"
#include "ring/wire.h"

/* The kernel moves no more than this in one call, and cuts what is longer. */
#define SOCK_MOVE_MAX (INT_MAX & ~4095)

/* Returned by the calls below instead of a result: do this one in the kernel. */
#define SOCK_KERNEL (-4096)

struct peer;
struct epoll_reg;
struct sock;

/* Accepted connections of this process whose connectors may still look for us. */
NEAR_EXTERN _Atomic uint32_t sock_awaited;
extern void (*sock_on_none_awaited)(void); /* the last of them has gone */

/* Set by the layer above; NULL when it has nothing to do. Called without locks. */
/* Whether it can be attached now: otherwise the question is put again at each operation. */
extern bool (*sock_may_attach)(struct sock *s);
extern void (*sock_on_attach)(struct sock *s); /* before any direction can leave TCP */
extern void (*sock_on_final)(struct sock *s);  /* kernel TCP for good */
/* After that: the doorbells are to be closed. False when they still are in use up there. */
extern bool (*sock_on_release)(struct sock *s);

/*
 * Private to the process (a fork copies it), one for each slot of the table, never freed;
 * a close and a later socket re-use it.
 */
struct sock {
	/* A connection that ends before it meets its peer writes to this line alone. */
	alignas(64) struct slot *slot;
	/* Set once at attach, while the process holds the socket alone; same in forks. */
	struct wire *wire; /* NULL while not attached */
	/* Registrations in epoll instances of this process; guarded by the epoll lock. */
	struct epoll_reg *regs;
	_Atomic uint32_t fds;	   /* descriptors of this process that refer to it */
	_Atomic uint32_t inside;   /* threads of this process in a counted kernel call */
	_Atomic uint32_t sleepers; /* threads of this process asleep on bell */
	_Atomic uint32_t awaited;  /* accepted, and its connector may still look for us */
	_Atomic uint32_t edges;	   /* kernel events noted, see looked */
	_Atomic uint32_t looked;   /* edges when the kernel last had nothing to read */
	/* Others may have the socket, too: the process has forked since it has it, or has passed it on. */
	_Atomic bool is_copied;
	bool is_native; /* a connection of the native interface; not in forked children */
	bool has_listened; /* it may be announced: see announce.c */
	bool is_blank; /* what follows this line is as an open leaves it: see sock_reset */
	/* The ring is the parent's. Its peer is on another host, and this process was forked: while
	 * it has the socket, both directions stay on TCP. */
	_Atomic bool elsewhere;
	_Atomic bool closed;   /* last descriptor closed, waits for the sleepers */
	_Atomic bool look_due; /* the kernel ended a receive: a sender is to ask why */
	/* It has never left TCP, and never will: no operation on it is counted, or looked at. See give_up. */
	_Atomic bool is_plain;
	int meet_fd; /* connector: the published name, or the accepted offer; else -1 */
	_Atomic int kept_fd; /* of a closed one, for threads asleep on it; or -1 */

	struct wire
		*window; /* where the segment was ever mapped: stays mapped for ever */
	struct wire_dir *in, *out; /* the direction we receive, and the one we send */
	uint8_t *in_data, *out_data;
	uint8_t *link_data; /* in_data while a link writes there; under rx_lock */
	/* The doorbells. They go before the mapping does, see bell.c: who takes one of these
	 * numbers into a call is counted, in bell_users or in sleepers, before he reads it. */
	_Atomic int bell; /* eventfd on which this end sleeps */
	_Atomic int
		peer_bell; /* eventfd on which a peer of the same user sleeps, else -1 */
	/* A peer of another user: rings it, is rung by it, sleeps on it too. */
	_Atomic int far_bell;
	_Atomic uint32_t bell_users; /* threads of this process that ring or answer */
	/* The peer is on another host, and is told of what we do by this; set before attach.
	 * Not in forked children. Read racily: a handle is good memory for ever. */
	struct peer *_Atomic peer;
	uint64_t look_end_ms; /* until then it is looked for; 0: always. Under ctl */
	_Atomic uint64_t owner_due_ms; /* when to ask if it lives: peer_alive.c */
	_Atomic uint64_t vain_at; /* tick at which such a one last asked the kernel */
	_Atomic uint32_t cpu;	  /* last told to the peer: TOLD_CPU and so on */
	_Atomic uint32_t vain;	  /* looks without waiting that found nothing */
	_Atomic uint32_t rush;	  /* arrivals in a row right after the last */
	/* Spin history: see wait.c. Relaxed: a guess about the next wait. */
	_Atomic uint8_t spin_failed, brief_failed; /* the second: see brief_skip */
	_Atomic uint16_t spin_skip;
	/* The same of brief looks, and where the stream sent stood at the last, its low bits: see brief.c. */
	_Atomic uint16_t brief_skip, brief_sent;
	/* After a fork: see peer_may_go_up. Relaxed, all: guesses about the next fork. */
	_Atomic uint32_t ground_ms;
	_Atomic uint64_t forked_ms, ground_until_ms;
	/* Where the peer had come to when a ring was found full, and when that was (ns; 0: none was).
	 * Relaxed, both: who reads them amid a change waits a little longer. */
	_Atomic uint64_t stuck_at, stuck_ns;
	/* Bytes through the ring, not yet in report_now. Guarded by tx_lock and rx_lock. */
	uint64_t tx_bytes, rx_bytes;
	struct past past; /* under tx_lock */
	/* Where the ring stood when it was last looked at, and since when. Under tx_lock. */
	uint64_t still_at, still_since_ms;
	/* What was unread in the ring when the process stood down: see left.c. */
	struct left *left;
	/* What peeks have shown: shown.h; or NULL. Set once, by whoever peeks or forks first. */
	struct shown *_Atomic shown;
};

/* ---- descriptors (fdtab.c) ---- */

/* NULL for everything that is not a TCP socket of ours. A few nanoseconds, lock-free. */
NEAR_EXTERN struct sock *_Atomic *fd_table;
NEAR_EXTERN int fd_table_end;  /* as long as it is mapped */
NEAR_EXTERN int fd_table_size; /* 0 until the table is there: everything is unknown */
static inline struct sock *fd_sock(int fd)
{
	if ((unsigned)fd >= (unsigned)fd_table_size)
		return NULL;
	/* Acquire: the sock was made ready before it was put into the table. */
	return load_acquire(&fd_table[fd]);
}
/* For a call under way: the same also after fd_stand_down. */
static inline bool fd_is(int fd, struct sock *s)
{
	return (unsigned)fd < (unsigned)fd_table_end && load_acquire(&fd_table[fd]) == s;
}
/* The number is the connection's, or a duplicate kept for who holds it. */
static inline bool sock_has(struct sock *s, int fd)
{
	return fd_is(fd, s) || fd == load_acquire(&s->kept_fd);
}
/* How often a number of these has been taken from a connection, each counted before it is another file's, in
 * FD_TAKEN_ONCE; and how many are another file's which the table does not say yet. */
#define FD_TAKEN      64u
#define FD_TAKEN_ONCE 256u
NEAR_EXTERN _Atomic uint32_t fd_taken[FD_TAKEN];
/* Before a call of the kernel's by the number, for sock_had behind it: whether what that has said is of the connection. */
static inline uint64_t sock_mark(struct sock *s, int fd)
{
	uint64_t taken = load_acquire(&fd_taken[(unsigned)fd % FD_TAKEN]);
	return sock_has(s, fd) && taken % FD_TAKEN_ONCE == 0 ? taken << 1 | 1 : 0;
}
static inline bool sock_had(struct sock *s, int fd, uint64_t mark)
{
	return mark && sock_mark(s, fd) == mark;
}
/* The lowest number of s, or -1. */
int fd_number(struct sock *s);
/* Nothing is known to any call from now on. */
void fd_stand_down(void);
/* Maps the descriptor and slot tables. Once, before threads. 0 or -errno. */
int fd_table_init(void);
/* A new TCP socket in the kernel: gives it a slot. Ignores failure: the fd stays unknown.
 */
struct sock *fd_open_socket(int fd, bool nonblock);
/* accept() returned fd. */
struct sock *fd_open_accepted(int fd, bool nonblock);
/* A connection that another image of this process had. fd is not one of the first three. */
struct sock *fd_open_carried(int fd, bool nonblock, enum tcp_role role);
/* connect() was begun on fd. */
void fd_connecting(struct sock *s, int fd);
/* newfd is a duplicate of oldfd. The kernel has already done it. */
void fd_duplicated(int oldfd, int newfd);
/*
 * Before the kernel closes fd (or re-uses its number). The connection's last words are
 * said here. Returns false when the descriptor is Viaduct's own and must not be closed.
 */
bool fd_closing(int fd);
/*
 * The same for a connection that ends as it began, with nobody there to whom that would have to be said:
 * no step towards a ring, no other thread, no fork yet. False: fd_closing is to do it, nothing has changed.
 */
bool fd_closing_short(int fd);
/* Another call has returned the number fd for something that is not a TCP socket of ours. */
void fd_forget(int fd);
/* One past the highest descriptor that may be known. */
int fd_limit(void);

/* ---- the gate of an operation (gate.c) ---- */

/*
 * Gate of one operation. SOCK_DIRECT: call rx_recv or tx_send. SOCK_COUNTED: note it, and end the critical section
 * that has begun here; make the kernel call, then call rx_leave or tx_leave with its result (COUNTED). SOCK_PLAIN: make
 * the kernel call. Never blocks.
 */
enum sock_way { SOCK_PLAIN, SOCK_COUNTED, SOCK_DIRECT };
enum sock_way rx_enter_slow(struct sock *s, int fd);
enum sock_way tx_enter_slow(struct sock *s, int fd);
static inline enum sock_way rx_enter(struct sock *s, int fd)
{
	return gate_state(&s->slot->gate_rx) == GATE_RING ? SOCK_DIRECT
							  : rx_enter_slow(s, fd);
}
static inline enum sock_way tx_enter(struct sock *s, int fd)
{
	return gate_state(&s->slot->gate_tx) == GATE_RING ? SOCK_DIRECT
							  : tx_enter_slow(s, fd);
}
void rx_leave(struct sock *s, ssize_t result);
void tx_leave(struct sock *s, ssize_t result);
/* A poll or select is about to block in the kernel on fd before any upgrade: counted like
 * a receive. Returns false when the socket is direct by now, or closed (look again). */
bool sock_poll_enter(struct sock *s, int fd);
void sock_poll_leave(struct sock *s);

/* ---- sending and receiving (rx.c, tx.c) ---- */

/*
 * Receive and send as recvmsg and sendmsg do, without names and control data. Return a
 * count, -errno, or SOCK_KERNEL when the direction has gone back to TCP before anything
 * was moved: enter again. Block as the socket and the flags say; SIGPIPE is raised here.
 */
ssize_t rx_recv(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags);
ssize_t tx_send(struct sock *s, int fd, const struct iovec *iov, int iovcnt, int flags);
/* A send of no bytes tells of errors as any other. -errno, of one that only Viaduct knows; 0: the kernel is to be asked. */
ssize_t tx_send_none(struct sock *s, int fd, int flags);
/* Sends count bytes of in_fd from *offset (or its own position when NULL). */
ssize_t tx_sendfile(struct sock *s, int fd, int in_fd, off64_t *offset, size_t count);

/* ---- readiness (level.c) ---- */

/* True when readiness must be asked here rather than of the kernel. */
static inline bool sock_is_direct(struct sock *s)
{
	/* Acquire: the segment was stored before the phase said ATTACHED. */
	uint32_t phase = load_acquire(&s->slot->phase);
	return phase == SLOT_ATTACHED || phase == SLOT_LEAVING;
}
/* EPOLLIN, OUT, RDHUP, HUP, ERR, PRI as the kernel would give them for a TCP socket. */
uint32_t sock_level(struct sock *s, int fd);
/*
 * EPOLLIN and EPOLLOUT of `interest` from memory only, for hot loops. With SOCK_LOOK in the
 * result memory does not tell: ask sock_level.
 */
#define SOCK_LOOK (1u << 27)
uint32_t sock_level_quick(struct sock *s, uint32_t interest);
/*
 * Memory has nothing, and the caller does not wait. True when the kernel is to be asked as well: at
 * bounded intervals of such looks, and when the peer has said that it closes. A peer that has sent within
 * that interval was there. Some programs ask once only, after a long time, whether a connection is still
 * good: that look is one of them.
 */
bool sock_vain_look(struct sock *s);
/* The same for a caller that leaves it, where the kernel is to be asked, to sock_vain_look. */
bool sock_vain_is_due(struct sock *s);
/* Rise whenever something arrives in the ring, or finds no room: for edge triggers. */
uint64_t sock_edge_in(struct sock *s);
/* Changes when what comes goes to the ring or to TCP: as the peer says so, and with the gate. */
uint64_t sock_moves(struct sock *s);
/* What it sends comes by TCP again. */
bool sock_peer_has_left(struct sock *s);
/* From now on sock_came knows when bytes came to the ring. */
void sock_want_times(struct sock *s);
/* When the first unread byte did, in ticks of the processors' clock: 0 when that is not known,
 * as for all that TCP carries. A hint: the peer says it. */
uint64_t sock_came(struct sock *s);
/* The same, of those that have come since sock_edge_in was `edge`. */
uint64_t sock_came_since(struct sock *s, uint64_t edge);
/* When the peer shut down, or closed: the same. */
uint64_t sock_ended(struct sock *s);

/* ---- doorbells (bell.c) ---- */

/*
 * Before sleeping on fd, s->bell and s->far_bell: the peer will ring for what `interest` (EPOLLIN,
 * EPOLLOUT) names. After it, ask sock_level once more before sleeping.
 */
void sock_arm(struct sock *s, uint32_t interest);
/*
 * As sock_arm, where room is an edge, of which the sleeper was last told at this count of sock_edge_out:
 * for EPOLLOUT he is counted, and the peer rings only once somebody has found no room since.
 */
void sock_arm_edge(struct sock *s, uint32_t interest, uint64_t told);
/* Rises when somebody finds no room, and when what is sent goes to the ring. */
uint64_t sock_edge_out(struct sock *s);
/* No room was found: the room that comes is an edge, and the peer rings for it where somebody is counted
 * as asleep. Look once more afterwards. */
void sock_lacks_room(struct sock *s);
/* After the sleep. Leaves it armed when other threads still sleep. */
void sock_disarm(struct sock *s, uint32_t interest);
/* Wakes who sleeps on this end, in all its processes. Never blocks, and sets no errno. */
void sock_ring_self(struct sock *s);
/* The bells that are said were found readable by a poll that will not see them again: empties
 * them, and rings again when other sleepers have something to do. */
void sock_answer_bells(struct sock *s, bool own, bool far);
/* An epoll instance was told of the bell. A far bell that has no room left would ring no
 * more, so it must be emptied even there: other sleepers are rung for as above. */
void sock_hear_bell(struct sock *s);
/* A bell that is far bell to other connections, too, and stays: an instance needs it once, in
 * place of each one's own. Or -1: there is none. */
int sock_shared_bell(struct sock *s);
/* It was found readable: rings the own bells of those that are concerned. */
void sock_hear_shared_bell(void);

/* ---- a socket in use (limbo.c) ---- */

/* Holds mapping and doorbells of s while a thread looks or sleeps; false when fd no longer
 * is s. */
bool sock_hold(struct sock *s, int fd);
void sock_unhold(struct sock *s);
/* The socket of fd, held for a short step in a critical section, so that no handler jumps away with the
 * hold: whoever goes through the table does not look at what other threads close, or take anew. NULL:
 * there is none. sock_let_go follows. */
struct sock *sock_hold_at(int fd);
void sock_let_go(struct sock *s);

/* ---- who uses it (peer_hint.c) ---- */

/*
 * What an end tells its peer of the thread that last used it there: the processor that it ran on,
 * plus 1; the thread, not in full; and that the thread waits for more others than there are
 * processors. Hints. 0 was never told.
 */
#define TOLD_CPU	  0x00003fffu
#define TOLD_THREAD	  0x7fffc000u
#define TOLD_THREAD_SHIFT 14
#define TOLD_CROWD	  0x80000000u
/* Of this thread: what is to be told, but for the processor. */
extern _Thread_local uint32_t wait_self __attribute__((tls_model("initial-exec")));
/* That this process may run on, at its start. */
extern uint32_t wait_processors;
void wait_init(void);
/* Before a sleep, and so rarely where it matters. */
static inline void wait_know_self(bool crowd)
{
	wait_self = ((lock_self() << TOLD_THREAD_SHIFT) & TOLD_THREAD) |
		    (crowd ? TOLD_CROWD : 0);
}
/* By what the peer has told: the two are on one processor. */
static inline bool wait_shares_cpu(struct sock *s, uint32_t told)
{
	uint32_t cpu = load_relaxed(&s->cpu);
	return told != 0 && ((told ^ cpu) & TOLD_CPU) == 0;
}
/* A spin for it would be in vain, or in the way of others. */
static inline bool wait_is_in_the_way(struct sock *s, uint32_t told)
{
	return (told & TOLD_CROWD) || wait_shares_cpu(s, told);
}

/* ---- what is found out about the peer (verdict.c) ---- */

/* The kernel reported poll events for the TCP descriptor: takes note. */
void sock_note_kernel(struct sock *s, uint32_t events);
/* Asks the kernel what became of the TCP connection, and notes it. */
void sock_look(struct sock *s, int fd);
/*
 * The peer has shut down its direction, as it says itself. Said once, that holds: whoever asks here
 * may tell the program.
 */
bool sock_has_fin(struct sock *s);
/* A call has ended early by this error, which is the next one's to tell. */
void sock_keep_error(struct sock *s, int error);
/* Before the kernel is asked for the pending error: what it will tell is known by then. */
void sock_error_ask(struct sock *s, int fd);
/* SO_ERROR: the pending error that only Viaduct knows, cleared by asking; 0 when none. */
int sock_take_error(struct sock *s);
/* The kernel has told the program of an error, ECONNRESET: it is not told again by Viaduct. */
void sock_error_told(struct sock *s);
/* The same where a call of the kernel's has sent less than it was to, and one of its sends may have taken the error. */
void sock_ended_short(struct sock *s, int fd);

/* ---- the switch, seen from outside (switch_rx.c, switch_tx.c) ---- */

/* Nothing is due on TCP but the end: it may be slept on for bytes that nobody announced. */
bool sock_is_quiet(struct sock *s);
/* The TCP descriptor is readable without being at its end: bytes that nobody announced end
 * the connection. */
void sock_check_bypass(struct sock *s, int fd);
/* For tests, set before there are threads: who accepted sends over TCP. */
extern bool sock_one_way;

/* ---- control (control.c) ---- */

/* Serves the peer's requests and advances the switch in both directions. */
void sock_service(struct sock *s, int fd);
/* The same, without a look for what has come from another host. */
void sock_serve(struct sock *s, int fd);
/* The same where a peer on another host has asked for something: another thread may have heard it,
 * and rings for those alone that had armed by then. */
void sock_serve_heard(struct sock *s, int fd);
/* Goes back to TCP for good, with a reason; returns at once. The ring is read to its end.
 */
void sock_down(struct sock *s, int fd, enum vd_reason reason);
/* The same for a connection that somebody else will read: the peer sends what lies unread
 * in our ring over TCP. */
void sock_hand_over(struct sock *s, int fd, enum vd_reason reason);
/* Another process gets a descriptor of it, by a message or an exec. */
static inline void sock_passed(struct sock *s)
{
	store_relaxed(&s->is_copied, true);
}
/* Its file may outlive the last descriptor here. */
static inline bool sock_may_outlive(struct sock *s)
{
	return load_relaxed(&s->is_copied) || !slot_is_alone(s->slot);
}
/* Only asks for the unread bytes: where several are handed over, each end of a connection with
 * itself asks before the other leaves the ring. */
void sock_ask_over(struct sock *s, int fd, enum vd_reason reason);
/* Hands over all that is meant: all are asked before the first leaves its ring. True when there was one.
 * Other threads may open and close meanwhile. */
bool sock_hand_over_each(bool (*is_meant)(struct sock *s, int fd), enum vd_reason reason);
/* As sock_hand_over, where both ends read on: our own sending goes down only when the peer has answered,
 * which then asks for its unread bytes, too. */
void sock_yield(struct sock *s, int fd, enum vd_reason reason);
/* The kernel is about to dissolve the connection, which tells who sleeps in a receive; or it did not. */
void sock_dissolving(struct sock *s, bool begins);
/* It has: nobody reads the ring any more, and what is connected next stays on TCP. Keeps errno. */
void sock_dissolve(struct sock *s, int fd);
/* Goes down in both directions, but may come up again. */
void sock_bounce(struct sock *s, int fd);
/* shutdown(2) for a socket that may be direct. 0 or -errno. */
int sock_shutdown(struct sock *s, int fd, int how);
/* Keeps the connection on TCP with this reason, when it is not upgraded yet; else goes
 * down. */
void sock_refuse(struct sock *s, int fd, enum vd_reason reason);

/* ---- a connection that somebody else is to have (down_wait.c, left.c) ---- */

/* As sock_hand_over, and waits until both directions are the kernel's or the timeout has passed.
 * Returns 0, -ETIMEDOUT, or the number of bytes that only a ring read can get. */
ssize_t sock_down_wait(struct sock *s, int fd, enum vd_reason reason, int timeout_ms);
/* Which of the connections that s is one after the other. */
static inline uint32_t sock_generation(struct sock *s)
{
	return load_relaxed(&s->slot->generation);
}
/* Amid threads, after a wait: fd is that connection's still, and as long as that is in its ring nobody
 * closes it before sock_number_end. False: it may be another's, and no end follows. */
bool sock_number_begin(struct sock *s, int fd, uint32_t generation);
void sock_number_end(struct sock *s);
/* By the kernel, under a hold: a child may have another socket there than its memory, which is its parent's or a copy. */
bool sock_is_at(const struct sock *s, int fd);
/* Ring bytes are left that this number cannot read from now on: an error is due, not a clean end. True:
 * others go on with the connection, and the number is another file now. */
bool sock_sever(struct sock *s, int fd);
/* As sock_bounce, and waits as sock_down_wait does. */
ssize_t sock_bounce_wait(struct sock *s, int fd, int timeout_ms);
/*
 * After sock_down_wait, in a process that can make no calls of ours from now on: whatever the peer
 * has not answered, the socket is the kernel's. What was unread in the ring is kept in memory of
 * this process, for rx_recv: then it is not forgotten by fd_stand_down before that is read. False:
 * others have it, too, or it is on its way from another host; it stays as it is.
 */
bool sock_abandon(struct sock *s, int fd);
/* All others are the kernel's: once those are read the process stands down. */
extern bool left_are_last;
/* Sockets with such bytes. */
extern _Atomic uint32_t left_socks;
static inline bool left_any(void)
{
	return __builtin_expect(load_relaxed(&left_socks) != 0, 0);
}
/* Bytes of s that have not been read. */
size_t left_bytes(const struct sock *s);

/* ---- what is waited for in vain (hint.c, peer_alive.c) ---- */

/* The peer holds bytes back that become due by time alone: a sleep is to be short. */
bool sock_is_held(struct sock *s);
#define SOCK_HELD_NAP_NS 20000000
/*
 * Before a sleep: true when the death of the peer may go unnoticed by the kernel, so that the
 * sleep is to be short. Asks now and then, and wakes this end when it has died. Never blocks.
 */
bool sock_watch_owner(struct sock *s, int fd);
#define SOCK_OWNER_NAP_NS 500000000
/* The same state, known for certain: bytes on TCP are ahead of the peer's FIN. */
bool sock_is_held_up(struct sock *s, int fd);

/* ---- options (options.c) ---- */

/* enum slot_options, which an accepted connection has from its listener. */
static inline uint32_t sock_options(struct sock *s)
{
	return load_relaxed(&s->slot->options);
}
static inline void sock_options_are(struct sock *s, uint32_t options)
{
	store_relaxed(&s->slot->options, options);
}
/* Takes note of buffer sizes that the program has set: see ring_grow.c. */
void sock_learn_buffers(struct sock *s, int fd);
/* After that, in mid-stream: who waits for room, at either end, may have got some. `sends`: one that
 * bounds what is sent. */
void sock_buffers_set(struct sock *s, int fd, bool sends);
/* Takes note of TCP_NOTSENT_LOWAT. */
void sock_learn_unsent(struct sock *s, int fd);
/* Of one that takes a connection to TCP. */
const char *option_name(int level, int name);
/* Sends out what MSG_MORE or TCP_CORK hold back: the cork was drawn, or TCP_NODELAY set (tx.c). */
void sock_push(struct sock *s);

/* ---- what the program asks (queued.c, acked.c, info.c) ---- */

/* FIONREAD. 0 or -errno, or SOCK_KERNEL. */
int sock_inq(struct sock *s, int fd, int *bytes);
/* SIOCATMARK: what is unread in the ring lies before the mark, which is TCP's. The same results. */
int sock_at_mark(struct sock *s, int fd, int *at_mark);
/* What TCP_INQ tells: as FIONREAD, and one more once the end is known. */
int sock_inq_hint(struct sock *s, int fd);
/* SIOCOUTQ, or SIOCOUTQNSD with `unsent`. 0 or -errno, or SOCK_KERNEL. */
int sock_outq(struct sock *s, int fd, bool unsent, int *bytes);
/*
 * What the kernel has told of a socket that may be direct, as the program has it in its memory:
 * TCP_INFO, or SO_MEMINFO. What the ring has moved is added, within the length that was told.
 */
void sock_info(struct sock *s, int fd, void *value, size_t len);
void sock_meminfo(struct sock *s, int fd, void *value, size_t len);

/* ---- giving descriptors back (fd_pressure.c) ---- */

/* A connection of this process has doorbells, or had some. */
NEAR_EXTERN _Atomic bool sock_had_bells;
void sock_attend_slow(bool asleep);
/*
 * Where the program makes connections, and now and then when a thread is about to sleep: answers
 * peers that ask for TCP on connections with which the program does nothing. No lock may be
 * held.
 */
static inline void sock_attend(bool asleep)
{
	/* Most processes with connections of a few operations have none that last. Relaxed: who has
	 * nothing of the first one's yet may do without a look at it, too. */
	if (load_relaxed(&sock_had_bells))
		sock_attend_slow(asleep);
}
/* What peers of this process's connections ask of ends that it has itself is done. */
void sock_serve_peers(void);
/*
 * Before a sleep: rings that have grown and lie still give their memory back. Returns how
 * long the sleep may last at most, in ns, until there may be more: UINT64_MAX when there is
 * none to come. Called without a lock.
 */
uint64_t sock_settle(void);

/*
 * The program has got the number fd, and few are left: some connections go back to TCP for
 * good, before it can meet EMFILE. Does not wait for their peers.
 */
void sock_give_way(int fd);
/* What is known of a call that may meet EMFILE. */
struct sock_room {
	uint32_t given; /* fds_given() before it */
	bool once;	/* it may be made again where there is no want, once */
};
/*
 * Want of `need` numbers from `from` up: true when one that the program may have has been given
 * back since room->given, by whomever, and room->once when there is no want. Waits a bounded time
 * for peers to answer, and for threads of this process to let go. `last` closes one more
 * descriptor, if there is one, when that does not help. No lock may be held.
 */
bool sock_make_room(int need, int from, struct sock_room *room, bool (*last)(void));

/* Before that: connections with other hosts go back to TCP, since a child cannot use their link, and
 * stay there while a child has them. Waits for the peers, some time at most. No lock may be held;
 * sock_forked_parent or sock_forked_child must follow. */
void sock_leave_links(void);
/* Around fork: in the parent before, in the parent after (or when it failed), in the child. */
void sock_forking(void);
struct table_process *sock_forked_parent(pid_t child); /* see table_forked_parent */
void sock_forked_child(bool told);		       /* the parent knows the pid */
/*
 * This process is about to change its rights: from now on it has a table of its own, and nothing that it
 * can write is looked at by the others of its family but as a mark that keeps a connection on TCP.
 * It has one thread. Waits for peers of rings that others have, too, a bounded time. No lock may be
 * held. False: there is no memory, or no address space, and all is as it was.
 */
bool sock_leave_table(void);
/*
 * The same with several threads, which go on meanwhile, in a private copy of the table. No socket is
 * known that is opened from then on, and a child gets no ring. So all connections are to be on their
 * way to TCP for good. `closes`: the threads have the same descriptors. False also where the table has no descriptor.
 */
bool sock_leave_amid_threads(bool closes);
/* After sock_report, before an exec, and after one that failed: which sockets it closes. */
void sock_exec(bool begins);
/* Before a fork whose parent ends past us, and after one that failed. */
void sock_daemon(bool begins);
/* Before an end or an exec: tells the peers. `ends`: it is an end for sure. */
void sock_report(bool ends);
/* After it, when the program reads nothing more: what is unread is to reset its connection. */
void sock_reset_unread(void);
/* As report_collect: of all open sockets what is not counted yet, and why they are on TCP. */
void sock_counts(struct report_open *open);

#endif
