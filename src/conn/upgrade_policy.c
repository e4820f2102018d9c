/* SPDX-License-Identifier: Apache-2.0 */
/* When a connection has earned its upgrade, and whether upgrades have paid at its port. */
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/real.h"
#include "base/sections.h"
#include "conn/conn.h"
#include "settings/config.h"

#define UNIT_BYTES  (1u << EARN_UNIT_SHIFT)
#define PRICE_UNITS (16 * EARN_TURN_UNITS)
#define NO_PLACE    UINT32_MAX

/*
 * Where the kernel lets both ends take turns on one processor, as it does when all processors are
 * busy, a turn over TCP costs a quarter of what it costs between two: no sleeping processor has to
 * be woken. Where this process does not spin, a turn over the ring wakes a processor as well. In
 * both cases an upgrade is due after twice as many turns.
 */
#define CHEAP_DUE 2
#define RECORD_CHEAP                                                                     \
	(1u << 31) /* in slot.record: little was saved when the upgrade was due */

/* Of a turn on the ring that somebody slept for, so many eighths are spent as on TCP. */
#define SLEPT_EIGHTHS 7u

/*
 * The price of an upgrade, in turns on TCP, is measured: both are times of this end's processor, of
 * the thread that did them. From there to the attached segment is as much of the whole as 4 of 7;
 * the rest is the first touch of fresh memory, and the end.
 */
#define WHOLE_SEVENTHS 7u
#define PRICE_MOST     (16 * PRICE_UNITS)

/* The threshold is doubled so often at most. */
#define DOUBLINGS_MOST 6
/* A record has that number in its low bits. Above them it counts what speaks for trying again. */
#define RECORD_SHIFT 3
#define RECORD_LOW   ((1u << RECORD_SHIFT) - 1)
/*
 * A connection that ends on TCP, below a raised threshold, shows what an upgrade would have saved. So
 * many that were worth GOOD_PRICES lower the threshold by a step. Where that is wrong, as only an
 * upgrade can show, one connection in so many pays for it.
 */
#define AGAIN_ENOUGH 8u
/* One that was worth BEST_PRICES counts for so many. */
#define AGAIN_BEST 4u
/* What has saved so many times its price should have been upgraded earlier, by two steps; or by all. */
#define GOOD_PRICES 4
#define BEST_PRICES 16
/*
 * Where others want the processors, too, the kernel brings both ends together on one, if they stay on TCP, and a turn
 * then costs a quarter to a ninth of what it costs between two. Ends that spin are kept apart. So there the price is so
 * many times as high.
 */
#define CROWD_PRICES 8
/* It is a crowd where a thread loses its processor at least once in so much of its own time. */
#define CROWD_SLICE_NS 10000000u

static uint32_t mix(uint32_t hash, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;
	while (count--)
		hash = (hash ^ *at++) * 16777619u;
	return hash;
}

/* Connections that resemble each other: to the same port of the same host, or accepted at the
 * same port. Others may share their place, and what is learnt; the two kinds do not. */
static uint32_t place_of(struct sock *s, int fd)
{
	struct sockaddr_storage at = {0};
	socklen_t len = sizeof(at);
	bool connected = load_relaxed(&s->slot->role) == TCP_ROLE_CONNECTED;
	uint32_t hash = 2166136261u;
	if ((connected ? kernel_getpeername(fd, (struct sockaddr *)&at, &len)
		       : kernel_getsockname(fd, (struct sockaddr *)&at, &len)) < 0)
		return NO_PLACE;
	if (at.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
		hash = mix(hash, &v6->sin6_port, sizeof(v6->sin6_port));
		if (connected)
			hash = mix(hash, &v6->sin6_addr, sizeof(v6->sin6_addr));
	} else {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
		hash = mix(hash, &v4->sin_port, sizeof(v4->sin_port));
		if (connected)
			hash = mix(hash, &v4->sin_addr, sizeof(v4->sin_addr));
	}
	return (hash ^ hash >> 16) % (SLOT_RECORDS / 2) * 2 + connected;
}

/* Without spinning; or the last segment was sent from the processor that this thread runs on. The
 * latter is a hint. */
static bool is_little_saved(int fd)
{
	int cpu = -1;
	socklen_t len = sizeof(cpu);
	if (config_get()->spin_ns == 0)
		return true;
	return REAL(getsockopt)(fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &len) == 0 &&
	       cpu >= 0 && cpu == sched_getcpu();
}

/* Bounded, both: other processes of the family write the slot and the records, too. */
static _Atomic uint8_t *doublings_of(uint32_t record)
{
	return &slot_records()[((record & ~RECORD_CHEAP) - 1) % SLOT_RECORDS];
}

static uint8_t doublings_at(uint32_t record)
{
	uint8_t now = load_relaxed(doublings_of(record)) & RECORD_LOW;
	return now < DOUBLINGS_MOST ? now : DOUBLINGS_MOST;
}

_Atomic uint64_t earn_first_due NEAR_DATA;

/* The highest slot.earned that does not exceed so many units. */
static uint64_t due_at(uint64_t units)
{
	return units * EARN_UNIT + EARN_UNIT - 1;
}

