/* SPDX-License-Identifier: Apache-2.0 */
/* A program with much of a C library in it, to be looked through: it is not run. */
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void *thread(void *arg)
{
	return arg;
}

int main(void)
{
	struct addrinfo *found;
	struct pollfd p = {.fd = 0};
	struct msghdr m = {0};
	pthread_t t;

	if (pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL) ||
	    getaddrinfo("127.0.0.1", "80", NULL, &found))
		return 1;
	pthread_cancel(t);
	signal(SIGUSR1, SIG_IGN);
	p.fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(p.fd, found->ai_addr, found->ai_addrlen) || listen(p.fd, 1))
		return 1;
	printf("%d %zd %zd %d %d\n", poll(&p, 1, 1), sendmsg(p.fd, &m, 0),
	       recvmsg(p.fd, &m, 0), epoll_create1(0), accept(p.fd, NULL, NULL));
	return fork() ? system("true") : shutdown(p.fd, SHUT_RDWR);
}
