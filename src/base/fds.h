/* SPDX-License-Identifier: Apache-2.0 */
/* Viaduct's own descriptors: kept high, close-on-exec, safe from the program's close, and few
 * enough to leave the program its own. */
#ifndef VD_BASE_FDS_H
#define VD_BASE_FDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/atomic.h"
#include "base/sections.h"

/*
 * Takes over fd, which the kernel has just made: moves it to a high number and marks it as
 * Viaduct's. Returns the new number; on failure fd is closed and -EMFILE is returned (too
 * close to RLIMIT_NOFILE). By LOW_MADE (base/low.h), unless fd is a high number already.
 */
int fds_adopt(int fd);
/* The same for one whose lack the program would notice: may use what is kept free for it. */
int fds_adopt_needed(int fd);
/* Closes a descriptor that fds_adopt returned. A negative number is ignored. Where a child could
 * come by the number, it is forgotten first: a fork may follow at once. */
void fds_close(int fd);
/* The same, with what forgets it first: a fork comes before both, or behind. A negative number is ignored. */
void fds_close_forgotten(int fd, void (*forget)(int fd));
/* The same for one that stays while the program forks: at FDS_APART. */
int fds_adopt_low(int fd);
/* For one that every process has, and that is the first to go when the program is
 * short of them: it does not count, so that those with nothing else have nothing to watch. */
int fds_adopt_apart(int fd);
/* The same, but where that fails fd stays as it is. Whichever it was, fds_close closes it, and fds_adopt
 * has no more to do, or tries again. */
int fds_raise(int fd);
struct msghdr;
/* recvmsg, which does not wait; raises those descriptors that come with the message. Bytes, or -errno. */
ssize_t fds_receive(int sock, struct msghdr *msg);
/* From there on under a large limit: with 4096, as for the others, each fork took 15 us more. */
#define FDS_APART 1000
void fds_close_apart(int fd);
/* The kernel has given the number to the program: it was closed past us. */
void fds_lost(int fd);
/* fd has come by an exec, stays where it is, and is Viaduct's. It does not count. */
void fds_note(int fd);
/* True when the number is one of Viaduct's. A few nanoseconds. */
bool fds_is_marked(int fd);
NEAR_EXTERN _Atomic int fds_lowest_ever; /* that was */
static inline bool fds_is_ours(int fd)
{
	/* Most are the program's: then the map is not even looked at. Relaxed, as the map: the
	 * numbers order nothing. */
	return __builtin_expect(fd >= load_relaxed(&fds_lowest_ever), 0) &&
	       fds_is_marked(fd);
}
/*
 * The program's descriptors go first. A number from fds_tight on, got by the program, may
 * mean that Viaduct has to give some of its own back; fds_excess says how many (none when it
 * is not positive), of those below *below. INT_MAX while it holds none.
 */
extern _Atomic int fds_tight;
int fds_excess(int fd, int *below);
/*
 * So long would the kernel's table of descriptors be without ours: a power of two above each number
 * that the program was seen to get. INT_MAX while ours have not made it longer. Where the program
 * may have got a number unseen, ask for it, and tell of it by fds_got.
 */
int fds_table_length(void);
/* A number from fds_watched on, got by the program, is told to fds_got. True from fds_tight on. */
NEAR_EXTERN _Atomic int fds_watched;
bool fds_got(int fd);
/* How many numbers are Viaduct's now: all, and those below fd. One that the second counts no
 * more has been closed, and that has been counted in fds_given. */
int fds_count(void);
int fds_below(int fd);
/* Moves with each number that Viaduct closes: a call that met EMFILE may have met it there. */
NEAR_EXTERN _Atomic uint32_t fds_closed;
static inline uint32_t fds_given(void)
{
	/* Acquire: a call that follows is made no earlier. */
	return load_acquire(&fds_closed);
}
/* RLIMIT_NOFILE as it is now, cut to the numbers that can be Viaduct's. */
int fds_limit(void);
/* The lowest number from `from` on that is Viaduct's, also beyond a limit that has been lowered; or INT_MAX. */
int fds_next(int from);
/* Around a fork: none comes and none goes. */
void fds_forking(void);
void fds_forked_parent(void);
void fds_forked_child(void);

#endif
