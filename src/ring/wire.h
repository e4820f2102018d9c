/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of the memory that two processes share for one connection. Nothing in it is
 * trusted. */
#ifndef VD_RING_WIRE_H
#define VD_RING_WIRE_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC   0x5443554441495631ull
#define WIRE_VERSION 8u

/* Each direction owns three data areas of growing size; the producer moves between them, and to
 * the front of the one that it is in. */
#define WIRE_AREAS	    3
#define WIRE_AREA0_BYTES    (16u << 10)
#define WIRE_AREA1_BYTES    (256u << 10)
#define WIRE_AREA2_BYTES    (4u << 20)
#define WIRE_DIR_DATA_BYTES (WIRE_AREA0_BYTES + WIRE_AREA1_BYTES + WIRE_AREA2_BYTES)

/*
 * Moves between areas that the consumer may not have heard of. Unread bytes lie behind two of
 * them at most, but a move also waits where the consumer stands with nothing to read.
 */
#define WIRE_TURNS 4

#define WIRE_TICK_SHIFT 20

/* How many arrivals are told apart. */
#define WIRE_TIMES 4

/* Index of a direction: by the TCP role of its producer. */
enum wire_direction { WIRE_FROM_ACCEPTOR = 0, WIRE_FROM_CONNECTOR = 1 };

/*
 * What the consumer asks for. With REWIND: TCP for good, and its unread bytes as well. With
 * LAST: the same, and nobody is left who could read the ring instead. With YIELD: as REWIND, but
 * it has not gone down itself, so that the producer may ask for its own unread bytes as well.
 * With LEND: as REWIND, but the direction comes back: what is carried out becomes a BOUNCE.
 */
enum wire_want {
	WANT_NOTHING = 0,
	WANT_FINAL = 1,
	WANT_BOUNCE = 2,
	WANT_REWIND = 3,
	WANT_LAST = 4,
	WANT_YIELD = 5,
	WANT_LEND = 6
};

/* Bits of want_times: time_at, and sent_tick. */
enum wire_times { WIRE_ARRIVALS = 1, WIRE_SENT = 2 };

/* Of a consumer whose last descriptor is closed. FOR_GOOD: who is not in a call on it
 * by then does not take what is unread in the ring. */
enum wire_closed { WIRE_OPEN = 0, WIRE_CLOSED = 1, WIRE_CLOSED_FOR_GOOD = 2 };

/* The producer's answer to the last two: while it is TAKING the consumer takes nothing. */
enum wire_rewind { REWIND_IDLE = 0, REWIND_TAKING = 1, REWIND_BROKEN = 2 };

/*
 * One direction. Four pairs of cache lines, each with exactly one writing side, so that a
 * message costs the transfer of the producer's line and of the data and nothing else:
 * the consumer's cursor stays in the consumer's cache until the producer runs out of
 * credit, and both lines of flags change only around a sleep or a switch.
 */
struct wire_dir {
	/* Producer writes; the consumer reads them at each receive. */
	alignas(128) _Atomic uint64_t produced; /* bytes published, free-running */
	/* The moves between areas, number n at index n % WIRE_TURNS. */
	_Atomic uint64_t
		turn_at[WIRE_TURNS]; /* ring position where the new area begins */
	_Atomic uint32_t turn_area[WIRE_TURNS];
	_Atomic uint32_t turn_seq; /* moves so far */
	/* wire_tick() when the last bytes were sent, while the producer notes it; else 0. */
	_Atomic uint32_t sent_tick;
	/* When bytes came, for a consumer that wants to know: those from position time_from[i] on
	 * at tick time_at[i] of the processors' clock; 0 none. Hints, to sort by. */
	_Atomic uint64_t time_from[WIRE_TIMES];
	_Atomic uint64_t time_at[WIRE_TIMES];

	/* Consumer writes; the producer reads it when its known credit runs out. */
	alignas(128) _Atomic uint64_t consumed; /* bytes taken, free-running */

