/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of `viaduct bench`: patterns, the job of one end, and what it measured.
 */
#ifndef VD_MEASURE_BENCH_H
#define VD_MEASURE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum bench_shape {
	BENCH_RTT,
	BENCH_STREAM,
	BENCH_BIDIR,
	BENCH_CRR,
	BENCH_LOGP,
	/* From here on experiments, measured only where --patterns names them. */
	BENCH_COPY,
	BENCH_COPY_COLD, /* with buffers that no cache holds */
	BENCH_SETUP
};
enum bench_wait { BENCH_BLOCK, BENCH_SPIN, BENCH_EPOLL, BENCH_POLL };
enum bench_think { BENCH_NO_THINK, BENCH_THINK, BENCH_THINK_SLEEP };

struct bench_pattern {
	const char *name;
	enum bench_shape shape;
	enum bench_wait wait;
	bool plain; /* one end under Viaduct, the other not */
	enum bench_think think;
	unsigned trips; /* BENCH_CRR: of each connection */
};

static inline bool bench_is_copy(const struct bench_pattern *p)
{
	return p->shape == BENCH_COPY || p->shape == BENCH_COPY_COLD;
}

enum { BENCH_CRR_BYTES = 64 };
/* A connection that ends when its upgrade has just been earned, and cannot have paid. */
enum { BENCH_SESSION_TRIPS = 12 };

/* In nanoseconds; GAP_BYTE for a byte of large messages. */
enum bench_logp {
	BENCH_LOGP_HALF_RTT,
	BENCH_LOGP_LATENCY,
	BENCH_LOGP_SEND,
	BENCH_LOGP_RECV,
	BENCH_LOGP_GAP,
	BENCH_LOGP_GAP_BYTE,
	BENCH_LOGP_COUNT
};

/* Nanoseconds that 50, 99 and 99.9 % of the round trips did not exceed. */
enum bench_latency { BENCH_P50, BENCH_P99, BENCH_P999, BENCH_LATENCY_COUNT };

/* Of the experiment setup; times in nanoseconds, processor time that of both ends. */
enum bench_setup {
	BENCH_SETUP_CONNECTION, /* what it takes beside its round trips */
	BENCH_SETUP_TRIP,
	BENCH_SETUP_CONNECTION_CPU,
	BENCH_SETUP_TRIP_CPU,
	BENCH_SETUP_SWITCH, /* from connect until neither direction is TCP's; or 0 */
	BENCH_SETUP_SWITCH_TRIPS, /* round trips until then */
	BENCH_SETUP_COUNT
};

/* Round trips of its connections. */
enum { BENCH_SETUP_SHORT = 32, BENCH_SETUP_LONG = 128 };

/* What one end is to do. Passed to it on its command line. */
struct bench_job {
	const struct bench_pattern *pattern;
	size_t size_bytes;
	unsigned conns, active; /* active: those with messages under way */
	unsigned think_us;	/* between a reply and the next request */
	unsigned rate;	      /* round trips a second to begin, or 0: one after another */
	bool wants_latencies; /* of each round trip: takes a quarter of the time more */
	uint64_t time_ns;
	int cpu;		/* to run on, or -1 */
	const char *address;	/* client: TCP port, or "@" and an abstract name */
	const char *congestion; /* of TCP sockets; "" leaves the system's */
	const char *
		host; /* where the server listens, in numbers; NULL: on this host alone */
	bool unix_domain;
	bool rsockets; /* a library that was preloaded makes them */
	bool verbs;    /* no sockets, but for the ends to meet by */
	bool server;
	int result_fd;
	int peer; /* client: the server's process, for its processor time; or 0 */
};

/* What one end measured. Values are those of the timed phase, bytes those of all phases.
 */
struct bench_result {
	uint64_t ops; /* round trips, messages or connections */
	uint64_t ns;
	uint64_t tx_bytes, rx_bytes; /* moved, as the program saw it */
	uint64_t bad;		     /* checks of content that failed */
	uint64_t cpu_ns;	     /* client: processor time of its process */
	uint64_t peer_cpu_ns;	     /* and of the server's, in the same time */
	uint64_t phase; /* which timed phase of the client's that was, from 1 */
	double logp[BENCH_LOGP_COUNT]; /* client */
	double setup[BENCH_SETUP_COUNT];
	double latency[BENCH_LATENCY_COUNT]; /* of round trips; 0 unknown */
};

