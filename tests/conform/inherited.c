/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a service that has its connection as descriptors 0 to 2, as inetd and systemd give it. */
/*
 * Such a connection stays on TCP. Each case is a program that would notice if it did not: in the one or the other
 * way bytes would be missed, come in another order, or be followed by an end that is none.
 */
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* libc's, which no header declares: the end of a program whose stack has been overwritten. */
_Noreturn void __stack_chk_fail(void);

/* In the image that is the service; what it says goes to the connection. */
static bool is_service(void)
{
	return getenv("INHERITED_SERVICE") != NULL;
}

/* Starts it on the connection, which this process keeps. */
static pid_t serve(const char *name, int fd)
{
	pid_t pid = fork();

	NEED(pid >= 0);
	if (pid == 0) {
		for (int number = 0; number <= 2; number++)
			NEED(dup2(fd, number) == number);
		close(fd);
		setenv("INHERITED_SERVICE", "1", 1);
		execl("/proc/self/exe", "cases", name, (char *)NULL);
		_exit(99);
	}
	return pid;
}

/* ---- somebody else has it, too ---- */

static void sends_two_words(int fd, void *arg)
{
	char buf[8] = "";

	(void)arg;
	warm_first(fd);
	send_all(fd, "one two ", 8);
	recv_all(fd, buf, 4);
	say("%s", buf);
}

/* What a service has not read is left to the next one: a shell's commands, one after another. */
static void leaves_the_rest(const char *name, bool is_killed)
{
	char buf[8] = "";
	pid_t peer, pid;
	int fd;

	if (is_service()) {
		warm_second(0);
		wait_inq(0, 8);
		if (read(0, buf, 4) == 4 && !memcmp(buf, "one ", 4) && is_killed)
			raise(SIGKILL);
		_exit(7);
	}
	fd = peer_start_cold(sends_two_words, NULL, &peer);
	pid = serve(name, fd);
	say("service: %d", child_status(pid));
	recv_all(fd, buf, 4);
	say("%s", buf);
	send_all(fd, "read", 4);
	say("peer: %d", child_status(peer));
	close(fd);
}

CASE(inherited_rest, ANYWAY)
{
	leaves_the_rest("inherited_rest", false);
}

CASE(inherited_rest_of_killed, ANYWAY)
{
	leaves_the_rest("inherited_rest_of_killed", true);
}

static void looks_for_the_end(int fd, void *arg)
{
	const struct signal_pipe *gone = arg;
	char buf[8] = "";

	warm_first(fd);
	recv_all(fd, buf, 4);
	say("%s", buf);
	signal_wait(gone[0]);
	say_result("no end", recv(fd, buf, 1, MSG_DONTWAIT));
	signal_send(gone[1]);
	recv_all(fd, buf, 4);
	say("%s", buf);
	say_result("the end", recv(fd, buf, 1, 0));
}

/* systemd keeps the connection of a service with Accept=yes for as long as that runs. */
CASE(inherited_end, ANYWAY)
{
	struct signal_pipe gone[2];
	pid_t peer, pid;
	int fd;

	if (is_service()) {
		warm_second(0);
		send_all(1, "bye ", 4);
		for (int number = 0; number <= 2; number++)
			close(number);
		_exit(0);
	}
	gone[0] = signal_pipe();
	gone[1] = signal_pipe();
	fd = peer_start_cold(looks_for_the_end, gone, &peer);
	pid = serve("inherited_end", fd);
	say("service: %d", child_status(pid));
	signal_send(gone[0]);
	signal_wait(gone[1]);
	send_all(fd, "more", 4);
	close(fd);
	say("peer: %d", child_status(peer));
}

/* ---- words that libc writes by itself ---- */

static void reads_all(int fd, void *arg)
{
	char buf[512] = "";
	size_t got = 0;
	ssize_t n;

	(void)arg;
	warm_first(fd);
	while ((n = recv(fd, buf + got, sizeof buf - 1 - got, 0)) > 0)
		got += (size_t)n;
	say_result("end", n);
	for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
		say("%s", line);
}

static void speaks(void)
{
	const struct rlimit none = {0, 0};
	siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_USER};

	setrlimit(RLIMIT_CORE, &none);
	warm_second(0);
	write(2, "first\n", 6);
	herror("second");
	fprintf(stderr, "third\n");
	psiginfo(&info, "fourth");
	psignal(SIGUSR2, "fifth");
	write(1, "sixth\n", 6);
	/* The stack is whole: only its words count. */
	__stack_chk_fail();
}

/* In the order in which they were written, past all functions of ours and through them. */
CASE(inherited_words, ANYWAY)
{
	pid_t peer, pid;
	int fd;

	if (is_service())
		speaks();
	fd = peer_start_cold(reads_all, NULL, &peer);
	pid = serve("inherited_words", fd);
	close(fd);
	say("service: %d", child_status(pid));
	say("peer: %d", child_status(peer));
}

/* ---- streams, and calls on the descriptors ---- */

static void converses(int fd, void *arg)
{
	char text[] = "12 words\nline\nxyz0123456789to the child\nto the shell\n",
	     buf[256] = "";
	size_t got = 0;
	ssize_t n;

	(void)arg;
	warm_first(fd);
	send_all(fd, text, 9);
	recv_all(fd, buf, 17);
	say("in order: %d", !strcmp(buf, "12 and words\nraw\n"));
	memset(buf, 0, sizeof buf);
	send_all(fd, text + 9, sizeof text - 1 - 9);
	while ((n = recv(fd, buf + got, sizeof buf - 1 - got, 0)) > 0)
		got += (size_t)n;
	say_result("end", n);
	for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
		say("%s", line);
}

static void talks(void)
{
	char word[32] = "", line[32] = "", three[4] = "";
	int number = 0;

	warm_second(0);
	setvbuf(stdin, NULL, _IONBF, 0);
	if (scanf("%d %31s", &number, word) != 2 || getchar() != '\n')
		_exit(1);
	printf("%d and %s", number, word);
	fflush(stdout);
	write(1, "\nraw\n", 5);
	if (!fgets(line, sizeof line, stdin) || read(0, three, 3) != 3 ||
	    ungetc('u', stdin) != 'u' || getchar_unlocked() != 'u')
		_exit(2);
	printf("%s%s\n", line, three);
	if (fread(line, 1, 10, stdin) != 10)
		_exit(3);
	printf("%.10s\n", line);
	fflush(stdout);
	printf("twice\n");
	if (fork() == 0) {
		if (fgets(line, sizeof line, stdin))
			printf("child: %s", line);
		exit(0);
	}
	wait(NULL);
	fflush(stdout);
	dup2(1, 9);
	dprintf(9, "duplicate\n");
	execl("/bin/sh", "sh", "-c", "read -r a; echo \"shell: $a\"; echo error >&2",
	      (char *)NULL);
	_exit(4);
}

CASE(inherited_streams, ANYWAY)
{
	pid_t peer, pid;
	int fd;

	if (is_service())
		talks();
	fd = peer_start_cold(converses, NULL, &peer);
	pid = serve("inherited_streams", fd);
	close(fd);
	say("service: %d", child_status(pid));
	say("peer: %d", child_status(peer));
}
