/* SPDX-License-Identifier: Apache-2.0 */
/* The service of the random calls. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "stress.h"
#include "support/listen.h"

#define KEYS	  1024
#define POLL_MOST 256

const char *stress_program;

static bool has_quit;
static struct two noted[KEYS];

static void reply(SVCXPRT *xprt, void *xdr_results, void *results)
{
	svc_sendreply(xprt, (xdrproc_t)xdr_results, results);
}

/* False: the caller has been told. */
static bool arguments(SVCXPRT *xprt, void *xdr_args, void *args)
{
	if (svc_getargs(xprt, (xdrproc_t)xdr_args, args))
		return true;
	svc_freeargs(xprt, (xdrproc_t)xdr_args, args);
	svcerr_decode(xprt);
	return false;
}

static void answer_next(struct svc_req *request, SVCXPRT *xprt)
{
	int n;

	if (!arguments(xprt, xdr_int, &n))
		return;
	n = request->rq_vers == PEERS_3 ? n * 2 : n + 1;
	reply(xprt, xdr_int, &n);
	if (request->rq_proc == S_DOUBLE)
		reply(xprt, xdr_int, &n);
}

static void answer_blob(struct svc_req *request, SVCXPRT *xprt)
{
	blob b = {0, NULL};
	u_int sum;

	if (!arguments(xprt, xdr_blob, &b))
		return;
	sum = stress_sum(&b);
	if (request->rq_proc == S_SUM)
		reply(xprt, xdr_u_int, &sum);
	else
		reply(xprt, xdr_blob, &b);
	svc_freeargs(xprt, (xdrproc_t)xdr_blob, (char *)&b);
}

static void answer_made(struct svc_req *request, SVCXPRT *xprt)
{
	struct two t;

	if (!arguments(xprt, xdr_two, &t))
		return;
	struct amid a = {stress_blob(t.one, t.other), -1, DISTURB_NONE};

	if (request->rq_proc == S_HALF)
		a.kind = DISTURB_FAIL;
	if (request->rq_proc == S_DIE)
		a.kind = DISTURB_KILL;
	reply(xprt, xdr_amid, &a);
	free(a.bytes.blob_val);
}

static void answer_list(SVCXPRT *xprt)
{
	node list = {0}, *result = NULL, *at = &list, *next;

	if (!arguments(xprt, xdr_node, &list))
		return;
	for (; at; at = next) {
		next = at->next;
		at->next = result;
		result = at;
	}
	reply(xprt, xdr_node, result);
	/* The first one is no memory of XDR's. */
	for (; result != &list; result = next) {
		next = result->next;
		free(result->name);
		free(result);
	}
	free(list.name);
}

static void answer_who(struct svc_req *request, SVCXPRT *xprt)
{
	struct authunix_parms *parms = (void *)request->rq_clntcred;
	bool known = request->rq_cred.oa_flavor == AUTH_SYS;
	caller who = {.flavor = request->rq_cred.oa_flavor,
		      .uid = known ? (u_int)parms->aup_uid : 0,
		      .gid = known ? (u_int)parms->aup_gid : 0,
		      .machine = known ? parms->aup_machname : ""};

	reply(xprt, xdr_caller, &who);
}

static void answer_fresh(struct svc_req *request, SVCXPRT *xprt)
{
	struct authunix_parms *parms = (void *)request->rq_clntcred;
	u_int n;

	if (request->rq_cred.oa_flavor != AUTH_SYS || parms->aup_uid != 0) {
		svcerr_auth(xprt, AUTH_REJECTEDCRED);
	} else if (arguments(xprt, xdr_u_int, &n)) {
		n++;
		reply(xprt, xdr_u_int, &n);
	}
}

static void take_note(struct svc_req *request, SVCXPRT *xprt)
{
	struct two t;
	u_int key;

	if (request->rq_proc == S_NOTE) {
		if (!svc_getargs(xprt, (xdrproc_t)xdr_two, (char *)&t))
			return;
		noted[t.one % KEYS].one++;
		noted[t.one % KEYS].other += t.other;
	} else if (arguments(xprt, xdr_u_int, &key)) {
		reply(xprt, xdr_two, &noted[key % KEYS]);
	}
}

/* Before the answer, and amid it. */
static void answer_disturbed(SVCXPRT *xprt)
{
	struct amid a = {.fd = xprt->xp_fd};
	u_int kind = 0;

	if (!arguments(xprt, xdr_amid, &a))
		return;
	if (a.bytes.blob_len >= 2)
		kind = (u_int)(unsigned char)a.bytes.blob_val[0] % DISTURB_KINDS;
	disturb(a.fd, kind);
	if (a.bytes.blob_len >= 2)
		a.kind = (u_int)(unsigned char)a.bytes.blob_val[1] % DISTURB_KINDS;
	reply(xprt, xdr_amid, &a);
	svc_freeargs(xprt, (xdrproc_t)xdr_amid, (char *)&a);
}

