/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what a call was begun with is changed, or gone, while it sleeps. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "call.h"

/* One, some, and more than what is kept without a mapping. */
static const int counts[] = {1, 200, 1000};
#define COUNTS	    (sizeof counts / sizeof *counts)
#define ARRAY_BYTES (1024 * sizeof(struct iovec))

/* ---- arrays ---- */

struct vector_call {
	struct call call;
	const char *name;
	ssize_t (*run)(struct vector_call *v);
	struct iovec *iov;
	int count;
	struct mmsghdr msg;
};

static ssize_t run_writev(struct vector_call *v)
{
	return writev(v->call.fd, v->iov, v->count);
}

static ssize_t run_pwritev2(struct vector_call *v)
{
	return pwritev2(v->call.fd, v->iov, v->count, -1, 0);
}

static ssize_t run_sendmsg(struct vector_call *v)
{
	return sendmsg(v->call.fd, &v->msg.msg_hdr, 0);
}

static ssize_t run_sendmmsg(struct vector_call *v)
{
	return sendmmsg(v->call.fd, &v->msg, 1, 0);
}

static ssize_t run_readv(struct vector_call *v)
{
	return readv(v->call.fd, v->iov, v->count);
}

static ssize_t run_preadv2(struct vector_call *v)
{
	return preadv2(v->call.fd, v->iov, v->count, -1, 0);
}

static ssize_t run_recvmsg(struct vector_call *v)
{
	return recvmsg(v->call.fd, &v->msg.msg_hdr, v->call.flags);
}

static ssize_t run_recvmmsg(struct vector_call *v)
{
	return recvmmsg(v->call.fd, &v->msg, 1, v->call.flags, NULL);
}

static void vector_run(void *arg)
{
	struct vector_call *v = arg;
	v->call.result = v->run(v);
	v->call.error = errno;
}

