/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that can block, one function each, and the connections they block on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/block.h"
#include "conform/libc_names.h"

#define RUN(id, what)                                                                    \
	static ssize_t run_##id(struct seat *s)                                          \
	{                                                                                \
		return what;                                                             \
	}

/* Readers ask for 5 bytes, which come in one piece. */
RUN(read, read(s->fd, s->buf, 5))
RUN(__read, __read(s->fd, s->buf, 5))
RUN(read_chk, __read_chk(s->fd, s->buf, 5, sizeof s->buf))
RUN(readv, readv(s->fd, &s->iov, 1))
RUN(preadv2, preadv2(s->fd, &s->iov, 1, -1, 0))
RUN(recv, recv(s->fd, s->buf, 5, 0))
RUN(recv_chk, __recv_chk(s->fd, s->buf, 5, sizeof s->buf, 0))
RUN(recv_peek, recv(s->fd, s->buf, 5, MSG_PEEK))
RUN(recv_all, recv(s->fd, s->buf, 5, MSG_WAITALL))
RUN(recv_trunc, recv(s->fd, s->buf, 5, MSG_TRUNC))
RUN(recvfrom, recvfrom(s->fd, s->buf, 5, 0, NULL, NULL))
RUN(recvfrom_chk, __recvfrom_chk(s->fd, s->buf, 5, sizeof s->buf, 0, NULL, NULL))
RUN(recvmsg, recvmsg(s->fd, &s->msg.msg_hdr, 0))
RUN(recvmmsg, recvmmsg(s->fd, &s->msg, 1, 0, NULL) == 1 ? (ssize_t)s->msg.msg_len : -1)
RUN(sys_read, syscall(SYS_read, s->fd, s->buf, 5))
RUN(sys_recvfrom, syscall(SYS_recvfrom, s->fd, s->buf, 5, 0, NULL, NULL))
RUN(splice_in, splice(s->fd, NULL, s->pipe[1], NULL, 5, 0))

/* Writers have one byte more than there is room for. */
RUN(write, write(s->fd, "w", 1))
RUN(__write, __write(s->fd, "w", 1))
RUN(writev, writev(s->fd, &s->iov, 1))
RUN(pwritev2, pwritev2(s->fd, &s->iov, 1, -1, 0))
RUN(send, send(s->fd, "w", 1, 0))
RUN(__send, __send(s->fd, "w", 1, 0))
RUN(send_quiet, send(s->fd, "w", 1, MSG_NOSIGNAL))
RUN(sendto, sendto(s->fd, "w", 1, 0, NULL, 0))
RUN(sendmsg, sendmsg(s->fd, &s->msg.msg_hdr, 0))
RUN(sendmmsg, sendmmsg(s->fd, &s->msg, 1, 0))
RUN(sendfile, sendfile(s->fd, s->file, &(off_t){0}, 1))
RUN(dprintf, dprintf(s->fd, "w"))
RUN(sys_write, syscall(SYS_write, s->fd, "w", 1))
RUN(sys_sendto, syscall(SYS_sendto, s->fd, "w", 1, 0, NULL, 0))

RUN(accept, accept(s->fd, NULL, NULL))
RUN(accept4, accept4(s->fd, NULL, NULL, SOCK_CLOEXEC))

static short wanted(const struct seat *s)
{
	return s->call->role == WRITER ? POLLOUT : POLLIN | POLLRDHUP;
}

#define RUN_POLL(id, what)                                                               \
	static ssize_t run_##id(struct seat *s)                                          \
	{                                                                                \
		struct pollfd f = {.fd = s->fd, .events = wanted(s)};                    \
		ssize_t n = what;                                                        \
		s->events = f.revents;                                                   \
		return n;                                                                \
	}

RUN_POLL(poll, poll(&f, 1, -1))
RUN_POLL(__poll, __poll(&f, 1, -1))
RUN_POLL(poll_chk, __poll_chk(&f, 1, -1, sizeof f))
RUN_POLL(ppoll, ppoll(&f, 1, NULL, NULL))
RUN_POLL(ppoll_chk, __ppoll_chk(&f, 1, NULL, NULL, sizeof f))
RUN_POLL(sys_poll, syscall(SYS_poll, &f, 1, -1))

