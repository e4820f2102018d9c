/* SPDX-License-Identifier: Apache-2.0 */
/* The integrity test: two processes move a known stream by random calls, every byte is
 * checked, and a supervisor kills and watches. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "integrity.h"

struct options opt = {.seed = 1,
		      .seconds = 10,
		      .conns = 12,
		      .wait_seconds = 30,
		      .bytes = 4u << 20,
		      .forks = true,
		      .mode = -1,
		      .scene = -1,
		      .side_mode = {-1, -1}};
struct shared *sh;
int sh_fd = -1;
unsigned round_now;

static struct {
	uint64_t bytes, conns, kills, bounces, count[COUNT_END];
	unsigned rounds, failures;
} total;

static const struct option longs[] = {
	{"seconds", 1, NULL, 's'},     {"rounds", 1, NULL, 'r'},
	{"seed", 1, NULL, 'S'},	       {"conns", 1, NULL, 'c'},
	{"bytes", 1, NULL, 'b'},       {"kill", 0, NULL, 'k'},
	{"switch", 0, NULL, 'w'},      {"signals", 0, NULL, 'i'},
	{"no-fork", 0, NULL, 'F'},     {"mode", 1, NULL, 'm'},
	{"client-mode", 1, NULL, 'C'}, {"server-mode", 1, NULL, 'D'},
	{"first-round", 1, NULL, 'f'}, {"wait", 1, NULL, 't'},
	{"side", 1, NULL, 'e'},	       {"own", 1, NULL, 'o'},
	{"peer", 1, NULL, 'p'},	       {"hold", 0, NULL, 'h'},
	{"verbose", 0, NULL, 'v'},     {"events", 0, NULL, 'E'},
	{"scene", 1, NULL, 'n'},       {"volume", 1, NULL, 'V'},
	{"go-on", 0, NULL, 'g'},       {"resume", 1, NULL, 'R'},
	{"nothing", 0, NULL, 'N'},     {0},
};

static const char usage[] =
	"usage: integrity [--seconds N | --rounds N | --volume BYTES] [--seed S] "
	"[--conns C] [--bytes B]\n"
	"                 [--kill] [--switch] [--signals] [--no-fork] [--first-round N]\n"
	"                 [--mode M | --client-mode M | --server-mode M] [--wait "
	"SECONDS]\n"
	"                 [--hold] [--verbose]\n"
	"                 [--events [--scene S]] [--go-on]\n"
	"                 [--side client|server --own ADDRESS --peer ADDRESS]\n"
	"modes: threads timeo fork poll select lt et oneshot\n"
	"scenes: talk stream dup duo mmsg hand\n"
	"--events plays these, many at once, in place of the streams.\n"
	"--go-on goes on with the next round after one that failed.\n"
	"--hold stops the processes instead of ending them when something is wrong.\n"
	"--side runs one of the two processes, and the same program on another host the "
	"other\none, with the same options but for --side, --own and --peer.\n";

static int mode_number(const char *name)
{
	static const char *const names[MODES] = {"threads", "timeo", "fork", "poll",
						 "select",  "lt",    "et",   "oneshot"};
	for (int i = 0; i < MODES; i++)
		if (!strcmp(names[i], name))
			return i;
	fputs(usage, stderr);
	exit(2);
}

static int scene(const char *name)
{
	int n = scene_number(name);
	if (n >= 0)
		return n;
	fputs(usage, stderr);
	exit(2);
}

static uint32_t address(const char *text)
{
	struct in_addr a;
	if (inet_pton(AF_INET, text, &a) == 1)
		return a.s_addr;
	fputs(usage, stderr);
	exit(2);
}

static void take_number(int c, const char *arg)
{
	uint64_t n = strtoull(arg, NULL, 0);
	switch (c) {
	case 's':
		opt.seconds = (unsigned)n;
		break;
	case 'r':
		opt.rounds = (unsigned)n;
		break;
	case 'S':
		opt.seed = n;
		break;
	case 'c':
		opt.conns = n < 1 ? 1 : n > CONNS_MAX ? CONNS_MAX : (unsigned)n;
		break;
	case 'b':
		opt.bytes = n < 1 ? 1 : n;
		break;
	case 'V':
		opt.volume = n;
		break;
	case 'f':
		opt.first_round = (int)n;
		break;
	default:
		opt.wait_seconds = (unsigned)n;
	}
}

static const char *resume;

static void parse(int argc, char **argv)
{
	int c;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'k':
			opt.kill = true;
			break;
		case 'w':
			opt.bounce = true;
			break;
		case 'i':
			opt.signals = true;
			break;
		case 'F':
			opt.forks = false;
			break;
		case 'h':
			opt.hold = true;
			break;
		case 'v':
			opt.verbose = true;
			break;
		case 'E':
			opt.events = true;
			break;
		case 'g':
			opt.go_on = true;
			break;
		case 'N': /* executed to do nothing */
			_exit(0);
		case 'R':
			resume = optarg;
			break;
		case 'n':
			opt.scene = scene(optarg);
			break;
		case 'm':
			opt.mode = mode_number(optarg);
			break;
		case 'C':
			opt.side_mode[CLIENT] = mode_number(optarg);
			break;
		case 'D':
			opt.side_mode[SERVER] = mode_number(optarg);
			break;
		case 'e':
			opt.far = true;
			opt.side = !strcmp(optarg, "server") ? SERVER : CLIENT;
			break;
		case 'o':
			opt.own = address(optarg);
			break;
		case 'p':
			opt.peer = address(optarg);
			break;
		case '?':
			fputs(usage, stderr);
			exit(2);
		default:
			take_number(c, optarg);
		}
	}
}

