/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a thread closes a number and puts a file there, or forks, while connections of another come and go. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conform/cases.h"

enum { ROUNDS = 30, PAIRS = 20 };

static struct placer {
	int (*place)(int file, int number);
	int file, number;
	atomic_bool runs, ended;
	pthread_mutex_t turn; /* held while the number may be free */
	atomic_uint times;
	unsigned failed, lost;
} placer = {.turn = PTHREAD_MUTEX_INITIALIZER};

static int place_dup2(int file, int number)
{
	return dup2(file, number);
}

static int place_dup3(int file, int number)
{
	return dup3(file, number, O_CLOEXEC);
}

static bool is_same(int a, int b)
{
	struct stat one, other;
	return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino;
}

static void place_again(struct placer *p)
{
	close(p->number);
	p->failed += p->place(p->file, p->number) != p->number;
	/* Who has had the number before may close it late. */
	for (int i = 0; i < 3; i++)
		if (!is_same(p->file, p->number)) {
			p->lost++;
			break;
		}
	p->times++;
}

static void keep_placing(void *arg)
{
	struct placer *p = arg;
	while (!p->ended) {
		pthread_mutex_lock(&p->turn);
		if (p->runs)
			place_again(p);
		pthread_mutex_unlock(&p->turn);
	}
}

static void placing(bool runs)
{
	pthread_mutex_lock(&placer.turn);
	placer.runs = runs;
	pthread_mutex_unlock(&placer.turn);
}

/* All of one listener, since a user's limit of descriptors may be 1,024. */
static void pairs_open(struct pair *p)
{
	static int listener = -1;
	static uint16_t port;
	if (listener < 0)
		listener = listen_any(AF_INET, &port);
	for (int i = 0; i < PAIRS; i++) {
		p[i].c = connect_to(AF_INET, port);
		p[i].s = accept(listener, NULL, NULL);
		NEED(p[i].s >= 0);
	}
}

/* The program itself makes no descriptor while the number is free for a moment. */
static void come_and_go(void)
{
	struct pair p[PAIRS];
	unsigned before = placer.times;
	pairs_open(p);
	placing(true);
	while (placer.times == before)
		usleep(100);
	for (int i = 0; i < PAIRS; i++)
		pair_warm(p[i]);
	for (int i = 0; i < PAIRS; i++)
		pair_close(p[i]);
	placing(false);
}

static void beside(int (*place)(int file, int number), int file)
{
	struct worker w;
	placer.place = place;
	placer.file = file;
	/* Lower than all that come later. */
	placer.number = dup(file);
	NEED(file >= 0 && placer.number >= 0);
	worker_start(&w, keep_placing, &placer);
	for (int i = 0; i < ROUNDS; i++)
		come_and_go();
	placer.ended = true;
	worker_join(&w);
	say("failed %u, lost %u", placer.failed, placer.lost);
}

CASE(placed_dup2, DIRECT)
{
	beside(place_dup2, open("/dev/null", O_RDONLY));
}

/* Whoever takes this for a file of its own waits for bytes. */
CASE(placed_dup3_pipe, DIRECT)
{
	beside(place_dup3, signal_pipe().fd[0]);
}

static void warm_all(void *arg)
{
	struct pair *p = arg;
	for (int i = 0; i < PAIRS; i++)
		pair_warm(p[i]);
	placer.ended = true;
}

static bool is_lowest_in_child(int number)
{
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		_exit(dup(0) != number);
	return child_status(pid) == 0;
}

/* A child has the same numbers free as its parent. */
CASE(placed_forked, DIRECT)
{
	unsigned taken = 0;
	int number = dup(0);
	for (int i = 0; i < ROUNDS; i++) {
		struct pair p[PAIRS];
		struct worker w;
		pairs_open(p);
		placer.ended = false;
		worker_start(&w, warm_all, p);
		close(number);
		while (!placer.ended)
			taken += !is_lowest_in_child(number);
		NEED(dup(0) == number);
		worker_join(&w);
		/* A child may have had them when they were to be upgraded. */
		for (int j = 0; j < PAIRS; j++)
			pair_warm(p[j]);
		for (int j = 0; j < PAIRS; j++)
			pair_close(p[j]);
	}
	say("taken in %u", taken);
}

static int at_fork = -1;

static void place_at_fork(void)
{
	if (at_fork >= 0) {
		close(at_fork);
		NEED(dup2(0, at_fork) == at_fork);
	}
}

/* Before the constructors of all libraries, so that its handlers run while theirs hold what they hold over a fork. */
static void before_all(int argc, char **argv, char **envp)
{
	(void)argc;
	(void)argv;
	(void)envp;
	pthread_atfork(place_at_fork, place_at_fork, place_at_fork);
}

__attribute__((section(".preinit_array"),
	       used)) static void (*const first)(int, char **, char **) = before_all;

CASE(placed_at_fork, DIRECT)
{
	struct pair p = pair_open();
	struct worker w;
	pid_t pid;
	placer.ended = false;
	worker_start(&w, keep_placing, &placer); /* so that there is another thread */
	at_fork = dup(0);
	pid = fork();
	if (pid == 0)
		_exit(0);
	say("child %d", child_status(pid));
	at_fork = -1;
	placer.ended = true;
	worker_join(&w);
	pair_warm(p);
	pair_close(p);
}