	/* Producer writes, rarely. */
	alignas(128) _Atomic uint32_t
		tx_armed;	 /* sequence of the producer's sleep, 0 awake */
	_Atomic uint32_t tx_cpu; /* of the producer's thread: see TOLD_CPU; 0 not told */
	_Atomic uint32_t up_epoch;   /* epochs in which the ring was taken into use */
	_Atomic uint32_t down_epoch; /* epochs in which it was left again */
	_Atomic uint64_t up_at;	  /* TCP carries the stream up to this TCP byte count */
	_Atomic uint64_t down_at; /* then the ring up to this ring count, then TCP */
	_Atomic uint64_t held_at; /* bytes written, of which some wait for a push */
	_Atomic uint64_t
		held_since_ms; /* clock_shared_ms when the first was held; 0 none */
	_Atomic uint32_t fin;
	_Atomic uint32_t rewind; /* enum wire_rewind */
	/* Tick of the processors' clock when the producer shut down, or closed; 0 none, as for a peer that was
	 * killed, or is on another host. A hint, to sort by. */
	_Atomic uint64_t ended_at;

	/* Consumer writes, rarely; the producer reads this line at each send. */
	alignas(128) _Atomic uint32_t
		rx_armed; /* sequence of the consumer's sleep, 0 awake */
	_Atomic uint32_t rx_cpu;
	_Atomic uint32_t ready_epoch; /* epochs that the consumer has opened */
	_Atomic uint32_t want_down;   /* enum wire_want: the consumer asks for TCP */
	_Atomic uint32_t closed;      /* enum wire_closed */
	_Atomic uint32_t
		want_times;	   /* enum wire_times: what the producer is to fill in */
	_Atomic uint32_t rx_bound; /* SO_RCVBUF, when the consumer's program set it */
	/* Bytes before this position the consumer has in spite of REWIND or LAST; 0 none. */
	_Atomic uint64_t kept;
};

/* Kernel counts of one end, for the cross-check of identity. */
struct wire_counts {
	uint64_t acked, written, received;
};

enum wire_handshake { WIRE_OFFERED = 0, WIRE_ATTACHED = 1, WIRE_ABANDONED = 2 };

struct wire {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes; /* sizeof(struct wire) */
	uint32_t dir_bytes;    /* sizeof(struct wire_dir) */
	uint32_t area_bytes[WIRE_AREAS];
	uint64_t total_bytes;
	_Atomic uint32_t handshake; /* OFFERED to ATTACHED by the connector, to ABANDONED
				       by either */
	uint32_t connector_port;    /* of its far bell, or 0; written before ATTACHED */
	struct wire_counts connector_counts; /* written before ATTACHED */
	struct wire_dir dir[2];		     /* indexed by enum wire_direction */
};

#define WIRE_HEADER_BYTES 4096u /* the data areas start here */
#define WIRE_TOTAL_BYTES  (WIRE_HEADER_BYTES + 2ull * WIRE_DIR_DATA_BYTES)

/* Milliseconds, about, by the clock of the processors; comes round in weeks. When it is 0, once in
 * these, it is not known. */
static inline uint32_t wire_tick(void)
{
	uint32_t tick;
	/* Two instructions in the place of four. */
	__asm__ __volatile__("rdtsc\n\tshrdl %1, %%edx, %%eax"
			     : "=a"(tick)
			     : "i"(WIRE_TICK_SHIFT)
			     : "edx", "cc");
	return tick;
}

static_assert(sizeof(struct wire_dir) == 512, "wire_dir layout");
static_assert(offsetof(struct wire_dir, consumed) == 128, "wire_dir layout");
static_assert(offsetof(struct wire_dir, tx_armed) == 256, "wire_dir layout");
static_assert(offsetof(struct wire_dir, rx_armed) == 384, "wire_dir layout");
static_assert(sizeof(struct wire) <= WIRE_HEADER_BYTES, "header page");

/* Offset of the data of one area of one direction from the start of the segment. */
static inline uint64_t wire_area_offset(unsigned dir, unsigned area)
{
	uint64_t off = WIRE_HEADER_BYTES + (uint64_t)dir * WIRE_DIR_DATA_BYTES;
	if (area > 0)
		off += WIRE_AREA0_BYTES;
	if (area > 1)
		off += WIRE_AREA1_BYTES;
	return off;
}

static inline uint32_t wire_area_bytes(unsigned area)
{
	return area == 0   ? WIRE_AREA0_BYTES
	       : area == 1 ? WIRE_AREA1_BYTES
			   : WIRE_AREA2_BYTES;
}

#endif
