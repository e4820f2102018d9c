/* SPDX-License-Identifier: Apache-2.0 */
/* What both ends of the random calls share. */
#ifndef VD_TESTS_RPC_STRESS_H
#define VD_TESTS_RPC_STRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "peers.h"

/* Procedures of version 1. PEERS has a version 3, too, but no version 2. */
enum stress_procedure {
	S_NOTHING,
	S_NEXT,
	S_ECHO,
	S_SUM,
	S_MAKE, /* a length and a seed: so many bytes */
	S_LIST,
	S_WHO,
	S_NOTE,	 /* a key and a number: no answer */
	S_NOTED, /* a key: calls, and their sum */
	S_SILENT,
	S_DOUBLE, /* answers twice */
	S_FRESH,  /* by user 0 of AUTH_SYS alone: the argument, and 1 */
	S_WEAK,
	S_SYSTEM,
	S_HALF,	   /* an answer that cannot be encoded to its end */
	S_DISTURB, /* a way, and what to echo */
	S_BACK,	   /* a port and a seed: how many calls there went wrong */
	S_VICTIM,  /* the port of a service that may be killed */
	S_DIE,	   /* amid an answer of so many bytes */
	S_QUIT
};

/* Its clients' program, which the service calls back. */
#define STRESS_BACK 0x20000098u
/* Nothing waits so long, unless it hangs. */
#define STRESS_LONG_S 600

/* Two numbers. */
struct two {
	u_int one, other;
};
bool_t xdr_two(XDR *xdrs, struct two *t);

/* Random numbers: all of them follow from the seed. */
struct chance {
	uint64_t state;
};
uint64_t chance_next(struct chance *c);
/* Less than n. */
u_int chance_below(struct chance *c, u_int n);
/* Of a message: mostly short. */
u_int chance_size(struct chance *c);

blob stress_blob(u_int len, u_int seed);
u_int stress_sum(const blob *b);

/*
 * A blob; in the middle of it `kind` happens to the descriptor, or the process. Like xdr_blob
 * on the wire.
 */
struct amid {
	blob bytes;
	int fd;
	u_int kind;
};
bool_t xdr_amid(XDR *xdrs, struct amid *a);

/* What may happen to a connection while it is used; a program notices nothing. */
enum disturb_kind {
	DISTURB_NONE,
	DISTURB_BOUNCE, /* to TCP, and back */
	DISTURB_DUP,
	DISTURB_PASS, /* through a socket, to this very process */
	DISTURB_FLAGS,
	DISTURB_OPTION,
	DISTURB_MORE_OPTIONS,
	DISTURB_KINDS,
	/* The others are no matter of chance. */
	DISTURB_KILL,
	DISTURB_FAIL
};
void disturb(int fd, u_int kind);

CLIENT *stress_handle(int fd, unsigned short port, rpcprog_t program, rpcvers_t version);
enum clnt_stat stress_call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
			   void *xdr_results, void *results);
/* So many calls that succeed, of all sizes: how many have not, or have brought something else. */
u_int stress_plain(CLIENT *cl, struct chance *c, int count);

/* A call of S_FRESH that begins as user `number`, and what came of it. */
void stress_renewed(CLIENT *cl, u_int number, FILE *out);

/* The service: until S_QUIT, in a loop "run", "poll" or "select"; or until it is killed. */
int stress_serve(const char *place, const char *loop);
int stress_victim(int fd);
/* A client's own service, for S_BACK: its port, and its thread, which ends by S_QUIT. */
unsigned short stress_offer_back(void);
void *stress_serve_back(void *unused);

/* What to execute: argv[0]. */
extern const char *stress_program;

#endif
