/* SPDX-License-Identifier: Apache-2.0 */
/* Checks by measuring: how fast a sleeper wakes, a cache line travels, a clock is read. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "tool/doctor/doctor.h"
#include "tool/first_line.h"
#include "tool/floor.h"

#define GUEST_HALT_POLL "/sys/module/haltpoll/parameters/guest_halt_poll_ns"

enum {
	WAKES = 400,
	/* So long the waker lets the sleeper's processor go idle. */
	IDLE_NS = 200000,
	WAKES_LIMIT_NS = 400000000,
	LINE_TIME_NS = 16000000,
	CLOCK_READS = 20000,
	SLOW_WAKE_US = 10,
	FAR_LINE_NS = 200,
	SLOW_CLOCK_NS = 150,
};

struct sleeper {
	int fd, cpu;
	_Atomic uint64_t woke_ns; /* of the last byte; 0 while it is awaited */
};

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	sched_setaffinity(0, sizeof(set), &set); /* of this thread */
}

static void *sleep_often(void *argument)
{
	struct sleeper *s = argument;
	char byte;

	pin(s->cpu);
	while (read(s->fd, &byte, 1) == 1)
		store_release(&s->woke_ns, floor_now_ns());
	return NULL;
}

/* Wakes it again and again; returns how often, before the time was over. */
static unsigned wake_often(struct sleeper *s, int fd, double *took_us)
{
	uint64_t end = floor_now_ns() + WAKES_LIMIT_NS, start, woke = 0;
	unsigned n = 0;

	for (; n < WAKES; n++) {
		start = floor_now_ns() + IDLE_NS;
		while (floor_now_ns() < start)
			;
		store_relaxed(&s->woke_ns, 0);
		start = floor_now_ns();
		if (start > end || write(fd, "w", 1) != 1)
			break;
		/* Acquire pairs with the sleeper's release: the time is of this byte. */
		while (!(woke = load_acquire(&s->woke_ns)) && floor_now_ns() < end)
			;
		if (!woke)
			break;
		took_us[n] = (double)(woke - start) / 1e3;
	}
	return n;
}

/* Median time. 0 or -errno. */
static int wake_time(const int cpus[2], double *us)
{
	static double took_us[WAKES];
	struct sleeper s = {.cpu = cpus[0]};
	cpu_set_t before;
	pthread_t thread;
	unsigned n = 0;
	int fds[2], err;

	if (sched_getaffinity(0, sizeof(before), &before) != 0 ||
	    pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	s.fd = fds[0];
	err = pthread_create(&thread, NULL, sleep_often, &s);
	if (!err) {
		pin(cpus[1]);
		n = wake_often(&s, fds[1], took_us);
		sched_setaffinity(0, sizeof(before), &before);
	}
	close(fds[1]); /* ends the sleeper */
	if (!err)
		pthread_join(thread, NULL);
	close(fds[0]);
	if (!err && n)
		*us = median_of(took_us, n);
	return err ? -err : n ? 0 : -ETIME;
}

/* Two processors for a measurement; false when it was told why there is none. */
static bool cpus_for(struct finding *f, int cpus[2])
{
	if (processors_allowed(cpus, 2) >= 2)
		return true;
	found(f, "not measured, as this process may use one processor only");
	found_trouble(f, FINDING_NOTE, "There is no other one to be woken from.",
		      "Look at `processors` above.");
	return false;
}

static bool is_busy(void)
{
	return load_now() > processors_allowed(NULL, 0);
}

void check_wake_up(struct finding *f)
{
	char halt_poll[32];
	int cpus[2], r;
	double us = 0;

	if (!cpus_for(f, cpus))
		return;
	r = wake_time(cpus, &us);
	if (r < 0) {
		found(f, "not measured: %s", strerror(-r));
		found_trouble(f, FINDING_NOTE, "How long a sleeper waits is not known.",
			      "Raise the limit of threads, `ulimit -u`, or measure again "
			      "when the machine is quiet.");
		return;
	}
	found_number(f, us, "us");
	found(f, "a sleeper on processor %d runs %.1f us after it was woken from %d",
	      cpus[0], us, cpus[1]);
	if (us < SLOW_WAKE_US)
		return;
	read_first_line(GUEST_HALT_POLL, halt_poll, sizeof(halt_poll));
	found_trouble(
		f, FINDING_NOTE,
		"Calls that sleep wait so long, on TCP too; those that find data, "
		"or spin, do not.",
		"%s",
		is_busy() ? "Measure again when the machine is quiet: more threads "
			    "run than there are processors."
		: !strcmp(halt_poll, "0")
			? "Let idle processors poll first: `echo 200000 "
			  ">" GUEST_HALT_POLL "`."
			: "Keep idle processors from deep sleep: `cpupower idle-set "
			  "-D 10`, or `tuned-adm profile network-latency`.");
}

void check_cache_line(struct finding *f)
{
	double rate = 0, ns;
	int cpus[2], err;

	if (!cpus_for(f, cpus))
		return;
	err = floor_run(FLOOR_LINE, 0, LINE_TIME_NS, cpus, &rate);
	if (err < 0 || rate <= 0) {
		found(f, "not measured: %s", strerror(-err));
		found_trouble(f, FINDING_NOTE, "How far the processors are is not known.",
			      "Raise the limits of processes and memory: `ulimit -u`, "
			      "`ulimit -v`.");
		return;
	}
	ns = 1e9 / rate;
	found_number(f, ns, "ns");
	found(f,
	      "a round trip through one cache line between processors %d and %d: "
	      "%.0f ns",
	      cpus[0], cpus[1], ns);
	if (ns <= FAR_LINE_NS)
		return;
	found_trouble(
		f, FINDING_NOTE,
		"The processors are far apart: every message costs a few such trips.",
		"%s",
		is_busy() ? "Measure again when the machine is quiet: more threads "
			    "run than there are processors."
			  : "Keep both ends on processors that share a cache, by "
			    "`taskset` or `numactl`; under a hypervisor, pin its "
			    "virtual processors.");
}

/* Nanoseconds that it takes to read the clock: the best of ten, for the clock alone. */
static double clock_ns(void)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 10; i++) {
		uint64_t start = floor_now_ns(), took;

		for (int n = 0; n < CLOCK_READS / 10; n++)
			floor_now_ns();
		took = floor_now_ns() - start;
		best = took < best ? took : best;
	}
	return (double)best / (CLOCK_READS / 10);
}

void check_clock(struct finding *f)
{
	static const char path[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";
	char source[32];
	double ns = clock_ns();
	bool known = read_first_line(path, source, sizeof(source));

	found_number(f, ns, "ns");
	found(f, "clock source %s, read in %.0f ns", known ? source : "unknown", ns);
	/* These two are system calls, and slow ones. */
	if (ns < SLOW_CLOCK_NS && strcmp(source, "hpet") && strcmp(source, "acpi_pm"))
		return;
	found_trouble(f, FINDING_NOTE,
		      "Waits that spin look at the clock: they get coarse and costly.",
		      "Use the processor's clock where the kernel finds it stable: `echo "
		      "tsc >%s`.",
		      path);
}