/* In an array of its own: `len` bytes of memory, in pieces. */
static void vector_make(struct vector_call *v, int count, char *memory, size_t len)
{
	v->iov = mmap(NULL, ARRAY_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(v->iov != MAP_FAILED);
	v->count = count;
	for (int i = 0; i < count; i++)
		v->iov[i] = (struct iovec){memory + len / (size_t)count * (size_t)i,
					   len / (size_t)count};
	v->iov[count - 1].iov_len += len % (size_t)count;
	v->msg = (struct mmsghdr){
		.msg_hdr = {.msg_iov = v->iov, .msg_iovlen = (size_t)count}};
}

/* Other memory, a part of it, or none. */
enum change { OTHER, SHORTER, UNMAPPED, CHANGES };

static void vector_change(struct vector_call *v, enum change change, char *memory)
{
	for (int i = 0; i < v->count && change != UNMAPPED; i++) {
		v->iov[i].iov_base = memory;
		if (change == SHORTER)
			v->iov[i].iov_len = 1;
	}
	v->msg.msg_hdr.msg_iov = NULL;
	v->msg.msg_hdr.msg_iovlen = 2;
	if (change == UNMAPPED) {
		NEED(munmap(v->iov, ARRAY_BYTES) == 0);
		v->iov = NULL;
	}
}

static void vector_free(struct vector_call *v)
{
	if (v->iov)
		munmap(v->iov, ARRAY_BYTES);
}

/* Of what comes, how much is what the call began with. */
static void say_letters(int fd, size_t len)
{
	static char to[1 << 16];
	size_t a = 0, other = 0;
	while (a + other < len) {
		size_t left = len - a - other;
		ssize_t n = recv(fd, to, left < sizeof to ? left : sizeof to, 0);
		NEED(n > 0);
		for (ssize_t i = 0; i < n; i++)
			*(to[i] == 'A' ? &a : &other) += 1;
	}
	say("the call's own: %zu, other: %zu", a, other);
}

static void send_changed(ssize_t (*run)(struct vector_call *), int count,
			 enum change change)
{
	char *a = bulk_room(), *b = a + BULK;
	struct pair p = pair_warm_open();
	struct vector_call v = {.call.fd = p.s, .run = run};
	struct worker t;
	memset(a, 'A', BULK);
	memset(b, 'B', BULK);
	vector_make(&v, count, a, BULK);
	worker_start(&t, vector_run, &v);
	wait_crowd_asleep(&t.tid, 1);
	vector_change(&v, change, b);
	say_letters(p.c, BULK);
	call_end(&t, &v.call);
	vector_free(&v);
	pair_close(p);
}

static void send_changes(ssize_t (*run)(struct vector_call *))
{
	for (unsigned i = 0; i < COUNTS; i++)
		for (int change = 0; change < CHANGES; change++)
			send_changed(run, counts[i], change);
}

CASE(begun_writev, DIRECT)
{
	send_changes(run_writev);
}

CASE(begun_pwritev2, DIRECT)
{
	send_changes(run_pwritev2);
}

CASE(begun_sendmsg, DIRECT)
{
	send_changes(run_sendmsg);
}

CASE(begun_sendmmsg, DIRECT)
{
	send_changes(run_sendmmsg);
}

enum { PIECES = 4000 };

static void receive_changed(ssize_t (*run)(struct vector_call *), int count,
			    enum change change, int flags)
{
	static char a[PIECES + 1], b[PIECES + 1], from[PIECES];
	bool all = flags & MSG_WAITALL;
	struct pair p = pair_warm_open();
	struct vector_call v = {.call = {.fd = p.s, .flags = flags}, .run = run};
	struct worker t;
	memset(a, 0, sizeof a);
	memset(b, 0, sizeof b);
	memset(from, 'A', sizeof from);
	vector_make(&v, count, a, PIECES);
	worker_start(&t, vector_run, &v);
	wait_crowd_asleep(&t.tid, 1);
	if (all) {
		send_all(p.c, from, PIECES / 2);
		wait_inq(p.s, flags & MSG_PEEK ? PIECES / 2 : 0);
		wait_crowd_asleep(&t.tid, 1);
	}
	vector_change(&v, change, b);
	send_all(p.c, from, all ? PIECES / 2 : PIECES);
	call_end(&t, &v.call);
	say("in the call's own: %zu, elsewhere: %zu", strlen(a), strlen(b));
	vector_free(&v);
	if (flags & MSG_PEEK)
		recv_all(p.s, bulk_room(), PIECES);
	pair_close(p);
}

static void receive_changes(ssize_t (*run)(struct vector_call *), int flags)
{
	for (unsigned i = 0; i < COUNTS; i++)
		for (int change = 0; change < CHANGES; change++)
			receive_changed(run, counts[i], change, flags);
}

/* The bytes of a piece come to lie where the second piece stands; more are queued than the call takes. */
static void receive_over_itself(ssize_t (*run)(struct vector_call *v), const char *name,
				int over)
{
	struct pair p = pair_warm_open();
	struct vector_call v = {.call.fd = p.s, .count = 2};
	char rest[8] = "";
	struct iovec iov[2], in = {&iov[1], sizeof iov[1]},
			     other = {rest, sizeof rest - 1};

	iov[over] = in;
	iov[!over] = other;
	v.iov = iov;
	v.msg.msg_hdr = (struct msghdr){.msg_iov = iov, .msg_iovlen = 2};
	send_all(p.c, "0123456789abcdefghijABCDEFGHIJ", 30);
	wait_inq(p.s, 30);
	say_result(name, run(&v));
	say("%s, %.16s", rest, (char *)&iov[1]);
	recv_all(p.s, rest, 7);
	pair_warm(p);
	pair_close(p);
}

static void receive_over_both(ssize_t (*run)(struct vector_call *v), const char *name)
{
	receive_over_itself(run, name, 0);
	receive_over_itself(run, name, 1);
}

CASE(begun_over_itself, STAYS)
{
	receive_over_both(run_readv, "readv");
	receive_over_both(run_preadv2, "preadv2");
	receive_over_both(run_recvmsg, "recvmsg");
	receive_over_both(run_recvmmsg, "recvmmsg");
}

CASE(begun_readv, DIRECT)
{
	receive_changes(run_readv, 0);
}

CASE(begun_preadv2, DIRECT)
{
	receive_changes(run_preadv2, 0);
}

CASE(begun_recvmsg, DIRECT)
{
	receive_changes(run_recvmsg, 0);
}

CASE(begun_recvmsg_all, DIRECT)
{
	receive_changes(run_recvmsg, MSG_WAITALL);
}

CASE(begun_recvmsg_peek, DIRECT)
{
	receive_changes(run_recvmsg, MSG_WAITALL | MSG_PEEK);
}

CASE(begun_recvmmsg, DIRECT)
{
	receive_changes(run_recvmmsg, 0);
}

/* The connection goes back to TCP in the sleep. */
CASE(begun_going, DIRECT)
{
	char *a = bulk_room(), *b = a + BULK;
	int on = 1;
	memset(a, 'A', BULK);
	memset(b, 'B', BULK);
	for (unsigned i = 0; i < COUNTS; i++) {
		struct pair p = pair_warm_open();
		struct vector_call v = {.call.fd = p.s, .run = run_writev};
		struct worker t;
		vector_make(&v, counts[i], a, BULK);
		worker_start(&t, vector_run, &v);
		wait_crowd_asleep(&t.tid, 1);
		NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
		say_letters(p.c, 1000000);
		vector_change(&v, OTHER, b);
		say_letters(p.c, BULK - 1000000);
		call_end(&t, &v.call);
		vector_free(&v);
		pair_close(p);
	}
}

/* Such calls that are ended from outside, more often than there is memory for them. */
static void cancelled(void *arg)
{
	vector_run(arg);
}

CASE(begun_cancelled, DIRECT)
{
	struct pair p = pair_warm_open();
	static char a[PIECES];
	for (int i = 0; i < 150; i++) {
		struct vector_call v = {.call.fd = p.s, .run = run_readv};
		struct worker t;
		vector_make(&v, counts[1 + i % 2], a, PIECES);
		worker_start(&t, cancelled, &v);
		wait_crowd_asleep(&t.tid, 1);
		NEED(pthread_cancel(t.thread) == 0);
		worker_join(&t);
		vector_free(&v);
	}
	receive_changed(run_readv, counts[1], UNMAPPED, 0);
	pair_close(p);
}

static sigjmp_buf back;

static void leave(int sig)
{
	siglongjmp(back, sig);
}

CASE(begun_left, DIRECT)
{
	struct pair p = pair_warm_open();
	struct sigaction act = {.sa_handler = leave};
	static char a[PIECES];
	NEED(sigaction(SIGALRM, &act, NULL) == 0);
	for (volatile int i = 0; i < 100; i++) {
		struct vector_call v = {.call.fd = p.s, .run = run_readv};
		vector_make(&v, counts[1 + i % 2], a, PIECES);
		if (sigsetjmp(back, 1) == 0) {
			ualarm(2000, 0);
			vector_run(&v);
		}
		vector_free(&v);
	}
	receive_changed(run_readv, counts[1], UNMAPPED, 0);
	pair_close(p);
}

/* ---- sendfile ---- */

struct file_call {
	struct call call;
	int file;
	off_t *at;
};

static void file_run(void *arg)
{
	struct file_call *c = arg;
	c->call.result = sendfile(c->call.fd, c->file, c->at, c->call.len);
	c->call.error = errno;
}

/* BULK bytes at 10. */
static int file_of(char letter)
{
	char *bytes = bulk_room();
	int fd = memfd_create("begun", 0);
	memset(bytes, letter, BULK);
	NEED(fd >= 0 && pwrite(fd, bytes, BULK, 10) == BULK);
	NEED(lseek(fd, 10, SEEK_SET) == 10);
	return fd;
}

/* ---- the file of a sendfile ---- */

static void file_run_then_end(void *arg)
{
	struct file_call *c = arg;
	file_run(c);
	NEED(shutdown(c->call.fd, SHUT_WR) == 0);
}

enum file_change { REPLACED, MOVED, LEFT_ALONE, FILE_CHANGES };

/* The rest of it sleeps in the kernel, which has the file: another one's position is not moved. */
CASE(begun_sendfile_in_kernel, DIRECT)
{
	struct pair p = pair_warm_open();
	int file = file_of('A'), other = file_of('B'), same = dup(file), on = 1;
	struct file_call c = {.call = {.fd = p.s, .len = BULK}, .file = file};
	struct worker t;
	long came = 0;
	worker_start(&t, file_run_then_end, &c);
	wait_crowd_asleep(&t.tid, 1);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	NEED(recv(p.c, bulk_room(), 1, 0) == 1);
	wait_crowd_asleep(&t.tid, 1);
	NEED(dup2(other, file) == file);
	for (ssize_t n; (n = recv(p.c, bulk_room(), BULK, 0)) > 0; came += n)
		;
	worker_join(&t);
	say("came as told: %d, the other's: %ld", came + 1 == c.call.result,
	    (long)lseek(other, 0, SEEK_CUR));
	close(same);
	close(other);
	close(file);
	pair_close(p);
}

/* Of a file that is replaced, TCP sends the rest as well. Bytes of another file nobody sends. */
static void sendfile_changed(enum file_change change, bool given, bool goes)
{
	struct pair p = pair_warm_open();
	int file = file_of('A'), other = file_of('B'), same = dup(file), on = 1;
	off_t at = 10;
	struct file_call c = {
		.call = {.fd = p.s, .len = BULK}, .file = file, .at = given ? &at : NULL};
	struct worker t;
	char *bytes = bulk_room();
	long came = 0, others = 0;
	worker_start(&t, file_run_then_end, &c);
	wait_crowd_asleep(&t.tid, 1);
	if (change == REPLACED)
		NEED(dup2(other, file) == file);
	else if (change == MOVED)
		NEED(lseek(file, 100, SEEK_SET) == 100);
	if (goes)
		NEED(setsockopt(p.s, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0);
	for (ssize_t n; (n = recv(p.c, bytes, BULK, 0)) > 0; came += n)
		for (ssize_t i = 0; i < n; i++)
			others += bytes[i] != 'A';
	worker_join(&t);
	NEED(c.call.result > 0);
	say("of others: %ld, came as told: %d, all: %d", others, came == c.call.result,
	    came == BULK || change == REPLACED);
	say("moved as told: %d, %d; the other's: %ld",
	    lseek(same, 0, SEEK_CUR) == 10 + (given ? 0 : came) ||
		    (change == REPLACED && !given),
	    at == 10 + (given ? came : 0), (long)lseek(other, 0, SEEK_CUR));
	close(same);
	close(other);
	close(file);
	pair_close(p);
}

CASE(begun_sendfile_file, DIRECT)
{
	for (int change = 0; change < FILE_CHANGES; change++) {
		sendfile_changed(change, false, false);
		sendfile_changed(change, true, false);
		sendfile_changed(change, false, true);
		sendfile_changed(change, true, true);
	}
}

/* ---- what ends a sendfile that has sent some ---- */

static volatile sig_atomic_t pipes;

static void count_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void sendfile_ended(int how)
{
	struct pair p = pair_warm_open();
	int file = file_of('A'), error = -1;
	struct file_call c = {.call = {.fd = p.s, .len = BULK}, .file = file};
	struct linger now = {1, 0};
	socklen_t len = sizeof error;
	struct worker t;
	pipes = 0;
	NEED(signal(SIGPIPE, count_pipe) != SIG_ERR);
	worker_start(&t, file_run, &c);
	wait_crowd_asleep(&t.tid, 1);
	if (how >= 0) {
		NEED(shutdown(p.s, how) == 0);
	} else {
		NEED(setsockopt(p.c, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
		NEED(close(p.c) == 0);
	}
	worker_join(&t);
	say("some: %d, SIGPIPE: %d", c.call.result > 0 && c.call.result < BULK,
	    (int)pipes);
	NEED(getsockopt(p.s, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	say("error: %s", error ? errno_name(error) : "none");
	say_result("send", send(p.s, "x", 1, MSG_NOSIGNAL));
	close(file);
	if (how >= 0)
		close(p.c);
	close(p.s);
}

CASE(begun_sendfile_ended, DIRECT)
{
	sendfile_ended(SHUT_WR);
	sendfile_ended(SHUT_RDWR);
	sendfile_ended(-1);
}

/* ---- numbers that are longer than what the kernel looks at ---- */

CASE(begun_ioctl_high, DIRECT)
{
	struct pair p = pair_warm_open();
	const unsigned long high = 1ul << 32;
	int n = -1, on = 1;
	send_all(p.c, "abcd", 4);
	wait_inq(p.s, 4);
	say_result("ioctl", ioctl(p.s, high | FIONREAD, &n));
	say("%d bytes", n);
	recv_all(p.s, bulk_room(), 4);
	say_result("ioctl", ioctl(p.s, high | FIONBIO, &on));
	say_result("recv", recv(p.s, bulk_room(), 4, 0));
	pair_close(p);
}
