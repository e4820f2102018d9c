/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: an event loop that batches epoll_ctl by io_uring where it can, as libuv does. */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/cases.h"

enum { ENTRIES = 256, EPOLL_CTL_OP = 29 /* IORING_OP_EPOLL_CTL */ };
#define NO_SQARRAY (1u << 16) /* IORING_SETUP_NO_SQARRAY */

struct loop {
	int epfd, ring; /* ring: -1 where there is none */
	struct io_uring_params params;
	uint8_t *queue;
	struct io_uring_sqe *entries;
};

static _Atomic uint32_t *word_of(const struct loop *l, uint32_t offset)
{
	return (_Atomic uint32_t *)(void *)(l->queue + offset);
}

static void loop_begin(struct loop *l)
{
	memset(l, 0, sizeof *l);
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	NEED(l->epfd >= 0);
	l->params.flags = NO_SQARRAY;
	l->ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &l->params);
	if (l->ring < 0)
		return;
	size_t size = l->params.cq_off.cqes +
		      l->params.cq_entries * sizeof(struct io_uring_cqe);
	l->queue = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			l->ring, IORING_OFF_SQ_RING);
	l->entries = mmap(NULL, l->params.sq_entries * sizeof *l->entries,
			  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, l->ring,
			  IORING_OFF_SQES);
	NEED(l->queue != MAP_FAILED && (void *)l->entries != MAP_FAILED);
}

static int by_ring(struct loop *l, int op, int fd, struct epoll_event *ev)
{
	_Atomic uint32_t *tail = word_of(l, l->params.sq_off.tail);
	_Atomic uint32_t *head = word_of(l, l->params.cq_off.head);
	uint32_t mask = *word_of(l, l->params.sq_off.ring_mask), at = *tail & mask;
	const struct io_uring_cqe *done =
		(const void *)(l->queue + l->params.cq_off.cqes);
	l->entries[at] = (struct io_uring_sqe){.opcode = EPOLL_CTL_OP,
					       .fd = l->epfd,
					       .addr = (uintptr_t)ev,
					       .len = (uint32_t)op,
					       .off = (uint32_t)fd};
	atomic_fetch_add(tail, 1);
	NEED(syscall(SYS_io_uring_enter, l->ring, 1, 1, IORING_ENTER_GETEVENTS, NULL,
		     0) == 1);
	uint32_t cq_mask = *word_of(l, l->params.cq_off.ring_mask);
	int result = done[*head & cq_mask].res;
	atomic_fetch_add(head, 1);
	return result;
}

static int watch(struct loop *l, int op, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	if (l->ring >= 0)
		return by_ring(l, op, fd, &ev);
	return epoll_ctl(l->epfd, op, fd, &ev) == 0 ? 0 : -errno;
}

static void wait_one(struct loop *l, int fd, const char *what)
{
	struct epoll_event ev;
	NEED(epoll_pwait(l->epfd, &ev, 1, -1, NULL) == 1);
	say("%s: %s%s", what, ev.data.fd == fd ? "its own, " : "another, ",
	    ev.events & EPOLLIN ? "in" : "no in");
}

static void turns(struct loop *l, struct pair p)
{
	char buf[64];
	say("add: %d", watch(l, EPOLL_CTL_ADD, p.s, EPOLLIN));
	for (int i = 0; i < 3; i++) {
		send_all(p.c, "question", 8);
		wait_one(l, p.s, "event");
		recv_all(p.s, buf, 8);
		say("change: %d", watch(l, EPOLL_CTL_MOD, p.s, EPOLLIN | EPOLLOUT));
		wait_one(l, p.s, "room");
		say("back: %d", watch(l, EPOLL_CTL_MOD, p.s, EPOLLIN));
		send_all(p.s, "answer", 6);
		recv_all(p.c, buf, 6);
	}
	say("again: %d", watch(l, EPOLL_CTL_ADD, p.s, EPOLLIN));
	say("remove: %d", watch(l, EPOLL_CTL_DEL, p.s, 0));
	say("twice: %d", watch(l, EPOLL_CTL_DEL, p.s, 0));
}

/* The loop is there before its first connection, as in every program. */
CASE(libuv_loop, STAYS)
{
	struct loop l;
	loop_begin(&l);
	for (int i = 0; i < 2; i++) {
		struct pair p = pair_warm_open();
		turns(&l, p);
		pair_close(p);
	}
}

/* A second loop comes late, in a process whose connections are upgraded. */
CASE(libuv_late_loop, STAYS)
{
	struct pair p = pair_warm_open();
	struct loop l;
	send_all(p.c, "unread", 6);
	loop_begin(&l);
	char buf[8] = "";
	recv_all(p.s, buf, 6);
	say("%s", buf);
	turns(&l, p);
	pair_close(p);
}

/* Programs that look whether there is io_uring: whatever the answer, nothing changes. */
CASE(libuv_probe, STAYS)
{
	struct pair p = pair_warm_open();
	struct loop l;
	send_all(p.c, "unread", 6);
	say("register: %ld", syscall(SYS_io_uring_register, -1, 0, NULL, 0));
	say("enter: %ld", syscall(SYS_io_uring_enter, -1, 1, 0, 0, NULL, 0));
	say("setup: %ld", syscall(SYS_io_uring_setup, 0, NULL));
	char buf[8] = "";
	recv_all(p.s, buf, 6);
	say("%s", buf);
	loop_begin(&l);
	turns(&l, p);
	pair_close(p);
}
