/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between the processes of one benchmark, over TCP or AF_UNIX: plain sockets calls. */
#ifndef BENCH_PROGRAMS_LOCAL_H
#define BENCH_PROGRAMS_LOCAL_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../need.h"

struct place {
	struct sockaddr_storage at;
	socklen_t size;
	int listener;
};

static inline double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* `over` is tcp or unix. An AF_UNIX name is one of the kernel's choice, without a file. */
static inline struct place place_open(const char *over)
{
	struct place p = {.size = sizeof(p.at)};
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	sa_family_t family = AF_UNIX;
	int is_unix = !strcmp(over, "unix");

	NEED(is_unix || !strcmp(over, "tcp"));
	p.listener = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
	NEED(p.listener >= 0);
	NEED(is_unix ? bind(p.listener, (void *)&family, sizeof(family)) == 0
		     : bind(p.listener, (void *)&in, sizeof(in)) == 0);
	NEED(listen(p.listener, 16) == 0);
	NEED(getsockname(p.listener, (void *)&p.at, &p.size) == 0);
	return p;
}

static inline int no_delay(int fd)
{
	int on = 1;

	NEED(fd >= 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* AF_UNIX has none */
	return fd;
}

static inline int place_connect(const struct place *p)
{
	int fd = socket(p->at.ss_family, SOCK_STREAM, 0);

	NEED(fd >= 0 && connect(fd, (const void *)&p->at, p->size) == 0);
	return no_delay(fd);
}

static inline int place_accept(const struct place *p)
{
	return no_delay(accept(p->listener, NULL, NULL));
}

static inline void put_all(int fd, const void *from, size_t size)
{
	for (const char *at = from; size > 0;) {
		ssize_t n = write(fd, at, size);

		NEED(n > 0);
		at += n;
		size -= (size_t)n;
	}
}

static inline void get_all(int fd, void *to, size_t size)
{
	for (char *at = to; size > 0;) {
		ssize_t n = read(fd, at, size);

		NEED(n > 0);
		at += n;
		size -= (size_t)n;
	}
}

/* A child that ended in another way than by exit(0) spoils the figure. */
static inline void children_end(int count)
{
	int status;

	while (count-- > 0)
		NEED(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Of what was computed: the same over each way, or bytes were lost. */
static inline unsigned long sum_of(const void *of, size_t size)
{
	const unsigned char *at = of;
	unsigned long sum = 14695981039346656037u;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ at[i]) * 1099511628211u;
	return sum;
}

static inline void tell(double seconds, unsigned long sum)
{
	printf("%.6f s, sum %016lx\n", seconds, sum);
}

#endif
