/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a connection's number comes back as something else, by each name. */
/* Meson's 64 makes open into open64: here both are meant. */
#undef _FILE_OFFSET_BITS
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "conform/cases.h"

/* libc's other names, and what its checked headers call. */
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
int __pipe(int fds[2]);
int __fcntl(int fd, int cmd, ...);

/* ---- descriptors of other kinds ---- */

#define ZERO "/dev/zero"

static sigset_t no_signals;
static int null_fd, pidfd, accept_from;

static int made_open(void)
{
	return open(ZERO, O_RDWR);
}

static int made_open64(void)
{
	return open64(ZERO, O_RDWR);
}

static int made___open(void)
{
	return __open(ZERO, O_RDWR);
}

static int made___open64(void)
{
	return __open64(ZERO, O_RDWR);
}

static int made___open_2(void)
{
	return __open_2(ZERO, O_RDWR);
}

static int made___open64_2(void)
{
	return __open64_2(ZERO, O_RDWR);
}

static int made_openat(void)
{
	return openat(AT_FDCWD, ZERO, O_RDWR);
}

static int made_openat64(void)
{
	return openat64(AT_FDCWD, ZERO, O_RDWR);
}

static int made___openat_2(void)
{
	return __openat_2(AT_FDCWD, ZERO, O_RDWR);
}

static int made___openat64_2(void)
{
	return __openat64_2(AT_FDCWD, ZERO, O_RDWR);
}

static int made_creat(void)
{
	return creat("/dev/null", 0600);
}

static int made_creat64(void)
{
	return creat64("/dev/null", 0600);
}

static int first_of(int result, int fds[2])
{
	if (result == 0)
		close(fds[1]);
	return result ? -1 : fds[0];
}

static int made_pipe(void)
{
	int fds[2];
	return first_of(pipe(fds), fds);
}

static int made___pipe(void)
{
	int fds[2];
	return first_of(__pipe(fds), fds);
}

static int made_pipe2(void)
{
	int fds[2];
	return first_of(pipe2(fds, O_NONBLOCK), fds);
}

static int made_socketpair(void)
{
	int fds[2];
	return first_of(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), fds);
}

static int made_eventfd(void)
{
	return eventfd(0, 0);
}

static int made_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}

static int made_signalfd(void)
{
	return signalfd(-1, &no_signals, 0);
}

static int made_inotify(void)
{
	return inotify_init();
}

static int made_inotify1(void)
{
	return inotify_init1(0);
}

static int made_memfd(void)
{
	return memfd_create("case", 0);
}

static int made_pidfd(void)
{
	return pidfd_open(getpid(), 0);
}

static int made_getfd(void)
{
	return pidfd_getfd(pidfd, null_fd, 0);
}

static int made_epoll(void)
{
	return epoll_create(1);
}

static int made_epoll1(void)
{
	return epoll_create1(0);
}

static int made_udp(void)
{
	return socket(AF_INET, SOCK_DGRAM, 0);
}

static int made_tcp(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int made_accept(void)
{
	return accept(accept_from, NULL, NULL);
}

static int made_dup(void)
{
	return dup(null_fd);
}

static int made_fcntl(void)
{
	return fcntl(null_fd, F_DUPFD, 0);
}

static int made_fcntl64(void)
{
	return fcntl64(null_fd, F_DUPFD_CLOEXEC, 0);
}

static int made___fcntl(void)
{
	return __fcntl(null_fd, F_DUPFD, 0);
}

static int made_syscall(void)
{
	return (int)syscall(SYS_openat, AT_FDCWD, ZERO, O_RDWR);
}

static const struct maker {
	const char *name;
	int (*make)(void);
} makers[] = {
	{"open", made_open},
	{"open64", made_open64},
	{"__open", made___open},
	{"__open64", made___open64},
	{"__open_2", made___open_2},
	{"__open64_2", made___open64_2},
	{"openat", made_openat},
	{"openat64", made_openat64},
	{"__openat_2", made___openat_2},
	{"__openat64_2", made___openat64_2},
	{"creat", made_creat},
	{"creat64", made_creat64},
	{"pipe", made_pipe},
	{"__pipe", made___pipe},
	{"pipe2", made_pipe2},
	{"socketpair", made_socketpair},
	{"eventfd", made_eventfd},
	{"timerfd_create", made_timerfd},
	{"signalfd", made_signalfd},
	{"inotify_init", made_inotify},
	{"inotify_init1", made_inotify1},
	{"memfd_create", made_memfd},
	{"pidfd_open", made_pidfd},
	{"pidfd_getfd", made_getfd},
	{"epoll_create", made_epoll},
	{"epoll_create1", made_epoll1},
	{"udp socket", made_udp},
	{"tcp socket", made_tcp},
	{"accept", made_accept},
	{"dup", made_dup},
	{"fcntl", made_fcntl},
	{"fcntl64", made_fcntl64},
	{"__fcntl", made___fcntl},
	{"syscall", made_syscall},
};

static long close_unseen(int fd)
{
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"((long)SYS_close), "D"((long)fd)
			 : "rcx", "r11", "memory");
	return result;
}

static void use_as_what_it_is(int fd)
{
	char buf[8] = "?";
	struct stat st;
	NEED(fstat(fd, &st) == 0);
	say("type %o", st.st_mode & S_IFMT);
	nonblock(fd, true);
	say_result("read", read(fd, buf, 4));
	say_result("write", write(fd, "12345678", 8));
	say_result("recv", recv(fd, buf, 4, MSG_DONTWAIT));
	say_result("send", send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT));
	say_result("close", close(fd));
}

/* The number of a connection comes back as something else, made by each name. */
static void number_comes_back(const struct maker *m, bool seen)
{
	struct pair p = pair_warm_open();
	char c;
	/* The end with the lower number, for a maker takes the lowest. */
	int gone = p.c < p.s ? p.c : p.s, left = p.c < p.s ? p.s : p.c;
	say("%s", m->name);
	/* No number below it is free. */
	while (fcntl(null_fd, F_DUPFD, 0) < left)
		;
	NEED((seen ? (long)close(gone) : close_unseen(gone)) == 0);
	int fd = m->make();
	if (fd < 0)
		say_result("made", fd);
	say("same number: %d", fd == gone);
	if (fd >= 0)
		use_as_what_it_is(fd);
	say_result("the other end", recv(left, &c, 1, 0));
	close(left);
}

static void numbers_come_back(bool seen)
{
	uint16_t port;
	accept_from = listen_any(AF_INET, &port);
	null_fd = open(ZERO, O_RDWR);
	signal(SIGPIPE, SIG_IGN);
	pidfd = pidfd_open(getpid(), 0);
	for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
		int waiting = -1;
		if (makers[i].make == made_accept)
			waiting = connect_to(AF_INET, port);
		number_comes_back(&makers[i], seen);
		if (waiting >= 0)
			close(waiting);
	}
}

CASE(names_of_makers, DIRECT)
{
	numbers_come_back(true);
}

/* As a program does that closes without libc. */
CASE(names_of_makers_unseen, DIRECT)
{
	numbers_come_back(false);
}