/* The threshold of its kind, in units. */
static uint64_t threshold_of(struct sock *s, int fd)
{
	struct slot *sl = s->slot;
	uint64_t threshold = (uint64_t)config_get()->upgrade_after * EARN_TURN_UNITS;
	uint64_t now = load_relaxed(&sl->earned);
	uint32_t record = load_relaxed(&sl->record);
	if (threshold == 0)
		return 0;
	/* Relaxed: all find the same. */
	store_relaxed(&earn_first_due, due_at(threshold / 2));
	/* Most end before anything learnt is of interest. */
	if (now / EARN_UNIT <= threshold)
		return threshold;
	if (record == 0) {
		record = 1 + place_of(s, fd);
		if (record == 0)
			return 0; /* not connected: there it ends */
		if (!config_get()->upgrade_fixed && is_little_saved(fd))
			record |= RECORD_CHEAP;
		store_relaxed(&sl->record, record);
	}
	return threshold * (record & RECORD_CHEAP ? CHEAP_DUE : 1)
	       << doublings_at(record);
}

/* What this thread measures: from when, and how much the connection had earned then. */
static _Thread_local struct {
	const struct slot *slot;
	uint32_t generation;
	uint64_t began_ns, units;
} timed __attribute__((tls_model("initial-exec")));

