/* SPDX-License-Identifier: Apache-2.0 */
/* A round of events in one of the two processes: pairs of threads play scenes, while others send
 * them signals, and fork and execute. Afterwards the descriptors are counted. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events.h"

#define TARGETS	     (4 * CONNS_MAX)
#define OWN_NUMBERS  8 /* what a preloaded library may keep for the process */
#define ENVIRONMENT  512
#define STEPS_MIXED  30
#define THEMES_MIXED 3

static int theme_now = -1;
static _Atomic bool over;
static _Atomic int targets[TARGETS];
static _Thread_local int own_target = -1;
extern char **environ;

void count(enum count what)
{
	sh->count[what]++;
}

int theme(void)
{
	return theme_now;
}

int scene_number(const char *name)
{
	for (int i = 0; i < SCENES; i++)
		if (!strcmp(scene_names[i], name))
			return i;
	return -1;
}

char **bare_environment(void)
{
	static char *bare[ENVIRONMENT];
	int n = 0;
	if (bare[0])
		return bare;
	for (char **e = environ; *e && n < ENVIRONMENT - 1; e++)
		if (strncmp(*e, "VIADUCT_REPORT=", 15) != 0)
			bare[n++] = *e;
	return bare;
}

static _Noreturn void fail(const char *what, int error)
{
	fprintf(stderr, "integrity: seed %lu round %u: %s: %s\n", opt.seed, round_now,
		what, strerror(error));
	sh->failed = 1;
	_exit(1);
}

/* ---- signals ---- */

void target_begin(void)
{
	int none = 0, tid = (int)syscall(SYS_gettid);
	for (int i = 0; i < TARGETS; i++, none = 0)
		if (atomic_compare_exchange_strong(&targets[i], &none, tid)) {
			own_target = i;
			return;
		}
}

void target_end(void)
{
	if (own_target >= 0)
		targets[own_target] = 0;
	own_target = -1;
}

static void *send_signals(void *arg)
{
	uint64_t rng = *(uint64_t *)arg;
	while (!over) {
		int tid = targets[rnd(&rng) % (3 * opt.conns)];
		if (tid && syscall(SYS_tgkill, getpid(), tid, SIGUSR1) == 0)
			count(COUNT_SIGNAL);
		usleep(100 + rnd(&rng) % 1500);
	}
	return NULL;
}

/* ---- children ---- */

static pid_t child(uint64_t *rng)
{
	char *args[] = {"integrity", "--nothing", NULL};
	char **environment = bare_environment();
	unsigned how = rnd(rng) % 3, naps = chance(rng, 3) ? rnd(rng) % 3000 : 0;
	pid_t pid = -1;
	if (how == 2) {
		int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args,
					environment);
		if (error)
			fail("posix_spawn", error);
		count(COUNT_SPAWN);
		return pid;
	}
	pid = how ? vfork() : fork();
	if (pid == 0) {
		if (!how && naps)
			usleep(naps);
		execve("/proc/self/exe", args, environment);
		_exit(9);
	}
	if (pid < 0)
		fail("fork", errno);
	count(how ? COUNT_VFORK_EXEC : COUNT_FORK_EXEC);
	return pid;
}

static void *make_children(void *arg)
{
	uint64_t rng = *(uint64_t *)arg;
	while (!over) {
		int status = 0;
		pid_t pid = child(&rng);
		while (waitpid(pid, &status, 0) < 0)
			if (errno != EINTR)
				fail("waitpid", errno);
		if (status != 0) {
			fprintf(stderr, "integrity: a child ended with status %#x\n",
				status);
			fail("a child", 0);
		}
		usleep(rnd(&rng) % 15000);
	}
	return NULL;
}

/* ---- pairs of threads ---- */

static unsigned steps(void)
{
	static const unsigned of[SCENES] = {40, 30, 15, 6, 10, 4};
	return theme_now >= 0 && theme_now < SCENES ? of[theme_now] : STEPS_MIXED;
}

static void *work(void *arg)
{
	static bool (*const scenes[SCENES])(struct end *) = {scene_talk,   scene_stream,
							     scene_stream, scene_duo,
							     scene_mmsg,   scene_hand};
	struct worker *w = arg;
	struct end *e = malloc(sizeof *e);
	target_begin();
	for (unsigned step = 0; e && step < steps() && !sh->killed; step++) {
		struct play p;
		play_make(&p, w->index, step, theme_now);
		if (!end_open(e, w, &p) || !scenes[p.scene](e))
			break;
		if (w->side == CLIENT)
			sh->port[w->index]++;
	}
	target_end();
	free(e);
	calls_done();
	if (w->listener >= 0)
		close(w->listener);
	return NULL;
}

