/* SPDX-License-Identifier: Apache-2.0 */
/* Services and clients whose processes and connections are related in the ways that programs use. What
 * they print is to be the same whatever carries the connections.
 *
 * usage: related serve WAY PORT-FILE    a service, until a client says QUIT
 *        related call WAY PORT
 *
 * WAY: callback  the service calls the client back on another connection, amid a call and after it
 *      reversed  the client connects, and then serves on that connection
 *      handed    descriptor 3 listens already, as under systemd; no PORT-FILE
 *      given     descriptor 3 is one connection, as under inetd with "nowait"; no PORT-FILE
 *      nowait    accepts, and gives each connection so to a program that it executes
 *      forking   a process for each connection
 *      workers   three processes accept from one listener
 *      exec      the client forks; its child executes a program that goes on with the connection
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"
#include "support/listen.h"

/* Procedures beside those of peers.x: the client's service listens on that port. */
enum { CALL_BACK = 100, CALL_BACK_LATER = 101, SERVE_ME = 102 };
enum { BACK = 0x20000098, ROUNDS = 150, WORKERS = 3, LONG_S = 60, SERVED = 3 };

static const char *self;
static bool_t quit;
static unsigned short
	later; /* the port to call back to, once the call has been answered */
static unsigned called;

static CLIENT *handle(int fd, unsigned short port, rpcprog_t program)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct netbuf buf = {sizeof(addr), sizeof(addr), &addr};
	CLIENT *cl = fd < 0 ? clnttcp_create(&addr, program, PEERS_1, &fd, 0, 0)
			    : clnt_vc_create(fd, &buf, program, PEERS_1, 0, 0);

	if (!cl) {
		clnt_pcreateerror("related");
		exit(2);
	}
	return cl;
}

static enum clnt_stat call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
			   void *xdr_results, void *results)
{
	return clnt_call(cl, procedure, (xdrproc_t)xdr_args, args, (xdrproc_t)xdr_results,
			 results, ((struct timeval){LONG_S, 0}));
}

/* Calls of all sizes; how many have gone wrong. */
static int work(CLIENT *cl)
{
	int wrong = 0;

	for (int i = 0, result = 0; i < ROUNDS; i++)
		wrong += call(cl, NEXT, xdr_int, &i, xdr_int, &result) != RPC_SUCCESS ||
			 result != i + 1;
	for (u_int len = 1; len < 1 << 20; len = len * 3 + 1) {
		blob out = {len, malloc(len)}, in = {0, NULL};

		memset(out.blob_val, (int)len, len);
		wrong += call(cl, ECHO_BLOB, xdr_blob, &out, xdr_blob, &in) !=
				 RPC_SUCCESS ||
			 in.blob_len != len ||
			 memcmp(in.blob_val, out.blob_val, len) != 0;
		clnt_freeres(cl, (xdrproc_t)xdr_blob, (char *)&in);
		free(out.blob_val);
	}
	return wrong;
}

/* ---- the service ---- */

static int call_back(unsigned short port)
{
	CLIENT *cl = handle(-1, port, BACK);
	int wrong = work(cl);

	clnt_destroy(cl);
	return wrong;
}

static void answer_blob(SVCXPRT *xprt)
{
	blob b = {0, NULL};

	if (!svc_getargs(xprt, (xdrproc_t)xdr_blob, (char *)&b)) {
		svcerr_decode(xprt);
		return;
	}
	svc_sendreply(xprt, (xdrproc_t)xdr_blob, (char *)&b);
	svc_freeargs(xprt, (xdrproc_t)xdr_blob, (char *)&b);
}

