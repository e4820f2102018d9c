/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls, all from a seed; both ends write down what does not depend on time.
 *
 * usage: stress serve PORT-FILE run|poll|select
 *        stress call PORT SEED LANES CALLS
 *
 * A *lane* is a thread of the client with connections, chance and a transcript of its own. The service
 * has one thread. Two more roles are started by the program itself: a *victim*, a service that is
 * killed, and one who goes on with a connection of another process, or is killed with one.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

#define LANES_MOST 8

struct lane {
	pthread_t thread;
	struct chance chance;
	unsigned short port, own_port;
	u_int key; /* of its notes at the service */
	int calls;
	CLIENT *cl;
	FILE *out;
	char *text;
	size_t text_bytes;
};

static int fd_of(CLIENT *cl)
{
	int fd = -1;

	clnt_control(cl, CLGET_FD, (char *)&fd);
	return fd;
}

static u_int below(struct lane *l, u_int n)
{
	return chance_below(&l->chance, n);
}

static enum clnt_stat call(struct lane *l, rpcproc_t procedure, void *xdr_args,
			   void *args, void *xdr_results, void *results)
{
	return stress_call(l->cl, procedure, xdr_args, args, xdr_results, results);
}

/* The handle's error, too. */
static void say(struct lane *l, const char *what, enum clnt_stat status)
{
	struct rpc_err error = {0};

	clnt_geterr(l->cl, &error);
	fprintf(l->out, "%s: %d %d\n", what, status, error.re_status);
}

/* ---- what a lane does ---- */

/* What nobody has read is passed meanwhile. */
static void do_next(struct lane *l)
{
	int n = (int)below(l, 1000000), result = 0;

	say(l, "next", call(l, S_NEXT, xdr_int, &n, xdr_int, &result));
	fprintf(l->out, "  %d\n", result - n);
}

static void say_blob(struct lane *l, const char *what, enum clnt_stat status, blob *b)
{
	say(l, what, status);
	fprintf(l->out, "  %u bytes, sum %u\n", b->blob_len, stress_sum(b));
	clnt_freeres(l->cl, (xdrproc_t)xdr_blob, (char *)b);
}

static void do_echo(struct lane *l)
{
	blob b = stress_blob(chance_size(&l->chance), below(l, 1000)), back = {0, NULL};

	say_blob(l, "echo", call(l, S_ECHO, xdr_blob, &b, xdr_blob, &back), &back);
	free(b.blob_val);
}

static void do_sum(struct lane *l)
{
	blob b = stress_blob(chance_size(&l->chance), below(l, 1000));
	u_int sum = 0;

	say(l, "sum", call(l, S_SUM, xdr_blob, &b, xdr_u_int, &sum));
	fprintf(l->out, "  %d\n", sum == stress_sum(&b));
	free(b.blob_val);
}

static void do_make(struct lane *l)
{
	struct two t = {chance_size(&l->chance), below(l, 1000)};
	blob back = {0, NULL};

	say_blob(l, "make", call(l, S_MAKE, xdr_two, &t, xdr_blob, &back), &back);
}

static void do_list(struct lane *l)
{
	u_int count = 1 + below(l, 200);
	node list[200], back = {0};

	for (u_int i = 0; i < count; i++)
		list[i] = (node){(int)i, i % 3 ? "some" : "",
				 i + 1 < count ? &list[i + 1] : NULL};
	say(l, "list", call(l, S_LIST, xdr_node, list, xdr_node, &back));
	count = 0;
	for (const node *n = &back; n; n = n->next)
		count = count * 31 + (u_int)n->number;
	fprintf(l->out, "  %d %u\n", back.number, count);
	clnt_freeres(l->cl, (xdrproc_t)xdr_node, (char *)&back);
}

static void do_who(struct lane *l)
{
	gid_t groups[2] = {7, 9};
	caller who = {0};

	auth_destroy(l->cl->cl_auth);
	l->cl->cl_auth =
		below(l, 2) ? authnone_create()
			    : authunix_create("machine", below(l, 100), 12, 2, groups);
	say(l, "who", call(l, S_WHO, xdr_void, NULL, xdr_caller, &who));
	fprintf(l->out, "  %d %u %u %s\n", who.flavor, who.uid, who.gid,
		who.machine ? who.machine : "-");
	clnt_freeres(l->cl, (xdrproc_t)xdr_caller, (char *)&who);
}

static void do_renewed(struct lane *l)
{
	stress_renewed(l->cl, below(l, 5), l->out);
	do_next(l);
}

