/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is handed over to a program that is executed, with bytes unread, while another
 * process may still have it. Either both ends are told all bytes and a clean end, or both an error. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "events.h"

#define PIECE	   100
#define BULK_PIECE 1000

struct hand {
	unsigned pieces, bulk; /* that the client sends: read before, and unread */
	unsigned hold_ms;
	bool vforks, one_way;
	uint64_t read_before;
};

static struct hand hand_make(struct end *e)
{
	struct play *p = &e->play;
	uint64_t rng = seed_of(35, p->index | p->step << 8, 0);
	static const unsigned holds[] = {0, 0, 3, 30, 300};
	struct hand a = {.pieces = 1 + rnd(&rng) % 100,
			 .bulk = 1 + rnd(&rng) % 40,
			 .hold_ms = holds[rnd(&rng) % 5],
			 .vforks = chance(&rng, 2),
			 .one_way = chance(&rng, 2)};
	if (a.one_way)
		p->turns = 0;
	a.read_before = (uint64_t)p->turns * p->ask + a.pieces * PIECE;
	e->c.plan.total[CLIENT] = a.read_before + a.bulk * BULK_PIECE;
	e->c.plan.total[SERVER] =
		(uint64_t)p->turns * p->answer + (a.one_way ? 0 : rnd(&rng) % 2000);
	e->c.tx.total = e->c.plan.total[e->c.side];
	e->c.rx.total = e->c.plan.total[!e->c.side];
	e->c.fragile = true;
	return a;
}

static bool pieces(struct end *e, unsigned n, unsigned bytes)
{
	for (unsigned i = 0; i < n; i++) {
		if (!send_until(e, &e->in, e->c.tx.off + bytes))
			return false;
		if (bytes == PIECE)
			usleep(rnd(&e->c.rng) % 500);
	}
	return true;
}

/* What both were told must be the same. */
static void compare(const struct end *e, const struct hand *a, bool clean)
{
	const struct pair_state *pair = &sh->pair[e->play.index];
	uint64_t told, step = e->play.step + 1;
	while ((told = pair->handed) >> 2 != step) {
		if (sh->killed)
			return;
		usleep(200);
	}
	if (sh->killed)
		return;
	if (clean != ((told & 3) == HANDED_CLEAN))
		fail_at(&e->c.rx,
			"%s end, and %s at the program that went on (%s, others hold "
			"it %u ms, it had %lu, then %u bytes%s)",
			clean ? "a clean" : "no clean",
			(told & 3) == HANDED_CLEAN ? "a clean one" : "an error",
			a->vforks ? "vfork" : "fork", a->hold_ms, a->read_before,
			a->bulk * BULK_PIECE, a->one_way ? ", one way" : "");
	count(clean ? COUNT_HANDED : COUNT_LOST);
}

static void client_of_hand(struct end *e, const struct hand *a)
{
	bool clean = false, alive = turns(e) && pieces(e, a->pieces, PIECE) &&
				    pieces(e, a->bulk, BULK_PIECE);
	say(e, SAID_SENT);
	if (alive) {
		dawdle(e);
		shut(e);
		clean = recv_until(e, e->c.rx.total) && recv_end(e);
	}
	compare(e, a, clean);
}

static pid_t hold(const struct end *e, unsigned ms)
{
	pid_t pid = ms ? fork() : 0;
	if (pid < 0)
		fail_at(&e->c.rx, "fork: %s", strerror(errno));
	if (pid == 0 && ms) {
		usleep(ms * 1000);
		_exit(0);
	}
	return pid;
}

/* The child has the caller's memory with vfork: it executes, and nothing else. */
static pid_t execute(const struct end *e, bool vforks)
{
	char what[128], seed[32], round[16];
	char *args[] = {"integrity", "--seed", seed, "--first-round", round, "--events",
			"--resume",  what,     NULL};
	char **environment = bare_environment();
	pid_t pid;
	snprintf(seed, sizeof seed, "%lu", opt.seed);
	snprintf(round, sizeof round, "%u", round_now);
	snprintf(what, sizeof what, "%d:%d:%u:%u:%d:%lu:%lu", sh_fd, e->fd, e->play.index,
		 e->play.step, theme(), e->c.rx.off, e->c.tx.off);
	pid = vforks ? vfork() : fork();
	if (pid == 0) {
		execve("/proc/self/exe", args, environment);
		_exit(9);
	}
	if (pid < 0)
		fail_at(&e->c.rx, "fork: %s", strerror(errno));
	return pid;
}

static void wait_for(const struct end *e, pid_t pid)
{
	int status = 0;
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail_at(&e->c.rx, "waitpid: %s", strerror(errno));
	if (status != 0)
		fail_at(&e->c.rx, "the program that went on ended with status %#x",
			status);
}

static void server_of_hand(struct end *e, const struct hand *a)
{
	pid_t holder, heir;
	if (!turns(e) || !recv_until(e, a->read_before)) {
		sh->pair[e->play.index].handed =
			(uint64_t)(e->play.step + 1) << 2 | HANDED_ERROR;
		return;
	}
	for (int i = 0; i < PATIENCE && !sh->killed; i++) {
		if (said(e, SAID_SENT))
			break;
		usleep(200);
	}
	fcntl(e->fd, F_SETFD, 0);
	holder = hold(e, a->hold_ms);
	heir = execute(e, a->vforks);
	close(e->fd);
	e->fd = e->c.tx.fd = e->c.rx.fd = -1;
	wait_for(e, heir);
	wait_for(e, holder);
}

bool scene_hand(struct end *e)
{
	struct hand a = hand_make(e);
	if (e->c.side == CLIENT)
		client_of_hand(e, &a);
	else
		server_of_hand(e, &a);
	end_close(e);
	return true;
}

int events_resume(const char *what)
{
	static struct end e;
	unsigned index, step;
	int fd, scene;
	uint64_t in, out;
	struct play p;
	bool clean;
	if (sscanf(what, "%d:%d:%u:%u:%d:%lu:%lu", &sh_fd, &fd, &index, &step, &scene,
		   &in, &out) != 7)
		return 2;
	sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, sh_fd, 0);
	if (sh == MAP_FAILED)
		return 3;
	start_signals(SERVER);
	play_make(&p, index, step, scene);
	end_init(&e, &p, SERVER);
	hand_make(&e);
	e.fd = e.c.tx.fd = e.c.rx.fd = fd;
	e.c.state->fd = fd;
	e.c.rx.off = in;
	e.c.rx.state->off = in;
	e.c.tx.off = out;
	e.c.tx.state->off = out;
	e.c.tx.blocking = e.c.rx.blocking = e.c.rx.cut = true;
	clean = recv_until(&e, e.c.rx.total) && recv_end(&e) &&
		send_until(&e, &e.in, e.c.tx.total);
	if (e.c.rx.state->phase == DIR_ENDED && e.c.rx.off < e.c.rx.total && !sh->killed)
		fail_at(&e.c.rx, "the program that went on: a clean end");
	end_close(&e);
	sh->pair[index].handed =
		(uint64_t)(step + 1) << 2 | (clean ? HANDED_CLEAN : HANDED_ERROR);
	return 0;
}
