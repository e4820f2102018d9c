/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the page faults of forked children, and of their parent, on average. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 100

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

/* The first figure: children that end at once. */
static void end_at_once(void)
{
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (pid == 0)
			exit(0);
		wait_for(pid);
	}
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
	for (int i = 0; i < FORKS; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		char byte = 1;

		check(connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0);
		check(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
		close(fd);
	}
	exit(0);
}

/* The second and third: children that answer a byte and end without a close, and their parent. */
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

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	long of_children, of_servers, of_parent;
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
	printf("%ld %ld %ld\n", (of_servers - of_children) / FORKS,
	       (faults(RUSAGE_CHILDREN) - of_servers) / FORKS,
	       (faults(RUSAGE_SELF) - of_parent) / FORKS);
	wait_for(asker);
	return 0;
}
