/* SPDX-License-Identifier: Apache-2.0 */
/* The client of the tests: calls in every way, and writes down what each has brought. Its transcript
 * is to be the same whatever carries the connection.
 *
 * usage: call PORT CASE...
 *
 * Whose operations a handle has goes to the standard error: "operations: FILE".
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"

static struct sockaddr_in server;

static CLIENT *handle_on(int fd, rpcprog_t program, rpcvers_t version)
{
	struct netbuf addr = {sizeof(server), sizeof(server), &server};
	CLIENT *cl = clnt_vc_create(fd, &addr, program, version, 0, 0);

	if (!cl) {
		clnt_pcreateerror("clnt_vc_create");
		exit(2);
	}
	return cl;
}

static void say_whose(const CLIENT *cl)
{
	Dl_info info;

	if (dladdr(*(void **)&cl->cl_ops->cl_call, &info))
		fprintf(stderr, "operations: %s\n", info.dli_fname);
}

CLIENT *connect_to(rpcprog_t program, rpcvers_t version)
{
	int fd = RPC_ANYSOCK;
	CLIENT *cl = clnttcp_create(&server, program, version, &fd, 0, 0);

	if (!cl) {
		clnt_pcreateerror("clnttcp_create");
		exit(2);
	}
	say_whose(cl);
	return cl;
}

int fd_of(CLIENT *cl)
{
	int fd = -1;

	clnt_control(cl, CLGET_FD, (char *)&fd);
	return fd;
}

static u_int sum_of(const blob *b)
{
	u_int sum = 0;

	for (u_int i = 0; i < b->blob_len; i++)
		sum = sum * 31 + (unsigned char)b->blob_val[i];
	return sum;
}

blob blob_of(u_int len, u_int seed)
{
	blob b = {len, malloc(len + 1)};

	for (u_int i = 0; i < len; i++)
		b.blob_val[i] = (char)(i * 13 + seed);
	return b;
}

enum clnt_stat call(CLIENT *cl, rpcproc_t procedure, void *xdr_args, void *args,
		    void *xdr_results, void *results, int ms)
{
	return clnt_call(cl, procedure, (xdrproc_t)xdr_args, args, (xdrproc_t)xdr_results,
			 results, ((struct timeval){ms / 1000, ms % 1000 * 1000}));
}

void say(CLIENT *cl, const char *what, enum clnt_stat status)
{
	struct rpc_err error;

	clnt_geterr(cl, &error);
	printf("%s: %d %d %s\n", what, status, error.re_status,
	       status ? clnt_sperror(cl, "") : "");
}

void next(CLIENT *cl, const char *what)
{
	int n = 41, result = 0;
	enum clnt_stat status = call(cl, NEXT, xdr_int, &n, xdr_int, &result, LONG_MS);

	say(cl, what, status);
	printf("  41 -> %d\n", result);
}

/* ---- cases ---- */

static void case_simple(CLIENT *cl)
{
	int wrong = 0, result, sum = 0;
	text t = "some text", *echoed;

	for (int i = 0; i < 300; i++)
		wrong += nothing_1(NULL, cl) == NULL;
	for (int i = 0; i < 1000; i++) {
		wrong += call(cl, NEXT, xdr_int, &i, xdr_int, &result, LONG_MS) !=
				 RPC_SUCCESS ||
			 result != i + 1;
		sum += result;
	}
	printf("wrong %d, sum %d\n", wrong, sum);
	echoed = echo_text_1(&t, cl);
	printf("text: %s\n", echoed ? *echoed : "none");
	if (echoed)
		printf("freed %d\n", clnt_freeres(cl, (xdrproc_t)xdr_text, echoed));
	t = calloc(1, 100001);
	memset(t, 'x', 100000);
	echoed = echo_text_1(&t, cl);
	printf("long text: %zu\n", echoed ? strlen(*echoed) : 0);
	node list[3] = {{1, "a", &list[1]}, {2, "bc", &list[2]}, {3, "", NULL}};
	for (node *n = reverse_1(list, cl); n; n = n->next)
		printf("  %d %s\n", n->number, n->name);
}

