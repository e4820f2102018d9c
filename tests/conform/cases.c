/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance cases: the list, and what the cases share. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/cases.h"

/* A case that takes longer hangs. */
#define LIMIT_SECONDS 60
#define WARM_TURNS    64

static const struct tcp_case *all_cases;

void case_register(struct tcp_case *c)
{
	c->next = all_cases;
	all_cases = c;
}

static const char *speaker = "";

void say_as(const char *who)
{
	speaker = who;
}

void say(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n = sprintf(line, "%s%s", speaker, *speaker ? " " : "");
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof line - 32, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(3);
}

const char *errno_name(int err)
{
	const char *name = strerrorname_np(err);
	return name ? name : "unknown";
}

void say_result(const char *name, ssize_t result)
{
	if (result >= 0)
		say("%s: %zd", name, result);
	else
		say("%s: %zd %s", name, result, errno_name(errno));
}

void broken(const char *what)
{
	say("broken: %s (%s)", what, errno_name(errno));
	_exit(1);
}

void skip(const char *why)
{
	say("skipped: %s", why);
	_exit(77);
}

/* ---- connections ---- */

static socklen_t loopback(int family, struct sockaddr_storage *ss, uint16_t port)
{
	memset(ss, 0, sizeof *ss);
	ss->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		in->sin_port = htons(port);
		return sizeof *in;
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	in6->sin6_addr = in6addr_loopback;
	in6->sin6_port = htons(port);
	return sizeof *in6;
}

int listen_any(int family, uint16_t *port)
{
	struct sockaddr_storage ss;
	socklen_t len = loopback(family, &ss, 0);
	int fd = socket(family, SOCK_STREAM, 0);
	if (fd < 0 && errno == EAFNOSUPPORT)
		skip("no IPv6");
	NEED(fd >= 0);
	if (bind(fd, (struct sockaddr *)&ss, len) != 0 && errno == EADDRNOTAVAIL)
		skip("no loopback address of this family");
	NEED(listen(fd, 16) == 0);
	len = sizeof ss;
	NEED(getsockname(fd, (struct sockaddr *)&ss, &len) == 0);
	*port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
					: ((struct sockaddr_in6 *)&ss)->sin6_port);
	/* As nearly every program does some time: see waited_unseen.c for those that wait otherwise. */
	int n;

	do /* a signal ends a poll that does not wait, too */
		n = poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0);
	while (n < 0 && errno == EINTR);
	NEED(n == 0);
	return fd;
}

int connect_to(int family, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = loopback(family, &ss, port);
	int fd = socket(family, SOCK_STREAM, 0);
	NEED(fd >= 0);
	NEED(connect(fd, (struct sockaddr *)&ss, len) == 0);
	return fd;
}

/* Servers go on listening; it is out of the way of the cases' own descriptors. */
static void keep_listener(int listener)
{
	NEED(fcntl(listener, F_DUPFD_CLOEXEC, 500) >= 0);
	NEED(close(listener) == 0);
}

struct pair pair_open(void)
{
	struct pair p;
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	p.c = connect_to(AF_INET, port);
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0);
	keep_listener(listener);
	return p;
}

void pair_warm(struct pair p)
{
	char buf[8];
	for (int i = 0; i < WARM_TURNS; i++) {
		send_all(p.c, "to serv", 8);
		recv_all(p.s, buf, 8);
		NEED(!memcmp(buf, "to serv", 8));
		send_all(p.s, "to clnt", 8);
		recv_all(p.c, buf, 8);
		NEED(!memcmp(buf, "to clnt", 8));
	}
}

struct pair pair_warm_open(void)
{
	struct pair p = pair_open();
	pair_warm(p);
	return p;
}

