/* SPDX-License-Identifier: Apache-2.0 */
/* How two doctors on two hosts test a connection: each has a child under the library. */
#ifndef VD_TOOL_DOCTOR_FAR_H
#define VD_TOOL_DOCTOR_FAR_H

#include <assert.h>
#include <stdint.h>

#include "tool/doctor/way.h"

/*
 * The child has one end of the connection and nothing else: it is a program like any other. Its
 * standard input and output are pipes to its parent, which sees from outside, as `viaduct stat`
 * does, which way the bytes go.
 */

enum {
	FAR_VERSION = 1,
	FAR_ECHO_BYTES = 64,
	FAR_BYTES_MAX = 256 << 20, /* of one FAR_TAKE or FAR_GIVE */
	/* An answering process that hears nothing for so long hangs up. */
	FAR_IDLE_S = 10,
	/* The time that each throughput is measured in, at least. */
	FAR_STREAM_MS = 100,
};

/* ---- between the two hosts: little endian, as both are ---- */

enum far_kind {
	FAR_ECHO = 1, /* `bytes` follow, and come back; at most FAR_ECHO_BYTES */
	FAR_TAKE,     /* `bytes` of the pattern follow; answered by struct far_count */
	FAR_GIVE,     /* answered by `bytes` of the pattern */
	FAR_LOOK,     /* answered by struct far_view */
};

struct far_request {
	uint8_t magic[8];
	uint8_t version, kind;
	uint8_t zero[2];
	uint32_t bytes;
};

struct far_count {
	uint64_t good; /* bytes, up to the first that was wrong */
};

/* How it looks from the other side. Nobody vouches for it. */
struct far_view {
	uint8_t tx, rx; /* enum observe_path: of the bytes that it sends, receives */
	uint8_t relay_status;
	uint8_t has_device;
	uint32_t reason;
	int32_t relay_error;
	uint32_t relay_cause, relay_errno;
	uint32_t relay_us;
	struct name_end relay_daemon;
	char device[64]; /* its name, or why there is none; not closed by a zero byte */
	uint8_t zero[2];
};

static_assert(sizeof(struct far_request) == 16 && sizeof(struct far_count) == 8 &&
		      sizeof(struct far_view) == 108,
	      "travels between hosts");

/* ---- between parent and child ---- */

enum far_do {
	FAR_DO_START = 1, /* nothing: it runs */
	FAR_DO_CONNECT,	  /* to `end` */
	FAR_DO_ECHO,	  /* for `ms`; result: median round trip, us */
	FAR_DO_TAKE,	  /* result: bytes a second, from here to there */
	FAR_DO_GIVE,	  /* and from there to here */
	FAR_DO_LOOK,
	FAR_DO_REDIRECT, /* times of answers by the ring, and redirected */
	FAR_DO_CLOSE,	 /* the connection, in order; and ends */
};

struct far_order {
	enum far_do what;
	uint32_t ms;
	struct name_end end;
};

enum { FAR_SIZES = 3 };
extern const uint32_t far_sizes[FAR_SIZES]; /* the last is all that a ring holds */

struct far_result {
	int32_t error; /* 0 or -errno; -EBADMSG: bytes were not what was sent */
	double value;
	uint64_t bytes; /* compared */
	struct far_view view;
	double us[FAR_SIZES][2]; /* medians: by the ring, redirected */
};

/* What the answering child says. */
enum far_said {
	FAR_LISTENS = 1, /* or `error` */
	FAR_CAME,	 /* from `peer` */
	FAR_LOOKS	 /* is answered by a struct far_view */
};

struct far_event {
	enum far_said what;
	int32_t error;
	struct name_end local, peer;
};

/* ---- far_child.c: what the two children do, and the fuzzer ---- */

/* One connection of another doctor's, to its end; closes it. */
void far_serve(int fd);
/* *fd: the connection that FAR_DO_CONNECT has made. 0 or -errno. */
int far_carry_out(int *fd, const struct far_order *o, struct far_result *out);

/* ---- far.c: for both parents ---- */

struct far_child {
	pid_t pid; /* 0: none */
	int to, from;
};

/* The settings of the user's, but for what has been measured of the host. */
enum far_how {
	FAR_AS_SET,
	FAR_BY_RING, /* by RDMA also where that was slower, and nothing is redirected */
	FAR_REDIRECTED, /* what can be */
	FAR_BY_TCP,
	FAR_HOWS
};

/* Runs this very program under the library. 0 or -errno. */
int far_start(struct far_child *c, char *const argv[], enum far_how how);
/* The same for one that asks. */
int far_start_asking(struct far_child *c, enum far_how how);
/* Connects it, too; unless FAR_BY_TCP, until its bytes go by RDMA. 0, -ENOLINK: they do not, or
 * -errno. */
int far_connect(struct far_child *c, enum far_how how);
/* Its connection is closed in order, where it is `well`, and it ends. */
void far_close(struct far_child *c, bool well);
/* Ends it by a signal, if it has not ended by then. */
void far_end(struct far_child *c, int limit_ms);
/* 0; -EPIPE: the child has ended; -ETIMEDOUT. */
int far_tell(const struct far_child *c, const void *what, size_t bytes);
int far_hear(const struct far_child *c, void *what, size_t bytes, int limit_ms);

/* Carried out by a child that asks. 0 or -errno. */
int far_order(const struct far_child *c, enum far_do what, uint32_t ms,
	      struct far_result *out);

/* The child's connection with that peer, as it is now. */
struct far_path {
	bool is_seen, is_final; /* is_final: it will stay as it is */
	enum observe_path tx, rx;
	uint32_t reason;
	uint64_t tx_direct_bytes, rx_direct_bytes;
	uint32_t redirects;
};
void far_look(const struct far_child *c, const struct name_end *peer,
	      struct far_path *out);

#endif
