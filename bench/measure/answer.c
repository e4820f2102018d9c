/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct bench --answer: runs the servers of measurements that other hosts make, one at a time. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/host.h"
#include "tool/cli.h"
#include "tool/floor.h"

enum { HELLO_MS = 10000, CONNS_MAX = 25000, SIZE_MAX_BYTES = 64 << 20 };
#define TIME_MAX_NS 3600000000000ull

/* One that measures, and the server that runs for it. */
struct asker {
	int fd;
	char text[512]; /* what it says, up to the first line that is not whole */
	size_t len;
	bool has_ended; /* it needs no more of this server's clock */
	clockid_t clock;
};

struct job {
	struct bench_row row;
	struct bench_setting set;
	struct bench_contender who;
	char congestion[32], address[64];
};

/* The next whole line, without its end, into `line`. False: there is none yet. */
static bool take_line(struct asker *a, char line[512])
{
	char *end = memchr(a->text, '\n', a->len);
	size_t n = end ? (size_t)(end - a->text) : 0;

	if (!end)
		return false;
	memcpy(line, a->text, n);
	line[n] = 0;
	a->len -= n + 1;
	memmove(a->text, end + 1, a->len);
	return true;
}

/* False: it has gone, or says too much at once. */
static bool hear(struct asker *a)
{
	ssize_t n = recv(a->fd, a->text + a->len, sizeof(a->text) - a->len, 0);

	a->len += n > 0 ? (size_t)n : 0;
	return n > 0;
}

static bool first_line(struct asker *a, char line[512])
{
	struct pollfd p = {.fd = a->fd, .events = POLLIN};

	while (!take_line(a, line))
		if (poll(&p, 1, HELLO_MS) <= 0 || !hear(a))
			return false;
	return true;
}

/* ---- a job ---- */

/* Where the asker has reached this host: the server listens there. */
static int own_address(int fd, char address[64])
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);

	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&own, len, address, 64, NULL, 0,
			NI_NUMERICHOST))
		return -EINVAL;
	/* IPv4, by a socket for both. */
	if (!strncmp(address, "::ffff:", 7) && strchr(address, '.'))
		memmove(address, address + 7, strlen(address + 7) + 1);
	return 0;
}

/* Letters, digits, '_' and '-': as names of algorithms are. */
static bool is_name(const char *text)
{
	return text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-")] == 0;
}

static bool take_way(struct job *j, const char *way)
{
	j->who.name = "server";
	j->who.via_server = !strcmp(way, "viaduct");
	j->who.rsockets = !strcmp(way, "rsockets");
	j->who.verbs = !strcmp(way, "verbs");
	return j->who.via_server || !strcmp(way, "tcp") ||
	       (j->who.rsockets && host_rsockets()) || j->who.verbs;
}

/* Everything that the other host says is looked at: it is anybody. */
static bool take_job(struct job *j, const char *line)
{
	char way[16], pattern[32];
	int latencies;
	uintmax_t time_ns;

	memset(j, 0, sizeof(*j));
	if (sscanf(line, HOST_JOB_SCAN, way, pattern, &j->row.size_bytes, &j->row.conns,
		   &j->row.active, &j->row.think_us, &j->row.rate, &latencies, &time_ns,
		   j->congestion) != 10)
		return false;
	if (!strcmp(j->congestion, "-"))
		j->congestion[0] = 0;
	j->row.pattern = bench_pattern_find(pattern);
	j->row.matrix = !latencies;
	j->set = (struct bench_setting){.cpus = {-1, -1},
					.time_ns = time_ns,
					.congestion = j->congestion,
					.address = j->address};
	return take_way(j, way) && j->row.pattern && j->row.pattern->shape < BENCH_COPY &&
	       j->row.size_bytes >= 1 && j->row.size_bytes <= SIZE_MAX_BYTES &&
	       j->row.conns >= 1 && j->row.conns <= CONNS_MAX && j->row.active >= 1 &&
	       j->row.active <= j->row.conns && j->row.think_us <= 1000000 &&
	       time_ns >= 1000000 && time_ns <= TIME_MAX_NS && is_name(j->congestion);
}

/* What the asker wants of a server that runs, or has run. False: it has gone. */
static bool obey(struct asker *a)
{
	char line[512], text[64];
	struct timespec ts;

	if (!hear(a))
		return false;
	while (take_line(a, line)) {
		if (!strcmp(line, "end"))
			a->has_ended = true;
		if (strcmp(line, "clock"))
			continue;
		if (clock_gettime(a->clock, &ts) < 0)
			ts = (struct timespec){0};
		snprintf(text, sizeof(text), "clock %ju\n",
			 (uintmax_t)ts.tv_sec * 1000000000u + (uintmax_t)ts.tv_nsec);
		if (host_say(a->fd, text) < 0)
			return false;
	}
	return true;
}

