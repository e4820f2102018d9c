/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: a process that uses io_uring, for files or on connections that it has. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
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
	/* liburing since 2.6 leaves them to who has made the ring. */
	ring->ring_fd = fd;
	ring->enter_ring_fd = fd;
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

/* By default such a ring is refused under Viaduct: see libuv.c. */
CASE(uring_syscall, DIRECT)
{
	if (!getenv("VIADUCT_IO_URING")) {
		setenv("VIADUCT_IO_URING", "leave", 1);
		execl("/proc/self/exe", "cases", "uring_syscall", NULL);
		broken("exec");
	}
	talk(by_syscall);
}

/* ---- a ring for files, as databases have ---- */

static struct io_uring ring_of(unsigned flags)
{
	struct io_uring ring;
	int r = io_uring_queue_init(8, &ring, flags);
	if (r == -ENOSYS || r == -EPERM)
		skip("no io_uring here");
	NEED(r == 0);
	return ring;
}

static void exchange(struct pair p)
{
	char buf[8];
	send_all(p.c, "there", 5);
	recv_all(p.s, buf, 5);
	send_all(p.s, "back", 4);
	recv_all(p.c, buf, 4);
	say("exchanged");
}

static int file_of(const char *content)
{
	int fd = memfd_create("uring", MFD_CLOEXEC);
	NEED(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	return fd;
}

/* What has been prepared is submitted in one of these ways. */
static int ask(struct io_uring *ring, int way)
{
	struct __kernel_timespec second = {.tv_sec = 1};
	struct io_uring_cqe *cqe = NULL;
	int r;
	switch (way) {
	case 0:
		r = io_uring_submit(ring);
		break;
	case 1:
		r = io_uring_submit_and_wait(ring, 1);
		break;
	case 2:
		r = io_uring_submit_and_wait_timeout(ring, &cqe, 1, &second, NULL);
		break;
	default:
		r = io_uring_submit_and_get_events(ring);
		break;
	}
	if (r < 0)
		return r;
	r = way == 1 ? io_uring_wait_cqe_timeout(ring, &cqe, &second)
		     : io_uring_wait_cqes(ring, &cqe, 1, &second, NULL);
	if (r < 0)
		return r;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r;
}
#define WAYS 4

CASE(uring_files, STAYS)
{
	struct pair p = pair_warm_open();
	struct io_uring ring = ring_of(0);
	int file = file_of("content");
	char buf[8] = "";
	for (int way = 0; way < WAYS; way++) {
		io_uring_prep_read(io_uring_get_sqe(&ring), file, buf, 7, 0);
		say("read: %d %s", ask(&ring, way), buf);
		io_uring_prep_write(io_uring_get_sqe(&ring), file, "CON", 3, 0);
		say("write: %d", ask(&ring, way));
		io_uring_prep_fsync(io_uring_get_sqe(&ring), file, 0);
		say("fsync: %d", ask(&ring, way));
		exchange(p);
	}
	say("register: %d", io_uring_register_files(&ring, &file, 1));
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, 0, buf, 7, 0);
	sqe->flags |= IOSQE_FIXED_FILE;
	say("read: %d %s", ask(&ring, 0), buf);
	exchange(p);
	pair_close(p);
	/* Nor do later ones. */
	p = pair_warm_open();
	exchange(p);
	pair_close(p);
	io_uring_queue_exit(&ring);
}

/* A ring in memory of the program's, as PostgreSQL 18 has them. */
__attribute__((weak)) int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring,
						  struct io_uring_params *p, void *buf,
						  size_t size);

CASE(uring_in_own_memory, STAYS)
{
	const size_t size = 1 << 20;
	struct pair p = pair_warm_open();
	struct io_uring ring;
	struct io_uring_params params = {.flags = 1u << 14 /* IORING_SETUP_NO_MMAP */};
	int file = file_of("content");
	char buf[8] = "";
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	int r = io_uring_queue_init_mem
			? io_uring_queue_init_mem(8, &ring, &params, memory, size)
			: -ENOSYS;
	if (r == -ENOSYS || r == -EPERM || r == -EINVAL)
		skip("no io_uring in a program's own memory here");
	say("set up: %s", r > 0 ? "so many bytes" : "nothing");
	for (int way = 0; way < WAYS; way++) {
		io_uring_prep_read(io_uring_get_sqe(&ring), file, buf, 7, 0);
		say("read: %d %s", ask(&ring, way), buf);
		exchange(p);
	}
	io_uring_queue_exit(&ring);
	pair_close(p);
}

