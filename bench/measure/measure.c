/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement: starts both ends, waits for their figures and compares their sums. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "measure/end.h"
#include "measure/host.h"
#include "tool/floor.h"
#include "tool/self.h"

enum { GRACE_MS = HOST_LIMIT_MS, CONN_MS = 20 };

static void fail(struct bench_sample *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void fail(struct bench_sample *s, const char *fmt, ...)
{
	va_list ap;
	if (s->error[0])
		return; /* the first reason is the one that counts */
	va_start(ap, fmt);
	vsnprintf(s->error, sizeof(s->error), fmt, ap);
	va_end(ap);
}

int bench_check_viaduct(void)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDOUT_FILENO);
		execl(self_program(), self_program(), "run", "--", self_program(),
		      "--version", NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	return status ? -ENOEXEC : 0;
}

/* Waits for the server's address. */
static int hear_address(struct end *e, char address[64])
{
	struct pollfd p = {.fd = e->fd, .events = POLLIN};
	const char *at;
	while (!(at = end_find(e, "address ")))
		if (poll(&p, 1, GRACE_MS) <= 0 || !end_hear(e))
			return -ETIMEDOUT;
	snprintf(address, 64, "%.*s", (int)strcspn(at, "\n"), at);
	return 0;
}

/* Goes on behind the next line that begins with this word, if there is one behind *passed. */
static bool pass_line(const struct end *e, const char *word, size_t *passed)
{
	const char *at = strstr(e->text + *passed, word);
	const char *end = at ? strchr(at + 1, '\n') : NULL;

	if (end)
		*passed = (size_t)(end - e->text);
	return end != NULL;
}

/* How far what an end says has been answered: the client's phases, the other host's clocks. */
struct talk {
	size_t phases, clocks;
	bool has_ended;
};

/*
 * The server is on another host. Its clock is read where a timed phase of the client's begins and where
 * it ends, while the client waits; and the server may go once the client has ended.
 */
static void ask_host(struct ends *e, struct talk *t)
{
	while (pass_line(&e->client, "phase", &t->phases))
		host_say(e->server.fd, HOST_CLOCK);
	while (e->client.fd >= 0 && pass_line(&e->server, "\nclock ", &t->clocks))
		host_say(e->client.fd, "!");
	if (e->client.fd < 0 && !t->has_ended)
		t->has_ended = host_say(e->server.fd, HOST_END) == 0;
}

static int hear_both(struct ends *ends, uint64_t limit_ns)
{
	struct end *a = &ends->server, *b = &ends->client;
	uint64_t until = floor_now_ns() + limit_ns;
	struct talk talk = {0};
	while (a->fd >= 0 || b->fd >= 0) {
		struct pollfd p[2] = {{.fd = a->fd, .events = POLLIN},
				      {.fd = b->fd, .events = POLLIN}};
		uint64_t now = floor_now_ns();
		if (now >= until || poll(p, 2, (int)((until - now) / 1000000 + 1)) < 0)
			return -ETIMEDOUT;
		if (p[0].revents)
			end_hear(a);
		if (p[1].revents)
			end_hear(b);
		if (ends->set->host && a->fd >= 0)
			ask_host(ends, &talk);
		/* When one end has failed, the other may wait for ever. */
		if (end_is_bad(a) || end_is_bad(b))
			return -EPIPE;
	}
	return 0;
}

static void take_result(struct end *e, const char *name, struct bench_sample *s)
{
	struct bench_result *r = &e->res;
	const char *at = end_find(e, "error ");
	int status = 0;

	if (at)
		fail(s, "%s: %.*s", name, (int)strcspn(at, "\n"), at);
	at = end_find(e, "result ");
	if (!at ||
	    sscanf(at, "%lu %lu %lu %lu %lu %lu %lu %lu", &r->ops, &r->ns, &r->tx_bytes,
		   &r->rx_bytes, &r->bad, &r->cpu_ns, &r->peer_cpu_ns, &r->phase) != 8)
		fail(s, "%s ended without a result", name);
	at = end_find(e, "logp ");
	if (at)
		sscanf(at, "%lf %lf %lf %lf %lf %lf", &r->logp[0], &r->logp[1],
		       &r->logp[2], &r->logp[3], &r->logp[4], &r->logp[5]);
	at = end_find(e, "setup ");
	if (at)
		sscanf(at, "%lf %lf %lf %lf %lf %lf", &r->setup[0], &r->setup[1],
		       &r->setup[2], &r->setup[3], &r->setup[4], &r->setup[5]);
	at = end_find(e, "latency ");
	if (at)
		sscanf(at, "%lf %lf %lf", &r->latency[BENCH_P50], &r->latency[BENCH_P99],
		       &r->latency[BENCH_P999]);
	if (s->error[0])
		return;
	at = end_find(e, "status ");
	if (e->pid < 0) /* the other host's */
		status = at ? atoi(at) : -1;
	else if (waitpid(e->pid, &status, 0) != e->pid)
		return;
	e->pid = -1;
	if (status)
		fail(s, "%s ended with status 0x%x", name, (unsigned)status);
}

