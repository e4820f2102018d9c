/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that waits, given memory that it cannot use. */
#include <linux/aio_abi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/bad.h"

static ssize_t run_poll(struct pair p, enum bad kind, char *extra)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT, 0x5a},
		      *at = bad_place(kind, &pf, sizeof pf);
	ssize_t n = poll(at, 1, 0);
	if (kind == READABLE || kind == FITS)
		sprintf(extra, " %#x", (unsigned)at->revents);
	return n;
}

static ssize_t run_poll_many(struct pair p, enum bad kind, char *extra)
{
	struct pollfd pf[20];
	for (size_t i = 0; i < COUNT_OF(pf); i++)
		pf[i] = (struct pollfd){i % 3 ? -1 : p.s, POLLIN | POLLOUT, 0x5a};
	(void)extra;
	return poll(bad_place(kind, pf, sizeof pf), COUNT_OF(pf), 1);
}

static ssize_t run_ppoll_mask(struct pair p, enum bad kind, char *extra)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT, 0x5a};
	const struct timespec time = {0, 1000};
	const uint64_t mask = 0;
	ssize_t n = ppoll(&pf, 1, &time, bad_place(kind, &mask, sizeof mask));
	sprintf(extra, " %#x", (unsigned)pf.revents);
	return n;
}

static ssize_t run_ppoll_time(struct pair p, enum bad kind, char *extra)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT, 0x5a};
	const struct timespec time = {0, 1000};
	if (kind == NOTHING) /* for ever */
		return 0;
	ssize_t n =
		syscall(SYS_ppoll, &pf, 1, bad_place(kind, &time, sizeof time), NULL, 8);
	sprintf(extra, " %#x", (unsigned)pf.revents);
	return n;
}

static ssize_t run_ppoll_size(struct pair p, enum bad kind, char *extra)
{
	struct pollfd pf = {p.s, POLLIN | POLLOUT, 0x5a};
	const struct timespec time = {0, 1000};
	const uint64_t mask = 0;
	ssize_t n = syscall(SYS_ppoll, &pf, 1, &time, bad_place(kind, &mask, sizeof mask),
			    16);
	sprintf(extra, " %#x", (unsigned)pf.revents);
	return n;
}

static ssize_t run_select(struct pair p, enum bad kind, char *extra)
{
	struct timeval time = {0, 1000};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return select(p.s + 1, bad_place(kind, &set, sizeof set), NULL, NULL, &time);
}

static ssize_t run_select_second(struct pair p, enum bad kind, char *extra)
{
	struct timeval time = {0, 1000};
	fd_set first, second;
	FD_ZERO(&first);
	FD_SET(p.s, &first);
	second = first;
	ssize_t n = select(p.s + 1, &first, bad_place(kind, &second, sizeof second), NULL,
			   &time);
	sprintf(extra, " %d", FD_ISSET(p.s, &first));
	return n;
}

static ssize_t run_select_time(struct pair p, enum bad kind, char *extra)
{
	const struct timeval time = {0, 1000};
	fd_set set;
	if (kind == NOTHING) /* for ever */
		return 0;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return syscall(SYS_select, p.s + 1, &set, NULL, NULL,
		       bad_place(kind, &time, sizeof time));
}

static ssize_t run_pselect_mask(struct pair p, enum bad kind, char *extra)
{
	const struct timespec time = {0, 1000};
	const uint64_t mask = 0;
	fd_set set;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return pselect(p.s + 1, &set, NULL, NULL, &time,
		       bad_place(kind, &mask, sizeof mask));
}

static ssize_t run_pselect_pair(struct pair p, enum bad kind, char *extra)
{
	const struct timespec time = {0, 1000};
	const uint64_t mask = 0;
	const struct {
		const void *mask;
		size_t size;
	} sig = {&mask, sizeof mask};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return syscall(SYS_pselect6, p.s + 1, &set, NULL, NULL, &time,
		       bad_place(kind, &sig, sizeof sig));
}

static ssize_t run_pselect_inner(struct pair p, enum bad kind, char *extra)
{
	struct timespec time = {0, 1000};
	const uint64_t mask = 0;
	const struct {
		const void *mask;
		size_t size;
	} sig = {bad_place(kind, &mask, sizeof mask), sizeof mask};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return syscall(SYS_pselect6, p.s + 1, &set, NULL, NULL, &time, &sig);
}

