/* SPDX-License-Identifier: Apache-2.0 */
/* The client's operations: a call is one send and one receive. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/count.h"
#include "rpc/engine.h"
#include "rpc/record.h"

/* Of a message of a call, before the procedure: xid, CALL, RPC version, program, version. */
enum { HEAD_XID, HEAD_CALL, HEAD_RPC_VERSION, HEAD_PROGRAM, HEAD_VERSION, HEAD_WORDS };
#define RPC_VERSION 2u
/* Replies go through so much at once. */
#define IN_BYTES 16384u
/* As libtirpc has it: shorter buffers are no use. */
#define OUT_LEAST 100u
#define OUT_USUAL 4000u

/*
 * Handles of one descriptor take turns, each for a whole call, as libtirpc's do. A list under
 * turns_lock; `users` counts the handles.
 */
struct turn {
	struct turn *next;
	int fd;
	unsigned users;
	pthread_mutex_t lock;
};

/*
 * What the module keeps of a handle. cl_ops leads to it; cl_private stays libtirpc's, whose own
 * operations see to the descriptor and the address. libtirpc's stream is never used.
 */
struct client {
	struct clnt_ops ops;
	struct clnt_ops *real;
	struct turn *turn;
	struct record record;
	uint32_t head[HEAD_WORDS]; /* in the order of the network */
	struct timeval wait;
	bool wait_is_set; /* by clnt_control: calls do not change it */
	struct rpc_err error;
};

static pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER;
static struct turn *turns;

static struct client *client_of(CLIENT *cl)
{
	return (struct client *)(void *)cl->cl_ops;
}

static struct turn *turn_get(int fd)
{
	struct turn *t;

	pthread_mutex_lock(&turns_lock);
	for (t = turns; t && t->fd != fd; t = t->next)
		;
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (t) {
			t->fd = fd;
			pthread_mutex_init(&t->lock, NULL);
			t->next = turns;
			turns = t;
		}
	}
	if (t)
		t->users++;
	pthread_mutex_unlock(&turns_lock);
	return t;
}

static void turn_put(struct turn *t)
{
	struct turn **at = &turns;

	pthread_mutex_lock(&turns_lock);
	if (--t->users == 0) {
		while (*at != t)
			at = &(*at)->next;
		*at = t->next;
		pthread_mutex_destroy(&t->lock);
		free(t);
	}
	pthread_mutex_unlock(&turns_lock);
}

/*
 * A handler may use the very handle whose call it interrupts. libtirpc blocks all signals
 * meanwhile; here the engine holds them off, without a system call.
 */
static void enter(struct client *c)
{
	engine->hold_signals();
	pthread_mutex_lock(&c->turn->lock);
}

static void leave(struct client *c)
{
	pthread_mutex_unlock(&c->turn->lock);
	engine->release_signals();
}

/* As libtirpc judges it: other times are ignored. */
static bool is_time(const struct timeval *t)
{
	return t->tv_sec >= 0 && t->tv_sec <= 100000000 && t->tv_usec >= 0 &&
	       t->tv_usec <= 1000000;
}

/* What the stream has met becomes the handle's error. */
static void note_fault(struct client *c)
{
	struct record *r = &c->record;

	switch (r->fault) {
	case RECORD_FINE:
		return;
	case RECORD_TIMED_OUT:
		c->error.re_status = RPC_TIMEDOUT;
		break;
	case RECORD_CANT_RECV:
		c->error.re_status = RPC_CANTRECV;
		c->error.re_errno = r->error;
		break;
	case RECORD_CANT_SEND:
		c->error.re_status = RPC_CANTSEND;
		c->error.re_errno = r->error;
		break;
	}
	r->fault = RECORD_FINE;
}

/* False: c->error says why. What could not be encoded is sent as far as it is, as by libtirpc, so
 * that the stream stays one of whole records. */
static bool send_call(struct client *c, AUTH *auth, rpcproc_t procedure,
		      xdrproc_t xdr_args, void *args, bool now)
{
	XDR *xdrs = &c->record.xdrs;
	long number = (long)procedure;

	xdrs->x_op = XDR_ENCODE;
	c->record.out_is_kept = auth->ah_cred.oa_flavor == RPCSEC_GSS;
	if (!xdrs->x_ops->x_putbytes(xdrs, (const char *)c->head, sizeof(c->head)) ||
	    !xdrs->x_ops->x_putlong(xdrs, &number) || !AUTH_MARSHALL(auth, xdrs) ||
	    !AUTH_WRAP(auth, xdrs, xdr_args, args)) {
		note_fault(c);
		if (c->error.re_status == RPC_SUCCESS)
			c->error.re_status = RPC_CANTENCODEARGS;
		record_end(&c->record, true);
		note_fault(c);
		return false;
	}
	if (record_end(&c->record, now))
		return true;
	note_fault(c);
	c->error.re_status = RPC_CANTSEND;
	return false;
}

