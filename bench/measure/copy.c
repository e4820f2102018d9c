/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages between two processes: two copies through a ring, or a single one. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "measure/bench.h"
#include "tool/floor.h"
#include "tool/floor_ring.h"

/*
 * The parent sends, the child receives, both spin. A single copy needs to know where to: so the
 * end that does not copy announces its buffer (for vm-write the receiver's, as in a recv that
 * waits; for vm-read the sender's, as in a send that waits), and the other answers when the
 * bytes are there. One buffer is announced at a time, as a program has one call under way.
 */
struct hand {
	alignas(128) _Atomic uint64_t announced; /* messages so far */
	uint64_t address, len;			 /* of the last one's buffer */
	alignas(128) _Atomic uint64_t copied;	 /* messages so far */
};

struct shared {
	alignas(128) _Atomic uint32_t ready, stop;
	_Atomic int error; /* the child's */
	uint64_t bad; /* checks of content that failed; the child's, read after its end */
	struct hand hand;
	struct ring ring;
};

/* The buffers of one end's messages: one and the same, or many that no cache holds. */
struct pool {
	uint8_t *at;
	size_t bytes, next;
};

struct run {
	enum bench_copy way;
	size_t size;
	struct shared *sh;
	struct pool pool;
	struct cursor ring;
	pid_t peer;
	bool child;
	uint64_t number; /* messages of this end */
	int error;
};

/* Looks that are made before one asks whether the other end is still there. */
enum { LOOKS = 1 << 16 };

static bool is_over(struct run *r)
{
	bool gone;

	if (r->child)
		return load_relaxed(&r->sh->stop);
	gone = waitpid(r->peer, NULL, WNOHANG) != 0;
	/* After that look: it says why before it goes. */
	r->error = -load_relaxed(&r->sh->error);
	if (gone) {
		r->error = r->error ? r->error : -ECHILD;
		r->peer = -1;
	}
	return r->error != 0;
}

/* Spins until the count is there. False when the run is over. */
static bool await(struct run *r, _Atomic uint64_t *word, uint64_t count)
{
	for (uint32_t looks = 1;; looks++) {
		/* Acquire: what the other end wrote before it is there too. */
		if (load_acquire(word) == count)
			return true;
		if (looks % LOOKS == 0 && is_over(r))
			return false;
	}
}

static bool ring_send(struct run *r, const uint8_t *buf)
{
	uint32_t looks = 0;
	for (size_t left = r->size; left;) {
		size_t n = ring_give(&r->ring, buf, left);
		if (!n && ++looks % LOOKS == 0 && is_over(r))
			return false;
		buf += n;
		left -= n;
	}
	return true;
}

static bool ring_receive(struct run *r, uint8_t *buf)
{
	uint32_t looks = 0;
	for (size_t left = r->size; left;) {
		size_t n = ring_take(&r->ring, buf, left);
		if (!n && ++looks % LOOKS == 0 && is_over(r))
			return false;
		buf += n;
		left -= n;
	}
	return true;
}

/* The end that does not copy. */
static bool hand_announce(struct run *r, uint8_t *buf)
{
	struct hand *h = &r->sh->hand;

	h->address = (uint64_t)(uintptr_t)buf;
	h->len = r->size;
	/* Release: address and length, and what a sender has in the buffer, come first. */
	store_release(&h->announced, r->number);
	return await(r, &h->copied, r->number);
}

static int copy_once(const struct run *r, uint8_t *buf, uint64_t address, size_t len)
{
	bool out = r->way == BENCH_COPY_WRITE;

	for (size_t done = 0; done < len;) {
		struct iovec local = {buf + done, len - done};
		struct iovec remote = {(void *)(uintptr_t)(address + done), len - done};
		ssize_t n = out ? process_vm_writev(r->peer, &local, 1, &remote, 1, 0)
				: process_vm_readv(r->peer, &local, 1, &remote, 1, 0);
		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		done += (size_t)n;
	}
	return 0;
}

/* The end that copies. */
static bool hand_copy(struct run *r, uint8_t *buf)
{
	struct hand *h = &r->sh->hand;

	if (!await(r, &h->announced, r->number))
		return false;
	r->error = copy_once(r, buf, h->address, h->len < r->size ? h->len : r->size);
	if (r->error < 0)
		return false;
	/* Release: a receiver that sees it finds the bytes. */
	store_release(&h->copied, r->number);
	return true;
}

static uint8_t *pool_next(struct run *r)
{
	size_t step = (r->size + 63) / 64 * 64, at = r->pool.next;

	r->pool.next = at + 2 * step <= r->pool.bytes ? at + step : 0;
	return r->pool.at + at;
}

/* First and last bytes say which message it is. */
static size_t stamp_bytes(const struct run *r)
{
	return r->size < sizeof(r->number) ? r->size : sizeof(r->number);
}

