/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each name of a call that other cases know under one name only. */
/* Meson's 64 makes open into open64: here both are meant. */
#undef _FILE_OFFSET_BITS
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

/* libc's other names, and what its checked headers call. */
int __close(int fd);
int __connect(int fd, const struct sockaddr *addr, socklen_t len);
int __dup2(int oldfd, int newfd);
int __fcntl(int fd, int cmd, ...);
int __select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout);
int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);
sighandler_t __sysv_signal(int sig, sighandler_t handler);
int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap);
pid_t __fork(void);
pid_t __vfork(void) __attribute__((returns_twice));
FILE *_IO_fdopen(int fd, const char *mode);
int _IO_fclose(FILE *f);

/* ---- other names ---- */

static struct pair pair_by_other_names(void)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof to;
	uint16_t port;
	struct pair p;
	int listener = listen_any(AF_INET, &port);
	NEED(getsockname(listener, (struct sockaddr *)&to, &len) == 0);
	p.c = socket(AF_INET, SOCK_STREAM, 0);
	say_result("__connect", __connect(p.c, (struct sockaddr *)&to, len));
	p.s = accept(listener, NULL, NULL);
	NEED(p.s >= 0 && __close(listener) == 0);
	pair_warm(p);
	return p;
}

CASE(names_of_descriptors, DIRECT)
{
	struct pair p = pair_by_other_names();
	struct timeval now = {0, 0};
	fd_set set;
	char c;
	say_result("__dup2", __dup2(p.c, 90));
	say_result("__dup2", __dup2(p.c, p.c) - p.c);
	say_result("__dup2", __dup2(95, 90));
	int high = __fcntl(p.c, F_DUPFD_CLOEXEC, 91);
	say_result("__fcntl", high);
	say_result("fcntl", fcntl(p.c, F_DUPFD, 92));
	say_result("fcntl64", fcntl64(p.c, F_DUPFD, 93));
	say_result("F_SETFL", __fcntl(91, F_SETFL, O_RDWR | O_NONBLOCK));
	say_result("recv", recv(p.c, &c, 1, 0));
	say("flags %#x %#x", fcntl(92, F_GETFL), fcntl64(90, F_GETFL));
	FD_ZERO(&set);
	FD_SET(93, &set);
	say_result("__select", __select(94, &set, NULL, NULL, &now));
	send_all(p.s, "x", 1);
	wait_inq(p.c, 1);
	FD_SET(93, &set);
	say_result("__select", __select(94, &set, NULL, NULL, &now));
	say_result("__close", __close(p.c));
	say_result("__close", __close(90));
	say_result("__close", __close(90));
	say_result("recv", recv(92, &c, 1, 0));
	for (int fd = 91; fd < 94; fd++) {
		say_result("not the end", recv(p.s, &c, 1, MSG_DONTWAIT));
		say_result("__close", __close(fd));
	}
	say_result("the end", recv(p.s, &c, 1, 0));
	close(p.s);
}

/* Who looks for open descriptors finds those of the program, and no others. */
CASE(names_of_looks, DIRECT)
{
	struct pair p = pair_warm_open();
	struct stat st;
	struct stat64 st64;
	int found[4] = {0}, limit = (int)sysconf(_SC_OPEN_MAX);
	say_result("fstat", fstat(p.c, &st));
	say_result("fstat64", fstat64(p.c, &st64));
	say("sockets: %d %d", S_ISSOCK(st.st_mode), S_ISSOCK(st64.st_mode));
	say_result("fstat of none", fstat(-1, &st));
	for (int fd = 3; fd < limit; fd++) {
		found[0] += fstat(fd, &st) == 0;
		found[1] += fstat64(fd, &st64) == 0;
		found[2] += fcntl(fd, F_GETFD) >= 0;
		found[3] += fcntl(fd, F_GETFL) >= 0;
	}
	say("fstat finds %d, fstat64 %d, F_GETFD %d, F_GETFL %d", found[0], found[1],
	    found[2], found[3]);
	pair_close(p);
}

static _Atomic int taken;

static void take(int sig)
{
	(void)sig;
	taken++;
}