static void do_batch(struct lane *l)
{
	u_int count = below(l, 300), key = l->key;
	struct two found = {0};

	for (u_int i = 0; i < count; i++) {
		struct two t = {key, below(l, 1000)};
		enum clnt_stat status =
			clnt_call(l->cl, S_NOTE, (xdrproc_t)xdr_two, (char *)&t, NULL,
				  NULL, ((struct timeval){0, 0}));

		if (status != RPC_SUCCESS)
			say(l, "note", status);
	}
	say(l, "noted", call(l, S_NOTED, xdr_u_int, &key, xdr_two, &found));
	fprintf(l->out, "  %u %u\n", found.one, found.other);
}

/* The answers come while nobody waits. */
static void do_unread(struct lane *l)
{
	struct two t = {below(l, 2000), 3};

	for (u_int i = below(l, 5); i > 0; i--)
		say(l, "unread",
		    clnt_call(l->cl, S_MAKE, (xdrproc_t)xdr_two, (char *)&t,
			      (xdrproc_t)xdr_void, NULL, ((struct timeval){0, 0})));
	do_next(l);
}

/*
 * No answer comes, however long it takes. After that, libtirpc takes the next record for the rest of
 * an answer: the retry's is the second one.
 */
static void do_timeouts(struct lane *l)
{
	for (u_int i = 1 + below(l, 3); i > 0; i--) {
		struct timeval wait = {0, 1000 * (1 + (int)below(l, 5))};

		say(l, "silent",
		    clnt_call(l->cl, S_SILENT, (xdrproc_t)xdr_void, NULL,
			      (xdrproc_t)xdr_void, NULL, wait));
	}
	int n = 5, result = 0;
	say(l, "retried", call(l, S_DOUBLE, xdr_int, &n, xdr_int, &result));
	fprintf(l->out, "  %d\n", result);
	do_next(l);
}

static void do_double(struct lane *l)
{
	int n = 7, result = 0;

	say(l, "double", call(l, S_DOUBLE, xdr_int, &n, xdr_int, &result));
	do_next(l);
}

static void say_version(struct lane *l, enum clnt_stat status)
{
	struct rpc_err error = {0};

	clnt_geterr(l->cl, &error);
	fprintf(l->out, "version: %d", status);
	if (status == RPC_PROGVERSMISMATCH)
		fprintf(l->out, " %u %u", (u_int)error.re_vers.low,
			(u_int)error.re_vers.high);
	fprintf(l->out, "\n");
}

/* Of the program, or another program. */
static void do_versions(struct lane *l)
{
	uint32_t version = below(l, 6), program = PEERS + below(l, 2), own = PEERS_1;
	int n = 20, result = 0;

	clnt_control(l->cl, CLSET_VERS, (char *)&version);
	clnt_control(l->cl, CLSET_PROG, (char *)&program);
	say_version(l, call(l, S_NEXT, xdr_int, &n, xdr_int, &result));
	fprintf(l->out, "  %d\n", result);
	program = PEERS;
	clnt_control(l->cl, CLSET_VERS, (char *)&own);
	clnt_control(l->cl, CLSET_PROG, (char *)&program);
}

static void do_errors(struct lane *l)
{
	struct two t = {chance_size(&l->chance) / 8, 1};
	struct amid a = {stress_blob(t.one, 1), -1, DISTURB_FAIL};
	blob b = {0, NULL};

	switch (below(l, 7)) {
	case 0:
		say(l, "no procedure", call(l, 99, xdr_void, NULL, xdr_void, NULL));
		break;
	case 1:
		say(l, "weak", call(l, S_WEAK, xdr_void, NULL, xdr_void, NULL));
		break;
	case 2:
		say(l, "system", call(l, S_SYSTEM, xdr_void, NULL, xdr_void, NULL));
		break;
	case 3:
		say(l, "no arguments", call(l, S_ECHO, xdr_void, NULL, xdr_void, NULL));
		break;
	case 4:
		say(l, "half an answer", call(l, S_HALF, xdr_two, &t, xdr_blob, &b));
		clnt_freeres(l->cl, (xdrproc_t)xdr_blob, (char *)&b);
		break;
	case 5:
		say(l, "half arguments", call(l, S_ECHO, xdr_amid, &a, xdr_void, NULL));
		break;
	default:
		free(a.bytes.blob_val);
		a.bytes.blob_val = NULL;
		say(l, "half taken", call(l, S_MAKE, xdr_two, &t, xdr_amid, &a));
		break;
	}
	free(a.bytes.blob_val);
	do_next(l);
}

