/* SPDX-License-Identifier: Apache-2.0 */
/* A user's own pair of programs, plain and under Viaduct: its runs and their figures. */
#ifndef VD_MEASURE_PAIR_H
#define VD_MEASURE_PAIR_H

#include <sys/types.h>

#include "measure/bench.h"
#include "tool/reported.h"

/* ---- child.c: programs that this command starts ---- */

struct child {
	pid_t pid;  /* -1: not running */
	int pidfd;  /* readable once it has ended */
	int output; /* a file in memory: stdout and stderr */
	int status; /* as waitpid gives it */
	double cpu_s;
};

/* What our descendants leave behind is ours to wait for. */
void child_adopt_orphans(void);
/* Starts argv in a process group of its own. cpu: to run on, or -1. 0 or -errno. */
int child_start(struct child *c, char *const *argv, int cpu);
/* Waits for its end: 0, or -ETIMEDOUT. timeout_ms -1: for ever. Fills in the status. */
int child_wait(struct child *c, int timeout_ms);
/* SIGTERM to it and all other descendants of ours, after a grace SIGKILL; waits for all.
 * Adds up the processor time of those that had no other parent. */
void child_stop_all(struct child *c);
/* SIGKILL to its process group. */
void child_kill(struct child *c);
/* The last lines that it wrote, each behind four spaces. */
void child_print_output(const struct child *c, FILE *to);
/* The output as a string in buf, its end where it is longer. */
void child_read_output(const struct child *c, char *buf, size_t size);
void child_finish(struct child *c);
/* "ended with status 1", "was killed by signal 9". */
const char *child_format_status(char buf[64], int status);

/* ---- listen.c: when a server is ready ---- */

enum { LISTEN_MAX = 4096 };

struct listen_set {
	unsigned n;
	uint64_t inodes[LISTEN_MAX];
};

/* All TCP sockets that listen in the network namespace of the process. */
void listen_read(pid_t pid, struct listen_set *set);
/* Children that came with this process by exec: they and theirs do not count. */
void listen_spare(void);
/* Descendants of this process; returns how many there are, writes at most max. */
unsigned listen_descendants(pid_t *pids, unsigned max);
/* True when a descendant listens on a socket that is not in `before`. */
bool listen_found(const struct listen_set *before);
/* A TCP port of 127.0.0.1 that was free just now; 0 when there is none. */
unsigned listen_free_port(void);
bool listen_on_port(unsigned port);

/* ---- late.c: Nagle's algorithm ---- */

/* How many acknowledgements the kernel has delayed until its timer sent them; 0 where it tells none. */
uint64_t late_acks(void);

/* ---- pair.c, verdict.c ---- */

enum pair_way { PAIR_PLAIN, PAIR_VIADUCT, PAIR_WAYS };

struct pair {
	char *const *server, *const *client; /* command lines, NULL at the end */
	unsigned pairs, done;
	unsigned wait_s; /* for the server to listen */
	double elapsed_s[PAIR_WAYS][BENCH_PAIRS_MAX];
	double client_cpu_s[PAIR_WAYS][BENCH_PAIRS_MAX];
	double server_cpu_s[PAIR_WAYS][BENCH_PAIRS_MAX];
	/* Acknowledgements that TCP sent late; of all programs of the network namespace. */
	double late_acks[PAIR_WAYS][BENCH_PAIRS_MAX];
	struct reported report; /* the client's, or else the server's */
};

/* Runs all; returns an exit status, after a message where it is not 0. */
int pair_main(struct pair *p, const char *json);
void pair_report_add(struct reported *sum, const char *client, const char *server);
void pair_print(FILE *out, const struct pair *p);
void pair_json(FILE *out, const struct pair *p);

#endif
