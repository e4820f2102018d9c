/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: options, names and processes, given memory that they cannot use. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/bad.h"

/* ---- options ---- */

/* What it is set to, or asked for, with a word as its value. */
static const struct {
	const char *name;
	int level, option, value;
	bool harmless;
} options[] = {
	{"RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 1, true},
	{"RCVLOWAT 5", SOL_SOCKET, SO_RCVLOWAT, 5, false},
	{"RCVBUF", SOL_SOCKET, SO_RCVBUF, 100000, true},
	{"PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0, false},
	{"TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1, false},
	{"ZEROCOPY", SOL_SOCKET, SO_ZEROCOPY, 1, true},
	{"ATTACH_FILTER", SOL_SOCKET, SO_ATTACH_FILTER, 1, false},
	{"NODELAY", IPPROTO_TCP, TCP_NODELAY, 1, true},
	{"CORK", IPPROTO_TCP, TCP_CORK, 0, true},
	{"INQ", IPPROTO_TCP, TCP_INQ, 0, true},
	{"REPAIR", IPPROTO_TCP, TCP_REPAIR, 5, false},
	{"MD5SIG", IPPROTO_TCP, TCP_MD5SIG, 1, false},
	{"IP_TOS", IPPROTO_IP, IP_TOS, 0, true},
};

static ssize_t run_set(struct pair p, enum bad kind, char *extra)
{
	for (size_t i = 0; i < COUNT_OF(options); i++) {
		/* What leads back to TCP is set where it is refused: else a full connection has room
		 * again, and some may be done here and not elsewhere. */
		if (!options[i].harmless && (kind == READABLE || kind == FITS))
			continue;
		int r = setsockopt(p.s, options[i].level, options[i].option,
				   bad_place(kind, &options[i].value, sizeof(int)),
				   sizeof(int));
		if (options[i].harmless || strlen(extra) < 90)
			sprintf(extra + strlen(extra), " %s",
				r < 0 ? errno_name(errno) : "0");
	}
	return 0;
}

static ssize_t run_set_none(struct pair p, enum bad kind, char *extra)
{
	const int one = 1;
	(void)extra;
	return setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, bad_place(kind, &one, sizeof one),
			  0);
}

static ssize_t run_set_negative(struct pair p, enum bad kind, char *extra)
{
	const int one = 1;
	(void)extra;
	return setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, bad_place(kind, &one, sizeof one),
			  (socklen_t)-1);
}

static ssize_t run_set_time(struct pair p, enum bad kind, char *extra)
{
	const struct timeval time = {1, 0};
	(void)extra;
	return setsockopt(p.s, SOL_SOCKET, SO_RCVTIMEO,
			  bad_place(kind, &time, sizeof time), sizeof time);
}

static ssize_t run_get_error(struct pair p, enum bad kind, char *extra)
{
	int value = 77, *at = bad_place(kind, &value, sizeof value);
	socklen_t len = sizeof value;
	ssize_t n = getsockopt(p.s, SOL_SOCKET, SO_ERROR, at, &len);
	sprintf(extra, " %d of %u", (int)bad_word(kind, at), len);
	return n;
}

static ssize_t run_get_error_short(struct pair p, enum bad kind, char *extra)
{
	int value = 77, *at = bad_place(kind, &value, sizeof value);
	socklen_t len = 2;
	ssize_t n = getsockopt(p.s, SOL_SOCKET, SO_ERROR, at, &len);
	sprintf(extra, " %d of %u", (int)bad_word(kind, at), len);
	return n;
}

static ssize_t run_get_error_len(struct pair p, enum bad kind, char *extra)
{
	int value = 77;
	socklen_t len = sizeof value, *at = bad_place(kind, &len, sizeof len);
	ssize_t n = getsockopt(p.s, SOL_SOCKET, SO_ERROR, &value, at);
	sprintf(extra, " %d of %u", value, bad_word(kind, at));
	return n;
}

static ssize_t run_get_error_negative(struct pair p, enum bad kind, char *extra)
{
	int value = 77, *at = bad_place(kind, &value, sizeof value);
	socklen_t len = (socklen_t)-1;
	(void)extra;
	return getsockopt(p.s, SOL_SOCKET, SO_ERROR, at, &len);
}

static ssize_t run_get_info(struct pair p, enum bad kind, char *extra)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	ssize_t n = getsockopt(p.s, IPPROTO_TCP, TCP_INFO,
			       bad_place(kind, &info, sizeof info), &len);
	sprintf(extra, " %u", len);
	return n;
}

