/* SPDX-License-Identifier: Apache-2.0 */
/* When a connection has earned its upgrade, and whether upgrades have paid at its port. */
#include <netinet/in.h>
#include <sched.h>
#include <string.h>

#include "base/atomic.h"
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
 * both cases an upgrade takes three times as many turns to pay, and is due after twice as many.
 */
#define CHEAP_DUE   2
#define CHEAP_PRICE 3
#define RECORD_CHEAP                                                                     \
	(1u << 31) /* in slot.record: little was saved when the upgrade was due */

/* The threshold is doubled so often at most. */
#define DOUBLINGS_MOST 6
/* More units on the ring than so many say that it should have been earlier, by two steps; or
 * by all. */
#define GOOD_UNITS (4 * PRICE_UNITS)
#define BEST_UNITS (16 * PRICE_UNITS)

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
	if ((connected ? getpeername(fd, (struct sockaddr *)&at, &len)
		       : getsockname(fd, (struct sockaddr *)&at, &len)) < 0)
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
	uint8_t now = load_relaxed(doublings_of(record));
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
	store_relaxed(&earn_first_due, due_at(threshold));
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

FORK_CODE bool earn_enough(struct sock *s, int fd, bool sends)
{
	struct slot *sl = s->slot;
	uint64_t now = earn_after(load_relaxed(&sl->earned), sends);
	uint64_t threshold;
	store_relaxed(&sl->earned, now);
	threshold = threshold_of(s, fd);
	if (threshold == 0 || now / EARN_UNIT > threshold)
		return true;
	store_relaxed(&sl->earn_due, due_at(threshold));
	return false;
}

void earn_bytes(struct sock *s, size_t bytes)
{
	fetch_add_relaxed(&s->slot->earned, bytes / UNIT_BYTES * EARN_UNIT);
}

/* What it has done on the ring, in the same units. */
static uint64_t units_on_ring(const struct slot *sl)
{
	uint64_t rx = sl->rx_messages, tx = sl->tx_messages;
	uint64_t least = rx < tx ? rx : tx, most = rx < tx ? tx : rx;
	return 2 * least * EARN_TURN_UNITS + (most - least) +
	       (sl->rx.consumed + sl->tx.produced) / UNIT_BYTES;
}

NEAR_CODE void earn_judge(struct sock *s)
{
	struct slot *sl = s->slot;
	uint32_t record = load_relaxed(&sl->record);
	uint32_t phase = phase_of(sl);
	if (record == 0 || phase < SLOT_MEETING || phase == SLOT_FINAL ||
	    slot_is_shared(sl)) /* then it goes on elsewhere */
		return;
	store_relaxed(&sl->record, 0);
	_Atomic uint8_t *doublings = doublings_of(record);
	uint8_t now = doublings_at(record);
	uint64_t units = phase >= SLOT_ATTACHING ? units_on_ring(sl) : 0;
	if (record & RECORD_CHEAP)
		units /= CHEAP_PRICE;
	if (units < PRICE_UNITS)
		now += now < DOUBLINGS_MOST;
	else if (units < GOOD_UNITS)
		now -= now > 0;
	else
		now = units < BEST_UNITS && now > 2 ? now - 2 : 0;
	/* Relaxed: of two that end at the same time, one is enough. */
	store_relaxed(doublings, now);
}
