/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between a process and viaductd on its own host: docs/relay.md. */
#ifndef VD_DAEMON_CLIENT_LOCAL_H
#define VD_DAEMON_CLIENT_LOCAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/endpoint.h"

#define LOCAL_PROTOCOL	1
#define LOCAL_HELLO_MAX 1024

enum local_type {
	LOCAL_PUBLISH = 1, /* process: this connection is mine, and this is my hello */
	LOCAL_WITHDRAW,	   /* process: no more */
	LOCAL_ASK,	   /* process: pass this hello to the holder of the other end */
	LOCAL_ANSWER, /* process: to an ASKED; an empty hello means the published one */
	LOCAL_DONE,   /* daemon: to a PUBLISH, WITHDRAW or ASK */
	LOCAL_ASKED,  /* daemon: a hello from the other end's holder */
	LOCAL_PROBE,  /* process: does the daemon of that host answer? */
	LOCAL_PROBED, /* daemon: to a PROBE */
	LOCAL_MEET, /* process: who has the other end, in another namespace of this host? */
	LOCAL_MET,	 /* daemon: to a MEET, after its DONE: here is your way there */
	LOCAL_TRANSLATE, /* process: as what does the other end see my connection? */
	LOCAL_TRANSLATED /* daemon: to a TRANSLATE */
};

/* Number, name for logs, what it means. Those marked * come from the other host, too. */
#define LOCAL_STATUS(X)                                                                  \
	X(0, OK, "done")                                                                 \
	X(1, MALFORMED, "not a message of this protocol")                                \
	X(2, VERSION, "another version of the protocol")                                 \
	X(3, NETNS, "the process is in another network namespace than its viaductd")     \
	X(4, ADDRESS, "addresses that no two hosts can have")                            \
	X(5, OWNER, "no such connection belongs to the user of the process")             \
	X(6, RULE, "a rule of viaductd.conf denies it")                                  \
	X(7, RATE, "too many requests") /* * */                                          \
	X(8, FULL, "a table is full")	/* * */                                          \
	X(9, UNREACHABLE, "no viaductd can be reached on the other host")                \
	X(10, KEY, "the two viaductd have no key in common")                             \
	X(11, NOBODY, "nobody on the other host has published the connection") /* * */   \
	X(12, GONE, "the holder of the other end went away")		       /* * */   \
	X(13, SILENT,                                                                    \
	  "the other host, or the holder there, did not answer in time")     /* * */     \
	X(14, REFUSED, "the holder of the other end refuses")		     /* * */     \
	X(15, FOREIGN, "the other host does not take this address for ours") /* * */     \
	X(16, RIGHTS, "viaductd may not ask the kernel how it rewrites addresses there") \
	X(17, UNSEEN,                                                                    \
	  "the kernel has no entry that leads to a socket of this network namespace")

enum local_status {
#define X(number, name, text) LOCAL_##name = number,
	LOCAL_STATUS(X)
#undef X
		LOCAL_STATUS_COUNT
};

/* Why a daemon is UNREACHABLE, or has no KEY in common. Number, name, what "it" does. */
#define LOCAL_CAUSE(X)                                                                   \
	X(0, NONE, "gives no cause")                                                     \
	X(1, CONNECT, "cannot be connected") /* PROBED has the errno */                  \
	X(2, CLOSED, "hangs up before it has proved anything")                           \
	X(3, NO_PROOF, "proves no key in time")                                          \
	X(4, STRANGER, "is no viaductd")                                                 \
	X(5, OTHER_VERSION, "speaks another version of the protocol")                    \
	X(6, REFUSES_VERSION, "does not speak our version of the protocol")              \
	X(7, REFUSES_KEY, "has not our key")                                             \
	X(8, WRONG_KEY, "has not the key that it names")                                 \
	X(9, BROKEN, "has sent what was repeated, changed or incomplete")                \
	X(10, LOST, "has ended the link with the question under way")

enum local_cause {
#define X(number, name, text) LOCAL_CAUSE_##name = number,
	LOCAL_CAUSE(X)
#undef X
		LOCAL_CAUSE_COUNT
};

/* The hello of a PROBED. */
struct local_probed {
	uint32_t cause; /* enum local_cause */
	uint32_t error; /* an errno, or 0 */
};

/* The hello of a MEET. With it come NEAR_FDS descriptors of the network namespace that the
 * connection is in. */
struct local_meet {
	uint32_t
		accepted; /* 1: this end has accepted the connection; 0: it has connected */
};

enum {
	NEAR_DIAG,  /* a NETLINK_SOCK_DIAG socket */
	NEAR_SPACE, /* the namespace, as /proc/thread-self/ns/net */
	NEAR_PROBE, /* a UDP socket, bound to the connection's own address and to any port */
	NEAR_FDS
};

/* The hello of a MET. With it come NEAR_MET_FDS descriptors. */
struct local_met {
	uint64_t cookie,
		netns; /* of the other end's TCP socket: SO_COOKIE, SO_NETNS_COOKIE */
};

/* The hello of a TRANSLATE. */
struct local_translate {
	uint64_t cookie;   /* SO_COOKIE of the process's socket */
	uint32_t accepted; /* as in a MEET */
	uint32_t zero;
};

/* The hello of a TRANSLATED, where the status is OK. */
struct local_translated {
	uint64_t cookie; /* SO_COOKIE of the other end's socket */
};

enum {
	NEAR_LINE, /* to the other end, for one message with the memory. SOCK_SEQPACKET */
	NEAR_BELL, /* the doorbells. SOCK_DGRAM */
	NEAR_MET_FDS
};

/*
 * One datagram. What a type does not use is 0. Host byte order, but for the ports of the
 * ends; both are of the reader's machine.
 */
struct local_message {
	uint8_t version, type;
	uint8_t status; /* ANSWER (OK or REFUSED), DONE, PROBED, TRANSLATED */
	uint8_t zero;
	uint32_t id; /* the asking side's, repeated in the answer */
	/* As the process sees them; not in ANSWER, DONE, MET. PROBE: addresses alone; PROBED: our
	 * address, and the daemon that was asked. TRANSLATED: as the other end's socket has them. */
	struct name_end local, peer;
	uint32_t uid;	  /* ASKED, DONE, MET: of the other end's holder */
	uint32_t wait_ms; /* DONE, PROBED, TRANSLATED: asking again sooner is in vain */
	uint8_t hello[LOCAL_HELLO_MAX]; /* as long as the datagram; PUBLISH, ASK, ANSWER,
					   DONE, ASKED, PROBED, MEET, MET, TRANSLATE,
					   TRANSLATED */
};

#define LOCAL_HEAD_BYTES offsetof(struct local_message, hello)
static_assert(LOCAL_HEAD_BYTES == 52, "layout of the local messages");

/* Whether a datagram of that length is a message that a process, or a daemon, may send:
 * LOCAL_OK, or why not. */
enum local_status local_check(const struct local_message *m, size_t bytes,
			      bool from_process);
/* "nobody (nobody on the other host ...)", for any number. */
const char *local_status_text(unsigned status);
bool local_status_travels(unsigned status);
const char *local_cause_text(uint32_t cause);
/* Addresses of one family that two hosts can have: neither loopback nor link-local. */
bool local_addresses_fit(const struct name_end *local, const struct name_end *peer);
/* The same, and ports. */
bool local_ends_fit(const struct name_end *local, const struct name_end *peer);

#define LOCAL_END_TEXT_BYTES 56
const char *local_end_text(const struct name_end *end, char buf[LOCAL_END_TEXT_BYTES]);

#endif
