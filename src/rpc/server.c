/* SPDX-License-Identifier: Apache-2.0 */
/* A service's operations on the connections that it has accepted. */
#include "rpc/server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "rpc/count.h"
#include "rpc/engine.h"
#include "rpc/record.h"

#define IN_BYTES  16384u
#define OUT_LEAST 65536u
/* As libtirpc has it: a peer that keeps a service waiting for so long is given up. */
#define WAIT_MS 35000

_Atomic bool server_leaves_some;
_Thread_local int server_served __attribute__((tls_model("initial-exec"))) = -1;

/* What the module keeps of a connection. xp_ops leads to it; xp_p1 stays libtirpc's, whose own
 * operation closes the descriptor. libtirpc's stream is never used. */
struct server {
	struct xp_ops ops;
	const struct xp_ops *real;
	struct record record;
	uint32_t xid; /* of the call that is to be answered */
	/* The call that is being served, until it has been counted. */
	struct count_key call;
	uint64_t began;
	bool is_serving, has_failed, is_refused;
};

/* The longest that a service has asked for: answers up to there are one fragment. */
static _Atomic u_int out_bytes = OUT_LEAST;

static struct server *server_of(SVCXPRT *xprt)
{
	return (struct server *)(void *)xprt->xp_ops;
}

/* What the stream has met is the end of the connection. */
static bool is_dead(struct server *v)
{
	return v->record.fault != RECORD_FINE;
}

static void kill_it(struct server *v)
{
	v->record.fault = RECORD_CANT_RECV;
}

static bool_t server_recv(SVCXPRT *xprt, struct rpc_msg *msg)
{
	struct server *v = server_of(xprt);
	XDR *xdrs = &v->record.xdrs;

	server_served = xprt->xp_fd;
	xdrs->x_op = XDR_DECODE;
	record_skip(&v->record);
	if (!tirpc()->xdr_callmsg(xdrs, msg)) {
		kill_it(v);
		return FALSE;
	}
	v->xid = msg->rm_xid;
	v->call = (struct count_key){CALL_SERVICE, (uint32_t)msg->rm_call.cb_prog,
				     (uint32_t)msg->rm_call.cb_vers,
				     (uint32_t)msg->rm_call.cb_proc};
	v->is_serving = true;
	v->has_failed = v->is_refused = false;
	v->began = count_begin();
	v->record.out_is_kept = msg->rm_call.cb_cred.oa_flavor == RPCSEC_GSS;
	return TRUE;
}

/* The dispatch has returned. Who asks for what is not served takes no row from what is. */
static void count_served(struct server *v)
{
	if (v->is_serving)
		count_end(&v->call, v->began, v->has_failed, !v->is_refused);
	v->is_serving = false;
}

/* Asked for after each dispatch. */
static enum xprt_stat server_stat(SVCXPRT *xprt)
{
	struct server *v = server_of(xprt);

	count_served(v);
	if (is_dead(v))
		return XPRT_DIED;
	return record_has_more(&v->record) ? XPRT_MOREREQS : XPRT_IDLE;
}

static bool_t server_getargs(SVCXPRT *xprt, xdrproc_t xdr_args, void *args)
{
	return SVCAUTH_UNWRAP(&SVC_XP_AUTH(xprt), &server_of(xprt)->record.xdrs, xdr_args,
			      args);
}

static bool_t server_freeargs(SVCXPRT *xprt, xdrproc_t xdr_args, void *args)
{
	XDR *xdrs = &server_of(xprt)->record.xdrs;

	xdrs->x_op = XDR_FREE;
	return xdr_args(xdrs, args);
}

static void note_answer(struct server *v, const struct rpc_msg *msg)
{
	enum accept_stat status = msg->acpted_rply.ar_stat;
	bool accepted = msg->rm_reply.rp_stat == MSG_ACCEPTED;

	v->has_failed = !accepted || status != SUCCESS;
	v->is_refused = !accepted || status == PROG_UNAVAIL || status == PROG_MISMATCH ||
			status == PROC_UNAVAIL;
}

