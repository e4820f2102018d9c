/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct trace: what goes through a process's rings, as a file of packets. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tool/cli.h"
#include "tool/rights.h"
#include "tool/trace/trace.h"

enum { STATUS_DONE = 0, STATUS_FAILED = 1, STATUS_LOST = 3 };
enum { OPT_PORT = 256, OPT_FD, OPT_SECONDS, OPT_SNAPLEN, OPT_BUFFER, OPT_HELP };

/* While nothing comes the looks become rarer. */
#define NAP_LEAST_MS 1
#define NAP_MOST_MS  20
/* Until the process has made its buffer, which goes with it. */
#define NAP_EARLY_MS 2
/* Records between two looks at all else. */
#define TURN 1024
/* Between two looks whether the process still is the program that it was. */
#define CHECK_NS 500000000

struct request {
	pid_t pid;
	const char *file; /* NULL: standard output */
	int port, fd;
	double seconds; /* 0: until it ends */
	uint32_t snaplen, area;
};

static _Atomic bool interrupted;

static void on_signal(int sig)
{
	(void)sig;
	atomic_store(&interrupted, true);
}

static int help(void)
{
	printf("usage: viaduct trace [-o FILE] [OPTION...] PID\n\n"
	       "Writes what goes through the rings of process PID, as a pcapng file "
	       "that\n"
	       "Wireshark and tshark open. It ends with the process, or by ^C.\n\n"
	       "  -o, --output FILE  where to; without it, or with `-`, standard "
	       "output,\n"
	       "                     which must not be a terminal\n"
	       "  --port PORT        only connections with this port, at either end\n"
	       "  --fd FD            only the connection that got this descriptor\n"
	       "  --seconds N        end after so long\n"
	       "  --snaplen BYTES    keep at most so much of each packet\n"
	       "  --buffer SIZE      of the memory in the process, from 64K to 1G, a "
	       "power of\n"
	       "                     two (default 16M)\n"
	       "  --help             print this\n\n"
	       "Exit status: 0 when all is in the file; 1 when it cannot be; 2 when "
	       "the\n"
	       "command line is wrong; 3 when bytes were lost. See viaduct-trace(1).\n");
	return STATUS_DONE;
}

static bool bad(const char *what, const char *value, const char *want)
{
	usage_error("trace", "%s `%s`: %s", what, value, want);
	return false;
}

static bool read_number(const char *text, long least, long most, long *out)
{
	char *end;

	errno = 0;
	*out = strtol(text, &end, 10);
	return end != text && !*end && errno == 0 && *out >= least && *out <= most;
}

static bool read_size(const char *text, uint32_t *out)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	const char *units = "KMG", *unit = *end ? strchr(units, *end) : NULL;

	if (end == text || *text == '-' || n > TRACE_AREA_MOST || (*end && !unit) ||
	    (unit && end[1]))
		return false;
	n <<= unit ? 10 * (unit - units + 1) : 0;
	*out = (uint32_t)n;
	return n >= TRACE_AREA_LEAST && n <= TRACE_AREA_MOST && !(n & (n - 1));
}

static bool read_option(int c, const char *value, struct request *q)
{
	long n;
	char *end;

	switch (c) {
	case 'o':
		q->file = strcmp(value, "-") ? value : NULL;
		return *value ||
		       bad("--output", value, "a file, or - for standard output");
	case OPT_PORT:
		q->port = read_number(value, 1, 65535, &n) ? (int)n : -1;
		return q->port > 0 || bad("--port", value, "a port from 1 to 65535");
	case OPT_FD:
		q->fd = read_number(value, 0, 1 << 30, &n) ? (int)n : -1;
		return q->fd >= 0 || bad("--fd", value, "the number of a descriptor");
	case OPT_SECONDS:
		q->seconds = strtod(value, &end);
		return (end != value && !*end && q->seconds > 0 && q->seconds < 1e9) ||
		       bad("--seconds", value, "a number above 0");
	case OPT_SNAPLEN:
		if (!read_number(value, 1, 1 << 20, &n))
			return bad("--snaplen", value, "a number of bytes above 0");
		q->snaplen = (uint32_t)n;
		return true;
	default:
		return read_size(value, &q->area) ||
		       bad("--buffer", value,
			   "a power of two from 64K to 1G, as in `16M`");
	}
}

