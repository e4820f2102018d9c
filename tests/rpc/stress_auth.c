/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that the service refuses, and that are renewed amid a call. */
#include <stdlib.h>

#include "stress.h"

/* AUTH_SYS for a user whose number counts down with each renewal; S_FRESH takes 0 only. */
struct fading {
	AUTH auth;
	AUTH *inner;
	u_int user, renewals, why;
};

static struct fading *fading_of(AUTH *auth)
{
	return (struct fading *)(void *)auth->ah_private;
}

static AUTH *user(u_int number)
{
	return authunix_create("machine", number, 1, 0, NULL);
}

static void next_verifier(AUTH *auth)
{
	(void)auth;
}

static int marshal(AUTH *auth, XDR *xdrs)
{
	return AUTH_MARSHALL(fading_of(auth)->inner, xdrs);
}

static int validate(AUTH *auth, struct opaque_auth *verifier)
{
	return AUTH_VALIDATE(fading_of(auth)->inner, verifier);
}

/* libtirpc gives the reply along, which says why. */
static int refresh(AUTH *auth, void *reply)
{
	const struct rpc_msg *msg = reply;
	struct fading *f = fading_of(auth);

	f->renewals++;
	f->why = (u_int)msg->rjcted_rply.rj_why;
	if (f->user == 0)
		return FALSE;
	auth_destroy(f->inner);
	f->inner = user(--f->user);
	return TRUE;
}

static void destroy(AUTH *auth)
{
	auth_destroy(fading_of(auth)->inner);
}

static int wrap(AUTH *auth, XDR *xdrs, xdrproc_t routine, caddr_t where)
{
	(void)auth;
	return routine(xdrs, where);
}

void stress_renewed(CLIENT *cl, u_int number, FILE *out)
{
	static struct auth_ops ops = {next_verifier, marshal, validate, refresh,
				      destroy,	     wrap,    wrap};
	struct fading f = {.inner = user(number), .user = number, .why = 99};
	AUTH *before = cl->cl_auth;
	struct rpc_err error = {0};
	u_int result = 0;
	enum clnt_stat status;

	f.auth.ah_ops = &ops;
	f.auth.ah_private = (caddr_t)&f;
	cl->cl_auth = &f.auth;
	status = stress_call(cl, S_FRESH, xdr_u_int, &number, xdr_u_int, &result);
	clnt_geterr(cl, &error);
	fprintf(out, "fresh: %d, renewed %u, why %u, %u\n", status, f.renewals, f.why,
		result);
	cl->cl_auth = before;
	auth_destroy(f.inner);
}