static ssize_t run_pselect_time(struct pair p, enum bad kind, char *extra)
{
	const struct timespec time = {0, 1000};
	fd_set set;
	if (kind == NOTHING) /* for ever */
		return 0;
	FD_ZERO(&set);
	FD_SET(p.s, &set);
	(void)extra;
	return syscall(SYS_pselect6, p.s + 1, &set, NULL, NULL,
		       bad_place(kind, &time, sizeof time), NULL);
}

static const struct bad_call waits[] = {
	{"poll", run_poll, false},
	{"poll of many", run_poll_many, false},
	{"ppoll, mask", run_ppoll_mask, false},
	{"ppoll, time", run_ppoll_time, false},
	{"ppoll, size of mask", run_ppoll_size, false},
	{"select", run_select, false},
	{"select, second", run_select_second, false},
	{"select, time", run_select_time, false},
	{"pselect, mask", run_pselect_mask, false},
	{"pselect by number, pair", run_pselect_pair, false},
	{"pselect by number, mask", run_pselect_inner, false},
	{"pselect by number, time", run_pselect_time, false},
};

CASE(bad_waits, DIRECT)
{
	bad_sweep(waits, COUNT_OF(waits));
}

static int instance_of(int fd)
{
	struct epoll_event event = {EPOLLIN | EPOLLOUT, {.u32 = 77}};
	int instance = epoll_create1(0);
	NEED(instance >= 0 && epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event) == 0);
	return instance;
}

static ssize_t run_epoll_mask(struct pair p, enum bad kind, char *extra)
{
	struct epoll_event event = {0};
	const uint64_t mask = 0;
	int instance = instance_of(p.s);
	ssize_t n =
		epoll_pwait(instance, &event, 1, 1, bad_place(kind, &mask, sizeof mask));
	sprintf(extra, " %#x %u", event.events, event.data.u32);
	close(instance);
	return n;
}

static ssize_t run_epoll_size(struct pair p, enum bad kind, char *extra)
{
	struct epoll_event event = {0};
	const uint64_t mask = 0;
	int instance = instance_of(p.s);
	ssize_t n = syscall(SYS_epoll_pwait, instance, &event, 1, 1,
			    bad_place(kind, &mask, sizeof mask), 16);
	sprintf(extra, " %#x %u", event.events, event.data.u32);
	close(instance);
	return n;
}

/* A poll of a connection would take it to TCP, where a full one has room. */
static unsigned other_file(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	NEED(fd >= 0);
	return (unsigned)fd;
}

static ssize_t run_aio(struct pair p, enum bad kind, char *extra)
{
	struct iocb block = {.aio_fildes = other_file(), .aio_lio_opcode = IOCB_CMD_POLL};
	struct iocb *list[1] = {&block};
	aio_context_t context = 0;
	(void)p;
	(void)extra;
	NEED(syscall(SYS_io_setup, 4, &context) == 0);
	block.aio_buf = POLLIN;
	ssize_t n =
		syscall(SYS_io_submit, context, 1, bad_place(kind, list, sizeof list));
	NEED(syscall(SYS_io_destroy, context) == 0);
	NEED(close((int)block.aio_fildes) == 0);
	return n;
}

static ssize_t run_aio_block(struct pair p, enum bad kind, char *extra)
{
	struct iocb block = {.aio_fildes = other_file(),
			     .aio_lio_opcode = IOCB_CMD_POLL,
			     .aio_buf = POLLIN};
	struct iocb *list[1] = {bad_place(kind, &block, sizeof block)};
	aio_context_t context = 0;
	(void)p;
	(void)extra;
	NEED(syscall(SYS_io_setup, 4, &context) == 0);
	ssize_t n = syscall(SYS_io_submit, context, 1, list);
	NEED(syscall(SYS_io_destroy, context) == 0);
	NEED(close((int)block.aio_fildes) == 0);
	return n;
}

static const struct bad_call more_waits[] = {
	{"epoll_pwait, mask", run_epoll_mask, false},
	{"epoll_pwait by number, size of mask", run_epoll_size, false},
	{"io_submit", run_aio, false},
	{"io_submit, block", run_aio_block, false},
};

CASE(bad_more_waits, DIRECT)
{
	bad_sweep(more_waits, COUNT_OF(more_waits));
}
