/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own floor: two processes and a raw byte ring, no sockets and no Viaduct.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "tool/floor.h"
#include "tool/floor_ring.h"

enum { READ_BYTES = 64 << 10 };

struct shared {
	alignas(128) _Atomic uint64_t line; /* odd: the child's turn */
	alignas(128) _Atomic uint32_t stop;
	struct ring to_child, to_parent;
};

static void ring_put(struct cursor *c, const uint8_t *buf, size_t len)
{
	while (len) {
		size_t n = ring_give(c, buf, len);
		buf += n;
		len -= n;
	}
}

static bool stopped(struct shared *sh)
{
	return load_relaxed(&sh->stop);
}

/* False when the run is over. */
static bool ring_take_all(struct shared *sh, struct cursor *c, uint8_t *buf, size_t len)
{
	while (len) {
		size_t n = ring_take(c, buf, len);
		if (n == 0 && stopped(sh))
			return false;
		buf += n;
		len -= n;
	}
	return true;
}

static void run_child(struct shared *sh, enum floor_kind kind, size_t size)
{
	struct cursor in = ring_open(&sh->to_child, size);
	struct cursor out = ring_open(&sh->to_parent, size);
	uint8_t *buf = malloc(size > READ_BYTES ? size : READ_BYTES);

	if (!buf)
		return;
	switch (kind) {
	case FLOOR_LINE:
		while (!stopped(sh)) {
			uint64_t v = load_acquire(&sh->line);
			if (v & 1)
				store_release(&sh->line, v + 1);
		}
		break;
	case FLOOR_RTT:
		while (ring_take_all(sh, &in, buf, size))
			ring_put(&out, buf, size);
		break;
	case FLOOR_STREAM:
		while (ring_take(&in, buf, READ_BYTES) || !stopped(sh))
			;
		break;
	}
	free(buf);
}

static void line_turn(struct shared *sh)
{
	uint64_t v = load_relaxed(&sh->line) + 1;
	store_release(&sh->line, v);
	while (load_acquire(&sh->line) == v)
		;
}

/* The parent's end. */
struct run {
	struct shared *sh;
	enum floor_kind kind;
	size_t size;
	uint8_t *buf;
	struct cursor in, out;
};

/* Returns operations a second. */
static double run_for(struct run *r, uint64_t time_ns)
{
	struct floor_pace pace;
	uint64_t ops = 0;

	floor_pace_start(&pace, time_ns);
	do {
		if (r->kind == FLOOR_LINE)
			line_turn(r->sh);
		else
			ring_put(&r->out, r->buf, r->size);
		if (r->kind == FLOOR_RTT)
			ring_take_all(r->sh, &r->in, r->buf, r->size);
		ops++;
	} while (floor_pace_more(&pace));
	/* One way: a byte counts when it has arrived. */
	while (r->kind == FLOOR_STREAM &&
	       load_acquire(&r->sh->to_child.consumed) != r->out.at)
		;
	return (double)ops * 1e9 / (double)(floor_now_ns() - pace.start_ns);
}

/* For the place of the processors, not for their neighbours' work: the best of eight. */
static double best_slice(struct run *r, uint64_t time_ns)
{
	double best = 0;
	for (int i = 0; i < 8; i++) {
		double rate = run_for(r, time_ns / 8);
		if (rate > best)
			best = rate;
	}
	return best;
}

bool floor_pace_look(struct floor_pace *p)
{
	uint64_t now = floor_now_ns();
	uint64_t took = now - p->last_ns;
	if (now >= p->end_ns)
		return false;
	if (took < 200000 && p->batch < 1u << 20)
		p->batch *= 2;
	else if (took > 1000000 && p->batch > 1)
		p->batch /= 2;
	p->last_ns = now;
	p->left = p->batch;
	return true;
}

void floor_pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

pid_t floor_fork(int cpu)
{
	pid_t parent = getpid(), pid = fork();
	if (pid)
		return pid;
	/* Nobody else would end its loop. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	floor_pin(cpu);
	return 0;
}

static pid_t fork_child(struct run *r, int cpu)
{
	pid_t pid = floor_fork(cpu);
	if (pid)
		return pid;
	run_child(r->sh, r->kind, r->size);
	_exit(0);
}

static int run_pair(struct run *r, uint64_t time_ns, const int cpus[2], double *rate)
{
	cpu_set_t before;
	pid_t pid;

	if (sched_getaffinity(0, sizeof(before), &before) < 0)
		return -errno;
	pid = fork_child(r, cpus[0]);
	if (pid < 0)
		return -errno;
	floor_pin(cpus[1]);
	run_for(r, time_ns / 4); /* warms up */
	*rate = r->kind == FLOOR_LINE ? best_slice(r, time_ns) : run_for(r, time_ns);
	store_relaxed(&r->sh->stop, 1);
	waitpid(pid, NULL, 0);
	sched_setaffinity(0, sizeof(before), &before);
	return 0;
}

int floor_run(enum floor_kind kind, size_t size_bytes, uint64_t time_ns,
	      const int cpus[2], double *rate)
{
	struct run r = {.kind = kind, .size = size_bytes ? size_bytes : 1};
	int err = -ENOMEM;

	r.buf = calloc(1, r.size);
	r.sh = mmap(NULL, sizeof(*r.sh), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r.buf && r.sh != MAP_FAILED) {
		r.out = ring_open(&r.sh->to_child, r.size);
		r.in = ring_open(&r.sh->to_parent, r.size);
		err = run_pair(&r, time_ns, cpus, rate);
	}
	if (r.sh != MAP_FAILED)
		munmap(r.sh, sizeof(*r.sh));
	free(r.buf);
	return err;
}
