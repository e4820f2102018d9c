/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends that may be of different C libraries: each scene is one connection, and says what it saw.
 *
 * usage: talk serve | talk call PORT | talk go-on FD
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self, *other;

static void need(int good, const char *what)
{
	if (good)
		return;
	printf("broken: %s: %s\n", what, strerror(errno));
	exit(1);
}
#define NEED(cond) need(cond, #cond)

static void send_all(int fd, const void *from, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = send(fd, (const char *)from + done, len - done, MSG_NOSIGNAL);

		NEED(n > 0);
		done += (size_t)n;
	}
}

static void receive_all(int fd, void *to, size_t len)
{
	NEED(recv(fd, to, len, MSG_WAITALL) == (ssize_t)len);
}

/* Each end in turn, so often that the connection goes up with any threshold. */
static void warm(int fd, int first)
{
	char buf[64] = "warm";

	for (int i = 0; i < 300; i++) {
		if (first)
			send_all(fd, buf, sizeof(buf));
		receive_all(fd, buf, sizeof(buf));
		if (!first)
			send_all(fd, buf, sizeof(buf));
	}
}

static void expect(int fd, const char *word)
{
	char buf[32] = "";

	receive_all(fd, buf, strlen(word));
	printf("%s\n", strcmp(buf, word) ? "something else" : buf);
}

/* ---- scenes: the caller's end, and the server's ---- */

static unsigned char large[300000];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(large); i++)
		large[i] = (unsigned char)(i * 7 + (i >> 8));
}

static void *send_large(void *fd)
{
	send_all(*(int *)fd, large, sizeof(large));
	return NULL;
}

/* Both ways at once, with a thread for one of them. */
static void both_ways(int fd)
{
	unsigned char *got = malloc(sizeof(large));
	pthread_t thread;

	fill();
	NEED(pthread_create(&thread, NULL, send_large, &fd) == 0);
	receive_all(fd, got, sizeof(large));
	pthread_join(thread, NULL);
	printf("large: %s\n", memcmp(got, large, sizeof(large)) ? "wrong" : "right");
	free(got);
}

static void polls(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	printf("quiet: %d\n", poll(&p, 1, 20));
	send_all(fd, "go", 2);
	printf("poll: %d %d\n", poll(&p, 1, -1), p.revents);
	expect(fd, "gone");
}

static void is_polled(int fd)
{
	expect(fd, "go");
	send_all(fd, "gone", 4);
}

static void epolls(int fd, uint32_t how)
{
	struct epoll_event ev = {.events = EPOLLIN | how}, got;
	int ep = epoll_create1(0);

	NEED(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	printf("quiet: %d\n", epoll_wait(ep, &got, 1, 20));
	send_all(fd, "go", 2);
	printf("epoll: %d\n", epoll_wait(ep, &got, 1, -1));
	/* Edges may be repeated by the kernel itself. */
	if (!how)
		printf("again: %d\n", epoll_wait(ep, &got, 1, 20));
	expect(fd, "gone");
	if (!how)
		printf("empty: %d\n", epoll_wait(ep, &got, 1, 20));
	close(ep);
}

static void level(int fd)
{
	epolls(fd, 0);
}

static void edge(int fd)
{
	epolls(fd, EPOLLET);
}

static void half_closes(int fd)
{
	char c;

	send_all(fd, "last", 4);
	NEED(shutdown(fd, SHUT_WR) == 0);
	expect(fd, "answer");
	printf("end: %zd\n", recv(fd, &c, 1, 0));
}

static void sees_half_close(int fd)
{
	char c;

	expect(fd, "last");
	printf("end: %zd\n", recv(fd, &c, 1, 0));
	send_all(fd, "answer", 6);
}

static void times_out(int fd)
{
	struct timeval t = {.tv_usec = 50000};
	char c;

	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
	printf("nothing: %zd", recv(fd, &c, 1, 0));
	printf(" %d\n", errno == EAGAIN);
	/* The answer takes what it takes. */
	t.tv_usec = 0;
	NEED(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) == 0);
	send_all(fd, "go", 2);
	expect(fd, "gone");
}

static void forks(int fd)
{
	pid_t child = fork();
	int status = 0;

	NEED(child >= 0);
	if (child == 0) {
		send_all(fd, "child", 5);
		_exit(0);
	}
	waitpid(child, &status, 0);
	send_all(fd, "parent", 6);
	expect(fd, "both");
}

static void hears_two(int fd)
{
	expect(fd, "child");
	expect(fd, "parent");
	send_all(fd, "both", 4);
}

