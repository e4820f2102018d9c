/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the client in which something happens amid the calls: other threads, signals, forks, and the
 * way back to TCP. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "call.h"

__attribute__((weak)) void viaduct_test_bounce(int fd);

struct worker {
	pthread_t thread;
	CLIENT *cl;
	int wrong, calls;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < w->calls; i++) {
		int result = 0;

		if (call(w->cl, NEXT, xdr_int, &i, xdr_int, &result, LONG_MS) !=
			    RPC_SUCCESS ||
		    result != i + 1)
			w->wrong++;
	}
	return NULL;
}

/* Two threads on one handle, and two with one each. */
void case_threads(CLIENT *cl)
{
	struct worker w[4] = {{0}};

	for (int i = 0; i < 4; i++) {
		w[i].cl = i < 2 ? cl : connect_to(PEERS, PEERS_1);
		w[i].calls = 2000;
		pthread_create(&w[i].thread, NULL, work, &w[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(w[i].thread, NULL);
		printf("thread %d: wrong %d\n", i, w[i].wrong);
		if (i >= 2)
			clnt_destroy(w[i].cl);
	}
}

static volatile sig_atomic_t handled, in_call, amid;
static struct itimerval again; /* the next signal, after the handler */

static void handler(int sig)
{
	(void)sig;
	handled++;
	amid += in_call;
	setitimer(ITIMER_REAL, &again, NULL);
}

/* For the server's answer it is too early. */
static bool_t note_results(XDR *xdrs, int *n)
{
	in_call = 0;
	return xdr_int(xdrs, n);
}

/* A handler runs before or after a call, not in the middle. */
void case_signal(CLIENT *cl)
{
	struct itimerval soon = {.it_value = {0, 30000}};
	int ms = 200, result = 0;

	signal(SIGALRM, handler);
	for (int i = 0; i < 3; i++) {
		setitimer(ITIMER_REAL, &soon, NULL);
		in_call = 1;
		say(cl, "call",
		    call(cl, NAP, xdr_int, &ms, note_results, &result, LONG_MS));
		printf("  %d, handled %d, amid %d\n", result, handled, amid);
	}
	/* Many, wherever they come. */
	again.it_value.tv_usec = 300;
	setitimer(ITIMER_REAL, &again, NULL);
	for (int i = 0; i < 5000; i++)
		if (call(cl, NEXT, xdr_int, &i, xdr_int, &result, LONG_MS) !=
			    RPC_SUCCESS ||
		    result != i + 1)
			printf("call %d: %d\n", i, result);
	again.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &again, NULL);
	next(cl, "after");
	printf("some %d\n", handled > 3);
	signal(SIGALRM, SIG_DFL);
}

void case_fork(CLIENT *cl)
{
	int status;

	for (int i = 0; i < 5; i++) {
		int result = 0;

		say(cl, "forked server",
		    call(cl, FORKED, xdr_int, &i, xdr_int, &result, LONG_MS));
		printf("  %d\n", result);
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		next(cl, "child");
		clnt_destroy(cl);
		fflush(stdout);
		_exit(3);
	}
	waitpid(child, &status, 0);
	printf("status %d\n", WEXITSTATUS(status));
	next(cl, "parent");
}

static _Atomic bool bouncing;

static void *bounce(void *arg)
{
	int fd = fd_of(arg);

	/* The handle's turn is not needed: the descriptor stays. */
	while (atomic_load(&bouncing)) {
		viaduct_test_bounce(fd);
		usleep(500);
	}
	return NULL;
}

/* Amid calls of all sizes both ends take the connection back to TCP, again and again. */
void case_bounce(CLIENT *cl)
{
	pthread_t thread;
	int wrong = 0;

	atomic_store(&bouncing, true);
	if (viaduct_test_bounce)
		pthread_create(&thread, NULL, bounce, cl);
	for (int i = 0; i < 3000; i++) {
		u_int len = (u_int)(i * 7919 % (i % 50 ? 3000 : 300000));
		blob b = blob_of(len, (u_int)i), back = {0, NULL};

		wrong += call(cl, ECHO_BLOB, xdr_blob, &b, xdr_blob, &back, LONG_MS) !=
				 RPC_SUCCESS ||
			 back.blob_len != len || memcmp(back.blob_val, b.blob_val, len);
		clnt_freeres(cl, (xdrproc_t)xdr_blob, &back);
		free(b.blob_val);
		if (i % 10 == 0)
			wrong += bounce_1(&i, cl) == NULL;
	}
	atomic_store(&bouncing, false);
	if (viaduct_test_bounce)
		pthread_join(thread, NULL);
	printf("wrong %d\n", wrong);
}