/* ---- role.c: the process at one end ---- */

const struct bench_pattern *bench_pattern_find(const char *name);
const struct bench_pattern *bench_pattern_at(size_t i); /* NULL past the last */
const char *bench_pattern_names(void);			/* a sentence with all of them */
/* The hidden subcommand `viaduct bench --role ...`. Returns an exit status. */
int bench_role_main(int argc, char **argv);
/* Writes the reason of a failure to the parent and ends the process. */
void bench_role_fail(const char *what) __attribute__((noreturn));
/* Takes part in the sums: every byte that a pattern moves goes through these four. */
ssize_t bench_send(int fd, const void *buf, size_t len); /* may return -EAGAIN */
ssize_t bench_recv(int fd, void *buf, size_t len);	 /* 0 at the end; -EAGAIN */
void bench_send_all(int fd, const void *buf, size_t len, bool spin);
bool bench_recv_all(int fd, void *buf, size_t len, bool spin); /* false at the end */
void *bench_buffer(size_t bytes);
int bench_connect(const struct bench_job *job);
int bench_accept(const struct bench_job *job, int listener);
/* Before and after the timed phase: the processor time of both ends. */
void bench_cpu_start(void);
void bench_cpu_stop(struct bench_result *res);

/* ---- rtt.c, stream.c, logp.c: the patterns ---- */

void bench_rtt_run(const struct bench_job *job, const int *fds, struct bench_result *res);
void bench_stream_run(const struct bench_job *job, int fd, struct bench_result *res);
void bench_bidir_run(const struct bench_job *job, int fd, struct bench_result *res);
void bench_logp_run(const struct bench_job *job, int fd, struct bench_result *res);
void bench_crr_client(const struct bench_job *job, struct bench_result *res);
void bench_crr_server(const struct bench_job *job, int listener);

/* ---- raw.c: RDMA without sockets ---- */

/* An RDMA device has the address of this end of a connection. */
bool bench_raw_found(int fd);
/* BENCH_RTT, BENCH_STREAM and BENCH_BIDIR by sends and receives. The connection is how the ends meet. */
void bench_raw_run(const struct bench_job *job, int fd, struct bench_result *res);

/* For other patterns: messages of one size, by a queue pair of their own. */
struct raw;
/* It goes with the process. */
struct raw *bench_raw_open(size_t size, int fd);
/* is_answered: the next one is not sent before the peer has answered. */
void bench_raw_send(struct raw *r, uint64_t number, bool is_answered,
		    struct bench_result *res);
/* A message that is answered. One with another number than that is a bad one. */
void bench_raw_receive(struct raw *r, uint64_t number, struct bench_result *res);
/* Waits until the peer has taken all; the peer is in bench_raw_sink, which takes the messages from number 1 on. */
void bench_raw_mark(struct raw *r);
void bench_raw_sink(struct raw *r, struct bench_result *res);

/* ---- setup.c: what an upgrade costs ---- */

void bench_setup_client(const struct bench_job *job, struct bench_result *res);
void bench_setup_server(const struct bench_job *job, int listener);

/* ---- copy.c, copy_may.c: a single copy between processes, against two ---- */

enum bench_copy {
	BENCH_COPY_NONE,
	BENCH_COPY_RING,
	BENCH_COPY_WRITE,
	BENCH_COPY_READ,
	BENCH_COPY_WAYS
};

struct bench_copy_job {
	enum bench_copy way;
	bool cold;
	size_t size_bytes;
	uint64_t time_ns;
	int cpus[2]; /* receiver's and sender's */
};

/*
 * Messages one way between parent and child. Writes messages a second, or 0; returns 0 or
 * -errno, -EBADMSG when a message did not arrive as it was sent. Blocks until it is over.
 */