static void go_through_sizes(CLIENT *cl, u_int most)
{
	static const u_int sizes[] = {
		0,     1,     2,     3,	     4,	     5,	      100,     3999,	4000,
		4001,  8191,  16383, 16384,  16385,  65000,   65488,   65500,	65531,
		65532, 65536, 65537, 131072, 262140, 1000001, 1048576, 4194304, 67108864};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= most;
	     i++) {
		blob b = blob_of(sizes[i], (u_int)i), back = {0, NULL};
		u_int sum = 0, len = sizes[i];
		enum clnt_stat s[3];

		s[0] = call(cl, ECHO_BLOB, xdr_blob, &b, xdr_blob, &back, LONG_MS);
		printf("%u: %d %d", len, s[0],
		       back.blob_len == len && !memcmp(back.blob_val, b.blob_val, len));
		clnt_freeres(cl, (xdrproc_t)xdr_blob, &back);
		s[1] = call(cl, SUM, xdr_blob, &b, xdr_u_int, &sum, LONG_MS);
		printf(" %d %d", s[1], sum == sum_of(&b));
		memset(&back, 0, sizeof(back));
		s[2] = call(cl, MAKE, xdr_u_int, &len, xdr_blob, &back, LONG_MS);
		printf(" %d %u %u\n", s[2], back.blob_len, sum_of(&back));
		clnt_freeres(cl, (xdrproc_t)xdr_blob, &back);
		free(b.blob_val);
	}
}

static void case_sizes(CLIENT *cl)
{
	go_through_sizes(cl, ~0u);
}

/* Records of one fragment: libtirpc's reading without blocking takes no others. */
static void case_small(CLIENT *cl)
{
	go_through_sizes(cl, 65000);
}

static bool_t refuse(XDR *xdrs, void *value)
{
	int n = 7;

	(void)value;
	return xdr_int(xdrs, &n) && FALSE;
}

static void case_errors(CLIENT *cl)
{
	text t = NULL;
	int n = 5;
	blob b = {4,
		  "\0\0\0\11"}; /* for a node: a number, and a name that is not there */
	node list = {0, NULL, NULL};
	uint32_t number;

	say(cl, "procedure", call(cl, 99, xdr_void, NULL, xdr_void, NULL, LONG_MS));
	say(cl, "weak", call(cl, WEAK, xdr_void, NULL, xdr_void, NULL, LONG_MS));
	say(cl, "system", call(cl, SYSTEM, xdr_void, NULL, xdr_void, NULL, LONG_MS));
	next(cl, "after");
	say(cl, "refused argument", call(cl, NEXT, refuse, NULL, xdr_int, &n, LONG_MS));
	next(cl, "after");
	say(cl, "refused result", call(cl, NEXT, xdr_int, &n, refuse, NULL, LONG_MS));
	next(cl, "after");
	say(cl, "result of another kind",
	    call(cl, ECHO_BLOB, xdr_blob, &b, xdr_node, &list, LONG_MS));
	next(cl, "after");
	n = 1000000;
	say(cl, "argument that lies",
	    call(cl, ECHO_TEXT, xdr_int, &n, xdr_text, &t, LONG_MS));
	next(cl, "after");
	say(cl, "no argument", call(cl, NEXT, xdr_void, NULL, xdr_int, &n, LONG_MS));
	next(cl, "after");
	number = 2;
	clnt_control(cl, CLSET_VERS, (char *)&number);
	say(cl, "version", call(cl, NEXT, xdr_int, &n, xdr_int, &n, LONG_MS));
	number = 3;
	clnt_control(cl, CLSET_VERS, (char *)&number);
	n = 21;
	say(cl, "version 3", call(cl, TWICE, xdr_int, &n, xdr_int, &n, LONG_MS));
	printf("  %d\n", n);
	number = 0x20000077;
	clnt_control(cl, CLSET_PROG, (char *)&number);
	say(cl, "program", call(cl, NEXT, xdr_int, &n, xdr_int, &n, LONG_MS));
}