double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- the state, for people ---- */

static const char *phase_name(int phase)
{
	static const char *const names[] = {"idle", "moving", "ended", "dead"};
	return names[phase];
}

static void print_dir(const char *what, struct dir_state *d)
{
	unsigned next = d->history_next;
	fprintf(stderr, "    %s %s at %lu after %lu calls:", what, phase_name(d->phase),
		d->off, d->ops);
	for (unsigned i = HISTORY; i > 0; i--)
		if (next >= i)
			fprintf(stderr, " | %s", d->history[(next - i) % HISTORY]);
	fputc('\n', stderr);
}

static void print_state(const pid_t *pids)
{
	struct plan plan;
	fprintf(stderr, "client is pid %d, server is pid %d\n", (int)pids[CLIENT],
		(int)pids[SERVER]);
	for (unsigned i = 0; i < CONNS_MAX; i++) {
		for (int side = 0; side < 2; side++) {
			struct conn_state *c = &sh->conn[side][i];
			if (c->tx.phase == DIR_IDLE && c->rx.phase == DIR_IDLE)
				continue;
			plan_make(&plan, i);
			fprintf(stderr, "  connection %u %s %u %s fd %d mode %d", i,
				opt.events ? "behind" : "port", sh->port[i],
				side == SERVER ? "server" : "client", c->fd, c->mode);
			if (!opt.events)
				fprintf(stderr, ", to send %lu, ending %d by %s at %lu",
					plan.total[side], plan.ending,
					plan.closer == SERVER ? "server" : "client",
					plan.cut);
			fputc('\n', stderr);
			print_dir("tx", &c->tx);
			print_dir("rx", &c->rx);
		}
	}
}

static uint64_t progress(uint64_t *bytes)
{
	uint64_t sum = 0;
	*bytes = 0;
	for (unsigned i = 0; i < CONNS_MAX; i++) {
		for (int side = 0; side < 2; side++) {
			struct conn_state *c = &sh->conn[side][i];
			*bytes += c->rx.off;
			sum += c->rx.off + c->tx.off + c->rx.phase + c->tx.phase +
			       sh->port[i];
		}
	}
	if (opt.events)
		*bytes = sh->moved;
	return sum + sh->moved;
}

/* ---- a round ---- */

struct watch {
	pid_t pids[2];
	bool gone[2];
	int status[2];
	enum side victim;
	bool kills, killed;
	uint64_t kill_at; /* when so many bytes have arrived, or scenes are over */
	double last_move;
	uint64_t last;
};

static bool bad_status(const struct watch *w, int side)
{
	if (w->killed && side == (int)w->victim)
		return false;
	return w->status[side] != 0;
}

static void reap(struct watch *w)
{
	for (int i = 0; i < 2; i++)
		if (!w->gone[i])
			w->gone[i] = w->pids[i] ? waitpid(w->pids[i], &w->status[i],
							  WNOHANG) > 0
						: far_peer_gone();
	if (opt.far && w->gone[opt.side] && !bad_status(w, opt.side))
		far_gone();
}

static void kill_victim(struct watch *w)
{
	sh->killed = 1 + (int)w->victim;
	kill(-w->pids[w->victim], SIGKILL);
	w->killed = true;
	total.kills++;
}

static uint64_t come_to(uint64_t bytes)
{
	uint64_t scenes = 0;
	for (unsigned i = 0; opt.events && i < CONNS_MAX; i++)
		scenes += sh->port[i];
	return opt.events ? scenes : bytes;
}