char *bulk_room(void)
{
	static char *at;
	if (!at)
		at = mmap(NULL, BULK_ROOM, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(at != MAP_FAILED);
	return at;
}

static bool found_room(int fd)
{
	bool some = false;
	while (send(fd, bulk_room(), 65536, MSG_DONTWAIT) > 0)
		some = true;
	while (send(fd, bulk_room(), 1, MSG_DONTWAIT) > 0)
		some = true;
	return some;
}

/* TCP acknowledges what fills it up to 200 ms late, and then it has room once more. */
void send_until_no_room(int fd)
{
	while (found_room(fd))
		usleep(250000);
}

void pair_close(struct pair p)
{
	NEED(close(p.c) == 0);
	NEED(close(p.s) == 0);
}

void warm_first(int fd)
{
	char buf[8];
	for (int i = 0; i < WARM_TURNS; i++) {
		send_all(fd, "to serv", 8);
		recv_all(fd, buf, 8);
		NEED(!memcmp(buf, "to clnt", 8));
	}
}

void warm_second(int fd)
{
	char buf[8];
	for (int i = 0; i < WARM_TURNS; i++) {
		recv_all(fd, buf, 8);
		NEED(!memcmp(buf, "to serv", 8));
		send_all(fd, "to clnt", 8);
	}
}

static int start(void (*peer)(int, void *), void *arg, pid_t *pid, bool warm)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port);
	*pid = fork();
	NEED(*pid >= 0);
	if (*pid == 0) {
		close(listener);
		say_as("peer");
		alarm(LIMIT_SECONDS);
		int fd = connect_to(AF_INET, port);
		if (warm)
			warm_first(fd);
		peer(fd, arg);
		exit(0);
	}
	int fd = accept(listener, NULL, NULL);
	NEED(fd >= 0);
	keep_listener(listener);
	if (warm)
		warm_second(fd);
	return fd;
}

int peer_start(void (*peer)(int fd, void *arg), void *arg, pid_t *pid)
{
	return start(peer, arg, pid, true);
}

int peer_start_cold(void (*peer)(int fd, void *arg), void *arg, pid_t *pid)
{
	return start(peer, arg, pid, false);
}

int child_status(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		NEED(errno == EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- moving bytes ---- */

uint8_t pattern(uint64_t off)
{
	return (uint8_t)((off * 0x9e3779b97f4a7c15ull) >> 56) | 1;
}

void send_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;
	while (len > 0) {
		ssize_t r = send(fd, p, len, 0);
		if (r < 0 && errno == EINTR)
			continue;
		NEED(r > 0);
		p += r;
		len -= (size_t)r;
	}
}

void recv_all(int fd, void *buf, size_t len)
{
	char *p = buf;
	while (len > 0) {
		ssize_t r = recv(fd, p, len, 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r == 0)
			broken("early end of stream");
		NEED(r > 0);
		p += r;
		len -= (size_t)r;
	}
}

void send_pattern(int fd, uint64_t off, size_t len)
{
	uint8_t *buf = malloc(len + 1);
	NEED(buf);
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(off + i);
	send_all(fd, buf, len);
	free(buf);
}

static void check_pattern(const uint8_t *buf, uint64_t off, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (buf[i] == pattern(off + i))
			continue;
		say("wrong byte at %lu: %#x, not %#x", (unsigned long)(off + i), buf[i],
		    pattern(off + i));
		_exit(1);
	}
}

void recv_pattern(int fd, uint64_t off, size_t len)
{
	uint8_t *buf = malloc(len + 1);
	NEED(buf);
	recv_all(fd, buf, len);
	check_pattern(buf, off, len);
	free(buf);
}