static ssize_t run_get_info_len(struct pair p, enum bad kind, char *extra)
{
	struct tcp_info info;
	socklen_t len = 10, *at = bad_place(kind, &len, sizeof len);
	ssize_t n = getsockopt(p.s, IPPROTO_TCP, TCP_INFO, &info, at);
	sprintf(extra, " %u", bad_word(kind, at));
	return n;
}

static const struct bad_call set_and_get[] = {
	{"setsockopt", run_set, false},
	{"setsockopt, no length", run_set_none, false},
	{"setsockopt, negative length", run_set_negative, false},
	{"setsockopt, time", run_set_time, false},
	{"SO_ERROR", run_get_error, false},
	{"SO_ERROR, short", run_get_error_short, false},
	{"SO_ERROR, length", run_get_error_len, false},
	{"SO_ERROR, negative length", run_get_error_negative, false},
	{"TCP_INFO", run_get_info, false},
	{"TCP_INFO, length", run_get_info_len, false},
};

CASE(bad_options, DIRECT)
{
	bad_sweep(set_and_get, COUNT_OF(set_and_get));
}

/* ---- ioctl and fcntl ---- */

static ssize_t request(struct pair p, unsigned long what, int value, enum bad kind,
		       char *extra)
{
	int *at = bad_place(kind, &value, sizeof value);
	ssize_t n = ioctl(p.s, what, at);
	sprintf(extra, " %d", (int)bad_word(kind, at));
	return n;
}

#define REQUEST(name, what, value)                                                       \
	static ssize_t run_##name(struct pair p, enum bad kind, char *extra)             \
	{                                                                                \
		return request(p, what, value, kind, extra);                             \
	}
REQUEST(fionread, FIONREAD, 77)
REQUEST(siocatmark, SIOCATMARK, 77)
REQUEST(fionbio, FIONBIO, 1)
REQUEST(fioasync, FIOASYNC, 0)
REQUEST(fioasync_on, FIOASYNC, 1)
REQUEST(fiosetown, FIOSETOWN, 0)
REQUEST(siocspgrp, SIOCSPGRP, 0)
REQUEST(siocgpgrp, SIOCGPGRP, 77)
REQUEST(fiogetown, FIOGETOWN, 77)
REQUEST(nonsense, 0x12345678, 77)

/* How much it is depends on the other end's pace. */
static ssize_t run_siocoutq(struct pair p, enum bad kind, char *extra)
{
	int value = 77;
	(void)extra;
	return ioctl(p.s, SIOCOUTQ, bad_place(kind, &value, sizeof value));
}

static ssize_t run_siocoutqnsd(struct pair p, enum bad kind, char *extra)
{
	int value = 77;
	(void)extra;
	return ioctl(p.s, SIOCOUTQNSD, bad_place(kind, &value, sizeof value));
}

static ssize_t run_attach(struct pair p, enum bad kind, char *extra)
{
	const int fds[2] = {p.s, p.s};
	(void)extra;
	return ioctl(p.s, SIOCPROTOPRIVATE, bad_place(kind, fds, sizeof fds));
}

static ssize_t run_setown_ex(struct pair p, enum bad kind, char *extra)
{
	const struct f_owner_ex owner = {F_OWNER_PID, 0};
	(void)extra;
	return fcntl(p.s, F_SETOWN_EX, bad_place(kind, &owner, sizeof owner));
}

static ssize_t run_getown_ex(struct pair p, enum bad kind, char *extra)
{
	const struct f_owner_ex owner = {F_OWNER_PID, 0};
	(void)extra;
	return fcntl(p.s, F_GETOWN_EX, bad_place(kind, &owner, sizeof owner));
}

static ssize_t run_setlk(struct pair p, enum bad kind, char *extra)
{
	const struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	(void)extra;
	return fcntl(p.s, F_SETLK, bad_place(kind, &lock, sizeof lock));
}

