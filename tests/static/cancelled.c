/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that sends to itself or asks a connection for what is not there, and is cancelled when its input says so. Its
 * destructor is to run. For cancel_at.c.
 *
 * usage: cancelled PORT: of a peer; 0: of its own.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "edges.h"
#include "marks.h"

#define ROUNDS 500

static int client, server = -1, cleaned;

static void clean(int *arg)
{
	cleaned += *arg;
}

static void *runs(void *arg)
{
	__attribute__((cleanup(clean), unused)) int by = 1;
	char b = 'x';

	printf("%ld\n", syscall(SYS_gettid));
	for (;;) {
		mark_begin();
		if (server >= 0)
			send(client, &b, 1, 0);
		recv(server >= 0 ? server : client, &b, 1, 0);
		mark_end();
	}
	return arg;
}

static void *nothing(void *arg)
{
	return arg;
}

static void connect_to(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);
	int l = -1;

	if (!port) {
		l = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(bind(l, (void *)&a, size) == 0 && listen(l, 4) == 0);
		CHECK(getsockname(l, (void *)&a, &size) == 0);
	}
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (void *)&a, size) == 0);
	if (l >= 0)
		CHECK((server = accept(l, NULL, NULL)) >= 0);
}

/* Until it is known which way the connection goes. */
static void use(void)
{
	char b = 'x';

	for (int i = 0; i < ROUNDS; i++) {
		struct pollfd p = {server >= 0 ? server : client, POLLIN, 0};

		CHECK(send(client, &b, 1, 0) == 1);
		CHECK(poll(&p, 1, 1000) == 1 && recv(p.fd, &b, 1, 0) == 1);
	}
}

int main(int argc, char **argv)
{
	pthread_t t;
	void *result;
	char b;

	CHECK(argc == 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	connect_to(atoi(argv[1]));
	CHECK(fcntl(client, F_SETFL, O_NONBLOCK) == 0);
	use();
	CHECK(pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0);
	CHECK(pthread_create(&t, NULL, runs, NULL) == 0);
	CHECK(read(0, &b, 1) == 1);
	CHECK(pthread_cancel(t) == 0);
	puts("sent");
	CHECK(pthread_join(t, &result) == 0);
	puts(result == PTHREAD_CANCELED && cleaned == 1 ? "cleaned" : "lost");
	return 0;
}
