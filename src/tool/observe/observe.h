/* SPDX-License-Identifier: Apache-2.0 */
/* All connections of all Viaduct processes that this user may see, at one moment. */
#ifndef VD_TOOL_OBSERVE_OBSERVE_H
#define VD_TOOL_OBSERVE_OBSERVE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/reason.h"
#include "conn/slot.h"

/*
 * Read from memory that the processes expose (conn/table.h), the kernel's list of sockets
 * and /proc: the processes observed are not asked, stopped or slowed.
 */

/* Counts of a process since its start or fork, as its report would have them if it ended now:
 * see viaduct-run(1), REPORT. A connection that several processes have counts in each. */
struct observe_counts {
	uint64_t connections, upgraded, downgraded;
	uint64_t tx_direct_bytes, rx_direct_bytes, tx_tcp_bytes, rx_tcp_bytes;
	uint64_t tx_rdma_bytes, rx_rdma_bytes; /* of the direct ones */
	uint64_t doorbells, sleeps, redirects, zero_copies, pinned_bytes;
	uint64_t native[NATIVE_COUNTS];
	uint64_t reasons[VD_REASON_COUNT];
};

/* It has used the native interface. */
static inline bool observe_is_native(const struct observe_counts *c)
{
	uint64_t any = 0;

	for (int i = 0; i < NATIVE_COUNTS; i++)
		any |= c->native[i];
	return any;
}

struct observe_process {
	pid_t pid;
	uid_t uid;
	char name[16];	     /* as in /proc/PID/comm */
	uint64_t netns;	     /* inode of its network namespace; 0 unknown */
	bool viaduct;	     /* the library is in it, and shows its connections */
	bool gave_back;	     /* no descriptor shows them any more: root alone may look */
	const char *trouble; /* a sentence when they cannot be read, else NULL */
	bool counted;	     /* counts are there */
	struct observe_counts counts;
	/* Of the implementation: */
	char table[48];	 /* its file, by its name in /proc/PID; "" without one */
	int32_t own_pid; /* as it has it itself, in its pid namespace */
	const void *family;
};

struct observe_end {
	struct in6_addr addr; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
};

enum observe_path {
	OBSERVE_TCP,
	OBSERVE_SWITCHING, /* receiving: TCP's last bytes, before the ring's first */
	OBSERVE_RING,	   /* in memory that both ends share */
	OBSERVE_RDMA,	   /* the same, with an end on another host */
};

static inline bool observe_is_direct(enum observe_path path)
{
	return path == OBSERVE_RING || path == OBSERVE_RDMA;
}

struct observe_conn {
	const struct observe_process *process;
	int fd;
	uint64_t inode; /* of the socket: one, however many descriptors it has */
	struct observe_end local, peer;
	uint8_t tcp_state; /* as in <netinet/tcp.h> */
	/* The process at the other end: NULL when it is elsewhere, or may not be seen. */
	const struct observe_process *peer_process;
	int peer_fd;
	const struct observe_conn *peer_conn; /* and its view of it, under Viaduct */
	/* False: the descriptor came from outside (exec, SCM_RIGHTS, pidfd_getfd); all that
	 * follows is TCP and 0, and the reason is VD_REASON_ROLE; or it is not plain TCP, for
	 * VD_REASON_PROTOCOL. */
	bool known;
	uint32_t phase;	 /* enum slot_phase */
	uint32_t role;	 /* enum tcp_role */
	uint32_t reason; /* enum vd_reason; NONE while a direction may be on the ring */
	enum observe_path tx, rx;
	bool across; /* what goes direct goes by RDMA */
	uint64_t tx_direct_bytes, rx_direct_bytes, tx_messages, rx_messages;
	uint64_t tx_tcp_bytes, rx_tcp_bytes;	   /* the kernel's counts */
	uint32_t tx_tcp_segments, rx_tcp_segments; /* with data; the kernel's, too */
	uint64_t saved; /* system calls: messages, less calls made to sleep and to wake */
	uint32_t switches, doorbells, sleeps, redirects;
	bool native; /* of the native library: counts by enum native_count */
	uint64_t native_counts[NATIVE_COUNTS];
	uint32_t tx_ring, rx_ring; /* bytes of the area in use; 0 without a ring */
	uint64_t tx_grown; /* bytes that what is sent may take beyond the smallest area */
	uint64_t tx_fill, rx_fill; /* bytes in it, on the way */
	const void *slot;	   /* of the implementation */
};

/* Remote procedure calls of one kind that a process has counted: how long they took is, at a client, by
 * what it waited; at a service, the time in the dispatch. */
struct observe_call {
	const struct observe_process *process;
	bool is_service;
	bool is_other; /* all that found no row of their own */
	uint32_t program, version, procedure;
	uint64_t calls, errors, ns;
	uint64_t
		p99_ns; /* 99 of 100 took less; or more, at the end of what is told apart */
};

struct observe {
	struct observe_process *processes; /* all that may be seen, Viaduct or not */
	size_t process_count;
	/* Of Viaduct processes, by process and descriptor; listeners among them. */
	struct observe_conn *conns;
	size_t conn_count;
	struct observe_call *calls; /* by process */
	size_t call_count;
	size_t hidden; /* processes of others, which may not be looked into */
	void *memory;  /* of the implementation */
};

/* 0 or -errno, with a sentence in message. What it holds is valid until observe_free. */
int observe_take(struct observe *o, char *message, size_t size);
void observe_free(struct observe *o);
/* NULL when there is none. */
const struct observe_process *observe_process(const struct observe *o, pid_t pid);
/* "1.2.3.4:80" or "[::1]:80". Needs 64 bytes. Returns text. */
char *observe_end_text(const struct observe_end *end, char *text);
const char *observe_path_name(enum observe_path path);

#endif