#define RUN_SELECT(id, what)                                                             \
	static ssize_t run_##id(struct seat *s)                                          \
	{                                                                                \
		fd_set set, *r = NULL, *w = NULL;                                        \
		FD_ZERO(&set);                                                           \
		FD_SET(s->fd, &set);                                                     \
		*(s->call->role == WRITER ? &w : &r) = &set;                             \
		ssize_t n = what;                                                        \
		s->events = n == 1 && FD_ISSET(s->fd, &set) ? wanted(s) : 0;             \
		return n;                                                                \
	}

RUN_SELECT(select, select(s->fd + 1, r, w, NULL, NULL))
RUN_SELECT(__select, __select(s->fd + 1, r, w, NULL, NULL))
RUN_SELECT(pselect, pselect(s->fd + 1, r, w, NULL, NULL, NULL))

#define RUN_EPOLL(id, what)                                                              \
	static ssize_t run_##id(struct seat *s)                                          \
	{                                                                                \
		struct epoll_event ev = {.events = 0};                                   \
		ssize_t n = what;                                                        \
		s->events = (int)ev.events;                                              \
		return n;                                                                \
	}

RUN_EPOLL(epoll_wait, epoll_wait(s->ep, &ev, 1, -1))
RUN_EPOLL(epoll_pwait, epoll_pwait(s->ep, &ev, 1, -1, NULL))
RUN_EPOLL(epoll_pwait2, epoll_pwait2(s->ep, &ev, 1, NULL, NULL))

/* These are points of cancellation in glibc, and none in musl. */
#ifdef __GLIBC__
#define MAYBE_DEAF false
#else
#define MAYBE_DEAF true
#endif

const struct call block_calls[] = {
	{.name = "read", .run = run_read, .role = READER},
	{.name = "__read", .run = run___read, .role = READER},
	{.name = "__read_chk", .run = run_read_chk, .role = READER},
	{.name = "readv", .run = run_readv, .role = READER},
	{.name = "preadv2", .run = run_preadv2, .role = READER},
	{.name = "recv", .run = run_recv, .role = READER},
	{.name = "__recv_chk", .run = run_recv_chk, .role = READER},
	{.name = "recv PEEK", .run = run_recv_peek, .role = READER, .keeps = true},
	{.name = "recv WAITALL", .run = run_recv_all, .role = READER},
	{.name = "recv TRUNC", .run = run_recv_trunc, .role = READER},
	{.name = "recvfrom", .run = run_recvfrom, .role = READER},
	{.name = "__recvfrom_chk", .run = run_recvfrom_chk, .role = READER},
	{.name = "recvmsg", .run = run_recvmsg, .role = READER},
	{.name = "recvmmsg", .run = run_recvmmsg, .role = READER},
	{.name = "SYS_read", .run = run_sys_read, .role = READER, .deaf = true},
	{.name = "SYS_recvfrom", .run = run_sys_recvfrom, .role = READER, .deaf = true},
	{.name = "splice from", .run = run_splice_in, .role = READER, .deaf = MAYBE_DEAF},
	{.name = "poll", .run = run_poll, .role = READER, .polls = true},
	{.name = "__poll", .run = run___poll, .role = READER, .polls = true},
	{.name = "__poll_chk", .run = run_poll_chk, .role = READER, .polls = true},
	{.name = "ppoll", .run = run_ppoll, .role = READER, .polls = true},
	{.name = "__ppoll_chk", .run = run_ppoll_chk, .role = READER, .polls = true},
	{.name = "SYS_poll",
	 .run = run_sys_poll,
	 .role = READER,
	 .polls = true,
	 .deaf = true},
	{.name = "select", .run = run_select, .role = READER, .polls = true},
	{.name = "__select", .run = run___select, .role = READER, .polls = true},
	{.name = "pselect", .run = run_pselect, .role = READER, .polls = true},
	{.name = "epoll_wait", .run = run_epoll_wait, .role = READER, .polls = true},
	{.name = "epoll_pwait", .run = run_epoll_pwait, .role = READER, .polls = true},
	{.name = "epoll_pwait2", .run = run_epoll_pwait2, .role = READER, .polls = true},
	{.name = "write", .run = run_write, .role = WRITER},
	{.name = "__write", .run = run___write, .role = WRITER},
	{.name = "writev", .run = run_writev, .role = WRITER},
	{.name = "pwritev2", .run = run_pwritev2, .role = WRITER},
	{.name = "send", .run = run_send, .role = WRITER},
	{.name = "__send", .run = run___send, .role = WRITER},
	{.name = "send NOSIGNAL", .run = run_send_quiet, .role = WRITER},
	{.name = "sendto", .run = run_sendto, .role = WRITER},
	{.name = "sendmsg", .run = run_sendmsg, .role = WRITER},
	{.name = "sendmmsg", .run = run_sendmmsg, .role = WRITER},
	{.name = "sendfile", .run = run_sendfile, .role = WRITER, .deaf = true},
	{.name = "dprintf",
	 .run = run_dprintf,
	 .role = WRITER,
	 .deaf = MAYBE_DEAF,
	 .untidy = true},
	{.name = "SYS_write", .run = run_sys_write, .role = WRITER, .deaf = true},
	{.name = "SYS_sendto", .run = run_sys_sendto, .role = WRITER, .deaf = true},
	{.name = "poll OUT", .run = run_poll, .role = WRITER, .polls = true},
	{.name = "ppoll OUT", .run = run_ppoll, .role = WRITER, .polls = true},
	{.name = "select OUT", .run = run_select, .role = WRITER, .polls = true},
	{.name = "pselect OUT", .run = run_pselect, .role = WRITER, .polls = true},
	{.name = "epoll_wait OUT", .run = run_epoll_wait, .role = WRITER, .polls = true},
	{.name = "epoll_pwait2 OUT",
	 .run = run_epoll_pwait2,
	 .role = WRITER,
	 .polls = true},
	{.name = "accept", .run = run_accept, .role = ACCEPTOR},
	{.name = "accept4", .run = run_accept4, .role = ACCEPTOR},
	{.name = "poll of a listener", .run = run_poll, .role = ACCEPTOR, .polls = true},
	{.name = "epoll_wait of a listener",
	 .run = run_epoll_wait,
	 .role = ACCEPTOR,
	 .polls = true},
};
const size_t block_calls_count = COUNT_OF(block_calls);