/* At either end, before, amid and after what is encoded and decoded. */
static void do_disturbed(struct lane *l)
{
	int fd = fd_of(l->cl);
	u_int len = 2 + chance_size(&l->chance) / 2,
	      hardest = below(l, 20) ? DISTURB_MORE_OPTIONS : DISTURB_KINDS;
	struct amid out = {stress_blob(len, 9), fd, below(l, hardest)};
	struct amid back = {.fd = fd, .kind = below(l, hardest)};

	out.bytes.blob_val[0] = (char)below(l, hardest);
	out.bytes.blob_val[1] = (char)below(l, hardest);
	say(l, "disturbed", call(l, S_DISTURB, xdr_amid, &out, xdr_amid, &back));
	fprintf(l->out, "  %u bytes, equal %d\n", back.bytes.blob_len,
		stress_sum(&back.bytes) == stress_sum(&out.bytes));
	clnt_freeres(l->cl, (xdrproc_t)xdr_amid, (char *)&back);
	free(out.bytes.blob_val);
	disturb(fd, below(l, hardest));
}

struct aside {
	CLIENT *cl;
	_Atomic bool ends;
	u_int wrong;
};

static void *bounce(void *arg)
{
	struct aside *a = arg;
	int fd = fd_of(a->cl);

	while (!atomic_load(&a->ends)) {
		disturb(fd, DISTURB_BOUNCE);
		usleep(300);
	}
	return NULL;
}

static void *call_aside(void *arg)
{
	struct aside *a = arg;
	struct chance c = {5};

	a->wrong = stress_plain(a->cl, &c, 20);
	return NULL;
}

/* Another thread has the connection go back to TCP, or calls by the same handle. */
static void do_aside(struct lane *l)
{
	struct aside a = {.cl = l->cl};
	pthread_t thread;
	u_int wrong;

	pthread_create(&thread, NULL, below(l, 2) ? bounce : call_aside, &a);
	wrong = stress_plain(l->cl, &l->chance, 30);
	atomic_store(&a.ends, true);
	pthread_join(thread, NULL);
	fprintf(l->out, "aside: wrong %u %u\n", wrong, a.wrong);
}

static void do_other_version(struct lane *l)
{
	CLIENT *other = stress_handle(fd_of(l->cl), l->port, PEERS, PEERS_3);
	int n = (int)below(l, 1000), result = 0;

	for (int i = 0; i < 5; i++) {
		stress_call(other, S_NEXT, xdr_int, &n, xdr_int, &result);
		fprintf(l->out, "other: %d\n", result - 2 * n);
		do_next(l);
	}
	clnt_destroy(other);
}

static void do_back(struct lane *l)
{
	struct two t = {l->own_port, below(l, 1000)};
	u_int wrong = 99;

	say(l, "back", call(l, S_BACK, xdr_two, &t, xdr_u_int, &wrong));
	fprintf(l->out, "  wrong %u\n", wrong);
}

static void do_anew(struct lane *l)
{
	auth_destroy(l->cl->cl_auth);
	clnt_destroy(l->cl);
	l->cl = stress_handle(-1, l->port, PEERS, PEERS_1);
	do_next(l);
}

/* ---- other processes ---- */

/* This program, with the lane's connection. `last`: how many calls, and what then. */
static void execute(struct lane *l, const char *role, u_int calls, u_int kind)
{
	char words[5][16];
	int status = -1;
	pid_t child;

	snprintf(words[0], sizeof(words[0]), "%d", fd_of(l->cl));
	snprintf(words[1], sizeof(words[1]), "%u", l->port);
	snprintf(words[2], sizeof(words[2]), "%u", below(l, 1000));
	snprintf(words[3], sizeof(words[3]), "%u", calls);
	snprintf(words[4], sizeof(words[4]), "%u", kind);
	child = fork();
	if (child == 0) {
		execl(stress_program, stress_program, role, words[0], words[1], words[2],
		      words[3], words[4], (char *)NULL);
		_exit(2);
	}
	waitpid(child, &status, 0);
	fprintf(l->out, "%s: status %d\n", role, status);
}

static void do_execute(struct lane *l)
{
	execute(l, "go-on", 1 + below(l, 40), DISTURB_NONE);
	do_next(l);
}

/* A client is killed, amid its arguments or between calls. */
static void do_lose_client(struct lane *l)
{
	execute(l, "die", below(l, 40), below(l, 3));
}

/* A service is killed, amid its answer, after some calls; or while arguments are on the way. */
static void do_lose_service(struct lane *l)
{
	u_int alone = below(l, 2);
	int port = 0, status;
	struct lane to = {.chance = l->chance, .out = l->out};

	say(l, "victim", call(l, S_VICTIM, xdr_u_int, &alone, xdr_int, &port));
	to.cl = stress_handle(-1, (unsigned short)port, PEERS, PEERS_1);
	fprintf(l->out, "  wrong %u\n",
		stress_plain(to.cl, &to.chance, (int)below(l, 60)));
	struct two t = {chance_size(&to.chance), 4};
	blob back = {0, NULL};
	say(&to, "die", call(&to, S_DIE, xdr_two, &t, xdr_blob, &back));
	clnt_freeres(to.cl, (xdrproc_t)xdr_blob, (char *)&back);
	status = call(&to, S_NOTHING, xdr_void, NULL, xdr_void, NULL);
	fprintf(l->out, "  dead %d\n", status == RPC_CANTSEND || status == RPC_CANTRECV);
	clnt_destroy(to.cl);
}

