/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: another thread closes the connection in the first moment of a splice: see between.c. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conform/between.h"

static struct {
	int number;
	_Atomic bool due, done;
} closing;

static void close_when_due(void *arg)
{
	(void)arg;
	while (!atomic_load(&closing.due))
		sched_yield();
	NEED(close(closing.number) == 0);
	atomic_store(&closing.done, true);
}

/* On TCP it is before the call. */
static void at_first_question(void)
{
	atomic_store(&closing.due, true);
	while (!atomic_load(&closing.done))
		sched_yield();
}

static void splice_closed(bool into)
{
	between_call *between = between_need();
	struct pair p = pair_warm_open();
	struct worker other;
	int pipes[2];
	char bytes[8];
	ssize_t n;

	NEED(pipe(pipes) == 0 && write(pipes[1], "abcd", 4) == 4);
	closing.number = p.s;
	closing.due = closing.done = false;
	worker_start(&other, close_when_due, NULL);
	NEED(between(at_first_question) == 0);
	n = into ? splice(pipes[0], NULL, p.s, NULL, 4, 0)
		 : splice(p.s, NULL, pipes[1], NULL, 4, 0);
	between(NULL);
	say_result(into ? "into it" : "from it", n);
	NEED(atomic_load(&closing.done));
	worker_join(&other);
	say_result("end", recv(p.c, bytes, sizeof(bytes), 0));
	close(p.c);
	close(pipes[1]);
	say_result("in the pipe", read(pipes[0], bytes, sizeof(bytes)));
	close(pipes[0]);
}

CASE(between_splice_from, DIRECT)
{
	splice_closed(false);
}

CASE(between_splice_into, DIRECT)
{
	splice_closed(true);
}
