/* SPDX-License-Identifier: Apache-2.0 */
/* How long calls take: the median of several rounds, in microseconds, a line for each kind of call.
 *
 * usage: pace PORT|SOCKET-PATH [ROUNDS]
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "peers.h"

#define ROUNDS_MOST 101

static CLIENT *connect_to(const char *where)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(where)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = RPC_ANYSOCK;

	if (where[0] != '/')
		return clnttcp_create(&in, PEERS, PEERS_1, &fd, 0, 0);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", where);
	struct netbuf addr = {sizeof(un), sizeof(un), &un};
	return clnt_vc_create(socket(AF_UNIX, SOCK_STREAM, 0), &addr, PEERS, PEERS_1, 0,
			      0);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void call(CLIENT *cl, rpcproc_t procedure, xdrproc_t xdr_args, void *args,
		 xdrproc_t xdr_results, void *results)
{
	if (clnt_call(cl, procedure, xdr_args, args, xdr_results, results,
		      ((struct timeval){25, 0})) != RPC_SUCCESS) {
		clnt_perror(cl, "call");
		exit(1);
	}
}

static void pace(CLIENT *cl, const char *name, int calls, int rounds, rpcproc_t procedure,
		 xdrproc_t xdr_args, void *args, xdrproc_t xdr_results)
{
	double took[ROUNDS_MOST];
	int result;

	for (int i = 0; i < rounds; i++) {
		double begin = now_us();

		for (int j = 0; j < calls; j++)
			call(cl, procedure, xdr_args, args, xdr_results, &result);
		took[i] = (now_us() - begin) / calls;
	}
	qsort(took, (size_t)rounds, sizeof(took[0]), compare);
	printf("%s %.2f\n", name, took[rounds / 2]);
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 21, n = 1;
	blob b = {0, calloc(1, 1 << 20)};
	CLIENT *cl = argc > 1 ? connect_to(argv[1]) : NULL;

	if (!cl || rounds < 1 || rounds > ROUNDS_MOST)
		return 2;
	for (int i = 0; i < 1000; i++)
		call(cl, NOTHING, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
	pace(cl, "null", 2000, rounds, NOTHING, (xdrproc_t)xdr_void, NULL,
	     (xdrproc_t)xdr_void);
	pace(cl, "int", 2000, rounds, NEXT, (xdrproc_t)xdr_int, &n, (xdrproc_t)xdr_int);
	b.blob_len = 1024;
	pace(cl, "1KiB", 1000, rounds, TAKE, (xdrproc_t)xdr_blob, &b,
	     (xdrproc_t)xdr_void);
	b.blob_len = 65536;
	pace(cl, "64KiB", 100, rounds, TAKE, (xdrproc_t)xdr_blob, &b,
	     (xdrproc_t)xdr_void);
	b.blob_len = 1 << 20;
	pace(cl, "1MiB", 10, rounds, TAKE, (xdrproc_t)xdr_blob, &b, (xdrproc_t)xdr_void);
	clnt_destroy(cl);
	return 0;
}
