/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: each call that receives, given memory that it cannot use. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conform/bad.h"

static uint8_t room[64];

static void tell_room(char *extra)
{
	unsigned sum = 0;
	for (size_t i = 0; i < sizeof room; i++)
		sum += (unsigned)(i + 1) * room[i];
	sprintf(extra + strlen(extra), " took %x", sum);
	memset(room, 0, sizeof room);
}

/* ---- receiving ---- */

static ssize_t run_read(struct pair p, enum bad kind, char *extra)
{
	uint8_t *to = bad_place(kind, room, 20);
	ssize_t n = read(p.s, to, 20);
	sprintf(extra, " %x", bad_word(kind, to));
	return n;
}

static ssize_t run_read_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return read(p.s, bad_place(kind, room, 20), 0);
}

static ssize_t run_read_long(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return read(p.s, bad_place(kind, room, 20), __LONG_MAX__);
}

static ssize_t run_read_longer(struct pair p, enum bad kind, char *extra)
{
	volatile size_t len = SIZE_MAX;
	(void)extra;
	return read(p.s, bad_place(kind, room, 20), len);
}

static ssize_t run_recv_long(struct pair p, enum bad kind, char *extra)
{
	uint8_t *to = bad_place(kind, room, 20);
	ssize_t n = recv(p.s, to, __LONG_MAX__, 0);
	sprintf(extra, " %x", bad_word(kind, to));
	return n;
}

static ssize_t run_readv(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 20}};
	ssize_t n = readv(p.s, bad_place(kind, iov, sizeof iov), 2);
	tell_room(extra);
	return n;
}

static ssize_t run_readv_first(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{bad_place(kind, room, 20), 20}, {room, 20}};
	ssize_t n = readv(p.s, iov, 2);
	tell_room(extra);
	return n;
}

static ssize_t run_readv_second(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {bad_place(kind, room, 20), 20}};
	ssize_t n = readv(p.s, iov, 2);
	tell_room(extra);
	return n;
}

static ssize_t run_readv_empty(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{bad_place(kind, room, 20), 0}, {room, 20}};
	ssize_t n = readv(p.s, iov, 2);
	tell_room(extra);
	return n;
}

static ssize_t run_readv_behind(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 10}, {bad_place(kind, room, 20), 20}};
	ssize_t n = readv(p.s, iov, 2);
	tell_room(extra);
	return n;
}

static ssize_t run_preadv2(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 20}};
	ssize_t n = preadv2(p.s, bad_place(kind, iov, sizeof iov), 2, -1, 0);
	tell_room(extra);
	return n;
}

static ssize_t run_recv(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return recv(p.s, bad_place(kind, room, 20), 20, 0);
}

static ssize_t run_recv_none(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return recv(p.s, bad_place(kind, room, 20), 0, 0);
}

static ssize_t run_recv_peek(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return recv(p.s, bad_place(kind, room, 20), 20, MSG_PEEK);
}

static ssize_t run_recv_trunc(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return recv(p.s, bad_place(kind, room, 20), 20, MSG_TRUNC);
}

static ssize_t run_recv_all(struct pair p, enum bad kind, char *extra)
{
	(void)extra;
	return recv(p.s, bad_place(kind, room, 20), 20, MSG_WAITALL);
}

static ssize_t run_recvfrom_name(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {.ss_family = 77};
	socklen_t len = sizeof name;
	ssize_t n = recvfrom(p.s, room, 20, 0, bad_place(kind, &name, sizeof name), &len);
	tell_room(extra);
	sprintf(extra + strlen(extra), " name %u", len);
	return n;
}

static ssize_t run_recvfrom_len(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {.ss_family = 77};
	socklen_t len = sizeof name, *at = bad_place(kind, &len, sizeof len);
	ssize_t n = recvfrom(p.s, room, 20, 0, (struct sockaddr *)&name, at);
	tell_room(extra);
	sprintf(extra + strlen(extra), " name %u", bad_word(kind, at));
	return n;
}

