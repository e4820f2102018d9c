/* SPDX-License-Identifier: Apache-2.0 */
/* The service of the tests: listens on a port of its own, and tells at its end what it has seen.
 *
 * usage: serve PORT-FILE|PATH.sock|ADDRESS:PORT run|poll|select [LONGEST-RECORD]
 *
 * With a name that ends in .sock it listens on that AF_UNIX socket instead.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"
#include "support/listen.h"

bool_t rpc_control(int what, void *arg); /* in no header */
void peers_1(struct svc_req *request, SVCXPRT *xprt);
void peers_3(struct svc_req *request, SVCXPRT *xprt);

__attribute__((weak)) void viaduct_test_bounce(int fd);

static batch batched;
static bool_t quit;
static unsigned calls;

static u_int sum_of(const blob *b)
{
	u_int sum = 0;

	for (u_int i = 0; i < b->blob_len; i++)
		sum = sum * 31 + (unsigned char)b->blob_val[i];
	return sum;
}

void *nothing_1_svc(void *none, struct svc_req *request)
{
	(void)none, (void)request;
	calls++;
	return &quit;
}

int *next_1_svc(int *n, struct svc_req *request)
{
	static int result;

	(void)request;
	calls++;
	result = *n + 1;
	return &result;
}

int *twice_3_svc(int *n, struct svc_req *request)
{
	static int result;

	(void)request;
	result = *n * 2;
	return &result;
}

text *echo_text_1_svc(text *t, struct svc_req *request)
{
	(void)request;
	return t;
}

blob *echo_blob_1_svc(blob *b, struct svc_req *request)
{
	(void)request;
	return b;
}

u_int *sum_1_svc(blob *b, struct svc_req *request)
{
	static u_int result;

	(void)request;
	result = sum_of(b);
	return &result;
}

blob *make_1_svc(u_int *len, struct svc_req *request)
{
	static blob result;

	(void)request;
	result.blob_len = *len;
	result.blob_val = realloc(result.blob_val, *len + 1);
	for (u_int i = 0; i < *len; i++)
		result.blob_val[i] = (char)(i * 7 + *len);
	return &result;
}

node *reverse_1_svc(node *list, struct svc_req *request)
{
	node *result = NULL;

	(void)request;
	while (list) {
		node *next = list->next;

		list->next = result;
		result = list;
		list = next;
	}
	return result;
}

caller *who_1_svc(void *none, struct svc_req *request)
{
	static caller result;
	struct authunix_parms *parms = (void *)request->rq_clntcred;
	bool_t known = request->rq_cred.oa_flavor == AUTH_SYS;

	(void)none;
	result.flavor = request->rq_cred.oa_flavor;
	result.uid = known ? (u_int)parms->aup_uid : 0;
	result.gid = known ? (u_int)parms->aup_gid : 0;
	result.machine = known ? parms->aup_machname : "";
	return &result;
}

void *batch_1_svc(u_int *n, struct svc_req *request)
{
	(void)request;
	batched.calls++;
	batched.sum += *n;
	return NULL; /* no answer */
}

batch *batched_1_svc(void *none, struct svc_req *request)
{
	(void)none, (void)request;
	return &batched;
}

int *nap_1_svc(int *ms, struct svc_req *request)
{
	(void)request;
	usleep((useconds_t)*ms * 1000);
	return ms;
}

/* A child answers, and goes. */
int *forked_1_svc(int *n, struct svc_req *request)
{
	pid_t child = fork();
	int result = *n + 100;

	if (child == 0) {
		svc_sendreply(request->rq_xprt, (xdrproc_t)xdr_int, &result);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return NULL;
}

void *weak_1_svc(void *none, struct svc_req *request)
{
	(void)none;
	svcerr_weakauth(request->rq_xprt);
	return NULL;
}

void *system_1_svc(void *none, struct svc_req *request)
{
	(void)none;
	svcerr_systemerr(request->rq_xprt);
	return NULL;
}

void *silent_1_svc(void *none, struct svc_req *request)
{
	(void)none, (void)request;
	return NULL;
}

void *die_1_svc(void *none, struct svc_req *request)
{
	(void)none, (void)request;
	raise(SIGKILL);
	return NULL;
}

void *quit_1_svc(void *none, struct svc_req *request)
{
	(void)none, (void)request;
	quit = TRUE;
	svc_exit();
	return &quit;
}

/* In the middle of a call the connection goes back to TCP. */
void *bounce_1_svc(int *n, struct svc_req *request)
{
	(void)n;
	if (viaduct_test_bounce)
		viaduct_test_bounce(request->rq_xprt->xp_fd);
	return &quit;
}

void *take_1_svc(blob *b, struct svc_req *request)
{
	(void)b, (void)request;
	return &quit;
}

static void loop_poll(void)
{
	while (!quit) {
		struct pollfd fds[64];
		int count = svc_max_pollfd < 64 ? svc_max_pollfd : 64;

		memcpy(fds, svc_pollfd, (size_t)count * sizeof(*fds));
		int ready = poll(fds, (nfds_t)count, -1);
		if (ready > 0)
			svc_getreq_poll(fds, ready);
	}
}

static void loop_select(void)
{
	while (!quit) {
		fd_set set = svc_fdset;

		if (select(FD_SETSIZE, &set, NULL, NULL, NULL) > 0)
			svc_getreqset(&set);
	}
}

static int listen_unix(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 16))
		exit(2);
	return fd;
}

static int listen_where(const char *place)
{
	const char *dot = strrchr(place, '.');
	struct sockaddr_in at;

	if (listen_parse(place, &at))
		return listen_at(&at);
	return dot && !strcmp(dot, ".sock") ? listen_unix(place) : listen_told(place);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (argc > 3) { /* the longest record: then libtirpc reads without blocking */
		int most = atoi(argv[3]);

		rpc_control(RPC_SVC_CONNMAXREC_SET, &most);
	}
	signal(SIGPIPE, SIG_IGN);
	SVCXPRT *xprt = svc_vc_create(listen_where(argv[1]), 0, 0);
	if (!xprt || !svc_reg(xprt, PEERS, PEERS_1, peers_1, NULL) ||
	    !svc_reg(xprt, PEERS, PEERS_3, peers_3, NULL))
		return 2;
	if (!strcmp(argv[2], "poll"))
		loop_poll();
	else if (!strcmp(argv[2], "select"))
		loop_select();
	else
		svc_run();
	printf("served %u calls; batched %u, sum %u\n", calls, batched.calls,
	       batched.sum);
	printf("end\n");
	return 0;
}