int bench_copy_run(const struct bench_copy_job *job, double *rate);
/* Why this machine does not let parent and child do it, or NULL. */
const char *bench_copy_forbidden(enum bench_copy way);
/* Where no sizes are given. */
const size_t *bench_copy_sizes(bool quick, unsigned *count);
int bench_copy_scope(void); /* kernel.yama.ptrace_scope; 0 without it */
/* What an end walks through for cold buffers: twice the largest cache of a processor. */
size_t bench_copy_cold_bytes(void);

/* ---- measure.c: both ends, from the parent ---- */

/* One way to run a pattern, compared with the others in the same round. */
struct bench_contender {
	const char *name;
	bool unix_domain, via_server, via_client;
	bool rsockets, verbs; /* between two hosts */
	bool spin;  /* run the pattern with spinning nonblocking calls instead */
	bool floor; /* not sockets at all: the raw ring */
	enum bench_copy copy;	       /* or a way to copy */
	const struct bench_peer *peer; /* or another system's own benchmark */
	const char *viaduct_spin; /* VIADUCT_SPIN at both ends; NULL: as it is here */
};

/* ---- peer.c: other systems' own benchmarks ---- */

struct bench_peer {
	const char *name, *program, *package; /* package: as Debian names it */
	bool streams;			      /* it can measure one way, too */
};

enum { BENCH_PEERS_MAX = 2 };

const struct bench_peer *bench_peer_at(size_t i); /* NULL past the last */
bool bench_peer_found(const struct bench_peer *peer);

struct bench_sample {
	double rate;			     /* operations a second; 0 when it failed */
	double client_cpu_ns, server_cpu_ns; /* for an operation; 0 unknown */
	double logp[BENCH_LOGP_COUNT], setup[BENCH_SETUP_COUNT];
	double latency[BENCH_LATENCY_COUNT];
	uint64_t direct_bytes, tcp_bytes; /* as the report of `viaduct run` says */
	bool reported;
	char reasons[160]; /* of that report, as JSON */
	char error[160];   /* "" when it went well */
};

struct bench_setting {
	int cpus[2];	   /* server's and client's, or -1 */
	int floor_cpus[2]; /* two processors, or -1 */
	uint64_t time_ns;
	const char *congestion;
	const char *address; /* of the server's host, in numbers; NULL: this one */
	const struct host
		*host; /* which is asked for the server; NULL: it is started here */
};

/* 0 when `viaduct run` can run this program; else it has said why, and -ENOEXEC. */
int bench_check_viaduct(void);

enum { BENCH_CONTENDERS_MAX = 8, BENCH_PAIRS_MAX = 99 };

enum { BENCH_LOAD_LETTERS = 16 };

/* One line of the plan, and what was measured. */
struct bench_row {
	const struct bench_pattern *pattern;
	size_t size_bytes;
	unsigned conns, active;
	unsigned busy;		       /* busy loops beside */
	char load[BENCH_LOAD_LETTERS]; /* their name: quiet, busy, busy-6 */
	unsigned think_us;
	unsigned rate; /* round trips a second that are begun; 0: as many as can be */
	const char *placement;	    /* as --placement names it */
	bool matrix;		    /* one of several placements: named with it */
	unsigned contenders, pairs; /* contender 0 is what the others are compared with */
	const struct bench_contender *who[BENCH_CONTENDERS_MAX];
	/* Without rate and error: not measured in this pair. */
	struct bench_sample samples[BENCH_CONTENDERS_MAX][BENCH_PAIRS_MAX];
	double line_ns[BENCH_PAIRS_MAX]; /* placement at each pair; 0 unknown */
};

void bench_measure(const struct bench_setting *set, const struct bench_row *row,
		   const struct bench_contender *who, struct bench_sample *sample);

/* ---- files.c: as many open files as the connections need ---- */

/* Raises the limit for this process and its children. Says why not, and -EMFILE. */
int bench_files_raise(unsigned conns, bool viaduct);

/* Fills in rate or error. Blocks until the programs have ended. */
void bench_peer_measure(const struct bench_setting *set, const struct bench_row *row,
			const struct bench_peer *peer, struct bench_sample *s);

/* ---- figure.c: what follows from the samples ---- */

