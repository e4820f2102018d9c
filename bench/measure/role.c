/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a measurement: a plain sockets program, which may run under Viaduct. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "measure/bench.h"

static const struct bench_pattern patterns[] = {
	{"rtt", BENCH_RTT, BENCH_BLOCK, false, BENCH_NO_THINK, 0},
	{"rtt-spin", BENCH_RTT, BENCH_SPIN, false, BENCH_NO_THINK, 0},
	{"rtt-epoll", BENCH_RTT, BENCH_EPOLL, false, BENCH_NO_THINK, 0},
	{"rtt-poll", BENCH_RTT, BENCH_POLL, false, BENCH_NO_THINK, 0},
	{"stream", BENCH_STREAM, BENCH_BLOCK, false, BENCH_NO_THINK, 0},
	{"bidir", BENCH_BIDIR, BENCH_POLL, false, BENCH_NO_THINK, 0},
	{"crr", BENCH_CRR, BENCH_BLOCK, false, BENCH_NO_THINK, 1},
	{"session", BENCH_CRR, BENCH_BLOCK, false, BENCH_NO_THINK, BENCH_SESSION_TRIPS},
	{"session-30", BENCH_CRR, BENCH_BLOCK, false, BENCH_NO_THINK, 30},
	{"session-100", BENCH_CRR, BENCH_BLOCK, false, BENCH_NO_THINK, 100},
	{"think", BENCH_RTT, BENCH_BLOCK, false, BENCH_THINK, 0},
	{"think-sleep", BENCH_RTT, BENCH_BLOCK, false, BENCH_THINK_SLEEP, 0},
	{"logp", BENCH_LOGP, BENCH_BLOCK, false, BENCH_NO_THINK, 0},
	{"plain", BENCH_RTT, BENCH_BLOCK, true, BENCH_NO_THINK, 0},
	{"plain-spin", BENCH_RTT, BENCH_SPIN, true, BENCH_NO_THINK, 0},
	{"plain-stream", BENCH_STREAM, BENCH_BLOCK, true, BENCH_NO_THINK, 0},
	{"copy", BENCH_COPY, BENCH_SPIN, false, BENCH_NO_THINK, 0},
	{"copy-cold", BENCH_COPY_COLD, BENCH_SPIN, false, BENCH_NO_THINK, 0},
	{"setup", BENCH_SETUP, BENCH_BLOCK, false, BENCH_NO_THINK, 0},
	{"setup-spin", BENCH_SETUP, BENCH_SPIN, false, BENCH_NO_THINK, 0},
};

/* Of this process: the counts of all its sockets. */
static struct bench_result totals;
static int parent_fd = -1;
static clockid_t peer_clock = -1; /* processor time of the server */
static uint64_t cpu_start_ns, peer_cpu_start_ns;
/* Of a client whose server is on another host: the parent has its clock read there. */
static bool tells_phases;
static uint64_t phases;

const struct bench_pattern *bench_pattern_at(size_t i)
{
	return i < sizeof(patterns) / sizeof(patterns[0]) ? &patterns[i] : NULL;
}

const char *bench_pattern_names(void)
{
	static char text[512];
	size_t len = (size_t)sprintf(text, "--patterns takes names of");
	const struct bench_pattern *p;

	for (size_t i = 0; (p = bench_pattern_at(i)); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %s",
					i ? "," : "", p->name);
	return text;
}

