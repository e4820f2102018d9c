/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one end of a measurement with its words, hears what it says, and ends it. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure/end.h"
#include "measure/host.h"
#include "tool/self.h"

enum { RESULT_FD = 200, ARGS_MAX = 40 };

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

const char *end_program(void)
{
	static char path[512];
	ssize_t n = path[0] ? 0 : readlink("/proc/self/exe", path, sizeof(path) - 1);
	return n < 0 ? "viaduct-bench" : path;
}

static void build_words(struct words *w, const struct ends *e, const char *address)
{
	const struct bench_setting *set = e->set;
	const struct bench_row *row = e->row;
	const struct bench_contender *who = e->who;
	bool server = !address;

	if (server ? who->via_server : who->via_client) {
		add_word(w, "%s", self_program());
		add_word(w, "run");
		add_word(w, "--report");
		add_word(w, "%s", e->report);
		if (who->viaduct_spin)
			add_word(w, "--spin=%s", who->viaduct_spin);
		if (row->pattern->shape == BENCH_SETUP)
			add_word(w, "--upgrade-after=0");
		add_word(w, "--");
	}
	add_word(w, "%s", end_program());
	add_word(w, "%s", self_program());
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
	if (set->address)
		add_word(w, "--host=%s", set->address);
	if (who->rsockets)
		add_word(w, "--rsockets");
	if (who->verbs)
		add_word(w, "--verbs");
	if (server)
		return;
	add_word(w, "--address=%s", address);
	if (!set->address)
		add_word(w, "--peer=%d", (int)e->server.pid);
}

/* In the child. */
static void become(char **argv, int fd, pid_t parent, bool rsockets)
{
	/* An interrupted bench must not leave spinning processes behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(fd, RESULT_FD) < 0)
		_exit(1);
	if (rsockets && setenv("LD_PRELOAD", host_rsockets(), 1) < 0)
		_exit(1);
	execv(argv[0], argv);
	_exit(127);
}

int end_start(struct ends *of, const char *address)
{
	struct end *e = address ? &of->client : &of->server;
	struct words w = {.n = 0};
	pid_t parent = getpid();
	int fds[2];

	build_words(&w, of, address);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	e->pid = fork();
	if (e->pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return -errno;
	}
	if (e->pid == 0)
		become(w.v, fds[1], parent, of->who->rsockets);
	close(fds[1]);
	e->fd = fds[0];
	return 0;
}

void end_stop(struct end *e)
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

bool end_hear(struct end *e)
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

const char *end_find(const struct end *e, const char *word)
{
	const char *at = strstr(e->text, word);
	return at && strchr(at, '\n') ? at + strlen(word) : NULL;
}

bool end_is_bad(const struct end *e)
{
	return end_find(e, "error ") || (e->fd < 0 && !end_find(e, "result "));
}
