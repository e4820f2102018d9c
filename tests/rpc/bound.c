/* SPDX-License-Identifier: Apache-2.0 */
/* A service and a client that find each other by rpcbind, over a transport of any name.
 *
 * usage: bound serve NETTYPE    until SIGTERM
 *        bound call HOST NETTYPE
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	int n = 0;

	if (request->rq_proc == NOTHING) {
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
	} else if (request->rq_proc != NEXT) {
		svcerr_noproc(xprt);
	} else if (!svc_getargs(xprt, (xdrproc_t)xdr_int, (char *)&n)) {
		svcerr_decode(xprt);
	} else {
		n++;
		svc_sendreply(xprt, (xdrproc_t)xdr_int, (char *)&n);
	}
}

static void leave(int sig)
{
	(void)sig;
	svc_exit();
}

static int serve(const char *nettype)
{
	int count = svc_create(dispatch, PEERS, PEERS_1, nettype);

	printf("transports %d\n", count);
	fflush(stdout);
	if (count == 0)
		return 1;
	signal(SIGTERM, leave);
	svc_run();
	svc_unreg(PEERS, PEERS_1);
	return 0;
}

static int calls(const char *host, const char *nettype)
{
	CLIENT *cl = clnt_create(host, PEERS, PEERS_1, nettype);
	int wrong = 0;

	if (!cl) {
		printf("%s\n", clnt_spcreateerror(nettype));
		return 0;
	}
	for (int i = 0, result = 0; i < 300; i++) {
		if (clnt_call(cl, NEXT, (xdrproc_t)xdr_int, (char *)&i,
			      (xdrproc_t)xdr_int, (char *)&result,
			      ((struct timeval){25, 0})) != RPC_SUCCESS)
			wrong++;
		wrong += result != i + 1;
	}
	printf("%s: wrong %d\n", nettype, wrong);
	clnt_destroy(cl);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "call"))
		return calls(argv[2], argv[3]);
	return 2;
}
