/* SPDX-License-Identifier: Apache-2.0 */
/* A peer with a thread that changes the ring while the other end decodes what lies in it.
 *
 * usage: flipped serve PORT-FILE
 *        flipped call PORT ROUNDS               a client of a hostile service
 *        flipped quit PORT                      a client whose calls go well; the service ends
 *        flipped hostile-serve PORT-FILE SEED
 *        flipped hostile-call PORT SEED ROUNDS
 *
 * Each round of a hostile end is a process with one connection. Once that has a segment, a thread
 * changes words and bytes of it, while the process goes on with calls. A round ends by a call that
 * fails, or by a signal: in the middle of anything.
 *
 * Whoever decodes looks twice at what it judges: `changed` counts where the two differ.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rpc/rpc.h>

#include "support/listen.h"

enum { PROGRAM = 0x20000097, VERSION = 1 };
/* No change of a few bits makes the last one of another. */
enum { NOTHING, CARRY, QUIT = 0x51554954 };
enum {
	WORDS = 64,
	BLOB_MOST = 1 << 20,
	LONG_S = 60,
	CALLS = 400,
	WRONG_MOST = 20,
	WARM = 2000
};
/* So long may a round go on. It ends then whatever it is at, which is no failure. */
#define ROUND_US 300000

/* What carries the changes: read by the honest end in each way that XDR has. */
struct load {
	u_int number;
	u_int words[WORDS];
	u_int len;
	char *blob;
};

/* Of all processes of this end. */
static struct counts {
	_Atomic unsigned rounds, calls, good, damaged, flips;
	_Atomic unsigned looked, again, decoded, failed, changed;
} * counts;

/* ---- decoded, and looked at twice ---- */

static u_int sum_of(const void *bytes, size_t len)
{
	const volatile unsigned char *at = bytes;
	u_int sum = 1;

	for (size_t i = 0; i < len; i++)
		sum = sum * 31 + at[i];
	return sum;
}

/* Time for the peer to change what has just been looked at. */
static bool_t stays(const void *bytes, size_t len)
{
	u_int before = sum_of(bytes, len);

	sched_yield();
	if (sum_of(bytes, len) == before)
		return TRUE;
	atomic_fetch_add(&counts->changed, 1);
	return FALSE;
}

/* A number, and the same one by going back in the stream. */
static bool_t xdr_twice(XDR *xdrs, u_int *number)
{
	u_int at = XDR_GETPOS(xdrs), second;

	if (!xdr_u_int(xdrs, number))
		return FALSE;
	if (xdrs->x_op != XDR_DECODE || XDR_GETPOS(xdrs) != at + 4 ||
	    !XDR_SETPOS(xdrs, at))
		return TRUE;
	sched_yield();
	if (!xdr_u_int(xdrs, &second))
		return FALSE;
	atomic_fetch_add(&counts->again, 1);
	if (second != *number)
		atomic_fetch_add(&counts->changed, 1);
	return TRUE;
}

static bool_t xdr_words(XDR *xdrs, u_int *words)
{
	int32_t *inside = xdrs->x_op == XDR_DECODE ? xdr_inline(xdrs, WORDS * 4) : NULL;

	if (!inside)
		return xdr_vector(xdrs, (char *)words, WORDS, sizeof(*words),
				  (xdrproc_t)xdr_u_int);
	atomic_fetch_add(&counts->looked, 1);
	stays(inside, WORDS * 4);
	for (int i = 0; i < WORDS; i++)
		words[i] = ntohl((uint32_t)inside[i]);
	return TRUE;
}

static bool_t xdr_load(XDR *xdrs, struct load *l)
{
	if (!xdr_twice(xdrs, &l->number) || !xdr_words(xdrs, l->words) ||
	    !xdr_bytes(xdrs, &l->blob, &l->len, BLOB_MOST))
		return FALSE;
	if (xdrs->x_op == XDR_DECODE) {
		stays(l->blob, l->len);
		atomic_fetch_add(&counts->decoded, 1);
	}
	return TRUE;
}

static void fill(struct load *l, u_int number, u_int len)
{
	l->number = number;
	for (u_int i = 0; i < WORDS; i++)
		l->words[i] = number + i;
	l->len = len;
	l->blob = malloc(len + 1);
	memset(l->blob, (int)number, len);
}

static bool_t is_as_sent(const struct load *l, const struct load *sent)
{
	return l->number == sent->number && l->len == sent->len &&
	       !memcmp(l->words, sent->words, sizeof(l->words)) &&
	       (l->len == 0 || !memcmp(l->blob, sent->blob, l->len));
}

/* ---- connections ---- */

static CLIENT *handle(const char *port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(port)),
				   .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = RPC_ANYSOCK;

	return clnttcp_create(&addr, PROGRAM, VERSION, &fd, 0, 0);
}

static enum clnt_stat call(CLIENT *cl, rpcproc_t procedure, struct load *in,
			   struct load *out)
{
	xdrproc_t none = (xdrproc_t)xdr_void, load = (xdrproc_t)xdr_load;