/* The next image is of the other C library, and begins with bytes that are unread. */
static void executes(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char number[16];

	send_all(fd, "go", 2);
	poll(&p, 1, -1);
	snprintf(number, sizeof(number), "%d", fd);
	fflush(stdout);
	if (fork() == 0) {
		execl(other, other, "go-on", number, (char *)NULL);
		_exit(1);
	}
	wait(NULL);
}

static void goes_on(int fd)
{
	expect(fd, "gone");
	warm(fd, 1);
	send_all(fd, "next", 4);
}

static void meets_next(int fd)
{
	expect(fd, "go");
	send_all(fd, "gone", 4);
	warm(fd, 0);
	expect(fd, "next");
}

/* A descriptor of the connection is passed in a message, to this very process. */
static void passes(int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} c = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {(char[]){'x'}, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = c.bytes,
			     .msg_controllen = sizeof(c.bytes)};
	int ends[2], twin = dup(fd), got;

	memcpy(CMSG_DATA(&c.head), &twin, sizeof(int));
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	NEED(sendmsg(ends[0], &msg, 0) == 1);
	close(twin);
	memset(&c, 0, sizeof(c));
	msg.msg_controllen = sizeof(c.bytes);
	NEED(recvmsg(ends[1], &msg, 0) == 1);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	send_all(got, "go", 2);
	expect(fd, "gone");
	close(got);
	close(ends[0]);
	close(ends[1]);
}

static void dies(int fd)
{
	fflush(stdout);
	if (fork() == 0) {
		send_all(fd, "dying", 5);
		raise(SIGKILL);
	}
	wait(NULL);
}

static void sees_death(int fd)
{
	char c;

	expect(fd, "dying");
	printf("end: %zd\n", recv(fd, &c, 1, 0));
}

static void streams(int fd)
{
	FILE *f = fdopen(dup(fd), "r+");
	char line[64];

	NEED(f != NULL);
	fputs("one\ntwo\n", f);
	fflush(f);
	printf("line: %s", fgets(line, sizeof(line), f));
	printf("line: %s", fgets(line, sizeof(line), f));
	fclose(f);
}

static void is_streamed(int fd)
{
	FILE *f = fdopen(dup(fd), "r+");
	char line[64];

	NEED(f && fgets(line, sizeof(line), f));
	printf("line: %s", line);
	NEED(fgets(line, sizeof(line), f) != NULL);
	printf("line: %s", line);
	fprintf(f, "%s%d\n", "three ", 3);
	fputs("four\n", f);
	fclose(f);
}

static const struct scene {
	const char *name;
	void (*call)(int fd), (*serve)(int fd);
} scenes[] = {
	{"both ways", both_ways, both_ways},
	{"poll", polls, is_polled},
	{"epoll", level, is_polled},
	{"epoll, edge", edge, is_polled},
	{"half-close", half_closes, sees_half_close},
	{"half-close of the server", sees_half_close, half_closes},
	{"time-out", times_out, is_polled},
	{"fork", forks, hears_two},
	{"fork of the server", hears_two, forks},
	{"exec", executes, meets_next},
	{"exec of the server", meets_next, executes},
	{"passed", passes, is_polled},
	{"death", dies, sees_death},
	{"death of the server", sees_death, dies},
	{"streams", streams, is_streamed},
};

static void play(const struct scene *s, int fd, int calls)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	printf("%s\n", s->name);
	warm(fd, calls);
	(calls ? s->call : s->serve)(fd);
	close(fd);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int calls, s;

	self = argv[0];
	other = getenv("OTHER") ? getenv("OTHER") : self;
	if (argc == 3 && !strcmp(argv[1], "go-on")) {
		goes_on(atoi(argv[2]));
		return 0;
	}
	calls = argc == 3 && !strcmp(argv[1], "call");
	at.sin_port = calls ? htons((uint16_t)atoi(argv[2])) : 0;
	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!calls) {
		NEED(bind(s, (struct sockaddr *)&at, len) == 0 && listen(s, 5) == 0);
		NEED(getsockname(s, (struct sockaddr *)&at, &len) == 0);
		printf("%d\n", ntohs(at.sin_port));
		fflush(stdout);
	}
	for (size_t i = 0; i < sizeof(scenes) / sizeof(*scenes); i++) {
		int fd = calls ? socket(AF_INET, SOCK_STREAM, 0) : accept(s, NULL, NULL);

		NEED(fd >= 0);
		NEED(!calls || connect(fd, (struct sockaddr *)&at, len) == 0);
		play(&scenes[i], fd, calls);
	}
	printf("end\n");
	return 0;
}
