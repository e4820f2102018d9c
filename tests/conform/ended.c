/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a signal, or a cancellation, that comes while a call sleeps. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "call.h"

/* ---- a process that a signal ends, while the kernel holds a lock in a sleep of another thread ---- */

struct locker {
	int in, out;
};

static void run_splice(void *arg)
{
	struct locker *l = arg;
	say_result("splice", splice(l->in, NULL, l->out, NULL, 65536, 0));
}

/* The first thread waits for the pipe, with which the other sleeps: in state D. */
static _Noreturn void wait_for_pipe(struct signal_pipe up)
{
	struct pair p = pair_warm_open();
	struct signal_pipe pipe = signal_pipe();
	struct locker l = {p.s, pipe.fd[1]};
	struct worker t;
	worker_start(&t, run_splice, &l);
	wait_crowd_asleep(&t.tid, 1);
	signal_send(up);
	signal_wait(pipe);
	broken("the pipe is empty");
}

static void end_behind_splice(int sig)
{
	struct signal_pipe up = signal_pipe();
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		alarm(60);
		wait_for_pipe(up);
	}
	signal_wait(up);
	wait_in_state(pid, pid, "SD");
	NEED(kill(pid, sig) == 0);
	say("status %d", child_status(pid));
}

CASE(ended_behind_a_splice, ANYWAY)
{
	end_behind_splice(SIGTERM);
	end_behind_splice(SIGINT);
	end_behind_splice(SIGHUP);
}

/* ---- the first process of a pid namespace, which such a signal does not even wake ---- */

CASE(ended_not_as_the_first, DIRECT)
{
	struct pair p = pair_warm_open();
	struct signal_pipe go = signal_pipe();
	struct pollfd look = {go.fd[0], POLLIN, 0};
	if (unshare(CLONE_NEWPID) != 0)
		skip("no pid namespace can be made");
	pid_t pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		say_as("child");
		say("process %d", (int)getpid());
		say_result("poll", poll(&look, 1, -1));
		_exit(0);
	}
	wait_asleep(pid, pid);
	NEED(kill(pid, SIGTERM) == 0);
	wait_in_state(pid, pid, "SZ");
	signal_send(go);
	say("status %d", child_status(pid));
	pair_close(p);
}