static uint64_t own_time(void)
{
	struct timespec t;
	clock_read(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void time_begin(const struct slot *sl, uint64_t units)
{
	timed.slot = sl;
	timed.generation = load_relaxed(&sl->generation);
	timed.units = units;
	timed.began_ns = own_time();
}

/* False where another thread began, or this one has gone on with another connection since. *units: what the
 * connection had earned when it began, read once: a handler may begin anew at any moment. */
static bool time_end(const struct slot *sl, uint64_t *ns, uint64_t *units)
{
	uint64_t now;
	if (timed.slot != sl || timed.generation != load_relaxed(&sl->generation))
		return false;
	timed.slot = NULL;
	*units = timed.units;
	now = own_time();
	*ns = now - timed.began_ns;
	return now >
	       timed.began_ns; /* not where it began in the parent of this process */
}

/* How often this thread had lost its processor to another, when the upgrade of the connection was due,
 * and its own time by then. */
static _Thread_local struct {
	const struct slot *slot;
	uint32_t generation;
	long preempted;
	uint64_t ns;
} due __attribute__((tls_model("initial-exec")));

/* By system calls alone: libc would set errno in a close. */
static long read_preempted(void)
{
	struct rusage use;
	cpu_set_t may;
	CPU_ZERO(&may); /* the kernel writes no more than it has */
	/* Where it may not move to the peer's processor, the kernel brings nobody together. */
	if (kernel_call4(SYS_sched_getaffinity, 0, sizeof(may), (long)&may, 0) > 0 &&
	    CPU_COUNT(&may) == 1)
		return 0;
	return kernel_call4(SYS_getrusage, RUSAGE_THREAD, (long)&use, 0, 0) < 0
		       ? 0
		       : use.ru_nivcsw;
}

long (*earn_preempted)(void) = read_preempted;

static void crowd_begin(const struct slot *sl)
{
	due.slot = sl;
	due.generation = load_relaxed(&sl->generation);
	due.preempted = earn_preempted();
	due.ns = timed.began_ns;
}

/* Since then it has lost its processor again and again: once in a long time is no crowd. Where another was
 * due since, or this is another thread, nobody knows. */
static bool is_crowd(const struct slot *sl)
{
	if (due.slot != sl || due.generation != load_relaxed(&sl->generation) ||
	    left_any())
		return false;
	uint64_t times = (uint64_t)(earn_preempted() - due.preempted);
	return times && own_time() - due.ns <= times * CROWD_SLICE_NS;
}

/*
 * The first is taken as it is. Of those that follow each moves it, by a part that does not depend on how far off it
 * is: up by one of `up`, down by one of `down`. So as many lie above as `up` is to `down`.
 */
static void learn(_Atomic uint32_t *known, uint64_t ns, uint32_t up, uint32_t down)
{
	uint32_t now = load_relaxed(known);
	if (now == 0)
		now = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
	else if (ns > now)
		now += now < UINT32_MAX / 2 ? now / up + 1 : 0;
	else if (ns < now)
		now -= now / down;
	/* Relaxed: of two that learn at the same time, one is enough. */
	store_relaxed(known, now);
}

/*
 * The turns since half-way. They are among a connection's first, which find nothing in the caches in a crowd: later
 * ones take as much as the least of them.
 */
static void learn_turns(const struct slot *sl, uint64_t units)
{
	uint64_t ns, before;
	if (time_end(sl, &ns, &before) && units > before)
		learn(&slot_costs()->turn_ns, ns * EARN_TURN_UNITS / (units - before), 32,
		      4);
}

/* The first half of the way is only counted, and the second is timed as well. */
FORK_CODE bool earn_enough(struct sock *s, int fd, bool sends)
{
	struct slot *sl = s->slot;
	uint64_t now = earn_after(load_relaxed(&sl->earned), sends);
	uint64_t threshold, units = now / EARN_UNIT;
	store_relaxed(&sl->earned, now);
	threshold = threshold_of(s, fd);
	if (threshold == 0)
		return true;
	if (units <= threshold / 2) {
		store_relaxed(&sl->earn_due, due_at(threshold / 2));
		return false;
	}
	if (units > threshold)
		learn_turns(sl, units);
	if (!config_get()->upgrade_fixed) {
		time_begin(sl, units);
		if (units > threshold)
			crowd_begin(sl);
	}
	if (units > threshold)
		return true;
	store_relaxed(&sl->earn_due, due_at(threshold));
	return false;
}

void earn_attached(struct sock *s)
{
	struct earn_costs *costs = slot_costs();
	uint64_t ns, before, turns;
	if (!time_end(s->slot, &ns, &before) || peer_is_far(s))
		return;
	/* Meanwhile it has gone on over TCP. */
	turns = (uint64_t)load_relaxed(&s->slot->ops) * load_relaxed(&costs->turn_ns);
	if (ns > turns)
		learn(&costs->upgrade_ns, ns - turns, 16, 16);
}

void earn_bytes(struct sock *s, size_t bytes)
{
	fetch_add_relaxed(&s->slot->earned, bytes / UNIT_BYTES * EARN_UNIT);
}

/* What it has saved on the ring, in the same units. */
static uint64_t units_on_ring(const struct slot *sl)
{
	uint64_t rx = sl->rx_messages, tx = sl->tx_messages;
	uint64_t least = rx < tx ? rx : tx, most = rx < tx ? tx : rx;
	return 2 * least * EARN_TURN_UNITS + (most - least) +
	       (sl->rx.consumed + sl->tx.produced) / UNIT_BYTES;
}

/* Of that, what was none: turns for which this end slept, or the other did. */
static uint64_t units_slept(struct slot *sl)
{
	uint64_t rx = sl->rx_messages, tx = sl->tx_messages;
	uint64_t here = load_relaxed(&sl->rx_arm), there = load_relaxed(&sl->doorbells);
	uint64_t least = rx < tx ? rx : tx;
	here = here < least ? here : least;
	there = there < least ? there : least;
	return (here + there) * EARN_TURN_UNITS * SLEPT_EIGHTHS / 8;
}

/* What an upgrade costs, in the same units; one that is not measured, as long as nothing is known. */
static uint64_t price(void)
{
	struct earn_costs *costs = slot_costs();
	uint64_t turn = load_relaxed(&costs->turn_ns);
	uint64_t units = load_relaxed(&costs->upgrade_ns);
	if (turn == 0)
		return PRICE_UNITS;
	units = units * WHOLE_SEVENTHS / 4 * EARN_TURN_UNITS / turn;
	return units < PRICE_UNITS  ? PRICE_UNITS
	       : units < PRICE_MOST ? units
				    : PRICE_MOST;
}

/* It has ended on TCP, and no upgrade was tried. */
static void judge_untried(const struct slot *sl, uint32_t record)
{
	_Atomic uint8_t *known = doublings_of(record);
	uint8_t doublings = doublings_at(record);
	uint64_t units = load_relaxed(&sl->earned) / EARN_UNIT;
	uint64_t paid = config_get()->upgrade_fixed ? PRICE_UNITS : price();
	uint32_t again = load_relaxed(known) >> RECORD_SHIFT;
	if (doublings == 0 || units < GOOD_PRICES * paid)
		return;
	again += units < BEST_PRICES * paid ? 1 : AGAIN_BEST;
	if (again >= AGAIN_ENOUGH) {
		again = 0;
		doublings--;
	}
	store_relaxed(known, (uint8_t)(again << RECORD_SHIFT | doublings));
}

NEAR_CODE void earn_judge(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t record = load_relaxed(&sl->record);
	uint32_t phase = phase_of(sl);
	if (record == 0 || phase == SLOT_FINAL ||
	    slot_is_shared(sl)) /* then it goes on elsewhere */
		return;
	store_relaxed(&sl->record, 0);
	if (phase < SLOT_MEETING) {
		judge_untried(sl, record);
		return;
	}
	_Atomic uint8_t *doublings = doublings_of(record);
	uint8_t now = doublings_at(record);
	bool measured = !config_get()->upgrade_fixed && !peer_is_far(s);
	uint64_t paid = measured ? price() : PRICE_UNITS;
	uint64_t units = phase >= SLOT_ATTACHING ? units_on_ring(sl) : 0;
	if (measured && units) {
		units -= units_slept(sl);
		paid *= is_crowd(sl) ? CROWD_PRICES : 1;
	}
	if (units < paid) {
		/* A step; or two, where it was attached and saved less than half its price. */
		now += 1 + (phase >= SLOT_ATTACHING && units < paid / 2);
		now = now < DOUBLINGS_MOST ? now : DOUBLINGS_MOST;
	} else if (units < GOOD_PRICES * paid)
		now -= now > 0;
	else
		now = units < BEST_PRICES * paid && now > 2 ? now - 2 : 0;
	/* Relaxed: of two that end at the same time, one is enough. */
	store_relaxed(doublings, now);
}
