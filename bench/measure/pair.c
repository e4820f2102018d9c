/* SPDX-License-Identifier: Apache-2.0 */
/* viaduct bench -- SERVER -- CLIENT: runs both plain and under Viaduct, alternating. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/program.h"
#include "measure/pair.h"
#include "tool/cli.h"
#include "tool/fault.h"
#include "tool/floor.h"
#include "tool/library.h"
#include "tool/self.h"

enum { LOOK_MS = 5, ORPHAN_MS = 5000, WORDS_MAX = 1024 };

static const char *const way_names[] = {"plain", "under Viaduct"};

static char folder[256], server_report[300], client_report[300];

static void remove_reports(void)
{
	unlink(server_report);
	unlink(client_report);
}

/*
 * An interrupted run must leave no server behind. SIGINT and SIGTERM are blocked, so that
 * they come only where this looks for them.
 */
static int signal_fd = -1, signal_seen;

static int open_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return signal_fd < 0 ? -errno : 0;
}

static bool interrupted(void)
{
	struct signalfd_siginfo info;
	if (!signal_seen && read(signal_fd, &info, sizeof(info)) == sizeof(info))
		signal_seen = (int)info.ssi_signo;
	return signal_seen;
}

static int make_folder(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%s/viaduct-bench.XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(folder)) {
		fprintf(stderr, "viaduct bench: no temporary directory %s: %s\n", folder,
			strerror(errno));
		return -EIO;
	}
	snprintf(server_report, sizeof(server_report), "%s/server", folder);
	snprintf(client_report, sizeof(client_report), "%s/client", folder);
	return 0;
}

/* "viaduct bench: the server `redis-server --port 1`, plain" begins each message. */
static void begin_message(const char *role, char *const *argv, enum pair_way way)
{
	fprintf(stderr, "viaduct bench: the %s `", role);
	for (int i = 0; argv[i]; i++)
		fprintf(stderr, "%s%s", i ? " " : "", argv[i]);
	fprintf(stderr, "`, %s, ", way_names[way]);
}

static int start(struct child *c, char *const *argv, enum pair_way way,
		 const char *report)
{
	char *words[WORDS_MAX + 8];
	unsigned n = 0;

	if (way == PAIR_VIADUCT) {
		words[n++] = (char *)self_program();
		words[n++] = (char *)"run";
		words[n++] = (char *)"--report";
		words[n++] = (char *)report;
		words[n++] = (char *)"--";
	}
	for (int i = 0; argv[i] && n < WORDS_MAX; i++)
		words[n++] = argv[i];
	words[n] = NULL;
	return child_start(c, words, -1);
}

static int wait_listening(const struct pair *p, struct child *server, enum pair_way way,
			  const struct listen_set *before)
{
	uint64_t until = floor_now_ns() + p->wait_s * 1000000000ull;
	char status[64];
	pid_t pid;

	while (!listen_found(before)) {
		/* A server that went into the background has ended, and lives on. */
		if (!child_wait(server, LOOK_MS)) {
			if (server->status == 0 && listen_descendants(&pid, 1)) {
				poll(NULL, 0, LOOK_MS);
			} else {
				begin_message("server", p->server, way);
				fprintf(stderr,
					"%s before it listened on a TCP socket. It "
					"wrote:\n",
					child_format_status(status, server->status));
				child_print_output(server, stderr);
				return -EPIPE;
			}
		}
		if (interrupted())
			return -EINTR;
		if (floor_now_ns() < until)
			continue;
		begin_message("server", p->server, way);
		fprintf(stderr,
			"runs, but has not opened a listening TCP socket in %u s: give a "
			"server that does, or more time with --wait. It wrote:\n",
			p->wait_s);
		child_print_output(server, stderr);
		return -ETIMEDOUT;
	}
	return 0;
}

/* The client may need the server to the end, so a server that fails ends it too. */
static int wait_client(struct child *server, struct child *client)
{
	while (client->pid > 0) {
		struct pollfd p[3] = {
			{.fd = client->pidfd, .events = POLLIN},
			{.fd = server->pid > 0 ? server->pidfd : -1, .events = POLLIN},
			{.fd = signal_fd, .events = POLLIN}};
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			return -errno;
		if (p[2].revents && interrupted())
			return -EINTR;
		if (p[1].revents)
			child_wait(server, -1);
		if (p[1].revents && server->status && child_wait(client, ORPHAN_MS))
			child_kill(client);
		if (p[0].revents)
			child_wait(client, -1);
	}
	return 0;
}

static int check_client(const struct pair *p, const struct child *server,
			const struct child *client, enum pair_way way)
{
	char status[64];

	if (client->status == 0)
		return 0;
	begin_message("client", p->client, way);
	fprintf(stderr, "%s. It wrote:\n", child_format_status(status, client->status));
	child_print_output(client, stderr);
	if (server->pid < 0 && server->status) {
		begin_message("server", p->server, way);
		fprintf(stderr, "%s meanwhile. It wrote:\n",
			child_format_status(status, server->status));
		child_print_output(server, stderr);
	}
	return -EPIPE;
}