const struct bench_pattern *bench_pattern_find(const char *name)
{
	const struct bench_pattern *p;
	for (size_t i = 0; (p = bench_pattern_at(i)); i++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;
	if (clock == -1 || clock_gettime(clock, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Returns once the server's clock has been read. */
static void tell_phase(void)
{
	char read_it;

	if (tells_phases &&
	    (dprintf(parent_fd, "phase\n") < 0 || read(parent_fd, &read_it, 1) != 1))
		bench_role_fail("the other host's clock");
}

/*
 * The client reads both clocks: only it knows when the timed phase begins and ends. They
 * are user and system time, as getrusage has them, but of another process as well. Of that
 * one a time slice that still runs counts up to the last tick, some milliseconds ago.
 */
void bench_cpu_start(void)
{
	tell_phase();
	cpu_start_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	peer_cpu_start_ns = clock_ns(peer_clock);
}

void bench_cpu_stop(struct bench_result *res)
{
	res->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start_ns;
	res->peer_cpu_ns = clock_ns(peer_clock) - peer_cpu_start_ns;
	res->phase = ++phases;
	tell_phase();
}

void bench_role_fail(const char *what)
{
	dprintf(parent_fd, "error %s: %s\n", what, strerror(errno));
	exit(1);
}

void *bench_buffer(size_t bytes)
{
	/* Written once: a buffer that was never touched would be read as one zero page.
	 */
	size_t rounded = (bytes + 4095) / 4096 * 4096;
	uint8_t *buf = aligned_alloc(4096, rounded);
	if (!buf)
		bench_role_fail("memory");
	for (size_t i = 0; i < rounded; i++)
		buf[i] = (uint8_t)(i * 7 + i / 251);
	return buf;
}

ssize_t bench_send(int fd, const void *buf, size_t len)
{
	ssize_t n = send(fd, buf, len, MSG_NOSIGNAL);
	if (n < 0) {
		if (errno == EAGAIN)
			return -EAGAIN;
		bench_role_fail("send");
	}
	totals.tx_bytes += (uint64_t)n;
	return n;
}

ssize_t bench_recv(int fd, void *buf, size_t len)
{
	ssize_t n = recv(fd, buf, len, 0);
	if (n < 0) {
		if (errno == EAGAIN)
			return -EAGAIN;
		bench_role_fail("recv");
	}
	totals.rx_bytes += (uint64_t)n;
	return n;
}

void bench_send_all(int fd, const void *buf, size_t len, bool spin)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = bench_send(fd, (const uint8_t *)buf + done, len - done);
		if (n > 0)
			done += (size_t)n;
		else if (!spin)
			bench_role_fail("send on a blocking socket");
	}
}

bool bench_recv_all(int fd, void *buf, size_t len, bool spin)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = bench_recv(fd, (uint8_t *)buf + done, len - done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			return false;
		else if (!spin)
			bench_role_fail("recv on a blocking socket");
	}
	return true;
}

static void set_options(const struct bench_job *job, int fd)
{
	int one = 1;
	if (job->unix_domain)
		return;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		bench_role_fail("TCP_NODELAY");
	if (job->congestion[0] && !job->rsockets &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, job->congestion,
		       (socklen_t)strlen(job->congestion)) < 0)
		bench_role_fail("TCP_CONGESTION");
}

static socklen_t host_address(const struct bench_job *job, struct sockaddr_storage *ss)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
			*found;
	socklen_t len;

	errno = EINVAL;
	if (getaddrinfo(job->host, job->address ? job->address : "0", &hints, &found))
		bench_role_fail("the host's address");
	len = found->ai_addrlen;
	memcpy(ss, found->ai_addr, len);
	freeaddrinfo(found);
	return len;
}

/* The library that makes rsockets leaves those that are made with flags to TCP. */
static int new_socket(const struct bench_job *job, int family)
{
	int fd = socket(family, SOCK_STREAM | (job->rsockets ? 0 : SOCK_CLOEXEC), 0);

	if (fd < 0)
		bench_role_fail("socket");
	return fd;
}

/* Whether an rsocket is one: the kernel knows no socket by that number. */
static void check_rsocket(const struct bench_job *job, int fd)
{
	int type;
	socklen_t len = sizeof(type);

	if (!job->rsockets ||
	    syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
		return;
	errno = ENOPROTOOPT;
	bench_role_fail("the library has left rsockets to TCP");
}

static socklen_t job_address(const struct bench_job *job, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (job->unix_domain) {
		struct sockaddr_un *sun = (struct sockaddr_un *)ss;
		size_t len = job->address ? strlen(job->address) : 0;
		sun->sun_family = AF_UNIX;
		if (len == 0 || len >= sizeof(sun->sun_path))
			return sizeof(sa_family_t); /* the kernel picks a name */
		memcpy(sun->sun_path + 1, job->address + 1, len - 1);
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	}
	if (job->host)
		return host_address(job, ss);
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sin->sin_port = htons((uint16_t)(job->address ? atoi(job->address) : 0));
	return sizeof(*sin);
}

int bench_connect(const struct bench_job *job)
{
	struct sockaddr_storage ss;
	socklen_t len = job_address(job, &ss);
	int fd = new_socket(job, ss.ss_family);
	set_options(job, fd);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0)
		bench_role_fail("connect");
	check_rsocket(job, fd);
	return fd;
}