static int listens(struct worker *w)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t len = sizeof own;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	own.sin_addr.s_addr = opt.own;
	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof own) != 0 ||
	    listen(fd, 16) != 0 || getsockname(fd, (struct sockaddr *)&own, &len) != 0)
		fail("listen", errno);
	sh->pair[w->index].port = ntohs(own.sin_port);
	return fd;
}

/* ---- descriptors ---- */

static unsigned descriptors(bool print)
{
	char path[300], link[100];
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/fd");
	while (dir && (entry = readdir(dir))) {
		n += entry->d_name[0] != '.';
		if (!print)
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t r = readlink(path, link, sizeof link - 1);
		fprintf(stderr, " %s=%.*s", entry->d_name, r > 0 ? (int)r : 0, link);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* What the kernel, or the library, still lets go of is waited for. */
static void count_descriptors(enum side side, unsigned before)
{
	unsigned after = descriptors(false), ms = 0;
	while (after > before + OWN_NUMBERS && ms < opt.wait_seconds * 1000) {
		usleep(10000);
		ms += 10;
		sh->moved++; /* it is waited for here */
		after = descriptors(false);
	}
	count(COUNT_COUNTED);
	if (opt.verbose)
		fprintf(stderr, "  %u descriptors before, %u after\n", before, after);
	if (after <= before + OWN_NUMBERS)
		return;
	fprintf(stderr,
		"integrity: seed %lu round %u: the %s had %u descriptors, and has %u "
		"when all is "
		"closed:",
		opt.seed, round_now, side == SERVER ? "server" : "client", before, after);
	descriptors(true);
	fputc('\n', stderr);
	fail("descriptors", 0);
}

/* ---- a round ---- */

/* With the library of slow.c, one side's shutdowns reach the kernel late in some rounds. */
static void pick_slow(enum side side)
{
	uint64_t rng = seed_of(43, 0, 0);
	void (*slow)(unsigned);
	unsigned dice = rnd(&rng) % 4;
	*(void **)&slow = dlsym(RTLD_DEFAULT, "integrity_slow");
	if (slow && (dice == 3 || dice == side))
		slow(2000);
}

/* The scenes take turns; in some rounds they come mixed. */
static void pick_theme(void)
{
	uint64_t rng = seed_of(40, 0, 0);
	unsigned dice = (opt.seed + round_now) % (SCENES + THEMES_MIXED);
	theme_now = opt.scene >= 0 ? opt.scene : dice < SCENES ? (int)dice : -1;
	opt.signals = opt.signals && chance(&rng, 2);
	opt.bounce = opt.bounce && chance(&rng, 2);
	opt.forks = opt.forks && chance(&rng, 2);
	if (opt.verbose)
		fprintf(stderr, "  %s%s%s%s\n",
			theme_now < 0 ? "mixed" : scene_names[theme_now],
			opt.signals ? ", signals" : "", opt.bounce ? ", moves" : "",
			opt.forks ? ", children" : "");
}

static void start(pthread_t *t, void *(*run)(void *), void *arg)
{
	int error = pthread_create(t, NULL, run, arg);
	if (error)
		fail("pthread_create", error);
}

int events_main(enum side side)
{
	static struct worker workers[CONNS_MAX];
	static pthread_t threads[CONNS_MAX];
	pthread_t signals, children;
	uint64_t rng[2] = {seed_of(41, 0, side), seed_of(42, 0, side)};
	unsigned before;
	pick_theme();
	pick_slow(side);
	start_signals(side);
	bare_environment();
	before = descriptors(false);
	for (unsigned i = 0; i < opt.conns; i++) {
		workers[i] = (struct worker){.side = side, .index = i, .listener = -1};
		if (side == SERVER)
			workers[i].listener = listens(&workers[i]);
		start(&threads[i], work, &workers[i]);
	}
	if (opt.signals)
		start(&signals, send_signals, &rng[0]);
	if (opt.forks)
		start(&children, make_children, &rng[1]);
	for (unsigned i = 0; i < opt.conns; i++)
		pthread_join(threads[i], NULL);
	over = true;
	if (opt.signals)
		pthread_join(signals, NULL);
	if (opt.forks)
		pthread_join(children, NULL);
	count_descriptors(side, before);
	return 0;
}