enum bench_figure {
	BENCH_RATE,
	/* As BENCH_RATE; at a fixed rate what the median round trip would allow. */
	BENCH_SPEED,
	BENCH_RATIO, /* of the speeds, against contender 0 in the same pair */
	BENCH_BYTES,
	BENCH_CPU, /* nanoseconds of both ends for an operation */
	BENCH_CLIENT_CPU,
	BENCH_SERVER_CPU,
	BENCH_CLIENT_CPU_BYTE,
	BENCH_SERVER_CPU_BYTE,
	BENCH_OPS_PER_CPU, /* for a second of both ends' processor time */
	BENCH_BYTES_PER_CPU,
	BENCH_LOGP_FIGURES, /* and from here on the parameters of enum bench_logp */
	BENCH_SETUP_FIGURES = BENCH_LOGP_FIGURES + BENCH_LOGP_COUNT, /* bench_setup's */
	BENCH_LATENCY_FIGURES = BENCH_SETUP_FIGURES + BENCH_SETUP_COUNT,
};

struct bench_spread {
	double median, min, max;
	unsigned n; /* values; with 0 of them all is 0 */
};

/* NAN when the measurement failed or has no such figure. */
double bench_figure(const struct bench_row *row, unsigned who, unsigned pair,
		    enum bench_figure figure);
struct bench_spread bench_spread(const struct bench_row *row, unsigned who,
				 enum bench_figure figure);
struct bench_spread bench_spread_line(const struct bench_row *row);
/* Of the values that are not NAN; at most BENCH_PAIRS_MAX. */
struct bench_spread bench_spread_of(const double *values, unsigned n);
size_t bench_bytes_per_op(const struct bench_row *row); /* payload, both directions */
/* As they are named in JSON and CSV. */
extern const char *const bench_logp_names[BENCH_LOGP_COUNT];
extern const char *const bench_setup_names[BENCH_SETUP_COUNT];
extern const char *const bench_latency_names[BENCH_LATENCY_COUNT];
const char *bench_unit(const struct bench_row *row); /* what an operation is */

/* "on" or "off" where it says so of Viaduct's spinning, else "". */
const char *bench_spin_name(const struct bench_contender *who);

/* ---- table.c: for people ---- */

void bench_table_head(FILE *out, unsigned name_width, unsigned over_width);
void bench_table_row(FILE *out, const struct bench_row *row);
/* "rtt-epoll", "rtt-epoll x10", "rtt-epoll x1000/50" where 50 of them are active, and
 * the name of the load with busy loops beside; into buf, which is returned. */
const char *bench_format_name(char buf[48], const struct bench_row *row);
/* "64 B", "16 KiB" and "0.3 us", "1.2 M/s", "4.5 GB/s"; into buf, which is returned. */
const char *bench_format_size(char buf[16], size_t bytes);
const char *bench_format_rate(char buf[24], const struct bench_row *row, double rate);
/* "  8.15 (7.90..8.31)", in 22 columns below 100,000; into buf, which is returned. */
const char *bench_format_ratio(char buf[64], struct bench_spread ratio);

/* ---- json.c: for programs ---- */

/* The object's beginning, up to and without the comma after "machine". */
void bench_json_head(FILE *out, const char *kind);
void bench_json_row(FILE *out, const struct bench_row *row);
/* ,"name":{...} and ,"name":[...] of all pairs, 0 for a sample that is not there. */
void bench_json_spread(FILE *out, const char *name, struct bench_spread s);

/* ---- csv.c: a line for each sample ---- */

void bench_csv_head(FILE *out);
void bench_csv_row(FILE *out, const struct bench_row *row);

/* ---- machine.c: what the figures depend on ---- */

void bench_machine_text(FILE *out);
/* A word, blanks, and from BENCH_HEAD_INDENT on what it says; broken where the terminal ends. */
enum { BENCH_HEAD_INDENT = 11 };
void bench_head_line(FILE *out, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Above it, a speed in terms of the raw ring's says that the ring had no processor. */
#define BENCH_FLOOR_BELIEVED 1.5
/* Where other work ran when it began: its load. */
void bench_machine_warn(FILE *out);
void bench_machine_json(FILE *out);

#endif
