/* SPDX-License-Identifier: Apache-2.0 */
/* Has a program's thread cancelled at an instruction between mark_begin and mark_end: see cancelled.c. Each time in a process
 * of its own, since the program's connections go another way from then on. Without Viaduct itself, it is the peer.
 *
 * usage: cancel_at MARK_BEGIN MARK_END ring|plain FIRST STEP PROGRAM...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define BREAK 0xcc

static unsigned long begin, end;
static int listener, port;
static long is_exact;
static pid_t peer;

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void echo(void)
{
	char b;
	int fd = accept(listener, NULL, NULL);

	while (fd >= 0 && read(fd, &b, 1) == 1 && write(fd, &b, 1) == 1)
		;
	_exit(0);
}

static void listen_here(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&a, size) != 0 || listen(listener, 4) != 0 ||
	    getsockname(listener, (void *)&a, &size) != 0)
		fail("listen");
	port = ntohs(a.sin_port);
}

/* A new program, and what it reads and writes. */
static pid_t start(char **argv, FILE **in, FILE **out)
{
	int to[2], from[2];
	pid_t pid;

	if (pipe(to) != 0 || pipe(from) != 0)
		fail("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	*in = fdopen(to[1], "w");
	*out = fdopen(from[0], "r");
	if (pid < 0 || !*in || !*out)
		fail("start");
	return pid;
}

static void say(FILE *in)
{
	if (fputc('x', in) == EOF || fflush(in) != 0)
		fail("say");
}

static bool hears(FILE *out, const char *what)
{
	char line[100] = "";

	return fgets(line, sizeof(line), out) && strncmp(line, what, strlen(what)) == 0;
}

static void go(pid_t tid, int how)
{
	int status;

	if (ptrace(how, tid, 0, 0) != 0 || waitpid(tid, &status, __WALL) != tid ||
	    !WIFSTOPPED(status))
		fail("trace");
}

/* Takes the thread so many instructions behind mark_begin. False: mark_end is not so far. */
static bool bring(pid_t tid, long instructions)
{
	struct user_regs_struct regs;
	long word;

	if (ptrace(PTRACE_SEIZE, tid, 0, 0) != 0)
		fail("seize");
	go(tid, PTRACE_INTERRUPT);
	word = ptrace(PTRACE_PEEKTEXT, tid, begin, 0);
	ptrace(PTRACE_POKETEXT, tid, begin, (word & ~0xffl) | BREAK);
	go(tid, PTRACE_CONT);
	ptrace(PTRACE_POKETEXT, tid, begin, word);
	for (long i = 0; i < instructions; i++) {
		go(tid, PTRACE_SINGLESTEP);
		ptrace(PTRACE_GETREGS, tid, 0, &regs);
		if (regs.rip == end)
			return false;
	}
	return true;
}

/* Whether it says something soon. A thread that holds a connection's lock is waited for, and gets its signal later. */
static bool says(FILE *out)
{
	struct pollfd p = {fileno(out), POLLIN, 0};

	return poll(&p, 1, 100) == 1;
}

/* -1: beyond the end; 0: its destructor has not run; 1: it has. */
static int cancel_at(char **argv, long instructions)
{
	FILE *in, *out;
	char line[100];
	pid_t pid = start(argv, &in, &out), tid = 0;
	int status, result = -1;

	if (!fgets(line, sizeof(line), out) || (tid = atoi(line)) <= 0)
		fail("no thread");
	usleep(1000);
	if (bring(tid, instructions)) {
		say(in);
		is_exact += says(out);
		ptrace(PTRACE_DETACH, tid, 0, 0);
		alarm(10);
		result = hears(out, "sent") && hears(out, "cleaned");
		alarm(0);
	} else {
		kill(pid, SIGKILL);
		waitpid(tid, &status, __WALL);
	}
	fclose(in);
	fclose(out);
	if (waitpid(pid, &status, 0) != pid)
		fail("wait");
	return result;
}

int main(int argc, char **argv)
{
	long at, step, lost = 0;
	bool is_plain;
	int result;
	char number[20];

	if (argc < 7)
		return 2;
	begin = strtoul(argv[1], NULL, 16);
	end = strtoul(argv[2], NULL, 16);
	is_plain = strcmp(argv[3], "plain") == 0;
	at = atol(argv[4]);
	step = atol(argv[5]);
	if (is_plain)
		listen_here();
	snprintf(number, sizeof(number), "%d", port);
	argv[argc] = NULL;
	for (;; at += step) {
		char *run[20] = {0};
		int n = 0;

		for (int i = 6; i < argc && n < 18; i++)
			run[n++] = argv[i];
		run[n] = number;
		peer = is_plain ? fork() : 0;
		if (is_plain && peer == 0)
			echo();
		result = cancel_at(run, at);
		if (is_plain) {
			kill(peer, SIGKILL);
			waitpid(peer, NULL, 0);
		}
		if (result < 0)
			break;
		if (result == 0) {
			printf("lost at instruction %ld\n", at);
			lost++;
		}
	}
	printf("%ld instructions, %ld lost, %ld exact\n", at, lost, is_exact);
	return lost > 0;
}
