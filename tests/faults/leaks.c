/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of connections, used and closed or killed: nothing of them may be left. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Connections open at the same time. */
#define BATCH 16
/* What a process may keep for later use grows up to here, not with the connections. */
#define SPARE 8
#define TURNS 12

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "leaks: %s: %s (pid %d)\n", what, strerror(errno), (int)getpid());
	exit(1);
}

struct holding {
	int fds, maps;
};

static int count_fds(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	if (!d)
		fail("/proc/self/fd");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int count_maps(void)
{
	char line[1024];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	if (!f)
		fail("/proc/self/maps");
	while (fgets(line, sizeof line, f))
		n++;
	fclose(f);
	return n;
}

static struct holding holding(void)
{
	return (struct holding){count_fds(), count_maps()};
}

static void check_holding(const char *who, struct holding before)
{
	struct holding now = holding();
	if (now.fds <= before.fds + SPARE && now.maps <= before.maps + SPARE)
		return;
	fprintf(stderr,
		"leaks: the %s has %d descriptors and %d mappings, before %d and %d\n",
		who, now.fds, now.maps, before.fds, before.maps);
	char command[64];
	snprintf(command, sizeof command,
		 "ls -l /proc/%d/fd /proc/%d/map_files | tail -40 >&2", (int)getpid(),
		 (int)getpid());
	if (system(command) != 0)
		fprintf(stderr, "leaks: and cannot list them\n");
	exit(1);
}

/* ---- the connections ---- */

static int listen_any(uint16_t *port)
{
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t len = sizeof own;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&own, len) != 0 ||
	    listen(fd, 128) != 0 || getsockname(fd, (struct sockaddr *)&own, &len) != 0)
		fail("listen");
	*port = ntohs(own.sin_port);
	return fd;
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		fail("socket");
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Returns false at the end of the connection. */
static bool transfer(int fd, char *buf, size_t len, bool in)
{
	while (len > 0) {
		ssize_t r = in ? recv(fd, buf, len, 0) : send(fd, buf, len, MSG_NOSIGNAL);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		buf += r;
		len -= (size_t)r;
	}
	return true;
}

/*
 * The client says how it will end: 'c' closes first, 's' lets the server do it, 'r' resets,
 * 'h' shuts down both halves in turn, 'u' leaves bytes unread.
 */
static void client_talk(int fd, unsigned n)
{
	static const char endings[] = "cshru";
	char buf[1024] = {0};
	buf[0] = endings[n % 5];
	size_t len = 1 + n * 37 % sizeof buf;
	for (int i = 0; i < TURNS; i++) {
		buf[1] = (char)(i == TURNS - 1);
		if (!transfer(fd, buf, sizeof buf, false))
			return;
		if (buf[0] == 'u' && i == TURNS - 1)
			return;
		if (!transfer(fd, buf, len, true))
			return;
		if (!transfer(fd, buf + len, sizeof buf - len, true))
			return;
	}
	struct linger linger = {1, 0};
	if (buf[0] == 'r')
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	if (buf[0] == 'h')
		shutdown(fd, SHUT_WR);
	if (buf[0] == 'h' || buf[0] == 's')
		transfer(fd, buf, 1, true);
}

static void server_talk(int fd)
{
	char buf[1024];
	while (transfer(fd, buf, sizeof buf, true)) {
		if (!transfer(fd, buf, sizeof buf, false))
			break;
		if (buf[1] && buf[0] == 's')
			break;
	}
}

/* A batch of connections is open at once; each is served by a thread's worth of calls. */
static void client_batch(uint16_t port, unsigned from)
{
	int fds[BATCH];
	for (unsigned i = 0; i < BATCH; i++)
		fds[i] = connect_to(port);
	for (unsigned i = 0; i < BATCH; i++) {
		if (fds[i] < 0)
			continue;
		client_talk(fds[i], from + i);
		close(fds[i]);
	}
}

static void server_batch(int listener)
{
	int fds[BATCH];
	for (unsigned i = 0; i < BATCH; i++) {
		fds[i] = accept(listener, NULL, NULL);
		if (fds[i] < 0)
			fail("accept");
	}
	for (unsigned i = 0; i < BATCH; i++) {
		server_talk(fds[i]);
		close(fds[i]);
	}
}

/* ---- quiet: both processes live, and compare themselves with how they began ---- */

static void run_quiet(int listener, uint16_t port, unsigned batches)
{
	struct holding start = {0};
	pid_t client = fork();
	if (client < 0)
		fail("fork");
	if (client == 0)
		close(listener);
	for (unsigned b = 0; b < batches; b++) {
		if (client == 0)
			client_batch(port, b * BATCH);
		else
			server_batch(listener);
		/* What is made once and kept is there by now. */
		if (b == 3)
			start = holding();
	}
	check_holding(client == 0 ? "client" : "server", start);
	if (client == 0)
		exit(0);
	int status;
	if (waitpid(client, &status, 0) != client || status != 0)
		fail("the client failed");
}

