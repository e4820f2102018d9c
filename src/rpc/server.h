/* SPDX-License-Identifier: Apache-2.0 */
/* A service's connections. */
#ifndef VD_RPC_SERVER_H
#define VD_RPC_SERVER_H

#include <stdbool.h>

#include <rpc/rpc.h>

/* A connection was left to libtirpc, which closes it when it is idle: its own svc_run has to. */
extern _Atomic bool server_leaves_some;
/* Descriptor of the connection that this thread has last received a call from; or -1. */
extern _Thread_local int server_served __attribute__((tls_model("initial-exec")));

#endif
