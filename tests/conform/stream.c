/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what single calls return while the stream is open. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "conform/cases.h"

CASE(round_trips, DIRECT)
{
	struct pair p = pair_warm_open();
	for (size_t len = 1; len <= 65536; len = len * 2 + 1) {
		send_pattern(p.c, len, len);
		recv_pattern(p.s, len, len);
		send_pattern(p.s, len + 7, len);
		recv_pattern(p.c, len + 7, len);
	}
	say("done");
	pair_close(p);
}

CASE(peek, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16] = "";
	send_all(p.c, "abcdefgh", 8);
	wait_inq(p.s, 8);
	say_result("peek 3", recv(p.s, buf, 3, MSG_PEEK));
	say("%.3s", buf);
	say_result("peek 16", recv(p.s, buf, 16, MSG_PEEK));
	say("%.8s", buf);
	say_result("recv 5", recv(p.s, buf, 5, 0));
	say("%.5s", buf);
	say_result("peek again", recv(p.s, buf, 16, MSG_PEEK | MSG_DONTWAIT));
	say("%.3s", buf);
	say_result("recv rest", recv(p.s, buf, 16, 0));
	say_result("peek empty", recv(p.s, buf, 16, MSG_PEEK | MSG_DONTWAIT));
	close(p.c);
	wait_events(p.s, POLLIN);
	say_result("peek end", recv(p.s, buf, 16, MSG_PEEK));
	say_result("recv end", recv(p.s, buf, 16, 0));
	close(p.s);
}

static void send_late(void *arg)
{
	int fd = *(int *)arg;
	for (int i = 0; i < 10; i++) {
		send_pattern(fd, (uint64_t)i * 1000, 1000);
		usleep(1000);
	}
}

CASE(waitall, DIRECT)
{
	struct pair p = pair_warm_open();
	static char buf[20000];
	struct worker w;
	worker_start(&w, send_late, &p.c);
	say_result("waitall 9000", recv(p.s, buf, 9000, MSG_WAITALL));
	worker_join(&w);
	wait_inq(p.s, 1000);
	say_result("waitall, not waiting",
		   recv(p.s, buf, sizeof buf, MSG_WAITALL | MSG_DONTWAIT));
	send_all(p.c, "abc", 3);
	shutdown(p.c, SHUT_WR);
	say_result("waitall to the end", recv(p.s, buf, 100, MSG_WAITALL));
	say_result("end", recv(p.s, buf, 100, MSG_WAITALL));
	pair_close(p);
}

CASE(waitall_peek, DIRECT)
{
	struct pair p = pair_warm_open();
	static char buf[20000];
	struct worker w;
	worker_start(&w, send_late, &p.c);
	say_result("peek all", recv(p.s, buf, 10000, MSG_WAITALL | MSG_PEEK));
	say_result("recv all", recv(p.s, buf, 10000, MSG_WAITALL));
	worker_join(&w);
	pair_close(p);
}

CASE(trunc_discards, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[8] = "-------";
	send_all(p.c, "abcdefgh", 8);
	wait_inq(p.s, 8);
	say_result("discard", recv(p.s, buf, 5, MSG_TRUNC));
	say("%.7s", buf);
	say_result("no buffer", recv(p.s, NULL, 1, MSG_TRUNC));
	say_result("rest", recv(p.s, buf, 8, 0));
	say("%.2s", buf);
	pair_close(p);
}