static void answer_int(struct svc_req *request, SVCXPRT *xprt)
{
	int n = 0;

	if (!svc_getargs(xprt, (xdrproc_t)xdr_int, (char *)&n)) {
		svcerr_decode(xprt);
		return;
	}
	if (request->rq_proc == NEXT)
		n++;
	else if (request->rq_proc == CALL_BACK)
		n = call_back((unsigned short)n);
	else
		later = (unsigned short)n;
	svc_sendreply(xprt, (xdrproc_t)xdr_int, (char *)&n);
}

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	called++;
	switch (request->rq_proc) {
	case NOTHING:
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		break;
	case QUIT:
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		quit = TRUE;
		break;
	case ECHO_BLOB:
		answer_blob(xprt);
		break;
	case NEXT:
	case CALL_BACK:
	case CALL_BACK_LATER:
		answer_int(request, xprt);
		break;
	default:
		svcerr_noproc(xprt);
	}
}

static void offer(SVCXPRT *xprt, rpcprog_t program)
{
	if (!xprt || !svc_reg(xprt, program, PEERS_1, dispatch, NULL))
		exit(2);
}

/* The loop of a program's own: until a client wants it to end, or `fd` is no connection any more. */
static void loop(int fd)
{
	while (!quit && (fd < 0 || FD_ISSET(fd, &svc_fdset))) {
		fd_set set = svc_fdset;

		if (select(FD_SETSIZE, &set, NULL, NULL, NULL) > 0)
			svc_getreqset(&set);
		if (later) {
			printf("later: wrong %d\n", call_back(later));
			later = 0;
		}
	}
}

/* Accepts by itself. `one` sees to a connection. */
static void accept_all(int fd, void (*one)(int connection))
{
	while (!quit) {
		int connection = accept(fd, NULL, NULL);

		if (connection >= 0)
			one(connection);
		else if (errno != EINTR)
			exit(2);
	}
}

static void serve_connection(int fd)
{
	offer(svc_fd_create(fd, 0, 0), PEERS);
	loop(fd);
}

static void serve_by_child(int fd)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		serve_connection(fd);
		exit(quit);
	}
	close(fd);
	waitpid(child, &status, 0);
	quit = WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void serve_by_program(int fd)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		dup2(fd, SERVED);
		execl(self, self, "serve", "given", (char *)NULL);
		_exit(2);
	}
	close(fd);
	waitpid(child, &status, 0);
	quit = TRUE;
	printf("status %d\n", status);
}

/* Roles are reversed: whoever has connected serves. */
static void call_the_other(int fd)
{
	CLIENT *cl = handle(fd, 0, BACK);

	printf("reversed: wrong %d\n", work(cl));
	call(cl, QUIT, xdr_void, NULL, xdr_void, NULL);
	clnt_control(cl, CLSET_FD_CLOSE, NULL);
	clnt_destroy(cl);
	quit = TRUE;
}

static void serve_by_workers(int fd)
{
	int status, ended = 0;
	pid_t all[WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		all[i] = fork();
		if (all[i] == 0) {
			offer(svc_vc_create(fd, 0, 0), PEERS);
			loop(-1);
			exit(0);
		}
	}
	/* One ends by a client's wish, and the others with it. */
	wait(&status);
	for (int i = 0; i < WORKERS; i++)
		kill(all[i], SIGTERM);
	while (wait(&status) > 0)
		ended++;
	printf("workers ended %d\n", ended + 1);
}

static int serve(const char *way, const char *file)
{
	unsigned short port = 0;
	int fd = file ? listen_anywhere(&port) : SERVED;

	if (file)
		listen_tell(file, port);
	if (!strcmp(way, "forking"))
		accept_all(fd, serve_by_child);
	else if (!strcmp(way, "reversed"))
		accept_all(fd, call_the_other);
	else if (!strcmp(way, "nowait"))
		accept_all(fd, serve_by_program);
	else if (!strcmp(way, "workers"))
		serve_by_workers(fd);
	else if (!strcmp(way, "given"))
		serve_connection(fd);
	else {
		offer(svc_tli_create(fd, NULL, NULL, 0, 0), PEERS);
		loop(-1);
	}
	if (strcmp(way, "forking") != 0 && strcmp(way, "workers") != 0)
		printf("called %u times\n", called);
	printf("end\n");
	return 0;
}

/* ---- the client ---- */

static void *serve_back(void *unused)
{
	(void)unused;
	loop(-1);
	return NULL;
}

