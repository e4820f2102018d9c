/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of the client share. */
#ifndef VD_TESTS_RPC_CALL_H
#define VD_TESTS_RPC_CALL_H

#include <stdio.h>

#include "peers.h"

#define LONG_MS 60000

/* Ends the program where there is no connection. */
CLIENT *connect_to(rpcprog_t program, rpcvers_t version);
int fd_of(CLIENT *cl);
blob blob_of(u_int len, u_int seed);
/* clnt_call, with the XDR routines as pointers of any kind. */
enum clnt_stat call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
		    void *xdr_results, void *results, int ms);
/* Writes a call's result down. */
void say(CLIENT *cl, const char *what, enum clnt_stat status);
/* Calls NEXT, and writes down what it brings. */
void next(CLIENT *cl, const char *what);

void case_threads(CLIENT *cl);
void case_signal(CLIENT *cl);
void case_fork(CLIENT *cl);
void case_bounce(CLIENT *cl);

#endif