CASE(recvmsg_fields, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64], control[64];
	struct iovec iov[3] = {{buf, 2}, {buf + 2, 0}, {buf + 2, 30}};
	struct sockaddr_storage name;
	struct msghdr msg = {.msg_name = &name,
			     .msg_namelen = sizeof name,
			     .msg_iov = iov,
			     .msg_iovlen = 3,
			     .msg_control = control,
			     .msg_controllen = sizeof control,
			     .msg_flags = -1};
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	say_result("recvmsg", recvmsg(p.s, &msg, 0));
	say("namelen %u controllen %zu flags %#x", msg.msg_namelen, msg.msg_controllen,
	    msg.msg_flags);
	say("%.10s", buf);
	socklen_t len = sizeof name;
	send_all(p.c, "0123456789", 10);
	say_result("recvfrom", recvfrom(p.s, buf, 64, 0, (struct sockaddr *)&name, &len));
	say("address length %u", len);
	len = sizeof name;
	NEED(getpeername(p.s, (struct sockaddr *)&name, &len) == 0);
	say_result("sendto with address",
		   sendto(p.s, "x", 1, 0, (struct sockaddr *)&name, len));
	say_result("recv", recv(p.c, buf, 64, 0));
	msg = (struct msghdr){.msg_iov = iov, .msg_iovlen = 3, .msg_flags = -1};
	msg.msg_name = &name;
	msg.msg_namelen = len;
	say_result("sendmsg with address", sendmsg(p.s, &msg, 0));
	say_result("recv", recv(p.c, buf, 64, 0));
	pair_close(p);
}

CASE(recvmmsg_stream, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[4][4];
	struct iovec iov[4];
	struct mmsghdr m[4] = {0};
	struct timespec now = {0, 0};
	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){buf[i], 4};
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	say_result("wait for one", recvmmsg(p.s, m, 4, MSG_WAITFORONE, NULL));
	say("%u %u %u %.4s", m[0].msg_len, m[1].msg_len, m[2].msg_len, buf[1]);
	say_result("nothing", recvmmsg(p.s, m, 4, MSG_DONTWAIT, NULL));
	send_all(p.c, "0123456789", 10);
	wait_inq(p.s, 10);
	say_result("with timeout", recvmmsg(p.s, m, 4, 0, &now));
	say("%u", m[0].msg_len);
	say_result("recv", recv(p.s, buf, 16, MSG_DONTWAIT));
	m[1].msg_hdr.msg_iov = &(struct iovec){NULL, 5};
	say_result("send, second is bad", sendmmsg(p.s, m, 4, 0));
	say_result("send, first is bad", sendmmsg(p.s, m + 1, 1, 0));
	say_result("recv", recv(p.c, buf, 16, 0));
	pair_close(p);
}

CASE(bad_arguments, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[16];
	struct iovec iov[2] = {{buf, 4}, {(void *)8, 4}};
	static struct iovec many[IOV_MAX + 1];
	/* Volatile: the compiler is not to know that it is bad. */
	void *volatile bad = (void *)8;
	send_all(p.c, "abcdef", 6);
	wait_inq(p.s, 6);
	say_result("read to a bad address", read(p.s, bad, 6));
	say_result("readv, second is bad", readv(p.s, iov, 2));
	say_result("read 0", read(p.s, buf, 0));
	say_result("recv 0", recv(p.s, buf, 0, 0));
	say_result("readv of none", readv(p.s, iov, 0));
	say_result("readv of too many", readv(p.s, many, IOV_MAX + 1));
	say_result("readv bad vector", readv(p.s, bad, 1));
	iov[1].iov_len = (size_t)-1;
	say_result("readv negative", readv(p.s, iov, 2));
	say_result("recv", recv(p.s, buf, 16, MSG_DONTWAIT));
	say_result("write from a bad address", write(p.s, bad, 6));
	say_result("write 0", write(p.s, buf, 0));
	say_result("write 0 from nowhere", write(p.s, NULL, 0));
	iov[1].iov_len = 4;
	say_result("writev, second is bad", writev(p.s, iov, 2));
	say_result("recvmsg bad header", recvmsg(p.s, bad, 0));
	say_result("sendmsg bad header", sendmsg(p.s, bad, 0));
	say_result("arrived", recv(p.c, buf, 16, MSG_DONTWAIT));
	say_result("lseek", lseek(p.c, 0, SEEK_SET));
	say_result("pread", pread(p.c, buf, 1, 0));
	say_result("pwrite", pwrite(p.c, buf, 1, 0));
	say_result("fsync", fsync(p.c));
	say_result("ftruncate", ftruncate(p.c, 0));
	say_result("connect again", connect(p.c, (void *)buf, 0));
	say_result("listen", listen(p.c, 1));
	say_result("accept", accept(p.c, NULL, NULL));
	pair_close(p);
	say_result("closed read", read(p.c, buf, 1));
	say_result("closed write", write(p.c, buf, 1));
	say_result("closed recv", recv(p.c, buf, 1, 0));
	say_result("closed close", close(p.c));
	say_result("read of -1", read(-1, buf, 1));
}

