/* SPDX-License-Identifier: Apache-2.0 */
/* A service and a client that know each other by Kerberos (RPCSEC_GSS).
 *
 * usage: gss serve PORT-FILE    until a client says QUIT
 *        gss call PORT
 *
 * As the environment has it: KRB5_CONFIG, KRB5_KTNAME, KRB5CCNAME.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gssapi/gssapi.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers.h"
#include "support/listen.h"

#include <rpc/rpcsec_gss.h>

/* libtirpc cannot go back in a message that is longer than its buffer: it spoils what it protects there. */
enum { LONG_S = 60, FITS = 60000, MOST = 1 << 20 };
#define PRINCIPAL "test@localhost"
#define MECHANISM "kerberos_v5"

/* Beside those of peers.x: so many of the next signatures, the service says, are of a context that has
 * expired. */
enum { EXPIRE = 100 };

static bool_t quit;
/* Of this process. */
static int expired_next;

static int complain(const char *what)
{
	rpc_gss_error_t error;

	rpc_gss_get_error(&error);
	printf("%s: %d %s\n", what, error.rpc_gss_error, strerror(error.system_error));
	return 1;
}

/*
 * In the place of the mechanism's own, between it and libtirpc. MIT's never says of a message that its
 * context has expired, however old that is; others do.
 */
__attribute__((visibility("default"))) OM_uint32
gss_verify_mic(OM_uint32 *minor, gss_ctx_id_t context, gss_buffer_t message,
	       gss_buffer_t token, gss_qop_t *qop)
{
	static __typeof__(&gss_verify_mic) real;

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "gss_verify_mic");
	if (expired_next == 0)
		return real(minor, context, message, token, qop);
	expired_next--;
	*minor = 0;
	return GSS_S_CONTEXT_EXPIRED;
}

/* ---- the service ---- */

static void answer_who(struct svc_req *request, SVCXPRT *xprt)
{
	static const char *const services[] = {"default", "none", "integrity", "privacy"};
	rpc_gss_rawcred_t *raw = NULL;
	char line[1024];
	text t = line;

	if (!rpc_gss_getcred(request, &raw, NULL, NULL)) {
		svcerr_systemerr(xprt);
		return;
	}
	snprintf(line, sizeof(line), "%s by %s with %s", raw->svc_principal,
		 raw->mechanism, services[raw->service]);
	svc_sendreply(xprt, (xdrproc_t)xdr_text, (char *)&t);
}

static void answer_echo(SVCXPRT *xprt)
{
	blob b = {0, NULL};

	if (!svc_getargs(xprt, (xdrproc_t)xdr_blob, (char *)&b)) {
		svcerr_decode(xprt);
		return;
	}
	svc_sendreply(xprt, (xdrproc_t)xdr_blob, (char *)&b);
	svc_freeargs(xprt, (xdrproc_t)xdr_blob, (char *)&b);
}

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	int n = 0;

	if (request->rq_proc == NOTHING) {
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
	} else if (request->rq_cred.oa_flavor != RPCSEC_GSS) {
		svcerr_weakauth(xprt);
	} else if (request->rq_proc == WHO) {
		answer_who(request, xprt);
	} else if (request->rq_proc == ECHO_BLOB) {
		answer_echo(xprt);
	} else if (request->rq_proc == QUIT) {
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		quit = TRUE;
		svc_exit();
	} else if (request->rq_proc != NEXT && request->rq_proc != EXPIRE) {
		svcerr_noproc(xprt);
	} else if (!svc_getargs(xprt, (xdrproc_t)xdr_int, (char *)&n)) {
		svcerr_decode(xprt);
	} else if (request->rq_proc == EXPIRE) {
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		expired_next = n;
	} else {
		n++;
		svc_sendreply(xprt, (xdrproc_t)xdr_int, (char *)&n);
	}
}

static int serve(const char *file)
{
	unsigned short port;
	int fd = listen_anywhere(&port);
	SVCXPRT *xprt;

	if (!rpc_gss_set_svc_name(PRINCIPAL, MECHANISM, 0, PEERS, PEERS_1))
		return complain("rpc_gss_set_svc_name");
	xprt = svc_vc_create(fd, 0, 0);
	if (!xprt || !svc_reg(xprt, PEERS, PEERS_1, dispatch, NULL))
		return 2;
	listen_tell(file, port);
	svc_run();
	printf("end\n");
	return 0;
}

/* ---- the client ---- */

static enum clnt_stat call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
			   void *xdr_results, void *results)
{
	return clnt_call(cl, procedure, (xdrproc_t)xdr_args, args, (xdrproc_t)xdr_results,
			 results, ((struct timeval){LONG_S, 0}));
}