/* -1: go on; else the exit status. */
static int read_command(int argc, char **argv, struct request *q)
{
	static const struct option options[] = {
		{"output", 1, NULL, 'o'},	   {"port", 1, NULL, OPT_PORT},
		{"fd", 1, NULL, OPT_FD},	   {"seconds", 1, NULL, OPT_SECONDS},
		{"snaplen", 1, NULL, OPT_SNAPLEN}, {"buffer", 1, NULL, OPT_BUFFER},
		{"help", 0, NULL, OPT_HELP},	   {NULL, 0, NULL, 0}};
	long pid;
	int c;

	optind = 1;
	argv[0] = (char *)"viaduct trace"; /* getopt's messages begin with it */
	while ((c = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		if (c == OPT_HELP || c == 'h')
			return help();
		if (c == '?')
			return usage_error("trace", NULL);
		if (!read_option(c, optarg, q))
			return EXIT_USAGE;
	}
	if (optind + 1 != argc)
		return usage_error("trace", "it takes one process id");
	if (!read_number(argv[optind], 1, 1 << 22, &pid)) {
		bad("PID", argv[optind], "the id of a process, such as pidof(1) prints");
		return EXIT_USAGE;
	}
	q->pid = (pid_t)pid;
	return -1;
}

static FILE *open_output(const struct request *q)
{
	FILE *out;
	int fd = STDOUT_FILENO;

	if (!q->file && isatty(STDOUT_FILENO)) {
		fprintf(stderr,
			"viaduct trace: a file of packets is nothing for a terminal: use "
			"`-o FILE`, or `viaduct trace PID | tshark -i -`\n");
		return NULL;
	}
	/* What programs say to each other is nobody else's to read. */
	if (q->file)
		fd = open(q->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		warn_line("viaduct trace: `%s` cannot be written: %s",
			  q->file ? q->file : "standard output", strerror(errno));
	return out;
}

/* ---- the trace ---- */

struct run {
	const struct request *request;
	struct trace_target target;
	struct trace_reader reader;
	struct pcapng file;
	struct trace_packets packets;
	uint64_t until_ns, check_ns;
	const char *why; /* it has ended; NULL: it has not */
	bool failed;
	int error; /* of the output; 0 none */
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool fail(struct run *t, const char *why)
{
	t->why = why;
	t->failed = true;
	return false;
}

/* What is there, or a good part of it: true when that was anything. */
static bool drain(struct run *t)
{
	struct trace_record record;
	uint64_t lost;
	int r = 0, n = 0;

	if (!t->reader.buffer) {
		r = trace_reader_open(&t->reader, &t->target);
		if (r <= 0)
			return r < 0 ? fail(t, "there is no buffer") : false;
	}
	for (; n < TURN; n++) {
		r = trace_reader_next(&t->reader, &record, &lost);
		if (r > 0)
			r = trace_packets_add(&t->packets, &record, t->reader.bytes,
					      lost);
		else if (r == 0)
			break;
		if (r == -EPROTO || ferror(t->file.out))
			break;
	}
	if (r == -EPROTO)
		return fail(t, "its buffer holds impossible values");
	return n > 0;
}

static void output_failed(struct run *t)
{
	t->error = errno ? errno : EIO;
	t->why = t->error == EPIPE ? "nobody reads the output" : "the output is broken";
}

/* Ends that are no event of the process's descriptor. */
static void look_around(struct run *t)
{
	uint64_t now = clock_ns();

	if (atomic_load(&interrupted))
		t->why = "interrupted";
	else if (t->until_ns && now >= t->until_ns)
		t->why = "the time is over";
	else if (ferror(t->file.out) && !t->error)
		output_failed(t);
	else if (t->reader.buffer && trace_reader_is_over(&t->reader))
		t->why = "the process has ended the trace";
	else if (now - t->check_ns > CHECK_NS) {
		t->check_ns = now;
		if (trace_target_is_other(&t->target))
			t->why = "the process runs another program now";
	}
}

/* Sleeps for the nap, or until the process, or the reader of our output, ends. */
static void nap(struct run *t, int ms)
{
	struct pollfd at[2] = {{.fd = t->target.pidfd, .events = POLLIN},
			       {.fd = fileno(t->file.out), .events = 0}};

	if (fflush(t->file.out) != 0) {
		output_failed(t);
		return;
	}
	if (poll(at, 2, ms) <= 0)
		return;
	if (at[0].revents) {
		t->why = "the process has ended";
	} else if (at[1].revents & POLLERR) {
		errno = EPIPE;
		output_failed(t);
	}
}

static void follow(struct run *t)
{
	int ms = NAP_LEAST_MS, most;

	while (!t->why) {
		if (drain(t)) {
			ms = NAP_LEAST_MS;
		} else if (!t->why) {
			most = t->reader.buffer ? NAP_MOST_MS : NAP_EARLY_MS;
			nap(t, ms);
			ms = ms * 2 < most ? ms * 2 : most;
		}
		if (!t->why)
			look_around(t);
	}
}

static void print_end(const struct run *t)
{
	unsigned long long lost = t->reader.lost;
	unsigned long long connections = t->packets.connections;

	fprintf(stderr, "viaduct trace: %s: %llu connection%s, %llu packets, %llu bytes",
		t->why, connections, connections == 1 ? "" : "s",
		(unsigned long long)t->file.packets,
		(unsigned long long)t->packets.bytes);
	if (lost)
		fprintf(stderr,
			"; %llu bytes LOST: the process was faster than this command; a "
			"larger --buffer may help\n",
			lost);
	else
		fprintf(stderr, "; nothing lost\n");
}

/* What is still in the buffer, and the file's end. Returns the exit status. */
static int finish(struct run *t)
{
	const char *why = t->why;

	/* What the process adds from here on is not asked for; what was there before is. */
	trace_target_stop(&t->target);
	if (t->reader.buffer)
		trace_reader_end_here(&t->reader);
	while (!t->failed && !t->error && drain(t))
		;
	if (!t->failed)
		t->why = why;
	if (t->reader.buffer)
		trace_reader_finish(&t->reader);
	if (!t->error) {
		pcapng_end(&t->file, t->reader.lost, t->why);
		if (fflush(t->file.out) != 0 || fclose(t->file.out) != 0)
			output_failed(t);
	}
	if (t->error && t->error != EPIPE)
		warn_line("viaduct trace: the output cannot be written: %s",
			  strerror(t->error));
	print_end(t);
	if (t->error || t->failed)
		return STATUS_FAILED;
	return t->reader.lost ? STATUS_LOST : STATUS_DONE;
}

static bool start(struct run *t, const struct request *q)
{
	/* The second time it ends us where we are, as in a write that nobody takes. */
	struct sigaction end = {.sa_handler = on_signal,
				.sa_flags = SA_RESTART | (int)SA_RESETHAND};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	t->request = q;
	rights_keep(RIGHTS_LOOK | RIGHTS_NAMESPACES | RIGHTS_FILES);
	if (!trace_target_open(&t->target, q->pid))
		return false;
	t->file.out = open_output(q);
	if (!t->file.out)
		return false;
	t->file.snaplen = q->snaplen;
	t->packets.file = &t->file;
	t->packets.target = &t->target;
	t->packets.port = q->port;
	t->packets.fd = q->fd;
	if (!trace_packets_begin(&t->packets)) {
		fprintf(stderr, "viaduct trace: there is no memory\n");
		return false;
	}
	setvbuf(t->file.out, NULL, _IOFBF, 1 << 20);
	sigaction(SIGINT, &end, NULL);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGHUP, &end, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	pcapng_begin(&t->file, &t->target);
	if (!trace_target_ask(&t->target, q->area))
		return false;
	rights_keep(RIGHTS_LOOK);
	t->check_ns = clock_ns();
	t->until_ns = q->seconds > 0 ? t->check_ns + (uint64_t)(q->seconds * 1e9) : 0;
	return true;
}

int cmd_trace(int argc, char **argv)
{
	struct request q = {.port = -1, .fd = -1, .area = TRACE_AREA_DEFAULT};
	static struct run t;
	int status = read_command(argc, argv, &q);

	if (status >= 0)
		return status;
	if (!start(&t, &q))
		return STATUS_FAILED;
	warn_line("viaduct trace: tracing %s (%d), %zu of its connections %s upgraded "
		  "now; ^C ends it",
		  t.target.name, (int)t.target.pid, t.target.upgraded,
		  t.target.upgraded == 1 ? "is" : "are");
	follow(&t);
	status = finish(&t);
	trace_packets_end(&t.packets);
	trace_target_close(&t.target);
	return status;
}
