/* SPDX-License-Identifier: Apache-2.0 */
/* What this process did, counted, and appended as one line of JSON at its end. */
#ifndef VD_CONN_REPORT_H
#define VD_CONN_REPORT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/native_count.h"
#include "base/reason.h"
#include "base/sections.h"
#include "base/uncontended.h"

/* So many parts the bytes over TCP of a process with threads are counted in. */
#define REPORT_SHARES 8

/* Counts of this process; a forked child starts from zero. */
struct report {
	_Atomic uint64_t connections, upgraded, downgraded;
	_Atomic uint64_t tx_direct_bytes, rx_direct_bytes, tx_tcp_bytes, rx_tcp_bytes;
	/* Of the direct ones: to and from other hosts. */
	_Atomic uint64_t tx_rdma_bytes, rx_rdma_bytes;
	_Atomic uint64_t doorbells, sleeps, redirects, zero_copies;
	_Atomic uint64_t pinned_bytes; /* at this moment: of the cache of registrations */
	_Atomic uint64_t native[NATIVE_COUNTS];
	_Atomic uint64_t reasons[VD_REASON_COUNT];
	/* What adds to the bytes over TCP: see report_share. */
	struct {
		alignas(64) _Atomic uint64_t bytes[2]; /* received, sent */
	} shares[REPORT_SHARES];
};

static inline uint64_t report_tcp_bytes(const struct report *r, bool sends)
{
	uint64_t sum = load_relaxed(sends ? &r->tx_tcp_bytes : &r->rx_tcp_bytes);

	for (unsigned i = 0; i < REPORT_SHARES; i++)
		sum += load_relaxed(&r->shares[i].bytes[sends]);
	return sum;
}

/* What connections that are open add to that, at this moment. */
struct report_open {
	uint64_t native[NATIVE_COUNTS];
	uint64_t reasons[VD_REASON_COUNT];
};

/* Where this process counts: its own memory, or what report_count_in named. */
NEAR_EXTERN struct report *report_here;
#define report_now (*report_here)

static inline void report_add(_Atomic uint64_t *counter, uint64_t n)
{
	/* Only this process writes there. */
	single_add64(counter, n, __libc_single_threaded);
}

/*
 * Bytes over TCP, counted by each operation of a connection that is not settled yet. Threads count apart, each in
 * one of the shares, since one line would go from one processor to the other each time.
 */
void report_share(bool sends, uint64_t n);

static inline void report_tcp(bool sends, uint64_t n)
{
	if (__builtin_expect(__libc_single_threaded, 1))
		single_add64(sends ? &report_now.tx_tcp_bytes : &report_now.rx_tcp_bytes,
			     n, true);
	else
		report_share(sends, n);
}

/*
 * What this process did: a line in the log, and one in config_get()->report, when that is set, by
 * one write with O_APPEND. Callable from exit, _exit and before exec; only the first call of a
 * process writes, unless report_reopen is called (an exec that failed).
 */
void report_write(void);
/* The same in a handler of a signal that ends the process: with little of the stack. */
void report_write_dying(void);
/* Now rather than at the end, and without the log. */
void report_write_now(void);
/*
 * Set by a higher layer that keeps counts of its own: adds them to report_now, and what
 * belongs to connections that are open to *open. Takes no lock: it runs in a handler, too.
 */
extern void (*report_collect)(struct report_open *open);
void report_reopen(void);
/* Nothing is written from now on, by children neither. */
void report_stop(void);
/* From now on counts are made there. While there are none yet. */
void report_count_in(struct report *there);
/* In a forked child: back to zero, in its own memory. */
void report_forked(void);

#endif
