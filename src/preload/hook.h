/* SPDX-License-Identifier: Apache-2.0 */
/* What the interposed symbols share: the way in and out of a call, and the way down. */
#ifndef VD_PRELOAD_HOOK_H
#define VD_PRELOAD_HOOK_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/select.h>
#include <sys/single_threaded.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include "base/atomic.h"
#include "base/borrowed.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/real.h"
#include "base/sections.h"
#include "base/sigsafe.h"
#include "conn/kernel_call.h"

#define HOOK __attribute__((visibility("default")))

/* A second name of an interposed symbol, in the same file as the first. */
#if __has_attribute(copy)
#define HOOK_ALIAS(name, target)                                                         \
	HOOK extern __typeof__(target) name __attribute__((alias(#target), copy(target)))
#else
#define HOOK_ALIAS(name, target)                                                         \
	HOOK extern __typeof__(target) name __attribute__((alias(#target)))
#endif

/* The one place where a result of the layers below becomes the program's errno. */
static inline ssize_t ret_errno(ssize_t result)
{
	if (__builtin_expect(result < 0, 0)) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

/* The same for a call below that uses system calls of its own: success leaves errno alone. */
#define ret_keeping(call)                                                                \
	({                                                                               \
		int saved_ = errno;                                                      \
		ssize_t result_ = (call);                                                \
		if (result_ >= 0)                                                        \
			errno = saved_;                                                  \
		ret_errno(result_);                                                      \
	})

/* ---- cancellation ---- */

/*
 * At the begin of what is a point of cancellation in libc. A thread whose calls never have
 * to wait must end as well; nothing has been moved, and nothing is held.
 */
static inline void hook_cancel_point(void)
{
	if (!__libc_single_threaded)
		pthread_testcancel();
}

static inline void hook_cancel_restore(void *state)
{
	pthread_setcancelstate(*(int *)state, NULL);
}

/* A call that is none in libc, though we do it by means that are. */
#define HOOK_DEAF(call)                                                                  \
	__extension__({                                                                  \
		struct _pthread_cleanup_buffer deaf_;                                    \
		int state_;                                                              \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_);                 \
		_pthread_cleanup_push(&deaf_, hook_cancel_restore, &state_);             \
		__typeof__(call) answer_ = (call);                                       \
		_pthread_cleanup_pop(&deaf_, 1);                                         \
		answer_;                                                                 \
	})

/* A call that is one in glibc, and none in musl. */
#ifdef __GLIBC__
#define HOOK_DEAF_ON_MUSL(call) (call)
#else
#define HOOK_DEAF_ON_MUSL(call) HOOK_DEAF(call)
#endif

/* ---- a call that the kernel does for us, counted ---- */

/* The kernel's call has told of an error, which then no other call tells. */
static inline void hook_failed(struct sock *s)
{
	if (errno == ECONNRESET)
		sock_error_told(s);
}

/* The same of a call past the ways: what moves nothing, or the kernel refuses. */
static inline ssize_t hook_passed(struct sock *s, ssize_t n)
{
	if (n < 0 && s)
		hook_failed(s);
	return n;
}

/* What fd is by now. Not inline: few calls ask. */
struct sock *hook_sock_now(int fd);

/*
 * One operation on a socket of ours: `kernel` is libc's own call, `direct` ours. Each may
 * be evaluated more than once, but has then moved nothing before. A call that begins anew does so
 * with what fd is by then, since a signal handler may have closed it: s is set to that.
 */
#define HOOK_WAY(enter, over, s, fd, kernel, direct)                                     \
	HOOK_WAY_ON(enter(s, fd), enter, over, s, fd, kernel, direct)
/* The same where the first look has been made. */
#define HOOK_WAY_ON(way, enter, over, s, fd, kernel, direct)                             \
	__extension__({                                                                  \
		ssize_t moved_;                                                          \
		enum sock_way way_ = (way);                                              \
		while (way_ == SOCK_DIRECT) {                                            \
			hook_cancel_point();                                             \
			moved_ = (direct);                                               \
			if (__builtin_expect(moved_ != SOCK_KERNEL, 1))                  \
				break;                                                   \
			(s) = hook_sock_now(fd);                                         \
			way_ = (s) ? enter(s, fd) : SOCK_PLAIN;                          \
		}                                                                        \
		if (way_ == SOCK_DIRECT) {                                               \
			moved_ = ret_errno(moved_);                                      \
		} else {                                                                 \
			moved_ = way_ == SOCK_PLAIN ? (kernel)                           \
						    : COUNTED(over, s, kernel);          \
			hook_passed(s, moved_);                                          \
		}                                                                        \
		moved_;                                                                  \
	})
/*
 * What such an operation is for a function that is called often, in parts: name_ring and name_tcp, with
 * which the function ends, so that it saves no registers; and name_on, the rest. `args` are the function's
 * own, and begin with fd.
 */
#define HOOK_LIST(...) __VA_ARGS__
#define HOOK_PARTS(name, enter, over, params, args, kernel, direct)                      \
	static __attribute__((noinline))                                                 \
	ssize_t name##_on(HOOK_LIST params, struct sock *s, enum sock_way way)           \
	{                                                                                \
		return HOOK_WAY_ON(way, enter, over, s, fd, kernel, direct);             \
	}                                                                                \
	NEAR_MOVE static __attribute__((noinline))                                       \
	ssize_t name##_tcp(HOOK_LIST params, struct sock *s)                             \
	{                                                                                \
		enum sock_way way = enter##_slow(s, fd);                                 \
                                                                                         \
		if (__builtin_expect(way != SOCK_COUNTED, 0))                            \
			return name##_on(HOOK_LIST args, s, way);                        \
		return hook_passed(s, COUNTED(over, s, kernel));                         \
	}                                                                                \
	NEAR_MOVE static __attribute__((noinline))                                       \
	ssize_t name##_ring(HOOK_LIST params, struct sock *s)                            \
	{                                                                                \
		ssize_t moved;                                                           \
                                                                                         \
		hook_cancel_point();                                                     \
		moved = (direct);                                                        \
		if (__builtin_expect(moved != SOCK_KERNEL, 1))                           \
			return ret_errno(moved);                                         \
		s = hook_sock_now(fd);                                                   \
		return s ? name##_on(HOOK_LIST args, s, enter(s, fd)) : (kernel);        \
	}
#define HOOK_RX(s, fd, kernel, direct)                                                   \
	HOOK_WAY(rx_enter, counted_rx_over, s, fd, kernel, direct)
#define HOOK_TX(s, fd, kernel, direct)                                                   \
	HOOK_WAY(tx_enter, counted_tx_over, s, fd, kernel, direct)

/* A send of no bytes, which the kernel judges in its own call where Viaduct knows of no error. */
#define HOOK_TX_NONE(s, fd, flags, kernel)                                               \
	__extension__({                                                                  \
		ssize_t error_;                                                          \
		hook_cancel_point();                                                     \
		error_ = tx_send_none(s, fd, flags);                                     \
		error_ < 0 ? ret_errno(error_) : hook_passed(s, kernel);                 \
	})

/* ---- process (process.c) ---- */

/* False with VIADUCT=off, and before the constructor: no socket is ever ours. */
NEAR_EXTERN bool hook_active;
/* Once: tables, settings and the handlers of forks. False: everything is to stay on TCP, also where
 * `suits` says so. True: whoever calls sets hook_active. */
bool hook_begin(bool (*suits)(void));

/*
 * True in the child of vfork, which runs in its parent's memory: it may do what it likes
 * to its own descriptors, but the tables are its parent's.
 */
static inline bool hook_is_borrowed(void)
{
	return is_borrowed();
}

/*
 * A fork of a function of ours: libc's handlers leave its end to that, which knows the child's pid, and keep till then
 * what hook_forking took. If a handler of the program's needs that behind them, it is given back first.
 */
struct hook_fork {
	bool is_wrapped, is_given_back;
	struct table_process *untold; /* the child, whose pid is not known yet */
};

/* Around it. A handler of the program's may fork, too: what the first returns is for the second, in parent and child. */
struct hook_fork hook_fork_begin(void);
pid_t hook_fork_end(struct hook_fork outer, pid_t pid);
/* Around every kind of fork: before it, in the parent (libc's handler), in the child. */
void hook_forking(void);
void hook_forked_unwrapped(void);
void hook_forked_child(void);
/* Before an exec, or an end that others bring about: tells the peers, and writes the report. */
void hook_report(void);
/* The same where this process ends, and nothing can come in between. */
void hook_ends(void);
/* And where what other libraries do at their end comes in between: sock_reset_unread follows. */
void hook_ends_soon(void);
/* Whoever shares our memory will have descriptors of its own, or share them without our memory: for
 * good, nothing is direct any more. */
void hook_parting(void);
/* Set from then on: no descriptor of Viaduct's own is opened or closed. */
extern _Atomic bool hook_is_parted;
/* Whether clone with these flags is such a case. */
bool hook_clone_parts(unsigned long flags);
/* This is the process's only thread, for certain. */
bool hook_is_alone(void);
/*
 * Before libc starts a child inside itself, by vfork and exec: what that inherits goes back to TCP.
 * The process keeps what is its own. What cannot go back, because bytes are unread in the ring, is
 * withheld from the child, which would miss them: closed by its exec. False, with EAGAIN: these are
 * too many, and there is to be no child. Else hook_spawned follows the call.
 */
#define HOOK_WITHHELD_MOST 64
struct spawning {
	int token;	   /* as in struct leaving */
	uint64_t withheld; /* a bit for each note of withheld.c */
};
bool hook_spawning(struct spawning *w, const char *path, bool search, char *const envp[]);
/* The same for a shell. */
bool hook_spawning_shell(struct spawning *w);
void hook_spawned(const struct spawning *w);
/* Marks the calling thread before a vfork of any kind. */
pid_t hook_vfork_mark(void);
/* In its child, where crit_lend was called before it, with what the above has returned. */
void hook_vfork_born(pid_t mark);
/* In its parent, behind it, where crit_lend was called before it: what the child has left is put right. The first is for
 * handlers that come before the second. */
void hook_vfork_returned(bool is_child);
void hook_vfork_end(void);
void vfork_init(void);

/* ---- Viaduct's own descriptors (hidden.c) ---- */

/* fd is one of them: to the program it is not open. Sets errno to EBADF. */
bool hook_hidden(int fd);
/* What accept has returned for that listener. */
int hook_accepted(int listen_fd, int fd, bool nonblock);

/* ---- descriptors (fdlife.c) ---- */

/* The program has got the number fd, which makes the kernel's table longer, or leaves few. */
void hook_give_way(int fd);
/* That has happened, and may still be so. */
extern _Atomic bool hook_is_short;
static inline void hook_numbered(int fd)
{
	/* Relaxed: a hint, see base/fds.h. */
	if (__builtin_expect(fd >= load_relaxed(&fds_watched), 0))
		hook_give_way(fd);
}

/* A call has returned fd, which is not a socket of ours: forgets a stale entry. */
static inline int hook_opened(int fd)
{
	if (__builtin_expect(fd >= 0 && fd_sock(fd), 0) && !hook_is_borrowed())
		fd_forget(fd);
	if (__builtin_expect(fds_is_ours(fd), 0) && !hook_is_borrowed())
		fds_lost(fd);
	hook_numbered(fd);
	return fd;
}

/*
 * True when a call that met EMFILE is to be made again: Viaduct has given descriptors back, also
 * those that another thread closed just then; or, once, so many are to be had, as where another
 * thread's meeting had taken some. `from`: the lowest number that will do.
 */
bool hook_make_room(int need, int from, struct sock_room *room);
/* Descriptors that one call can make, at least. */
#define HOOK_MAKES 2
/* A call that makes descriptors. A failure for want of numbers has changed nothing. */
#define HOOK_MAKE_FROM(from, call)                                                       \
	__extension__({                                                                  \
		struct sock_room room_ = {fds_given(), true};                            \
		__typeof__(call) made_ = (call);                                         \
		while (__builtin_expect(made_ < 0 && errno == EMFILE, 0) &&              \
		       hook_make_room(HOOK_MAKES, (from), &room_))                       \
			made_ = (call);                                                  \
		made_;                                                                   \
	})
#define HOOK_MAKE(call) HOOK_MAKE_FROM(0, call)

/* A call has fetched fd from a process, which may be this one: it may be a socket of ours. */
int hook_fetched(int fd);
/* fd is a socket of ours from now on, or a new name of one. */
void hook_took_slow(int fd);
NEAR_EXTERN _Atomic uint32_t hook_refuse_reason; /* not NONE: of all sockets */
NEAR_EXTERN _Atomic int hook_holds;		 /* see hook_hold_begin */
NEAR_EXTERN _Atomic int hook_ever_known;	 /* what hook_known_end returns */
static inline void hook_took(int fd)
{
	/* Sequentially consistent, the hold: see hook_hold_begin. */
	if (__builtin_expect(fd <= 2 || atomic_load(&hook_holds) ||
				     load_relaxed(&hook_refuse_reason) ||
				     fd >= load_relaxed(&hook_ever_known),
			     0))
		hook_took_slow(fd);
}
/* fd is a socket or an epoll instance of ours; and one past the highest that ever was. */
void hook_known(int fd);
static inline int hook_known_end(void)
{
	return load_relaxed(&hook_ever_known);
}
/* Before the kernel closes fd. False when it is Viaduct's own and must stay. */
bool hook_closing(int fd);
/* The same before a dup2 to fd, which is not Viaduct's own. `done`: it has been made, and hook_placed follows. */
struct fd_placing;
void hook_closing_for(int fd, struct fd_placing *by);
/* Before libc closes the descriptor of a stream of its own. */
void hook_closing_stream(FILE *f);
/* After the kernel has made newfd a duplicate of oldfd. */
void hook_duplicated(int oldfd, int newfd);
/* The same where the table knows of it. */
void hook_placed(int oldfd, int newfd);
/* In a child of fork: no thread is amid a dup2. */
void hook_places_forked(void);
/* Before unread bytes are given up, so much longer is waited for a peer slow to answer. */
#define HOOK_UNREAD_MS 2500
/* CLOCK_MONOTONIC, for deadlines that several waits share. */
static inline int64_t hook_now_ms(void)
{
	struct timespec ts;

	clock_read(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}
/*
 * Keeps the connection on TCP for good; when it is direct, waits a bounded time until it
 * is the kernel's. Returns the number of bytes that only a read through us can still get,
 * 0, or -ETIMEDOUT.
 */
ssize_t hook_take_down(struct sock *s, int fd, enum vd_reason reason);
/* The same, with what is unread, whatever the reason. */
ssize_t hook_take_down_unread(struct sock *s, int fd, enum vd_reason reason);
/* sendfile out of a connection, which the kernel allows into a pipe alone (splice.c). */
ssize_t hook_sendfile_from(struct sock *from, int out, int in, off64_t *offset,
			   size_t count);
/* Takes it down, and waits longer where bytes are unread. True: some are left that only this process
 * can read, so that whoever else gets the descriptor is to get an error. */
bool hook_is_stranded(struct sock *s, int fd, enum vd_reason reason);
/* Calls that go past us may be made on any socket: nothing can be direct any more. */
void hook_refuse_all(enum vd_reason reason);
/* It has been called. */
bool hook_refuses(void);
/* False: there are sockets of ours. Otherwise what becomes one until hook_hold_end stays on TCP. */
bool hook_hold_begin(void);
void hook_hold_end(void);

/* ---- io_uring (uring.c) ---- */

/* A ring that is asked for by a bare system call: true when the answer is ENOSYS, as of a kernel
 * without io_uring. The program then goes on with epoll, as it does under the filters of
 * container runtimes. */
bool uring_refused(void);
/* True when fd is no ring, so that a call for one is answered in the same way. */
bool uring_missing(unsigned fd, bool by_index);
/* A ring is, or may be, told of a socket. */
void uring_all_go(void);
/* So many entries are submitted by a bare system call. */
void uring_entering(unsigned to_submit);

/* ---- RLIMIT_NOFILE (limit.c) ---- */

struct rlimit;
/* Before a call that sets a limit. True: it is ours, and limit_changed is to follow. */
bool limit_changing(pid_t pid, unsigned resource, const struct rlimit *to);
void limit_changed(void);
#define LIMIT_CHANGE(pid, resource, to, call)                                            \
	__extension__({                                                                  \
		bool own_ = limit_changing(pid, resource, to);                           \
		__typeof__(call) answer_ = (call);                                       \
		if (own_)                                                                \
			limit_changed();                                                 \
		answer_;                                                                 \
	})

/* ---- rights that are given up (credentials.c) ---- */

/* The process is about to give up rights for good. */
void credentials_leave(void);
/* The same by CLONE_NEW flags: of unshare, or a child that begins with them. */
void credentials_namespaces(unsigned long flags);
/* Before a call by its number. */
void credentials_syscall(long nr, const long a[6]);

/* ---- filters of system calls (seccomp.c) ---- */

/* Before seccomp and prctl with these arguments. */
void seccomp_setting(unsigned long operation, unsigned long flags, const void *args);
void seccomp_prctl(unsigned long option, unsigned long mode, const void *args);

/* ---- bytes of a ring that are read behind a filter (left.c) ---- */

#define LEFT_MOST 64
struct left_sets {
	int count, fd[LEFT_MOST];
};
struct pollfd;
struct epoll_event;
/* Where something is ready the program's own call is made without waiting, and that is added. */
bool left_poll_is_ready(struct pollfd *fds, unsigned long n);
int left_poll_add(struct pollfd *fds, unsigned long n, int result);
bool left_select_is_ready(int n, const fd_set *in, struct left_sets *was);
int left_select_add(fd_set *in, const struct left_sets *was, int result);
bool left_epoll_is_ready(int epfd);
/* A new instance has this number; and a registration, which is made. */
void left_epoll_made(int epfd);
int left_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int left_epoll_add(int epfd, struct epoll_event *ev, int max, int n);

/* ---- streams (stream.c) ---- */

/* At the end of the process: what libc is about to write, while the connections are still there. */
void stream_flush_all(void);

/* ---- listeners (announce.c) ---- */

void announce_listener(struct sock *s, int fd);
void announce_closing(int fd);
/* fd listens, and was not known: inherited over exec, or passed. False: it stays so. */
bool announce_found(int fd);
void announce_init(void);
/* Withdraws all. */
void announce_leave(void);
/* Around a fork: the list does not change. */
void announce_forking(void);
void announce_forked_parent(void);
void announce_forked_child(void);
/* Numbers are short: closes the descriptor of one hint. False when there is none. */
bool announce_give_back(void);
/* Listeners that are not announced: the port's name was another's, or descriptors were short. */
NEAR_EXTERN _Atomic int announce_missing;
/* A connection was accepted from s: announces it where that is possible by now. */
void announce_again(struct sock *s, int fd);

/* ---- memory of the program's (vector.c) ---- */

bool hook_in_reach_slow(uint64_t end);

/*
 * The kernel refuses memory that reaches past the addresses which a process can have, before it
 * looks at the connection: also where nothing would be moved.
 */
static inline bool hook_in_reach(const void *p, size_t len)
{
	uint64_t end;

	if (__builtin_add_overflow((uint64_t)p, len, &end))
		return false;
	return __builtin_expect(end <= CRIT_MEMORY_END, 1) || hook_in_reach_slow(end);
}

/*
 * Adds up what the vector moves, without trusting the pointer. False when the kernel refuses
 * it: so it is the one to be asked.
 */
bool hook_vector_is_good(const struct iovec *iov, size_t count, size_t *total);

/* As the kernel, the only piece is read at the begin of a call: a copy in `one`. */
static inline const struct iovec *hook_vector_own(const struct iovec *iov, size_t count,
						  struct iovec *one)
{
	if (count != 1)
		return iov;
	*one = *iov;
	return one;
}

ssize_t hook_recv_cut(struct sock *s, int fd, const struct iovec *iov, int count,
		      int flags);
/* A piece of several lies over the array itself, which the kernel has read by then. */
static inline bool hook_vector_holds_itself(const struct iovec *iov, size_t count)
{
	uint64_t begin = (uint64_t)iov, end = (uint64_t)(iov + count);

	for (size_t i = 0; count > 1 && i < count; i++) {
		uint64_t base = (uint64_t)iov[i].iov_base;

		if (base < end && base + iov[i].iov_len > begin)
			return true;
	}
	return false;
}
/* Receives to a vector of `total` bytes: no more than the kernel moves in one call. */
static inline ssize_t hook_recv_vector(struct sock *s, int fd, const struct iovec *iov,
				       int count, int flags, size_t total)
{
	struct iovec one;

	if (__builtin_expect(total > SOCK_MOVE_MAX, 0) ||
	    __builtin_expect(hook_vector_holds_itself(iov, (size_t)count), 0))
		return hook_recv_cut(s, fd, iov, count, flags);
	iov = hook_vector_own(iov, (size_t)count, &one);
	return rx_recv(s, fd, iov, count, flags);
}

/* ---- descriptors passed in messages (rights.c) ---- */

struct msghdr;
/* Before a message is received that may bring descriptors: for want of numbers the kernel
 * would drop them. */
void rights_room_slow(const struct msghdr *msg, unsigned messages);
static inline void rights_room(const struct msghdr *msg, unsigned messages)
{
	if (__builtin_expect(load_relaxed(&hook_is_short), 0))
		rights_room_slow(msg, messages);
}
void rights_sending(int channel, const struct msghdr *msg);
void rights_received(int channel, struct msghdr *msg, int flags);

/* ---- signals (signal.c) ---- */

/* Once, from the constructor: takes over the handlers that are there. */
void signal_init(void);
/* Of a signal: the program's function that is to be called now, or NULL. */
void (*signal_pick(int sig, siginfo_t *info, void *context))(int, siginfo_t *, void *);
/* The same in a child that shares our memory and is no thread: without a thread's data. */
void (*signal_pick_stray(int sig, siginfo_t *info))(int, siginfo_t *, void *);
/* The kernel calls that from now on: it is to call signal_pick, and what that returns. */
void signal_enter_by(void (*entry)(int, siginfo_t *, void *));
void signal_forked_child(void);
void signal_stand_down(void);
/* A signal that ends this process runs a handler of ours first, for the report and the log. */
bool signal_has_last_words(void);
/* From now on it does not. */
void signal_no_last_words(void);

/* ---- readiness (wait.c) ---- */

/* True when a descriptor in these is a socket or an epoll instance of ours. Where we are not active they are
 * not looked at: no handler would be there for an array that is not. */
bool hook_poll_concerns(struct pollfd *fds, unsigned long n);
bool hook_select_concerns(int n, const fd_set *r, const fd_set *w, const fd_set *e);
/* To how many descriptors the kernel would cut n, were there none of ours. */
int hook_select_clip(int n, const fd_set *r, const fd_set *w, const fd_set *e);

#endif