static void case_control(CLIENT *cl)
{
	struct timeval t = {0, 0}, wrong = {-1, 0};
	struct sockaddr_in addr = {0};
	struct netbuf buf = {0, 0, NULL};
	uint32_t before = 0, after = 0, number = 0;
	int n = 1;

	printf("get timeout %d\n", clnt_control(cl, CLGET_TIMEOUT, (char *)&t));
	printf("set wrong %d\n", clnt_control(cl, CLSET_TIMEOUT, (char *)&wrong));
	t = (struct timeval){3, 500000};
	printf("set %d\n", clnt_control(cl, CLSET_TIMEOUT, (char *)&t));
	t = (struct timeval){0, 0};
	clnt_control(cl, CLGET_TIMEOUT, (char *)&t);
	printf("timeout %ld.%06ld\n", (long)t.tv_sec, (long)t.tv_usec);
	clnt_control(cl, CLGET_XID, (char *)&before);
	next(cl, "call");
	clnt_control(cl, CLGET_XID, (char *)&after);
	printf("xid has gone by %u\n", htonl(before) - htonl(after));
	number = 0x01020304;
	printf("set xid %d\n", clnt_control(cl, CLSET_XID, (char *)&number));
	clnt_control(cl, CLGET_XID, (char *)&after);
	printf("xid 0x%x\n", after);
	next(cl, "call");
	clnt_control(cl, CLGET_XID, (char *)&after);
	printf("xid 0x%x\n", after);
	printf("version %d", clnt_control(cl, CLGET_VERS, (char *)&number));
	printf(" %u", number);
	printf(" program %d", clnt_control(cl, CLGET_PROG, (char *)&number));
	printf(" 0x%x\n", number);
	printf("server %d", clnt_control(cl, CLGET_SERVER_ADDR, (char *)&addr));
	printf(" %d\n", addr.sin_port == server.sin_port);
	printf("address %d", clnt_control(cl, CLGET_SVC_ADDR, (char *)&buf));
	printf(" %u\n", buf.len);
	printf("fd %d\n", fd_of(cl) > 2);
	printf("retry %d\n", clnt_control(cl, CLGET_RETRY_TIMEOUT, (char *)&t));
	printf("set address %d\n", clnt_control(cl, CLSET_SVC_ADDR, (char *)&buf));
	printf("no info %d\n", clnt_control(cl, CLGET_TIMEOUT, NULL));
	printf("unknown %d\n", clnt_control(cl, 12345, (char *)&n));
	printf("close %d\n", clnt_control(cl, CLSET_FD_CLOSE, NULL));
	printf("no close %d\n", clnt_control(cl, CLSET_FD_NCLOSE, NULL));
	n = dup(fd_of(cl));
	next(cl, "call");
	close(n);
}

static void case_times(CLIENT *cl)
{
	struct timeval t = {0, 50000};
	/* Far longer than it is waited for: a client that does not get its processor meanwhile finds the
	 * answer there, plain as well. */
	int ms = 3000, result = 0;

	say(cl, "late", call(cl, NAP, xdr_int, &ms, xdr_int, &result, 100));
	printf("  %d\n", result);
	next(cl, "after");
	clnt_control(cl, CLSET_TIMEOUT, (char *)&t);
	say(cl, "late", call(cl, NAP, xdr_int, &ms, xdr_int, &result, LONG_MS));
	t.tv_sec = 60;
	clnt_control(cl, CLSET_TIMEOUT, (char *)&t);
	next(cl, "after");
	say(cl, "no time", call(cl, NEXT, xdr_int, &ms, xdr_int, &result, 0));
	next(cl, "after");
	t = (struct timeval){-1, 0};
	say(cl, "wrong time",
	    clnt_call(cl, NEXT, (xdrproc_t)xdr_int, (char *)&ms, (xdrproc_t)xdr_int,
		      (char *)&result, t));
	next(cl, "after");
	t = (struct timeval){0, 300000};
	clnt_control(cl, CLSET_TIMEOUT, (char *)&t);
	/* libtirpc takes the answer to the next call for the rest of one that has timed out. */
	say(cl, "silent", call(cl, SILENT, xdr_void, NULL, xdr_void, NULL, 100));
	say(cl, "after", call(cl, NEXT, xdr_int, &ms, xdr_int, &result, 500));
	say(cl, "and then", call(cl, NEXT, xdr_int, &ms, xdr_int, &result, 500));
}

static void case_batch(CLIENT *cl)
{
	batch *b;
	u_int i;

	for (i = 1; i <= 5000; i++)
		if (call(cl, BATCH, xdr_u_int, &i, NULL, NULL, 0) != RPC_SUCCESS)
			printf("call %u failed\n", i);
	b = batched_1(NULL, cl);
	printf("batched %u, sum %u\n", b ? b->calls : 0, b ? b->sum : 0);
	/* The answers to these are read by nobody until the last call. */
	for (i = 0; i < 50; i++)
		call(cl, NEXT, xdr_u_int, &i, NULL, NULL, 0);
	next(cl, "after");
}

static void show_caller(CLIENT *cl)
{
	caller *c = who_1(NULL, cl);

	if (c)
		printf("flavor %d uid %u gid %u machine %s\n", c->flavor, c->uid, c->gid,
		       c->machine);
	else
		printf("%s\n", clnt_sperror(cl, "who"));
}

