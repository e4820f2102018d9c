/* SPDX-License-Identifier: Apache-2.0 */
/* "viaduct" as the name of a transport: TCP that is on a direct path, or an error. */
#include <errno.h>
#include <string.h>

#include "base/reason.h"
#include "rpc/engine.h"

/* So many empty calls bring a connection onto its direct path, or nothing does. */
#define CALLS_MOST 2000
#define CALL_S	   5

static const char name[] = "viaduct";

static bool is_name(const char *nettype)
{
	return nettype && !strcmp(nettype, name);
}

static CLIENT *refuse(CLIENT *cl, enum clnt_stat status, int error)
{
	struct rpc_createerr *why = tirpc()->createerr();

	if (cl)
		clnt_destroy(cl);
	why->cf_stat = status;
	why->cf_error.re_status = status;
	why->cf_error.re_errno = error;
	return NULL;
}

/* Without the other end's doing there is none; the reasons of the way up are not final. */
static bool may_still(uint32_t reason)
{
	return reason == VD_REASON_NONE || reason == VD_REASON_SHORT;
}

/* Every program has a procedure 0, which does nothing: each call of it is a turn, which earns the
 * upgrade. One that has none answers, too. */
static CLIENT *bring_up(CLIENT *cl)
{
	uint32_t reason = VD_REASON_SHORT;
	enum clnt_stat status;
	int fd = -1;

	if (!clnt_control(cl, CLGET_FD, (char *)&fd) || !engine_is_tcp(fd))
		return refuse(cl, RPC_UNKNOWNPROTO, 0);
	for (int i = 0; i < CALLS_MOST && may_still(reason); i++) {
		engine->hasten(fd);
		status =
			clnt_call(cl, NULLPROC, tirpc()->xdr_void, NULL,
				  tirpc()->xdr_void, NULL, ((struct timeval){CALL_S, 0}));
		if (status == RPC_CANTSEND || status == RPC_CANTRECV ||
		    status == RPC_TIMEDOUT)
			return refuse(cl, status, 0);
		if (engine->path(fd, &reason) != DOOR_TCP)
			return cl;
	}
	return refuse(cl, RPC_SYSTEMERROR, EPROTONOSUPPORT);
}

/* clnt_create and clnt_create_vers end here. */
RPC_EXPORT CLIENT *clnt_create_timed(const char *host, const rpcprog_t program,
				     const rpcvers_t version, const char *nettype,
				     const struct timeval *timeout)
{
	CLIENT *cl;

	if (!is_name(nettype))
		return tirpc()->clnt_create_timed(host, program, version, nettype,
						  timeout);
	if (!engine_find())
		return refuse(NULL, RPC_UNKNOWNPROTO, 0);
	cl = tirpc()->clnt_create_timed(host, program, version, "tcp", timeout);
	return cl ? bring_up(cl) : NULL;
}

/* Which path a connection takes is for its client to ask: a service has all that TCP brings. */
RPC_EXPORT int svc_create(void (*dispatch)(struct svc_req *, SVCXPRT *),
			  const rpcprog_t program, const rpcvers_t version,
			  const char *nettype)
{
	bool named = is_name(nettype) && engine_find();

	return tirpc()->svc_create(dispatch, program, version, named ? "tcp" : nettype);
}