int bench_accept(const struct bench_job *job, int listener)
{
	int one = 1;
	int fd = job->rsockets ? accept(listener, NULL, NULL)
			       : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		bench_role_fail("accept");
	check_rsocket(job, fd);
	/* The rest is inherited from the listener. */
	if (!job->unix_domain &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		bench_role_fail("TCP_NODELAY");
	return fd;
}

/* Listens, and tells the parent where. */
static int open_listener(const struct bench_job *job)
{
	struct sockaddr_storage ss;
	socklen_t len = job_address(job, &ss);
	int fd = new_socket(job, ss.ss_family);
	set_options(job, fd);
	if (bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, 1024) < 0)
		bench_role_fail("listen");
	len = sizeof(ss);
	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		bench_role_fail("getsockname");
	if (job->unix_domain) {
		size_t name = len - offsetof(struct sockaddr_un, sun_path) - 1;
		dprintf(parent_fd, "address @%.*s\n", (int)name,
			((struct sockaddr_un *)&ss)->sun_path + 1);
	} else {
		/* The port lies in one place for both families. */
		dprintf(parent_fd, "address %d\n",
			ntohs(((struct sockaddr_in *)&ss)->sin_port));
	}
	return fd;
}

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

enum { CHECK_BYTES = 128, CHECK_BATCH = 64 };

static void check_send(int fd, uint32_t *seed)
{
	uint8_t buf[CHECK_BYTES];
	for (int k = 0; k < CHECK_BYTES; k++)
		buf[k] = (uint8_t)next_random(seed);
	bench_send_all(fd, buf, CHECK_BYTES, false);
}

static void check_reply(int fd, uint32_t *seed)
{
	uint8_t buf[CHECK_BYTES];
	bool bad = false;
	if (!bench_recv_all(fd, buf, CHECK_BYTES, false))
		bench_role_fail("the server went away");
	for (int k = 0; k < CHECK_BYTES; k++)
		bad |= buf[k] != (uint8_t)next_random(seed);
	totals.bad += bad;
}

static void check_echo(int fd)
{
	uint8_t buf[CHECK_BYTES];
	if (!bench_recv_all(fd, buf, CHECK_BYTES, false))
		bench_role_fail("the client went away");
	bench_send_all(fd, buf, CHECK_BYTES, false);
}

/*
 * Short blocking round trips of random content, checked to the byte at the client. They
 * also give Viaduct the operations that a connection needs to earn its direct path. Of
 * many connections a batch takes its turns together, so that not each message wakes.
 */
static void check_connections(const struct bench_job *job, const int *fds)
{
	unsigned rounds = job->conns > CHECK_BATCH ? 64 : 512;
	unsigned batch = job->conns > CHECK_BATCH ? CHECK_BATCH : 1;
	uint32_t send_seed = 0x9e3779b9u, reply_seed = send_seed;

	for (unsigned at = 0; at < job->conns; at += batch) {
		unsigned end = at + batch < job->conns ? at + batch : job->conns;
		for (unsigned round = 0; round < rounds; round++) {
			for (unsigned i = at; i < end; i++)
				if (job->server)
					check_echo(fds[i]);
				else
					check_send(fds[i], &send_seed);
			for (unsigned i = at; i < end && !job->server; i++)
				check_reply(fds[i], &reply_seed);
		}
	}
}

static void run_raw(const struct bench_job *job, const int *fds, struct bench_result *res)
{
	bench_raw_run(job, fds[0], res);
}

static void run_connections(const struct bench_job *job, int listener)
{
	int *fds = calloc(job->conns, sizeof(*fds));
	if (!fds)
		bench_role_fail("memory");
	for (unsigned i = 0; i < job->conns; i++)
		fds[i] = job->server ? bench_accept(job, listener) : bench_connect(job);
	check_connections(job, fds);
	switch (job->pattern->shape) {
	case BENCH_RTT:
		(job->verbs ? run_raw : bench_rtt_run)(job, fds, &totals);
		break;
	case BENCH_STREAM:
		(job->verbs ? bench_raw_run : bench_stream_run)(job, fds[0], &totals);
		break;
	case BENCH_LOGP:
		bench_logp_run(job, fds[0], &totals);
		break;
	default:
		(job->verbs ? bench_raw_run : bench_bidir_run)(job, fds[0], &totals);
		break;
	}
	for (unsigned i = 0; i < job->conns; i++)
		close(fds[i]);
	free(fds);
}

static void run_pattern(const struct bench_job *job, int listener)
{
	enum bench_shape shape = job->pattern->shape;

	if (shape != BENCH_CRR && shape != BENCH_SETUP)
		run_connections(job, listener);
	else if (job->server)
		(shape == BENCH_CRR ? bench_crr_server : bench_setup_server)(job,
									     listener);
	else
		(shape == BENCH_CRR ? bench_crr_client : bench_setup_client)(job,
									     &totals);
}

enum role_option {
	ROLE = 1,
	PATTERN,
	SIZE,
	CONNS,
	TIME,
	CPU,
	ADDRESS,
	CONGESTION,
	UNIX,
	FD,
	PEER,
	THINK,
	ACTIVE,
	RATE,
	LATENCIES,
	HOST,
	RSOCKETS,
	VERBS
};