static void call_back(SVCXPRT *xprt)
{
	struct two t;
	struct chance c;
	u_int wrong;

	if (!arguments(xprt, xdr_two, &t))
		return;
	c.state = t.other;
	CLIENT *cl = stress_handle(-1, (unsigned short)t.one, STRESS_BACK, PEERS_1);
	wrong = stress_plain(cl, &c, 20);
	clnt_destroy(cl);
	reply(xprt, xdr_u_int, &wrong);
}

/* The program anew, with a socket that listens already; with all other connections, too, or none. */
static void start_victim(SVCXPRT *xprt)
{
	unsigned short port;
	u_int alone;
	char word[16];
	int fd, number;

	if (!arguments(xprt, xdr_u_int, &alone))
		return;
	fd = listen_anywhere(&port);
	number = port;
	snprintf(word, sizeof(word), "%d", fd);
	if (fork() == 0) {
		if (alone)
			for (int i = 3; i < POLL_MOST; i++)
				if (i != fd)
					close(i);
		execl(stress_program, stress_program, "victim", word, (char *)NULL);
		_exit(2);
	}
	close(fd);
	reply(xprt, xdr_int, &number);
}

static void quit(SVCXPRT *xprt)
{
	has_quit = true;
	reply(xprt, xdr_void, NULL);
	svc_exit();
}

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	switch (request->rq_proc) {
	case S_NOTHING:
		reply(xprt, xdr_void, NULL);
		break;
	case S_NEXT:
	case S_DOUBLE:
		answer_next(request, xprt);
		break;
	case S_ECHO:
	case S_SUM:
		answer_blob(request, xprt);
		break;
	case S_MAKE:
	case S_HALF:
	case S_DIE:
		answer_made(request, xprt);
		break;
	case S_LIST:
		answer_list(xprt);
		break;
	case S_WHO:
		answer_who(request, xprt);
		break;
	case S_FRESH:
		answer_fresh(request, xprt);
		break;
	case S_NOTE:
	case S_NOTED:
		take_note(request, xprt);
		break;
	case S_SILENT:
		break;
	case S_WEAK:
		svcerr_weakauth(xprt);
		break;
	case S_SYSTEM:
		svcerr_systemerr(xprt);
		break;
	case S_DISTURB:
		answer_disturbed(xprt);
		break;
	case S_BACK:
		call_back(xprt);
		break;
	case S_VICTIM:
		start_victim(xprt);
		break;
	case S_QUIT:
		quit(xprt);
		break;
	default:
		svcerr_noproc(xprt);
	}
}

static void loop_poll(void)
{
	while (!has_quit) {
		struct pollfd fds[POLL_MOST];
		int count = svc_max_pollfd < POLL_MOST ? svc_max_pollfd : POLL_MOST;

		memcpy(fds, svc_pollfd, (size_t)count * sizeof(*fds));
		int ready = poll(fds, (nfds_t)count, -1);
		if (ready > 0)
			svc_getreq_poll(fds, ready);
	}
}

static void loop_select(void)
{
	while (!has_quit) {
		fd_set set = svc_fdset;

		if (select(FD_SETSIZE, &set, NULL, NULL, NULL) > 0)
			svc_getreqset(&set);
	}
}

static void offer(int fd, rpcprog_t program, rpcvers_t version)
{
	static SVCXPRT *xprt;

	if (!xprt)
		xprt = svc_vc_create(fd, 0, 0);
	if (!xprt || !svc_reg(xprt, program, version, dispatch, NULL))
		exit(2);
}

int stress_serve(const char *place, const char *loop)
{
	unsigned short port;
	int fd = listen_anywhere(&port);

	signal(SIGCHLD, SIG_IGN);
	offer(fd, PEERS, PEERS_1);
	offer(fd, PEERS, PEERS_3);
	listen_tell(place, port);
	if (!strcmp(loop, "poll"))
		loop_poll();
	else if (!strcmp(loop, "select"))
		loop_select();
	else
		svc_run();
	printf("served\n");
	return 0;
}

int stress_victim(int fd)
{
	offer(fd, PEERS, PEERS_1);
	svc_run();
	return 2;
}

void *stress_serve_back(void *unused)
{
	(void)unused;
	loop_select();
	return NULL;
}

unsigned short stress_offer_back(void)
{
	unsigned short port;

	offer(listen_anywhere(&port), STRESS_BACK, PEERS_1);
	return port;
}
