/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on TCP connections, each telling what it saw: differential.py compares. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

#define PAIRS_AT_FIRST 4

static const char usage[] =
	"usage: differential [--seed N] [--seeds N] [--ops N] [--only I,J,...] "
	"[--seconds N]\n"
	"Does that many random operations for each seed, and prints what they saw.\n";

static struct {
	unsigned long seed, seeds, ops, seconds;
	bool *left_out; /* by number of the operation; NULL: none */
} options = {.seed = 1, .seeds = 1, .ops = 300, .seconds = 60};

static void parse_only(char *list)
{
	options.left_out = malloc(options.ops);
	NEED(options.left_out);
	memset(options.left_out, 1, options.ops);
	for (char *p = strtok(list, ","); p; p = strtok(NULL, ",")) {
		unsigned long i = strtoul(p, NULL, 10);
		if (i < options.ops)
			options.left_out[i] = false;
	}
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {
		{"seed", 1, NULL, 's'}, {"seeds", 1, NULL, 'n'},   {"ops", 1, NULL, 'o'},
		{"only", 1, NULL, 'i'}, {"seconds", 1, NULL, 't'}, {NULL, 0, NULL, 0}};
	char *only = NULL;
	int c;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 's':
			options.seed = strtoul(optarg, NULL, 10);
			break;
		case 'n':
			options.seeds = strtoul(optarg, NULL, 10);
			break;
		case 'o':
			options.ops = strtoul(optarg, NULL, 10);
			break;
		case 't':
			options.seconds = strtoul(optarg, NULL, 10);
			break;
		case 'i':
			only = optarg;
			break;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (only)
		parse_only(only);
}

/* One seed, in a process of its own. */
_Noreturn static void run_seed(unsigned long seed)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	world_start(seed);
	signals_prepare();
	peers_start();
	struct dice d = dice_of(seed, 1ul << 40);
	tell_begin(0, "begin");
	for (int i = 0; i < PAIRS_AT_FIRST; i++)
		pair_open(&d);
	for (int i = 0; i < PEERS; i++)
		peer_connect(i, &d);
	for (unsigned i = 0; i < options.ops; i++)
		if (!options.left_out || !options.left_out[i])
			perform(i, 0);
	tell_begin((unsigned)options.ops, "end");
	peers_end();
	tell("end");
	exit(0);
}

/* Returns its status, or -1 when it had to be killed. */
static int watch(pid_t pid)
{
	int status = -1;
	struct pollfd p = {(int)syscall(SYS_pidfd_open, pid, 0), POLLIN, 0};
	NEED(p.fd >= 0);
	int r = poll(&p, 1, (int)options.seconds * 1000);
	if (r != 1)
		kill(-pid, SIGKILL);
	NEED(waitpid(pid, &status, 0) == pid);
	/* Processes it may have left. */
	kill(-pid, SIGKILL);
	close(p.fd);
	return r == 1 ? status : -1;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--carried"))
		return carried_main(argc, argv);
	parse(argc, argv);
	int null = open("/dev/null", O_RDONLY);
	NEED(null >= 0 && dup2(null, STDIN_FILENO) == 0 && close(null) == 0);
	for (unsigned long seed = options.seed; seed < options.seed + options.seeds;
	     seed++) {
		printf("seed %lu\n", seed);
		fflush(stdout);
		pid_t pid = fork();
		NEED(pid >= 0);
		if (pid == 0)
			run_seed(seed);
		int status = watch(pid);
		if (status == -1)
			printf("hangs\n");
		else
			printf("status %#x\n", (unsigned)status);
		fflush(stdout);
	}
	return 0;
}
