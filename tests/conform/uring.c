/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a process that begins to use io_uring on connections that it has. */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/cases.h"

#if __has_include(<liburing.h>)
#include <liburing.h>

static int complete(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int result;
	if (io_uring_submit(ring) != 1 || io_uring_wait_cqe(ring, &cqe) != 0)
		broken("io_uring");
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

static int uring_send(struct io_uring *ring, int fd, const void *buf, size_t len)
{
	io_uring_prep_send(io_uring_get_sqe(ring), fd, buf, len, 0);
	return complete(ring);
}

static int uring_recv(struct io_uring *ring, int fd, void *buf, size_t len)
{
	io_uring_prep_recv(io_uring_get_sqe(ring), fd, buf, len, 0);
	return complete(ring);
}

/* What came before it lies unread; then both sides talk, one of them by the ring. */
static void talk(int (*set_up)(struct io_uring *ring))
{
	struct pair p = pair_warm_open();
	struct io_uring ring;
	char buf[8] = "";
	send_all(p.c, "before", 6);
	int r = set_up(&ring);
	if (r == -ENOSYS || r == -EPERM)
		skip("no io_uring here");
	say("set up: %d", r);
	for (int got = 0; got < 6;) {
		r = uring_recv(&ring, p.s, buf + got, 6 - (size_t)got);
		NEED(r > 0);
		got += r;
	}
	say("recv: %s", buf);
	say("send: %d", uring_send(&ring, p.s, "hello", 5));
	recv_all(p.c, buf, 5);
	say("recv: %.5s", buf);
	send_all(p.c, "again", 5);
	say("recv: %d", uring_recv(&ring, p.s, buf, 5));
	close(p.c);
	say("end: %d", uring_recv(&ring, p.s, buf, 5));
	io_uring_queue_exit(&ring);
	close(p.s);
}

static int by_queue_init(struct io_uring *ring)
{
	return io_uring_queue_init(8, ring, 0);
}

static int by_params(struct io_uring *ring)
{
	struct io_uring_params params = {0};
	return io_uring_queue_init_params(8, ring, &params);
}

static int map(int fd, struct io_uring_params *params, struct io_uring *ring)
{
	int r = io_uring_queue_mmap(fd, params, ring);
	for (unsigned i = 0; r == 0 && i < params->sq_entries; i++)
		ring->sq.array[i] = i;
	return r;
}

static int by_set_up(struct io_uring *ring)
{
	struct io_uring_params params = {0};
	int fd = io_uring_setup(8, &params);
	return fd < 0 ? fd : map(fd, &params, ring);
}

static int by_syscall(struct io_uring *ring)
{
	struct io_uring_params params = {0};
	int fd = (int)syscall(SYS_io_uring_setup, 8, &params);
	return fd < 0 ? -errno : map(fd, &params, ring);
}

CASE(uring_queue_init, DIRECT)
{
	talk(by_queue_init);
}

CASE(uring_params, DIRECT)
{
	talk(by_params);
}

CASE(uring_set_up, DIRECT)
{
	talk(by_set_up);
}

CASE(uring_syscall, DIRECT)
{
	talk(by_syscall);
}

#endif