CASE(queue_lengths, DIRECT)
{
	struct pair p = pair_warm_open();
	int n = -1;
	say_result("FIONREAD", ioctl(p.s, FIONREAD, &n));
	say("%d", n);
	send_pattern(p.c, 0, 1000);
	wait_inq(p.s, 1000);
	recv_pattern(p.s, 0, 300);
	say_result("SIOCINQ", ioctl(p.s, SIOCINQ, &n));
	say("%d", n);
	recv_pattern(p.s, 300, 700);
	do
		NEED(ioctl(p.c, SIOCOUTQ, &n) == 0);
	while (n != 0);
	do
		NEED(ioctl(p.c, SIOCOUTQNSD, &n) == 0);
	while (n != 0);
	say("all sent");
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLIN);
	say_result("FIONREAD at the end", ioctl(p.s, FIONREAD, &n));
	say("%d", n);
	pair_close(p);
}

static void say_inq(const char *what, int fd, size_t len, int flags, size_t room)
{
	union {
		char bytes[64];
		struct cmsghdr align;
	} control;
	char buf[1024];
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_controllen = room};
	memset(&control, 0x5a, sizeof control);
	msg.msg_control = room ? control.bytes : NULL;
	say_result(what, recvmsg(fd, &msg, flags));
	say("control %zu, flags %s%x", (size_t)msg.msg_controllen,
	    msg.msg_flags & MSG_CTRUNC ? "truncated " : "",
	    (unsigned)msg.msg_flags & ~(unsigned)MSG_CTRUNC);
	for (size_t i = 0; i < sizeof control; i += 4) {
		int word;
		memcpy(&word, control.bytes + i, 4);
		if (word != 0x5a5a5a5a)
			say("%zu: %d", i, word);
	}
}