static void free_verifier(struct client *c, struct rpc_msg *reply)
{
	if (reply->rm_reply.rp_stat != MSG_ACCEPTED ||
	    !reply->acpted_rply.ar_verf.oa_base)
		return;
	c->record.xdrs.x_op = XDR_FREE;
	tirpc()->xdr_opaque_auth(&c->record.xdrs, &reply->acpted_rply.ar_verf);
}

/* Replies to other calls, and what is no reply, are passed. False: c->error says why. */
static bool receive_reply(struct client *c, uint32_t xid, struct rpc_msg *reply)
{
	XDR *xdrs = &c->record.xdrs;

	xdrs->x_op = XDR_DECODE;
	for (;;) {
		*reply = (struct rpc_msg){0};
		reply->acpted_rply.ar_results.proc = tirpc()->xdr_void;
		if (!record_skip(&c->record)) {
			note_fault(c);
			return false;
		}
		if (tirpc()->xdr_replymsg(xdrs, reply)) {
			if (reply->rm_xid == xid)
				return true;
			free_verifier(c, reply);
			xdrs->x_op = XDR_DECODE;
			continue;
		}
		note_fault(c);
		if (c->error.re_status != RPC_SUCCESS)
			return false;
	}
}

static void take_results(struct client *c, AUTH *auth, struct rpc_msg *reply,
			 xdrproc_t xdr_results, void *results)
{
	if (!AUTH_VALIDATE(auth, &reply->acpted_rply.ar_verf)) {
		c->error.re_status = RPC_AUTHERROR;
		c->error.re_why = AUTH_INVALIDRESP;
	} else if (!AUTH_UNWRAP(auth, &c->record.xdrs, xdr_results, results)) {
		note_fault(c);
		if (c->error.re_status == RPC_SUCCESS)
			c->error.re_status = RPC_CANTDECODERES;
	}
}

/* One message and its answer. True: the credentials were refused, and may be worth another try. */
static bool attempt(struct client *c, CLIENT *cl, rpcproc_t procedure, xdrproc_t xdr_args,
		    void *args, xdrproc_t xdr_results, void *results,
		    struct timeval timeout, struct rpc_msg *reply)
{
	bool wait = timeout.tv_sec || timeout.tv_usec;
	bool now = xdr_results || wait;

	c->error.re_status = RPC_SUCCESS;
	/* libtirpc counts down in the memory's order, and clnt_control shows it. */
	c->head[HEAD_XID]--;
	if (!send_call(c, cl->cl_auth, procedure, xdr_args, args, now) || !now)
		return false;
	if (!wait) {
		c->error.re_status = RPC_TIMEDOUT;
		return false;
	}
	c->record.timeout_ms =
		(int)((uint64_t)c->wait.tv_sec * 1000 + (uint64_t)c->wait.tv_usec / 1000);
	if (!receive_reply(c, ntohl(c->head[HEAD_XID]), reply))
		return false;
	tirpc()->seterr_reply(reply, &c->error);
	if (c->error.re_status != RPC_SUCCESS)
		return true;
	take_results(c, cl->cl_auth, reply, xdr_results, results);
	free_verifier(c, reply);
	return false;
}

/* As libtirpc has it: a context of RPCSEC_GSS is not renewed amid a call. */
static int refreshes_of(const AUTH *auth)
{
	return auth->ah_cred.oa_flavor == RPCSEC_GSS ? 0 : 2;
}

/* Credentials are renewed by calls, which may be of this very handle. */
static bool refresh(struct client *c, AUTH *auth, struct rpc_msg *reply)
{
	struct rpc_err error = c->error;
	struct timeval wait = c->wait;
	bool again;

	leave(c);
	again = AUTH_REFRESH(auth, reply);
	enter(c);
	free_verifier(c, reply);
	/* Another thread's calls have been made meanwhile, too. */
	c->error = error;
	if (!c->wait_is_set)
		c->wait = wait;
	return again;
}

/* With the credentials' renewals, as the program sees it. */
static void count_call(const struct client *c, rpcproc_t procedure, uint64_t began)
{
	const struct count_key key = {CALL_CLIENT, ntohl(c->head[HEAD_PROGRAM]),
				      ntohl(c->head[HEAD_VERSION]), (uint32_t)procedure};

	count_end(&key, began, c->error.re_status != RPC_SUCCESS, true);
}

static enum clnt_stat client_call(CLIENT *cl, rpcproc_t procedure, xdrproc_t xdr_args,
				  void *args, xdrproc_t xdr_results, void *results,
				  struct timeval timeout)
{
	struct client *c = client_of(cl);
	struct rpc_msg reply;
	enum clnt_stat status;
	uint64_t began = count_begin();
	int refreshes = refreshes_of(cl->cl_auth);

	enter(c);
	if (!c->wait_is_set && is_time(&timeout))
		c->wait = timeout;
	while (attempt(c, cl, procedure, xdr_args, args, xdr_results, results, timeout,
		       &reply) &&
	       refreshes-- && refresh(c, cl->cl_auth, &reply))
		;
	status = c->error.re_status;
	count_call(c, procedure, began);
	leave(c);
	return status;
}