CASE(names_of_signals, ANYWAY)
{
	struct sigaction act = {.sa_handler = take, .sa_flags = SA_RESTART}, old;
	say_result("__sigaction", __sigaction(SIGUSR1, &act, NULL));
	raise(SIGUSR1);
	say("taken %d", taken);
	say_result("__sigaction", __sigaction(SIGUSR1, NULL, &old));
	say("%d %#x", old.sa_handler == take, old.sa_flags);
	say("before: %d", __sysv_signal(SIGUSR1, take) == take);
	NEED(__sigaction(SIGUSR1, NULL, &old) == 0);
	say("%d %#x", old.sa_handler == take, old.sa_flags);
	raise(SIGUSR1);
	say("taken %d", taken);
	say("now the default: %d", __sysv_signal(SIGUSR1, SIG_IGN) == SIG_DFL);
	say_result("__sysv_signal", __sysv_signal(SIGKILL, take) == SIG_ERR ? -1 : 0);
}

static void print_checked(int fd, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say_result("__vdprintf_chk", __vdprintf_chk(fd, 1, fmt, ap));
	va_end(ap);
}

CASE(names_of_writers, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64] = "";
	struct iovec out = {(char *)"pwritev2 ", 9}, in = {buf, sizeof buf};
	int file = memfd_create("case", 0);
	off_t at = 1;
	off64_t at64 = 2;
	print_checked(p.c, "%s %d ", "checked", 7);
	say_result("pwritev2", pwritev2(p.c, &out, 1, -1, 0));
	say_result("pwritev64v2", pwritev64v2(p.c, &out, 1, -1, 0));
	NEED(write(file, "0123456789", 10) == 10);
	say_result("sendfile", sendfile(p.c, file, &at, 4));
	say_result("sendfile64", sendfile64(p.c, file, &at64, 4));
	say("offsets %ld %ld", (long)at, (long)at64);
	wait_inq(p.s, 10 + 18 + 8);
	in.iov_len = 20;
	say_result("preadv2", preadv2(p.s, &in, 1, -1, 0));
	say("%.20s", buf);
	say_result("preadv64v2", preadv64v2(p.s, &in, 1, -1, 0));
	say("%.16s", buf);
	say_result("preadv2 of nothing", preadv2(p.s, &in, 1, -1, RWF_NOWAIT));
	say_result("preadv64v2 of nothing", preadv64v2(p.s, &in, 1, -1, RWF_NOWAIT));
	pair_warm(p);
	pair_close(p);
}

CASE(names_of_streams, STAYS)
{
	struct pair p = pair_warm_open();
	char buf[64] = "";
	FILE *f = _IO_fdopen(p.c, "r+");
	NEED(f);
	say("fprintf %d", fprintf(f, "%s %d", "by stream", 5));
	say_result("fflush", fflush(f));
	recv_all(p.s, buf, 11);
	say("%s", buf);
	send_all(p.s, "an answer\n", 10);
	say("%s", fgets(buf, sizeof buf, f) ? buf : "none\n");
	say_result("_IO_fclose", _IO_fclose(f));
	say_result("closed", fcntl(p.c, F_GETFD));
	say_result("the end", recv(p.s, buf, 1, 0));
	close(p.s);
}

static void reopened(FILE *(*reopen)(const char *, const char *, FILE *))
{
	struct pair p = pair_warm_open();
	char buf[64] = "";
	int number = p.c;
	FILE *f = fdopen(p.c, "w");
	NEED(f);
	say_result("fputs", fputs("last words", f) < 0 ? -1 : 0);
	f = reopen("/dev/null", "w", f);
	say("the same number: %d", f && fileno(f) == number);
	recv_all(p.s, buf, 10);
	say("%s", buf);
	say_result("the end", recv(p.s, buf, 1, 0));
	say_result("fclose", fclose(f));
	close(p.s);
}

CASE(names_of_reopening, DIRECT)
{
	reopened(freopen);
	reopened(freopen64);
}

/* ---- asynchronous I/O ---- */