static void sizes(CLIENT *cl, const char *what, u_int from, u_int to)
{
	for (u_int len = from; len < to; len = len * 3 + 1) {
		blob out = {len, malloc(len)}, in = {0, NULL};
		enum clnt_stat status;

		for (u_int i = 0; i < len; i++)
			out.blob_val[i] = (char)(i * 31 + (i >> 8));
		status = call(cl, ECHO_BLOB, xdr_blob, &out, xdr_blob, &in);
		printf("%s %u: %d %d\n", what, len, status,
		       in.blob_len == len && !memcmp(in.blob_val, out.blob_val, len));
		clnt_freeres(cl, (xdrproc_t)xdr_blob, (char *)&in);
		free(out.blob_val);
	}
}

static int calls(CLIENT *cl, rpc_gss_service_t service, const char *name)
{
	int wrong = 0, result = 0, n = 1;
	text who = NULL;

	cl->cl_auth =
		rpc_gss_seccreate(cl, PRINCIPAL, MECHANISM, service, NULL, NULL, NULL);
	if (!cl->cl_auth)
		return complain("rpc_gss_seccreate");
	for (int i = 0; i < 200; i++)
		wrong += call(cl, NEXT, xdr_int, &i, xdr_int, &result) != RPC_SUCCESS ||
			 result != i + 1;
	printf("%s: wrong %d\n", name, wrong);
	if (call(cl, WHO, xdr_void, NULL, xdr_text, &who) == RPC_SUCCESS)
		printf("  %s\n", who);
	sizes(cl, "echo", 1, FITS);
	sizes(cl, service == rpcsec_gss_svc_none ? "echo" : "long", FITS, MOST);
	printf("  no procedure: %d\n", call(cl, 99, xdr_void, NULL, xdr_void, NULL));
	printf("  no argument: %d\n", call(cl, NEXT, xdr_void, NULL, xdr_int, &n));
	printf("  after: %d", call(cl, NEXT, xdr_int, &n, xdr_int, &result));
	printf(" %d\n", result);
	return 0;
}

static void next(CLIENT *cl, const char *what)
{
	struct rpc_err error = {0};
	int n = 6, result = 0;
	enum clnt_stat status = call(cl, NEXT, xdr_int, &n, xdr_int, &result);

	clnt_geterr(cl, &error);
	printf("%s: %d %d", what, status, result);
	if (status == RPC_AUTHERROR)
		printf(" why %d", error.re_why);
	printf("\n");
}

static CLIENT *connect_to(const char *port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(port)),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = RPC_ANYSOCK;

	return clnttcp_create(&addr, PEERS, PEERS_1, &fd, 0, 0);
}

/* libtirpc renews no context amid a call, and repeats none. What has been refused, it does not establish anew on the
 * same connection: a program makes a handle. */
static void expiry(const char *port, rpc_gss_service_t service, const char *name)
{
	CLIENT *cl = connect_to(port);

	if (cl)
		cl->cl_auth = rpc_gss_seccreate(cl, PRINCIPAL, MECHANISM, service, NULL,
						NULL, NULL);
	if (!cl || !cl->cl_auth) {
		complain("rpc_gss_seccreate");
		return;
	}
	for (int often = 0; often < 4; often++) {
		printf("%s, refused %d times: %d\n", name, often,
		       call(cl, EXPIRE, xdr_int, &often, xdr_void, NULL));
		for (int i = 0; i <= often; i++)
			next(cl, "  the call");
	}
	expired_next = 1;
	next(cl, "  the answer has expired");
	auth_destroy(cl->cl_auth);
	clnt_destroy(cl);
}

static int client(const char *port)
{
	static const struct {
		rpc_gss_service_t service;
		const char *name;
	} ways[] = {{rpcsec_gss_svc_none, "none"},
		    {rpcsec_gss_svc_integrity, "integrity"},
		    {rpcsec_gss_svc_privacy, "privacy"}};
	CLIENT *cl = connect_to(port);
	int status = 0, n = 1;
	AUTH *none;

	if (!cl)
		return 2;
	none = cl->cl_auth;
	printf("without: %d\n", call(cl, NEXT, xdr_int, &n, xdr_int, &n));
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && status == 0; i++) {
		status = calls(cl, ways[i].service, ways[i].name);
		if (status == 0)
			auth_destroy(cl->cl_auth);
		cl->cl_auth = none;
		expiry(port, ways[i].service, ways[i].name);
	}
	if (calls(cl, rpcsec_gss_svc_privacy, "to the end") == 0)
		call(cl, QUIT, xdr_void, NULL, xdr_void, NULL);
	return status;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "call"))
		return client(argv[2]);
	return 2;
}