	return clnt_call(cl, procedure, in ? load : none, (char *)in, out ? load : none,
			 (char *)out, ((struct timeval){LONG_S, 0}));
}

/* Sizes that go through the buffers, past them, and through a larger area of the ring. */
static u_int size_of(unsigned i)
{
	static const u_int sizes[] = {0,     5,	  600,	 100, 5000,  30,
				      16384, 200, 70000, 1,   300000};

	return sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* As many calls as go well, and CALLS at most. How it has ended. */
static enum clnt_stat carry(CLIENT *cl, unsigned seed)
{
	enum clnt_stat status = RPC_SUCCESS;
	int wrong = 0;

	for (unsigned i = 0; i < CALLS && wrong < WRONG_MOST; i++) {
		struct load sent, got = {.blob = NULL};

		fill(&sent, i + seed, size_of(i + seed));
		status = call(cl, CARRY, &sent, &got);
		atomic_fetch_add(&counts->calls, 1);
		if (status == RPC_SUCCESS && is_as_sent(&got, &sent)) {
			atomic_fetch_add(&counts->good, 1);
		} else {
			atomic_fetch_add(&counts->damaged, 1);
			wrong++;
		}
		clnt_freeres(cl, (xdrproc_t)xdr_load, (char *)&got);
		free(sent.blob);
		if (status == RPC_CANTSEND || status == RPC_CANTRECV ||
		    status == RPC_TIMEDOUT)
			return status;
	}
	return status;
}

/* ---- the service ---- */

static bool_t quit;

static void dispatch(struct svc_req *request, SVCXPRT *xprt)
{
	struct load l = {.blob = NULL};
	xdrproc_t load = (xdrproc_t)xdr_load;

	if (request->rq_proc == CARRY) {
		if (!svc_getargs(xprt, load, (char *)&l)) {
			atomic_fetch_add(&counts->failed, 1);
			svcerr_decode(xprt);
		} else {
			svc_sendreply(xprt, load, (char *)&l);
		}
		svc_freeargs(xprt, load, (char *)&l);
		return;
	}
	svc_sendreply(xprt, (xdrproc_t)xdr_void, NULL);
	if (request->rq_proc == QUIT) {
		quit = TRUE;
		svc_exit();
	}
}

static void offer(SVCXPRT *xprt)
{
	if (!xprt || !svc_reg(xprt, PROGRAM, VERSION, dispatch, NULL))
		exit(2);
}

/* ---- the thread that changes the ring ---- */

static char *segment;
static size_t segment_bytes;

/* Memory of a connection, which this process shares with the other one. */
static bool_t find_segment(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	while (!segment && maps && fgets(line, sizeof(line), maps)) {
		unsigned long begin, end;

		if (strstr(line, "/memfd:viaduct (deleted)") &&
		    sscanf(line, "%lx-%lx", &begin, &end) == 2) {
			segment_bytes = end - begin;
			segment = (char *)begin;
		}
	}
	fclose(maps);
	return segment != NULL;
}

static uint64_t state;

static uint32_t next(uint32_t below)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(((state >> 32) * below) >> 32);
}

/* From where on, and how much: the words of the head; where messages begin, of either direction;
 * or all of it. See ring/wire.h. */
static size_t place(unsigned kind)
{
	static const size_t data = 4096,
			    direction = (16u << 10) + (256u << 10) + (4u << 20);
	size_t begins = data + next(2) * direction;

	switch (kind) {
	case 0:
		return begins + next(1024);
	case 1:
		return begins + next(16u << 10);
	case 2:
		return next(2048);
	default:
		return next(8) ? begins + next((272u << 10) - 8) : next(2048);
	}
}

static void flip(unsigned kind)
{
	static const uint32_t lies[] = {0,	    0x80000000, 0xffffffff, 0x7fffffff,
					0x10000000, 0x04000000, 0x00001000, 0x80000044};
	_Atomic uint32_t *word = (void *)(segment + (place(kind) & ~(size_t)3));
	uint32_t was = atomic_load_explicit(word, memory_order_relaxed);

	if (next(3) ==
	    0) { /* there and back: a number of a length that is not always the same */
		atomic_store_explicit(word, lies[next(8)], memory_order_relaxed);
		for (uint32_t n = next(200); n > 0; n--)
			atomic_signal_fence(memory_order_seq_cst);
		atomic_store_explicit(word, was, memory_order_relaxed);
	} else if (next(2)) {
		atomic_store_explicit((_Atomic char *)word + next(4), (char)next(256),
				      memory_order_relaxed);
	} else {
		atomic_store_explicit(word, next(2) ? lies[next(8)] : was + next(9) - 4,
				      memory_order_relaxed);
	}
}

/* Seldom enough that calls go on, or without a pause. */
static void *flip_for_ever(void *arg)
{
	unsigned kind = next(4), pause = 1u << next(16);

	(void)arg;
	for (;;) {
		flip(kind);
		atomic_fetch_add_explicit(&counts->flips, 1, memory_order_relaxed);
		for (volatile uint32_t n = next(pause); n > 0; n--)
			;
	}
	return NULL;
}

