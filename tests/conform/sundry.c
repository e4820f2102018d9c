/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls that programs seldom make on a connection. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

/* Small sends do not wait for each other, on TCP either. */
static struct pair prompt_open(void)
{
	struct pair p = pair_warm_open();
	const int on = 1;
	NEED(setsockopt(p.c, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	NEED(setsockopt(p.s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	return p;
}

static void echo(struct pair p)
{
	char buf[16];
	send_all(p.c, "question", 8);
	recv_all(p.s, buf, 8);
	send_all(p.s, "answer", 6);
	recv_all(p.c, buf, 6);
	say("%.6s", buf);
}

/* What is for files, or for other sockets. */
CASE(sundry_files, DIRECT)
{
	struct pair p = prompt_open();
	struct stat st;
	struct flock lock = {.l_type = F_WRLCK};
	char buf[8];
	int tmp = memfd_create("t", 0), way[2];
	off_t off = 0;
	NEED(tmp >= 0 && write(tmp, "12345678", 8) == 8 && pipe(way) == 0);
	say_result("lseek", lseek(p.c, 0, SEEK_CUR));
	say_result("ftruncate", ftruncate(p.c, 0));
	say_result("fsync", fsync(p.c));
	say_result("fdatasync", fdatasync(p.c));
	say_result("pread", pread(p.c, buf, 4, 0));
	say_result("pwrite", pwrite(p.c, buf, 4, 0));
	say_result("mmap", mmap(NULL, 4096, PROT_READ, MAP_SHARED, p.c, 0) != MAP_FAILED);
	say_result("sendfile from", sendfile(tmp, p.c, NULL, 4));
	say_result("sendfile off", sendfile(p.c, tmp, &off, 8));
	recv_all(p.s, buf, 8);
	say("%.8s %ld", buf, (long)off);
	say_result("flock", flock(p.c, LOCK_EX | LOCK_NB));
	say_result("lock", fcntl(p.c, F_SETLK, &lock));
	say_result("fallocate", fallocate(p.c, 0, 0, 10));
	say_result("copy", copy_file_range(tmp, NULL, p.c, NULL, 4, 0));
	say_result("readahead", readahead(p.c, 0, 10));
	say_result("advise", posix_fadvise(p.c, 0, 0, POSIX_FADV_DONTNEED));
	say_result("tty", isatty(p.c));
	say_result("vmsplice", vmsplice(p.c, &(struct iovec){buf, 4}, 1, 0));
	say_result("listen", listen(p.c, 5));
	say_result("accept", accept(p.c, NULL, NULL));
	say_result("fchmod", fchmod(p.c, 0600));
	say_result("pipe size", fcntl(p.c, F_GETPIPE_SZ));
	say_result("seals", fcntl(p.c, F_GET_SEALS));
	say_result("stat", fstat(p.c, &st));
	say("%o %ld", st.st_mode & S_IFMT, (long)st.st_size);
	echo(p);
	pair_close(p);
}

CASE(sundry_names, DIRECT)
{
	struct pair p = prompt_open();
	struct sockaddr_in any = {.sin_family = AF_INET}, to;
	struct sockaddr_storage from;
	socklen_t len = sizeof(to);
	char buf[16];
	NEED(getpeername(p.c, (struct sockaddr *)&to, &len) == 0);
	say_result("connect", connect(p.c, (struct sockaddr *)&to, len));
	say_result("connect short", connect(p.c, (struct sockaddr *)&to, 3));
	say_result("bind", bind(p.c, (struct sockaddr *)&any, sizeof(any)));
	say_result("sendto", sendto(p.c, "a", 1, 0, (struct sockaddr *)&to, len));
	say_result("sendto short", sendto(p.c, "b", 1, 0, (struct sockaddr *)&to, 2));
	say_result("sendto long", sendto(p.c, "c", 1, 0, (struct sockaddr *)&to, 4000));
	memset(&from, 7, sizeof(from));
	len = sizeof(from);
	wait_inq(p.s, 2);
	say_result("recvfrom", recvfrom(p.s, buf, 16, 0, (struct sockaddr *)&from, &len));
	say("%u %d", len, from.ss_family);
	len = 3;
	say_result("name", getsockname(p.s, (struct sockaddr *)&from, &len));
	say("%u", len);
	len = (socklen_t)-1;
	say_result("name", getpeername(p.s, (struct sockaddr *)&from, &len));
	echo(p);
	pair_close(p);
}

CASE(sundry_flags, DIRECT)
{
	struct pair p = prompt_open();
	char buf[64] = "";
	static const int flags[] = {
		MSG_CONFIRM, MSG_DONTROUTE,    MSG_EOR,	       MSG_SYN,	  MSG_FIN,
		MSG_RST,     MSG_PROXY,	       MSG_CTRUNC,     MSG_TRUNC, MSG_WAITALL,
		MSG_PEEK,    MSG_CMSG_CLOEXEC, MSG_WAITFORONE, MSG_BATCH, 1 << 30};
	for (unsigned i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		errno = 0;
		say_result("send", send(p.c, "x", 1, flags[i] | MSG_NOSIGNAL));
	}
	wait_inq(p.s, 15);
	say_result("all", recv(p.s, buf, 64, 0));
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	say_result("cut", recv(p.s, NULL, 4, MSG_TRUNC));
	say_result("cut peek", recv(p.s, buf, 3, MSG_TRUNC | MSG_PEEK));
	say_result("cut past", recv(p.s, NULL, 100, MSG_TRUNC));
	say_result("cut none", recv(p.s, NULL, 100, MSG_TRUNC | MSG_DONTWAIT));
	say_result("queue", recv(p.s, buf, 10, MSG_ERRQUEUE));
	say_result("queue", recv(p.s, buf, 10, MSG_ERRQUEUE | MSG_DONTWAIT));
	say_result("nothing", recv(p.s, buf, 0, MSG_DONTWAIT));
	say_result("batch", recv(p.s, buf, 1, MSG_DONTWAIT | MSG_BATCH | MSG_CONFIRM));
	echo(p);
	pair_close(p);
}

CASE(sundry_control, DIRECT)
{
	struct pair p = prompt_open();
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u;
	char buf[8] = "abc";
	int sent = 0;
	struct iovec iov = {buf, 3};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	static const int types[][2] = {{SOL_SOCKET, SCM_RIGHTS},
				       {SOL_SOCKET, SO_MARK},
				       {SOL_SOCKET, 9999},
				       {IPPROTO_TCP, 1},
				       {IPPROTO_IP, IP_TOS}};
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		memset(&u, 0, sizeof(u));
		u.h.cmsg_len = CMSG_LEN(sizeof(int));
		u.h.cmsg_level = types[i][0];
		u.h.cmsg_type = types[i][1];
		m.msg_control = &u;
		m.msg_controllen = sizeof(u);
		ssize_t n = sendmsg(p.c, &m, 0);
		say_result("sendmsg", n);
		sent += n > 0 ? (int)n : 0;
	}
	m.msg_controllen = 5;
	say_result("short", sendmsg(p.c, &m, 0));
	sent += 3;
	m.msg_control = &u;
	m.msg_controllen = sizeof(u);
	u.h.cmsg_len = 3;
	say_result("wrong", sendmsg(p.c, &m, 0));
	wait_inq(p.s, sent);
	m.msg_control = &u;
	m.msg_controllen = sizeof(u);
	m.msg_flags = -1;
	iov.iov_len = 3;
	m.msg_name = buf + 4;
	m.msg_namelen = 4;
	for (ssize_t n; (n = recvmsg(p.s, &m, MSG_DONTWAIT)) > 0;)
		say("recvmsg %zd, control %zu, flags %x, name %u", n, m.msg_controllen,
		    (unsigned)m.msg_flags, m.msg_namelen);
	m.msg_iovlen = 0;
	m.msg_name = NULL;
	say_result("no vectors", sendmsg(p.c, &m, 0));
	say_result("no vectors", recvmsg(p.s, &m, MSG_DONTWAIT));
	m.msg_iovlen = 2000;
	say_result("many", sendmsg(p.c, &m, 0));
	say_result("many", recvmsg(p.s, &m, MSG_DONTWAIT));
	echo(p);
	pair_close(p);
}

CASE(sundry_vectors, DIRECT)
{
	struct pair p = prompt_open();
	char a[4] = "abc", b[8] = "defg", got[16] = "";
	struct iovec out[5] = {{NULL, 0}, {a, 3}, {(void *)1, 0}, {b, 4}, {NULL, 0}};
	struct iovec in[5] = {
		{(void *)1, 0}, {got, 2}, {NULL, 0}, {got + 2, 1}, {got + 3, 13}};
	say_result("writev", writev(p.c, out, 5));
	wait_inq(p.s, 7);
	say_result("readv", readv(p.s, in, 5));
	say("%s", got);
	say_result("zero", writev(p.c, out, 0));
	say_result("zero", readv(p.s, in, 0));
	say_result("empty", writev(p.c, out, 1));
	say_result("p", preadv2(p.s, in, 5, -1, RWF_NOWAIT));
	say_result("p", pwritev2(p.c, out, 5, -1, RWF_HIPRI));
	say_result("p", pwritev2(p.c, out, 5, -1, RWF_DSYNC));
	say_result("p", pwritev2(p.c, out, 5, -1, RWF_APPEND));
	say_result("p", pwritev2(p.c, out, 5, 0, 0));
	wait_inq(p.s, 21);
	say_result("all", recv(p.s, got, 16, 0));
	pair_close(p);
}

/* The C library's calls for an eventfd read and write what they are given. */
CASE(sundry_eventfd_calls, DIRECT)
{
	struct pair p = prompt_open();
	eventfd_t value = 0x0807060504030201, got = 0;
	int fd = eventfd(3, 0), way[2];
	char some[8] = "";
	say_result("write", eventfd_write(p.c, value));
	say_result("read", eventfd_read(p.s, &got));
	say("%llx", (unsigned long long)got);
	send_all(p.c, "short", 5);
	wait_inq(p.s, 5);
	say_result("short", eventfd_read(p.s, &got));
	nonblock(p.s, true);
	say_result("none", eventfd_read(p.s, &got));
	say_result("nowhere", eventfd_write(-1, 1));
	say_result("own", eventfd_write(fd, 4));
	say_result("own", eventfd_read(fd, &got));
	say("%llu", (unsigned long long)got);
	NEED(pipe(way) == 0);
	say_result("pipe", eventfd_write(way[1], value));
	say_result("pipe", read(way[0], some, sizeof(some)));
	echo(p);
	pair_close(p);
}

CASE(sundry_options, DIRECT)
{
	struct pair p = prompt_open();
	static const int names[][2] = {
		{SOL_SOCKET, SO_ACCEPTCONN}, {SOL_SOCKET, SO_TYPE},
		{SOL_SOCKET, SO_PROTOCOL},   {SOL_SOCKET, SO_DOMAIN},
		{SOL_SOCKET, SO_ERROR},	     {SOL_SOCKET, SO_BUSY_POLL},
		{SOL_SOCKET, SO_MARK},	     {SOL_SOCKET, SO_PRIORITY},
		{SOL_SOCKET, SO_PEEK_OFF},   {SOL_SOCKET, SO_RCVLOWAT},
		{SOL_SOCKET, SO_SNDLOWAT},   {SOL_SOCKET, SO_ZEROCOPY},
		{SOL_SOCKET, SO_OOBINLINE},  {SOL_SOCKET, SO_INCOMING_NAPI_ID},
		{SOL_SOCKET, SO_REUSEPORT},  {SOL_SOCKET, SO_KEEPALIVE},
		{IPPROTO_TCP, TCP_NODELAY},  {IPPROTO_TCP, TCP_REPAIR},
		{IPPROTO_TCP, TCP_TX_DELAY}, {IPPROTO_TCP, TCP_INQ},
		{IPPROTO_TCP, TCP_FASTOPEN}, {IPPROTO_TCP, TCP_DEFER_ACCEPT},
		{IPPROTO_TCP, TCP_LINGER2},  {IPPROTO_TCP, TCP_USER_TIMEOUT},
		{IPPROTO_IP, IP_TTL},	     {IPPROTO_IP, IP_TOS},
		{IPPROTO_IPV6, IPV6_V6ONLY}, {77, 5}};
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		int value = -1;
		socklen_t len = sizeof(value);
		int r = getsockopt(p.c, names[i][0], names[i][1], &value, &len);
		say("%d %d: %d %d %u", names[i][0], names[i][1], r < 0 ? -errno : 0,
		    value, len);
	}
	static const int sets[][3] = {{SOL_SOCKET, SO_BUSY_POLL, 10},
				      {SOL_SOCKET, SO_INCOMING_CPU, 0},
				      {IPPROTO_TCP, TCP_TX_DELAY, 100},
				      {IPPROTO_TCP, TCP_WINDOW_CLAMP, 5000},
				      {IPPROTO_TCP, TCP_FASTOPEN, 5},
				      {IPPROTO_TCP, TCP_DEFER_ACCEPT, 5},
				      {SOL_SOCKET, SO_PRIORITY, 3},
				      {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1000},
				      {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
				      {SOL_SOCKET, SO_DEBUG, 1},
				      {SOL_SOCKET, SO_BROADCAST, 1},
				      {IPPROTO_IP, IP_TTL, 9},
				      {IPPROTO_TCP, TCP_MAXSEG, 500},
				      {IPPROTO_TCP, TCP_SYNCNT, 3},
				      {SOL_SOCKET, SO_TXREHASH, 1},
				      {SOL_SOCKET, SO_RESERVE_MEM, 100}};
	for (unsigned i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		int r = setsockopt(p.c, sets[i][0], sets[i][1], &sets[i][2], sizeof(int));
		say("%d %d: %d", sets[i][0], sets[i][1], r < 0 ? -errno : 0);
		echo(p);
	}
	pair_close(p);
}

CASE(sundry_ioctls, DIRECT)
{
	struct pair p = prompt_open();
	char got[16];
	static const unsigned long asks[] = {SIOCINQ,	 SIOCOUTQ,  SIOCOUTQNSD,
					     SIOCATMARK, FIOGETOWN, SIOCGPGRP};
	send_all(p.c, "123", 3);
	wait_inq(p.s, 3);
	for (unsigned i = 0; i < sizeof(asks) / sizeof(*asks); i++) {
		int v = -1;
		int r = ioctl(p.s, asks[i], &v);
		say("%lx: %d %d", asks[i], r < 0 ? -errno : r, v);
	}
	int on = 1, pid = getpid();
	say_result("nbio", ioctl(p.s, FIONBIO, &on));
	recv_all(p.s, got, 3);
	say_result("empty", recv(p.s, got, 1, 0));
	on = 0;
	say_result("nbio", ioctl(p.s, FIONBIO, &on));
	say_result("own", ioctl(p.s, FIOSETOWN, &pid));
	say("%d", fcntl(p.s, F_GETOWN) == pid);
	say_result("cloexec", ioctl(p.s, FIOCLEX));
	say_result("cloexec", fcntl(p.s, F_GETFD));
	say_result("stamp", ioctl(p.s, SIOCGSTAMP, got));
	say_result("unknown", ioctl(p.s, 0x5413, got));
	echo(p);
	pair_close(p);
}

/* Sets that are larger than fd_set. */
CASE(sundry_high_numbers, DIRECT)
{
	struct pair p = prompt_open();
	struct rlimit limit = {3000, 3000};
	unsigned long *r = calloc(64, sizeof(*r)), *w = calloc(64, sizeof(*w));
	struct timeval t = {5, 0};
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	int c = fcntl(p.c, F_DUPFD, 2100), s = fcntl(p.s, F_DUPFD, 1500);
	NEED(c == 2100 && s == 1500);
	send_all(c, "x", 1);
	wait_inq(s, 1);
	r[s / 64] |= 1ul << s % 64;
	r[c / 64] |= 1ul << c % 64;
	w[c / 64] |= 1ul << c % 64;
	int n = select(2101, (fd_set *)r, (fd_set *)w, NULL, &t);
	say("%d: %d %d %d", n, !!(r[s / 64] & 1ul << s % 64),
	    !!(r[c / 64] & 1ul << c % 64), !!(w[c / 64] & 1ul << c % 64));
	echo((struct pair){c, s});
	pair_close(p);
	free(r);
	free(w);
}

CASE(sundry_epoll_of_all, DIRECT)
{
	struct pair p = prompt_open();
	int ep = epoll_create1(0), ev = eventfd(0, EFD_NONBLOCK),
	    tm = timerfd_create(CLOCK_MONOTONIC, 0);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	NEED(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int sg = signalfd(-1, &set, SFD_NONBLOCK), fds[] = {ev, tm, sg, p.s};
	struct epoll_event got[8];
	for (int i = 0; i < 4; i++) {
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
		NEED(epoll_ctl(ep, EPOLL_CTL_ADD, fds[i], &e) == 0);
	}
	for (int round = 0; round < 16; round++) {
		struct itimerspec at = {.it_value = {0, round & 2 ? 1 : 0}};
		uint64_t one = 1;
		if (round & 1)
			NEED(write(ev, &one, 8) == 8);
		timerfd_settime(tm, 0, &at, NULL);
		if (round & 4)
			raise(SIGUSR1);
		if (round & 8)
			send_all(p.c, "x", 1), wait_inq(p.s, 1);
		if (round & 2)
			wait_events(tm, POLLIN);
		int n = epoll_wait(ep, got, 8, round ? 5000 : 0), seen = 0;
		for (int i = 0; i < n; i++)
			seen |= 1 << got[i].data.u32;
		say("%d: %d %x", round, n, seen);
		char buf[256];
		if (round & 1)
			NEED(read(ev, buf, 8) == 8);
		if (round & 2)
			NEED(read(tm, buf, 8) == 8);
		if (round & 4)
			NEED(read(sg, buf, sizeof(buf)) > 0);
		if (round & 8)
			recv_all(p.s, buf, 1);
	}
	close(ep);
	pair_close(p);
}

/* ---- other threads ---- */

struct sleeper {
	int fd;
	char got[16];
	ssize_t n;
	int error;
};

static void receive(void *arg)
{
	struct sleeper *s = arg;
	s->n = recv(s->fd, s->got, sizeof(s->got), 0);
	s->error = s->n < 0 ? errno : 0;
}

/* Its number is another file's, or nobody's, while a thread sleeps in it. */
CASE(sundry_number_taken, DIRECT)
{
	for (int how = 0; how < 4; how++) {
		struct pair p = prompt_open(), q = prompt_open();
		struct sleeper s = {.fd = p.s};
		struct worker w;
		worker_start(&w, receive, &s);
		wait_asleep(getpid(), w.tid);
		if (how == 0)
			NEED(dup2(q.s, p.s) == p.s);
		else if (how == 1)
			NEED(close(p.s) == 0);
		else if (how == 2)
			NEED(dup3(q.s, p.s, O_CLOEXEC) == p.s);
		else
			NEED(shutdown(p.s, SHUT_RD) == 0);
		if (how == 0 || how == 2) {
			send_all(q.c, "second", 6);
			wait_inq(p.s, 6);
		}
		if (how != 3)
			send_all(p.c, "first", 5);
		worker_join(&w);
		say("%d: %zd %s %.5s", how, s.n, errno_name(s.error), s.got);
		if (how == 0 || how == 2) {
			say_result("second", recv(p.s, s.got, 16, 0));
			close(p.s);
			say_result("sent", send(p.c, "x", 1, MSG_NOSIGNAL));
			pair_close(q);
		} else {
			pair_close(q);
		}
		wait_events(p.c, POLLIN | POLLHUP | POLLRDHUP | (how == 3 ? POLLOUT : 0));
		close(p.c);
		if (how == 3)
			close(p.s);
	}
}

CASE(sundry_mapped, DIRECT)
{
	uint16_t port;
	int l = socket(AF_INET6, SOCK_STREAM, 0), off = 0;
	struct sockaddr_in6 at = {.sin6_family = AF_INET6}, from;
	struct sockaddr_in to = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	char text[64];
	struct pair p;
	close(listen_any(AF_INET6, &port)); /* or there is no IPv6 */
	NEED(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0);
	NEED(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 5) == 0);
	NEED(getsockname(l, (struct sockaddr *)&at, &len) == 0);
	port = at.sin6_port;
	for (int how = 0; how < 3; how++) {
		memset(&from, 0, sizeof(from));
		if (how == 0) {
			p.c = socket(AF_INET, SOCK_STREAM, 0);
			to.sin_port = port;
			to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			NEED(connect(p.c, (struct sockaddr *)&to, sizeof(to)) == 0);
		} else {
			p.c = socket(AF_INET6, SOCK_STREAM, 0);
			from = (struct sockaddr_in6){.sin6_family = AF_INET6,
						     .sin6_port = port};
			inet_pton(AF_INET6, how == 1 ? "::ffff:127.0.0.1" : "::1",
				  &from.sin6_addr);
			from.sin6_scope_id = how == 2 ? 1 : 0;
			NEED(connect(p.c, (struct sockaddr *)&from, sizeof(from)) == 0);
		}
		len = sizeof(from);
		p.s = accept4(l, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
		NEED(p.s >= 0);
		say("%s scope %u",
		    inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof(text)),
		    from.sin6_scope_id);
		pair_warm(p);
		echo(p);
		len = sizeof(from);
		NEED(getpeername(p.c, (struct sockaddr *)&from, &len) == 0);
		say("%u %d", len, from.sin6_family);
		pair_close(p);
	}
	close(l);
}

/* A new network namespace: the connection goes on in its own. */
CASE(sundry_namespace, DIRECT)
{
	struct pair p = prompt_open();
	if (unshare(CLONE_NEWNET) < 0)
		skip("no rights for a network namespace");
	echo(p);
	send_pattern(p.c, 0, 100000);
	recv_pattern(p.s, 0, 100000);
	pair_close(p);
}

/* Two listeners at one port. */
CASE(sundry_shared_port, DIRECT)
{
	int l[2], on = 1;
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 2; i++) {
		l[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		NEED(setsockopt(l[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0);
		NEED(bind(l[i], (struct sockaddr *)&at, sizeof(at)) == 0 &&
		     listen(l[i], 20) == 0);
		NEED(getsockname(l[i], (struct sockaddr *)&at, &len) == 0);
	}
	for (int i = 0; i < 12; i++) {
		struct pair p = {.c = connect_to(AF_INET, ntohs(at.sin_port))};
		struct pollfd both[2] = {{l[0], POLLIN, 0}, {l[1], POLLIN, 0}};
		NEED(poll(both, 2, -1) == 1);
		p.s = accept(both[0].revents ? l[0] : l[1], NULL, NULL);
		NEED(p.s >= 0);
		if (i == 6)
			close(l[0]), l[0] = -1;
		pair_warm(p);
		echo(p);
		pair_close(p);
	}
}

/* ---- a receive that maps ---- */

static void map_peer(int fd, void *arg)
{
	struct signal_pipe *way = arg;
	char c;

	send_all(fd, "unread", 6);
	signal_send(way[0]);
	signal_wait(way[1]);
	say_result("end", recv(fd, &c, 1, 0));
}

/* What does not fill a page is to be read, also where the peer makes no call on the connection. */
CASE(sundry_mapped_receive, DIRECT)
{
	struct signal_pipe way[2] = {signal_pipe(), signal_pipe()};
	struct tcp_zerocopy_receive z = {.length = 4096};
	socklen_t len = sizeof(z);
	char got[8] = "";
	pid_t pid;
	int fd = peer_start(map_peer, way, &pid);
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		skip("no receive that maps");
	signal_wait(way[0]);
	z.address = (uintptr_t)at;
	say_result("map", getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
	say("%u %u of %u", z.length, z.recv_skip_hint, len);
	say_result("read", recv(fd, got, sizeof(got), MSG_DONTWAIT));
	say("%s", got);
	z.length = 4096;
	say_result("map", getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &len));
	say("%u %u of %u", z.length, z.recv_skip_hint, len);
	signal_send(way[1]);
	NEED(munmap(at, 4096) == 0 && close(fd) == 0);
	say("status %d", child_status(pid));
}