/* One run of both programs, and its figures. */
static int run_once(struct pair *p, enum pair_way way)
{
	static struct listen_set before;
	struct child server, client = {.pid = -1, .pidfd = -1, .output = -1};
	uint64_t from, late;
	int err;

	listen_read(getpid(), &before);
	err = start(&server, p->server, way, server_report);
	if (err < 0) {
		fprintf(stderr, "viaduct bench: the server cannot be started: %s\n",
			strerror(-err));
		return err;
	}
	err = wait_listening(p, &server, way, &before);
	if (err)
		goto stop_server;
	late = late_acks();
	from = floor_now_ns();
	err = start(&client, p->client, way, client_report);
	if (err < 0) {
		fprintf(stderr, "viaduct bench: the client cannot be started: %s\n",
			strerror(-err));
		goto stop_server;
	}
	err = wait_client(&server, &client);
	if (err)
		goto stop_server;
	p->elapsed_s[way][p->done] = (double)(floor_now_ns() - from) / 1e9;
	p->late_acks[way][p->done] = (double)(late_acks() - late);
	err = check_client(p, &server, &client, way);
stop_server:
	child_stop_all(&server);
	p->client_cpu_s[way][p->done] = client.cpu_s;
	p->server_cpu_s[way][p->done] = server.cpu_s;
	child_finish(&server);
	child_finish(&client);
	return err;
}

static int run_pair(struct pair *p, FILE *table, bool progress)
{
	for (unsigned turn = 0; turn < PAIR_WAYS; turn++) {
		/* Each goes first in turn, so that a drift of the machine favours none. */
		enum pair_way way = (turn + p->done) % PAIR_WAYS;
		int err;

		if (progress)
			fprintf(stderr, "\r\033[Kpair %u of %u, %s", p->done + 1,
				p->pairs, way_names[way]);
		err = run_once(p, way);
		if (progress)
			fprintf(stderr, "\r\033[K");
		if (way == PAIR_VIADUCT && !err)
			pair_report_add(&p->report, client_report, server_report);
		remove_reports();
		if (err)
			return err;
	}
	if (table) {
		fprintf(table,
			"pair %-3u plain %9.3f s   viaduct %9.3f s   ratio %6.2f\n",
			p->done + 1, p->elapsed_s[PAIR_PLAIN][p->done],
			p->elapsed_s[PAIR_VIADUCT][p->done],
			p->elapsed_s[PAIR_PLAIN][p->done] /
				p->elapsed_s[PAIR_VIADUCT][p->done]);
		fflush(table);
	}
	p->done++;
	return 0;
}

static int check_program(const char *role, const char *name)
{
	char path[PATH_MAX], why[2 * PATH_MAX];
	int err = program_find(name, path, sizeof(path));

	if (!err)
		return 0;
	err = fault_of_program(err, name, path, why, sizeof(why));
	warn_line("viaduct bench: the %s: %s", role, why);
	return err;
}

static int write_json(const struct pair *p, const char *path, FILE *to)
{
	FILE *f = to ? to : fopen(path, "we");
	int err = !f;

	if (f) {
		pair_json(f, p);
		err = ferror(f) || fflush(f);
		if (!to)
			err |= fclose(f);
	}
	if (err)
		fprintf(stderr, "viaduct bench: cannot write %s: %s\n", path,
			strerror(errno));
	return err;
}

static int check_plain(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (!preload || !library_is_named(preload))
		return 0;
	fprintf(stderr,
		"viaduct bench: LD_PRELOAD names Viaduct's library, so nothing here "
		"would run plain: start this command without `viaduct run`\n");
	return EXIT_REFUSED;
}

int pair_main(struct pair *p, const char *json)
{
	bool only_json = json && !strcmp(json, "-");
	FILE *table = only_json ? NULL : stdout;
	int rc = check_program("server", p->server[0]), err = 0;

	if (!rc)
		rc = check_plain();
	if (!rc)
		rc = check_program("client", p->client[0]);
	if (rc)
		return rc;
	if (bench_check_viaduct() < 0 || make_folder() < 0)
		return 1;
	if (open_signals() < 0)
		return 1;
	child_adopt_orphans();
	if (table) {
		bench_machine_text(table);
		bench_head_line(table,
				"run        the client runs %u times, plain and under "
				"Viaduct by turns",
				2 * p->pairs);
		fputc('\n', table);
		fflush(table);
	}
	while (p->done < p->pairs && !err)
		err = run_pair(p, table, isatty(STDERR_FILENO));
	rmdir(folder);
	/* What was done before a signal is whole. */
	if ((err && !signal_seen) || !p->done)
		return signal_seen ? 128 + signal_seen : 1;
	if (table)
		pair_print(table, p);
	if (json && write_json(p, json, only_json ? stdout : NULL))
		err = err ? err : -EIO;
	return signal_seen ? 128 + signal_seen : err ? 1 : 0;
}