/* A second thread serves what the service calls meanwhile. */
static void way_callback(CLIENT *cl)
{
	unsigned short port;
	int number, wrong = -1;
	pthread_t thread;
	CLIENT *own;

	offer(svc_vc_create(listen_anywhere(&port), 0, 0), BACK);
	number = port;
	pthread_create(&thread, NULL, serve_back, NULL);
	for (int i = 0; i < 3; i++) {
		call(cl, CALL_BACK, xdr_int, &number, xdr_int, &wrong);
		printf("amid: wrong %d\n", wrong);
	}
	call(cl, CALL_BACK_LATER, xdr_int, &number, xdr_int, &wrong);
	printf("wrong %d\n", work(cl));
	own = handle(-1, port, BACK);
	call(own, QUIT, xdr_void, NULL, xdr_void, NULL);
	clnt_destroy(own);
	pthread_join(thread, NULL);
	printf("called back %u times\n", called);
}

static void way_reversed(unsigned short port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		exit(2);
	offer(svc_fd_create(fd, 0, 0), BACK);
	loop(fd);
	printf("served %u calls\n", called);
}

static int fd_of(CLIENT *cl)
{
	int fd = -1;

	clnt_control(cl, CLGET_FD, (char *)&fd);
	return fd;
}

/* The connection goes on in a child, in another program, and here again. */
static void way_exec(CLIENT *cl, const char *port)
{
	char fd[16];

	snprintf(fd, sizeof(fd), "%d", fd_of(cl));
	for (int i = 0; i < 3; i++) {
		printf("wrong %d\n", work(cl));
		fflush(stdout);
		pid_t child = fork();
		int status = -1;

		if (child == 0 && i == 1) {
			printf("in a child: wrong %d\n", work(cl));
			exit(0);
		} else if (child == 0) {
			execl(self, self, "go-on", fd, port, (char *)NULL);
			_exit(2);
		}
		waitpid(child, &status, 0);
		printf("status %d\n", status);
	}
	printf("wrong %d\n", work(cl));
}

static int go_on(const char *fd, const char *port)
{
	CLIENT *cl = handle(atoi(fd), (unsigned short)atoi(port), PEERS);

	printf("in another program: wrong %d\n", work(cl));
	clnt_destroy(cl);
	return 0;
}

static void errors(CLIENT *cl)
{
	uint32_t version = 9, program = PEERS + 5;

	printf("%d", call(cl, 99, xdr_void, NULL, xdr_void, NULL));
	clnt_control(cl, CLSET_VERS, (char *)&version);
	printf(" %d", call(cl, NOTHING, xdr_void, NULL, xdr_void, NULL));
	clnt_control(cl, CLSET_PROG, (char *)&program);
	printf(" %d\n", call(cl, NOTHING, xdr_void, NULL, xdr_void, NULL));
}

static int client(const char *way, const char *port)
{
	unsigned short number = (unsigned short)atoi(port);
	CLIENT *cl;

	if (!strcmp(way, "reversed")) {
		way_reversed(number);
		return 0;
	}
	cl = handle(-1, number, PEERS);
	if (!strcmp(way, "callback")) {
		way_callback(cl);
	} else if (!strcmp(way, "exec")) {
		way_exec(cl, port);
	} else if (!strcmp(way, "forking") || !strcmp(way, "workers") ||
		   !strcmp(way, "handed")) {
		for (int i = 0; i < 5; i++) {
			printf("wrong %d\n", work(cl));
			errors(cl);
			clnt_destroy(cl);
			cl = handle(-1, number, PEERS);
		}
	}
	printf("wrong %d\n", work(cl));
	call(cl, QUIT, xdr_void, NULL, xdr_void, NULL);
	clnt_destroy(cl);
	return 0;
}

int main(int argc, char **argv)
{
	self = argv[0];
	signal(SIGPIPE, SIG_IGN);
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], argc > 3 ? argv[3] : NULL);
	if (argc == 4 && !strcmp(argv[1], "call"))
		return client(argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "go-on"))
		return go_on(argv[2], argv[3]);
	return 2;
}
