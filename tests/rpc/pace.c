/* SPDX-License-Identifier: Apache-2.0 */
/* How long calls take, a line for each kind of call: the median of several rounds in microseconds, and
 * the time of processors that a call took of both ends, in microseconds, too.
 *
 * usage: pace WHERE ROUNDS SERVER-PID             calls of all sizes
 *        pace WHERE ROUNDS SERVER-PID THREADS     calls of an int by threads, each with a connection of its own
 *        pace ADDRESS:PORT ROUNDS KIND            calls of the kind that has this name, and the service ends
 *
 * WHERE: PORT, on this host, or the path of a socket. With an ADDRESS the service may be on another host: the time of
 * processors is then the client's alone.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"
#include "support/listen.h"

#define ROUNDS_MOST  101
#define THREADS_MOST 64
/* Of one round: at most so many calls, and about so many bytes. */
#define CALLS_MOST  1000u
#define ROUND_BYTES (16u << 20)
/* Between hosts: a part of these. */
#define FEWER 10

static clockid_t server_clock;
static const char *only; /* kind; NULL: all */

/* libtirpc takes a socket of rsockets for connected, which has a peer's name before: it is connected here. */
static CLIENT *connect_far(struct sockaddr_in *to)
{
	struct netbuf addr = {sizeof(*to), sizeof(*to), to};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)to, sizeof(*to)))
		return NULL;
	return clnt_vc_create(fd, &addr, PEERS, PEERS_1, 0, 0);
}

static CLIENT *connect_to(const char *where)
{
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(where)),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = RPC_ANYSOCK;

	if (listen_parse(where, &in))
		return connect_far(&in);
	if (where[0] != '/')
		return clnttcp_create(&in, PEERS, PEERS_1, &fd, 0, 0);
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", where);
	struct netbuf addr = {sizeof(un), sizeof(un), &un};
	return clnt_vc_create(socket(AF_UNIX, SOCK_STREAM, 0), &addr, PEERS, PEERS_1, 0,
			      0);
}

static double clock_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

/* Of both ends, where both are on this host. */
static double processor_us(void)
{
	return clock_us(CLOCK_PROCESS_CPUTIME_ID) + (only ? 0 : clock_us(server_clock));
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

static void show(const char *name, double *took, int rounds, double processor)
{
	qsort(took, (size_t)rounds, sizeof(took[0]), compare);
	printf("%s %.2f %.2f\n", name, took[rounds / 2], processor / rounds);
}

static void pace(CLIENT *cl, const char *name, u_int calls, int rounds,
		 rpcproc_t procedure, xdrproc_t xdr_args, void *args,
		 xdrproc_t xdr_results)
{
	double took[ROUNDS_MOST], processor = processor_us();
	int result;

	if (only && strcmp(only, name) != 0)
		return;
	if (only)
		calls = (calls + FEWER - 1) / FEWER;
	for (int i = 0; i < rounds; i++) {
		double begin = now_us();

		for (u_int j = 0; j < calls; j++)
			call(cl, procedure, xdr_args, args, xdr_results, &result);
		took[i] = (now_us() - begin) / calls;
	}
	show(name, took, rounds, (processor_us() - processor) / calls);
}

static void warm(CLIENT *cl)
{
	for (u_int i = 0; i < (only ? CALLS_MOST / FEWER : CALLS_MOST); i++)
		call(cl, NOTHING, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
}

static void pace_sizes(CLIENT *cl, int rounds)
{
	blob b = {0, calloc(1, 1 << 20)};
	char name[32];
	int n = 1;

	warm(cl);
	pace(cl, "null", 2000, rounds, NOTHING, (xdrproc_t)xdr_void, NULL,
	     (xdrproc_t)xdr_void);
	pace(cl, "int", 2000, rounds, NEXT, (xdrproc_t)xdr_int, &n, (xdrproc_t)xdr_int);
	for (b.blob_len = 4; b.blob_len <= 1 << 20; b.blob_len *= 4) {
		u_int calls = ROUND_BYTES / b.blob_len;

		snprintf(name, sizeof(name), "%u%s",
			 b.blob_len >> (b.blob_len < 1024 ? 0 : 10),
			 b.blob_len < 1024 ? "B" : "KiB");
		pace(cl, name, calls < CALLS_MOST ? calls : CALLS_MOST, rounds, TAKE,
		     (xdrproc_t)xdr_blob, &b, (xdrproc_t)xdr_void);
	}
	free(b.blob_val);
}

/* ---- threads ---- */

static pthread_barrier_t start, end;

static void *call_round_by_round(void *cl)
{
	int n = 1, result;

	for (;;) {
		pthread_barrier_wait(&start);
		for (u_int i = 0; i < CALLS_MOST; i++)
			call(cl, NEXT, (xdrproc_t)xdr_int, &n, (xdrproc_t)xdr_int,
			     &result);
		pthread_barrier_wait(&end);
	}
	return NULL;
}

/* The time of all calls together, shared among them: its inverse is calls in a second. */
static void pace_threads(const char *where, int rounds, u_int count)
{
	double took[ROUNDS_MOST], processor;
	pthread_t thread;
	char name[32];

	pthread_barrier_init(&start, NULL, count + 1);
	pthread_barrier_init(&end, NULL, count + 1);
	for (u_int i = 0; i < count; i++) {
		CLIENT *cl = connect_to(where);

		if (!cl)
			exit(2);
		warm(cl);
		pthread_create(&thread, NULL, call_round_by_round, cl);
	}
	processor = processor_us();
	for (int i = 0; i < rounds; i++) {
		double begin = now_us();

		pthread_barrier_wait(&start);
		pthread_barrier_wait(&end);
		took[i] = (now_us() - begin) / (count * CALLS_MOST);
	}
	snprintf(name, sizeof(name), "%u-threads", count);
	show(name, took, rounds, (processor_us() - processor) / (count * CALLS_MOST));
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 0, threads = argc > 4 ? atoi(argv[4]) : 0;
	CLIENT *cl;

	if (argc < 4 || rounds < 1 || rounds > ROUNDS_MOST || threads < 0 ||
	    threads > THREADS_MOST)
		return 2;
	if (strchr(argv[1], ':'))
		only = argv[3];
	else if (clock_getcpuclockid(atoi(argv[3]), &server_clock))
		return 2;
	if (threads) {
		pace_threads(argv[1], rounds, (u_int)threads);
		fflush(stdout);
		_exit(0);
	}
	cl = connect_to(argv[1]);
	if (!cl)
		return 2;
	pace_sizes(cl, rounds);
	if (only)
		call(cl, QUIT, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL);
	clnt_destroy(cl);
	return 0;
}