static int go_on(char **words, bool dies)
{
	unsigned short port = (unsigned short)atoi(words[1]);
	struct chance c = {(uint64_t)atoi(words[2])};
	CLIENT *cl = stress_handle(dies ? -1 : atoi(words[0]), port, PEERS, PEERS_1);
	u_int wrong = stress_plain(cl, &c, atoi(words[3]));
	struct amid a = {stress_blob(chance_size(&c), 1), fd_of(cl), DISTURB_KILL};

	if (!dies) {
		clnt_destroy(cl);
		free(a.bytes.blob_val);
		return wrong != 0;
	}
	if (atoi(words[4]) == 1)
		stress_call(cl, S_ECHO, xdr_amid, &a, xdr_void, NULL);
	else if (atoi(words[4]) == 2)
		clnt_call(cl, S_ECHO, (xdrproc_t)xdr_blob, (char *)&a,
			  (xdrproc_t)xdr_void, NULL, ((struct timeval){0, 0}));
	return raise(SIGKILL);
}

/* ---- all of it ---- */

static const struct {
	void (*run)(struct lane *l);
	u_int weight;
} deeds[] = {
	{do_next, 300},		{do_echo, 150},	     {do_sum, 60},
	{do_make, 60},		{do_list, 30},	     {do_who, 40},
	{do_renewed, 20},	{do_batch, 20},	     {do_unread, 20},
	{do_timeouts, 12},	{do_double, 20},     {do_versions, 40},
	{do_errors, 60},	{do_disturbed, 80},  {do_aside, 8},
	{do_other_version, 20}, {do_back, 6},	     {do_anew, 12},
	{do_execute, 2},	{do_lose_client, 3}, {do_lose_service, 3},
};

static void do_one(struct lane *l)
{
	u_int all = 0, at;
	size_t i = 0;

	for (size_t j = 0; j < sizeof(deeds) / sizeof(deeds[0]); j++)
		all += deeds[j].weight;
	for (at = below(l, all); at >= deeds[i].weight; i++)
		at -= deeds[i].weight;
	deeds[i].run(l);
}

static void *run_lane(void *arg)
{
	struct lane *l = arg;

	l->out = open_memstream(&l->text, &l->text_bytes);
	l->cl = stress_handle(-1, l->port, PEERS, PEERS_1);
	for (int i = 0; i < l->calls; i++)
		do_one(l);
	auth_destroy(l->cl->cl_auth);
	clnt_destroy(l->cl);
	fclose(l->out);
	return NULL;
}

static void quit(unsigned short port, rpcprog_t program)
{
	CLIENT *cl = stress_handle(-1, port, program, PEERS_1);

	stress_call(cl, S_QUIT, xdr_void, NULL, xdr_void, NULL);
	clnt_destroy(cl);
}

static int client(unsigned short port, uint64_t seed, u_int count, int calls)
{
	static struct lane lanes[LANES_MOST];
	unsigned short own_port = stress_offer_back();
	pthread_t back;

	pthread_create(&back, NULL, stress_serve_back, NULL);
	for (u_int i = 0; i < count && i < LANES_MOST; i++) {
		lanes[i] = (struct lane){.chance = {seed * LANES_MOST + i},
					 .port = port,
					 .own_port = own_port,
					 .key = i,
					 .calls = calls};
		pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]);
	}
	for (u_int i = 0; i < count && i < LANES_MOST; i++) {
		pthread_join(lanes[i].thread, NULL);
		printf("== lane %u\n%s", i, lanes[i].text);
		free(lanes[i].text);
	}
	quit(own_port, STRESS_BACK);
	pthread_join(back, NULL);
	quit(port, PEERS);
	return 0;
}

int main(int argc, char **argv)
{
	stress_program = argv[0];
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN);
	if (argc == 4 && !strcmp(argv[1], "serve"))
		return stress_serve(argv[2], argv[3]);
	if (argc == 6 && !strcmp(argv[1], "call"))
		return client((unsigned short)atoi(argv[2]), strtoull(argv[3], NULL, 10),
			      (u_int)atoi(argv[4]), atoi(argv[5]));
	if (argc == 3 && !strcmp(argv[1], "victim"))
		return stress_victim(atoi(argv[2]));
	if (argc == 7 && (!strcmp(argv[1], "go-on") || !strcmp(argv[1], "die")))
		return go_on(argv + 2, !strcmp(argv[1], "die"));
	return 2;
}