static bool_t server_reply(SVCXPRT *xprt, struct rpc_msg *msg)
{
	struct server *v = server_of(xprt);
	struct accepted_reply *accepted = &msg->acpted_rply;
	XDR *xdrs = &v->record.xdrs;
	xdrproc_t xdr_results = NULL;
	void *results = NULL;
	bool_t done;

	note_answer(v, msg);
	/* The results go through the authentication's own operation. */
	if (msg->rm_reply.rp_stat == MSG_ACCEPTED && accepted->ar_stat == SUCCESS) {
		xdr_results = accepted->ar_results.proc;
		results = accepted->ar_results.where;
		accepted->ar_results.proc = tirpc()->xdr_void;
		accepted->ar_results.where = NULL;
	}
	xdrs->x_op = XDR_ENCODE;
	msg->rm_xid = v->xid;
	done = tirpc()->xdr_replymsg(xdrs, msg) &&
	       (!xdr_results ||
		SVCAUTH_WRAP(&SVC_XP_AUTH(xprt), xdrs, xdr_results, results));
	/* As libtirpc: a part of an answer is sent, too. */
	record_end(&v->record, true);
	return done;
}

static void server_give_back(SVCXPRT *xprt)
{
	struct server *v = server_of(xprt);

	count_served(v);
	xprt->xp_ops = v->real;
	record_finish(&v->record);
	free(v);
}

static void server_destroy(SVCXPRT *xprt)
{
	server_give_back(xprt);
	SVC_DESTROY(xprt);
}

/* libtirpc makes a connection nonblocking, where records have a longest length, right after it has
 * registered it. Such a one is its own business. */
static bool_t server_recv_first(SVCXPRT *xprt, struct rpc_msg *msg)
{
	struct server *v = server_of(xprt);

	if (fcntl(xprt->xp_fd, F_GETFL) & O_NONBLOCK) {
		atomic_store(&server_leaves_some, true);
		server_give_back(xprt);
		return SVC_RECV(xprt, msg);
	}
	v->ops.xp_recv = server_recv;
	return server_recv(xprt, msg);
}

/* Of libtirpc's transports this is the one whose port is 0, and whose socket is a TCP connection;
 * one with the program's own operations has none of libtirpc's in xp_p3. */
static bool is_connection(SVCXPRT *xprt)
{
	int listens = 1, longest = 0;
	socklen_t len = sizeof(listens);

	if (xprt->xp_port != 0 || !xprt->xp_p1 || !xprt->xp_p3 ||
	    !engine_is_libtirpc((void *)xprt->xp_ops->xp_recv) ||
	    !engine_is_tcp(xprt->xp_fd))
		return false;
	if (tirpc()->rpc_control(RPC_SVC_CONNMAXREC_GET, &longest) && longest) {
		atomic_store(&server_leaves_some, true);
		return false;
	}
	return getsockopt(xprt->xp_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
	       !listens;
}

/* Replaces the operations of a new connection; where memory is short, libtirpc's stay. */
static void take_over(SVCXPRT *xprt)
{
	struct server *v = calloc(1, sizeof(*v));

	if (!v)
		return;
	if (!record_init(&v->record, xprt->xp_fd, load_relaxed(&out_bytes), IN_BYTES)) {
		free(v);
		return;
	}
	v->record.timeout_ms = WAIT_MS;
	v->real = xprt->xp_ops;
	v->ops = (struct xp_ops){.xp_recv = server_recv_first,
				 .xp_stat = server_stat,
				 .xp_getargs = server_getargs,
				 .xp_reply = server_reply,
				 .xp_freeargs = server_freeargs,
				 .xp_destroy = server_destroy};
	xprt->xp_ops = &v->ops;
}

/* All that make a service of connections end here. */
RPC_EXPORT SVCXPRT *svc_vc_create(const int fd, const u_int send_bytes,
				  const u_int receive_bytes)
{
	u_int bytes =
		RNDUP(tirpc()->rpc_get_t_size(AF_INET, IPPROTO_TCP, (int)send_bytes));

	if (bytes > load_relaxed(&out_bytes))
		store_relaxed(&out_bytes, bytes);
	return tirpc()->svc_vc_create(fd, send_bytes, receive_bytes);
}

/* Every connection that a service accepts, or is given, is registered. */
RPC_EXPORT void xprt_register(SVCXPRT *xprt)
{
	if (engine_find() && is_connection(xprt))
		take_over(xprt);
	tirpc()->xprt_register(xprt);
}
