/* SPDX-License-Identifier: Apache-2.0 */
/* What the native library uses of the engine, its own or that of the preloaded library; and what the
 * module for RPC uses of the latter. */
#ifndef VD_PRELOAD_DOOR_H
#define VD_PRELOAD_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* How to find that of the preloaded library, and which one fits: raised with each change below. */
#define DOOR_NAME    "viaduct_door"
#define DOOR_VERSION 14u

/* A variable that names the program which the loader (src/start) is to become. */
#define DOOR_START_PROGRAM "VIADUCT_START_PROGRAM"

struct call_sheet;

enum door_path { DOOR_TCP = 0, DOOR_SHM = 1, DOOR_RDMA = 2 };

/* What a peer on another host has to know of memory that it is to write to: link names the link for
 * which that holds. */
struct door_key {
	uint64_t address, link;
	uint32_t key;
};

#define DOOR_MOVES_MOST 16u
#define DOOR_MOVE_BYTES (8u << 20)

/* Memory of the program for a put or a get, and around it what comes and goes with it, or NULL; and what was done
 * about its registration: added up. */
struct door_span {
	void *at;
	size_t bytes;
	bool is_get;
	const void *whole;
	size_t whole_bytes;
	uint32_t hits, misses, evictions, broken;
};

/* What the loader of a statically linked program has and can do (src/start/main.c). */
struct door_start {
	const char *program; /* its file, without links */
	const void *slot;    /* the eight bytes below FS */
	bool (*map)(const char *path, uint64_t *load);
	void (*unmap)(void);
	/* One that is detached; 0, or an errno. */
	int (*begin_thread)(size_t stack_bytes, void *(*run)(void *), void *arg);
};

/*
 * Both libraries have a table of this kind, over the same code; a process uses one of them, so that
 * all of its connections stand in one table. The first calls are those of the C library as programs
 * under Viaduct have them: errno and all.
 */
struct door {
	uint32_t version, bytes;
	int (*socket)(int domain, int type, int protocol);
	int (*connect)(int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int fd, int backlog);
	int (*accept4)(int fd, struct sockaddr *addr, socklen_t *len, int flags);
	int (*setsockopt)(int fd, int level, int name, const void *value, socklen_t len);
	int (*fcntl)(int fd, int cmd, ...);
	int (*shutdown)(int fd, int how);
	int (*close)(int fd);
	int (*eventfd)(unsigned count, int flags);
	int (*epoll_create1)(int flags);
	int (*epoll_ctl)(int epfd, int op, int fd, struct epoll_event *ev);
	int (*epoll_wait)(int epfd, struct epoll_event *ev, int max, int timeout);
	int (*poll)(struct pollfd *fds, nfds_t n, int timeout);
	/* These return a count or -errno, and take the flags of recvmsg and sendmsg. */
	ssize_t (*recv)(int fd, const struct iovec *iov, int count, int flags);
	ssize_t (*send)(int fd, const struct iovec *iov, int count, int flags);
	/* Close an AF_UNIX socket that other users may have sent to, connected or listening, and wait for nobody. */
	void (*turn_away)(int fd);
	/* Not 0: at the other end of an AF_UNIX socket is a process that may stop this one: of our user, and in our
	 * pid namespace. */
	int (*may_stop_us)(int fd);
	void (*unlisten)(int fd);
	/* A TCP socket that was made past the engine, if it does not know it yet: `role` is an enum
	 * tcp_role. Its hint is announced where it was accepted: *announced, for `forget`. */
	void (*adopt)(int fd, uint32_t role, int *announced);
	void (*forget)(int announced);
	/* The connection is worth an upgrade at once. */
	void (*hasten)(int fd);
	/* An enum door_path, and an enum vd_reason. */
	uint32_t (*path)(int fd, uint32_t *reason);
	/* Not 0: on DOOR_SHM, the peer is a process of the same user. */
	int (*is_own)(int fd);
	/* Where to count what is done on it, by enum native_count, while fd is open; or NULL. */
	_Atomic uint64_t *(*counts)(int fd);
	/* As recv, but waits so long at most, for ever when it is negative: -ETIME. -EINTR where a
	 * handler of the program has run, too. */
	ssize_t (*recv_within)(int fd, void *buf, size_t len, int timeout_ms);
	/* Index of a socket whose ring has unread bytes; spins for one where that may pay, else
	 * gives this thread's turn away, once. -1: none,
	 * and it is time to ask the kernel about all. A hint. */
	int (*await_any)(const int *fds, int count);
	/* Spins for a moment, where that may pay, until one of the words has its value, or one of the
	 * rings has bytes: the index of such a ring, else -1. A hint. */
	int (*await_words)(const int *fds, const _Atomic uint32_t *const *words,
			   const uint32_t *values, int count);
	/* In between no handler of the program runs in this thread. They nest. */
	void (*hold_signals)(void);
	void (*release_signals)(void);
	/* Where this process counts its remote procedure calls; NULL: nowhere. Another one after a
	 * fork. */
	struct call_sheet *(*call_sheet)(void);
	/*
	 * Between hosts, past the stream (remote/reach.c). From so many bytes on it pays; 0: never.
	 * `reach` opens memory to the peer of fd, by rights as vd_export has them: 0 and an id, until
	 * `unreach`; or -errno. `move` writes to the peer's, or reads it, and waits for the devices: 0 it is there;
	 * -EAGAIN nothing is under way, -ESTALE nor will be by that key; -EIO nobody knows, until the
	 * peer has closed it. `unregister`: the program's memory there goes.
	 */
	uint32_t (*reach_least)(int fd);
	int (*reach)(int fd, void *start, size_t bytes, uint32_t rights,
		     struct door_key *key, uint64_t *id);
	void (*unreach)(uint64_t id);
	int (*move)(int fd, const struct door_key *key, uint64_t offset,
		    struct door_span *span);
	/*
	 * The same, but it goes on by itself: an id. So many may be under way for a connection (DOOR_MOVES_MOST), of
	 * DOOR_MOVE_BYTES at most; they arrive in the order of the calls, and no two of them to the
	 * same bytes of one export. `may_move`: 0, or why none can begin by that key now, as it would say. `look_at_move`: 1 it is there, 0 not
	 * yet, -EIO; from then on the id is no more. `ends`: it is not waited for, and never 0. Nothing of these four waits.
	 * `await_moves` waits for some ms, until something has become of the first, or may have, or the peer has sent
	 * something.
	 */
	int (*may_move)(int fd, const struct door_key *key);
	int (*begin_move)(int fd, const struct door_key *key, uint64_t offset,
			  struct door_span *span, uint64_t *id);
	int (*look_at_move)(int fd, uint64_t id, bool ends);
	void (*await_moves)(int fd);
	void (*unregister)(const void *at, size_t bytes);
	/* For the loader of statically linked programs: leads the program's system calls here.
	 * Not 0: it may begin. 0: it is not mapped, and will be executed, on TCP; NULL asks for that. */
	int (*start_join)(const struct door_start *from);
};

#endif
