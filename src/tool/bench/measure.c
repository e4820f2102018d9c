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
#include "tool/bench/bench.h"

enum { RESULT_FD = 200, ARGS_MAX = 40, GRACE_MS = 120000, CONN_MS = 20 };

struct end {
	pid_t pid;
	int fd; /* what it says */
	char text[512];
	size_t len;
	struct bench_result res;
};

struct words {
	char *v[ARGS_MAX];
	unsigned n;
	char text[1024];
	size_t used;
};

static void add_word(struct words *w, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void add_word(struct words *w, const char *fmt, ...)
{
	va_list ap;
	char *at = w->text + w->used;
	va_start(ap, fmt);
	int n = vsnprintf(at, sizeof(w->text) - w->used, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(w->text) - w->used || w->n + 1 >= ARGS_MAX)
		abort(); /* all words are short and ours */
	w->v[w->n++] = at;
	w->v[w->n] = NULL;
	w->used += (size_t)n + 1;
}

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

static const char *own_path(void)
{
	static char path[512];
	ssize_t n = path[0] ? 0 : readlink("/proc/self/exe", path, sizeof(path) - 1);
	return n < 0 ? "viaduct" : path;
}

static int start(struct end *e, char **argv)
{
	int fds[2];
	pid_t parent = getpid();

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	e->pid = fork();
	if (e->pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return -errno;
	}
	if (e->pid == 0) {
		/* An interrupted bench must not leave spinning processes behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || dup2(fds[1], RESULT_FD) < 0)
			_exit(1);
		execv(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	e->fd = fds[0];
	return 0;
}

int bench_check_viaduct(void)
{
	int status = -1;
	pid_t pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDOUT_FILENO);
		execl(own_path(), own_path(), "run", "--", own_path(), "--version", NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
	return status ? -ENOEXEC : 0;
}

static void stop(struct end *e)
{
	if (e->fd >= 0)
		close(e->fd);
	if (e->pid > 0) {
		kill(e->pid, SIGKILL);
		waitpid(e->pid, NULL, 0);
	}
	e->fd = -1;
	e->pid = -1;
}

/* Reads what the end has to say, once. False at its end. */
static bool hear(struct end *e)
{
	ssize_t n = read(e->fd, e->text + e->len, sizeof(e->text) - 1 - e->len);
	if (n <= 0) {
		close(e->fd);
		e->fd = -1;
		return false;
	}
	e->len += (size_t)n;
	e->text[e->len] = 0;
	return true;
}

static const char *find_line(const struct end *e, const char *key)
{
	const char *at = strstr(e->text, key);
	return at && strchr(at, '\n') ? at + strlen(key) : NULL;
}

/* Waits for the server's address. */
static int hear_address(struct end *e, char address[64])
{
	struct pollfd p = {.fd = e->fd, .events = POLLIN};
	const char *at;
	while (!(at = find_line(e, "address ")))
		if (poll(&p, 1, GRACE_MS) <= 0 || !hear(e))
			return -ETIMEDOUT;
	snprintf(address, 64, "%.*s", (int)strcspn(at, "\n"), at);
	return 0;
}

static bool ended_badly(const struct end *e)
{
	return find_line(e, "error ") || (e->fd < 0 && !find_line(e, "result "));
}

static int hear_both(struct end *a, struct end *b, uint64_t limit_ns)
{
	uint64_t until = bench_now_ns() + limit_ns;
	while (a->fd >= 0 || b->fd >= 0) {
		struct pollfd p[2] = {{.fd = a->fd, .events = POLLIN},
				      {.fd = b->fd, .events = POLLIN}};
		uint64_t now = bench_now_ns();
		if (now >= until || poll(p, 2, (int)((until - now) / 1000000 + 1)) < 0)
			return -ETIMEDOUT;
		if (p[0].revents)
			hear(a);
		if (p[1].revents)
			hear(b);
		/* When one end has failed, the other may wait for ever. */
		if (ended_badly(a) || ended_badly(b))
			return -EPIPE;
	}
	return 0;
}

static void take_result(struct end *e, const char *name, struct bench_sample *s)
{
	struct bench_result *r = &e->res;
	const char *at = find_line(e, "error ");
	int status = 0;

	if (at)
		fail(s, "%s: %.*s", name, (int)strcspn(at, "\n"), at);
	at = find_line(e, "result ");
	if (!at ||
	    sscanf(at, "%lu %lu %lu %lu %lu %lu %lu", &r->ops, &r->ns, &r->tx_bytes,
		   &r->rx_bytes, &r->bad, &r->cpu_ns, &r->peer_cpu_ns) != 7)
		fail(s, "%s ended without a result", name);
	at = find_line(e, "logp ");
	if (at)
		sscanf(at, "%lf %lf %lf %lf %lf %lf", &r->logp[0], &r->logp[1],
		       &r->logp[2], &r->logp[3], &r->logp[4], &r->logp[5]);
	at = find_line(e, "setup ");
	if (at)
		sscanf(at, "%lf %lf %lf %lf %lf %lf", &r->setup[0], &r->setup[1],
		       &r->setup[2], &r->setup[3], &r->setup[4], &r->setup[5]);
	at = find_line(e, "latency ");
	if (at)
		sscanf(at, "%lf %lf %lf", &r->latency[BENCH_P50], &r->latency[BENCH_P99],
		       &r->latency[BENCH_P999]);
	if (s->error[0] || waitpid(e->pid, &status, 0) != e->pid)
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

/* Adds up the lines that `viaduct run --report` has left. */
static void read_report(const char *path, struct bench_sample *s)
{
	char line[4096];
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
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
	if (f)
		fclose(f);
}

struct ends {
	const struct bench_setting *set;
	const struct bench_row *row;
	const struct bench_contender *who;
	const char *report;
	struct end server, client;
};

static void build_words(struct words *w, const struct ends *e, const char *address)
{
	const struct bench_setting *set = e->set;
	const struct bench_row *row = e->row;
	const struct bench_contender *who = e->who;
	bool server = !address;

	add_word(w, "%s", own_path());
	if (server ? who->via_server : who->via_client) {
		add_word(w, "run");
		add_word(w, "--report");
		add_word(w, "%s", e->report);
		if (who->viaduct_spin)
			add_word(w, "--spin=%s", who->viaduct_spin);
		if (row->pattern->shape == BENCH_SETUP)
			add_word(w, "--upgrade-after=0");
		add_word(w, "--");
		add_word(w, "%s", own_path());
	}
	add_word(w, "bench");
	add_word(w, "--role");
	add_word(w, server ? "server" : "client");
	add_word(w, "--pattern");
	add_word(w, "%s", who->spin ? "rtt-spin" : row->pattern->name);
	add_word(w, "--size=%zu", row->size_bytes);
	add_word(w, "--conns=%u", row->conns);
	add_word(w, "--active=%u", row->active);
	add_word(w, "--think-us=%u", row->think_us);
	if (row->rate)
		add_word(w, "--rate=%u", row->rate);
	if (!row->matrix)
		add_word(w, "--latencies");
	add_word(w, "--time-ns=%ju", (uintmax_t)set->time_ns);
	add_word(w, "--cpu=%d", set->cpus[server ? 0 : 1]);
	add_word(w, "--result-fd=%d", RESULT_FD);
	add_word(w, "--congestion=%s", set->congestion);
	if (who->unix_domain)
		add_word(w, "--unix");
	if (server)
		return;
	add_word(w, "--address=%s", address);
	add_word(w, "--peer=%d", (int)e->server.pid);
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

static void run_ends(struct ends *e, struct bench_sample *s)
{
	struct words sw = {.n = 0}, cw = {.n = 0};
	char address[64];

	build_words(&sw, e, NULL);
	if (start(&e->server, sw.v) < 0) {
		fail(s, "cannot start the server: %s", strerror(errno));
		return;
	}
	if (hear_address(&e->server, address) < 0) {
		take_result(&e->server, "server", s);
		goto stop_server;
	}
	build_words(&cw, e, address);
	if (start(&e->client, cw.v) < 0) {
		fail(s, "cannot start the client: %s", strerror(errno));
		goto stop_server;
	}
	if (hear_both(&e->server, &e->client,
		      e->set->time_ns * 8 + (GRACE_MS + CONN_MS * e->row->conns) *
						    1000000ull) == -ETIMEDOUT)
		fail(s, "timed out: client %s, server %s",
		     e->client.fd < 0 ? "ended" : "hangs",
		     e->server.fd < 0 ? "ended" : "hangs");
	take_result(&e->client, "client", s);
	take_result(&e->server, "server", s);
	compare(&e->server, &e->client, s);
	stop(&e->client);
stop_server:
	stop(&e->server);
}

static void measure_floor(const struct bench_setting *set, const struct bench_row *row,
			  struct bench_sample *s)
{
	bool rtt = row->pattern->shape == BENCH_RTT;
	uint64_t time_ns = set->time_ns / 4 < 30000000 ? set->time_ns / 4 : 30000000;
	int err = bench_floor_run(rtt ? BENCH_FLOOR_RTT : BENCH_FLOOR_STREAM,
				  row->size_bytes, time_ns, set->floor_cpus, &s->rate);
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
	struct ends ends = {
		set, row, who, report, {.pid = -1, .fd = -1}, {.pid = -1, .fd = -1}};
	pid_t *busy = NULL;

	memset(sample, 0, sizeof(*sample));
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