static void wait_for(struct aiocb *cb, const char *what)
{
	const struct aiocb *list[1] = {cb};
	while (aio_error(cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	errno = aio_error(cb);
	say_result(what, aio_return(cb));
}

static void aio_peer(int fd, void *arg)
{
	char buf[16] = "";
	(void)arg;
	for (int i = 0; i < 4; i++) {
		recv_all(fd, buf, 4);
		say("%.4s", buf);
		send_all(fd, "back", 4);
	}
}

static struct aiocb aio_make(int fd, int opcode, char *buf)
{
	struct aiocb cb = {.aio_fildes = fd,
			   .aio_buf = buf,
			   .aio_nbytes = 4,
			   .aio_lio_opcode = opcode};
	cb.aio_sigevent.sigev_notify = SIGEV_NONE;
	return cb;
}

CASE(names_of_aio, ANYWAY)
{
	pid_t pid;
	int fd = peer_start(aio_peer, NULL, &pid);
	char text[] = "word", buf[8] = "";
	struct aiocb out = aio_make(fd, LIO_WRITE, text),
		     in = aio_make(fd, LIO_READ, buf);
	struct aiocb *list[3] = {&out, NULL, &in};
	say_result("aio_write", aio_write(&out));
	wait_for(&out, "wrote");
	say_result("aio_read", aio_read(&in));
	wait_for(&in, "read");
	say_result("aio_write64", aio_write64((struct aiocb64 *)(void *)&out));
	wait_for(&out, "wrote");
	say_result("aio_read64", aio_read64((struct aiocb64 *)(void *)&in));
	wait_for(&in, "read");
	say_result("lio_listio", lio_listio(LIO_WAIT, list, 3, NULL));
	wait_for(&out, "wrote");
	wait_for(&in, "read");
	say_result("lio_listio64",
		   lio_listio64(LIO_WAIT, (struct aiocb64 **)(void *)list, 3, NULL));
	wait_for(&out, "wrote");
	wait_for(&in, "read");
	say("%s", buf);
	say("peer: %d", child_status(pid));
	close(fd);
}

/* ---- processes ---- */

CASE(names_of_forks, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = "";
	pid_t pid = __fork();
	if (pid == 0) {
		send_all(p.c, "child", 5);
		_Exit(6);
	}
	recv_all(p.s, buf, 5);
	say("__fork: %d %s", child_status(pid), buf);
	pid = __vfork();
	if (pid == 0)
		_Exit(7);
	say("__vfork: %d", child_status(pid));
	pair_warm(p);
	pid = __fork();
	if (pid == 0) {
		send_all(p.c, "more", 4);
		close(p.s);
		_Exit(8);
	}
	close(p.c);
	say("__fork: %d", child_status(pid));
	recv_all(p.s, buf, 4);
	say("%.4s", buf);
	say_result("the end", recv(p.s, buf, 1, 0));
	close(p.s);
}

static void echo_peer(int fd, void *arg)
{
	char buf[16] = "";
	(void)arg;
	send_all(fd, "a line\n", 7);
	recv_all(fd, buf, 7);
	say("%.6s", buf);
	say_result("end", recv(fd, buf, 1, 0));
}

CASE(names_of_exec, DIRECT)
{
	pid_t peer, pid;
	char *const argv[] = {"head", "-n", "1", NULL};
	int fd = peer_start(echo_peer, NULL, &peer);
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0) {
		dup2(fd, 0);
		dup2(fd, 1);
		execveat(AT_FDCWD, "/none", argv, environ, 0);
		execveat(AT_FDCWD, "/usr/bin/head", argv, environ, 0);
		_exit(99);
	}
	close(fd);
	say("execveat: %d", child_status(pid));
	say("peer: %d", child_status(peer));
	posix_spawn_file_actions_t actions;
	fd = peer_start(echo_peer, NULL, &peer);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, 0);
	posix_spawn_file_actions_adddup2(&actions, fd, 1);
	say("posix_spawnp: %d",
	    posix_spawnp(&pid, "no such program", &actions, NULL, argv, environ));
	say("posix_spawnp: %d",
	    posix_spawnp(&pid, "head", &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(fd);
	say("status %d", child_status(pid));
	say("peer: %d", child_status(peer));
}

/* Another number for the same connection, fetched from the own process. */
static void fetched(bool by_number)
{
	struct pair p = pair_warm_open();
	int self = pidfd_open(getpid(), 0), other;
	char c;
	send_pattern(p.s, 0, 3000);
	wait_inq(p.c, 3000);
	other = by_number ? (int)syscall(SYS_pidfd_getfd, self, p.c, 0)
			  : pidfd_getfd(self, p.c, 0);
	say("fetched: %d", other >= 0);
	say_result("bad number", pidfd_getfd(self, 900, 0));
	say_result("bad flags", pidfd_getfd(self, p.c, 1));
	recv_pattern(other, 0, 1000);
	recv_pattern(p.c, 1000, 1000);
	recv_pattern(other, 2000, 1000);
	send_all(other, "o", 1);
	send_all(p.c, "c", 1);
	NEED(recv(p.s, &c, 1, 0) == 1);
	say("%c", c);
	NEED(recv(p.s, &c, 1, 0) == 1);
	say("%c", c);
	close(p.c);
	say_result("not the end", recv(p.s, &c, 1, MSG_DONTWAIT));
	send_pattern(other, 9, 100);
	recv_pattern(p.s, 9, 100);
	close(other);
	say_result("the end", recv(p.s, &c, 1, 0));
	close(p.s);
}

CASE(names_of_getfd, DIRECT)
{
	fetched(false);
	fetched(true);
}