static void case_auth(CLIENT *cl)
{
	gid_t groups[2] = {7, 9};

	show_caller(cl);
	auth_destroy(cl->cl_auth);
	cl->cl_auth = authunix_create("machine", 11, 12, 2, groups);
	show_caller(cl);
	for (int i = 0; i < 100; i++)
		if (!who_1(NULL, cl))
			printf("call %d failed\n", i);
	auth_destroy(cl->cl_auth);
	cl->cl_auth = authunix_create_default();
	caller *c = who_1(NULL, cl);
	printf("default %d\n", c && c->uid == geteuid());
	auth_destroy(cl->cl_auth);
	cl->cl_auth = authnone_create();
	show_caller(cl);
}

static void case_shared(CLIENT *cl)
{
	CLIENT *other = handle_on(fd_of(cl), PEERS, PEERS_3);
	int n = 4, result;

	for (int i = 0; i < 200; i++) {
		next_1(&n, cl);
		call(other, TWICE, xdr_int, &n, xdr_int, &result, LONG_MS);
		if (result != 8)
			printf("result %d\n", result);
	}
	clnt_destroy(other);
	next(cl, "after");
}

static void case_anew(CLIENT *cl)
{
	(void)cl;
	for (int i = 0; i < 20; i++) {
		CLIENT *one = connect_to(PEERS, PEERS_1);
		int n = i, *result = NULL;

		for (int j = 0; j < 60; j++)
			result = next_1(&n, one);
		printf("%d\n", result ? *result : -1);
		clnt_destroy(one);
	}
}

static void case_die(CLIENT *cl)
{
	for (int i = 0; i < 100; i++)
		nothing_1(NULL, cl);
	next(cl, "before");
	say(cl, "die", call(cl, DIE, xdr_void, NULL, xdr_void, NULL, LONG_MS));
	enum clnt_stat status =
		call(cl, NOTHING, xdr_void, NULL, xdr_void, NULL, LONG_MS);
	printf("after: %d\n", status == RPC_CANTSEND || status == RPC_CANTRECV);
}

/* A service that lies in its answer to NEXT: how often is the second word of the case. */
static void lied_to(int count)
{
	for (int i = 0; i < count; i++) {
		CLIENT *cl = connect_to(PEERS, PEERS_1);
		int n = 41, result = 7;
		enum clnt_stat status;
		struct rpc_err error;

		for (int j = 0; j < 150; j++)
			nothing_1(NULL, cl);
		status = call(cl, NEXT, xdr_int, &n, xdr_int, &result, LONG_MS);
		clnt_geterr(cl, &error);
		printf("lie %d: %d %d %d", i, status, error.re_status, result);
		if (status == RPC_AUTHERROR)
			printf(" why %d", error.re_why);
		if (status == RPC_PROGVERSMISMATCH || status == RPC_VERSMISMATCH)
			printf(" %u %u", (unsigned)error.re_vers.low,
			       (unsigned)error.re_vers.high);
		printf("\n");
		clnt_destroy(cl);
	}
}

static void case_quit(CLIENT *cl)
{
	say(cl, "quit", call(cl, QUIT, xdr_void, NULL, xdr_void, NULL, LONG_MS));
}

static const struct {
	const char *name;
	void (*run)(CLIENT *cl);
} cases[] = {
	{"simple", case_simple},   {"sizes", case_sizes},     {"small", case_small},
	{"errors", case_errors},   {"control", case_control}, {"times", case_times},
	{"batch", case_batch},	   {"auth", case_auth},	      {"shared", case_shared},
	{"threads", case_threads}, {"signal", case_signal},   {"fork", case_fork},
	{"bounce", case_bounce},   {"anew", case_anew},	      {"die", case_die},
	{"quit", case_quit},
};

static void run(const char *name)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, name) != 0)
			continue;
		CLIENT *cl = connect_to(PEERS, PEERS_1);

		printf("== %s\n", name);
		cases[i].run(cl);
		clnt_destroy(cl);
		fflush(stdout);
		return;
	}
	fprintf(stderr, "there is no case %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	server = (struct sockaddr_in){.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(argv[1])),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	signal(SIGPIPE, SIG_IGN);
	if (argc > 3 && !strcmp(argv[2], "lies"))
		lied_to(atoi(argv[3]));
	else
		for (int i = 2; i < argc; i++)
			run(argv[i]);
	printf("end\n");
	return 0;
}