static const struct bad_call requests[] = {
	{"FIONREAD", run_fionread, false},	 {"SIOCOUTQ", run_siocoutq, false},
	{"SIOCOUTQNSD", run_siocoutqnsd, false}, {"SIOCATMARK", run_siocatmark, false},
	{"FIONBIO", run_fionbio, false},	 {"FIOASYNC", run_fioasync, false},
	{"FIOASYNC, on", run_fioasync_on, true}, {"FIOSETOWN", run_fiosetown, true},
	{"SIOCSPGRP", run_siocspgrp, true},	 {"SIOCGPGRP", run_siocgpgrp, false},
	{"FIOGETOWN", run_fiogetown, false},	 {"nonsense", run_nonsense, false},
	{"SIOCPROTOPRIVATE", run_attach, false}, {"F_SETOWN_EX", run_setown_ex, true},
	{"F_GETOWN_EX", run_getown_ex, false},	 {"F_SETLK", run_setlk, false},
};

CASE(bad_requests, DIRECT)
{
	bad_sweep(requests, COUNT_OF(requests));
}

/* ---- names ---- */

static const struct sockaddr_in nowhere = {.sin_family = AF_INET};

static ssize_t run_connect(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return connect(p.s, bad_place(kind, &nowhere, sizeof nowhere), sizeof nowhere);
}

static ssize_t run_connect_by_number(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return syscall(SYS_connect, p.s, bad_place(kind, &nowhere, sizeof nowhere),
		       sizeof nowhere);
}

/* AF_UNSPEC dissolves the connection, where it can be read. */
static ssize_t run_connect_none(struct pair p, enum bad kind, char *extra)
{
	const struct sockaddr_in nobody = {.sin_family = AF_UNSPEC};
	(void)extra;
	return connect(p.s, bad_place(kind, &nobody, sizeof nobody), sizeof nobody);
}

static ssize_t run_connect_short(struct pair p, enum bad kind, char *extra)
{
	const struct sockaddr_in nobody = {.sin_family = AF_UNSPEC};
	(void)extra;
	return connect(p.s, bad_place(kind, &nobody, sizeof nobody), 1);
}

static ssize_t run_connect_empty(struct pair p, enum bad kind, char *extra)
{
	const struct sockaddr_in nobody = {.sin_family = AF_UNSPEC};
	(void)extra;
	return connect(p.s, bad_place(kind, &nobody, sizeof nobody), 0);
}

static ssize_t run_connect_long(struct pair p, enum bad kind, char *extra)
{
	const char nobody[300] = {AF_UNSPEC};
	(void)extra;
	return connect(p.s, bad_place(kind, nobody, sizeof nobody), sizeof nobody);
}

static ssize_t run_bind(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return bind(p.s, bad_place(kind, &nowhere, sizeof nowhere), sizeof nowhere);
}

static ssize_t run_peer(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {0};
	socklen_t len = sizeof name;
	ssize_t n = getpeername(p.s, bad_place(kind, &name, sizeof name), &len);
	sprintf(extra, " %u", len);
	return n;
}

static ssize_t run_own(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {0};
	socklen_t len = sizeof name, *at = bad_place(kind, &len, sizeof len);
	ssize_t n = getsockname(p.s, (struct sockaddr *)&name, at);
	sprintf(extra, " %u", bad_word(kind, at));
	return n;
}