static void begin_to_flip(unsigned seed)
{
	struct itimerval end = {.it_value = {.tv_usec = ROUND_US}};
	pthread_t thread;

	state = seed * 2654435761u + 1;
	pthread_create(&thread, NULL, flip_for_ever, NULL);
	setitimer(ITIMER_REAL, &end, NULL);
}

/* ---- hostile ends ---- */

/* A process for each round; the parent waits. What it ends with says nothing about the other end. */
static void in_a_process(void (*round)(const char *port, int fd, unsigned seed),
			 const char *port, int fd, unsigned seed)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		round(port, fd, seed);
		_exit(0);
	}
	if (fd >= 0)
		close(fd);
	waitpid(child, &status, 0);
	atomic_fetch_add(&counts->rounds, 1);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM)
		printf("a hostile end ended with signal %d\n", WTERMSIG(status));
}

static void call_and_flip(const char *port, int fd, unsigned seed)
{
	CLIENT *cl = handle(port);

	(void)fd;
	for (int i = 0; cl && i < WARM && !find_segment(); i++)
		call(cl, NOTHING, NULL, NULL);
	if (!segment) {
		printf("no direct path\n");
		return;
	}
	begin_to_flip(seed);
	carry(cl, seed);
}

static void *flip_once_direct(void *seed)
{
	while (!find_segment())
		usleep(1000);
	begin_to_flip(*(unsigned *)seed);
	return NULL;
}

static void serve_and_flip(const char *port, int fd, unsigned seed)
{
	pthread_t thread;

	(void)port;
	pthread_create(&thread, NULL, flip_once_direct, &seed);
	offer(svc_fd_create(fd, 0, 0));
	while (FD_ISSET(fd, &svc_fdset)) {
		fd_set set = svc_fdset;

		if (select(FD_SETSIZE, &set, NULL, NULL, NULL) > 0)
			svc_getreqset(&set);
	}
}

/* So many rounds at least, and until calls have been damaged, and others not. */
static bool_t is_enough(unsigned round, unsigned rounds)
{
	return round >= rounds && atomic_load(&counts->damaged) &&
	       atomic_load(&counts->good);
}

static void hostile_call(const char *port, unsigned seed, unsigned rounds)
{
	for (unsigned i = 0; !is_enough(i, rounds); i++)
		in_a_process(call_and_flip, port, -1, seed + i);
}

static void hostile_serve(const char *file, unsigned seed)
{
	int fd = listen_told(file);

	for (;; seed++) {
		int connection = accept(fd, NULL, NULL);

		if (connection >= 0)
			in_a_process(serve_and_flip, NULL, connection, seed);
	}
}

/* ---- honest ends ---- */

static void serve(const char *file)
{
	offer(svc_vc_create(listen_told(file), 0, 0));
	svc_run();
}

/* Calls that are as they should be, on a connection of their own; and the service ends. */
static void call_and_quit(const char *port)
{
	CLIENT *cl = handle(port);
	unsigned damaged = atomic_load(&counts->damaged);

	if (!cl || carry(cl, 3) != RPC_SUCCESS ||
	    atomic_load(&counts->damaged) != damaged ||
	    call(cl, QUIT, NULL, NULL) != RPC_SUCCESS)
		printf("an honest client is not served\n");
	if (cl)
		clnt_destroy(cl);
}

static void call_hostile(const char *port, unsigned rounds)
{
	for (unsigned i = 0; !is_enough(i, rounds); i++) {
		CLIENT *cl = handle(port);

		if (!cl) {
			printf("the hostile service is gone\n");
			return;
		}
		for (int k = 0; k < WARM && !find_segment(); k++)
			call(cl, NOTHING, NULL, NULL);
		if (carry(cl, i) == RPC_TIMEDOUT)
			printf("a call has waited for ever\n");
		clnt_destroy(cl);
		segment = NULL;
		atomic_fetch_add(&counts->rounds, 1);
	}
}

static void tell(void)
{
	printf("rounds %u calls %u good %u damaged %u flips %u looked %u again %u "
	       "decoded %u "
	       "failed %u changed %u\n",
	       counts->rounds, counts->calls, counts->good, counts->damaged,
	       counts->flips, counts->looked, counts->again, counts->decoded,
	       counts->failed, counts->changed);
}

int main(int argc, char **argv)
{
	counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc < 3 || counts == MAP_FAILED)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(argv[1], "serve"))
		serve(argv[2]);
	else if (!strcmp(argv[1], "call") && argc > 3)
		call_hostile(argv[2], (unsigned)atoi(argv[3]));
	else if (!strcmp(argv[1], "quit"))
		call_and_quit(argv[2]);
	else if (!strcmp(argv[1], "hostile-serve") && argc > 3)
		hostile_serve(argv[2], (unsigned)atoi(argv[3]));
	else if (!strcmp(argv[1], "hostile-call") && argc > 4)
		hostile_call(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
	else
		return 2;
	tell();
	return 0;
}
