/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases: each prints what it saw, the same on kernel TCP and under Viaduct. */
#ifndef CONFORM_CASES_H
#define CONFORM_CASES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* What must be so under Viaduct, beside the same output. */
enum expect {
	DIRECT, /* bytes go over the direct path both ways */
	STAYS,	/* and no connection goes back to TCP */
	ANYWAY, /* either path will do */
	ON_TCP, /* nothing is upgraded, and a reason is named */
	READY,	/* a connection is upgraded; its bytes may all go by TCP */
	BACK, /* one goes back to TCP, and comes back: four fifths of all bytes go over the direct path */
};

struct tcp_case {
	const char *name;
	void (*run)(void);
	enum expect expect;
	const char *file; /* the source, without its path */
	const struct tcp_case *next;
};

void case_register(struct tcp_case *c);

#define CASE(id, what)                                                                   \
	static void case_##id(void);                                                     \
	__attribute__((constructor)) static void register_##id(void)                     \
	{                                                                                \
		static struct tcp_case c = {#id, case_##id, what, __FILE_NAME__, NULL};  \
		case_register(&c);                                                       \
	}                                                                                \
	static void case_##id(void)

/* A line of the result. Lines of one process keep their order. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* In a child: its lines begin with this word, "peer" or "child". */
void say_as(const char *who);
/* "name: 12", or "name: -1 ECONNRESET" from errno. */
void say_result(const char *name, ssize_t result);
/* The set-up failed: ends the case. */
_Noreturn void broken(const char *what);
/* The machine lacks something: exit status 77. */
_Noreturn void skip(const char *why);

#define NEED_TEXT(line) #line
#define NEED_AT(line)	NEED_TEXT(line)
#define NEED(cond)                                                                       \
	do {                                                                             \
		if (!(cond))                                                             \
			broken(#cond " at " __FILE__ ":" NEED_AT(__LINE__));             \
	} while (0)

/* ---- connections ---- */

struct pair {
	int c, s; /* the connected and the accepted end */
};

int listen_any(int family, uint16_t *port);
int connect_to(int family, uint16_t port);
/* Both ends in this process. */
struct pair pair_open(void);
/* A descriptor over an AF_UNIX channel. */
void send_fd(int channel, int fd);
int receive_fd(int channel);
/* Some hundred bytes each way in turn, so that what can be upgraded is. */
void pair_warm(struct pair p);
struct pair pair_warm_open(void);
void pair_close(struct pair p);

/*
 * The other end in a process of its own: peer(fd, arg) runs there and the process ends
 * with status 0 after it. Returns this end (the accepted one), warm on both ends.
 */
int peer_start(void (*peer)(int fd, void *arg), void *arg, pid_t *pid);
/* The same, but nothing has been sent. */
int peer_start_cold(void (*peer)(int fd, void *arg), void *arg, pid_t *pid);
void warm_first(int fd);
void warm_second(int fd);
/* Waits for a child and returns its exit status, or 128 + signal. */
int child_status(pid_t pid);

/* ---- moving bytes ---- */

/* More than any buffer takes: BULK_ROOM bytes, mapped at the first call, the same each time. Memory of
 * the program's own would be in the way of locked.c, which counts that. */
#define BULK_ROOM ((size_t)64 << 20)
char *bulk_room(void);
/* Sends until nothing more is taken, and nothing more will be as long as the peer does not read. */
void send_until_no_room(int fd);

uint8_t pattern(uint64_t off);
void send_pattern(int fd, uint64_t off, size_t len);
/* Reads exactly len bytes and checks them. */
void recv_pattern(int fd, uint64_t off, size_t len);
/* Reads to the end; returns the count, *error is 0 or the errno in place of the end. */
uint64_t recv_to_end(int fd, int *error);
void send_all(int fd, const void *buf, size_t len);
void recv_all(int fd, void *buf, size_t len);
const char *errno_name(int err);

/* ---- waiting for a state ---- */

/* Until poll reports one of the events. Returns what it reported. */
int wait_events(int fd, int events);
/* Until the thread or process sleeps in the kernel. */
void wait_asleep(pid_t pid, pid_t tid);
/* The same for any of these states: letters, as in /proc. */
void wait_in_state(pid_t pid, pid_t tid, const char *wanted);
/* Until each of these threads of this process does, or has ended. */
void wait_crowd_asleep(const pid_t *tids, size_t count);
/* Until FIONREAD gives n. */
void wait_inq(int fd, int n);
const char *poll_names(int revents);
void nonblock(int fd, bool on);

/* So many descriptors from now on: the soft RLIMIT_NOFILE. */
void set_limit(rlim_t soft);

/* Of /proc/self/status, in KiB; -1: it is not there. */
long own_kb(const char *name);

/* A pipe by which processes and threads wait for each other. */
struct signal_pipe {
	int fd[2];
};
struct signal_pipe signal_pipe(void);
void signal_send(struct signal_pipe p);
void signal_wait(struct signal_pipe p);

/* A thread that reports its id before it runs. */
struct worker {
	pthread_t thread;
	pid_t tid;
	void (*run)(void *arg);
	void *arg;
	struct signal_pipe started;
};
void worker_start(struct worker *w, void (*run)(void *arg), void *arg);
void worker_join(struct worker *w);

#endif