/* ---- kills: clients die in the middle, and so does a server ---- */

static void killed_client(uint16_t port, unsigned n)
{
	int fds[BATCH];
	for (unsigned i = 0; i < BATCH; i++)
		fds[i] = connect_to(port);
	for (unsigned i = 0; i < BATCH; i++) {
		char buf[1024] = {'c'};
		for (unsigned k = 0; k < (n + i) % (2 * TURNS); k++) {
			transfer(fds[i], buf, sizeof buf, false);
			if (k % 7 != 6)
				transfer(fds[i], buf, sizeof buf, true);
		}
	}
	raise(SIGKILL);
}

/* Serves a batch whose client dies: nobody waits on a connection that says nothing. */
static void serve_doomed(int listener)
{
	struct pollfd fds[BATCH];
	char buf[1024];
	int open = BATCH;
	for (unsigned i = 0; i < BATCH; i++) {
		fds[i] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
		if (fds[i].fd < 0)
			fail("accept");
	}
	while (open > 0) {
		if (poll(fds, BATCH, -1) < 0)
			fail("poll");
		for (unsigned i = 0; i < BATCH; i++) {
			if (fds[i].fd < 0 || !fds[i].revents)
				continue;
			if (transfer(fds[i].fd, buf, sizeof buf, true) &&
			    transfer(fds[i].fd, buf, sizeof buf, false))
				continue;
			close(fds[i].fd);
			fds[i].fd = -1;
			open--;
		}
	}
}

static void run_client_kills(int listener, uint16_t port, unsigned batches)
{
	struct holding start = {0};
	for (unsigned b = 0; b < batches; b++) {
		pid_t client = fork();
		if (client == 0) {
			close(listener);
			killed_client(port, b);
		}
		serve_doomed(listener);
		int status;
		if (waitpid(client, &status, 0) != client)
			fail("waitpid");
		if (b == 3)
			start = holding();
	}
	check_holding("server after kills", start);
}

static void run_server_kills(unsigned batches)
{
	struct holding start = {0};
	for (unsigned b = 0; b < batches; b++) {
		uint16_t port;
		int fds[BATCH], status, listener = listen_any(&port);
		pid_t server = fork();
		if (server == 0) {
			char buf[1024];
			for (unsigned i = 0; i < BATCH; i++)
				fds[i] = accept(listener, NULL, NULL);
			for (unsigned i = 0; i < BATCH; i++)
				for (unsigned k = 0; k < (b + i) % (2 * TURNS); k++)
					if (transfer(fds[i], buf, sizeof buf, true))
						transfer(fds[i], buf, sizeof buf, false);
			raise(SIGKILL);
		}
		close(listener);
		for (unsigned i = 0; i < BATCH; i++)
			fds[i] = connect_to(port);
		char buf[1024] = {'c'};
		for (unsigned i = 0; i < BATCH; i++)
			for (unsigned k = 0; k < (b + i) % (2 * TURNS); k++)
				if (transfer(fds[i], buf, sizeof buf, false))
					transfer(fds[i], buf, sizeof buf, true);
		/* Now it dies: every connection learns of it. */
		for (unsigned i = 0; i < BATCH; i++) {
			while (transfer(fds[i], buf, sizeof buf, true))
				;
			close(fds[i]);
		}
		if (waitpid(server, &status, 0) != server)
			fail("waitpid");
		if (b == 3)
			start = holding();
	}
	check_holding("client after kills", start);
}

/* ---- names ---- */

/* Only this test lives in the network namespace: every name of Viaduct's is its own. */
static void own_network(void)
{
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	if (unshare(CLONE_NEWNET) != 0) {
		printf("skipped: no right to make a network namespace\n");
		exit(77);
	}
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) != 0)
		fail("loopback");
	close(fd);
}

static int show_names(void)
{
	char line[512];
	int found = 0;
	FILE *f = fopen("/proc/self/net/unix", "re");
	if (!f)
		fail("/proc/self/net/unix");
	while (fgets(line, sizeof line, f)) {
		if (!strchr(line, '@'))
			continue;
		fprintf(stderr, "leaks: left behind: %s", line);
		found++;
	}
	fclose(f);
	return found;
}

int main(int argc, char **argv)
{
	uint16_t port;
	unsigned batches = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
	if (argc < 2) {
		fprintf(stderr, "usage: leaks quiet|clients|servers [BATCHES]\n");
		return 2;
	}
	own_network();
	/* The connections belong to a child, whose end is part of the test. */
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (!strcmp(argv[1], "servers")) {
			run_server_kills(batches);
			exit(0);
		}
		int listener = listen_any(&port);
		if (!strcmp(argv[1], "quiet"))
			run_quiet(listener, port, batches);
		else
			run_client_kills(listener, port, batches);
		exit(0);
	}
	int status;
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("a process failed");
	return show_names() ? 1 : 0;
}