static void client_abort(CLIENT *cl)
{
	(void)cl; /* nothing, as libtirpc's */
}

static void client_geterr(CLIENT *cl, struct rpc_err *error)
{
	*error = client_of(cl)->error;
}

static bool_t client_freeres(CLIENT *cl, xdrproc_t xdr_results, void *results)
{
	struct record *r = &client_of(cl)->record;
	/* Another thread's call may be under way: its direction is no matter of ours. */
	XDR xdrs = {.x_op = XDR_FREE, .x_ops = r->xdrs.x_ops, .x_private = r};

	return xdr_results(&xdrs, results);
}

/* What concerns calls; true when it has been done, with its answer. */
static bool control_own(struct client *c, u_int request, void *info, bool_t *answer)
{
	uint32_t *number = info;

	*answer = TRUE;
	switch (request) {
	case CLSET_TIMEOUT:
		*answer = is_time(info);
		if (*answer) {
			c->wait = *(struct timeval *)info;
			c->wait_is_set = true;
		}
		return true;
	case CLGET_TIMEOUT:
		*(struct timeval *)info = c->wait;
		return true;
	case CLGET_XID:
		*number = ntohl(c->head[HEAD_XID]);
		return true;
	case CLSET_XID: /* of the next call, which counts down first */
		c->head[HEAD_XID] = htonl(*number + 1);
		return true;
	case CLGET_VERS:
		*number = ntohl(c->head[HEAD_VERSION]);
		return true;
	case CLSET_VERS:
		c->head[HEAD_VERSION] = htonl(*number);
		return true;
	case CLGET_PROG:
		*number = ntohl(c->head[HEAD_PROGRAM]);
		return true;
	case CLSET_PROG:
		c->head[HEAD_PROGRAM] = htonl(*number);
		return true;
	default:
		return false;
	}
}

static bool_t client_control(CLIENT *cl, u_int request, void *info)
{
	struct client *c = client_of(cl);
	bool_t answer;

	enter(c);
	if (!info || !control_own(c, request, info, &answer))
		answer = c->real->cl_control(cl, request, info);
	leave(c);
	return answer;
}

static void client_free(struct client *c)
{
	turn_put(c->turn);
	record_finish(&c->record);
	free(c);
}

static void client_destroy(CLIENT *cl)
{
	struct client *c = client_of(cl);

	/* Whoever is in a call ends it first. */
	enter(c);
	cl->cl_ops = c->real;
	cl->cl_ops->cl_destroy(cl);
	leave(c);
	client_free(c);
}

/* What libtirpc has chosen for the handle. */
static bool adopt_head(struct client *c, CLIENT *cl)
{
	uint32_t xid, program, version;

	if (!c->real->cl_control(cl, CLGET_XID, &xid) ||
	    !c->real->cl_control(cl, CLGET_PROG, &program) ||
	    !c->real->cl_control(cl, CLGET_VERS, &version))
		return false;
	c->head[HEAD_XID] = htonl(xid);
	c->head[HEAD_CALL] = htonl(CALL);
	c->head[HEAD_RPC_VERSION] = htonl(RPC_VERSION);
	c->head[HEAD_PROGRAM] = htonl(program);
	c->head[HEAD_VERSION] = htonl(version);
	return true;
}

static size_t out_bytes(u_int asked)
{
	u_int bytes = tirpc()->rpc_get_t_size(AF_INET, IPPROTO_TCP, (int)asked);

	return bytes < OUT_LEAST ? OUT_USUAL : RNDUP(bytes);
}

/* Replaces the operations of a new handle; where memory is short, libtirpc's stay. */
static void take_over(CLIENT *cl, int fd, u_int send_bytes)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->real = cl->cl_ops;
	c->turn = turn_get(fd);
	if (!c->turn || !record_init(&c->record, fd, out_bytes(send_bytes), IN_BYTES)) {
		if (c->turn)
			turn_put(c->turn);
		free(c);
		return;
	}
	c->record.is_calls = true;
	if (!adopt_head(c, cl)) {
		client_free(c);
		return;
	}
	c->ops = (struct clnt_ops){.cl_call = client_call,
				   .cl_abort = client_abort,
				   .cl_geterr = client_geterr,
				   .cl_freeres = client_freeres,
				   .cl_destroy = client_destroy,
				   .cl_control = client_control};
	cl->cl_ops = &c->ops;
}

/* clnt_create, clnttcp_create and all others that make a handle of a connection end here. */
RPC_EXPORT CLIENT *clnt_vc_create(const int fd, const struct netbuf *addr,
				  const rpcprog_t program, const rpcvers_t version,
				  const u_int send_bytes, const u_int receive_bytes)
{
	CLIENT *cl = tirpc()->clnt_vc_create(fd, addr, program, version, send_bytes,
					     receive_bytes);

	if (cl && engine_find() && engine_is_tcp(fd))
		take_over(cl, fd, send_bytes);
	return cl;
}
