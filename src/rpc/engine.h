/* SPDX-License-Identifier: Apache-2.0 */
/* What the module uses of others: the preloaded library's engine, and libtirpc. */
#ifndef VD_RPC_ENGINE_H
#define VD_RPC_ENGINE_H

#include <stdbool.h>

#include <rpc/rpc.h>

#include "preload/door.h"

/* The structure is meant, not the caller's one of that name. */
#undef rpc_createerr

#define RPC_EXPORT __attribute__((visibility("default")))

/* NULL until engine_find has found it. */
extern const struct door *engine;

/*
 * libtirpc's own. The module does not link it: a program that has no use for libtirpc, started by
 * one that has, loads this module but not that library.
 */
struct tirpc {
	CLIENT *(*clnt_vc_create)(int fd, const struct netbuf *addr, rpcprog_t prog,
				  rpcvers_t vers, u_int send_bytes, u_int receive_bytes);
	CLIENT *(*clnt_create_timed)(const char *host, rpcprog_t program,
				     rpcvers_t version, const char *nettype,
				     const struct timeval *timeout);
	struct rpc_createerr *(*createerr)(void);
	int (*svc_create)(void (*dispatch)(struct svc_req *, SVCXPRT *),
			  rpcprog_t program, rpcvers_t version, const char *nettype);
	SVCXPRT *(*svc_vc_create)(int fd, u_int send_bytes, u_int receive_bytes);
	void (*xprt_register)(SVCXPRT *xprt);
	void (*svc_run)(void);
	void (*svc_getreq_common)(int fd);
	void (*svc_getreq_poll)(struct pollfd *fds, int count);
	bool_t (*rpc_control)(int what, void *arg);
	u_int (*rpc_get_t_size)(int family, int protocol, int bytes);
	bool_t (*xdr_replymsg)(XDR *xdrs, struct rpc_msg *msg);
	bool_t (*xdr_callmsg)(XDR *xdrs, struct rpc_msg *msg);
	bool_t (*xdr_bytes)(XDR *xdrs, char **bytes, u_int *len, u_int most);
	bool_t (*xdr_opaque_auth)(XDR *xdrs, struct opaque_auth *auth);
	xdrproc_t xdr_void;
	void (*seterr_reply)(struct rpc_msg *msg, struct rpc_err *error);
	struct pollfd **svc_pollfd;
	int *svc_max_pollfd;
};

/* All of it is set; the process ends with a message where a part is missing. */
const struct tirpc *tirpc(void);

/* Whether connections may have a direct path in this process: else libtirpc's own operations are
 * left in place. */
bool engine_find(void);

/* A function of libtirpc's. */
bool engine_is_libtirpc(void *function);

/* fd is a TCP connection. */
bool engine_is_tcp(int fd);

#endif