uint64_t recv_to_end(int fd, int *error)
{
	static uint8_t buf[65536];
	uint64_t off = 0;
	*error = 0;
	for (;;) {
		ssize_t r = recv(fd, buf, sizeof buf, 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			*error = errno;
		if (r <= 0)
			return off;
		check_pattern(buf, off, (size_t)r);
		off += (uint64_t)r;
	}
}

/* ---- waiting ---- */

int wait_events(int fd, int events)
{
	struct pollfd p = {fd, (short)events, 0};
	int r;
	do
		r = poll(&p, 1, -1);
	while (r < 0 && errno == EINTR);
	NEED(r == 1);
	return p.revents;
}

static char task_state(pid_t pid, pid_t tid)
{
	char path[64], line[512], *paren;
	snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 'X';
	char *got = fgets(line, sizeof line, f);
	fclose(f);
	paren = got ? strrchr(line, ')') : NULL;
	return paren ? paren[2] : 'X';
}

void wait_in_state(pid_t pid, pid_t tid, const char *wanted)
{
	for (int seen = 0; seen < 20; usleep(1000)) {
		char state = task_state(pid, tid);
		seen = strchr(wanted, state) ? seen + 1 : 0;
		NEED(seen || (state != 'X' && state != 'Z'));
	}
}

void wait_asleep(pid_t pid, pid_t tid)
{
	wait_in_state(pid, tid, "S");
}

void wait_crowd_asleep(const pid_t *tids, size_t count)
{
	for (int seen = 0; seen < 20; usleep(1000)) {
		bool all = true;
		for (size_t i = 0; i < count && all; i++) {
			char state = task_state(getpid(), tids[i]);
			all = state == 'S' || state == 'X';
		}
		seen = all ? seen + 1 : 0;
	}
}

void set_limit(rlim_t soft)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = soft;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

long own_kb(const char *name)
{
	char line[256];
	long found = -1;
	FILE *f = fopen("/proc/self/status", "r");
	NEED(f);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name)))
			sscanf(line + strlen(name), ": %ld", &found);
	fclose(f);
	return found;
}

void wait_inq(int fd, int n)
{
	int have = -1;
	do
		NEED(ioctl(fd, FIONREAD, &have) == 0);
	while (have != n);
}

const char *poll_names(int revents)
{
	static char text[96];
	static const struct {
		int bit;
		const char *name;
	} names[] = {{POLLIN, " IN"},	    {POLLPRI, " PRI"}, {POLLOUT, " OUT"},
		     {POLLRDHUP, " RDHUP"}, {POLLERR, " ERR"}, {POLLHUP, " HUP"},
		     {POLLNVAL, " NVAL"}};
	text[0] = '\0';
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (revents & names[i].bit)
			strcat(text, names[i].name);
	return text[0] ? text + 1 : "-";
}

void nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);
	NEED(flags >= 0);
	NEED(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

struct signal_pipe signal_pipe(void)
{
	struct signal_pipe p;
	NEED(pipe(p.fd) == 0);
	return p;
}

void signal_send(struct signal_pipe p)
{
	NEED(write(p.fd[1], "!", 1) == 1);
}

void signal_wait(struct signal_pipe p)
{
	char c;
	ssize_t r;
	do
		r = read(p.fd[0], &c, 1);
	while (r < 0 && errno == EINTR);
	NEED(r == 1);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	w->tid = gettid();
	signal_send(w->started);
	w->run(w->arg);
	return NULL;
}

void worker_start(struct worker *w, void (*run)(void *arg), void *arg)
{
	pthread_t thread;
	w->run = run;
	w->arg = arg;
	w->started = signal_pipe();
	NEED(pthread_create(&thread, NULL, worker_main, w) == 0);
	w->thread = thread;
	signal_wait(w->started);
}

void worker_join(struct worker *w)
{
	pthread_join(w->thread, NULL);
	close(w->started.fd[0]);
	close(w->started.fd[1]);
}

/* ---- main ---- */

static const char *const expect_names[] = {"direct", "stays", "any",
					   "tcp",    "ready", "back"};

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: cases --list | NAME\n");
		return 2;
	}
	for (const struct tcp_case *c = all_cases; c; c = c->next) {
		if (!strcmp(argv[1], "--list")) {
			printf("%s %s %s\n", c->name, expect_names[c->expect], c->file);
		} else if (!strcmp(argv[1], c->name)) {
			alarm(LIMIT_SECONDS);
			c->run();
			say("end");
			return 0;
		}
	}
	return strcmp(argv[1], "--list") ? 2 : 0;
}

void send_fd(int channel, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 'f';
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	NEED(sendmsg(channel, &msg, 0) == 1);
}

int receive_fd(int channel)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof control};
	int fd;
	NEED(recvmsg(channel, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
	return fd;
}
