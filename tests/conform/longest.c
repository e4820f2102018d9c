/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls that are given more bytes than the kernel moves in one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cases.h"

#define MOST	 2147479552l
#define GIB	 (1l << 30)
#define PIECE	 (1l << 24)
#define PIECES	 200
#define LAST_FEW 5

/* One piece of memory, again and again: 3.1 GB. */
static struct iovec *long_vector(void)
{
	static struct iovec v[PIECES];
	char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(piece != MAP_FAILED);
	for (int i = 0; i < PIECES; i++)
		v[i] = (struct iovec){piece, PIECE};
	return v;
}

/* Memory that is never touched but to be read: one page of zeros for all. */
static char *long_memory(void)
{
	char *p = mmap(NULL, 3 * GIB, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(p != MAP_FAILED);
	return p;
}

static void drop_all(int fd, void *arg)
{
	uint64_t total = 0;
	ssize_t n;
	(void)arg;
	while ((n = recv(fd, NULL, GIB, MSG_TRUNC)) > 0)
		total += (uint64_t)n;
	say("dropped %llu", (unsigned long long)total);
}

static int drop_start(pid_t *pid)
{
	return peer_start(drop_all, NULL, pid);
}

static void drop_end(int fd, pid_t pid)
{
	close(fd);
	say("status %d", child_status(pid));
}

CASE(longest_vector, DIRECT)
{
	struct iovec *v = long_vector();
	struct msghdr h = {.msg_iov = v, .msg_iovlen = PIECES};
	struct mmsghdr two[2] = {{.msg_hdr = h},
				 {.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}}};
	pid_t pid;
	int fd = drop_start(&pid);
	say_result("writev", writev(fd, v, PIECES));
	say_result("pwritev2", pwritev2(fd, v, PIECES, -1, 0));
	say_result("sendmsg", sendmsg(fd, &h, 0));
	say_result("sendmmsg", sendmmsg(fd, two, 2, 0));
	say("%u %u", two[0].msg_len, two[1].msg_len);
	drop_end(fd, pid);
}

CASE(longest_piece, DIRECT)
{
	char *p = long_memory();
	pid_t pid;
	int fd = drop_start(&pid);
	say_result("write", write(fd, p, 3 * GIB));
	say_result("send", send(fd, p, 3 * GIB, 0));
	say_result("sendto", sendto(fd, p, 3 * GIB, 0, NULL, 0));
	drop_end(fd, pid);
}

static int long_file(void)
{
	int file = memfd_create("long", 0);
	NEED(file >= 0 && ftruncate(file, 5 * GIB) == 0);
	return file;
}

static void say_sendfile(int fd, int file, off_t at, size_t count)
{
	off_t off = at;
	NEED(lseek(file, at, SEEK_SET) == at);
	say_result("of its own", sendfile(fd, file, NULL, count));
	say("at %ld", (long)lseek(file, 0, SEEK_CUR));
	say_result("of ours", sendfile(fd, file, &off, count));
	say("at %ld", (long)off);
}

CASE(longest_file, DIRECT)
{
	int file = long_file();
	pid_t pid;
	int fd = drop_start(&pid);
	say_sendfile(fd, file, 3 * GIB - LAST_FEW, 3 * GIB);
	say_sendfile(fd, file, 4096, LONG_MAX);
	say_sendfile(fd, file, 0, (size_t)LONG_MAX + 1);
	say_sendfile(fd, file, 0, SIZE_MAX);
	say_sendfile(fd, file, 1, LONG_MAX);
	say_sendfile(fd, file, 5 * GIB - 1, LONG_MAX - 5 * GIB + 1);
	say_sendfile(fd, file, 5 * GIB - 1, LONG_MAX - 5 * GIB + 2);
	say_sendfile(fd, file, 5 * GIB, LONG_MAX);
	say_sendfile(fd, file, LONG_MAX - LAST_FEW, LAST_FEW);
	say_sendfile(fd, file, LONG_MAX - LAST_FEW, LAST_FEW + 1);
	off_t off = -1;
	say_result("before", sendfile(fd, file, &off, 1));
	drop_end(fd, pid);
}

CASE(longest_file_whole, DIRECT)
{
	int file = long_file();
	pid_t pid;
	int fd = drop_start(&pid);
	NEED(lseek(file, 0, SEEK_SET) == 0);
	say_result("sendfile", sendfile(fd, file, NULL, LONG_MAX));
	drop_end(fd, pid);
}

/* What is wrong with the file is told before what is wrong with its end. */
CASE(longest_file_refused, DIRECT)
{
	struct pair p = pair_warm_open();
	char path[] = "/tmp/longest-XXXXXX";
	int file = mkstemp(path), way[2], closed = 999;
	NEED(file >= 0 && unlink(path) == 0 && pipe(way) == 0);
	int files[] = {closed, way[0], way[1], p.s, open("/dev/null", O_WRONLY)};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		off_t off = LONG_MAX;
		say_result("sendfile", sendfile(p.c, files[i], &off, LONG_MAX));
		say("at %ld", (long)off);
	}
	NEED(fcntl(p.c, F_SETFL, O_APPEND) == 0);
	say_result("appends", sendfile(p.c, file, &(off_t){1}, LONG_MAX));
	pair_close(p);
}

/* ---- receiving ---- */

static void give_much(int fd, void *arg)
{
	char *p = long_memory();
	long left = *(long *)arg;
	while (left > 0) {
		ssize_t n = write(fd, p, (size_t)(left < GIB ? left : GIB));
		NEED(n > 0);
		left -= n;
	}
}

static void say_rest(int fd, pid_t pid)
{
	char rest[64];
	say_result("rest", recv(fd, rest, sizeof rest, MSG_WAITALL));
	close(fd);
	say("status %d", child_status(pid));
}

CASE(longest_recvmsg, DIRECT)
{
	struct iovec *v = long_vector();
	struct msghdr h = {.msg_iov = v, .msg_iovlen = PIECES};
	struct mmsghdr m = {.msg_hdr = h};
	long much = 2 * MOST + LAST_FEW;
	pid_t pid;
	int fd = peer_start(give_much, &much, &pid);
	say_result("recvmsg", recvmsg(fd, &h, MSG_WAITALL));
	say_result("recvmmsg", recvmmsg(fd, &m, 1, MSG_WAITALL, NULL));
	say("%u", m.msg_len);
	say_rest(fd, pid);
}

CASE(longest_recv, DIRECT)
{
	long much = 2 * MOST + LAST_FEW;
	char *p = mmap(NULL, 3 * GIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pid_t pid;
	int fd = peer_start(give_much, &much, &pid);
	NEED(p != MAP_FAILED);
	say_result("recv", recv(fd, p, 3 * GIB, MSG_WAITALL | MSG_TRUNC));
	say_result("recvfrom",
		   recvfrom(fd, p, 3 * GIB, MSG_WAITALL | MSG_TRUNC, NULL, NULL));
	say_rest(fd, pid);
}