static ssize_t run_recvfrom_long(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {.ss_family = 77};
	socklen_t len = UINT32_MAX;
	ssize_t n = recvfrom(p.s, room, 20, 0, bad_place(kind, &name, sizeof name), &len);
	tell_room(extra);
	sprintf(extra + strlen(extra), " name %u", len);
	return n;
}

static void tell_header(char *extra, const struct msghdr *msg)
{
	sprintf(extra + strlen(extra), " flags %#x name %u control %zu",
		(unsigned)msg->msg_flags, msg->msg_namelen, msg->msg_controllen);
}

static ssize_t run_recvmsg(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov = {room, 20};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_flags = 0x5a5a};
	struct msghdr *at = bad_place(kind, &msg, sizeof msg);
	ssize_t n = recvmsg(p.s, at, 0);
	tell_room(extra);
	if (kind == READABLE || kind == FITS)
		tell_header(extra, at);
	return n;
}

static ssize_t recv_message(struct pair p, struct msghdr *msg, char *extra)
{
	struct iovec iov = {room, 20};
	if (!msg->msg_iov) {
		msg->msg_iov = &iov;
		msg->msg_iovlen = 1;
	}
	msg->msg_flags = 0x5a5a;
	ssize_t n = recvmsg(p.s, msg, 0);
	tell_room(extra);
	tell_header(extra, msg);
	return n;
}

static ssize_t run_recvmsg_vector(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 17}};
	struct msghdr msg = {.msg_iov = bad_place(kind, iov, sizeof iov),
			     .msg_iovlen = 2};
	if (msg.msg_iov == NULL) /* recv_message would take it for none */
		msg.msg_iov = (struct iovec *)8;
	return recv_message(p, &msg, extra);
}

static ssize_t run_recvmsg_many(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 17}};
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = kind == FITS ? 1025 : SIZE_MAX - kind};
	return recv_message(p, &msg, extra);
}

static ssize_t run_recvmsg_no_vector(struct pair p, enum bad kind, char *extra)
{
	struct msghdr msg = {.msg_iov = bad_place(kind, room, 20), .msg_iovlen = 0};
	if (msg.msg_iov == NULL)
		msg.msg_iov = (struct iovec *)8;
	return recv_message(p, &msg, extra);
}

static ssize_t run_recvmsg_name(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {.ss_family = 77};
	struct msghdr msg = {.msg_name = bad_place(kind, &name, sizeof name),
			     .msg_namelen = sizeof name};
	return recv_message(p, &msg, extra);
}

static ssize_t run_recvmsg_name_long(struct pair p, enum bad kind, char *extra)
{
	struct sockaddr_storage name = {.ss_family = 77};
	struct msghdr msg = {.msg_name = bad_place(kind, &name, sizeof name),
			     .msg_namelen = UINT32_MAX};
	return recv_message(p, &msg, extra);
}

static ssize_t run_recvmsg_control(struct pair p, enum bad kind, char *extra)
{
	char control[64] = "";
	struct msghdr msg = {.msg_control = bad_place(kind, control, sizeof control),
			     .msg_controllen = sizeof control};
	return recv_message(p, &msg, extra);
}

/* An error that the kernel leaves to the next call is promised to nobody. */
static ssize_t take_left(struct pair p, ssize_t n)
{
	int error, saved = errno;
	socklen_t len = sizeof error;
	if (n > 0)
		NEED(getsockopt(p.s, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
	errno = saved;
	return n;
}

static ssize_t run_recvmmsg(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 3}};
	struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = iov + 1, .msg_iovlen = 1}}};
	ssize_t n = recvmmsg(p.s, bad_place(kind, msgs, sizeof msgs), 2, 0, NULL);
	tell_room(extra);
	return take_left(p, n);
}

static ssize_t run_recvmmsg_vector(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 3}};
	struct mmsghdr msgs[2] = {
		{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
		{.msg_hdr = {.msg_iov = bad_place(kind, iov + 1, sizeof *iov),
			     .msg_iovlen = 1}}};
	ssize_t n = recvmmsg(p.s, msgs, 2, 0, NULL);
	tell_room(extra);
	return take_left(p, n);
}