static ssize_t run_accept(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {0};
	socklen_t len = sizeof name, own = sizeof name;
	int on = 1, other = -1;
	NEED(getsockopt(p.s, SOL_SOCKET, SO_TYPE, &on, &len) == 0 || p.c >= 0);
	len = sizeof on;
	if (getsockopt(p.s, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on &&
	    getsockname(p.s, (struct sockaddr *)&name, &own) == 0 &&
	    name.ss_family == AF_INET) {
		other = socket(AF_INET, SOCK_STREAM, 0);
		NEED(connect(other, (struct sockaddr *)&name, own) == 0);
	}
	len = sizeof name;
	int fd = accept4(p.s, bad_place(kind, &name, sizeof name), &len, 0);
	sprintf(extra, " %u", len);
	if (other >= 0)
		close(other);
	return fd >= 0 ? close(fd) : fd;
}

static const struct bad_call names[] = {
	{"connect", run_connect, false},
	{"connect by number", run_connect_by_number, false},
	{"connect to none", run_connect_none, false},
	{"connect, short", run_connect_short, false},
	{"connect, empty", run_connect_empty, false},
	{"connect, long", run_connect_long, false},
	{"bind", run_bind, false},
	{"getpeername", run_peer, false},
	{"getsockname, length", run_own, false},
	{"accept4", run_accept, false},
};

CASE(bad_names_given, DIRECT)
{
	bad_sweep(names, COUNT_OF(names));
}

/* ---- descriptors and processes ---- */

static ssize_t run_pipe(struct pair p, enum bad kind, char *extra)
{
	int fds[2] = {-1, -1}, *at = bad_place(kind, fds, sizeof fds);
	(void)p, (void)extra;
	ssize_t n = pipe(at);
	if (n == 0) {
		close(at[0]);
		close(at[1]);
	}
	return n;
}

static ssize_t run_pipe_by_number(struct pair p, enum bad kind, char *extra)
{
	int fds[2] = {-1, -1}, *at = bad_place(kind, fds, sizeof fds);
	(void)p, (void)extra;
	ssize_t n = syscall(SYS_pipe2, at, O_CLOEXEC);
	if (n == 0) {
		close(at[0]);
		close(at[1]);
	}
	return n;
}

static ssize_t run_socketpair(struct pair p, enum bad kind, char *extra)
{
	int fds[2] = {-1, -1}, *at = bad_place(kind, fds, sizeof fds);
	(void)p, (void)extra;
	ssize_t n = socketpair(AF_UNIX, SOCK_STREAM, 0, at);
	if (n == 0) {
		close(at[0]);
		close(at[1]);
	}
	return n;
}

static ssize_t run_open(struct pair p, enum bad kind, char *extra)
{
	const char path[] = "/nowhere/at/all";
	(void)p, (void)extra;
	return open(bad_place(kind, path, sizeof path), O_RDONLY);
}

static ssize_t run_clone3(struct pair p, enum bad kind, char *extra)
{
	/* Refused for its signal. */
	const uint64_t arguments[11] = {0, 0, 0, 0, 1000};
	(void)p, (void)extra;
	return syscall(SYS_clone3, bad_place(kind, arguments, sizeof arguments),
		       sizeof arguments);
}

static const char *const program[] = {"/nowhere/at/all", NULL};

static ssize_t run_exec(struct pair p, enum bad kind, char *extra)
{
	const char path[] = "/nowhere/at/all";
	(void)p, (void)extra;
	return execve(bad_place(kind, path, sizeof path), (char **)program, environ);
}

static ssize_t run_exec_arguments(struct pair p, enum bad kind, char *extra)
{
	char **argv = bad_place(kind, program, sizeof program);
	(void)p, (void)extra;
	/* What can be read would be executed. */
	return execve(kind == NOTHING || kind >= READABLE ? "/nowhere/at/all"
							  : "/bin/true",
		      argv, environ);
}

static ssize_t run_exec_argument(struct pair p, enum bad kind, char *extra)
{
	const char word[] = "a word";
	char *argv[] = {"true", bad_place(kind, word, sizeof word), NULL};
	(void)p, (void)extra;
	return execve(kind == NOTHING || kind >= READABLE ? "/nowhere/at/all"
							  : "/bin/true",
		      argv, environ);
}

static ssize_t run_exec_environment(struct pair p, enum bad kind, char *extra)
{
	char **envp = bad_place(kind, program, sizeof program);
	(void)p, (void)extra;
	return execve(kind == NOTHING || kind >= READABLE ? "/nowhere/at/all"
							  : "/bin/true",
		      (char **)program, envp);
}

static const struct bad_call others[] = {
	{"pipe", run_pipe, false},
	{"pipe2 by number", run_pipe_by_number, false},
	{"socketpair", run_socketpair, false},
	{"open", run_open, false},
	{"clone3", run_clone3, false},
	{"execve", run_exec, true},
	{"execve, arguments", run_exec_arguments, true},
	{"execve, argument", run_exec_argument, true},
	{"execve, environment", run_exec_environment, true},
};

CASE(bad_others, DIRECT)
{
	bad_sweep(others, COUNT_OF(others));
}