static int set_option(struct bench_job *job, int option)
{
	switch (option) {
	case ROLE:
		job->server = !strcmp(optarg, "server");
		break;
	case PATTERN:
		job->pattern = bench_pattern_find(optarg);
		break;
	case SIZE:
		job->size_bytes = strtoull(optarg, NULL, 10);
		break;
	case CONNS:
		job->conns = (unsigned)strtoul(optarg, NULL, 10);
		break;
	case TIME:
		job->time_ns = strtoull(optarg, NULL, 10);
		break;
	case CPU:
		job->cpu = atoi(optarg);
		break;
	case ADDRESS:
		job->address = optarg;
		break;
	case CONGESTION:
		job->congestion = optarg;
		break;
	case UNIX:
		job->unix_domain = true;
		break;
	case FD:
		job->result_fd = atoi(optarg);
		break;
	case THINK:
		job->think_us = (unsigned)strtoul(optarg, NULL, 10);
		break;
	case ACTIVE:
		job->active = (unsigned)strtoul(optarg, NULL, 10);
		break;
	case RATE:
		job->rate = (unsigned)strtoul(optarg, NULL, 10);
		break;
	case LATENCIES:
		job->wants_latencies = true;
		break;
	case PEER:
		job->peer = atoi(optarg);
		break;
	case HOST:
		job->host = optarg;
		break;
	case RSOCKETS:
		job->rsockets = true;
		break;
	case VERBS:
		job->verbs = true;
		break;
	default:
		return -EINVAL;
	}
	return 0;
}

static int parse_job(int argc, char **argv, struct bench_job *job)
{
	static const struct option options[] = {
		{"role", 1, NULL, ROLE},
		{"pattern", 1, NULL, PATTERN},
		{"size", 1, NULL, SIZE},
		{"conns", 1, NULL, CONNS},
		{"time-ns", 1, NULL, TIME},
		{"cpu", 1, NULL, CPU},
		{"address", 1, NULL, ADDRESS},
		{"congestion", 1, NULL, CONGESTION},
		{"unix", 0, NULL, UNIX},
		{"result-fd", 1, NULL, FD},
		{"peer", 1, NULL, PEER},
		{"think-us", 1, NULL, THINK},
		{"active", 1, NULL, ACTIVE},
		{"rate", 1, NULL, RATE},
		{"latencies", 0, NULL, LATENCIES},
		{"host", 1, NULL, HOST},
		{"rsockets", 0, NULL, RSOCKETS},
		{"verbs", 0, NULL, VERBS},
		{NULL, 0, NULL, 0},
	};
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		if (set_option(job, c) < 0)
			return -EINVAL;
	if (!job->active)
		job->active = job->conns;
	if (!job->pattern || !job->size_bytes || !job->conns ||
	    job->active > job->conns || job->result_fd < 0)
		return -EINVAL;
	return 0;
}

int bench_role_main(int argc, char **argv)
{
	struct bench_job job = {.cpu = -1, .result_fd = -1, .congestion = "", .conns = 1};
	int listener = -1;

	if (parse_job(argc, argv, &job) < 0)
		return 2;
	parent_fd = job.result_fd;
	if (job.cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET((unsigned)job.cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) < 0)
			bench_role_fail("sched_setaffinity");
	}
	tells_phases = job.host && !job.server;
	if (job.server)
		listener = open_listener(&job);
	if (job.peer && clock_getcpuclockid(job.peer, &peer_clock))
		peer_clock = -1;
	run_pattern(&job, listener);
	dprintf(parent_fd, "setup %g %g %g %g %g %g\n", totals.setup[0], totals.setup[1],
		totals.setup[2], totals.setup[3], totals.setup[4], totals.setup[5]);
	dprintf(parent_fd, "logp %g %g %g %g %g %g\n", totals.logp[0], totals.logp[1],
		totals.logp[2], totals.logp[3], totals.logp[4], totals.logp[5]);
	dprintf(parent_fd, "latency %g %g %g\n", totals.latency[BENCH_P50],
		totals.latency[BENCH_P99], totals.latency[BENCH_P999]);
	dprintf(parent_fd, "result %ju %ju %ju %ju %ju %ju %ju %ju\n",
		(uintmax_t)totals.ops, (uintmax_t)totals.ns, (uintmax_t)totals.tx_bytes,
		(uintmax_t)totals.rx_bytes, (uintmax_t)totals.bad,
		(uintmax_t)totals.cpu_ns, (uintmax_t)totals.peer_cpu_ns,
		(uintmax_t)totals.phase);
	return 0;
}
