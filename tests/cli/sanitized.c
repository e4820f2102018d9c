/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads talk over a connection, and a handler is there: says "done". */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS 300

static void *echo(void *arg)
{
	char buf[64];
	int fd = accept(*(int *)arg, NULL, NULL);

	for (ssize_t n; (n = read(fd, buf, sizeof(buf))) > 0;)
		if (write(fd, buf, (size_t)n) != n)
			return NULL;
	close(fd);
	return arg;
}

static volatile sig_atomic_t seen;

static void handler(int sig)
{
	seen = sig;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0),
	    fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sigaction act = {.sa_handler = handler};
	pthread_t thread;
	void *result;
	char buf[64];

	sigaction(SIGUSR1, &act, NULL);
	if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len) ||
	    pthread_create(&thread, NULL, echo, &listener) ||
	    connect(fd, (struct sockaddr *)&at, len))
		return 1;
	for (int i = 0; i < TURNS; i++) {
		if (write(fd, "question", 8) != 8 || recv(fd, buf, 8, MSG_WAITALL) != 8 ||
		    memcmp(buf, "question", 8))
			return 1;
		if (i == TURNS / 2)
			raise(SIGUSR1);
	}
	shutdown(fd, SHUT_WR);
	if (pthread_join(thread, &result) || !result || seen != SIGUSR1)
		return 1;
	puts("done");
	return 0;
}