/* Set at both ends, before anything was promised, buffers do not grow: full stays full. */
static struct pair small_pair(enum stage stage)
{
	int size = 200000;
	struct pair p = stage_pair(size);
	NEED(setsockopt(p.s, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
	stage_enter(p, stage);
	return p;
}

bool seat_fill(struct seat *s)
{
	static const char many[32768];
	if (s->call->role != WRITER)
		return true;
	ssize_t n;
	while ((n = send(s->fd, many, sizeof many, MSG_DONTWAIT)) > 0)
		s->filled += (uint64_t)n;
	NEED(errno == EAGAIN || errno == ECONNRESET || errno == EPIPE);
	return errno == EAGAIN;
}

void seat_open(struct seat *s, const struct call *call, enum stage stage)
{
	memset(s, 0, sizeof *s);
	s->call = call;
	s->iov = (struct iovec){s->buf, call->role == WRITER ? 1 : 5};
	s->msg.msg_hdr.msg_iov = &s->iov;
	s->msg.msg_hdr.msg_iovlen = 1;
	s->file = memfd_create("case", 0);
	NEED(write(s->file, "w", 1) == 1);
	NEED(pipe(s->pipe) == 0);
	if (call->role == ACCEPTOR) {
		s->fd = listen_any(AF_INET, &s->port);
		s->p = (struct pair){-1, -1};
	} else {
		s->p = call->role == WRITER ? small_pair(stage) : stage_open(stage);
		s->fd = s->p.s;
	}
	NEED(seat_fill(s));
	struct epoll_event ev = {.events = (uint32_t)wanted(s)};
	s->ep = epoll_create1(0);
	NEED(epoll_ctl(s->ep, EPOLL_CTL_ADD, s->fd, &ev) == 0);
}

/* All that is on its way comes, and it is as much as was sent. */
static void drain(struct seat *s)
{
	static char many[65536];
	uint64_t want = s->filled;
	while (want > 0) {
		ssize_t n =
			recv(s->p.c, many, want < sizeof many ? want : sizeof many, 0);
		NEED(n > 0);
		want -= (uint64_t)n;
	}
	s->filled = 0;
}

void seat_feed(struct seat *s)
{
	if (s->call->role == READER) {
		send_all(s->p.c, "bytes", 5);
		s->fed = 5;
	} else if (s->call->role == WRITER) {
		drain(s);
	} else {
		s->p.c = connect_to(AF_INET, s->port);
	}
}

void seat_close(struct seat *s)
{
	close(s->p.c);
	close(s->fd);
	close(s->ep);
	close(s->file);
	close(s->pipe[0]);
	close(s->pipe[1]);
}