/* Files first, then a connection with bytes in it, by each function that submits. */
CASE(uring_from_files_to_sockets, DIRECT)
{
	for (int way = 0; way < WAYS; way++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct pair p = pair_warm_open();
			struct io_uring ring = ring_of(0);
			int file = file_of("content");
			char buf[8] = "";
			say_as("child");
			alarm(20);
			io_uring_prep_read(io_uring_get_sqe(&ring), file, buf, 7, 0);
			say("read: %d %s", ask(&ring, way), buf);
			exchange(p);
			send_all(p.c, "unread", 6);
			io_uring_prep_read(io_uring_get_sqe(&ring), p.s, buf, 6, 0);
			say("read: %d %s", ask(&ring, way), buf);
			io_uring_prep_write(io_uring_get_sqe(&ring), p.s, "answer", 6, 0);
			say("write: %d", ask(&ring, way));
			recv_all(p.c, buf, 6);
			say("%s", buf);
			exchange(p);
			_exit(0);
		}
		say("status %d", child_status(pid));
	}
}

static int update(struct io_uring *ring, int how, int *fd)
{
	const __u64 tag = 0;
	switch (how) {
	case 0:
		return io_uring_register_files(ring, fd, 1);
	case 1:
		return io_uring_register_files_tags(ring, fd, &tag, 1);
	case 2:
		io_uring_register_files_sparse(ring, 1);
		return io_uring_register_files_update(ring, 0, fd, 1);
	case 3:
		io_uring_register_files_sparse(ring, 1);
		return io_uring_register_files_update_tag(ring, 0, fd, &tag, 1);
	default:
		return io_uring_register((unsigned)ring->ring_fd, IORING_REGISTER_FILES,
					 fd, 1);
	}
}

/* A registered socket has an index for its number. */
CASE(uring_registered, DIRECT)
{
	for (int how = 0; how < 5; how++) {
		struct pair p = pair_warm_open();
		struct io_uring ring = ring_of(0);
		char buf[8] = "";
		send_all(p.c, "unread", 6);
		say("register: %d", update(&ring, how, &p.s));
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read(sqe, 0, buf, 6, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
		say("read: %d %s", complete(&ring), buf);
		io_uring_queue_exit(&ring);
		pair_close(p);
	}
}

/* Entries that the program hands to the kernel itself. */
CASE(uring_entered, DIRECT)
{
	for (int how = 0; how < 3; how++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct pair p = pair_warm_open();
			struct io_uring ring = ring_of(0);
			unsigned ring_fd = (unsigned)ring.ring_fd;
			struct io_uring_cqe *cqe;
			char buf[8] = "";
			int r;
			say_as("child");
			alarm(20);
			send_all(p.c, "unread", 6);
			io_uring_prep_read(io_uring_get_sqe(&ring), p.s, buf, 6, 0);
			*ring.sq.ktail = ring.sq.sqe_head = ring.sq.sqe_tail;
			r = how == 0   ? io_uring_enter(ring_fd, 1, 0, 0, NULL)
			    : how == 1 ? io_uring_enter2(ring_fd, 1, 0, 0, NULL, 8)
				       : (int)syscall(SYS_io_uring_enter, ring_fd, 1, 0,
						      0, NULL, 8);
			say("enter: %d", r);
			NEED(io_uring_wait_cqe(&ring, &cqe) == 0);
			say("read: %d %s", cqe->res, buf);
			_exit(0);
		}
		say("status %d", child_status(pid));
	}
}

/* The kernel takes entries whenever it likes. */
CASE(uring_sqpoll, DIRECT)
{
	struct pair p = pair_warm_open();
	struct io_uring ring = ring_of(IORING_SETUP_SQPOLL);
	char buf[8] = "";
	send_all(p.c, "unread", 6);
	say("recv: %d", uring_recv(&ring, p.s, buf, 6));
	say("%s", buf);
	io_uring_queue_exit(&ring);
	pair_close(p);
}

/* A ring that looks at an epoll instance, which the program has filled before. */
CASE(uring_watches_epoll, DIRECT)
{
	struct pair p = pair_warm_open();
	struct io_uring ring = ring_of(0);
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = p.s};
	int epfd = epoll_create1(0), r;
	NEED(epoll_ctl(epfd, EPOLL_CTL_ADD, p.s, &ev) == 0);
	send_all(p.c, "a", 1);
	NEED(epoll_wait(epfd, &ev, 1, -1) == 1);
	recv_all(p.s, &ev, 1);
	io_uring_prep_poll_add(io_uring_get_sqe(&ring), epfd, POLLIN);
	NEED(io_uring_submit(&ring) == 1);
	send_all(p.c, "b", 1);
	struct io_uring_cqe *cqe;
	NEED(io_uring_wait_cqe(&ring, &cqe) == 0);
	say("polled: %s", poll_names(cqe->res));
	r = epoll_wait(epfd, &ev, 1, 0);
	say("epoll_wait: %d", r);
	io_uring_queue_exit(&ring);
	pair_close(p);
}

#endif