/* Passes on what the server has said since. */
static bool pass_on(struct asker *a, struct end *server)
{
	size_t from = server->len;

	end_hear(server);
	return server->len == from || host_say(a->fd, server->text + from) == 0;
}

/* Until the server has ended, and the asker needs it no more. False: it is not waited for any longer. */
static bool relay(struct asker *a, struct end *server, uint64_t limit_ns)
{
	uint64_t until = floor_now_ns() + limit_ns;

	while (server->fd >= 0 || !a->has_ended) {
		struct pollfd p[2] = {{.fd = a->fd, .events = POLLIN},
				      {.fd = server->fd, .events = POLLIN}};
		uint64_t now = floor_now_ns();

		if (now >= until || poll(p, 2, (int)((until - now) / 1000000 + 1)) < 0)
			return false;
		if (p[0].revents && !obey(a))
			return false;
		if (p[1].revents && !pass_on(a, server))
			return false;
	}
	return true;
}

static void say_report(const struct asker *a, const char *path)
{
	char line[4096];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (host_say(a->fd, "report ") < 0 || host_say(a->fd, line) < 0)
			break;
	if (f)
		fclose(f);
}

static void serve(struct asker *a, struct job *j, const char *report)
{
	static struct ends ends; /* large */
	char text[64];
	int status = 0;

	memset(&ends, 0, sizeof(ends));
	ends.set = &j->set;
	ends.row = &j->row;
	ends.who = &j->who;
	ends.report = report;
	ends.client.pid = ends.client.fd = -1;
	if (bench_files_raise(j->row.conns, j->who.via_server) < 0 ||
	    end_start(&ends, NULL) < 0) {
		host_say(a->fd, "error the server cannot be started there\n");
		return;
	}
	if (clock_getcpuclockid(ends.server.pid, &a->clock))
		a->clock = -1;
	if (relay(a, &ends.server,
		  j->set.time_ns * 8 + (uint64_t)HOST_LIMIT_MS * 1000000) &&
	    waitpid(ends.server.pid, &status, 0) == ends.server.pid) {
		ends.server.pid = -1;
		say_report(a, report);
		snprintf(text, sizeof(text), "status %d\n", status);
		host_say(a->fd, text);
	}
	end_stop(&ends.server);
}

static void take(struct asker *a, const char *line)
{
	static struct job job; /* large */
	const char *tmp = getenv("TMPDIR");
	char dir[256], report[300];

	if (!take_job(&job, line) || own_address(a->fd, job.address) < 0) {
		host_say(a->fd, "error that is no job for this version\n");
		return;
	}
	snprintf(dir, sizeof(dir), "%s/viaduct-bench.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		host_say(a->fd, "error no temporary directory there\n");
		return;
	}
	snprintf(report, sizeof(report), "%s/report", dir);
	serve(a, &job, report);
	unlink(report);
	rmdir(dir);
}

static void answer(int fd)
{
	struct asker a = {.fd = fd};
	char line[512], text[32];

	if (!first_line(&a, line))
		return;
	if (strcmp(line, "hello 1")) {
		take(&a, line);
		return;
	}
	snprintf(text, sizeof(text), "host 1 %d %d\n", host_rsockets() != NULL,
		 bench_raw_found(fd));
	host_say(fd, text);
}

/* For both families; for IPv4 alone where this host has no other. */
static int open_port(unsigned port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port),
				   .sin6_addr = in6addr_any};
	struct sockaddr_in four = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, zero = 0;
	bool both = fd >= 0;

	if (!both)
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (both)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if ((both ? bind(fd, (struct sockaddr *)&six, sizeof(six))
		  : bind(fd, (struct sockaddr *)&four, sizeof(four))) < 0 ||
	    listen(fd, 16) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/*
 * A connection that is closed with something unread is reset, and what was said last may be lost. So the
 * other end closes first, or has HELLO_MS for it.
 */
static void leave(int fd)
{
	uint64_t until = floor_now_ns() + HELLO_MS * 1000000ull, now;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char unread[512];

	shutdown(fd, SHUT_WR);
	while ((now = floor_now_ns()) < until &&
	       poll(&p, 1, (int)((until - now) / 1000000 + 1)) > 0 &&
	       recv(fd, unread, sizeof(unread), 0) > 0)
		;
	close(fd);
}

int host_answer(unsigned port)
{
	int listener = open_port(port), fd;

	if (listener < 0) {
		warn_line("viaduct bench: port %u cannot be listened at: %s", port,
			  strerror(-listener));
		return 1;
	}
	if (bench_check_viaduct() < 0)
		return 1;
	printf("port %u answers `viaduct bench --host` of other hosts until this is "
	       "interrupted\n",
	       port);
	fflush(stdout);
	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 ||
	       errno == EINTR || errno == ECONNABORTED) {
		if (fd < 0)
			continue;
		answer(fd);
		leave(fd);
	}
	warn_line("viaduct bench: nobody can be answered any more: %s", strerror(errno));
	return 1;
}
