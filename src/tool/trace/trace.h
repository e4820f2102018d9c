/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `viaduct trace` share: the process, its buffer, and the file of packets. */
#ifndef VD_TOOL_TRACE_TRACE_H
#define VD_TOOL_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "conn/trace_buffer.h"
#include "tool/observe/observe.h"

/* ---- target.c: the process, which is asked to leave a trace ---- */

struct trace_target {
	pid_t pid;
	char name[16]; /* printable */
	char path[96]; /* of the table's file */
	int pidfd;
	int memory; /* its memory, /proc/PID/mem, or -1; see trace_target_ask */
	struct observe
		observe; /* as it was at the beginning; holds the table's mapping */
	size_t upgraded; /* connections that were on the ring then */
	const struct trace_answer *answer;
	int table; /* its file: holds our lock */
	uint64_t table_inode;
	uid_t table_uid; /* who made the table */
	uint64_t wish_at;
	uint32_t session;
};

/*
 * Finds the process, and makes this one its only tracer until it ends. False after a message on
 * stderr: what is wrong, and what to do.
 */
bool trace_target_open(struct trace_target *t, pid_t pid);
/* Asks for a buffer with an area of so many bytes. False after a message. */
bool trace_target_ask(struct trace_target *t, uint32_t area_bytes);
/* Tells it that no more is wanted. A process that has ended is left alone. */
void trace_target_stop(struct trace_target *t);
void trace_target_close(struct trace_target *t);
/* Another program has taken the process over, by exec. */
bool trace_target_is_other(const struct trace_target *t);

/* ---- read.c: the buffer ---- */

struct trace_reader {
	const struct trace_buffer *buffer;
	uint64_t area, at, expected;
	uint64_t last; /* records from here on are not wanted any more */
	uint64_t lost; /* stream bytes, all together */
	uint8_t bytes[TRACE_PIECE + 8];
};

/* 1 it is mapped; 0 the process has not moved anything yet; -errno, after a message. */
int trace_reader_open(struct trace_reader *r, const struct trace_target *t);
/*
 * The next record; its bytes are in r->bytes. *lost: stream bytes that were overwritten before it
 * could be read. 1; 0 there is none; -EAGAIN: it was overwritten, look again; -EPROTO: what is
 * there makes no sense.
 */
int trace_reader_next(struct trace_reader *r, struct trace_record *record,
		      uint64_t *lost);
/* Records that come after this call are left out: else a process that goes on to write some
 * would keep us for ever. */
void trace_reader_end_here(struct trace_reader *r);
/* The process has let go of the buffer: there will be no more. */
bool trace_reader_is_over(const struct trace_reader *r);
/* Counts what was overwritten behind the last record that was read. */
void trace_reader_finish(struct trace_reader *r);

/* ---- pcapng.c: the file ---- */

enum pcapng_way { PCAPNG_IN = 1, PCAPNG_OUT = 2 };

struct pcapng {
	FILE *out;
	uint32_t snaplen; /* 0: no limit */
	uint64_t packets, first_ns, last_ns;
};

void pcapng_begin(struct pcapng *p, const struct trace_target *t);
/* comment: NULL or "" for none. */
void pcapng_packet(struct pcapng *p, uint64_t time_ns, enum pcapng_way way,
		   const void *packet, size_t size, const char *comment);
void pcapng_end(struct pcapng *p, uint64_t lost_bytes, const char *comment);

/* ---- packet.c: from records to packets ---- */

struct trace_conn;

struct trace_packets {
	struct pcapng *file;
	const struct trace_target *target;
	int port, fd; /* only these; -1: all */
	struct trace_conn *conns;
	uint32_t room; /* of conns */
	uint64_t connections, bytes;
};

bool trace_packets_begin(struct trace_packets *p);
/* lost: bytes that are missing before this record, of whatever connection. 0 or -EPROTO. */
int trace_packets_add(struct trace_packets *p, const struct trace_record *r,
		      const uint8_t *bytes, uint64_t lost);
void trace_packets_end(struct trace_packets *p);

#endif
