/* SPDX-License-Identifier: Apache-2.0 */
/* The memory in which a traced process leaves what it moves, and the words that ask it to. */
#ifndef VD_CONN_TRACE_BUFFER_H
#define VD_CONN_TRACE_BUFFER_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_NAME   "viaduct-trace"
#define TRACE_MAGIC  0x6563617274646976ull
#define TRACE_LAYOUT 1

/* The size of the area for records: a power of two between these. */
#define TRACE_AREA_LEAST   (64u << 10)
#define TRACE_AREA_MOST	   (1u << 30)
#define TRACE_AREA_DEFAULT (16u << 20)
/* Stream bytes of one record, at most. */
#define TRACE_PIECE 16384u

/* Values of a session that stand for none. */
enum { TRACE_OFF = 0, TRACE_STOP = 1, TRACE_FIRST_SESSION = 2, TRACE_LAST_SESSION = 255 };

/*
 * In the private memory of each process, at the address that its family's table tells. Who may
 * change that memory by ptrace's rules (process_vm_writev) asks for a trace by it: first the
 * size, then the session. A session is one byte, so that the store cannot be seen in part.
 */
struct trace_wish {
	/* TRACE_OFF; TRACE_STOP: give the buffer back; or a trace. On a cache line of its own. */
	alignas(64) _Atomic uint32_t session;
	_Atomic uint32_t area_bytes;
};

/* In the table, written by the process: where its buffer is. */
struct trace_answer {
	_Atomic int32_t fd;	  /* descriptor of the buffer for `session`, or -errno */
	_Atomic uint32_t session; /* stored last */
};

/* At the beginning of the buffer; the area follows at TRACE_AREA_AT. */
struct trace_buffer {
	uint64_t magic;
	uint32_t layout, record_bytes;
	uint64_t area_bytes;
	_Atomic uint32_t session; /* TRACE_OFF once the process has let go of it */
	/* Free-running. What lies more than area_bytes before `reserved` may be overwritten;
	 * what lies before `head` is complete. */
	alignas(64) _Atomic uint64_t reserved;
	_Atomic uint64_t head;
	_Atomic uint64_t total; /* stream bytes in all records so far */
};
#define TRACE_AREA_AT 4096u

enum trace_kind {
	TRACE_OUT = 1,	  /* bytes that were put into the ring */
	TRACE_IN = 2,	  /* bytes that were taken from it */
	TRACE_FIN = 3,	  /* the program shut down for writing */
	TRACE_CLOSED = 4, /* it closed its last descriptor of it */
	TRACE_LEFT = 5,	  /* the connection goes back to TCP for good: `reason` */
	TRACE_BROKEN = 6, /* it ends with ECONNRESET: `reason` */
};

/* What a record begins with; `len` stream bytes follow, and padding to a multiple of 8. */
struct trace_record {
	uint32_t bytes; /* of all of it */
	uint16_t kind, reason;
	uint32_t len;
	int32_t fd; /* the number that the socket got first */
	uint32_t slot, generation;
	uint64_t time_ns; /* CLOCK_REALTIME */
	/*
	 * Offsets in the connection's two byte streams, TCP's bytes before and between counted:
	 * of the first byte (or of the end, of our direction), and where the other one is.
	 */
	uint64_t at, other_at;
	uint64_t total;		     /* stream bytes in all records before this one */
	uint8_t local[16], peer[16]; /* IPv6, or IPv4 mapped */
	uint16_t local_port, peer_port;
	uint32_t unused;
};

static_assert(sizeof(struct trace_record) == 96, "trace_record layout");
static_assert(sizeof(struct trace_buffer) <= TRACE_AREA_AT, "header page");

/* The whole record with len stream bytes. */
static inline uint32_t trace_record_bytes(uint32_t len)
{
	return (uint32_t)sizeof(struct trace_record) + ((len + 7) & ~7u);
}

#endif