/* What a receive tells about the bytes that are left, as gRPC asks it to. */
CASE(inq_beside_receives, DIRECT)
{
	struct pair p = pair_warm_open();
	int on = 1, off = 0;
	socklen_t len = sizeof on;
	say_result("set", setsockopt(p.s, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
	on = 0;
	say_result("get", getsockopt(p.s, IPPROTO_TCP, TCP_INQ, &on, &len));
	say("%d", on);
	send_pattern(p.c, 0, 1000);
	wait_inq(p.s, 1000);
	say_inq("peek", p.s, 100, MSG_PEEK, 64);
	say_inq("receive", p.s, 100, 0, 64);
	say_inq("no room", p.s, 100, 0, 0);
	say_inq("room for less than a header", p.s, 100, 0, 12);
	say_inq("room for a header", p.s, 100, 0, 16);
	say_inq("room for half", p.s, 100, 0, 18);
	say_inq("just room", p.s, 100, 0, 20);
	say_inq("room and a bit", p.s, 100, 0, 22);
	say_inq("all room", p.s, 100, 0, 24);
	say_inq("the rest", p.s, 1000, MSG_CMSG_CLOEXEC, 64);
	say_inq("nothing", p.s, 1000, MSG_DONTWAIT, 64);
	send_pattern(p.c, 1000, 10);
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLRDHUP);
	say_inq("before the end", p.s, 4, 0, 64);
	say_inq("up to the end", p.s, 6, 0, 64);
	say_inq("the end", p.s, 10, 0, 64);
	say_inq("the end again", p.s, 10, 0, 64);
	say_result("unset", setsockopt(p.s, IPPROTO_TCP, TCP_INQ, &off, sizeof off));
	say_inq("without", p.s, 10, 0, 64);
	pair_close(p);
}

/* Set on the listener, and so before there is a connection. */
CASE(inq_inherited, DIRECT)
{
	uint16_t port;
	int listener = listen_any(AF_INET, &port), on = 1;
	say_result("set", setsockopt(listener, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
	struct pair p = {.c = connect_to(AF_INET, port)};
	p.s = accept(listener, NULL, NULL);
	pair_warm(p);
	send_pattern(p.c, 0, 10);
	wait_inq(p.s, 10);
	say_inq("receive", p.s, 4, 0, 64);
	close(listener);
	pair_close(p);
}

CASE(sendfile_cases, DIRECT)
{
	struct pair p = pair_warm_open();
	static uint8_t data[100000];
	int file = memfd_create("case", 0);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = pattern(i);
	NEED(file >= 0 && write(file, data, sizeof data) == sizeof data);
	off_t at = 1000;
	say_result("sendfile", sendfile(p.c, file, &at, 50000));
	say("offset %ld, position %ld", (long)at, (long)lseek(file, 0, SEEK_CUR));
	recv_pattern(p.s, 1000, 50000);
	lseek(file, 99000, SEEK_SET);
	say_result("past the end", sendfile(p.c, file, NULL, 50000));
	say("position %ld", (long)lseek(file, 0, SEEK_CUR));
	recv_pattern(p.s, 99000, 1000);
	say_result("at the end", sendfile(p.c, file, NULL, 50000));
	say_result("count 0", sendfile(p.c, file, NULL, 0));
	at = -1;
	say_result("negative offset", sendfile(p.c, file, &at, 10));
	say_result("bad input", sendfile(p.c, -1, NULL, 10));
	say_result("socket to socket", sendfile(p.c, p.s, NULL, 10));
	say_result("into a file", sendfile(file, p.s, NULL, 10));
	at = 0;
	for (uint64_t sent = 0; sent < 10 * sizeof data; at = 0)
		sent += (uint64_t)sendfile(p.c, file, &at, 20000);
	for (int i = 0; i < 50; i++)
		recv_pattern(p.s, 0, 20000);
	say("all arrived");
	pair_close(p);
}

CASE(copy_file_range_no, ANYWAY)
{
	struct pair p = pair_warm_open();
	int file = memfd_create("case", 0);
	NEED(write(file, "abc", 3) == 3);
	off_t at = 0;
	say_result("copy_file_range", copy_file_range(file, &at, p.c, NULL, 3, 0));
	pair_close(p);
}

static void set_timeout(int fd, int option, long usec)
{
	struct timeval tv = {usec / 1000000, usec % 1000000};
	NEED(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof tv) == 0);
}

CASE(receive_timeout, DIRECT)
{
	struct pair p = pair_warm_open();
	char buf[64];
	set_timeout(p.s, SO_RCVTIMEO, 20000);
	say_result("recv", recv(p.s, buf, 8, 0));
	say_result("read", read(p.s, buf, 8));
	send_all(p.c, "abc", 3);
	say_result("waitall gets what there is", recv(p.s, buf, 8, MSG_WAITALL));
	set_timeout(p.s, SO_RCVTIMEO, 0);
	send_all(p.c, "abc", 3);
	say_result("without", recv(p.s, buf, 8, 0));
	pair_close(p);
}

CASE(send_timeout, DIRECT)
{
	struct pair p = pair_warm_open();
	static char buf[32 << 20];
	set_timeout(p.c, SO_SNDTIMEO, 30000);
	ssize_t r = send(p.c, buf, sizeof buf, 0);
	say("a part was sent: %d", r > 0 && r < (ssize_t)sizeof buf);
	uint64_t got = 0, sent = (uint64_t)r;
	/* The kernel may make room in between: by growing its buffers. */
	while ((r = send(p.c, buf, sizeof buf, 0)) > 0)
		sent += (uint64_t)r;
	say_result("then nothing", r);
	while (got < sent) {
		ssize_t n = recv(p.s, buf, sizeof buf, 0);
		NEED(n > 0);
		got += (uint64_t)n;
	}
	say("all of it arrived: %d", got == sent);
	pair_close(p);
}

CASE(low_water, ANYWAY)
{
	struct pair p = pair_warm_open();
	struct pollfd pf = {p.s, POLLIN, 0};
	char buf[64];
	int n = 10;
	socklen_t len = sizeof n;
	say_result("set", setsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof n));
	n = 0;
	say_result("get", getsockopt(p.s, SOL_SOCKET, SO_RCVLOWAT, &n, &len));
	say("%d", n);
	send_all(p.c, "12345", 5);
	wait_inq(p.s, 5);
	say_result("poll below it", poll(&pf, 1, 0));
	send_all(p.c, "12345", 5);
	wait_inq(p.s, 10);
	say_result("poll at it", poll(&pf, 1, -1));
	say_result("recv", recv(p.s, buf, 64, 0));
	send_all(p.c, "12345", 5);
	wait_inq(p.s, 5);
	say_result("recv, not waiting", recv(p.s, buf, 64, MSG_DONTWAIT));
	pair_close(p);
}

CASE(options_kept, DIRECT)
{
	struct pair p = pair_warm_open();
	static const struct {
		int level, name, value;
		const char *text;
	} opts[] = {{SOL_SOCKET, SO_SNDBUF, 30000, "SO_SNDBUF"},
		    {SOL_SOCKET, SO_RCVBUF, 30000, "SO_RCVBUF"},
		    {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
		    {IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"},
		    {IPPROTO_TCP, TCP_QUICKACK, 1, "TCP_QUICKACK"},
		    {IPPROTO_TCP, TCP_CORK, 1, "TCP_CORK"},
		    {IPPROTO_TCP, TCP_CORK, 0, "TCP_CORK"},
		    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1000, "TCP_NOTSENT_LOWAT"},
		    {SOL_SOCKET, SO_ERROR, 0, "SO_ERROR"},
		    {SOL_SOCKET, SO_TYPE, 0, "SO_TYPE"},
		    {SOL_SOCKET, SO_PROTOCOL, 0, "SO_PROTOCOL"},
		    {SOL_SOCKET, SO_DOMAIN, 0, "SO_DOMAIN"},
		    {SOL_SOCKET, SO_ACCEPTCONN, 0, "SO_ACCEPTCONN"}};
	for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
		int n = opts[i].value;
		socklen_t len = sizeof n;
		int r = setsockopt(p.c, opts[i].level, opts[i].name, &n, len);
		say("%s: set %d", opts[i].text, r);
		r = getsockopt(p.c, opts[i].level, opts[i].name, &n, &len);
		say("%s: get %d, %d, length %u", opts[i].text, r, n, len);
	}
	send_pattern(p.c, 0, 3000);
	recv_pattern(p.s, 0, 3000);
	pair_close(p);
}

CASE(nonblocking_full, DIRECT)
{
	struct pair p = pair_warm_open();
	static char buf[65536];
	uint64_t sent = 0, got = 0;
	ssize_t r;
	nonblock(p.c, true);
	nonblock(p.s, true);
	say_result("nothing there", recv(p.s, buf, 1, 0));
	while ((r = send(p.c, buf, sizeof buf, 0)) > 0)
		sent += (uint64_t)r;
	say_result("full", r);
	struct pollfd pf = {p.c, POLLOUT, 0};
	say_result("no room by poll", poll(&pf, 1, 0));
	while (got < sent) {
		wait_events(p.s, POLLIN);
		while ((r = recv(p.s, buf, sizeof buf, 0)) > 0)
			got += (uint64_t)r;
		NEED(r < 0 && errno == EAGAIN);
	}
	say("all arrived: %d", got == sent);
	say("room: %s", poll_names(wait_events(p.c, POLLOUT)));
	nonblock(p.c, false);
	nonblock(p.s, false);
	pair_warm(p);
	pair_close(p);
}

/* A program that fills its connection before it reads the other end itself. */
static void self_buffer(size_t len)
{
	struct pair p = pair_warm_open();
	nonblock(p.c, true);
	static char buf[1 << 20];
	size_t sent = 0;
	while (sent < len) {
		ssize_t r = send(p.c, buf, len - sent, 0);
		if (r < 0)
			break;
		sent += (size_t)r;
	}
	say("taken: %d", sent == len);
	size_t got = 0;
	while (got < sent) {
		ssize_t r = recv(p.s, buf, sizeof buf, 0);
		NEED(r > 0);
		got += (size_t)r;
	}
	say("got: %d", got == sent);
	pair_close(p);
}

CASE(self_buffer_200k, DIRECT)
{
	self_buffer(200000);
}

CASE(self_buffer_1m, DIRECT)
{
	self_buffer(1000000);
}

/* Who sets the buffers at both ends wants to notice a slow reader. */
CASE(bounded_buffers, DIRECT)
{
	struct pair p = pair_warm_open();
	static uint8_t buf[300000];
	size_t sent = 0;
	int size = 4096;
	NEED(setsockopt(p.c, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
	for (size_t i = 0; i < sizeof buf; i++)
		buf[i] = pattern(i);
	nonblock(p.c, true);
	while (sent < sizeof buf) {
		ssize_t r = send(p.c, buf + sent, sizeof buf - sent, 0);
		if (r < 0)
			break;
		sent += (size_t)r;
	}
	say("taken: some %d, all %d", sent > 4096, sent == sizeof buf);
	nonblock(p.c, false);
	recv_pattern(p.s, 0, sent);
	pair_warm(p);
	pair_close(p);
}

CASE(self_buffer_both_ways, DIRECT)
{
	struct pair p = pair_warm_open();
	send_pattern(p.c, 0, 200000);
	send_pattern(p.s, 5, 200000);
	recv_pattern(p.s, 0, 200000);
	recv_pattern(p.c, 5, 200000);
	say("done");
	pair_close(p);
}

/* Bytes in the ring and behind them on TCP: one call takes all that there is room for. */
CASE(readv_over_the_way_down, DIRECT)
{
	struct pair p = pair_warm_open();
	uint8_t buf[250];
	struct iovec parts[5];
	send_pattern(p.c, 0, 100);
	/* Its end sends over TCP from now on. */
	NEED(fcntl(p.c, F_SETFL, O_ASYNC) == 0);
	send_pattern(p.c, 100, 1000);
	wait_inq(p.s, 1100);
	for (int i = 0; i < 5; i++)
		parts[i] = (struct iovec){buf + 50 * i, 50};
	say_result("readv", readv(p.s, parts, 5));
	for (size_t i = 0; i < sizeof buf; i++)
		NEED(buf[i] == pattern(i));
	recv_pattern(p.s, 250, 850);
	pair_close(p);
}

/* The same, with the end behind it. */
CASE(recv_over_the_way_down_to_the_end, DIRECT)
{
	struct pair p = pair_warm_open();
	uint8_t buf[2000];
	send_pattern(p.c, 0, 100);
	NEED(fcntl(p.c, F_SETFL, O_ASYNC) == 0);
	send_pattern(p.c, 100, 1000);
	shutdown(p.c, SHUT_WR);
	wait_events(p.s, POLLRDHUP);
	say_result("recv", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	say_result("end", recv(p.s, buf, sizeof buf, MSG_DONTWAIT));
	pair_close(p);
}