static ssize_t run_recvmmsg_buffer(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {bad_place(kind, room, 3), 3}};
	struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = iov + 1, .msg_iovlen = 1}}};
	ssize_t n = recvmmsg(p.s, msgs, 2, 0, NULL);
	tell_room(extra);
	return take_left(p, n);
}

static ssize_t run_recvmmsg_many(struct pair p, enum bad kind, char *extra)
{
	struct iovec iov[2] = {{room, 3}, {room + 3, 3}};
	struct mmsghdr msgs[2] = {{.msg_hdr = {.msg_iov = iov, .msg_iovlen = 1}},
				  {.msg_hdr = {.msg_iov = iov + 1, .msg_iovlen = 1025}}};
	(void)kind;
	ssize_t n = recvmmsg(p.s, msgs, 2, 0, NULL);
	tell_room(extra);
	return take_left(p, n);
}

static ssize_t run_recvmmsg_time(struct pair p, enum bad kind, char *extra)
{
	struct timespec time = {5, 0};
	struct iovec iov = {room, 3};
	struct mmsghdr msg = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
	ssize_t n = syscall(SYS_recvmmsg, p.s, &msg, 1, 0,
			    bad_place(kind, &time, sizeof time));
	tell_room(extra);
	return n;
}

static const struct bad_call receives[] = {
	{"read", run_read, false},
	{"read of nothing", run_read_none, false},
	{"read of LONG_MAX", run_read_long, false},
	{"read of SIZE_MAX", run_read_longer, false},
	{"readv", run_readv, false},
	{"readv, first", run_readv_first, false},
	{"readv, second", run_readv_second, false},
	{"readv, empty first", run_readv_empty, false},
	{"readv, behind the bytes", run_readv_behind, false},
	{"preadv2", run_preadv2, false},
	{"recv", run_recv, false},
	{"recv of nothing", run_recv_none, false},
	{"recv of LONG_MAX", run_recv_long, false},
	{"recv PEEK", run_recv_peek, false},
	{"recv TRUNC", run_recv_trunc, false},
	{"recv WAITALL", run_recv_all, false},
	{"recvfrom, name", run_recvfrom_name, false},
	{"recvfrom, length", run_recvfrom_len, false},
	{"recvfrom, wrong length", run_recvfrom_long, false},
};

CASE(bad_receives, DIRECT)
{
	bad_sweep(receives, COUNT_OF(receives));
}

static const struct bad_call received_messages[] = {
	{"recvmsg", run_recvmsg, false},
	{"recvmsg, vector", run_recvmsg_vector, false},
	{"recvmsg, too many", run_recvmsg_many, false},
	{"recvmsg, no vector", run_recvmsg_no_vector, false},
	{"recvmsg, name", run_recvmsg_name, false},
	{"recvmsg, long name", run_recvmsg_name_long, false},
	{"recvmsg, control", run_recvmsg_control, false},
	{"recvmmsg, second vector", run_recvmmsg_vector, false},
	{"recvmmsg, second buffer", run_recvmmsg_buffer, false},
	{"recvmmsg, second too many", run_recvmmsg_many, false},
	{"recvmmsg, time", run_recvmmsg_time, false},
};

CASE(bad_received_messages, DIRECT)
{
	bad_sweep(received_messages, COUNT_OF(received_messages));
}

/* Where an error of the connection waits as well, either is told first. */
CASE(bad_batch, DIRECT)
{
	for (int kind = 0; kind < BAD_COUNT; kind++) {
		struct pair p = pair_warm_open();
		char extra[256] = "";
		send_all(p.c, "abcdef", 6);
		wait_inq(p.s, 6);
		say_result(bad_names[kind], run_recvmmsg(p, (enum bad)kind, extra));
		say("%s", extra);
		pair_close(p);
	}
}