static uint64_t field(const char *json, const char *name)
{
	char key[40];
	snprintf(key, sizeof(key), "\"%s\":", name);
	const char *at = strstr(json, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static void add_report(const char *line, struct bench_sample *s)
{
	const char *at = strstr(line, "\"reasons\":");
	s->reported = true;
	s->direct_bytes +=
		field(line, "tx_direct_bytes") + field(line, "rx_direct_bytes");
	s->tcp_bytes += field(line, "tx_tcp_bytes") + field(line, "rx_tcp_bytes");
	at = at ? strchr(at, '{') : NULL;
	if (at && at[1] != '}')
		snprintf(s->reasons, sizeof(s->reasons), "%.*s",
			 (int)strcspn(at, "}") + 1, at);
}

/* Adds up the lines that `viaduct run --report` has left. */
static void read_report(const char *path, struct bench_sample *s)
{
	char line[4096];
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		add_report(line, s);
	if (f)
		fclose(f);
}

/* What the other host has said of its server: its report, and its clock at each begin and end of a
 * phase of the client's. */
static void take_host(struct ends *e, struct bench_sample *s)
{
	static const char report[] = "\nreport ", clock[] = "\nclock ";
	uint64_t phase = e->client.res.phase, n = 0, begin = 0;
	char line[4096];

	for (const char *at = e->server.text; (at = strstr(at, report));) {
		at += sizeof(report) - 1;
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		add_report(line, s);
	}
	for (const char *at = e->server.text; (at = strstr(at, clock)); n++) {
		uint64_t now = strtoull(at += sizeof(clock) - 1, NULL, 10);

		if (phase > 0 && n == 2 * phase - 2)
			begin = now;
		else if (phase > 0 && n == 2 * phase - 1 && begin && now > begin)
			e->client.res.peer_cpu_ns = now - begin;
	}
}

/* Processes that use the processors meanwhile; they die with us or by stop_busy. */
static void start_busy(const struct bench_setting *set, unsigned busy, pid_t *pids)
{
	pid_t parent = getpid();
	for (unsigned i = 0; i < busy; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		if (set->cpus[i % 2] >= 0) {
			cpu_set_t cpus;
			CPU_ZERO(&cpus);
			CPU_SET((unsigned)set->cpus[i % 2], &cpus);
			sched_setaffinity(0, sizeof(cpus), &cpus);
		}
		for (;;)
			fence_compiler();
	}
}

static void stop_busy(unsigned busy, pid_t *pids)
{
	for (unsigned i = 0; i < busy; i++) {
		if (pids[i] <= 0)
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

static void compare(const struct end *server, const struct end *client,
		    struct bench_sample *s)
{
	const struct bench_result *a = &server->res, *b = &client->res;
	if (a->tx_bytes != b->rx_bytes || b->tx_bytes != a->rx_bytes)
		fail(s,
		     "sums differ: server sent %lu and got %lu, client got %lu, sent %lu",
		     a->tx_bytes, a->rx_bytes, b->rx_bytes, b->tx_bytes);
	if (a->bad || b->bad)
		fail(s, "%lu checks of content failed", a->bad + b->bad);
	if (!b->ops || !b->ns)
		fail(s, "nothing was measured");
	if (s->error[0])
		return;
	memcpy(s->logp, b->logp, sizeof(s->logp));
	memcpy(s->setup, b->setup, sizeof(s->setup));
	memcpy(s->latency, b->latency, sizeof(s->latency));
	s->rate = (double)b->ops * 1e9 / (double)b->ns;
	s->client_cpu_ns = (double)b->cpu_ns / (double)b->ops;
	s->server_cpu_ns = (double)b->peer_cpu_ns / (double)b->ops;
}

static int start_server(struct ends *e)
{
	return e->set->host ? host_start(e->set->host, e) : end_start(e, NULL);
}

static void run_ends(struct ends *e, struct bench_sample *s)
{
	char address[64];
	int r = start_server(e);

	if (r < 0) {
		fail(s, "cannot start the server: %s", strerror(-r));
		return;
	}
	if (hear_address(&e->server, address) < 0) {
		take_result(&e->server, "server", s);
		goto stop_server;
	}
	r = end_start(e, address);
	if (r < 0) {
		fail(s, "cannot start the client: %s", strerror(-r));
		goto stop_server;
	}
	if (hear_both(e, e->set->time_ns * 8 + (GRACE_MS + CONN_MS * e->row->conns) *
						       1000000ull) == -ETIMEDOUT)
		fail(s, "timed out: client %s, server %s",
		     e->client.fd < 0 ? "ended" : "hangs",
		     e->server.fd < 0 ? "ended" : "hangs");
	take_result(&e->client, "client", s);
	take_result(&e->server, "server", s);
	if (e->set->host)
		take_host(e, s);
	compare(&e->server, &e->client, s);
	end_stop(&e->client);
stop_server:
	end_stop(&e->server);
}

static void measure_floor(const struct bench_setting *set, const struct bench_row *row,
			  struct bench_sample *s)
{
	bool rtt = row->pattern->shape == BENCH_RTT;
	uint64_t time_ns = set->time_ns / 4 < 30000000 ? set->time_ns / 4 : 30000000;
	int err = floor_run(rtt ? FLOOR_RTT : FLOOR_STREAM, row->size_bytes, time_ns,
			    set->floor_cpus, &s->rate);
	if (err < 0)
		fail(s, "%s", strerror(-err));
}

static void measure_copy(const struct bench_setting *set, const struct bench_row *row,
			 enum bench_copy way, struct bench_sample *s)
{
	struct bench_copy_job job = {
		.way = way,
		.cold = row->pattern->shape == BENCH_COPY_COLD,
		.size_bytes = row->size_bytes,
		.time_ns = set->time_ns,
		.cpus = {set->floor_cpus[0], set->floor_cpus[1]},
	};
	pid_t *busy = calloc(row->busy + 1, sizeof(*busy));
	int err;

	if (!busy) {
		fail(s, "no memory");
		return;
	}
	start_busy(set, row->busy, busy);
	err = bench_copy_run(&job, &s->rate);
	stop_busy(row->busy, busy);
	free(busy);
	if (err == -EBADMSG)
		fail(s, "checks of content failed");
	else if (err < 0)
		fail(s, "%s", strerror(-err));
}

static void measure_peer(const struct bench_setting *set, const struct bench_row *row,
			 const struct bench_peer *peer, struct bench_sample *s)
{
	pid_t *busy = calloc(row->busy + 1, sizeof(*busy));
	if (!busy) {
		fail(s, "no memory");
		return;
	}
	start_busy(set, row->busy, busy);
	bench_peer_measure(set, row, peer, s);
	stop_busy(row->busy, busy);
	free(busy);
}

void bench_measure(const struct bench_setting *set, const struct bench_row *row,
		   const struct bench_contender *who, struct bench_sample *sample)
{
	const char *tmp = getenv("TMPDIR");
	char dir[256], report[300];
	static struct ends ends; /* large */
	pid_t *busy = NULL;

	memset(sample, 0, sizeof(*sample));
	memset(&ends, 0, sizeof(ends));
	ends.set = set;
	ends.row = row;
	ends.who = who;
	ends.report = report;
	ends.server.pid = ends.server.fd = ends.client.pid = ends.client.fd = -1;
	if (who->floor) {
		measure_floor(set, row, sample);
		return;
	}
	if (who->copy) {
		measure_copy(set, row, who->copy, sample);
		return;
	}
	if (who->peer) {
		measure_peer(set, row, who->peer, sample);
		return;
	}
	snprintf(dir, sizeof(dir), "%s/viaduct-bench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	busy = calloc(row->busy + 1, sizeof(*busy));
	if (!busy || !mkdtemp(dir)) {
		fail(sample, "no temporary directory: %s", strerror(errno));
		free(busy);
		return;
	}
	snprintf(report, sizeof(report), "%s/report", dir);
	start_busy(set, row->busy, busy);
	run_ends(&ends, sample);
	stop_busy(row->busy, busy);
	read_report(report, sample);
	unlink(report);
	rmdir(dir);
	free(busy);
}