/* Returns false when the round stands still or a process failed. */
static bool watch_round(struct watch *w)
{
	uint64_t bytes = 0;
	w->last_move = now();
	while (!w->gone[0] || !w->gone[1]) {
		if (opt.far)
			far_exchange();
		reap(w);
		uint64_t at = progress(&bytes);
		if (at != w->last) {
			w->last = at;
			w->last_move = now();
		}
		if (w->kills && !w->killed && come_to(bytes) >= w->kill_at &&
		    !w->gone[w->victim] && (!opt.far || far_may_kill(w->victim)))
			kill_victim(w);
		for (int i = 0; i < 2; i++)
			if (w->gone[i] && bad_status(w, i)) {
				fprintf(stderr,
					"integrity: the %s ended with status %#x\n",
					i ? "server" : "client", w->status[i]);
				return false;
			}
		if (opt.far && far_failed()) {
			fprintf(stderr,
				"integrity: the other host says that it failed\n");
			return false;
		}
		if (now() - w->last_move > opt.wait_seconds) {
			fprintf(stderr, "integrity: nothing has moved for %u s\n",
				opt.wait_seconds);
			return false;
		}
		usleep(1000);
	}
	total.bytes += bytes;
	return true;
}

static pid_t start(enum side side)
{
	pid_t pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	if (pid == 0) {
		setpgid(0, 0);
		exit(side_main(side));
	}
	setpgid(pid, pid);
	return pid;
}

static bool run_round(void)
{
	struct watch w = {0};
	uint64_t rng = seed_of(20, 0, 0);
	if (opt.kill && chance(&rng, 2)) {
		w.kills = true;
		w.victim = rnd(&rng) % 2 ? SERVER : CLIENT;
		w.kill_at = rnd(&rng) % (opt.bytes * (1 + opt.conns / 2));
		if (opt.events)
			w.kill_at = rnd(&rng) % (1 + rnd(&rng) % (30 * opt.conns));
	}
	if (opt.verbose)
		fprintf(stderr, "round %u%s\n", round_now, w.kills ? " with a kill" : "");
	for (int side = SERVER; side >= CLIENT; side--)
		if (!opt.far || side == (int)opt.side)
			w.pids[side] = start(side);
	bool ok = watch_round(&w) && !sh->failed;
	total.bounces += sh->bounces;
	for (int i = 0; i < COUNT_END; i++)
		total.count[i] += sh->count[i];
	for (unsigned i = 0; i < CONNS_MAX; i++)
		total.conns += opt.events ? sh->port[i] : sh->port[i] != 0;
	if (ok)
		return true;
	print_state(w.pids);
	if (opt.hold) {
		fprintf(stderr, "holding; press the interrupt key to end\n");
		pause();
	}
	for (int i = 0; i < 2; i++)
		if (w.pids[i])
			kill(-w.pids[i], SIGKILL);
	return false;
}

/* A clean round, unless all is done. */
static bool next_round(double end)
{
	bool done = opt.rounds ? total.rounds >= opt.rounds : now() >= end;
	if (opt.volume)
		done = total.bytes >= opt.volume;
	memset(sh, 0, sizeof *sh);
	return opt.far ? far_begin(done && opt.side == SERVER) : !done;
}

/* Programs that the rounds execute map it, too. */
static void make_shared(void)
{
	sh_fd = memfd_create("integrity-shared", 0);
	if (sh_fd < 0 || ftruncate(sh_fd, sizeof *sh) != 0)
		sh = MAP_FAILED;
	else
		sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, sh_fd, 0);
	if (sh == MAP_FAILED) {
		perror("integrity: memory");
		exit(1);
	}
}

/* Prints how often each kind of event was. */
static bool all_happened(void)
{
	static const char *const texts[] = {
#define X(name, text) text,
		COUNTS(X)
#undef X
	};
	bool all = true;
	for (int i = 0; i < COUNT_END; i++) {
		printf("integrity: %9lu %s\n", total.count[i], texts[i]);
		if (total.count[i] || i == COUNT_LOST ||
		    (i == COUNT_SIGNAL && !opt.signals))
			continue;
		fprintf(stderr, "integrity: never: %s\n", texts[i]);
		all = false;
	}
	if (total.failures)
		printf("integrity: %u rounds failed\n", total.failures);
	return all;
}

int main(int argc, char **argv)
{
	opt.own = opt.peer = htonl(INADDR_LOOPBACK);
	parse(argc, argv);
	round_now = (unsigned)opt.first_round;
	if (resume)
		return events_resume(resume);
	make_shared();
	double end = now() + opt.seconds;
	bool ok = true;
	if (opt.far)
		far_open();
	for (; (ok || opt.go_on) && next_round(end); round_now++) {
		bool passed = run_round();
		ok &= passed;
		total.failures += !passed;
		total.rounds++;
	}
	if (opt.far) {
		ok = ok && !sh->failed && !far_failed();
		far_end(ok);
	}
	printf("integrity: seed %lu: %s, %u rounds, %lu connections, %lu MiB, %lu kills, "
	       "%lu switches\n",
	       opt.seed, ok ? "passed" : "FAILED", total.rounds, total.conns,
	       total.bytes >> 20, total.kills, total.bounces);
	if (opt.events && opt.scene < 0)
		ok = all_happened() && ok;
	return ok ? 0 : 1;
}
