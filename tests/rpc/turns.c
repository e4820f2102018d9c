/* SPDX-License-Identifier: Apache-2.0 */
/* A service that counts how often it gives its turn away (sched_yield), and a client that calls it.
 *
 * usage: turns trap COMMAND...               executes a command whose yields are trapped: `serve`, somewhere in it
 *        turns serve PORT-FILE               until a client says QUIT; prints "yields COUNT"
 *        turns call PORT CALLS               one call after the other
 *        turns call PORT CALLS SERVICE-PID   each of them only once the service sleeps
 */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peers.h"
#include "support/listen.h"

/* The call has no arguments: with this one it is our own. */
#define OWN	 0x0197u
#define WAIT_S	 60
#define LOOK_US	 500
#define KEPT	 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define ARGUMENT offsetof(struct seccomp_data, args[0])

static volatile sig_atomic_t yields;

/* ---- the service ---- */

static void count_yield(int sig)
{
	(void)sig;
	yields++;
	syscall(SYS_sched_yield, OWN);
}

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	switch (request->rq_proc) {
	case NOTHING:
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		break;
	case QUIT:
		svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
		svc_exit();
		break;
	default:
		svcerr_noproc(xprt);
	}
}

static int serve(const char *file)
{
	SVCXPRT *xprt = svc_vc_create(listen_told(file), 0, 0);

	if (!xprt || !svc_reg(xprt, PEERS, PEERS_1, dispatch, NULL))
		return 2;
	signal(SIGSYS, count_yield);
	svc_run();
	printf("yields %d\n", (int)yields);
	return 0;
}

/* ---- the client ---- */

static int sleeps(const char *pid)
{
	char path[64], text[256], *end;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	f = fopen(path, "re");
	if (!f)
		exit(2);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	end = strrchr(text, ')');
	return end && end[2] == 'S';
}

static void call(CLIENT *cl, rpcproc_t procedure)
{
	if (clnt_call(cl, procedure, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL,
		      ((struct timeval){WAIT_S, 0})) != RPC_SUCCESS) {
		clnt_perror(cl, "turns");
		exit(2);
	}
}

static int client(const char *port, int calls, const char *service)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(port)),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = RPC_ANYSOCK;
	CLIENT *cl = clnttcp_create(&addr, PEERS, PEERS_1, &fd, 0, 0);

	if (!cl)
		return 2;
	for (int i = 0; i < calls; i++) {
		while (service && !sleeps(service))
			usleep(LOOK_US);
		call(cl, NOTHING);
	}
	call(cl, QUIT);
	clnt_destroy(cl);
	return 0;
}

/* ---- before both ---- */

/*
 * The library makes the call by itself, past the C library: the kernel alone sees it. The filter is there before the
 * library is, which leaves a process that puts one on to TCP.
 */
static int trap(char **command)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
		KEPT,
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN, 0, 1),
		KEPT,
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
		execv(command[0], command);
	perror("turns");
	return 2;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && !strcmp(argv[1], "trap"))
		return trap(argv + 2);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc >= 4 && !strcmp(argv[1], "call"))
		return client(argv[2], atoi(argv[3]), argc > 4 ? argv[4] : NULL);
	return 2;
}