static void stamp(const struct run *r, uint8_t *buf)
{
	size_t n = stamp_bytes(r);
	memcpy(buf, &r->number, n);
	memcpy(buf + r->size - n, &r->number, n);
}

static bool is_stamped(const struct run *r, const uint8_t *buf)
{
	size_t n = stamp_bytes(r);
	return !memcmp(buf + r->size - n, &r->number, n) &&
	       (r->size < 2 * n || !memcmp(buf, &r->number, n));
}

static bool send_message(struct run *r)
{
	uint8_t *buf = pool_next(r);

	r->number++;
	stamp(r, buf);
	return r->way == BENCH_COPY_RING    ? ring_send(r, buf)
	       : r->way == BENCH_COPY_WRITE ? hand_copy(r, buf)
					    : hand_announce(r, buf);
}

static bool receive_message(struct run *r)
{
	uint8_t *buf = pool_next(r);
	bool there;

	r->number++;
	there = r->way == BENCH_COPY_RING    ? ring_receive(r, buf)
		: r->way == BENCH_COPY_WRITE ? hand_announce(r, buf)
					     : hand_copy(r, buf);
	if (there && !is_stamped(r, buf))
		r->sh->bad++;
	return there;
}

static int pool_make(struct run *r, bool cold)
{
	size_t step = (r->size + 63) / 64 * 64, most = bench_copy_cold_bytes();

	r->pool.bytes = cold && most > 2 * step ? most : cold ? 2 * step : step;
	/* Written to, so that each page is one of its own. */
	r->pool.at = mmap(NULL, r->pool.bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return r->pool.at == MAP_FAILED ? -errno : 0;
}

static void run_child(struct run *r, bool cold)
{
	r->error = pool_make(r, cold);
	store_release(&r->sh->ready, 1);
	while (!r->error && receive_message(r))
		;
	store_relaxed(&r->sh->error, -r->error);
}

static pid_t start_child(struct run *r, bool cold, int cpu)
{
	pid_t parent = getpid(), pid = floor_fork(cpu);
	if (pid)
		return pid;
	r->peer = parent;
	r->child = true;
	run_child(r, cold);
	_exit(0);
}

static bool await_child(struct run *r)
{
	while (!load_acquire(&r->sh->ready)) {
		if (is_over(r))
			return false;
		usleep(100);
	}
	return true;
}

/* Messages a second; 0 when something failed. */
static double run_for(struct run *r, uint64_t time_ns)
{
	struct floor_pace pace;
	uint64_t ops = 0;

	floor_pace_start(&pace, time_ns);
	do {
		if (!send_message(r))
			return 0;
		ops++;
	} while (floor_pace_more(&pace));
	/* A message counts when it has arrived. */
	if (r->way == BENCH_COPY_RING && !await(r, &r->sh->ring.consumed, r->ring.at))
		return 0;
	return (double)ops * 1e9 / (double)(floor_now_ns() - pace.start_ns);
}

static void run_parent(struct run *r, uint64_t time_ns, double *rate)
{
	if (!await_child(r) || run_for(r, time_ns / 8) <= 0) /* warms up */
		return;
	*rate = run_for(r, time_ns);
}

static int run_both(struct run *r, const struct bench_copy_job *job, double *rate)
{
	cpu_set_t before;

	if (sched_getaffinity(0, sizeof(before), &before) < 0)
		return -errno;
	r->peer = start_child(r, job->cold, job->cpus[0]);
	if (r->peer < 0)
		return -errno;
	/* Where Yama restricts it, a child may read its parent only if that says so. */
	prctl(PR_SET_PTRACER, r->peer, 0, 0, 0);
	floor_pin(job->cpus[1]);
	/* After the fork: else its first use would be a copy of what the child has too. */
	r->error = pool_make(r, job->cold);
	if (!r->error)
		run_parent(r, job->time_ns, rate);
	store_relaxed(&r->sh->stop, 1);
	if (r->peer > 0)
		waitpid(r->peer, NULL, 0);
	prctl(PR_SET_PTRACER, 0, 0, 0, 0);
	sched_setaffinity(0, sizeof(before), &before);
	return r->error ? r->error : r->sh->bad ? -EBADMSG : 0;
}

int bench_copy_run(const struct bench_copy_job *job, double *rate)
{
	struct run r = {.way = job->way, .size = job->size_bytes, .pool.at = MAP_FAILED};
	int err;

	*rate = 0;
	r.sh = mmap(NULL, sizeof(*r.sh), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r.sh == MAP_FAILED)
		return -errno;
	r.ring = ring_open(&r.sh->ring, r.size);
	err = run_both(&r, job, rate);
	if (err < 0)
		*rate = 0;
	if (r.pool.at != MAP_FAILED)
		munmap(r.pool.at, r.pool.bytes);
	munmap(r.sh, sizeof(*r.sh));
	return err;
}
