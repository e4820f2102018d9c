/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes and one TCP connection between them, which doctor runs under the library. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/doctor/doctor.h"

/* Enough rounds for both ends to look for each other several times. */
enum { ROUNDS = 512, MESSAGE_BYTES = 64, ENDS_LIMIT_S = 10 };

static bool receive(int fd, unsigned char *buf)
{
	for (size_t have = 0; have < MESSAGE_BYTES;) {
		ssize_t n = recv(fd, buf + have, MESSAGE_BYTES - have, 0);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

static bool send_message(int fd, const unsigned char *buf)
{
	/* Either all or, on a blocking socket, an error. */
	return send(fd, buf, MESSAGE_BYTES, MSG_NOSIGNAL) == MESSAGE_BYTES;
}

static bool client(const struct sockaddr_in *at)
{
	unsigned char out[MESSAGE_BYTES], in[MESSAGE_BYTES];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0)
		return false;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(out, (int)(i % 251), sizeof(out));
		if (!send_message(fd, out) || !receive(fd, in) ||
		    memcmp(in, out, sizeof(in)) != 0)
			return false;
	}
	return close(fd) == 0;
}

/* The pipe hangs up when the client has ended. */
static bool server(int listener, int client_alive)
{
	unsigned char buf[MESSAGE_BYTES];
	struct pollfd p[] = {{.fd = listener, .events = POLLIN}, {.fd = client_alive}};
	int fd = -1, on = 1;

	if (poll(p, 2, -1) > 0 && p[0].revents)
		fd = accept(listener, NULL, NULL);
	if (fd < 0)
		return false;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (unsigned i = 0; i < ROUNDS; i++)
		if (!receive(fd, buf) || !send_message(fd, buf))
			return false;
	/* The client's close: everything has arrived. */
	return recv(fd, buf, 1, 0) == 0;
}

int doctor_ends(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status = -1,
	    alive[2];
	pid_t parent = getpid(), pid;
	bool well;

	alarm(ENDS_LIMIT_S);
	if (pipe2(alive, O_CLOEXEC) != 0 || listener < 0 ||
	    bind(listener, (struct sockaddr *)&at, len) != 0 ||
	    listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &len) != 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		alarm(ENDS_LIMIT_S); /* not inherited */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		exit(client(&at) ? 0 : 1); /* by way of the library's own end */
	}
	if (pid < 0)
		return 1;
	close(alive[1]);
	well = server(listener, alive[0]);
	return waitpid(pid, &status, 0) == pid && status == 0 && well ? 0 : 1;
}
