/* SPDX-License-Identifier: Apache-2.0 */
/* A client that makes a known number of calls of each kind, in stages: a line on its standard input
 * begins one, and a line on its standard output ends it.
 *
 * usage: counted PORT
 *
 *   kinds    200 NOTHING, 50 NEXT, 3 of a procedure that is not there, a NAP of 60 ms, one that is
 *            waited for too shortly; and 7 NEXT by a child, which stays
 *   many     a call of each of 100 procedures that are not there
 *   leave    the user is another from then on; 5 NEXT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers.h"

#define NOBODY 65534

static struct sockaddr_in server;

static CLIENT *connect_to(void)
{
	int fd = RPC_ANYSOCK;
	CLIENT *cl = clnttcp_create(&server, PEERS, PEERS_1, &fd, 0, 0);

	if (!cl) {
		clnt_pcreateerror("clnttcp_create");
		exit(2);
	}
	return cl;
}

static void call(CLIENT *cl, rpcproc_t procedure, int n, int ms, enum clnt_stat expected)
{
	bool_t empty = procedure == NOTHING;
	xdrproc_t xdr = empty ? (xdrproc_t)xdr_void : (xdrproc_t)xdr_int;
	int result;
	enum clnt_stat status =
		clnt_call(cl, procedure, xdr, (char *)&n, xdr, (char *)&result,
			  ((struct timeval){ms / 1000, ms % 1000 * 1000}));

	if (status != expected) {
		fprintf(stderr, "procedure %lu: %d\n", (unsigned long)procedure, status);
		exit(1);
	}
}

static void call_often(CLIENT *cl, int times, rpcproc_t procedure)
{
	for (int i = 0; i < times; i++)
		call(cl, procedure, i, 60000, RPC_SUCCESS);
}

/* It stays until its parent has ended. */
static void let_child_call(void)
{
	int done[2], end[2];
	char byte;

	if (pipe(done) || pipe(end))
		exit(2);
	if (fork() == 0) {
		CLIENT *cl = connect_to();

		call_often(cl, 7, NEXT);
		if (write(done[1], "", 1) != 1)
			exit(2);
		close(end[1]);
		_exit(read(end[0], &byte, 1) != 0);
	}
	if (read(done[0], &byte, 1) != 1)
		exit(2);
}

static void kinds(CLIENT *cl)
{
	CLIENT *late = connect_to();

	call_often(cl, 200, NOTHING);
	call_often(cl, 50, NEXT);
	for (int i = 0; i < 3; i++)
		call(cl, 99, 0, 60000, RPC_PROCUNAVAIL);
	call(cl, NAP, 60, 60000, RPC_SUCCESS);
	call(late, NAP, 300, 20, RPC_TIMEDOUT);
	clnt_destroy(late);
	let_child_call();
}

static void many(CLIENT *cl)
{
	for (rpcproc_t i = 0; i < 100; i++)
		call(cl, 1000 + i, 0, 60000, RPC_PROCUNAVAIL);
}

static void leave(CLIENT *cl)
{
	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		exit(2);
	call_often(cl, 5, NEXT);
}

int main(int argc, char **argv)
{
	char line[32];
	CLIENT *cl;

	if (argc != 2)
		return 2;
	server = (struct sockaddr_in){.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(argv[1])),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	cl = connect_to();
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "kinds\n"))
			kinds(cl);
		else if (!strcmp(line, "many\n"))
			many(cl);
		else
			leave(cl);
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
