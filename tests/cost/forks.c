/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the pages of memory that forked children have of their own when they end, and the page
 * faults of such children and of their parent, on average. */
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS	  100
#define LOOKED_AT 10 /* so many forks more, whose children are looked at */

static long faults(int who)
{
	struct rusage r;

	return getrusage(who, &r) == 0 ? r.ru_minflt : 0;
}

static void check(int is_right)
{
	if (!is_right)
		exit(1);
}

static void wait_for(pid_t pid)
{
	int status;

	check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* Of all mappings: private pages that only this process has, and what it has touched of shared
 * memory. Not pages of files that it only reads: how many of these a fault maps depends on how
 * the file lies in the page cache. Nor the stack's: the kernel draws where in a page it begins. */
static long own_pages(pid_t pid)
{
	static char text[1 << 18];
	char path[40], *line, *rest, permissions[5] = "";
	size_t size = 0;
	long kilobytes = 0, n;
	bool is_stack = false;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	fd = open(path, O_RDONLY);
	while ((got = read(fd, text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)got;
	check(got == 0 && size < sizeof(text) - 1);
	close(fd);
	text[size] = 0;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (sscanf(line, "%*x-%*x %4s", permissions) == 1)
			is_stack = strstr(line, "[stack]");
		else if (!is_stack && (sscanf(line, "Private_Dirty: %ld", &n) == 1 ||
				       (permissions[3] == 's' &&
					sscanf(line, "Shared_Dirty: %ld", &n) == 1)))
			kilobytes += n;
	return kilobytes * 1024 / sysconf(_SC_PAGESIZE);
}

/* A child that begins only once it is looked at: returns 0 in the child. */
static pid_t fork_looked_at(void)
{
	int go[2];
	char byte = 0;
	pid_t pid;

	check(pipe(go) == 0);
	pid = fork();
	if (pid == 0)
		check(read(go[0], &byte, 1) == 1);
	else
		check(ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACEEXIT) == 0 &&
		      write(go[1], &byte, 1) == 1);
	close(go[0]);
	close(go[1]);
	return pid;
}

/* What it had when all its code had run. */
static long pages_at_end(pid_t pid)
{
	int status;
	long pages;

	check(waitpid(pid, &status, 0) == pid &&
	      status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8));
	pages = own_pages(pid);
	check(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	wait_for(pid);
	return pages;
}

/* Children that end at once. */
static void end_at_once(void)
{
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (pid == 0)
			exit(0);
		wait_for(pid);
	}
}

static long pages_of_end(void)
{
	long pages = 0;

	for (int i = 0; i < LOOKED_AT; i++) {
		pid_t pid = fork_looked_at();

		if (pid == 0)
			exit(0);
		pages += pages_at_end(pid);
	}
	return pages / LOOKED_AT;
}

static void answer(int listener, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(0);
	char byte;

	close(listener);
	check(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) == 0);
	check(epoll_wait(epfd, &ev, 1, -1) == 1);
	check(read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1);
	exit(0);
}

static void ask(const struct sockaddr_in *to)
{
	for (int i = 0; i < FORKS + LOOKED_AT; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		char byte = 1;

		check(connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0);
		check(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
		close(fd);
	}
	exit(0);
}

/* Children that answer a byte and end without a close. */
static void serve(int listener)
{
	for (int i = 0; i < FORKS; i++) {
		int fd = accept(listener, NULL, NULL);
		pid_t pid = fork();

		if (pid == 0)
			answer(listener, fd);
		close(fd);
		wait_for(pid);
	}
}

static long pages_of_serve(int listener)
{
	long pages = 0;

	for (int i = 0; i < LOOKED_AT; i++) {
		int fd = accept(listener, NULL, NULL);
		pid_t pid = fork_looked_at();

		if (pid == 0)
			answer(listener, fd);
		close(fd);
		pages += pages_at_end(pid);
	}
	return pages / LOOKED_AT;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	long of_children, of_servers, of_parent, pages[2], end_faults, serve_faults;
	pid_t asker;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(listener, (struct sockaddr *)&at, len) == 0 &&
	      listen(listener, 1) == 0);
	check(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	of_children = faults(RUSAGE_CHILDREN);
	end_at_once();
	of_servers = faults(RUSAGE_CHILDREN);
	of_parent = faults(RUSAGE_SELF);
	asker = fork();
	if (asker == 0)
		ask(&at);
	serve(listener);
	end_faults = of_servers - of_children;
	serve_faults = faults(RUSAGE_CHILDREN) - of_servers;
	of_parent = faults(RUSAGE_SELF) - of_parent;
	pages[0] = pages_of_end();
	pages[1] = pages_of_serve(listener);
	printf("%ld %ld %ld %ld %ld\n", pages[0], pages[1], of_parent / FORKS,
	       end_faults / FORKS, serve_faults / FORKS);
	wait_for(asker);
	return 0;
}
